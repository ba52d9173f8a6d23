"""What all solvers share: what can be wrong with a world, what happens to it then, and the verbs.

A solver advances many worlds side by side. A fault of one world never touches another:

- A world whose *state* is not finite is held. It keeps its last state until a reset.
- A world whose *input* or *parameter* cannot be simulated skips that step.
- Either way its status says so, and the step passes no gradient in that world: exactly zero, and never 0 * NaN.

Other bits of the status are warnings; the world goes on. All bits stay until a reset.
"""

import enum
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from .bridge import custom_vjp
from .bridge.spread import by_devices
from .errors import StateError

__all__ = ["HUGE", "Solver", "Status", "report", "reset"]

Array = jax.Array
State = TypeVar("State")

HUGE = 1e10
"""A number larger than this counts as infinite: MuJoCo's mjMAXVAL."""

UNKNOWN = "this solver does not set it: is the state of another solver or version?"

_SHOWN = 5  # worlds that an error names


class Status(enum.IntFlag):
    """Fault bits of ``state.status``, with one meaning in all solvers: sticky until a reset.

    In MPM NONFINITE, BADCTRL and OOB stop one particle, and the rest of its world goes on.
    """

    NONFINITE = 1  # the state is or became NaN, infinite, too large, too far or too fast: the world is held
    BADCTRL = 2  # an input, such as a control or a force, is NaN, infinite or too large: the world skips the step
    UNCONVERGED = 4  # an iterative solver stopped at its limit
    CONTACT_OVERFLOW = 8  # more contacts than there is room for
    CONSTRAINT_OVERFLOW = 16  # more constraint rows than there is room for
    OOB = 32  # a particle is outside the domain
    CFL = 64  # the time step is above the Courant limit
    BADPARAM = 128  # a parameter is not one to simulate: the world skips the step
    INVERTED = 256  # an element or particle is inside out, or too flat for the precision
    NEIGHBOR_OVERFLOW = 512  # a particle has more neighbours than there is room for
    THROUGH = 1024  # a particle has passed through, or into, a body that is too thin to hold it
    SLOT_OVERFLOW = 2048  # a source gave more particles than there were empty slots


IDLE = Status.NONFINITE | Status.BADCTRL | Status.BADPARAM
"""Faults with which a world does not take a step."""


class Solver(Protocol):
    """The four functions of a solver. Modules have them: ``fphys.rigid``, ``fphys.particles.mpm`` and ``sph``, and
    ``fphys.deformables.fem``, ``pbd`` and ``rod``.

    ``params`` and the states are pytrees; arrays of a state have the world axis first.
    """

    def init(self, params: Any, /, *args: Any, **kwargs: Any) -> Any:
        """The state of many worlds."""
        ...

    def step(self, params: Any, state: Any, /, *loads: Any, **named: Any) -> Any:
        """The state one time step later. Pure and differentiable."""
        ...

    def check(self, params: Any, state: Any, /) -> None:
        """Raise StateError on the host if a world is faulty."""
        ...

    def reset(self, params: Any, state: Any, mask: Any, start: Any, /) -> Any:
        """The state with the worlds of ``mask``, bool, shape (world,), as in ``start``."""
        ...


def sound(values: Iterable[Array], worlds: int = 1) -> Array:
    """Worlds whose values are all finite and not huge, bool, shape (1 | world,)."""
    fine = jnp.ones(worlds, bool)
    for value in values:
        if value.size:  # what is empty cannot be reshaped on an explicit mesh
            fine = fine & (jnp.abs(value) <= HUGE).reshape(value.shape[0], -1).all(1)  # false for NaN
    return fine


def largest_velocity(dtype: Any) -> float:
    """Of a joint [m/s or rad/s]: 1e10, and 2.6e6 in float32, because a gradient multiplies up to six velocities."""
    return min(HUGE, float(np.finfo(dtype).max) ** (1 / 6))


def flag(bit: Status, worlds: Array) -> Array:
    """The bit in these worlds, uint32, of the shape of the mask."""
    return jnp.where(worlds, jnp.uint32(bit), jnp.uint32(0))


def is_nonfinite(status: Array) -> Array:
    """Worlds whose status says so, and which wait for a reset."""
    return (status & jnp.uint32(Status.NONFINITE)) != 0


def idle(bits: Array) -> Array:
    """Worlds that do not take the step, by the bits of this step and NONFINITE of those before."""
    return (bits & jnp.uint32(IDLE)) != 0


