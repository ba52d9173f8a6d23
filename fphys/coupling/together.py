"""A substep of several media that push the same bodies: all find one motion of the bodies.

With the impulses p_i that medium i gives to bodies of twists nu, these are

    nu = nu_0 + Y (p_1(nu) + p_2(nu) + ...).

Each medium finds its own motion and the bodies' together (:mod:`fphys.particles.response`,
:mod:`fphys.deformables.fem_exchange`), for bodies that answer to it alone. So they take turns. In the turn of one, the
others are their tangents, p_j - A_j (nu - nu_j), and bodies that lie between them have the mobility

    Y_i = (1 + Y sum_j A_j)^-1 Y.

Twists that all turns find solve the equation, whatever the tangents are; these change only how soon. The gradient is
that of the equation: for a cotangent c of nu, (1 + Y sum_i A_i)^T l = c, and l is the cotangent of its right side.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..implicit import recomputed
from ..math import matmul
from ..particles.response import Response, Tangent, among, falling, solved, through
from ..worlds import Status, flag

Array = jax.Array

Along = Callable[[tuple[int, ...]], Tangent]
"""The tangent of what some bodies take, at least of these."""

ROUNDS = 12
"""Turns of each medium at most. Two to six are enough, also for bodies of a five-hundredth of what is about them."""

NEAR, LATE = {8: 1e-10, 4: 1e-3}, {8: 1e-3, 4: 1e-2}
"""How far twists may differ at the end of the turns, and before the status says so, by the bytes of a number; of what
free motion and all impulses make of them."""


class Found(NamedTuple):
    """What media found in their last turns."""

    matter: tuple[Any, ...]
    impulse: tuple[Array, ...]  # that bodies took of each, (world, body, 6)
    twist: tuple[Array, ...]  # of the bodies, (world, body, 6)
    slope: tuple[Array, ...]  # (world, 6 body, 6 body)
    more: tuple[Array, ...]  # that they took than the medium meant, (world, body, 6)


@jax.tree_util.register_static
class Touched(NamedTuple):
    """What is known when the step is compiled."""

    numbers: tuple[int, ...]  # of the bodies
    moving: tuple[int, ...]  # which of them answer


class Given(NamedTuple):
    """What a substep starts from, as in :func:`exchange`; of media that meet bodies which answer."""

    model: Any
    media: tuple[Any, ...]
    matter: tuple[Any, ...]
    pose: Any
    response: Response
    forces: tuple[Array | None, ...]


def exchange(
    numbers: tuple[int, ...],
    model: Any,
    media: tuple[Any, ...],
    matter: tuple[Any, ...],
    pose: Any,
    response: Response,
    forces: list[Array | None],
) -> tuple[tuple[Any, ...], Array]:
    """Matter after a substep, and the impulses that bodies took, about their origins, shape (world, body, 6).

    Args:
        pose: of the bodies ``numbers``, and their twist, at the start of the substep.
        response: of the same bodies, its twist that of the free motion at the end of the substep.
        forces: of surfaces on the matter of each medium [N].

    Explicit media come first. The others meet the bodies as these leave them.
    """
    moving = tuple(k for k, answers in enumerate(response.answers) if answers)
    met = [i for i, m in enumerate(media) if not m.explicit and m.bodies(model) & {numbers[k] for k in moving}]
    after, took = list(matter), jnp.zeros_like(response.twist)
    for i in sorted(range(len(media)), key=lambda i: (not media[i].explicit, i)):
        if i not in met or len(met) == 1:
            left = response.replace(twist=response.twist + through(response.mobility, took))
            after[i], impulse, _ = media[i].exchange(model, matter[i], pose, left, numbers, forces[i])
            took = took + impulse
    if len(met) > 1:
        some = lambda all: tuple(all[i] for i in met)  # noqa: E731
        left = response.replace(twist=response.twist + through(response.mobility, took))
        given = Given(model, some(media), some(matter), pose, left, some(forces))
        found, impulse, apart = _exchanged(Touched(numbers, moving), given)
        for i, new in zip(met, found, strict=True):
            after[i] = new.replace(status=new.status | flag(Status.UNCONVERGED, apart > LATE[apart.dtype.itemsize]))
        took = took + impulse
    return tuple(after), took


@recomputed(lambda result: None, lambda worlds, *args: args)
def _exchanged(known: Any, touched: Touched, given: Given) -> Any:
    """The matter, what bodies took, and how far twists differ in the end, (world,)."""
    response = given.response
    if known is None:
        matter, took, apart = _found(touched, jax.lax.stop_gradient(given))
        known = response.twist + through(response.mobility, took), tuple(m.x for m in matter), apart
        return (matter, took, apart), known
    twist, near, apart = known
    still = jax.lax.stop_gradient(given)
    slope = falling(lambda twist: _driven(touched, still, twist, near)[1], twist, touched.moving)
    missing = response.twist + through(response.mobility, _driven(touched, given, twist, near)[1]) - twist
    twist = twist + solved(still.response.mobility, slope, missing)
    return (*_driven(touched, given, twist, near), apart), known


def _driven(touched: Touched, given: Given, twist: Array, near: tuple[Array, ...]) -> tuple[tuple[Any, ...], Array]:
    """Matter after a substep among bodies of given twists, and what these took of all media."""
    still = jnp.zeros_like(given.response.mobility)
    driven = given.response.replace(twist=twist, mobility=still, fixed=tuple(range(twist.shape[1])))
    matter, took, _ = zip(*(_turn(touched, given, i, driven, near[i]) for i in range(len(near))), strict=True)
    return matter, _sum(took)


def _turn(
    touched: Touched, given: Given, i: int, response: Response, near: Array | None = None
) -> tuple[Any, Array, Along]:
    """A substep of medium i."""
    g = given
    return g.media[i].exchange(g.model, g.matter[i], g.pose, response, touched.numbers, g.forces[i], near)


def _found(touched: Touched, given: Given) -> tuple[tuple[Any, ...], Array, Array]:
    """What media find in turns."""
    matter, response = given.matter, given.response
    (worlds, count, _), dtype, n = response.twist.shape, response.twist.dtype, len(matter)
    zero, flat = jnp.zeros_like(response.twist), jnp.zeros((worlds, 6 * count, 6 * count), dtype)
    begun = Found(tuple(matter), (zero,) * n, (response.twist,) * n, (flat,) * n, (zero,) * n)
    near = NEAR[dtype.itemsize]

    def turns(carry: Any) -> Any:
        k, before, best, least = carry
        found = before
        for i in range(n):
            answer = _among(response, found, i, given.media[i].symmetric)
            after, took, along = _turn(touched, given, i, answer)
            at = along(touched.moving)
            new = after, took, at.twist, at.slope, took - at.meant
            found = Found(*((*a[:i], b, *a[i + 1 :]) for a, b in zip(found, new, strict=True)))
        apart = _apart(response, found)
        better = (k == 0) | (apart < least) & (least > near)
        best = _each(better, found[:2], best)
        half = jax.tree.map(lambda a, b: (a + b) / 2, before[1:], found[1:])  # contacts that come and go in turns
        found = Found(found.matter, *_each(apart > least, half, found[1:]))
        return k + 1, found, best, jnp.where(better, apart, least)

    def going(carry: Any) -> Array:
        return (carry[0] < ROUNDS) & (carry[3] > near).any()

    start = np.int32(0), begun, begun[:2], jnp.full(worlds, jnp.inf, dtype)
    _, _, (after, took), apart = jax.lax.while_loop(going, turns, start)
    return after, _sum(took), apart


def _each(mask: Array, some: Any, others: Any) -> Any:
    """Some arrays in the worlds where the mask holds, others elsewhere."""
    return jax.tree.map(lambda a, b: jnp.where(mask.reshape(-1, *[1] * (a.ndim - 1)), a, b), some, others)


def _among(response: Response, found: Found, i: int, symmetric: bool) -> Response:
    """How bodies answer to medium i among the tangents of the others.

    Friction makes their mobility unsymmetric. Where it must not be, the medium's last impulse makes up for the rest.
    """
    others = [j for j in range(len(found.slope)) if j != i]
    slope = _sum([found.slope[j] for j in others])
    pull = _sum([found.impulse[j] + through(found.slope[j], found.twist[j]) for j in others])
    free = solved(response.mobility, slope, response.twist + through(response.mobility, pull))
    mobility = jnp.linalg.solve(among(response.mobility, slope), response.mobility)
    if symmetric:
        value, axis = jnp.linalg.eigh((mobility + mobility.swapaxes(1, 2)) / 2)
        even = matmul(axis * jnp.maximum(value, 0)[:, None], axis.swapaxes(1, 2))
        free, mobility = free + through(mobility - even, found.impulse[i]), even
    free = free + through(mobility, found.more[i])
    return response.replace(twist=free, mobility=mobility, guess=found.impulse[i] - found.more[i])


def _sum(arrays: Sequence[Array]) -> Array:
    return jnp.stack(arrays).sum(0)


def _apart(response: Response, found: Found) -> Array:
    """By how much media found other twists than all impulses make, of the largest part of these, (world,)."""
    parts = [through(response.mobility, took) for took in found.impulse]
    twist = response.twist + _sum(parts)
    size = lambda twist: jnp.abs(twist).max((1, 2))  # noqa: E731
    scale = size(response.twist) + _sum([size(part) for part in parts])
    apart = jnp.stack([size(own - twist) for own in found.twist]).max(0)
    return apart / jnp.where(scale > 0, scale, 1)
