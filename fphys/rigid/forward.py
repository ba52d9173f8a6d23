"""Forward dynamics: from state and loads to accelerations."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import worldwise
from ..implicit import recomputed
from ..model import Model, State
from ..model.arguments import expect, expect_array
from ..model.kinds import bare_ctrl, kinds
from ..model.sound import as_loaded, screen_model
from ..model.structure import Integrator, JointType, Structure
from ..tree import Tree, pytree
from ..units import si
from ..worlds import HUGE, Status, choose, flag, idle, is_nonfinite, largest_velocity, sound
from .collide.collision import Contacts
from .collide.collision import contacts as contact_geometry
from .damped import damped_acceleration
from .dynamics import Found, smooth_acceleration
from .solve.constraint import Ids, constrained, constrained_acceleration, needed
from .solve.contact import contact_forces
from .solve.noslip import gripped_forces, grips, without_slip
from .stages import Loads

Array = jax.Array

RESOLUTION = 0.01
"""Positions [m] that floating point resolves more coarsely than this also count as faulty: in float32 beyond 84 km."""


@pytree
class Info(Tree):
    """What a solve reports besides its result. Gradients flow only to ``force`` and ``contacts``."""

    qacc: Array  # acceleration, from which the next solve may start, shape (world, nv)
    status: Array  # fault bits, uint32, shape (world,)
    residual: Array  # norm of the solver's gradient [N or N m], scaled as MuJoCo's, shape (world,)
    iterations: Array  # Newton iterations, int32, shape (world,)
    force: Any = None  # force [N] and torque [N m] of each contact in its frame, shape (world, contact, 6)
    contacts: Any = None  # the contact set (Contacts)


@worldwise
def forward(
    model: Model,
    state: State,
    ctrl: Array | None = None,
    wrench: Array | None = None,
    force: Array | None = None,
    contacts: Contacts | None = None,
) -> tuple[Array, Info]:
    """Accelerations without stepping.

    M(q) a + b(q, v) = tau(q, v, u, act) + J^T f + applied, as MuJoCo's ``mj_forward``.

    Args:
        model, state, ctrl, wrench, force: as in :func:`fphys.step`.
        contacts: ``info.contacts`` of another call freezes the contact set; None detects contacts.

    Returns:
        qacc [m/s^2 or rad/s^2] of shape (world, nv), and Info. Gradients flow from qacc to every
        continuous leaf of the model, to state, ctrl, wrench and force. In a world that is faulty (see
        :func:`fphys.step`) qacc is zero, has no gradient, and info.status says so.
    """
    return _screened(model, state, check_inputs(model, state, Loads(ctrl, wrench, force)), contacts)


@jax.jit
def _screened(model: Model, state: State, loads: Loads, contacts: Contacts | None) -> tuple[Array, Info]:
    model, clean, loads, bits = screen(model, state, loads)
    qacc, info = _forward(model, clean, loads, contacts)
    return choose(idle(bits), 0, qacc), info.replace(status=bits | jnp.where(idle(bits), 0, info.status))


def at_rest(worlds: Array, model: Model, state: State, loads: Loads, *rest: Any) -> tuple[Any, ...]:
    """Put these worlds at rest in the reference position, free of loads, with the parameters that were loaded."""
    state = state.replace(
        qpos=choose(worlds, model.qpos0, state.qpos),
        **{name: choose(worlds, 0, getattr(state, name)) for name in ("qvel", "act", "warmstart", "mocap_pos")},
        mocap_quat=choose(worlds, jnp.eye(4, dtype=state.qpos.dtype)[0], state.mocap_quat),
    )
    loads = Loads(*(None if v is None else choose(worlds, 0, v) for v in loads))
    return as_loaded(model, worlds), state, loads, *rest


@recomputed(lambda result: is_nonfinite(result[1].status), at_rest)
def _forward(
    known: Found | None, model: Model, state: State, loads: Loads, contacts: Contacts | None
) -> tuple[tuple[Array, Info], Found]:
    qacc, info, known = accelerate(known, model, state, loads, contacts, implicit=False)
    return (qacc, info), known


def accelerate(
    known: Found | None,
    model: Model,
    state: State,
    loads: Loads,
    contacts: Contacts | None = None,
    *,
    implicit: bool,
) -> tuple[Array, Info, Found]:
    """Accelerations for inputs that are already checked; ``implicit``: those that the integrator uses.

    Args:
        known: what the solve finds, if that is already known; Info is then meaningless.

    Returns:
        Accelerations, Info, and the part of what the solve found that a backward pass needs.
    """
    worlds = state.qpos.shape[0]
    fast = model.structure.integrator == Integrator.IMPLICITFAST
    implicit = implicit and (fast or "eulerdamp" not in model.structure.disabled)
    if not constrained(model, state) and contacts is None:
        found = smooth_acceleration(model, state, loads, known, implicit=implicit)
        qacc, status = _finite(found.qacc)
        info = Info(qacc, status, jnp.zeros(worlds, qacc.dtype), jnp.zeros(worlds, jnp.int32))
        return qacc, jax.lax.stop_gradient(info), found
    gripping = grips(model)
    solution = constrained_acceleration(model, state, loads, contacts, known, damping=implicit and not gripping)
    found = solution.found
    qacc, status = _finite(found.qacc)
    info = jax.lax.stop_gradient(Info(qacc, solution.status | status, solution.residual, solution.iterations))
    needs, gripped = needed(model, implicit and not gripping, found), None
    if gripping:
        gripped = without_slip(model, state, Ids(found.pair, found.feature), qacc)
        after, status = _finite(gripped.qacc)
        info = info.replace(status=info.status | status)
        found = found._replace(qacc=after, damped=damped_acceleration(model, state, loads, after) if implicit else None)
    if implicit:
        damped, status = _finite(found.damped)
        return damped, info.replace(status=info.status | status), needs
    touching = contact_geometry(model, state, Contacts(found.pair, found.feature, None, None, None))
    force = contact_forces(model, state, touching, qacc)
    if gripped is not None:
        force, qacc = gripped_forces(model, force, touching, gripped.force), found.qacc
    return qacc, info.replace(contacts=touching, force=force), needs


def _finite(qacc: Array) -> tuple[Array, Array]:
    """Accelerations, set to zero (without gradient) in the worlds where they overflowed; and the fault bits."""
    wrong = ~sound([qacc])
    return choose(wrong, 0, qacc), flag(Status.NONFINITE, wrong)


def check_inputs(model: Model, state: State, loads: Loads) -> Loads:
    """Check shapes and dtypes of a step's arguments, on the host, before anything runs.

    Raises:
        ValueError: naming the argument, its shape and the required one. TypeError: naming types. UnitError:
            naming kinds.
    """
    expect(model, state)
    s, worlds, real = model.structure, state.qpos.shape[0], state.qpos.dtype
    wanted = {"ctrl": (worlds, s.nu), "wrench": (worlds, s.nbody, 6), "force": (worlds, s.nv)}
    loads = Loads(
        bare_ctrl(model, loads.ctrl), si(loads.wrench, (), "wrench"), si(loads.force, kinds(s, "force"), "force")
    )
    given = {
        name: None if value is None else _expect(name, value, wanted[name], real)
        for name, value in loads._asdict().items()
    }
    return Loads(**given)


_AXES = {"ctrl": "nu", "force": "nv", "wrench": "nbody, 6"}


def _expect(name: str, value: Any, shape: tuple[int, ...], real: Any) -> Array:
    value = jnp.array(value, real) if isinstance(value, int | float | list | np.ndarray) else value
    expect_array(name, value, shape, _AXES[name])
    if value.dtype != real:
        raise TypeError(f"{name} is {value.dtype}, the state is {real}: cast it, for nothing is cast silently")
    return value


def screen(model: Model, state: State, loads: Loads) -> tuple[Model, State, Loads, Array]:
    """Take faulty worlds out of the computation, so that they spoil neither results nor gradients.

    Returns:
        The model with the faulty worlds' parameters replaced by those that it was loaded with; state and loads
        with those worlds at the reference position, at rest and unloaded (a frozen world passes zero gradient, never
        0 * NaN); and the fault bits found, uint32, shape (world,).
    """
    model, unsound = screen_model(model)
    broken = ~sound([state.act, state.mocap_pos, state.mocap_quat])
    broken |= ~(jnp.abs(state.qvel) <= largest_velocity(state.qvel.dtype)).all(1)
    broken |= ~(jnp.abs(state.qpos) <= _largest(model.structure, state.qpos.dtype)).all(1)  # false for NaN
    uncontrolled = ~sound([v for v in loads if v is not None], broken.size)
    bits = flag(Status.NONFINITE, broken | is_nonfinite(state.status))
    bits |= flag(Status.BADPARAM, unsound) | flag(Status.BADCTRL, uncontrolled)
    model, state, loads = at_rest(idle(bits), model, state, loads)
    return model, state, loads, bits


def _largest(structure: Structure, dtype: Any) -> np.ndarray:
    """Greatest magnitude of each coordinate, shape (1, nq)."""
    largest, joint = np.full((1, structure.nq), HUGE, dtype), structure.joint
    for first, kind in zip(joint.qpos, joint.type):
        if kind in (JointType.FREE, JointType.SLIDE):
            places = slice(first, first + (3 if kind == JointType.FREE else 1))
            largest[0, places] = min(HUGE, RESOLUTION / np.finfo(dtype).eps)
    return largest
