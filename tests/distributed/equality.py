"""Gradients and learning curves on all devices of all processes, which the tests compare with those of one device."""

import functools
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys import distributed, envs, optim, train
from fphys.rl import ppo, shac

FEW = {"steps": 8 * 4 * 20, "horizon": 4, "hidden": (4,)}
AGENTS = {
    "ppo": (ppo, ppo.Config(**FEW, epochs=1, minibatches=2)),
    "shac": (shac, shac.Config(**FEW, critic_epochs=1)),
}


def identification(dtype):
    """The gradient of a misfit by the masses of a cart and its pole."""
    model = fphys.load(fphys.asset("cartpole"), dtype=dtype)
    state = fphys.init(model, 8, qpos=np.linspace(-0.2, 0.3, 16, dtype=dtype).reshape(8, 2))
    ends = lambda model, state: fphys.rollout(model, state, jnp.zeros((20, len(state.qpos), 1), dtype)).qpos[-1]  # noqa: E731

    def misfit(mass, state, data):
        found = ends(model.replace({"body.mass": mass}), state)
        return ((found - data) ** 2).sum(), found

    data, mass = jax.jit(ends)(model, state), 1.5 * model.body.mass
    given = distributed.everywhere(mass), *distributed.split((state, data))
    return jax.jit(functools.partial(distributed.gradient, misfit))(*given)[0][1]


def supervised(dtype):
    """The change of weights in a step of gradient descent."""

    def loss(params, aux, batch, key):
        return ((jnp.tanh(batch @ params["w"]) @ params["v"]) ** 2).mean(), aux, {}

    params = {"w": jnp.linspace(-1, 1, 15, dtype=dtype).reshape(3, 5), "v": jnp.linspace(1, 2, 5, dtype=dtype)}
    optimizer, batch = optim.SGD(1.0), distributed.split(jnp.sin(jnp.arange(24, dtype=dtype)).reshape(8, 3))
    learner = distributed.everywhere(train.init(params, optimizer))
    after, _ = jax.jit(functools.partial(train.step, loss, optimizer))(learner, batch)
    return after.params["w"] - learner.params["w"]


def learning(agent, config):
    """The scalars of twenty updates."""
    env = envs.make("InvertedPendulum-v5", 8, max_episode_steps=20)
    module, state = jax.jit(functools.partial(agent.init, env, config))(jax.random.key(0))
    update, rows = jax.jit(functools.partial(agent.update, env, config, module)), []
    for _ in range(20):
        state, row = update(state)
        rows.append([float(row[name]) for name in ("grad_norm", "reward", "value_loss", "episodes")])
    return np.array(rows)


def main(path: str) -> None:
    if "FPHYS_RANK" in os.environ:
        distributed.initialize()
    jax.config.update("jax_enable_x64", True)
    with jax.set_mesh(distributed.mesh()):
        found = {name: learning(*AGENTS[name]) for name in AGENTS}
        for dtype in (np.float32, np.float64):
            found[f"identification {dtype.__name__}"] = distributed.on_host(identification(dtype))
            found[f"fit {dtype.__name__}"] = distributed.on_host(supervised(dtype))
    if distributed.is_first():
        np.savez(path, devices=jax.device_count(), **found)


if __name__ == "__main__":
    main(sys.argv[1])
