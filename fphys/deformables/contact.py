"""Contact of vertices with rigid shapes: pushed out, and the impulses that bodies take for it."""

import functools
from typing import Any

import jax

from ..bridge import kernels, warp_op
from ..particles.boundary import Collider, shape_number

Array = jax.Array


def ahead(collider: Collider, time: Array) -> Collider:
    """A collider where its velocity takes it in a time."""
    return collider.replace(pos=collider.pos + time[:, None] * collider.velocity)


def touch(thickness: Array, collider: Collider, h: Array, weight: Array, start: Array, place: Array) -> Array:
    """Where vertices are after a collider."""
    values = thickness, h, *_motion(collider), weight, start, place
    return _contact("touch", *_setting(collider))(*values)


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
