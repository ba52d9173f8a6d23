"""Pressure that keeps fluid incompressible: a solve a step, and its gradient by the implicit rule.

It finds the least change of velocity with which density changes as it should (Gauss's principle):

    b - B w = 0                                      where fluid is pulled: inside, away from walls
    b - B w <= 0,  w >= 0,  w . (b - B w) = 0        at loose particles, which only push
    B = R M S

with b the relative density that there would be too much without pressure, S what a pressure does to velocity, R its
transpose, what velocity does to density, and M a mask that keeps walls where they are. Walls take over a mean of the
fluid's pressure. It is the problem of DFSPH (Bender and Koschier 2015), where all particles only push. Their relaxed
Jacobi iteration is replaced by projected gradients whose step is chosen by the last two (Barzilai and Borwein 1988).
They soon find what is smooth and which loose particles push. A solve that wants more goes on with conjugate gradients
(MPRGP, Dostal and Schoeberl 2005).

Density is known as a mean over neighbours, and so is its error: of single particles there is noise left that hardly
any pressure moves. A solve that waits for it takes four times as many iterations.

Numbers have no dimension: the kernels' slopes are multiplied by a particle's volume and by h.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import alongside, custom_vjp, kernels, warp_op
from .neighbors import Grid, Neighbors, parted, whole
from .sph_sums import smoothing

Array = jax.Array

MOST, PATIENT = 1000, 10_000
"""Iterations at which a solve and a linear system give up. With 3,600 particles, h of two spacings, it takes 1,600."""

BARE = 0.3
"""The relative lack of density of a wall above the surface; a particle in the outermost row of a lattice has 0.25."""

PROJECTED = 10
"""Projected gradients at the start of a solve, at most; conjugate gradients follow."""

EXPANSION = 0.5
"""Length of a projected step, for a matrix with ones on its diagonal; stable up to 2 over its norm."""

SHORTEST, LONGEST = 0.3, 3.0
"""Between these is the length of the next ones at the start."""

SETTLED, LINEAR = {4: 1e-6, 8: 1e-8}, {4: 1e-4, 8: 1e-12}
"""Tolerances of a gradient, by the size of a number: of the solve of a step that is differentiated, and of the linear
system, relative to its right side. In float32 rounding leaves no less."""

TOGETHER = 16
"""Slots that follow one another, neighbours as a rule: they share their error of density."""


Matrix = tuple[Callable[[Array], Array], Array]
"""B as a function of w, and about its diagonal."""


class Places(NamedTuple):
    """Where particles are, in slots, and what is around them."""

    x: Array  # [m], shape (world, slot, 3)
    fluid: Array  # whether a particle is fluid, and not a wall, bool, shape (world, slot)
    walled: Array  # sum of V h W over walls, [m]; no gradient
    diagonal: Array  # about the matrix's; no gradient
    weight: Array | None = None  # 1 / the sum of V h W over fluid, for walls in its reach; None: no walls
    cover: Array | None = None  # how much of the mean pressure around them walls take over

    @property
    def share(self) -> Array:
        """What walls take over of the fluid's pressure, where there are any."""
        return self.weight * self.cover  # type: ignore[operator]


def places(near: Neighbors, x: Array, fluid: Array, walls: bool, volume: float, full: float) -> tuple[Places, Array]:
    """Where particles are, with what walls take over of the fluid's pressure, and by how much density is too high.

    Args:
        full: sum of V h W at rest [m].

    Returns:
        Places, and the relative excess of density by the sum of the kernel, (world, slot). Gradients flow to ``x``.
        Walls that lack neighbours, as they do above a surface, take over less, and nothing from BARE on.
    """
    total, walled, diagonal = _surroundings(near.grid, volume)(near, x, fluid)
    excess = (total + walled) / full - 1
    at = Places(x, fluid, *jax.lax.stop_gradient((walled, diagonal)))
    if walls:
        wet = ~fluid & (total > 1e-18)  # a neighbour at 2 h weighs 1e-30 by rounding
        weight = jnp.where(wet, 1 / jnp.where(wet, total, 1), 0)
        at = at._replace(weight=weight, cover=jnp.clip(1 + excess / BARE, 0, 1))
    return at, excess


