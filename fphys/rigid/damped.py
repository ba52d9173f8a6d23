"""The integrator's own solve: velocities are moved by accelerations that damping has already reduced.

(M + h D) a2 = M a. With l2 the solution of (M + h D)^T l2 = cotangent of a2, the cotangent of a is M l2 and that of
any other input x is -(dP/dx) of P = l2 . (M (a2 - a) + h D a2) at fixed a, a2. These are launches within the
operations of the constrained solve, which has poses, axes and M.

For the backward pass a2 is stored; then M (a2 - a) = -h D a2 gives a.
"""

from typing import Any, NamedTuple

import jax

from ..bridge import custom_vjp, warp_op
from ..implicit import dense, flags, power_gradient, primal_values
from ..model import Model, State
from . import stages, team
from .dynamics import mass_matrix_launch, power_motions
from .forces import damping, tendon
from .forces.armature import armature_power, count
from .forces.damping import gyroscopic, implicit_matrix, lone_inverses, lone_shape, solve_implicit, solve_sparse
from .tree import articulated, topology


def _factors(
    launch: Any, model: Model, state: State, loads: stages.Loads, poses: tuple[stages.Frames, Any], mass: Any
) -> tuple[Any, Any, Any]:
    """M + h D, its factor, and the inverses of the blocks that it does not cover."""
    t = stages.types(state.qpos)
    damped = implicit_matrix(launch, model, state, loads, *poses, mass)
    factor = launch.scratch(mass.shape, t.real)
    inputs = [model.structure.nv, damped]
    team.shared(launch, stages.modules(state.qpos).dense.factor_dense, inputs, [factor])
    inverse = launch.scratch((launch.worlds, lone_shape(model)[0]), t.mat66)
    lone_inverses(launch, model, state, *poses, damped, inverse)
    return damped, factor, inverse


def damp(
    launch: Any,
    model: Model,
    state: State,
    loads: stages.Loads,
    poses: tuple[stages.Frames, Any],
    mass: Any,
    qacc: Any,
    out: Any,
) -> None:
    """Launch the solve, given poses, axes and M."""
    _, factor, inverse = _factors(launch, model, state, loads, poses, mass)
    force = launch.scratch(qacc.shape, stages.types(qacc).real)
    team.shared(launch, stages.modules(qacc).dense.multiply_dense, [mass, qacc], [force])
    solve_implicit(launch, model, factor, inverse, force, out)


def damp_sparse(
    launch: Any,
    model: Model,
    state: State,
    loads: stages.Loads,
    frames: stages.Frames,
    mass: articulated.Inertias,
    qacc: Any,
    out: Any,
) -> None:
    """The same for mechanisms where M is applied rather than stored."""
    force = launch.scratch(qacc.shape, stages.types(qacc).real)
    articulated.multiply(launch, model, mass, qacc, force)
    solve_sparse(launch, model, state, loads, frames, force, out)


def invertible(model: Model) -> bool:
    """Whether a follows from a2: what is stored of M + h D lacks the gyroscopic forces of lone bodies, and in a sparse
    model all but the joints' damping."""
    return not gyroscopic(model) and not (model.structure.sparse and damping.fast(model))


class Pulled(NamedTuple):
    """What the backward solve finds, each (world, nv)."""

    trial: Any  # l2
    change: Any  # a2 - a
    qacc: Any  # a


def pull_damped(
    launch: Any, model: Model, state: State, loads: stages.Loads, known: Any, damped: Any, cotangent: Any, out: Pulled
) -> Any:
    """Launch the backward solve: the cotangent of a. ``known`` is a, or None; ``damped`` is a2."""
    trial, change, qacc = out
    s, real = model.structure, stages.types(state.qpos).real
    k = stages.modules(state.qpos)
    pulled, force = (launch.scratch(damped.shape, real) for _ in range(2))
    if known is not None:
        launch(k.forces.subtract, dim=damped.shape, inputs=[damped, known], outputs=[change])
    frames = stages.frame_poses(launch, model, state)
    if s.sparse:
        mass = articulated.inertias(launch, model, state, frames, implicit=False)
        solve_sparse(launch, model, state, loads, frames, cotangent, trial, transposed=True)
        articulated.multiply(launch, model, mass, trial, pulled)
        if known is None:
            inputs = [stages.switches(model)[1], model.dof.damping, model.opt.timestep, damped]
            launch(k.damping.damping_force, dim=damped.shape, inputs=inputs, outputs=[force])
            articulated.solve(launch, model, articulated.articulate(launch, model, state, mass), force, change)
    else:
        axes = stages.both_axes(launch, model, frames)
        mass = launch.scratch((launch.worlds, topology.packed_size(s.nv)), real, zeroed=True)
        mass_matrix_launch(launch, model, state, frames, axes, model.dof.armature, mass)
        whole, factor, inverse = _factors(launch, model, state, loads, (frames, axes[0]), mass)
        solve_implicit(launch, model, factor, inverse, cotangent, trial, transposed=True)
        team.shared(launch, k.dense.multiply_dense, [mass, trial], [pulled])
        if known is None:
            launch(k.dense.multiply_change, dim=launch.worlds, inputs=[mass, whole, damped], outputs=[force])
            factor = launch.scratch(mass.shape, real)
            team.shared(launch, k.dense.factor_dense, [s.nv, mass], [factor])
            team.shared(launch, k.dense.solve_dense, [factor, force], [change])
    launch(k.forces.subtract, dim=damped.shape, inputs=[damped, change], outputs=[qacc])
    return pulled


