"""A program of several processes, which the tests start and disturb: count, save, go on from the newest checkpoint."""

import functools
import os
import resource
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp

from fphys import distributed, optim, train

ROWS = [[(3 * i + j) % 5 - 1.5 for j in range(3)] for i in range(8)]
OPTIMIZER = optim.Adam(0.1)


def loss(params, aux, batch, key):
    return ((batch @ params["w"]) ** 2).mean(), aux, {}


def uninterrupted(steps: int) -> list[float]:
    """Parameters and the sum of all worlds at the end, on one device."""
    learner, learn = train.init({"w": jnp.ones(3)}, OPTIMIZER), jax.jit(functools.partial(train.step, loss, OPTIMIZER))
    for _ in range(steps):
        learner, _ = learn(learner, jnp.array(ROWS))
    return [*learner.params["w"].tolist(), steps * 2 * sum(range(8))]


def main(folder: Path, steps: int, pause: float, full: int) -> None:
    """``full`` is the rank whose disk has no more room at the second checkpoint; there is room after a restart."""
    distributed.initialize()
    rank, count = distributed.shard()
    (folder / f"pid-{rank}").write_text(str(os.getpid()))
    jax.config.update("jax_enable_x64", True)
    mine = jnp.array(ROWS)[rank * 8 // count : (rank + 1) * 8 // count]
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    with jax.set_mesh(distributed.mesh()):
        state = {"learner": train.init({"w": jnp.ones(3)}, OPTIMIZER), "worlds": jnp.zeros((8, 2))}
        state = {"learner": distributed.everywhere(state["learner"]), "worlds": distributed.split(state["worlds"])}
        checkpoints = train.Checkpoints(folder / "checkpoints", every=5)
        checkpoints.prepare()
        if found := checkpoints.restore(state):
            state = found[0]
            if rank == 0:
                print("resumed", int(state["learner"].step), flush=True)
        batch = distributed.joined(mine)
        learn = jax.jit(functools.partial(train.step, loss, OPTIMIZER))
        move = jax.jit(lambda x: x + jnp.arange(8.0)[:, None])
        for i in range(int(state["learner"].step), steps):
            state = {"learner": learn(state["learner"], batch)[0], "worlds": move(state["worlds"])}
            if (i + 1) % 5 == 0:
                room = 0 if rank == full and i + 1 == 10 and not found else unlimited
                resource.setrlimit(resource.RLIMIT_FSIZE, (room, unlimited))
                try:
                    checkpoints.save(i + 1, state)
                finally:  # so that the error can be told
                    resource.setrlimit(resource.RLIMIT_FSIZE, (unlimited, unlimited))
                if rank == 0:
                    print("saved", i + 1, flush=True)
            time.sleep(pause)
        last = distributed.on_host(state)
    if rank == 0:
        print("end", last["learner"].params["w"].tolist(), last["worlds"].sum().item(), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