@custom_vjp
def choose(mask: Array, a: Any, b: Array) -> Array:
    """``a`` in the worlds where the mask holds, ``b`` in the others. Only ``b`` gets a gradient.

    For the backward pass a bit a world is kept, where ``jnp.where`` alone would keep one for every number.
    """
    return jnp.where(mask.reshape(-1, *[1] * (b.ndim - 1)), a, b)


choose.defvjp(lambda mask, a, b: (choose(mask, a, b), mask), lambda mask, g: (None, None, choose(mask, 0, g)))


def freeze(old: State, new: State, bits: Array, overflowed: Array) -> tuple[State, Array]:
    """Keep the last state, which passes no gradient, in worlds that do not take the step or overflow in it.

    Args:
        old, new: the states before and after the step; the status of ``new`` counts in worlds that take it.
        bits: what was found before it, NONFINITE of earlier steps included.
        overflowed: worlds whose new state is not one to go on with.

    Returns:
        The next state, and which worlds stand still, bool, shape (world,).
    """
    idling = idle(bits)
    bits = bits | flag(Status.NONFINITE, overflowed & ~idling)
    status = old.status | bits | jnp.where(idling, 0, new.status)  # type: ignore[attr-defined]
    kept = jax.tree.map(lambda o, n: choose(idle(bits), o, n), jax.lax.stop_gradient(old), new)
    return kept.replace(status=status), idle(bits)


@by_devices
def reset(state: State, mask: Any, start: State) -> State:
    """The state with the worlds of ``mask`` as in ``start``, fault bits cleared.

    Gradients flow to ``start`` in the worlds that are reset, and to ``state`` in the others.

    Raises:
        ValueError: the mask is not bool of shape (num_worlds,), or the two states differ in shapes. TypeError: they
            differ in dtypes, or are of two classes.
    """
    if type(start) is not type(state):
        raise TypeError(
            f"start is a {type(start).__name__}, state a {type(state).__name__}: reset takes two of one kind"
        )
    worlds = len(state.status)  # type: ignore[attr-defined]
    mask = jnp.asarray(() if mask is None else mask)
    if mask.shape != (worlds,) or mask.dtype != jnp.bool_:
        raise ValueError(f"mask has shape {mask.shape} and type {mask.dtype}, reset needs ({worlds},) of bool")
    shapes = [jax.tree.map(jnp.shape, s) for s in (state, start)]
    if shapes[0] != shapes[1] or jax.tree.structure(state) != jax.tree.structure(start):
        raise ValueError("start has other shapes than state: make both with the same init, of as many worlds")
    dtypes = [[x.dtype for x in jax.tree.leaves(s)] for s in (state, start)]
    if dtypes[0] != dtypes[1]:
        raise TypeError("start has other dtypes than state: cast one, for nothing is cast silently")
    return jax.tree.map(lambda s, x: jnp.where(mask.reshape(worlds, *[1] * (x.ndim - 1)), s, x), start, state)


def report(status: Any, causes: Callable[[int, Status], str], remedy: str) -> None:
    """Raise on the host what the status says, if a world is faulty.

    Args:
        status: fault bits, shape (world,).
        causes: ``causes(world, bit)``: why, and what to change; "" for a bit that the solver never sets.
        remedy: what clears them.

    Raises:
        StateError: naming worlds, faults and what to change. TypeError: the status is traced. ValueError: it has a
            time axis, too.
    """
    if isinstance(status, jax.core.Tracer):
        raise TypeError("check reads the state on the host: call it on what the jitted function returns")
    status = np.asarray(status)
    if status.ndim != 1:
        raise ValueError(
            f"state.status has shape {status.shape}, check takes (num_worlds,): a rollout's states have a time axis "
            "first: check the last time, whose status holds all that went before"
        )
    faulty = np.flatnonzero(status)
    if not len(faulty):
        return
    lines = [f"{len(faulty)} of {len(status)} worlds are faulty ({remedy} clears them):"]
    for world in faulty[:_SHOWN]:
        found = Status(int(status[world]))
        lines += [
            f"  world {world}: {bit.name}: {causes(int(world), bit) or UNKNOWN}" for bit in Status if bit in found
        ]
    if len(faulty) > _SHOWN:
        lines.append(f"  and {len(faulty) - _SHOWN} more")
    raise StateError("\n".join(lines))
