"""The integrator's own solve: velocities are moved by accelerations that damping has already reduced.

(M + h D) a2 = M a. With l2 the solution of (M + h D)^T l2 = cotangent of a2, the cotangent of a is M l2 and that of
any other input x is -(dP/dx) of P = l2 . (M (a2 - a) + h D a2) at fixed a, a2. These are launches within the
operations of the constrained solve, which has poses, axes and M.

For the backward pass a2 is stored; then M (a2 - a) = -h D a2 gives a.
"""

from typing import Any

from ..model import Model, State
from . import articulated as AB
from . import launches as L
from .armature import armature_power, count
from .damping import (
    fast,
    gyroscopic,
    implicit_matrix,
    implicit_power,
    implicit_sizes,
    lone_inverses,
    lone_shape,
    solve_implicit,
)
from .dynamics import PowerParts, mass_matrix_launch


def _factors(
    launch: Any, model: Model, state: State, loads: L.Loads, poses: tuple[L.Frames, Any], mass: Any
) -> tuple[Any, Any, Any]:
    """M + h D, its factor, and the inverses of the blocks that it does not cover."""
    t = L.types(state.qpos)
    damped = implicit_matrix(launch, model, state, loads, *poses, mass)
    factor = launch.scratch(mass.shape, t.real)
    inputs = [model.structure.nv, damped]
    L.shared(launch, L.modules(state.qpos).dense.factor_dense, inputs, [factor])
    inverse = launch.scratch((launch.worlds, lone_shape(model)[0]), t.mat66)
    lone_inverses(launch, model, state, *poses, damped, inverse)
    return damped, factor, inverse


def damp(
    launch: Any, model: Model, state: State, loads: L.Loads, poses: tuple[L.Frames, Any], mass: Any, qacc: Any, out: Any
) -> None:
    """Launch the solve, given poses, axes and M."""
    _, factor, inverse = _factors(launch, model, state, loads, poses, mass)
    force = launch.scratch(qacc.shape, L.types(qacc).real)
    L.shared(launch, L.modules(qacc).dense.multiply_dense, [mass, qacc], [force])
    solve_implicit(launch, model, factor, inverse, force, out)


def damp_sparse(
    launch: Any, model: Model, state: State, frames: L.Frames, mass: AB.Inertias, qacc: Any, out: Any
) -> None:
    """The same for mechanisms where M is applied rather than stored."""
    force = launch.scratch(qacc.shape, L.types(qacc).real)
    AB.multiply(launch, model, mass, qacc, force)
    AB.solve(launch, model, _articulated(launch, model, state, frames), force, out)


def _articulated(launch: Any, model: Model, state: State, frames: L.Frames) -> Any:
    """M + h D, ready for solves."""
    return AB.articulate(launch, model, state, AB.inertias(launch, model, state, frames, implicit=True))


def invertible(model: Model) -> bool:
    """Whether a follows from a2: the stored M + h D lacks the gyroscopic forces of lone bodies."""
    return not gyroscopic(model)


def pull(
    launch: Any, model: Model, state: State, loads: L.Loads, solved: tuple[Any, Any], cotangent: Any, outs: Any
) -> Any:
    """Launch the backward solve: the cotangent of a. ``solved``: a or None, and a2; ``outs``: l2, a2 - a and a."""
    known, damped = solved
    trial, change, qacc = outs
    s, real = model.structure, L.types(state.qpos).real
    k = L.modules(state.qpos)
    pulled, force = (launch.scratch(damped.shape, real) for _ in range(2))
    if known is not None:
        launch(k.forces.subtract, dim=damped.shape, inputs=[damped, known], outputs=[change])
    frames = L.frame_poses(launch, model, state)
    if s.sparse:
        mass = AB.inertias(launch, model, state, frames, implicit=False)
        AB.solve(launch, model, _articulated(launch, model, state, frames), cotangent, trial)
        AB.multiply(launch, model, mass, trial, pulled)
        inputs = [L.switches(model)[1], model.dof.damping, model.opt.timestep, damped]
        launch(k.damping.damping_force, dim=damped.shape, inputs=inputs, outputs=[force])
        AB.solve(launch, model, AB.articulate(launch, model, state, mass), force, change)
    else:
        axes = L.both_axes(launch, model, state, frames)
        mass = launch.scratch((launch.worlds, L.packed_size(s.nv)), real, zeroed=True)
        mass_matrix_launch(launch, model, state, frames, axes, model.dof.armature, mass)
        whole, factor, inverse = _factors(launch, model, state, loads, (frames, axes[0]), mass)
        solve_implicit(launch, model, factor, inverse, cotangent, trial, transposed=True)
        L.shared(launch, k.dense.multiply_dense, [mass, trial], [pulled])
        if known is None:
            launch(k.dense.multiply_change, dim=launch.worlds, inputs=[mass, whole, damped], outputs=[force])
            factor = launch.scratch(mass.shape, real)
            L.shared(launch, k.dense.factor_dense, [s.nv, mass], [factor])
            L.shared(launch, k.dense.solve_dense, [factor, force], [change])
    launch(k.forces.subtract, dim=damped.shape, inputs=[damped, change], outputs=[qacc])
    return pulled


def power(
    launch: Any, model: Model, state: State, loads: L.Loads, parts: PowerParts, given: tuple[Any, Any, Any], outs: Any
) -> None:
    """Launch l2 . (M (a2 - a) + h D a2) without the bodies' part, split as in :func:`power_sizes`; ``given``: a2, l2
    and a2 - a."""
    s, (damped, trial, change) = model.structure, given
    dofs, *damping = outs
    k = L.modules(state.qpos)
    dim = (launch.worlds, s.nv)
    launch(k.forces.dof_product, dim=dim, inputs=[model.dof.armature, change, trial], outputs=[dofs])
    if count(s):
        armature_power(launch, model, parts.tendons, None, (change, trial), damping.pop(0))
    linear = L.frame_motion(launch, model, state, parts.axes, damped) if fast(model) else None
    motions = (parts.velocity, linear, parts.slowed)
    implicit_power(launch, model, state, loads, parts.frames, parts.axes, motions, (damped, trial), damping)


def power_sizes(model: Model, loads: L.Loads) -> list[int]:
    """Sizes of the parts of the power: dofs, and everything that damps."""
    s = model.structure
    return [s.nv, *([count(s)] if count(s) else []), *implicit_sizes(model, loads)]