class Power(NamedTuple):
    """Parts of l2 . (M (a2 - a) + h D a2) without the bodies'; None for what the model does not have."""

    dof: Any
    armature: Any
    damping: damping.Power


class Slowed(NamedTuple):
    """What this power is computed from, each (world, nv)."""

    damped: Any  # a2
    trial: Any  # l2
    change: Any  # a2 - a


def damped_power(
    launch: Any,
    model: Model,
    state: State,
    loads: stages.Loads,
    motions: stages.Motions,
    ten: tendon.Tendons,
    given: Slowed,
    out: Power,
) -> None:
    """Launch the power; ``motions.slowed`` is J l2."""
    k = stages.modules(state.qpos)
    inputs = [model.dof.armature, given.change, given.trial]
    launch(k.forces.dof_product, dim=out.dof.shape, inputs=inputs, outputs=[out.dof])
    if out.armature is not None:
        armature_power(launch, model, ten, None, stages.Rates(given.change, given.trial), out.armature)
    linear = stages.frame_motion(launch, model, motions.axes, given.damped) if damping.fast(model) else None
    second = motions._replace(linear=linear, trial=motions.slowed)
    rates = stages.Rates(given.damped, given.trial)
    damping.damping_power(launch, model, state, loads, second, rates, out.damping)


def damped_parts(model: Model, state: State, loads: stages.Loads) -> Power:
    """What :func:`damped_power` writes."""
    s = model.structure
    return Power(stages.numbers(state, s.nv), stages.part(state, count(s)), damping.damping_parts(model, state, loads))


class Slowing(NamedTuple):
    """What the backward solve of :func:`damped_acceleration` finds, each (world, nv)."""

    pulled: Pulled
    cotangent: Any  # of a


def _slow(launch: Any, model: Model, state: State, loads: stages.Loads, qacc: Any, out: Any) -> None:
    frames = stages.frame_poses(launch, model, state)
    axes = stages.both_axes(launch, model, frames)
    size = (launch.worlds, topology.packed_size(model.structure.nv))
    mass = launch.scratch(size, stages.types(qacc).real, zeroed=True)
    mass_matrix_launch(launch, model, state, frames, axes, model.dof.armature, mass)
    damp(launch, model, state, loads, (frames, axes[0]), mass, qacc, out)


def _pull_slow(
    launch: Any, model: Model, state: State, loads: stages.Loads, qacc: Any, damped: Any, cotangent: Any, out: Slowing
) -> None:
    pulled = pull_damped(launch, model, state, loads, qacc, damped, cotangent, out.pulled)
    zero = launch.scratch(qacc.shape, stages.types(qacc).real, zeroed=True)
    launch(stages.modules(qacc).forces.add, dim=qacc.shape, inputs=[pulled, zero], outputs=[out.cotangent])


class _SlowPower(NamedTuple):
    """The power of :func:`damped_acceleration`."""

    body: Any
    rest: Power


def _slow_power(launch: Any, model: Model, state: State, loads: stages.Loads, slowed: Slowed, out: _SlowPower) -> None:
    rates = stages.Rates(slowed.change, slowed.trial)
    motions = power_motions(launch, model, state, rates, rates)
    lanes = team.lanes(launch, model.structure.nbody)
    inputs = [lanes, stages.masses(model), motions.frames, motions.linear, motions.trial]
    kernel = stages.modules(state.qpos).dynamics.body_inertia_power
    launch(kernel, dim=(launch.worlds, lanes), inputs=inputs, outputs=[out.body])
    ten = tendon.tendons(launch, model, state, motions.frames, motions.axes)
    damped_power(launch, model, state, loads, motions, ten, slowed, out.rest)


def _slow_power_shapes(model: Model, state: State, loads: stages.Loads, slowed: Slowed) -> _SlowPower:
    return _SlowPower(stages.numbers(state, model.structure.nbody), damped_parts(model, state, loads))


_slow_op = warp_op(_slow, lambda m, s, loads, qacc: qacc, differentiable=False, zeroed=False, name="damping")
_pull_slow_op = warp_op(
    _pull_slow,
    lambda m, s, loads, qacc, *_: Slowing(Pulled(qacc, qacc, qacc), qacc),
    differentiable=False,
    zeroed=False,
    name="damping's solve",
)
_slow_power_op = warp_op(_slow_power, _slow_power_shapes, name="damping's power")


@custom_vjp
def damped_acceleration(model: Model, state: State, loads: stages.Loads, qacc: Any) -> Any:
    """a2, from accelerations that another operation found; gradients flow to all arguments."""
    return _slow_op(model, state, loads, qacc)


def _slow_fwd(*primals: Any) -> Any:
    (model, state, loads, qacc), wanted = primal_values(primals)
    damped = damped_acceleration(model, state, loads, qacc)
    return damped, (model, state, loads, qacc, damped, wanted)


def _slow_bwd(saved: Any, cotangent: Any) -> Any:
    model, state, loads, qacc, damped, wanted = saved
    cotangent = dense(cotangent)
    found: Slowing = _pull_slow_op(model, state, loads, qacc, damped, cotangent)
    slowed = Slowed(damped, found.pulled.trial, found.pulled.change)
    wish = flags.load(wanted)[: len(jax.tree.leaves((model, state, loads)))]
    return (*power_gradient(_slow_power_op, (model, state, loads), (slowed,), wish, cotangent), found.cotangent)


damped_acceleration.defvjp(_slow_fwd, _slow_bwd, symbolic_zeros=True)
