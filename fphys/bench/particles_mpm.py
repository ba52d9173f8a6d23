"""The material point method as benchmark cases: a falling elastic block, forward and gradient."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..particles import mpm
from . import genesis_particles
from .case import Case, Workload

Array = jax.Array

STEPS = 10
GRAVITY = -1.0
SQUEEZE = np.array([-1.0, 0.5, 0.5], np.float32)  # initial rate of strain [1/s]
SIZES = {"1k": (10, 12), "4k": (16, 20), "32k": (32, 40), "262k": (64, 80), "1M": (100, 125)}
"""Particles along an edge of the block, and cells along an edge of the domain: about eight particles a cell."""


def mpm_cases(sizes: dict[str, tuple[int, int]] = SIZES) -> list[Case]:
    """Steps of one block of each size, and of many small ones; their gradients; and the same in Genesis."""
    found = []
    for name, size in sizes.items():
        edge = size[0]
        tags = ("particles", "mpm", name, "large") if edge > 16 else ("particles", "mpm", name)
        work, worlds = STEPS * edge**3, (1, 256) if name == "1k" else (1,)
        step = f"particles.mpm.{name}.step"
        found += [
            Case(step, _setup(size, _forward), work, "particle-steps", worlds, tags=tags),
            Case(
                f"{step}_grad", _setup(size, _backward), work, "particle-steps", worlds, step, 4.0, (*tags, "gradient")
            ),
        ]
        if name != "1k" and genesis_particles.INSTALLED:
            found += [
                Case(f"{step}_genesis", _setup(size, _genesis), work, "particle-steps", worlds, step, tags=tags),
                Case(
                    f"{step}_grad_genesis", _setup(size, _genesis_grad), work, "particle-steps", worlds, f"{step}_grad",
                    tags=(*tags, "gradient"),
                ),
            ]  # fmt: skip
    return found


def _setup(size: tuple[int, int], make: Callable[[mpm.Params, mpm.State], Workload]) -> Callable[[int], Workload]:
    def setup(worlds: int) -> Workload:
        edge, cells = size
        cell = 1.0 / cells
        params = mpm.Params(
            mpm.Corotated(1000.0, 1e4, 0.3), 1e-4, (0.0, 0.0, GRAVITY), cell=cell, shape=(cells, cells, cells)
        )
        axis = 0.3 + 0.4 / edge * np.arange(edge)  # in lattice order, each particle anywhere in its cube
        lattice = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)
        x = lattice + np.random.default_rng(0).uniform(0, 0.4 / edge, (worlds, edge**3, 3))
        x = x.astype(np.float32)
        v = SQUEEZE * (x - x.mean(1, keepdims=True))
        return make(params, mpm.init(params, x, v, volume=0.4**3 / edge**3))

    return setup


def _run(params: mpm.Params, state: mpm.State) -> mpm.State:
    return jax.lax.scan(lambda s, _: (mpm.step(params, s), None), state, None, length=STEPS)[0]


def _forward(params: mpm.Params, state: mpm.State) -> Workload:
    def validate(after: mpm.State) -> None:
        mpm.check(params, after)
        gained = (np.asarray(after.v, np.float64) - np.asarray(state.v)).mean(1)
        fallen = STEPS * params.timestep * np.array([0.0, 0.0, GRAVITY])
        if not np.allclose(gained, fallen, rtol=0, atol=1e-6):
            raise ValueError(f"in {STEPS} steps the centre gained {gained[0]} m/s, not {fallen}")

    return Workload(lambda state: _run(params, state), (state,), validate)


def _backward(params: mpm.Params, state: mpm.State) -> Workload:
    def fn(state: mpm.State, x: Array, v: Array) -> tuple[Array, Array]:
        return jax.grad(lambda x, v: jnp.sum(_run(params, state.replace(x=x, v=v)).x), argnums=(0, 1))(x, v)

    def validate(grads: Any) -> None:
        """Moving the whole block by d, or adding d to its velocity, moves its end by d, or by d T."""
        for grad, wanted in zip(grads, (1.0, STEPS * params.timestep), strict=True):
            mean = np.asarray(grad, np.float64).mean(1)
            if not np.allclose(mean, wanted, rtol=1e-4):
                raise ValueError(f"the mean gradient over the block is {mean[0]}, must be {wanted}")

    return Workload(fn, (state, state.x, state.v), validate)


def _genesis(params: mpm.Params, state: mpm.State) -> Workload:
    return genesis_particles.mpm_steps(params, state, STEPS, lambda: jax.jit(_run)(params, state).v)


def _genesis_grad(params: mpm.Params, state: mpm.State) -> Workload:
    ours = _backward(params, state)
    return genesis_particles.mpm_gradient(params, state, STEPS, lambda: jax.jit(ours.fn)(*ours.args))
