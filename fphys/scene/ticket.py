"""What worlds of engines with their own state share: a ticket for the present state, and checked controls.

A state is a number: a step takes it and returns the next one; an old one raises. Nothing may be traced.
"""

import dataclasses
import itertools
from typing import Any, ClassVar

import jax
import jax.core
import numpy as np

from .. import units
from ..errors import StateError
from . import observe
from .compose import Layout
from .specs import ActionSpec, ObservationSpec


@dataclasses.dataclass(frozen=True)
class State:
    """A ticket for the present state of a world. It is not a pytree: it cannot enter jit, scan or grad."""

    number: int


class Engine:
    """Many copies of a scene in an engine with its own state."""

    name: ClassVar[str]  # of the engine, for messages

    def __init__(self, layout: Layout, num_worlds: int, max_force: float) -> None:
        self.layout, self.num_worlds, self.max_force = layout, num_worlds, max_force
        self.action = ActionSpec()
        self._held = False  # whether the engine holds a control of an earlier step
        self._unsound = np.zeros(num_worlds, bool)  # worlds that got a control that is not finite
        self._numbers = itertools.count()
        self._state = State(next(self._numbers))

    @property
    def joints(self) -> tuple[str, ...]:
        """Hinges and slides: the columns of ``positions`` in ``init``."""
        return self.layout.joints

    @property
    def controls(self) -> tuple[str, ...]:
        """The joints that controls drive, in the order of their columns."""
        return self.layout.pick_joints(self.action.joints)

    def columns(self, spec: ObservationSpec) -> tuple[str, ...]:
        """The name of each column of an observation.

        Raises:
            ModelError: a name does not exist.
        """
        return observe.columns(self.layout, spec)

    def step(self, state: State, control: Any = None) -> State:
        """Advance every world by one time step, in place.

        Args:
            state: from the last call; it becomes invalid.
            control: shape (num_worlds, len(controls)): forces [N or N m], positions [m or rad] or velocities
                [m/s or rad/s], as the :class:`ActionSpec` says; None for no control. No gradient flows.

        Returns:
            The next state.

        Raises:
            StateError: an old state. TypeError: a traced or wrongly typed control. ValueError: its shape.
        """
        self._require_present(state)
        if control is not None:
            self._control(*self._checked_control(control))
        elif self._held:
            self._release()
        self._advance()
        return self._next()

    def _control(self, control: Any, numbers: np.ndarray) -> None:
        """Hand a control to the engine: as it was given, and its numbers."""
        raise NotImplementedError

    def _release(self) -> None:
        """Have the engine forget the last control."""
        raise NotImplementedError

    def _advance(self) -> None:
        """One time step of the engine."""
        raise NotImplementedError

    def _real(self) -> np.dtype:
        """The precision of the engine."""
        raise NotImplementedError

    def _next(self) -> State:
        self._state = State(next(self._numbers))
        return self._state

    def _require_present(self, state: State) -> None:
        if not isinstance(state, State):
            raise TypeError(f"state is {type(state).__name__}, must be what init or step of this world returned last")
        if state is not self._state:
            raise StateError(
                f"this state is number {state.number}, the engine is at {self._state.number}: {self.name} has one "
                "state, and a step uses it up. Keep the last one; for many states, backend='native'"
            )

    def _require_untraced(self, name: str, value: Any) -> None:
        if isinstance(value, jax.core.Tracer):
            raise TypeError(
                f"{name} is traced: {self.name} is neither pure nor differentiable, call it outside of jit, grad, vmap "
                "and scan (a jitted policy between its steps is fine), or build with backend='native'"
            )
        if np.dtype(value.dtype) != self._real():
            raise TypeError(f"{name} is {value.dtype}, {self.name} runs in {self._real()}: cast it")

    def _checked_positions(self, positions: Any) -> np.ndarray:
        """Positions of all joints in the engine's precision, shape (num_worlds, joint)."""
        n = len(self.joints)
        positions = units.si(positions, self.layout.kinds("position", self.joints), "positions")
        if isinstance(positions, jax.core.Tracer):
            self._require_untraced("positions", positions)
        given = np.asarray(positions, np.float64).astype(self._real())
        if given.shape not in ((n,), (1, n), (self.num_worlds, n)):
            raise ValueError(f"positions have shape {given.shape}, need ({n},) or ({self.num_worlds}, {n})")
        return np.array(np.broadcast_to(given, (self.num_worlds, n)))  # torch takes only what it may write to

    def _checked_control(self, control: Any) -> tuple[Any, np.ndarray]:
        """A control as it was given, or in the engine's precision if it was not JAX's; and its numbers."""
        wanted = (self.num_worlds, len(self.controls))
        if isinstance(control, units.Quantity | units.Reading):
            control = units.si(control, self.layout.kinds(self.action.mode, self.controls), "control")
        if not isinstance(control, jax.Array):
            control = np.asarray(control, self._real())
        if tuple(control.shape) != wanted:
            raise ValueError(f"control has shape {tuple(control.shape)}, needs (num_worlds, joints) = {wanted}")
        self._require_untraced("control", control)
        numbers = np.asarray(control)
        if self.action.mode == "torque" and not (np.abs(numbers) <= self.max_force).all():
            raise ValueError(f"control is NaN or above max_force, {self.max_force:g} N or N m: are its units right?")
        self._unsound |= ~np.isfinite(numbers).all(1)
        return control, numbers

    def _require_finite_controls(self) -> None:
        if self._unsound.any():
            bad = np.flatnonzero(self._unsound)[:5].tolist()
            raise StateError(f"a control was not finite in worlds {bad}: look at what computes it")
