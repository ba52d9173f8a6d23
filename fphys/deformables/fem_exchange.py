"""A step of finite elements, and of the bodies that carry colliders and answer to contact within it.

An implicit step is as long as the bodies' own, and a stiff contact throws a light body away that meets it as it would
move without it. Here the twists of the bodies are unknowns of the same Newton's method
(``kernels/deformables/carried.py``). At its solution

    nu = nu_0 + Y p(nu),

with the twists nu_0 without contact, the mobility Y and the impulses p that a step gives to colliders of twists nu. The
gradient is that of this equation: for a cotangent c of nu, (1 - Y dp/dnu)^T l = c, and l is the cotangent of
nu_0 + Y p. Each row of dp/dnu is a linear solve of the step's own backward pass.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..implicit import recomputed
from ..particles.boundary import Collider
from ..particles.response import Response, Tangent, blocks, carried, falling, solved, through
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
    near: Array | None = None,
) -> tuple[fem.State, Array, Callable[[tuple[int, ...]], Tangent]]:
    """A step; the impulses that the bodies took, about their origins at its start, (world, body, 6); their tangent.

    The tangent is a function of some bodies' numbers, for each row of its slope is a linear solve; zeros for others.

    Args:
        colliders: where they are at the step's start; they move with their bodies.
        response: of the bodies that carry them, one number in ``body`` for each.
        near: where vertices are about to be [m], (world, vertex, dim), if bodies do not answer.

    With ``params.order`` 2 bodies meet the solid as they would move without it. Where Newton's method stopped early the
    status says UNCONVERGED, and what bodies take is still what the solid gave. Gradients flow to all arguments.
    """
    params, twist = bare(params), response.twist
    guess = fem.space(jax.lax.stop_gradient(jnp.zeros_like(state.x) if near is None else near - state.x), 3)
    left = jnp.zeros(len(state.x), state.x.dtype)
    late = jnp.zeros(len(state.x), jnp.uint32)
    if params.order == 1 and (moving := _moving(response)).size:
        found, guess, left, late = _met(params, state, colliders, response, force, pins)
        twist, guess = twist.at[:, moving].set(found), jax.lax.stop_gradient(guess)
    after, impulse = _step(params, state, colliders, response, twist, guess, force, pins)
    left = jax.lax.stop_gradient(jnp.maximum(after.residual, left))

    def along(bodies: tuple[int, ...]) -> Tangent:
        slope = _slope(params, state, colliders, response, twist, guess, force, pins, bodies)
        return jax.lax.stop_gradient(Tangent(twist, slope, impulse))

    return after.replace(status=after.status | late, residual=left), impulse, along


def _moving(response: Response) -> np.ndarray:
    """Numbers of the bodies whose twists contact changes."""
    return np.array(sorted({b for b in response.body if response.answers[b]}), np.int32)


def _mobility(response: Response) -> Array:
    """Of the moving bodies, (world, 6 body, 6 body)."""
    return blocks(response.mobility, _moving(response))


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
    if known is None:
        known = _solved(*jax.lax.stop_gradient((params, state, colliders, response, force, pins)))
        return known, known
    (found, guess, left, late), moving = known, _moving(response)
    twist = response.twist.at[:, moving].set(found)
    given = params, state, colliders, response, twist, guess, force, pins
    taken = _step(*given)[1][:, moving]
    slope = _slope(*given, tuple(moving))
    missing = response.twist[:, moving] + through(_mobility(response), taken) - found
    return (
        found + solved(jax.lax.stop_gradient(_mobility(response)), blocks(slope, moving), missing),
        guess,
        left,
        late,
    ), known


def _slope(
    params: fem.Params,
    state: fem.State,
    colliders: tuple[Collider, ...],
    response: Response,
    twist: Array,
    guess: Array,
    force: Any,
    pins: Any,
    bodies: tuple[int, ...],
) -> Array:
    """How what the bodies take falls as the twists of some grow, (world, 6 body, 6 body)."""
    given, loads = jax.lax.stop_gradient(((params, state, colliders, response), (guess, force, pins)))
    return falling(lambda twist: _step(*given, twist, *loads)[1], jax.lax.stop_gradient(twist), bodies)


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