def lent(near: Neighbors, at: Places, volume: float, p: Array) -> Array:
    """The pressure of the fluid, and its mean around walls (Adami 2012); zero if it does not reach them."""
    if at.weight is None:
        return p
    p = jnp.where(at.fluid, p, 0)
    return jnp.where(at.fluid, p, at.weight * blur(near, at, volume, p, ~at.fluid))


def push(near: Neighbors, at: Places, volume: float, p: Array, value: Array | None = None) -> Array:
    """What the pressure of the fluid, and what walls take over of it, does to velocity; and what blurs a value.

    The sum over pairs of V h (p_i + p_j) grad W, and that of V h W times a value, its own included: shape (world, slot,
    4); walls feel it, too. Gradients flow to ``at.x``, ``at.cover``, ``p`` and ``value``.

    Args:
        volume: of a particle [m^dim].
        p: from :func:`lent`, shape (world, slot). value: the same.
    """
    p = p if at.cover is None else jnp.where(at.fluid, p, at.cover * p)
    return _squeeze(near.grid, volume)(near, at.x, at.fluid, p, jnp.zeros_like(p) if value is None else value)


def approach(near: Neighbors, at: Places, volume: float, u: Array) -> Array:
    """The transpose of :func:`push` of :func:`lent`: the :func:`rate` of fluid, and a share of that of walls nearby."""
    if at.weight is None:
        return rate(near, at, volume, u, at.fluid)
    found = rate(near, at, volume, u, at.fluid | (at.weight > 0))
    beside = blur(near, at, volume, jnp.where(at.fluid, 0, at.share * found), at.fluid & (at.walled > 0))
    return jnp.where(at.fluid, found + beside, 0)


def rate(near: Neighbors, at: Places, volume: float, u: Array, wanted: Array) -> Array:
    """Sum over pairs of V h (u_i - u_j) . grad W, shape (world, slot), or zero; between walls there is nothing.

    Gradients flow to ``at.x`` and ``u``.
    """
    return _rate(near.grid, volume)(near, at.x, at.fluid, u, wanted)


def blur(near: Neighbors, at: Places, volume: float, value: Array, wanted: Array) -> Array:
    """Sum over particles of V h W times a value [m], its own included, shape (world, slot); zero where not wanted.

    Gradients flow to ``at.x`` and ``value``.
    """
    return _blur(near.grid, volume)(near, at.x, at.fluid, value, wanted)


def solve(matrix: Matrix, b: Array, held: Array, start: Array | None, tolerance: float) -> tuple[Array, Array]:
    """w with b - B w = 0 where fluid is held, and elsewhere w >= 0, b - B w <= 0 and one of both zero.

    Args:
        matrix: from :func:`matrix`.
        b: relative excess of density without pressure, shape (world, slot).
        held: where pressure may also pull, bool, shape (world, slot).
        start: a guess of w, shape (world, slot); None: zero, which saves a product.
        tolerance: mean over the fluid of the relative density that may be wrong, each TOGETHER slots as one.

    Returns:
        w, shape (world, slot), and which worlds are unconverged, (world,). No gradients: see :func:`settled`.
    """
    return _bounded(*matrix, b, held, start, tolerance)


def settled(near: Neighbors, at: Places, volume: float, b: Array, held: Array, w: Array) -> Array:
    """A solution ``w`` of :func:`solve` as a function of ``at.x`` and ``b``.

    Its gradient is that of B w = b among the particles that are held or push: one linear system, no iteration is
    differentiated. To know which they are takes a solve to the tolerance SETTLED.
    """
    return _settled(near.grid, volume)(near, at, b, held, w)


# ---------------------------------------------------------------------------------------------------------------------
# Solving


def matrix(near: Neighbors, at: Places, volume: float) -> Matrix:
    """B as a function of w, which is zero on walls, and about its diagonal."""
    share = jnp.zeros_like(at.walled) if at.weight is None else jnp.where(at.fluid, at.walled, at.share)
    product = _product(near.grid, volume, at.weight is not None)
    return functools.partial(product, near, _place(at.x, at.fluid), share), at.diagonal


