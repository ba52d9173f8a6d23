"""One time step."""

import functools

import jax
import jax.numpy as jnp

from ..bridge import alongside, worldwise
from ..implicit import recomputed
from ..model import Model, State
from ..model.arguments import whole_number
from ..model.structure import Integrator
from ..worlds import HUGE, choose, freeze, is_nonfinite, largest_velocity
from .collide.collision import Contacts
from .dynamics import Found
from .forward import Info, accelerate, at_rest, check_inputs, screen
from .last import LastSolve
from .stages import Loads
from .tree.integrate import activation_rate, integrate_activations, integrate_positions, runge_kutta_stage

Array = jax.Array


@worldwise
def step(
    model: Model,
    state: State,
    ctrl: Array | None = None,
    wrench: Array | None = None,
    force: Array | None = None,
    *,
    substeps: int = 1,
) -> State:
    """Advance every world by one time step, or by several. Pure; composes with jit, grad, vmap, scan and checkpoint.

    M(q) a + b(q, v) = tau(q, v, u) + J^T f, then v' = v + h a and q' = q (+) h v' (Euler, implicit in
    the joints' damping; implicitfast, implicit in all forces that depend on velocity; or RK4), with
    MuJoCo's semantics.

    Args:
        model: a mechanism; every continuous leaf gets a gradient.
        state: the worlds.
        ctrl: controls, shape (world, nu) in the actuators' units; None switches the actuators off.
        wrench: force [N] and torque [N m] on every body at its centre of mass, world axes, shape
            (world, nbody, 6), as MuJoCo's ``xfrc_applied``.
        force: generalised force [N or N m], shape (world, nv), as MuJoCo's ``qfrc_applied``. Quantities
            (:mod:`fphys.units`) are checked: a force if all joints are slides, a torque if none is; controls if they
            are those of motors or servos of one kind without gears; make a wrench with ``units.wrench``.
        substeps: time steps under the same loads, static: one compiled step is repeated, as ``frame_skip`` does it.

    Returns:
        The next state. A world whose state, input or parameters are not finite, or whose mass or time step is not
        positive, keeps its last state, its status says so, and it passes no gradient; other worlds are not affected.

    Raises:
        ValueError: a shape does not fit, before anything runs. TypeError: a dtype does not fit; UnitError: a kind.
    """
    if whole_number("substeps", substeps) < 1:
        raise ValueError(f"substeps is {substeps}, must be at least 1")
    loads = check_inputs(model, state, Loads(ctrl, wrench, force))
    return _solved(model, state, loads)[0] if substeps == 1 else _repeated(model, state, loads, substeps)


@worldwise
def solved_step(
    model: Model, state: State, ctrl: Array | None = None, wrench: Array | None = None, force: Array | None = None
) -> tuple[State, LastSolve]:
    """:func:`step`, and its last solve, from which :mod:`fphys.rigid.last` reads what ``mjData`` holds after a step.

    In a world that is held, the last solve is at rest, without gradient.
    """
    return _solved(model, state, check_inputs(model, state, Loads(ctrl, wrench, force)))


@functools.partial(jax.jit, static_argnames="count")
def _repeated(model: Model, state: State, loads: Loads, count: int) -> State:
    return jax.lax.scan(lambda now, _: (_solved(model, now, loads)[0], None), state, None, count)[0]


@jax.jit
def _solved(model: Model, state: State, loads: Loads) -> tuple[State, LastSolve]:
    model, clean, loads, bits = screen(model, state, loads)
    move = runge_kutta if model.structure.integrator == Integrator.RK4 else euler
    new, last = move(model, clean, loads)
    new, held = freeze(state, new, bits, overflowed((new, last)))
    _, at, _ = at_rest(held, model, last.state, loads)
    last = last._replace(state=at, qacc=None if last.qacc is None else choose(held, 0, last.qacc))
    return alongside((new, last), state)


