"""Smooth dynamics: M(q) a + b(q, v) = tau(q, v, u) + J^T f, forward, inverse, and their derivatives.

Every derivative comes from one scalar, the virtual power P(l) = l . (M a + b - tau): for an
acceleration that solves r(a; q, v, u, theta) = 0, the cotangent of any input x is -(dP/dx) at the
l that solves M l = cotangent of a. Nothing that factorises or iterates is differentiated.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from ..bridge import WarpOp, custom_vjp, kernels, warp_op
from ..implicit import dense, flags, power_gradient, primal_values
from ..model import Model, State
from . import stages, team
from .forces import actuation, damping, ellipsoid, gravcomp, tendon
from .forces.armature import add_force, add_inertia, armature_power, count, drifts
from .forces.damping import implicit_matrix, lone_inverses, lone_shape, solve_implicit, solve_sparse
from .tree import articulated, topology

Array = jax.Array


class Found(NamedTuple):
    """What the solves of a world found: a backward pass needs only this and the arguments.

    Arrays have the world axis first; None marks what the solve does not have, or what follows from the rest.
    """

    qacc: Any = None  # accelerations [m/s^2 or rad/s^2], (world, nv)
    damped: Any = None  # after the integrator's implicit damping, (world, nv)
    factor: Any = None  # of the matrix that was solved with
    pair: Any = None  # the contact set, each (world, contact)
    feature: Any = None


def _shape(state: State, *rest: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((state.qpos.shape[0], *rest), state.qpos.dtype)


# --- forward ------------------------------------------------------------------------------------


def mass_matrix_launch(
    launch: Any, model: Model, state: State, frames: stages.Frames, axes: tuple[Any, Any], armature: Any, out: Any
) -> None:
    """Launch the mass matrix; ``axes``: of the dofs about their trees' origins and about their bodies'."""
    s = model.structure
    k = stages.modules(state.qpos)
    t = stages.types(state.qpos)
    w = launch.worlds
    composite = [launch.scratch((w, s.nbody), kind) for kind in (t.real, t.vec3, t.mat33)]
    matrix = launch.scratch((w, topology.packed_size(s.nv)), t.real) if count(s) else out
    launch(
        k.dynamics.composite_inertia,
        dim=w,
        inputs=[s.body.parent, s.dof.body, s.dof.parent, stages.masses(model), armature, frames, axes[1]],
        outputs=[*composite, matrix],
    )
    if count(s):
        add_inertia(launch, model, state, frames, axes[0], matrix, out)


def frame_accelerations(launch: Any, model: Model, state: State, axes: Any, velocity: Any, qacc: Any = None) -> Any:
    """Acceleration of every frame, gravity as an upward acceleration; without ``qacc``, as if no dof accelerated."""
    if qacc is None:
        qacc = launch.scratch((launch.worlds, model.structure.nv), stages.types(state.qpos).real, zeroed=True)
    linear = stages.frame_motion(launch, model, axes, qacc)
    gravity = stages.gravity(launch, model, state)
    return stages.frame_acceleration(launch, model, state, gravity, axes, velocity, linear)


def bias_force(
    launch: Any,
    model: Model,
    state: State,
    frames: stages.Frames,
    axes: tuple[Any, Any],
    wrench: Any,
    qacc: Any,
    out: Any,
) -> None:
    """Generalised force of inertia, gravity, medium and applied wrenches (without joints' armature); ``axes`` as for
    the mass matrix."""
    s = model.structure
    k = stages.modules(state.qpos)
    t = stages.types(state.qpos)
    w = launch.worlds
    velocity = stages.frame_motion(launch, model, axes[0], state.qvel)
    acceleration = frame_accelerations(launch, model, state, axes[0], velocity, qacc)
    load, total = launch.scratch((w, s.nbody), t.wrench), launch.scratch((w, s.nbody), t.wrench)
    launch(
        k.dynamics.body_loads,
        dim=(w, team.lanes(launch, s.nbody)),
        inputs=[team.lanes(launch, s.nbody), stages.masses(model), stages.medium(launch, model, state), wrench]
        + [frames, velocity, acceleration],
        outputs=[load],
    )
    load = ellipsoid.add_loads(launch, model, state, frames, velocity, load)
    force = launch.scratch((w, s.nv), t.real) if count(s) else out
    inputs = [s.body.parent, s.body.frame, s.dof.body, frames.pos, axes[1], load]
    launch(k.dynamics.project_loads, dim=w, inputs=inputs, outputs=[total, force])
    if count(s):
        add_force(launch, model, state, (frames, axes[0]), velocity, qacc, force, out)


def applied_force(
    launch: Any, model: Model, state: State, loads: stages.Loads, frames: stages.Frames, axes: Any
) -> Any:
    """Generalised force of joints, tendons and actuators, plus the applied force, less weights of the bodies' loads
    that actuators carry."""
    s = model.structure
    k = stages.modules(state.qpos)
    t = stages.types(state.qpos)
    w = launch.worlds
    force = launch.scratch((w, s.nv), t.real)
    launch(
        k.forces.joint_forces,
        dim=(w, team.lanes(launch, s.njnt)),
        inputs=[team.lanes(launch, s.njnt), s.joint.type, s.joint.qpos, s.joint.dof, *stages.switches(model)]
        + [model.joint.stiffness, model.qpos_spring, model.dof.damping]
        + [state.qpos, state.qvel, stages.applied_force(launch, model, state, loads)],
        outputs=[force],
    )
    ten = tendon.tendons(launch, model, state, frames, axes)
    if s.ntendon:
        before, force = force, launch.scratch((w, s.nv), t.real)
        launch(
            k.tendon.add_tendon_forces,
            dim=w,
            inputs=[tendon.pattern(s).adr, tendon.pattern(s).dof, *stages.switches(model)]
            + [model.tendon.stiffness, model.tendon.damping, model.tendon.lengthspring, *ten, before],
            outputs=[force],
        )
    if stages.actuated(model, loads):
        drive = actuation.joint_drives(
            launch, model, actuation.drives(launch, model, state, loads.ctrl, frames, axes, ten)
        )
        before, force = force, launch.scratch((w, s.nv), t.real)
        launch(k.forces.add, dim=(w, s.nv), inputs=[before, drive], outputs=[force])
    return gravcomp.subtract(launch, model, state, frames, axes, force)


def _smooth(
    launch: Any,
    model: Model,
    state: State,
    loads: stages.Loads,
    qacc: Any,
    factor: Any = None,
    inverse: Any = None,
    *,
    implicit: bool,
) -> None:
    s = model.structure
    k = stages.modules(state.qpos)
    t = stages.types(state.qpos)
    w = launch.worlds
    frames = stages.frame_poses(launch, model, state)
    axes, own = stages.both_axes(launch, model, frames)
    bias, net = (launch.scratch((w, s.nv), t.real) for _ in range(2))
    zero = launch.scratch((w, s.nv), t.real, zeroed=True)
    bias_force(
        launch, model, state, frames, (axes, own), stages.applied_wrench(launch, model, state, loads), zero, bias
    )
    force = applied_force(launch, model, state, loads, frames, axes)
    launch(k.forces.subtract, dim=(w, s.nv), inputs=[force, bias], outputs=[net])
    if s.sparse:
        _solve_sparse(launch, model, state, loads, frames, net, qacc, implicit=implicit)
        return
    matrix = launch.scratch((w, topology.packed_size(s.nv)), t.real, zeroed=True)
    mass_matrix_launch(launch, model, state, frames, (axes, own), model.dof.armature, matrix)
    if implicit:
        matrix = implicit_matrix(launch, model, state, loads, frames, axes, matrix)
    team.shared(launch, k.dense.factor_dense, [s.nv, matrix], [factor])
    if implicit:
        lone_inverses(launch, model, state, frames, axes, matrix, inverse)
        solve_implicit(launch, model, factor, inverse, net, qacc)
    else:
        team.shared(launch, k.dense.solve_dense, [factor, net], [qacc])


def _solve_sparse(
    launch: Any,
    model: Model,
    state: State,
    loads: stages.Loads,
    frames: stages.Frames,
    force: Any,
    out: Any,
    *,
    implicit: bool,
    transposed: bool = False,
) -> None:
    if implicit:
        solve_sparse(launch, model, state, loads, frames, force, out, transposed=transposed)
        return
    mass = articulated.inertias(launch, model, state, frames, implicit=False)
    articulated.solve(launch, model, articulated.articulate(launch, model, state, mass), force, out)


# --- backward -----------------------------------------------------------------------------------


class Power(NamedTuple):
    """Parts of the virtual power l . (M a + b - tau), one number for each item; None where there are none."""

    body: Any
    geom: Any
    joint: Any
    tendon: Any
    armature: Any  # of tendons
    weight: Any  # that actuators carry
    actuator: Any
    damping: damping.Power | None  # of an acceleration whose damping is implicit


def smooth_power(
    launch: Any,
    model: Model,
    state: State,
    loads: stages.Loads,
    rates: stages.Rates,
    out: Power,
    slowed: stages.Rates | None = None,
) -> tuple[stages.Motions, tendon.Tendons]:
    """Virtual power of everything but constraints, and the motions and tendons that it is computed from.

    ``slowed``: a2 - a and l2 (``damped.py``), which add a second power to the bodies' part.
    """
    s = model.structure
    k = stages.modules(state.qpos)
    motions = power_motions(launch, model, state, rates, slowed)
    frames, axes = motions.frames, motions.axes
    body_power(launch, model, state, loads, motions, slowed, out.body)
    if out.geom is not None:
        ellipsoid.power(launch, model, state, motions, out.geom)
    lanes = team.lanes(launch, s.njnt)
    launch(
        k.forces.joint_power,
        dim=(launch.worlds, lanes),
        inputs=[lanes, s.joint.type, s.joint.qpos, s.joint.dof, *stages.switches(model)]
        + [model.joint.stiffness, model.qpos_spring, model.dof.damping, model.dof.armature]
        + [state.qpos, state.qvel, stages.applied_force(launch, model, state, loads), *rates],
        outputs=[out.joint],
    )
    ten = tendon.tendons(launch, model, state, frames, axes)
    if out.tendon is not None:
        launch(
            k.tendon.tendon_power,
            dim=out.tendon.shape,
            inputs=[*stages.switches(model), model.tendon.stiffness, model.tendon.damping, model.tendon.lengthspring]
            + [ten.length, ten.velocity, tendon.rates(launch, model, ten, rates.trial)],
            outputs=[out.tendon],
        )
    if out.armature is not None:
        drift = drifts(launch, model, state, frames, axes, motions.velocity)
        armature_power(launch, model, ten, drift, rates, out.armature)
    if out.weight is not None:
        gravcomp.power(launch, model, state, frames, axes, rates.trial, out.weight)
    if out.actuator is not None:
        drive = actuation.drives(launch, model, state, loads.ctrl, frames, axes, ten)
        actuation.drive_power(launch, model, drive, rates.trial, out.actuator)
    if out.damping is not None:
        damping.damping_power(launch, model, state, loads, motions, rates, out.damping)
    return motions, ten


def power_motions(
    launch: Any, model: Model, state: State, rates: stages.Rates, slowed: stages.Rates | None
) -> stages.Motions:
    """Poses, and all motions that the power is computed from."""
    frames = stages.frame_poses(launch, model, state)
    axes = stages.dof_axes(launch, model, frames)
    velocity, linear, trial = (stages.frame_motion(launch, model, axes, rate) for rate in (state.qvel, *rates))
    gravity = stages.gravity(launch, model, state)
    acceleration = stages.frame_acceleration(launch, model, state, gravity, axes, velocity, linear)
    second = stages.frame_motion(launch, model, axes, slowed.trial) if slowed else None
    return stages.Motions(frames, axes, velocity, linear, acceleration, trial, second)


def body_power(
    launch: Any,
    model: Model,
    state: State,
    loads: stages.Loads,
    motions: stages.Motions,
    slowed: stages.Rates | None,
    out: Any,
) -> None:
    """Virtual power of the bodies' inertia, weight, medium and applied wrenches."""
    lanes = team.lanes(launch, model.structure.nbody)
    second = [motions.linear, motions.trial]  # not read
    if slowed:
        change = stages.frame_motion(launch, model, motions.axes, slowed.acceleration)
        second = [change, motions.slowed]
    launch(
        stages.modules(state.qpos).dynamics.body_power,
        dim=(launch.worlds, lanes),
        inputs=[lanes, int(bool(slowed)), stages.masses(model), stages.medium(launch, model, state)]
        + [stages.applied_wrench(launch, model, state, loads), motions.frames]
        + [motions.velocity, motions.acceleration, motions.trial, *second],
        outputs=[out],
    )


def _power(
    launch: Any, model: Model, state: State, loads: stages.Loads, qacc: Any, trial: Any, out: Power, *, implicit: bool
) -> None:
    smooth_power(launch, model, state, loads, stages.Rates(qacc, trial), out)


def smooth_parts(model: Model, state: State, loads: stages.Loads, *_: Any, implicit: bool) -> Power:
    """What :func:`smooth_power` writes; ``implicit``: with the power of implicit damping."""
    s = model.structure
    return Power(
        body=stages.numbers(state, s.nbody),
        geom=stages.part(state, ellipsoid.count(s)),
        joint=stages.numbers(state, s.njnt),
        tendon=stages.part(state, s.ntendon),
        armature=stages.part(state, count(s)),
        weight=stages.part(state, gravcomp.count(s)),
        actuator=stages.part(state, s.nv * stages.actuated(model, loads)),
        damping=damping.damping_parts(model, state, loads) if implicit else None,
    )


def _required(launch: Any, model: Model, state: State, loads: stages.Loads, qacc: Any, out: Any) -> None:
    """M a + b - tau."""
    s = model.structure
    k = stages.modules(state.qpos)
    t = stages.types(state.qpos)
    w = launch.worlds
    frames = stages.frame_poses(launch, model, state)
    axes, own = stages.both_axes(launch, model, frames)
    bias = launch.scratch((w, s.nv), t.real)
    bias_force(
        launch, model, state, frames, (axes, own), stages.applied_wrench(launch, model, state, loads), qacc, bias
    )
    force = applied_force(launch, model, state, loads, frames, axes)
    launch(k.forces.missing_force, dim=(w, s.nv), inputs=[model.dof.armature, bias, qacc, force], outputs=[out])


_required_force = warp_op(_required, lambda m, s, loads, qacc: qacc, differentiable=False, zeroed=False, name="inverse")


def required_force(model: Model, state: State, loads: stages.Loads, qacc: Array) -> Array:
    """M a + b - tau, shape (world, nv): the missing force for the accelerations; it has no gradients of its own."""
    return _required_force(model, state, loads, qacc)


def _packed(launch: Any, model: Model, state: State, out: Any) -> None:
    frames = stages.frame_poses(launch, model, state)
    axes = stages.both_axes(launch, model, frames)
    mass_matrix_launch(launch, model, state, frames, axes, model.dof.armature, out)


_packed_matrix = warp_op(
    _packed,
    lambda m, state: _shape(state, topology.packed_size(m.structure.nv)),
    differentiable=False,
    name="mass matrix",
)


def packed_matrix(model: Model, state: State) -> Array:
    """The mass matrix as a packed lower triangle, shape (world, nv (nv + 1) / 2); it has no gradients of its own."""
    return _packed_matrix(model, state)


def _back_solve(
    launch: Any,
    model: Model,
    state: State,
    loads: stages.Loads,
    factors: Sequence[Any],
    cotangent: Any,
    out: Any,
    *,
    implicit: bool,
) -> None:
    if model.structure.sparse:
        frames = stages.frame_poses(launch, model, state)
        _solve_sparse(launch, model, state, loads, frames, cotangent, out, implicit=implicit, transposed=True)
    elif implicit:
        factor, inverse = factors
        solve_implicit(launch, model, factor, inverse, cotangent, out, transposed=True)
    else:
        d = kernels(cotangent.dtype, "rigid.dense")
        team.shared(launch, d.solve_dense, [factors[0], cotangent], [out])


class _Operations(NamedTuple):
    forward: WarpOp  # to accelerations and factors
    backward: WarpOp  # factors and cotangent to the trial direction
    power: WarpOp


@functools.cache
def _ops(implicit: bool) -> _Operations:
    part = functools.partial

    def shapes(model: Model, state: State, loads: stages.Loads) -> Any:
        nv, sparse = model.structure.nv, model.structure.sparse
        factors = [_shape(state, topology.packed_size(nv))] + [_shape(state, *lone_shape(model))] * implicit
        return (_shape(state, nv), *([] if sparse else factors))

    def like(model: Model, state: State, loads: stages.Loads, factors: Any, cotangent: Any) -> Any:
        return cotangent

    return _Operations(
        warp_op(part(_smooth, implicit=implicit), shapes, differentiable=False, zeroed=False, name="acceleration"),
        warp_op(
            part(_back_solve, implicit=implicit), like, differentiable=False, zeroed=False, name="acceleration's solve"
        ),
        warp_op(part(_power, implicit=implicit), part(smooth_parts, implicit=implicit), name="acceleration's power"),
    )


def power_operation(*, implicit: bool) -> WarpOp:
    """The operation whose adjoint is the gradient of every implicit solve."""
    return _ops(implicit).power


@functools.partial(custom_vjp, nondiff_argnums=(0,))
def _acceleration(implicit: bool, model: Model, state: State, loads: stages.Loads, known: Found | None) -> Found:
    if known is not None:
        return known
    qacc, *factors = jax.tree.leaves(_ops(implicit).forward(model, state, loads))
    return Found(qacc, factor=factors)


def _acceleration_fwd(implicit: bool, *primals: Any) -> Any:
    (model, state, loads, known), wanted = primal_values(primals)
    found = _acceleration(implicit, model, state, loads, known)
    return found, (model, state, loads, found, wanted)


def _acceleration_bwd(implicit: bool, saved: Any, cotangents: Found) -> Any:
    model, state, loads, found, wanted = saved
    cotangent = dense(cotangents.qacc)
    wish = flags.load(wanted)[: len(jax.tree.leaves((model, state, loads)))]
    trial = _ops(implicit).backward(model, state, loads, found.factor, cotangent)
    grads = power_gradient(_ops(implicit).power, (model, state, loads), (found.qacc, trial), wish, cotangent)
    return (*grads, None)


_acceleration.defvjp(_acceleration_fwd, _acceleration_bwd, symbolic_zeros=True)


def smooth_acceleration(
    model: Model, state: State, loads: stages.Loads, known: Found | None = None, *, implicit: bool = False
) -> Found:
    """Acceleration without constraints: M a = tau - b, or with implicit damping (M + h D) a = tau - b.

    Args:
        known: what the solve found, if that is already known.

    Returns:
        Found, with qacc [m/s^2 or rad/s^2] of shape (world, nv). Gradients flow from it to every continuous leaf of the
        model, and to state and loads.
    """
    return _acceleration(implicit, model, state, loads, known)
