"""Sums over pairs of particles as JAX operations, whose gradients are also sums over pairs."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..bridge import custom_vjp, kernels, warp_op
from .neighbors import Grid, Neighbors, parted, whole

Array = jax.Array


class Particles(NamedTuple):
    """The inputs of a sum for each particle; particles are in slots."""

    x: Array  # position [m], shape (world, particle, 3)
    v: Array  # velocity [m/s], shape (world, particle, 3)
    rho: Array  # density [kg/m^3], shape (world, particle)
    p: Array  # pressure [Pa], shape (world, particle)
    kind: Array  # 0 fluid, 1 wall, 2 wall without friction, int32, shape (world, particle)


class Moving(NamedTuple):
    """The inputs of a sum of the transport-velocity formulation for each particle."""

    x: Array  # as in Particles
    v: Array
    rho: Array
    shift: Array  # how much faster than v a particle moves [m/s], shape (world, particle, 3)
    kind: Array


@dataclasses.dataclass(frozen=True)
class Sum:
    """A sum over neighbours: its kernels are ``name`` and ``name_adjoint`` of ``particles.{module}``."""

    name: str
    width: int  # how many numbers the sum has for each particle
    params: tuple[int, ...]  # how many numbers each parameter has for a world
    module: str = "sph"
    state: int = 5  # numbers of a particle, besides its position, that have a gradient: velocity, density, another

    def __call__(self, neighbors: Neighbors, particles: Particles | Moving, *params: Array) -> Array:
        """The sum for every slot, shape (world, particle) or (world, particle, width).

        Args:
            params: arrays of shape (1 | world,) or (1 | world, size). They and all of ``particles`` that is not
                integer get gradients; ``neighbors`` get none.
        """
        return _operation(self, neighbors.grid)(neighbors, particles, params)


forces = Sum("forces", 3, (4,))  # viscosities, repulsion of walls, 1 / its range^2
rates = Sum("rates", 1, (1, 3))
extensions = Sum("extensions", 5, (3,))
tensions = Sum("tensions", 3, (1,), "sph_tension")
densities = Sum("densities", 1, (), "sph_transport", 7)
transports = Sum("transports", 6, (), "sph_transport", 7)


MIDWAY = {2: 0.25, 3: 0.15}
"""Share of the lengths of vectors from walls, to which they add up where fluid is midway through, by dimension. In
space splashes come to 0.23 in faces that hold them; in the plane 0.15 would miss what gets through loose walls."""


def buried(near: Neighbors, particles: Particles, reach: float) -> Array:
    """Worlds in which fluid is in a wall, between particles of it that are nearer than a reach [m], bool, (world,)."""
    place = jax.lax.stop_gradient(_records(particles)[0])
    return whole(_buried(near.grid, float(reach))(*_rows(near), place), len(near.order)).any(1)


@functools.lru_cache
def _buried(grid: Grid, reach: float) -> Callable[..., Array]:
    share = MIDWAY[2 if grid.counts[2] == 1 else 3]

    def launches(launch: Any, index: Any, number: Any, place: Any, out: Any) -> None:
        kernel = kernels(place.dtype, "particles.sph").buried
        launch(kernel, dim=number.shape, inputs=[grid.period, reach, share, index, number, place], outputs=[out])

    outputs = lambda index, number, place: _shape(number, 1, jnp.int32)  # noqa: E731
    return warp_op(launches, outputs, differentiable=False, zeroed=False, name="sph buried")


def smoothing(grid: Grid) -> tuple[float, float]:
    """h [m] and the factor of Wendland's C2 kernel, 7 / (4 pi h^2) in a plane and 21 / (16 pi h^3) in space."""
    h = 0.5 * grid.radius
    return h, 7 / (4 * math.pi * h**2) if grid.counts[2] == 1 else 21 / (16 * math.pi * h**3)


