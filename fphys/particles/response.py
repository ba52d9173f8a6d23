"""Bodies that carry colliders and answer to the impulses that matter gives them within a step.

Matter that is pushed against the bodies' old velocities, with the impulses added to the bodies afterwards, amplifies
errors by the ratio of the masses that touch, and diverges for light bodies. Here both velocities are found at once. An
impulse I on the matter changes the bodies' twists by -Y I, with Y their mobility; the impulse is piecewise linear in
the twists, I(nu) = b - A nu for a given set of contacts. So the twists solve

    (1 + Y A) nu = nu_0 + Y b

at the contacts that they meet. Contacts change with the twists, so this is Newton's method. The contacts of a
light body may change in turns without end, and the last twists would shoot it away. So a step that does not lower the
energy J Y J is halved and taken again, with J = I - (b - A nu) the excess of the impulse that the bodies have taken
over what the matter gives.

What a body takes in the end is what was given to the matter, to rounding, whatever is left.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..math import einsum, matmul
from ..tree import Tree, pytree, static
from .arguments import row
from .boundary import Collider
from .neighbors import Periods, wrap

__all__ = ["Response"]

Array = jax.Array

DISAGREED = (
    "media that push the same bodies did not find one motion of them: lower the model's time step, or make the bodies "
    "between them heavier, or the dtype float64"
)
"""Why a medium says UNCONVERGED that has no solver of its own to blame."""

PASSES = 8
"""The first finds the contacts that the free motion meets, the last the energy that the last step leaves. Two are
enough where bodies are as heavy as the matter; the others take little time, and keep bodies of a thousandth at rest."""


@pytree
class Response(Tree):
    """How bodies that carry colliders answer to impulses. Vectors in world axes; in a plane, too, of three numbers."""

    pos: Any  # origins of the bodies [m], shape (world, body, 3); impulses are about them
    twist: Any  # velocity of the origin [m/s] and angular velocity [rad/s] without the matter, shape (world, body, 6)
    mobility: Any  # Y: twists by impulses [1/kg, 1/(kg m), 1/(kg m^2)], shape (world, 6 body, 6 body)
    body: tuple[int, ...] = static(default=())  # number of the body of each collider
    fixed: tuple[int, ...] = static(default=())  # numbers of the bodies that have no mobility
    guess: Any = None  # impulses that they may take, for a first try, shape (world, body, 6); no gradient

    @property
    def answers(self) -> tuple[bool, ...]:
        """Whether impulses change the twist of each body."""
        return tuple(b not in self.fixed for b in range(self.pos.shape[-2]))


def driven(colliders: tuple[Collider, ...], worlds: int) -> Response:
    """Bodies that move as their colliders say, one for each (:func:`fphys.particles.boundary.prepared`)."""
    rows = [[jnp.broadcast_to(a, (worlds, 3)) for a in (c.pos, c.velocity, c.spin)] for c in colliders]
    pos, velocity, spin = (jnp.stack(each, 1) for each in zip(*rows, strict=True))
    numbers, size = tuple(range(len(colliders))), 6 * len(colliders)
    return Response(pos, jnp.concatenate([velocity, spin], -1), jnp.zeros((1, size, size), pos.dtype), numbers, numbers)


def carried(
    colliders: tuple[Collider, ...], response: Response, twist: Array, origin: Array | None = None
) -> tuple[Collider, ...]:
    """The colliders, moving with their bodies.

    Args:
        origin: of the body of each collider [m], (world, collider, 3), if it is an image of the body.
    """
    of = list(response.body)
    at = response.pos[:, of] if origin is None else origin

    def moving(k: int, collider: Collider) -> Collider:
        velocity, spin = twist[:, of[k], :3], twist[:, of[k], 3:]
        return collider.replace(velocity=velocity + jnp.cross(spin, collider.pos - at[:, k]), spin=spin)

    return tuple(moving(k, c) for k, c in enumerate(colliders))


def images(colliders: tuple[Collider, ...], response: Response, periodic: Periods) -> Array:
    """Origins of the bodies of colliders [m], (world, collider, 3), whole periods from the bodies: the nearest."""
    origin = response.pos[:, list(response.body)]
    arm = jnp.stack(jnp.broadcast_arrays(*[c.pos for c in colliders], response.pos[:, 0])[:-1], 1) - origin
    half = tuple(None if ends is None else ((ends[0] - ends[1]) / 2, (ends[1] - ends[0]) / 2) for ends in periodic)
    return origin + (arm - wrap(half, arm))


def through(mobility: Array, impulse: Array) -> Array:
    """Twists that impulses give, (world, body, 6)."""
    return einsum("wij,wj->wi", mobility, impulse.reshape(len(impulse), -1)).reshape(impulse.shape)


def among(mobility: Array, slope: Array) -> Array:
    """1 + Y A, (world, 6 body, 6 body)."""
    return jnp.eye(mobility.shape[-1], dtype=mobility.dtype)[None] + matmul(mobility, slope)


def solved(mobility: Array, slope: Array, twist: Array) -> Array:
    """(1 + Y A)^-1 of twists (world, body, 6), with a slope A."""
    return jnp.linalg.solve(among(mobility, slope), twist.reshape(len(twist), -1, 1)).reshape(twist.shape)


def falling(taken: Callable[[Array], Array], twist: Array, bodies: tuple[int, ...]) -> Array:
    """How what bodies take falls as the twists of some grow, (world, 6 body, 6 body); zeros for the others.

    Args:
        taken: what they take, (world, body, 6), of twists (world, body, 6). It is differentiated by rows.
    """
    (worlds, count, _), some = twist.shape, np.array(bodies, np.int32)
    _, pull = jax.vjp(taken, twist)
    axes = np.eye(6 * count, dtype=twist.dtype).reshape(count, 6, count, 6)[some].reshape(-1, 1, count, 6)
    rows = jax.vmap(lambda axis: pull(axis)[0])(jnp.broadcast_to(axes, (len(axes), worlds, count, 6)))
    rows = rows.reshape(len(some), 6, worlds, 6 * count).transpose(2, 0, 1, 3)
    slope = jnp.zeros((worlds, count, 6, 6 * count), twist.dtype).at[:, some].set(-rows)
    return slope.reshape(worlds, 6 * count, 6 * count)


def blocks(matrix: Array, bodies: np.ndarray) -> Array:
    """The part of a matrix (world, 6 body, 6 body) that is of some bodies."""
    worlds, count = len(matrix), matrix.shape[-1] // 6
    some = matrix.reshape(worlds, count, 6, count, 6)[:, bodies][:, :, :, bodies]
    return some.reshape(worlds, 6 * len(bodies), 6 * len(bodies))


def answer(
    response: Response,
    colliders: tuple[Collider, ...],
    slopes: Callable[[tuple[Collider, ...]], tuple[Array, Array]],
    origin: Array | None = None,
) -> Array:
    """Twists of the bodies at the end of the step, shape (world, body, 6). Gradients flow, not through the choice of
    the contacts.

    Args:
        slopes: A (world, collider, 6, 6) and b (world, collider, 6) at the contacts that moving colliders meet, about
            the origins of their bodies.
        origin: as in :func:`carried`.
    """
    free, of = response.twist, jnp.asarray(response.body)
    worlds, bodies, _ = free.shape
    if not any(response.answers[b] for b in response.body):
        return free
    size = 6 * bodies
    mobility = response.mobility.reshape(worlds, size, bodies, 6)
    through = lambda impulse: einsum("wibk,wbk->wi", mobility, impulse).reshape(free.shape)  # noqa: E731
    across = lambda slope, twist: einsum("wbkl,wbl->wbk", slope, twist)  # noqa: E731
    guess = jnp.zeros_like(free) if response.guess is None else jax.lax.stop_gradient(response.guess)
    now = best = free + through(guess), guess  # twists, and the impulses that make them
    change, part = (jnp.zeros_like(free),) * 2, jnp.ones((worlds, 1, 1), free.dtype)
    least = jnp.full((worlds, 1, 1), jnp.inf, free.dtype)
    for _ in range(PASSES):
        twist, impulse = now
        slope, pull = slopes(carried(colliders, response, twist, origin))
        slope = jnp.zeros((worlds, bodies, 6, 6), free.dtype).at[:, of].add(slope)
        pull = jnp.zeros_like(free).at[:, of].add(pull)
        excess = impulse - (pull - across(slope, twist))  # what the bodies have taken and the matter has not given
        moved = through(excess)
        error = jax.lax.stop_gradient((excess * moved).sum((1, 2), keepdims=True))
        better = error < least
        stiff = einsum("wibk,wbkl->wibl", mobility, slope).reshape(worlds, size, size)
        system = stiff + jnp.eye(size, dtype=free.dtype)[None]
        turn = -jnp.linalg.solve(system, moved.reshape(worlds, size, 1)).reshape(free.shape)
        best, change = _either(better, now, best), _either(better, (turn, -excess - across(slope, turn)), change)
        least, part = jnp.where(better, error, least), jnp.where(better, 1, part / 2)
        now = best[0] + part * change[0], best[1] + part * change[1]
    return best[0]


def _either(mask: Array, some: tuple[Array, ...], others: tuple[Array, ...]) -> tuple[Array, ...]:
    """Some arrays where the mask holds, others elsewhere."""
    return tuple(jnp.where(mask, a, b) for a, b in zip(some, others, strict=True))


class Tangent(NamedTuple):
    """What bodies take near the twists that a medium found. No gradient flows."""

    twist: Array  # (world, body, 6)
    slope: Array  # how it falls as the twists grow, (world, 6 body, 6 body)
    meant: Array  # what the medium took it for, (world, body, 6); a node that several colliders touch gives another


def tangent(
    response: Response,
    colliders: tuple[Collider, ...],
    slopes: Callable[[tuple[Collider, ...]], tuple[Array, Array]],
    twist: Array,
    origin: Array | None = None,
) -> Tangent:
    """At the contacts of these twists.

    Args:
        slopes, origin: as in :func:`answer`.
    """
    twist = jax.lax.stop_gradient(twist)
    slope, pull = jax.lax.stop_gradient(slopes(carried(colliders, response, twist, origin)))
    (worlds, bodies, _), of = twist.shape, jnp.asarray(response.body)
    own = jnp.zeros((worlds, bodies, 6, 6), twist.dtype).at[:, of].add(slope)
    meant = jnp.zeros_like(twist).at[:, of].add(pull) - einsum("wbkl,wbl->wbk", own, twist)
    apart = jnp.eye(bodies, dtype=twist.dtype)[None, :, None, :, None]
    return Tangent(twist, (own[:, :, :, None] * apart).reshape(worlds, 6 * bodies, 6 * bodies), meant)


def taken(response: Response, given: Array) -> Array:
    """Impulses that the bodies take [N s, N m s], shape (world, body, 6), from those that their colliders gave."""
    return jnp.zeros_like(response.twist).at[:, jnp.asarray(response.body)].add(-given)


def answering(response: Any, colliders: int, worlds: int, dtype: Any) -> Response:
    """A response in the form that a step takes, with the world axis in every array.

    Raises:
        ValueError: a shape does not fit, or there is no collider. TypeError: another dtype, or not a response.
    """
    if not isinstance(response, Response):
        raise TypeError(f"response is a {type(response).__name__}: make one with Response(pos, twist, mobility, body)")
    if not colliders or len(response.body) != colliders:
        raise ValueError(f"response.body has {len(response.body)} numbers for {colliders} colliders: one for each")
    bodies = np.shape(response.pos)[-2] if np.ndim(response.pos) > 1 else 0
    if not all(0 <= b < bodies for b in response.body):
        raise ValueError(f"response.body is {response.body}, response.pos has {bodies} bodies")
    tails = {"pos": (bodies, 3), "twist": (bodies, 6), "mobility": (6 * bodies, 6 * bodies)}
    found = {key: row(f"response.{key}", getattr(response, key), tail, dtype) for key, tail in tails.items()}
    return response.replace(**{key: jnp.broadcast_to(a, (worlds, *a.shape[1:])) for key, a in found.items()})