def _going(most: int, carry: Any) -> Array:
    """Whether a loop goes on, by the last two of what it carries: the worlds that do, and how many times it went."""
    return carry[-2].any() & (carry[-1] < most)


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
    """Projected gradients, then MPRGP: conjugate gradients along z > floor, unless what is to be released prevails."""
    op, scale = _scaled(apply, diagonal)
    back = jnp.where(scale > 0, 1 / jnp.where(scale > 0, scale, 1), 0)
    count = jnp.maximum(jnp.sum((scale > 0).astype(b.dtype), axis=1, keepdims=True), 1)
    least, floor = np.finfo(b.dtype).tiny, jnp.where(held, -jnp.inf, 0).astype(b.dtype)

    def free(z: Array, g: Array) -> Array:
        return jnp.where(z > floor, g, 0)

    def pending(z: Array, g: Array) -> Array:
        return jnp.where(z > floor, 0, jnp.minimum(g, 0))

    def wanted(z: Array, g: Array) -> Array:
        return jnp.where(z > floor, g, jnp.minimum(g, 0))

    def running(z: Array, g: Array) -> Array:
        wrong = jnp.pad(back * wanted(z, g), ((0, 0), (0, -b.shape[1] % TOGETHER)))
        wrong = jnp.abs(wrong.reshape(len(b), -1, TOGETHER).sum(2)).sum(1, keepdims=True)
        return wrong > tolerance * count

    def projected(carry: Any) -> Any:
        z, g, length, going, n = carry
        nearer = jnp.maximum(z - jnp.where(going, length, 0) * wanted(z, g), floor)
        slope = op(nearer) - scale * b
        moved, turned = nearer - z, slope - g
        new = jnp.clip(_dot(moved, turned) / jnp.maximum(_dot(turned, turned), least), SHORTEST, LONGEST)
        g = jnp.where(going, slope, g)
        return nearer, g, new, going & running(nearer, g), n + 1

    def one(carry: Any) -> Any:
        z, g, d, going, n = carry
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
        z, g, d = (jnp.where(going, a, b) for a, b in ((new_z, z), (new_g, g), (turned, d)))
        return z, g, d, going & running(z, g), n + 1

    z = jnp.zeros_like(b) if start is None else jnp.where(held, start, jnp.maximum(start, 0)) * back
    g = -scale * b if start is None else op(z) - scale * b
    first = alongside(jnp.full((len(b), 1), EXPANSION, b.dtype), b)
    for iteration, carried, most in ((projected, lambda z, g: first, PROJECTED), (one, free, MOST)):
        z, g, _, going, _ = jax.lax.while_loop(
            functools.partial(_going, most), iteration, (z, g, carried(z, g), running(z, g), jnp.int32(0))
        )
    return scale * z, going[:, 0]


def _linear(apply: Any, diagonal: Array, active: Array, b: Array) -> Array:
    """Conjugate gradients for B w = b among the active."""
    op, scale = _scaled(apply, diagonal)
    keep = active & (scale > 0)
    least = np.finfo(b.dtype).tiny
    r = jnp.where(keep, scale * b, 0)
    goal = LINEAR[b.dtype.itemsize] ** 2 * _dot(r, r)

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
        lambda c: going(c[1]).any() & (c[3] < PATIENT), one, (jnp.zeros_like(r), r, r, jnp.int32(0))
    )
    return scale * z


# ---------------------------------------------------------------------------------------------------------------------
# Operations and their gradients


def _place(x: Array, fluid: Array) -> Array:
    """(position, 0 for fluid or 1 for a wall), shape (world, slot, 4)."""
    return jnp.concatenate([x, jnp.where(fluid, 0, 1).astype(x.dtype)[..., None]], -1)


def _four(u: Array) -> Array:
    return jnp.pad(u, ((0, 0), (0, 0), (0, 1)))