@functools.lru_cache
def _operation(what: Sum, grid: Grid) -> Callable[..., Array]:
    """The sum as a function of (neighbors, particles, params), differentiable by the last two."""
    forward, backward = _forward(what, grid), _backward(what, grid)

    @custom_vjp
    def operation(neighbors: Neighbors, particles: Particles | Moving, params: tuple[Array, ...]) -> Array:
        return forward(neighbors, particles, params)

    def save(neighbors: Neighbors, particles: Particles | Moving, params: tuple[Array, ...]) -> Any:
        return forward(neighbors, particles, params), (neighbors, particles, params)

    def pull(saved: Any, cotangent: Array) -> Any:
        neighbors, particles, params = saved
        by_x, by_state, *by_params = backward(neighbors, particles, params, cotangent)
        else_read = by_state[..., 4:].reshape(particles[3].shape)
        grads = type(particles)(by_x, by_state[..., :3], by_state[..., 3], else_read, None)  # type: ignore[arg-type]
        totals = (g.sum(axis=1) for g in by_params)
        own = (t if len(t) == len(p) else t.sum(axis=0, keepdims=True) for t, p in zip(totals, params))
        return None, grads, tuple(own)

    operation.defvjp(save, pull)
    return operation


def _records(particles: Particles | Moving) -> tuple[Array, Array, Array]:
    """The arrays that kernels read for each slot: (position, kind), (velocity, density), and pressure or shift."""
    x, v, rho, other, kind = particles
    kind = kind.astype(x.dtype)
    return jnp.concatenate([x, kind[..., None]], -1), jnp.concatenate([v, rho[..., None]], -1), other


def _shape(like: Any, width: int, dtype: Any) -> Any:
    return jax.ShapeDtypeStruct((*like.shape[:2], *([width] if width > 1 else [])), dtype)


def _rows(near: Neighbors) -> tuple[Array, Array]:
    """The rows of neighbours, in parts."""
    return parted(near.index), parted(near.number)


def _forward(what: Sum, grid: Grid) -> Callable[..., Array]:
    def launches(launch: Any, index: Any, number: Any, slots: Any, params: Any, out: Any) -> None:
        kernel = getattr(kernels(slots[0].dtype, f"particles.{what.module}"), what.name)
        inputs = [grid.period, *smoothing(grid), index, number, *slots, *params]
        launch(kernel, dim=number.shape, inputs=inputs, outputs=[out])

    def outputs(index: Any, number: Any, slots: Any, params: Any) -> Any:
        return _shape(number, what.width, slots[0].dtype)

    op = warp_op(launches, outputs, differentiable=False, zeroed=False, name=f"sph {what.name}")
    return lambda near, particles, params: whole(op(*_rows(near), _records(particles), params), len(near.order))


def _backward(what: Sum, grid: Grid) -> Callable[..., tuple[Array, ...]]:
    def launches(launch: Any, index: Any, number: Any, slots: Any, params: Any, cotangent: Any, *outs: Any) -> None:
        kernel = getattr(kernels(slots[0].dtype, f"particles.{what.module}"), f"{what.name}_adjoint")
        inputs = [grid.period, *smoothing(grid), index, number, *slots, *params, cotangent]
        launch(kernel, dim=number.shape, inputs=inputs, outputs=list(outs))

    def outputs(index: Any, number: Any, slots: Any, params: Any, cotangent: Any) -> Any:
        return tuple(_shape(number, width, slots[0].dtype) for width in (3, what.state, *what.params))

    op = warp_op(launches, outputs, differentiable=False, zeroed=False, name=f"gradient of sph {what.name}")

    def gradients(near: Neighbors, particles: Any, params: Any, cotangent: Array) -> tuple[Array, ...]:
        if what is forces:  # read as vectors of four
            cotangent = jnp.pad(cotangent, ((0, 0), (0, 0), (0, 1)))
        found = op(*_rows(near), _records(particles), params, cotangent)
        return tuple(whole(g, len(near.order)) for g in found)

    return gradients
