"""A step of finite elements, and of the bodies that carry colliders and answer to contact within it.

An implicit step is as long as the bodies' own, and a stiff contact throws a light body away that meets it as it would
move without it. Here the twists of the bodies are unknowns of the same Newton's method
(``kernels/deformables/carried.py``). At its solution

    nu = nu_0 + Y p(nu),

with the twists nu_0 without contact, the mobility Y and the impulses p that a step gives to colliders of twists nu. The
gradient is that of this equation: for a cotangent c of nu, (1 - Y dp/dnu)^T l = c, and l is the cotangent of
nu_0 + Y p. Each row of dp/dnu is a linear solve of the step's own backward pass.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..implicit import recomputed
from ..math import einsum, matmul
from ..particles.boundary import Collider
from ..particles.response import Response, carried
from ..worlds import Status, choose, idle
from . import fem
from .fem_arguments import bare
from .fem_solve import meeting

Array = jax.Array


def exchange(
    params: fem.Params,
    state: fem.State,
    colliders: tuple[Collider, ...],
    response: Response,
    force: Any = None,
    pins: Any = None,
) -> tuple[fem.State, Array]:
    """A step, and the impulses that the bodies took, about their origins at its start, shape (world, body, 6).

    Args:
        colliders: where they are at the step's start; they move with their bodies.
        response: of the bodies that carry them, one number in ``body`` for each.

    With ``params.order`` 2 bodies meet the solid as they would move without it. Where Newton's method stopped early the
    status says UNCONVERGED, and what bodies take is still what the solid gave. Gradients flow to all arguments.
    """
    params, twist = bare(params), response.twist
    guess, left = jnp.zeros((*state.x.shape[:2], 3), state.x.dtype), jnp.zeros(len(state.x), state.x.dtype)
    late = jnp.zeros(len(state.x), jnp.uint32)
    if params.order == 1 and (moving := _moving(response)).size:
        found, guess, left, late = _met(params, state, colliders, response, force, pins)
        twist, guess = twist.at[:, moving].set(found), jax.lax.stop_gradient(guess)
    after, impulse = _step(params, state, colliders, response, twist, guess, force, pins)
    left = jax.lax.stop_gradient(jnp.maximum(after.residual, left))
    return after.replace(status=after.status | late, residual=left), impulse


def _moving(response: Response) -> np.ndarray:
    """Numbers of the bodies whose twists contact changes."""
    return np.array(sorted({b for b in response.body if response.answers[b]}), np.int32)


def _mobility(response: Response) -> Array:
    """Of the moving bodies, (world, 6 body, 6 body)."""
    moving, (worlds, count) = _moving(response), response.twist.shape[:2]
    blocks = response.mobility.reshape(worlds, count, 6, count, 6)[:, moving][:, :, :, moving]
    return blocks.reshape(worlds, 6 * len(moving), 6 * len(moving))


def _step(
    params: fem.Params,
    state: fem.State,
    colliders: tuple[Collider, ...],
    response: Response,
    twist: Array,
    guess: Array,
    force: Any,
    pins: Any,
) -> tuple[fem.State, Array]:
    """A step among bodies of given twists, and the impulses that these take."""
    shapes, of = carried(colliders, response, twist), np.array(response.body, np.int32)
    layout, setting, forms, start, bits = fem.screened(params, state, force, pins, shapes, None)
    pinned = jnp.asarray(layout.body["pinned"] != 0)[None, :, None]
    after = fem.advanced(params, state, layout, setting, forms, jnp.where(pinned, start, guess), bits)
    wrench = fem.reactions(params, state, after, shapes)
    arm = jnp.stack([c.pos for c in shapes], 1) - response.pos[:, of]
    wrench = wrench.at[..., 3:].add(jnp.cross(arm, wrench[..., :3]))
    h = jnp.asarray(params.timestep, wrench.dtype).reshape(-1, 1, 1)
    return after, jnp.zeros_like(twist).at[:, of].add(h * wrench)


@recomputed(lambda result: None, lambda worlds, *args: args)
def _met(
    known: Any,
    params: fem.Params,
    state: fem.State,
    colliders: tuple[Collider, ...],
    response: Response,
    force: Any,
    pins: Any,
) -> Any:
    """Twists of the moving bodies, the displacement with them, what is left where it is late, and the status's bits."""
    given = jax.lax.stop_gradient((params, state, colliders, response, force, pins))
    if known is None:
        known = _solved(*given)
        return known, known
    (found, guess, left, late), moving = known, _moving(response)

    def impulse(given: Any, twist: Array) -> Array:
        params, state, colliders, response, force, pins = given
        whole = response.twist.at[:, moving].set(twist)
        return _step(params, state, colliders, response, whole, guess, force, pins)[1][:, moving]

    worlds, size = len(found), 6 * len(moving)
    _, pull = jax.vjp(lambda twist: impulse(given, twist), found)
    axes = jnp.broadcast_to(jnp.eye(size, dtype=found.dtype).reshape(size, 1, -1, 6), (size, *found.shape))
    slope = jax.vmap(lambda axis: pull(axis)[0])(axes).reshape(size, worlds, size).swapaxes(0, 1)
    system = jnp.eye(size, dtype=found.dtype)[None] - matmul(jax.lax.stop_gradient(_mobility(response)), slope)
    taken = impulse((params, state, colliders, response, force, pins), found).reshape(worlds, size)
    nu = response.twist[:, moving].reshape(worlds, size) + einsum("wij,wj->wi", _mobility(response), taken)
    missing = jnp.linalg.solve(system, (nu - found.reshape(worlds, size))[..., None])
    return (found + missing.reshape(found.shape), guess, left, late), known


def _solved(
    params: fem.Params, state: fem.State, colliders: tuple[Collider, ...], response: Response, force: Any, pins: Any
) -> tuple[Array, Array, Array, Array]:
    """What :func:`_met` returns, by Newton's method."""
    moving = _moving(response)
    free, place = response.twist[:, moving], {int(b): k for k, b in enumerate(moving)}
    shapes = carried(colliders, response, response.twist)
    layout, setting, forms, start, bits = fem.screened(params, state, force, pins, shapes, None)
    layout = layout._replace(carrier=tuple(place.get(b, -1) for b in response.body), bodies=len(moving))
    stage = fem.first_solve(setting, forms, 1.0)
    found, twist = meeting(layout, stage, start, response.pos[:, moving], free, _mobility(response))
    out, late = idle(bits), found.status & jnp.uint32(Status.UNCONVERGED)
    left = jnp.where(late > 0, found.residual, 0)
    return choose(out, free, twist), choose(out, 0, found.u), choose(out, 0, left), jnp.where(out, 0, late)
