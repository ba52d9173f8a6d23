"""Pressure that keeps fluid incompressible: a solve a step, and its gradient by the implicit rule.

It finds the least change of velocity with which density changes as it should (Gauss's principle):

    b - B w = 0                                      where fluid is pulled: inside, away from walls
    b - B w <= 0,  w >= 0,  w . (b - B w) = 0        at loose particles, which only push
    B = R M S

with b the relative density that there would be too much without pressure, S what a pressure does to velocity, R its
transpose, what velocity does to density, and M a mask that keeps walls where they are. Walls take over a mean of the
fluid's pressure. It is the problem of DFSPH (Bender and Koschier 2015), where all particles only push. Their relaxed
Jacobi iteration is replaced by conjugate gradients, with projected steps where the set of loose particles that push
changes (MPRGP, Dostal and Schoeberl 2005).

Numbers have no dimension: the kernels' slopes are multiplied by a particle's volume and by h.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import custom_vjp, kernels, warp_op
from .neighbors import Grid, Neighbors, parted, whole
from .sph_sums import smoothing

Array = jax.Array

MOST = 1000
"""Iterations at which a solve gives up."""

BARE = 0.3
"""The relative lack of density of a wall above the surface; a particle in the outermost row of a lattice has 0.25."""

EXPANSION = 0.5
"""Length of a projected step, for a matrix with ones on its diagonal; stable up to 2 over its norm."""


Matrix = tuple[Callable[[Array], Array], Array]
"""B as a function of w, and about its diagonal."""


class Places(NamedTuple):
    """Where particles are, in slots."""

    x: Array  # [m], shape (world, slot, 3)
    fluid: Array  # whether a particle is fluid, and not a wall, bool, shape (world, slot)
    share: Array | None = None  # about 1 / the sum of the kernel over fluid, for walls in its reach; None: no walls


def places(near: Neighbors, x: Array, fluid: Array, excess: Array, walls: bool, volume: float) -> Places:
    """Where particles are, with what walls take over of the fluid's pressure; gradients flow to ``x`` and ``excess``.

    Args:
        excess: relative density above that of rest, shape (world, slot). Walls that lack neighbours, as they do above
            a surface, take over less, and nothing from BARE on.
    """
    at = Places(x, fluid)
    if not walls:
        return at
    total = blur(near, at, volume, fluid.astype(x.dtype))
    wet = ~fluid & (total > 1e-18)  # a neighbour at 2 h weighs 1e-30 by rounding
    full = jnp.clip(1 + excess / BARE, 0, 1)
    return Places(x, fluid, jnp.where(wet, full / jnp.where(wet, total, 1), 0))


def push(near: Neighbors, at: Places, volume: float, p: Array) -> Array:
    """:func:`squeeze` by the pressure of the fluid, which walls take over as a mean (Adami 2012)."""
    if at.share is not None:
        p = jnp.where(at.fluid, p, 0)
        p = jnp.where(at.fluid, p, at.share * blur(near, at, volume, p))
    return squeeze(near, at, volume, p)


def approach(near: Neighbors, at: Places, volume: float, u: Array) -> Array:
    """The transpose of :func:`push`: the :func:`rate` of the fluid, and a share of that of walls in its reach."""
    found = rate(near, at, volume, u)
    if at.share is None:
        return found
    beside = blur(near, at, volume, jnp.where(at.fluid, 0, at.share * found))
    return jnp.where(at.fluid, found + beside, 0)


def squeeze(near: Neighbors, at: Places, volume: float, p: Array) -> Array:
    """Sum over pairs of V h (p_i + p_j) grad W, shape (world, slot, 3); walls feel it, too.

    Args:
        volume: of a particle [m^dim].
        p: shape (world, slot).

    Gradients flow to ``at.x`` and ``p``.
    """
    return _squeeze(near.grid, volume)(near, at, p)


def rate(near: Neighbors, at: Places, volume: float, u: Array) -> Array:
    """Sum over pairs of V h (u_i - u_j) . grad W, shape (world, slot); between walls there is nothing.

    Gradients flow to ``at.x`` and ``u``.
    """
    return _rate(near.grid, volume)(near, at, u)


def blur(near: Neighbors, at: Places, volume: float, value: Array) -> Array:
    """Sum over particles of V h W times a value [m], its own included, shape (world, slot).

    Gradients flow to ``at.x`` and ``value``.
    """
    return _blur(near.grid, volume)(near, at, value)


def solve(matrix: Matrix, b: Array, held: Array, start: Array | None, tolerance: float) -> tuple[Array, Array]:
    """w with b - B w = 0 where fluid is held, and elsewhere w >= 0, b - B w <= 0 and one of both zero.

    Args:
        matrix: from :func:`matrix`.
        b: relative excess of density without pressure, shape (world, slot).
        held: where pressure may also pull, bool, shape (world, slot).
        start: a guess of w, shape (world, slot); None: zero, which saves a product.
        tolerance: mean over the fluid of the relative density that may be wrong.

    Returns:
        w, shape (world, slot), and which worlds are unconverged, (world,). No gradients: see :func:`settled`.
    """
    return _bounded(*matrix, b, held, start, tolerance)


def settled(near: Neighbors, at: Places, volume: float, b: Array, held: Array, w: Array) -> Array:
    """A solution ``w`` of :func:`solve` as a function of ``at.x`` and ``b``.

    Its gradient is that of B w = b among the particles that are held or push: one linear system, no iteration is
    differentiated.
    """
    return _settled(near.grid, volume)(near, at, b, held, w)


# ---------------------------------------------------------------------------------------------------------------------
# Solving


def matrix(near: Neighbors, at: Places, volume: float) -> Matrix:
    """B as a function of w, which is zero on walls, and about its diagonal; push and approach in as few sums."""
    by_pressure, by_velocity, _, squares, spread, _ = _sums(near.grid, volume)
    inside, place = at.fluid[..., None], _place(at)
    wet = jnp.zeros_like(at.x[..., 0]) if at.share is None else at.share
    by_walls = jnp.zeros_like(wet) if at.share is None else spread(near, place, wet, at.fluid.astype(wet.dtype))

    def apply(w: Array) -> Array:
        p = w if at.share is None else jnp.where(at.fluid, w, wet * spread(near, place, w, wet))
        found = by_velocity(near, place, jnp.where(inside, by_pressure(near, place, p), 0))
        return found if at.share is None else jnp.where(at.fluid, found + spread(near, place, wet * found, by_walls), 0)

    return apply, squares(near, place)


def _dot(a: Array, b: Array) -> Array:
    return jnp.sum(a * b, axis=1, keepdims=True)


def _scaled(apply: Any, diagonal: Array) -> tuple[Any, Array]:
    """The matrix with ones on its diagonal, and the scale of its unknowns; zero where nothing is to be solved."""
    there = diagonal > 1e-6
    scale = jnp.where(there, jax.lax.rsqrt(jnp.where(there, diagonal, 1)), 0)
    return (lambda z: scale * apply(scale * z)), scale


def _bounded(
    apply: Any, diagonal: Array, b: Array, held: Array, start: Array | None, tolerance: float
) -> tuple[Array, Array]:
    """MPRGP: conjugate gradients along the face of z > floor, unless what is to be released prevails."""
    op, scale = _scaled(apply, diagonal)
    back = jnp.where(scale > 0, 1 / jnp.where(scale > 0, scale, 1), 0)
    count = jnp.maximum(jnp.sum((scale > 0).astype(b.dtype), axis=1, keepdims=True), 1)
    least, floor = np.finfo(b.dtype).tiny, jnp.where(held, -jnp.inf, 0).astype(b.dtype)

    def free(z: Array, g: Array) -> Array:
        return jnp.where(z > floor, g, 0)

    def pending(z: Array, g: Array) -> Array:
        return jnp.where(z > floor, 0, jnp.minimum(g, 0))

    def running(z: Array, g: Array) -> Array:
        wrong = jnp.sum(back * jnp.abs(free(z, g) + pending(z, g)), axis=1, keepdims=True)
        return wrong > tolerance * count

    def one(carry: Any) -> Any:
        z, g, d, n = carry
        going = running(z, g)
        along, released = free(z, g), pending(z, g)
        inside = _dot(released, released) <= _dot(along, jnp.minimum((z - floor) / EXPANSION, along))
        e = jnp.where(inside, d, released)
        be = op(e)
        curve = jnp.maximum(_dot(e, be), least)
        length = _dot(g, e) / curve
        room = jnp.min(jnp.where(e > 0, (z - floor) / jnp.where(e > 0, e, 1), jnp.inf), axis=1, keepdims=True)
        leaves = length > room
        step = jnp.minimum(length, room)
        nearer, slope = jnp.maximum(z - step * e, floor), g - step * be
        projected = jnp.maximum(nearer - EXPANSION * free(nearer, slope), floor)
        left = jax.lax.cond((going & leaves).any(), lambda: op(projected) - scale * b, lambda: slope)
        new_z, new_g = jnp.where(leaves, projected, nearer), jnp.where(leaves, left, slope)
        new = free(new_z, new_g)
        turned = jnp.where(leaves | ~inside, new, new - _dot(new, be) / curve * e)
        return *(jnp.where(going, a, b) for a, b in ((new_z, z), (new_g, g), (turned, d))), n + 1

    z = jnp.zeros_like(b) if start is None else jnp.where(held, start, jnp.maximum(start, 0)) * back
    g = -scale * b if start is None else op(z) - scale * b
    z, g, *_ = jax.lax.while_loop(
        lambda c: running(c[0], c[1]).any() & (c[3] < MOST), one, (z, g, free(z, g), jnp.int32(0))
    )
    return scale * z, ~(~running(z, g))[:, 0]


def _linear(apply: Any, diagonal: Array, active: Array, b: Array) -> Array:
    """Conjugate gradients for B w = b among the active."""
    op, scale = _scaled(apply, diagonal)
    keep = active & (scale > 0)
    tolerance = 1e-12 if b.dtype == jnp.float64 else 1e-6
    least = np.finfo(b.dtype).tiny
    r = jnp.where(keep, scale * b, 0)
    goal = tolerance**2 * _dot(r, r)

    def going(r: Array) -> Array:
        return _dot(r, r) > goal

    def one(carry: Any) -> Any:
        z, r, d, n = carry
        on = going(r)
        bd = jnp.where(keep, op(d), 0)
        step = _dot(r, r) / jnp.maximum(_dot(d, bd), least)
        new = r - step * bd
        turned = new + _dot(new, new) / jnp.maximum(_dot(r, r), least) * d
        return *(jnp.where(on, a, b) for a, b in ((z + step * d, z), (new, r), (turned, d))), n + 1

    z, *_ = jax.lax.while_loop(
        lambda c: going(c[1]).any() & (c[3] < MOST), one, (jnp.zeros_like(r), r, r, jnp.int32(0))
    )
    return scale * z


# ---------------------------------------------------------------------------------------------------------------------
# Operations and their gradients


def _place(at: Places) -> Array:
    """(position, 0 for fluid or 1 for a wall), shape (world, slot, 4)."""
    return jnp.concatenate([at.x, jnp.where(at.fluid, 0, 1).astype(at.x.dtype)[..., None]], -1)


def _none(at: Places) -> Array | None:
    """No cotangent of what a sum does not read."""
    return None if at.share is None else jnp.zeros_like(at.share)


def _four(u: Array) -> Array:
    return jnp.pad(u, ((0, 0), (0, 0), (0, 1)))


@functools.lru_cache
def _squeeze(grid: Grid, volume: float) -> Any:
    by_pressure, by_velocity, by_place, *_ = _sums(grid, volume)

    @custom_vjp
    def operation(near: Neighbors, at: Places, p: Array) -> Array:
        return by_pressure(near, _place(at), p)[..., :3]

    def pull(saved: Any, cotangent: Array) -> Any:
        near, at, p = saved
        place, u = _place(at), _four(cotangent)
        return None, Places(by_place(near, place, p, u), None), by_velocity(near, place, u)  # type: ignore[arg-type]

    operation.defvjp(lambda *given: (operation(*given), given), pull)
    return operation


@functools.lru_cache
def _rate(grid: Grid, volume: float) -> Any:
    by_pressure, by_velocity, by_place, *_ = _sums(grid, volume)

    @custom_vjp
    def operation(near: Neighbors, at: Places, u: Array) -> Array:
        return by_velocity(near, _place(at), _four(u))

    def pull(saved: Any, cotangent: Array) -> Any:
        near, at, u = saved
        place = _place(at)
        by_x = by_place(near, place, cotangent, _four(u))
        return None, Places(by_x, None, _none(at)), by_pressure(near, place, cotangent)[..., :3]  # type: ignore[arg-type]

    operation.defvjp(lambda *given: (operation(*given), given), pull)
    return operation


@functools.lru_cache
def _blur(grid: Grid, volume: float) -> Any:
    *_, spread, by_place = _sums(grid, volume)

    @custom_vjp
    def operation(near: Neighbors, at: Places, value: Array) -> Array:
        return spread(near, _place(at), value, jnp.ones_like(value))

    def pull(saved: Any, cotangent: Array) -> Any:
        near, at, value = saved
        place = _place(at)
        by_x = by_place(near, place, value, cotangent)
        return None, Places(by_x, None, _none(at)), spread(near, place, cotangent, jnp.ones_like(value))  # type: ignore[arg-type]

    operation.defvjp(lambda *given: (operation(*given), given), pull)
    return operation


@functools.lru_cache
def _settled(grid: Grid, volume: float) -> Any:
    @custom_vjp
    def operation(near: Neighbors, at: Places, b: Array, held: Array, w: Array) -> Array:
        return w

    def pull(saved: Any, cotangent: Array) -> Any:
        near, at, held, w = saved
        inside = at.fluid[..., None]
        apply, diagonal = matrix(near, at, volume)
        trial = _linear(apply, diagonal, held | (w > 0), cotangent)

        def power(x: Array, share: Array | None) -> Array:
            moved, pulled = (push(near, Places(x, at.fluid, share), volume, p) for p in (w, trial))
            return -jnp.sum(jnp.where(inside, moved * pulled, 0))

        by_x, by_share = jax.grad(power, argnums=(0, 1))(at.x, at.share)
        return None, Places(by_x, None, by_share), trial, None, None  # type: ignore[arg-type]

    operation.defvjp(lambda near, at, b, held, w: (w, (near, at, held, w)), pull)
    return operation


@functools.lru_cache
def _sums(grid: Grid, volume: float) -> tuple[Any, ...]:
    """The kernels as functions of neighbours and arrays of slots."""
    h, scale = smoothing(grid)

    def sum_of(name: str, width: int) -> Any:
        def launches(launch: Any, index: Any, number: Any, *arrays: Any) -> None:
            kernel = getattr(kernels(arrays[0].dtype, "particles.sph_pressure"), name)
            inputs = [grid.period, h, scale * volume * h, index, number, *arrays[:-1]]
            launch(kernel, dim=number.shape, inputs=inputs, outputs=[arrays[-1]])

        def outputs(index: Any, number: Any, place: Any, *arrays: Any) -> Any:
            return jax.ShapeDtypeStruct((*number.shape, *([width] if width > 1 else [])), place.dtype)

        op = warp_op(launches, outputs, differentiable=False, zeroed=False, name=f"sph {name}")
        return lambda near, *arrays: whole(op(parted(near.index), parted(near.number), *arrays), len(near.order))

    kinds = {"squeeze": 4, "rate": 1, "gradient": 3, "squares": 1, "blur": 1, "blur_gradient": 3}
    return tuple(sum_of(name, width) for name, width in kinds.items())
