"""Sums over pairs of particles as JAX operations, with gradients that are sums over pairs too."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from ..bridge import kernels, warp_op
from .neighbors import Grid, Neighbors

Array = jax.Array


class Particles(NamedTuple):
    """What a sum reads of each particle."""

    x: Array  # position [m], shape (world, particle, 3)
    v: Array  # velocity [m/s], shape (world, particle, 3)
    rho: Array  # density [kg/m^3], shape (world, particle)
    p: Array  # pressure [Pa], shape (world, particle)
    kind: Array  # 0 fluid, 1 wall, 2 wall without friction, int32, shape (world, particle)


class Moving(NamedTuple):
    """What a sum of the transport-velocity formulation reads of each particle."""

    x: Array  # as in Particles
    v: Array
    rho: Array
    shift: Array  # by how much faster than v a particle moves [m/s], shape (world, particle, 3)
    kind: Array


@dataclasses.dataclass(frozen=True)
class Sum:
    """A sum over neighbours: its kernels are ``name`` and ``name_adjoint`` of ``particles.{module}``."""

    name: str
    width: int  # numbers that a particle gets
    params: tuple[int, ...]  # numbers of each parameter that a world has
    module: str = "sph"
    record: int = 6  # numbers of a particle's state, by which there is a gradient: velocity, density, another, kind
    slots: tuple[str, ...] = ("vec4", "vec4", "real")  # what is gathered of a particle
    pull: tuple[str, str] | None = None  # the kernel that gathers cotangents, and what they are in a slot

    def __call__(self, neighbors: Neighbors, particles: Particles | Moving, *params: Array) -> Array:
        """The sum for every particle, shape (world, particle) or (world, particle, width).

        Args:
            params: arrays of shape (1 | world,) or (1 | world, size). They and all of ``particles`` that is not
                integer get gradients; ``neighbors`` have none.
        """
        return _operation(self, neighbors.grid)(neighbors, particles, params)


forces = Sum("forces", 3, (2,), pull=("gather_pulls", "vec4"))
rates = Sum("rates", 1, (1, 3), pull=("gather_rate_pulls", "real"))
extensions = Sum("extensions", 5, (3,))
tensions = Sum("tensions", 3, (), "sph_tension")
densities = Sum("densities", 1, (), "sph_transport", 8, ("vec3", "vec8"))
transports = Sum("transports", 6, (), "sph_transport", 8, ("vec3", "vec8"))


def smoothing(grid: Grid) -> tuple[float, float]:
    """h [m] and the factor of Wendland's C2 kernel, 7 / (4 pi h^2) in a plane and 21 / (16 pi h^3) in space."""
    h = 0.5 * grid.radius
    return h, 7 / (4 * math.pi * h**2) if grid.counts[2] == 1 else 21 / (16 * math.pi * h**3)


@functools.cache
def _operation(what: Sum, grid: Grid) -> Callable[..., Array]:
    """The sum as a function of (neighbors, particles, params), differentiable by the last two."""
    forward, backward = _forward(what, grid), _backward(what, grid)

    @jax.custom_vjp
    def operation(neighbors: Neighbors, particles: Particles | Moving, params: tuple[Array, ...]) -> Array:
        return forward(neighbors, particles, params)

    def save(neighbors: Neighbors, particles: Particles | Moving, params: tuple[Array, ...]) -> Any:
        return forward(neighbors, particles, params), (neighbors, particles, params)

    def pull(saved: Any, cotangent: Array) -> Any:
        neighbors, particles, params = saved
        by_x, by_state, *by_params = backward(neighbors, particles, params, cotangent)
        else_read = by_state[..., 4:-1].reshape(particles[3].shape)
        grads = type(particles)(by_x, by_state[..., :3], by_state[..., 3], else_read, None)  # type: ignore[arg-type]
        totals = (g.sum(axis=1) for g in by_params)
        own = (t if len(t) == len(p) else t.sum(axis=0, keepdims=True) for t, p in zip(totals, params))
        return None, grads, tuple(own)

    operation.defvjp(save, pull)
    return operation


def _shape(like: Array, width: int) -> Any:
    return jax.ShapeDtypeStruct((*like.shape[:2], *([width] if width > 1 else [])), like.dtype)


def _inputs(
    what: Sum, grid: Grid, launch: Any, neighbors: Neighbors, particles: Particles | Moving, params: tuple[Any, ...]
) -> list[Any]:
    """What both kernels of a sum take; particles are copied into the order of slots first."""
    x = particles.x
    k, t = kernels(x.dtype, f"particles.{what.module}"), kernels(x.dtype, "_precision")
    slots = [launch.scratch(x.shape[:2], getattr(t, kind)) for kind in what.slots]
    launch(k.gather_states, dim=x.shape[:2], inputs=[neighbors.order, *particles], outputs=slots)
    found = [neighbors.order, neighbors.index, neighbors.number]
    return [grid.period, *smoothing(grid), *found, *slots, *params]


def _forward(what: Sum, grid: Grid) -> Any:
    def launches(
        launch: Any, neighbors: Neighbors, particles: Particles | Moving, params: tuple[Any, ...], out: Any
    ) -> None:
        kernel = getattr(kernels(particles.x.dtype, f"particles.{what.module}"), what.name)
        inputs = _inputs(what, grid, launch, neighbors, particles, params)
        launch(kernel, dim=particles.x.shape[:2], inputs=inputs, outputs=[out])

    def outputs(neighbors: Neighbors, particles: Particles | Moving, params: tuple[Any, ...]) -> Any:
        return _shape(particles.x, what.width)

    return warp_op(launches, outputs, differentiable=False, zeroed=False, name=f"sph {what.name}")


def _backward(what: Sum, grid: Grid) -> Any:
    def launches(
        launch: Any,
        neighbors: Neighbors,
        particles: Particles | Moving,
        params: tuple[Any, ...],
        cotangent: Any,
        *outs: Any,
    ) -> None:
        k, shape = kernels(particles.x.dtype, f"particles.{what.module}"), particles.x.shape[:2]
        inputs = _inputs(what, grid, launch, neighbors, particles, params)
        if what.pull is not None:
            gather, kind = what.pull
            pull = launch.scratch(shape, getattr(kernels(particles.x.dtype, "_precision"), kind))
            read = [neighbors.order] if what is forces else [neighbors.order, inputs[6]]
            launch(getattr(k, gather), dim=shape, inputs=[*read, cotangent], outputs=[pull])
            cotangent = pull
        launch(getattr(k, f"{what.name}_adjoint"), dim=shape, inputs=[*inputs, cotangent], outputs=list(outs))

    def outputs(neighbors: Neighbors, particles: Particles | Moving, params: tuple[Any, ...], cotangent: Any) -> Any:
        return tuple(_shape(particles.x, width) for width in (3, what.record, *what.params))

    return warp_op(launches, outputs, differentiable=False, zeroed=False, name=f"gradient of sph {what.name}")
