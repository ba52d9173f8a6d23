"""Gradients before contact: two ways to let a contact act at a distance.

The gradient of a step is exact for its contact set, and zero with respect to everything that is not yet in contact. A
contact that fades in over a distance has a gradient there: its impedance falls from d(0) at the surface to zero, as
d(0) (1 - r / width)^2, so that the approach force, -b v, is a ramp and not a jump.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from ..bridge import worldwise
from ..model import Model, State, Status
from .step import step

Array = jax.Array


def softened(model: Model, width: Any) -> Model:
    """A model whose contacts fade in over a distance beyond their margin, in the simulation and in its gradient.

    Args:
        width: distance [m], a number or of shape (1 | world,); 0 is MuJoCo's contact. Bodies that come closer than
            ``width`` are slowed before they touch, but come to rest at the same place.

    Raises:
        ValueError: a width is not a number, or is negative (if its value is known).

    Softening contacts is an established choice (Suh et al. 2022, "Do differentiable simulators give better policy
    gradients?"): it trades accuracy near contact for a gradient that anticipates the contact.
    """
    _require_width(width)
    return model.replace({"opt.softness": jnp.broadcast_to(jnp.asarray(width, model.qpos0.dtype), _shape(width))})


def contacts_from_distance(width: Any) -> Callable[..., State]:
    """A step whose result is exact and whose gradient is that of softened contacts.

    Args:
        width: distance [m] over which only the gradient feels contacts.

    Raises:
        ValueError: as for :func:`softened`.

    Returns:
        ``step(model, state, ctrl, wrench, force)`` as :func:`fphys.step`. It takes two steps, one for the result and
        one for the gradient ("contacts from distance", Paulus et al. 2025, "Hard contacts with soft gradients"). If
        there was no room for all softened contacts, the status says so, and the gradient misses some of them.

    Example:
        >>> step = fphys.contacts_from_distance(0.02)  # doctest: +SKIP
        >>> final, states = fphys.scan(lambda s, u: (step(model, s, u),) * 2, state, ctrls)  # doctest: +SKIP
    """

    _require_width(width)

    @worldwise
    def soft_step(
        model: Model, state: State, ctrl: Array | None = None, wrench: Array | None = None, force: Array | None = None
    ) -> State:
        exact = jax.lax.stop_gradient(step(model, state, ctrl, wrench, force))
        soft = step(softened(model, width), state, ctrl, wrench, force)
        crowded = soft.status & (Status.CONTACT_OVERFLOW | Status.CONSTRAINT_OVERFLOW)
        exact = exact.replace(status=exact.status | crowded)
        return jax.tree.map(_value_and_gradient, exact, soft)

    return soft_step


def _value_and_gradient(value: Array, gradient: Array) -> Array:
    """The first argument's value with the second's gradient."""
    return value + (gradient - jax.lax.stop_gradient(gradient)) if jnp.issubdtype(value.dtype, jnp.floating) else value


def _require_width(width: Any) -> None:
    """Raise ValueError if a width is known to be invalid."""
    if not isinstance(width, jax.core.Tracer) and not (
        np.asarray(width).dtype.kind in "fiu" and np.all(np.asarray(width) >= 0)
    ):
        raise ValueError(
            f"width is {width!r}: the distance over which contacts fade must be a number, and not negative"
        )


def _shape(width: Any) -> tuple[int, ...]:
    return jnp.shape(width) or (1,)
