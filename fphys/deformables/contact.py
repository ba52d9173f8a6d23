"""Contact of vertices with rigid shapes, which push them out, and with each other; and what bodies take for it."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from ..bridge import kernels, warp_op
from ..math import quat_turned
from ..particles.boundary import Collider, prepared, shape_number
from ..particles.neighbors import make_grid, neighbors
from ..worlds import choose

Array = jax.Array


def shapes(solver: str, colliders: Collider | tuple[Collider, ...], dtype: Any, dim: int, worlds: int) -> Any:
    """Colliders, one or several, as the solvers take them; ValueError: a contact that the solver does not have."""
    colliders = (colliders,) if isinstance(colliders, Collider) else colliders or ()
    found = tuple(prepared(c, i, dtype, dim, worlds) for i, c in enumerate(colliders))
    for i, c in enumerate(found):
        if c.contact not in ("separate", "sticky"):
            raise ValueError(f'colliders[{i}].contact is {c.contact!r}: {solver} has "separate" and "sticky"')
    return found


def ahead(collider: Collider, time: Array) -> Collider:
    """A collider where its velocity and spin take it in a time."""
    time = time[:, None]
    quat = quat_turned(collider.quat, time * collider.spin)
    return collider.replace(pos=collider.pos + time * collider.velocity, quat=quat)


def touch(thickness: Array, collider: Collider, h: Array, weight: Array, start: Array, place: Array) -> Array:
    """Where vertices are after a collider."""
    values = thickness, h, *_motion(collider), weight, start, place
    return _contact("touch", *_setting(collider))(*values)


def origins(colliders: tuple[Collider, ...], worlds: int, dtype: Any) -> Array:
    """Origins of colliders [m], (world, collider, 3)."""
    each = [jnp.broadcast_to(c.pos, (worlds, 3)) for c in colliders]
    return jnp.stack(each, 1) if each else jnp.zeros((worlds, 0, 3), dtype)


def pushed(
    thickness: Array,
    colliders: tuple[Collider, ...],
    about: Array | None,
    time: Array,
    h: Array,
    weight: Array,
    start: Array,
    before: Array,
    moved: Array,
    push: Array,
) -> tuple[Array, Array | None]:
    """How far vertices are pushed in a substep, by colliders too; and the impulses that these take.

    Args:
        about: points that the impulses are about [m], (world, collider, 3); without them there are none.
        time: from the start of the step to the end of the substep.
        start: places at the start of the step; ``before`` had moved before the substep, ``moved`` after it.
    """
    took = []
    for i, collider in enumerate(colliders):
        x, place = start + before, start + (moved + push)
        touched = touch(thickness, ahead(collider, time), h, weight, x, place)
        push = push + (touched - place)
        if about is not None:
            took.append(-give(h, about[:, i], weight, x, place, touched))
    if about is None:
        return push, None
    return push, jnp.concatenate([jnp.zeros((len(start), 0, 6), start.dtype), *took], 1)


def mean_wrench(took: Array | None, timestep: Array, still: Array) -> Array | None:
    """The mean wrench of a step, (world, collider, 6), from impulses of substeps; 0 in worlds that stand still."""
    return None if took is None else choose(still, 0, took.sum(0) / timestep[:, None, None])


SHARE = 0.5
"""Of the depth of two vertices, by which they part at once: others push them, too."""


def meet(
    apart: float, capacity: int, friction: Array, rest: Array, weight: Array, start: Array, place: Array
) -> tuple[Array, Array]:
    """Where vertices are after those nearer to each other than ``apart``, or than at rest if that is less, have parted.

    Both of a pair move along the line between them, that at rest if they are in one place, in inverse proportion to
    their masses, so that momentum stays. They slide less by at most friction times that push. Which vertices are near
    has no derivative.

    Args:
        apart: [m]. capacity: neighbours of a vertex that there is room for.
        friction: (1 | world,). rest, start, place: [m], (1 | world, vertex, 3): at rest, before and after the substep.
        weight: inverse masses [1/kg], (1 | world, vertex).

    Returns:
        Places, and the capacity that each world needs, (world,).
    """
    n = place.shape[1]
    grid = make_grid(apart, (None,) * 3, (apart * n**0.5,) * 3, n)
    index, _, needed = neighbors(grid, jax.lax.stop_gradient(place), capacity)
    there, other = index >= 0, jnp.maximum(index, 0)

    @jax.checkpoint
    def parted(place: Array, start: Array, rest: Array, weight: Array, friction: Array) -> Array:
        def between(a: Array) -> Array:
            """a_i - a_j of vertices and their neighbours, (world, vertex, capacity, 3)."""
            return a[:, :, None] - jax.vmap(lambda a, j: a[j])(jnp.broadcast_to(a, place.shape), other)

        def length(d: Array) -> Array:
            return jnp.sqrt(jnp.maximum((d**2).sum(-1), 1e-24))

        d, at_rest = between(place), between(rest)
        distance, longest = length(d), length(at_rest)
        depth = jnp.where(there, jnp.maximum(jnp.minimum(longest, apart) - distance, 0), 0)
        one = ((d**2).sum(-1) <= 1e-24)[..., None]
        normal = jnp.where(one, at_rest / longest[..., None], d / distance[..., None])
        slide = between(place - start)
        slide = slide - (slide * normal).sum(-1, keepdims=True) * normal
        share = jnp.minimum(1, friction[:, None, None] * depth / length(slide))
        own = jnp.broadcast_to(weight, place.shape[:2])
        total = own[:, :, None] + jax.vmap(lambda a, j: a[j])(own, other)
        part = SHARE * own[:, :, None] / jnp.where(total > 0, total, 1)
        push = depth[..., None] * normal - share[..., None] * slide
        return place + (part[..., None] * jnp.where(depth[..., None] > 0, push, 0)).sum(2)

    return parted(place, start, rest, weight, friction), needed


def weigh(
    thickness: Array, collider: Collider, h: Array, origin: Array, weight: Array, start: Array, place: Array
) -> tuple[Array, Array]:
    """A (world, 1, 6, 6) and b (world, 1, 6) of :func:`fphys.particles.response.answer`."""
    values = thickness, h, origin, *_motion(collider), weight, start, place
    return _contact("weigh", *_setting(collider))(*values)


def give(h: Array, origin: Array, weight: Array, start: Array, before: Array, after: Array) -> Array:
    """The impulse that moved vertices, about an origin, shape (world, 1, 6)."""
    return _contact("give")(h, origin, weight, start, before, after)


def _motion(c: Collider) -> tuple[Array, ...]:
    return c.pos, c.quat, c.size, c.velocity, c.spin, c.friction, c.samples


def _setting(collider: Collider) -> tuple[int, int, tuple[int, int, int]]:
    return shape_number(collider.shape), int(collider.contact == "sticky"), collider.count


@functools.lru_cache
def _contact(name: str, *setting: Any) -> Any:
    """The operation of a kernel of ``deformables.touch``, whose last input are places."""

    def launches(launch: Any, *arrays: Any) -> None:
        inputs, outs = arrays[: -len(tails)], arrays[-len(tails) :]
        kernel = getattr(kernels(outs[0].dtype, "deformables.touch"), name)
        launch(kernel, (launch.worlds, inputs[-1].shape[1]), [*setting, *inputs], list(outs))

    def shapes(*inputs: Any) -> Any:
        found = [jax.ShapeDtypeStruct((inputs[-1].shape[0], *tail), inputs[-1].dtype) for tail in tails if tail]
        return tuple(found) if found else inputs[-1]

    tails: list[tuple[int, ...]] = {"touch": [()], "weigh": [(1, 6, 6), (1, 6)], "give": [(1, 6)]}[name]
    return warp_op(launches, shapes, zeroed=name != "touch", name=f"pbd {name}")
