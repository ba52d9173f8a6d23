"""Two and four devices: an identification and supervised training have the gradient of one, from one message."""

import os
import subprocess
import sys

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


def test_gradients_on_two_and_four_devices_are_those_of_one(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM.replace("\\\\", "\\"))
    flags = "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"
    env = os.environ | {"XLA_FLAGS": flags, "NPROC": "32"}
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"], env=env, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert lines == ["2 True [1, 1]", "4 True [1, 1]"], done.stdout