@functools.lru_cache
def _surroundings(grid: Grid, volume: float) -> Any:
    sums = _sums(grid, volume)

    @custom_vjp
    def operation(near: Neighbors, x: Array, fluid: Array) -> tuple[Array, ...]:
        return sums.surroundings(near, _place(x, fluid))

    def pull(saved: Any, cotangents: Any) -> Any:
        near, x, fluid = saved
        place, ours = _place(x, fluid), fluid.astype(x.dtype)
        by_fluid, by_walls = (
            sums.blur_gradient(near, place, kind, of) for kind, of in zip((ours, 1 - ours), cotangents)
        )
        return None, by_fluid + by_walls, None

    operation.defvjp(lambda *given: (operation(*given), given), pull)
    return operation


@functools.lru_cache
def _squeeze(grid: Grid, volume: float) -> Any:
    sums = _sums(grid, volume)

    @custom_vjp
    def operation(near: Neighbors, x: Array, fluid: Array, p: Array, value: Array) -> Array:
        return sums.squeeze(near, _place(x, fluid), p, value)

    def pull(saved: Any, cotangent: Array) -> Any:
        near, x, fluid, p, value = saved
        place, of, every = _place(x, fluid), cotangent[..., 3], jnp.ones_like(p)
        by_x = sums.gradient(near, place, p, cotangent) + sums.blur_gradient(near, place, value, of)
        return None, by_x, None, sums.rate(near, place, cotangent, every), sums.blur(near, place, of, every)

    operation.defvjp(lambda *given: (operation(*given), given), pull)
    return operation


@functools.lru_cache
def _rate(grid: Grid, volume: float) -> Any:
    sums = _sums(grid, volume)

    @custom_vjp
    def operation(near: Neighbors, x: Array, fluid: Array, u: Array, wanted: Array) -> Array:
        return sums.rate(near, _place(x, fluid), _four(u), wanted.astype(x.dtype))

    def pull(saved: Any, cotangent: Array) -> Any:
        near, x, fluid, u, wanted = saved
        place, cotangent = _place(x, fluid), jnp.where(wanted, cotangent, 0)
        by_x = sums.gradient(near, place, cotangent, _four(u))
        return None, by_x, None, sums.squeeze(near, place, cotangent, 0 * cotangent)[..., :3], None

    operation.defvjp(lambda *given: (operation(*given), given), pull)
    return operation


@functools.lru_cache
def _blur(grid: Grid, volume: float) -> Any:
    sums = _sums(grid, volume)

    @custom_vjp
    def operation(near: Neighbors, x: Array, fluid: Array, value: Array, wanted: Array) -> Array:
        return sums.blur(near, _place(x, fluid), value, wanted.astype(x.dtype))

    def pull(saved: Any, cotangent: Array) -> Any:
        near, x, fluid, value, wanted = saved
        place, cotangent = _place(x, fluid), jnp.where(wanted, cotangent, 0)
        by_value = sums.blur(near, place, cotangent, jnp.ones_like(value))
        return None, sums.blur_gradient(near, place, value, cotangent), None, by_value, None

    operation.defvjp(lambda *given: (operation(*given), given), pull)
    return operation


@functools.lru_cache
def _settled(grid: Grid, volume: float) -> Any:
    @custom_vjp
    def operation(near: Neighbors, at: Places, b: Array, held: Array, w: Array) -> Array:
        return w

    def pull(saved: Any, cotangent: Array) -> Any:
        near, at, held, w = saved
        inside, own = at.fluid[..., None], matrix(near, at, volume)
        trial = _linear(*own, held | (w > 0), cotangent)

        def power(x: Array, weight: Array | None, cover: Array | None) -> Array:
            there = at._replace(x=x, weight=weight, cover=cover)
            moved, pulled = (push(near, there, volume, lent(near, there, volume, p))[..., :3] for p in (w, trial))
            return -jnp.sum(jnp.where(inside, moved * pulled, 0))

        by_x, *by_walls = jax.grad(power, argnums=(0, 1, 2))(at.x, at.weight, at.cover)
        return None, Places(by_x, None, None, None, *by_walls), trial, None, None  # type: ignore[arg-type]

    operation.defvjp(lambda near, at, b, held, w: (w, (near, at, held, w)), pull)
    return operation


