"""A program of several processes, which the tests start and disturb: count, save, go on from the newest checkpoint."""

import functools
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp

from fphys import distributed, optim, train

folder, steps, pause = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
distributed.initialize()
rank, count = distributed.shard()
(folder / f"pid-{rank}").write_text(str(__import__("os").getpid()))
jax.config.update("jax_enable_x64", True)


def loss(params, aux, batch, key):
    return ((batch @ params["w"]) ** 2).mean(), aux, {}


optimizer = optim.Adam(0.1)
rows = jnp.sin(jnp.arange(24.0)).reshape(8, 3)
mine = rows[rank * 8 // count : (rank + 1) * 8 // count]
with jax.set_mesh(distributed.mesh()):
    state = {"learner": train.init({"w": jnp.ones(3)}, optimizer), "worlds": jnp.zeros((8, 2))}
    state = {"learner": distributed.everywhere(state["learner"]), "worlds": distributed.split(state["worlds"])}
    checkpoints = train.Checkpoints(folder / "checkpoints", every=5)
    checkpoints.prepare()
    if found := checkpoints.restore(state):
        state = found[0]
        if rank == 0:
            print("resumed", int(state["learner"].step), flush=True)
    batch = distributed.joined(mine)
    learn = jax.jit(functools.partial(train.step, loss, optimizer))
    move = jax.jit(lambda x: x + jnp.arange(8.0)[:, None])
    for i in range(int(state["learner"].step), steps):
        state = {"learner": learn(state["learner"], batch)[0], "worlds": move(state["worlds"])}
        if (i + 1) % 5 == 0:
            checkpoints.save(i + 1, state)
            if rank == 0:
                print("saved", i + 1, flush=True)
        time.sleep(pause)
    found = distributed.on_host(state)
if rank == 0:
    print("end", found["learner"].params["w"].tolist(), found["worlds"].sum().item(), flush=True)
