"""SPH as benchmark cases: a perturbed block of fluid, in one world or many, forward and gradient."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..particles import sph
from . import genesis_particles, plain_sph
from .case import Case, Workload

Array = jax.Array

SIZES = {"1k": 10, "4k": 16, "32k": 32, "262k": 64, "1M": 100}
"""Particles along each edge of the block."""

_SPACING = 0.02
_GRADIENT_BELOW = 70  # largest edge, in particles, for which the gradient is checked against differences


def sph_cases(sizes: dict[str, int] = SIZES) -> list[Case]:
    """For each size: a step, its gradient, and the step in plain JAX and in Genesis. Also many small worlds."""
    cases = []
    for size, edge in sizes.items():
        name, worlds = f"particles.sph.{size}.step", (1, 256) if size == "1k" else (1,)
        made = {"unit": "particle-steps", "steps": edge**3, "worlds": worlds}
        tags = ("particles", "sph", "large") if edge > 16 else ("particles", "sph")
        cases += [
            Case(name, lambda w, e=edge: _forward(w, e), tags=tags, **made),
            Case(
                f"{name}_grad",
                lambda w, e=edge: _backward(w, e),
                relative_to=name,
                target=4.0,
                tags=(*tags, "gradient"),
                **made,
            ),
        ]
        if size != "1k":
            cases.append(Case(f"{name}_jax", lambda w, e=edge: _plain(e), relative_to=name, tags=tags, **made))
        if size != "1k" and genesis_particles.INSTALLED:
            genesis = Case(f"{name}_genesis", lambda w, e=edge: _genesis(e), relative_to=name, tags=tags, **made)
            cases.append(genesis)
    return cases


def block(worlds: int, edge: int) -> tuple[sph.Params, sph.State]:
    """A block of ``edge``^3 particles, displaced by a tenth of the spacing and moving at random."""
    rng = np.random.default_rng(0)
    real = jnp.zeros(0).dtype
    axis = np.arange(edge) * _SPACING
    lattice = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(1, -1, 3)
    x = lattice + 0.1 * _SPACING * rng.standard_normal((worlds, *lattice.shape[1:]))
    v = 0.1 * rng.standard_normal(x.shape)
    params = sph.Params(
        _SPACING,
        timestep=5e-5,
        sound_speed=50.0,
        gravity=jnp.asarray([[0.0, 0.0, -9.81]], real),
        viscosity=0.5,
        artificial=0.02,
        diffusion=0.1,
        smoothing=1.0,
        exponent=7.0,
    )
    return params, sph.init(params, x.astype(real), v.astype(real), max_neighbors=56)


def _forward(worlds: int, edge: int) -> Workload:
    params, state = block(worlds, edge)

    def validate(after: sph.State) -> None:
        sph.check(params, after)
        _plain_agrees(params, state, after)

    return Workload(sph.step, (params, state), validate)


def _plain_agrees(params: sph.Params, state: sph.State, after: sph.State) -> None:
    """Compare the first world with a step in plain JAX."""
    x, v, rho = _plain_step(params, state)
    for name, found, wanted in (("v", after.v[0], v), ("rho", after.rho[0], rho), ("x", after.x[0], x)):
        scale = float(jnp.abs(wanted).max())
        error = float(jnp.abs(found - wanted).max()) / scale
        if not error <= (1e-9 if wanted.dtype == jnp.float64 else 1e-4):
            raise ValueError(f"{name} differs from the step in plain JAX by {error:.1e} of its largest entry")


def _plain_step(params: sph.Params, state: sph.State) -> tuple[Array, Array, Array]:
    return _plain_fn(params)(state.x[0], state.v[0], state.rho[0], params.gravity[0])


def _plain_fn(params: sph.Params) -> Any:
    def fn(x: Array, v: Array, rho: Array, gravity: Array) -> tuple[Array, Array, Array]:
        edge = round(len(x) ** (1 / 3))
        numbers = (params.timestep, params.sound_speed, params.density)
        rest = (params.viscosity, params.artificial, params.diffusion)
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            return plain_sph.step(
                x, v, rho, *numbers, gravity, *rest, counts=((edge + 3) // 2,) * 3, h=params.h,
                mass=params.density * params.spacing**3, exponent=params.exponent,
            )  # fmt: skip

    return fn


def _plain(edge: int) -> Workload:
    params, state = block(1, edge)

    def validate(after: tuple[Array, Array, Array]) -> None:
        _plain_agrees(params, state, jax.jit(sph.step)(params, state))

    return Workload(_plain_fn(params), (state.x[0], state.v[0], state.rho[0], params.gravity[0]), validate)


def _genesis(edge: int) -> Workload:
    params, state = block(1, edge)
    return genesis_particles.sph_step(params, state)


def _backward(worlds: int, edge: int) -> Workload:
    params, state = block(worlds, edge)

    def loss(params: sph.Params, state: sph.State, inputs: tuple[Array, Array]) -> Array:
        after = sph.step(params, dataclasses.replace(state, x=inputs[0], v=inputs[1]))
        return 0.5 * (jnp.sum(after.v**2) + jnp.sum((after.rho / 1000 - 1) ** 2)) / inputs[0].size

    def fn(params: sph.Params, state: sph.State, inputs: tuple[Array, Array]) -> Any:
        return jax.value_and_grad(loss, argnums=2)(params, state, inputs)

    inputs = (state.x, state.v)

    def validate(result: Any) -> None:
        _, grads = result
        if not all(bool(jnp.isfinite(g).all()) for g in grads):
            raise ValueError("the gradient is not finite")
        if edge > _GRADIENT_BELOW:
            return
        double = inputs[0].dtype == jnp.float64
        value = jax.jit(loss)
        for i, size in ((0, 5e-3 * _SPACING), (1, 1e-2)):
            unit = grads[i] / jnp.maximum(jnp.abs(grads[i]).max(), 1e-30)
            ends = [value(params, state, (*inputs[:i], inputs[i] + s * size * unit, *inputs[i + 1 :])) for s in (1, -1)]
            slope, difference = float(jnp.sum(grads[i] * unit)), float(ends[0] - ends[1]) / (2 * size)
            if not abs(slope - difference) <= (1e-5 if double else 5e-2) * abs(slope):
                raise ValueError(f"gradient {i} along itself is {slope:.4e}, the centred difference {difference:.4e}")

    return Workload(fn, (params, state, inputs), validate)