class _Sums(NamedTuple):
    """The kernels as functions of neighbours and arrays of slots."""

    squeeze: Any
    rate: Any
    gradient: Any
    blur: Any
    blur_gradient: Any
    surroundings: Any


WIDTHS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("squeeze", "lend", "move"), (4,)),
    **dict.fromkeys(("gradient", "blur_gradient"), (3,)),
    "surroundings": (1, 1, 1),
}
"""How many numbers the results of the kernels have for each slot, if it is not one."""


EACH = 64
"""Rows of a thread on a processor."""

CHOOSING = ("rate", "blur")
"""Those that sum for some slots only."""


def _rows(near: Neighbors) -> tuple[Array, Array, Array]:
    """The first slots of the parts, and the rows of neighbours in them."""
    index, number = parted(near.index), parted(near.number)
    first = jnp.arange(len(number), dtype=jnp.int32) * (number.shape[1] if len(near.number) < len(number) else 0)
    return first, index, number


def _launch(launch: Any, kernel: Any, number: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    each = EACH if launch.platform == "cpu" else 1
    lanes = -(-number.shape[1] // each)
    launch(kernel, dim=(number.shape[0], lanes), inputs=[lanes, each, *inputs], outputs=outputs)


def _shape(number: Any, width: int, dtype: Any) -> Any:
    return jax.ShapeDtypeStruct((*number.shape, *([width] if width > 1 else [])), dtype)


@functools.lru_cache
def _sums(grid: Grid, volume: float) -> _Sums:
    h, scale = smoothing(grid)

    def sum_of(name: str) -> Any:
        widths = WIDTHS.get(name, (1,))

        def launches(launch: Any, rows: Any, place: Any, *arrays: Any) -> None:
            kernel, number = getattr(kernels(place.dtype, "particles.sph_pressure"), name), rows[-1]
            inputs = [grid.period, h, scale * volume * h, *rows, place, *arrays[: -len(widths)]]
            _launch(launch, kernel, number, inputs, arrays[-len(widths) :])

        def outputs(rows: Any, place: Any, *arrays: Any) -> Any:
            return tuple(_shape(rows[-1], width, place.dtype) for width in widths)

        op = warp_op(launches, outputs, differentiable=False, zeroed=False, name=f"sph {name}")

        def found(near: Neighbors, *arrays: Array) -> Any:
            results = op(_rows(near)[0 if name in CHOOSING else 1 :], *arrays)
            results = tuple(whole(r, len(near.order)) for r in (results if len(widths) > 1 else [results]))
            return results if len(widths) > 1 else results[0]

        return found

    return _Sums(*map(sum_of, _Sums._fields))


@functools.lru_cache
def _product(grid: Grid, volume: float, walls: bool) -> Any:
    """B w by kernels in a row: in one call, unless a world is cut into parts that wait for each other."""
    h, scale = smoothing(grid)
    flat = int(grid.counts[2] == 1)

    def chain(*names: str) -> Any:
        width = WIDTHS.get(names[-1], (1,))[0]

        def launches(launch: Any, rows: Any, place: Any, share: Any, given: Any, out: Any) -> None:
            number = rows[-1]
            module, types = kernels(place.dtype, "particles.sph_pressure"), kernels(place.dtype, "_precision")
            for name in names:
                kind = types.vec4 if name in WIDTHS else types.real
                to = out if name == names[-1] else launch.scratch(number.shape, kind)
                inputs = [flat, grid.period, h, scale * volume * h, *rows, place, share, given]
                _launch(launch, getattr(module, name), number, inputs, [to])
                given = to

        def outputs(rows: Any, place: Any, *_: Any) -> Any:
            return _shape(rows[-1], width, place.dtype)

        return warp_op(launches, outputs, differentiable=False, zeroed=False, name=f"sph {' '.join(names)}")

    names = ("lend", "move", "gain", "give_back")[: 4 if walls else 3]
    at_once, apart = chain(*names), [chain(name) for name in names]

    def product(near: Neighbors, place: Array, share: Array, w: Array) -> Array:
        rows = _rows(near)
        for op in [at_once] if len(rows[0]) == len(near.order) else apart:
            w = whole(op(rows, place, share, w), len(near.order))
        return w

    return product