def overflowed(result: tuple[State, LastSolve]) -> Array:
    """Worlds in which a step overflowed or came close to it, bool, shape (world,)."""
    state, _ = result
    limits = ((state.qpos, HUGE), (state.qvel, largest_velocity(state.qvel.dtype)), (state.act, HUGE))
    huge = jnp.stack([~(jnp.abs(x) <= limit).all(1) for x, limit in limits])
    return huge.any(0) | is_nonfinite(state.status)


@recomputed(overflowed, at_rest)
def euler(known: Found | None, model: Model, state: State, loads: Loads) -> tuple[tuple[State, LastSolve], Found]:
    """Semi-implicit Euler: first velocities, then positions along the new velocities."""
    qacc, info, found = accelerate(known, model, state, loads, implicit=True)
    h = model.opt.timestep
    qvel = state.qvel + h[:, None] * qacc
    new = _advanced(model, state, qvel, qvel, _activations(model, state, loads), info)
    return (new, LastSolve(state, None, _contacts(found))), found


@recomputed(overflowed, at_rest)
def runge_kutta(
    known: list[Found] | None, model: Model, state: State, loads: Loads
) -> tuple[tuple[State, LastSolve], list[Found]]:
    """The classical fourth-order method, positions on their manifold (Munthe-Kaas 1998).

    Each stage's solve starts from the last one's solution; the fourth stage is at the time of the next step's first.
    """
    h = model.opt.timestep
    stage, velocities, accelerations, rates, found, info = state, [state.qvel], [], [], [], None
    for k, fraction in enumerate((0.5, 0.5, 1.0, None)):
        qacc, stage_info, solved = accelerate(known[k] if known else None, model, stage, loads, implicit=False)
        info = stage_info if info is None else stage_info.replace(status=info.status | stage_info.status)
        found.append(solved)
        accelerations.append(qacc)
        rates.append(_rate(model, stage, loads))
        if fraction is not None:
            qpos, qvel, rate = runge_kutta_stage(model, state.qpos, state.qvel, velocities[-1], qacc, fraction * h)
            act, near = state.act + fraction * h[:, None] * rates[-1], jax.lax.stop_gradient(qacc)
            stage = stage.replace(qpos=qpos, qvel=qvel, act=act, warmstart=near)
            velocities.append(rate)
    mean = lambda x: (x[0] + 2.0 * x[1] + 2.0 * x[2] + x[3]) / 6.0  # noqa: E731
    qvel = state.qvel + h[:, None] * mean(accelerations)
    act = integrate_activations(model, state.act, mean(rates)) if _activates(model, loads) else state.act
    assert info is not None
    last = LastSolve(stage, accelerations[-1], _contacts(found[-1]))
    return (_advanced(model, state, qvel, mean(velocities), act, info), last), found


def _contacts(found: Found) -> Contacts | None:
    """Which geoms touched, None if the model has no contacts."""
    return None if found.pair is None else Contacts(found.pair, found.feature, None, None, None)


def _advanced(model: Model, state: State, qvel: Array, velocity: Array, act: Array, info: Info) -> State:
    h = model.opt.timestep
    return state.replace(
        qpos=integrate_positions(model, state.qpos, velocity, h),
        qvel=qvel,
        act=act,
        time=state.time + h,
        status=state.status | info.status,
        warmstart=jax.lax.stop_gradient(info.qacc),
    )


def _activates(model: Model, loads: Loads) -> bool:
    return model.structure.na > 0 and loads.ctrl is not None and "actuation" not in model.structure.disabled


def _rate(model: Model, state: State, loads: Loads) -> Array:
    if loads.ctrl is None or not _activates(model, loads):
        return jnp.zeros_like(state.act)
    return activation_rate(model, state.act, loads.ctrl)


def _activations(model: Model, state: State, loads: Loads) -> Array:
    if not _activates(model, loads):
        return state.act
    return integrate_activations(model, state.act, _rate(model, state, loads))
