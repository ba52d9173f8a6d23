"""Two and four devices: an identification and supervised training have the gradient of one, from one message."""

import os
import subprocess
import sys
from pathlib import Path

from ..conftest import QUICK

PROGRAM = """
import functools, re
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
import fphys
from fphys import distributed, train

model = fphys.load(fphys.asset("cartpole"))
state = fphys.init(model, 8, qpos=np.linspace(-0.2, 0.3, 16).reshape(8, 2))
data = fphys.rollout(model, state, jnp.zeros((3, 8, 1))).qpos.swapaxes(0, 1)

def misfit(mass, state, data):
    states = fphys.rollout(model.replace({"body.mass": mass}), state, jnp.zeros((3, len(data), 1)))
    return ((states.qpos.swapaxes(0, 1) - data) ** 2).sum() * 1e6, states.qpos[-1]

def loss(params, aux, batch, key):
    return ((jnp.tanh(batch @ params["w"]) @ params["v"]) ** 2).mean(), aux, {}

params = {"w": jnp.linspace(-1, 1, 15).reshape(3, 5), "v": jnp.linspace(1, 2, 5)}
batch, optimizer = jnp.sin(jnp.arange(24.0)).reshape(8, 3), fphys.optim.SGD(0.1)
learn = functools.partial(train.step, loss, optimizer)

def run(mesh):
    args = [x if mesh is None else distributed.split(x, mesh) for x in (1.1 * model.body.mass, state, data)]
    learner = distributed.everywhere(train.init(params, optimizer), mesh)
    rows = batch if mesh is None else distributed.split(batch, mesh)
    compiled = jax.jit(functools.partial(distributed.gradient, misfit)).lower(*args).compile()
    taught = jax.jit(learn).lower(learner, rows).compile()
    (pair, _), (after, _) = compiled(*args), taught(learner, rows)
    return (pair, after.params), [len(re.findall(r" all-reduce\\\\(", c.as_text())) for c in (compiled, taught)]

one, _ = run(None)
assert abs(one[0][1]).max() > 1e-3
for count in (2, 4):
    mesh = distributed.mesh(jax.devices()[:count])
    with jax.set_mesh(mesh):
        many, messages = run(mesh)
    error = max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in zip(*map(jax.tree.leaves, (one, many))))
    print(count, error <= 1e-12, messages)
"""


NETWORK = """
import functools
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
from fphys import distributed, losses, nn, optim, train
from fphys.nn.transformer import SPLIT

build = lambda rngs: nn.models.GPT2(11, 8, features=16, depth=2, num_heads=4, dropout=0.0, rngs=rngs)
module, params, aux = nn.init(build, jax.random.key(0))
tokens = jax.random.randint(jax.random.key(1), (8, 9), 0, 11)
place = functools.partial(distributed.place, rules=SPLIT)

def loss(params, aux, batch, key):
    logits = nn.apply(module, params, aux, batch[:, :-1], train=True, key=key)[0]
    return losses.cross_entropy(logits, batch[:, 1:]), aux, {}

def run(dtype):
    mine = place(jax.tree.map(lambda x: x.astype(dtype), params))
    slope = jax.jit(jax.grad(lambda params, batch: loss(params, aux, batch, jax.random.key(2))[0]))
    options = dict(aux=aux, key=jax.random.key(2), place=place)
    learned = train.fit(loss, mine, optim.SGD(0.1, momentum=0.9), [tokens] * 5, **options).state
    return slope(mine, distributed.split(tokens)), learned.params, learned.opt

for dtype, tolerance in ((jnp.float32, 1e-6), (jnp.float64, 1e-12)):
    one = run(dtype)
    with jax.set_mesh(distributed.mesh(model=2)):
        many = run(dtype)
    for a, b in zip(*map(jax.tree.leaves, (one, many))):
        np.testing.assert_allclose(np.asarray(b), a, rtol=0, atol=tolerance * max(1, abs(a).max()))
    whole = many[1]["blocks"][0]
    parts = [x.addressable_shards[0].data.shape for x in (whole["attention"]["query"]["kernel"], whole["up"]["kernel"])]
    print(dtype.__name__, float(abs(one[0]["blocks"][0]["up"]["kernel"]).max()) > 1e-3, parts)
try:
    distributed.place({"up": {"kernel": jnp.ones((2, 3))}}, SPLIT, distributed.mesh(model=2))
except ValueError as error:
    print(error)
"""


def run(program: str, folder: Path) -> list[str]:
    """What a program prints, in a process with four devices."""
    (folder / "program.py").write_text(program.replace("\\\\", "\\"))
    flags = f"--xla_force_host_platform_device_count=4{QUICK}"
    env = os.environ | {"XLA_FLAGS": flags, "NPROC": "32"}
    done = subprocess.run(
        [sys.executable, folder / "program.py"], env=env, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_gradients_on_two_and_four_devices_are_those_of_one(tmp_path):
    assert run(PROGRAM, tmp_path) == ["2 True [1, 1]", "4 True [1, 1]"]


def test_a_gpt_whose_weights_are_split_is_that_of_one_device(tmp_path):
    """On two by two devices: its gradient, and five updates; half of the heads and of the neurons on each."""
    assert run(NETWORK, tmp_path) == [
        "float32 True [(16, 2, 4), (16, 32)]",
        "float64 True [(16, 2, 4), (16, 32)]",
        "up.kernel has shape (2, 3), which does not divide evenly over (None, 'model') of [1, 2] devices",
    ]
