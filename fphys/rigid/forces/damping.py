"""Damping that the integrator treats implicitly: the matrix M + h D, and the power of h D a.

Euler: D is the joints' viscous damping. implicitfast: D is minus the derivative of all passive and
actuator forces with respect to velocity, symmetric, with the tree's sparsity.
"""

from typing import Any, NamedTuple

import numpy as np

from ...bridge import kernels
from ...model import Model, State
from ...model.structure import Integrator, JointType
from .. import stages, team
from ..tree import articulated, topology
from . import actuation, ellipsoid, tendon


def fast(model: Model) -> bool:
    """Whether all forces that depend on velocity are implicit."""
    return model.structure.integrator == Integrator.IMPLICITFAST


def implicit_matrix(
    launch: Any, model: Model, state: State, loads: stages.Loads, frames: stages.Frames, axes: Any, mass: Any
) -> Any:
    """M + h D, packed, (world, nv (nv + 1) / 2)."""
    s = model.structure
    k = stages.modules(state.qpos)
    t = stages.types(state.qpos)
    w, size = launch.worlds, (launch.worlds, topology.packed_size(s.nv))
    matrix = launch.scratch(size, t.real)
    damper = stages.switches(model)[1]
    inputs = [damper, model.dof.damping, model.opt.timestep, mass]
    launch(k.damping.add_joint_damping, dim=w, inputs=inputs, outputs=[matrix])
    if not fast(model):
        return matrix
    for pattern, entry, damping in _damped_rows(launch, model, state, loads, frames, axes):
        before, matrix = matrix, launch.scratch(size, t.real)
        launch(
            k.damping.add_row_damping,
            dim=w,
            inputs=[topology.branches(model), pattern.adr, pattern.dof] + [model.opt.timestep, entry, damping, before],
            outputs=[matrix],
        )
    velocity = stages.frame_motion(launch, model, axes, state.qvel)
    before, matrix = matrix, launch.scratch(size, t.real)
    launch(
        k.fluid.add_fluid_damping,
        dim=w,
        inputs=[topology.last_dof(model), s.dof.parent, stages.masses(model), stages.medium(launch, model, state)]
        + [model.opt.timestep, frames, velocity, axes, before],
        outputs=[matrix],
    )
    return ellipsoid.add_damping(launch, model, state, frames, velocity, axes, matrix)


def _damped_rows(
    launch: Any, model: Model, state: State, loads: stages.Loads, frames: stages.Frames, axes: Any
) -> list[tuple[topology.Pattern, Any, Any]]:
    """Tendons that damp and actuators whose force varies with velocity: rows, entries, damping (world, row)."""
    s, found = model.structure, []
    ten = tendon.tendons(launch, model, state, frames, axes)
    if _damps(model, loads)[0]:
        found.append((tendon.pattern(s), ten.jacobian, model.tendon.damping))
    if _damps(model, loads)[1]:
        drive = actuation.drives(launch, model, state, loads.ctrl, frames, axes, ten)
        found.append((actuation.moments(s).pattern, drive.moment, actuation.damping(launch, model, drive)))
    return found


def _damps(model: Model, loads: stages.Loads) -> tuple[bool, bool]:
    """Whether tendons and actuators damp."""
    s = model.structure
    varies = bool(s.actuator.gain.any() or s.actuator.bias.any())
    return s.ntendon > 0 and bool(stages.switches(model)[1]), stages.actuated(model, loads) and varies


def lone_bodies(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Free bodies without further dofs in their tree, and their first dofs."""
    s = model.structure
    free = s.joint.type == JointType.FREE
    body, dofs = s.joint.body[free], np.bincount(s.body.root[s.dof.body], minlength=s.nbody)
    alone = dofs[s.body.root[body]] == 6
    return body[alone], s.joint.dof[free][alone]


def gyroscopic(model: Model) -> bool:
    """Whether the gyroscopic forces of some bodies are implicit."""
    return fast(model) and lone_bodies(model)[0].size > 0


def _lone_arguments(model: Model, state: State, frames: stages.Frames, axes: Any) -> list[Any]:
    """Arguments for lone bodies. Each is the root of its tree, so its own frame is the reference point."""
    body = [model.body.ipos, model.body.iquat, model.body.mass, model.body.inertia]
    return [*lone_bodies(model), model.structure.body.frame, *body, model.opt.timestep, frames.quat, state.qvel, axes]


def solve_implicit(
    launch: Any, model: Model, factor: Any, inverse: Any, force: Any, out: Any, *, transposed: bool = False
) -> None:
    """x = (M + h D)^-1 force from its factor and, for lone bodies, their inverses."""
    k = stages.modules(force)
    if not gyroscopic(model):
        team.shared(launch, k.dense.solve_dense, [factor, force], [out])
        return
    g = kernels(force.dtype, "rigid.tree.gyroscopic")
    others = launch.scratch((launch.worlds, model.structure.nv), g.real)
    team.shared(launch, k.dense.solve_dense, [factor, force], [others])
    inputs = [lone_bodies(model)[1], int(transposed), inverse, force, others]
    launch(g.solve_free, dim=launch.worlds, inputs=inputs, outputs=[out])


def lone_inverses(
    launch: Any, model: Model, state: State, frames: stages.Frames, axes: Any, matrix: Any, out: Any
) -> None:
    """Inverses of the lone bodies' blocks of a packed matrix or of inertias, (world, lone, 6, 6), if there are any."""
    if gyroscopic(model):
        g = kernels(state.qpos.dtype, "rigid.tree.gyroscopic")
        (body, dof), t = lone_bodies(model), stages.types(state.qpos)
        dim = (launch.worlds, body.size)
        block = launch.scratch(dim, t.mat66)
        if isinstance(matrix, articulated.Inertias):
            launch(g.inertia_blocks, dim=dim, inputs=[body, dof, axes, matrix], outputs=[block])
        else:
            launch(g.packed_blocks, dim=dim, inputs=[dof, matrix], outputs=[block])
        twist = ellipsoid.lone_twists(launch, model, state, lone_bodies(model), (frames, axes))
        inputs = [*_lone_arguments(model, state, frames, axes), block, twist]
        launch(g.free_inverses, dim=dim, inputs=inputs, outputs=[out])


def implicit_inertias(
    launch: Any, model: Model, state: State, loads: stages.Loads, frames: stages.Frames
) -> articulated.Inertias:
    """M + h D of a sparse model, without what lone bodies have beside: what damps acts on bodies and single dofs."""
    found = articulated.inertias(launch, model, state, frames, implicit=True)
    if not fast(model):
        return found
    k, t = stages.modules(state.qpos), stages.types(state.qpos)
    axes = stages.dof_axes(launch, model, frames)
    velocity = stages.frame_motion(launch, model, axes, state.qvel)
    blocks = [launch.scratch((launch.worlds, model.structure.nbody), t.mat33) for _ in range(3)]
    inputs = [stages.masses(model), stages.medium(launch, model, state), model.opt.timestep, frames, velocity]
    inputs += [found.turn, found.mixed, found.shift]
    launch(k.fluid.add_fluid_inertia, dim=(launch.worlds, model.structure.nbody), inputs=inputs, outputs=blocks)
    diagonal = found.diagonal
    for pattern, entry, damping in _damped_rows(launch, model, state, loads, frames, axes):
        before, diagonal = diagonal, launch.scratch(diagonal.shape, t.real)
        inputs = [pattern.adr, pattern.dof, model.opt.timestep, entry, damping, before]
        launch(k.damping.add_dof_damping, dim=launch.worlds, inputs=inputs, outputs=[diagonal])
    return articulated.Inertias(found.axis, diagonal, found.offset, *blocks)


def solve_sparse(
    launch: Any,
    model: Model,
    state: State,
    loads: stages.Loads,
    frames: stages.Frames,
    force: Any,
    out: Any,
    *,
    transposed: bool = False,
) -> None:
    """out = (M + h D)^-1 force in a sparse model."""
    mass = implicit_inertias(launch, model, state, loads, frames)
    others = launch.scratch(force.shape, stages.types(force).real) if gyroscopic(model) else out
    articulated.solve(launch, model, articulated.articulate(launch, model, state, mass), force, others)
    if gyroscopic(model):
        g = kernels(force.dtype, "rigid.tree.gyroscopic")
        inverse = launch.scratch((launch.worlds, lone_shape(model)[0]), stages.types(force).mat66)
        lone_inverses(launch, model, state, frames, mass.axis, mass, inverse)
        inputs = [lone_bodies(model)[1], int(transposed), inverse, force, others]
        launch(g.solve_free, dim=launch.worlds, inputs=inputs, outputs=[out])


def lone_shape(model: Model) -> tuple[int, ...]:
    return (lone_bodies(model)[0].size if gyroscopic(model) else 0, 6, 6)


class Power(NamedTuple):
    """Parts of l . h D a, one number for each item; None where there are none."""

    dof: Any
    body: Any = None
    geom: Any = None
    tendon: Any = None
    actuator: Any = None
    lone: Any = None


def damping_parts(model: Model, state: State, loads: stages.Loads) -> Power:
    """What :func:`damping_power` writes."""
    s = model.structure
    if not fast(model):
        return Power(stages.numbers(state, s.nv))
    tendons, actuators = _damps(model, loads)
    others = (ellipsoid.count(s), s.ntendon * tendons, s.nu * actuators, lone_bodies(model)[0].size)
    return Power(stages.numbers(state, s.nv), stages.numbers(state, s.nbody), *(stages.part(state, n) for n in others))


def damping_power(
    launch: Any,
    model: Model,
    state: State,
    loads: stages.Loads,
    motions: stages.Motions,
    rates: stages.Rates,
    out: Power,
) -> None:
    """l . h D a; ``motions``: velocity, J a and J l."""
    s, frames, axes = model.structure, motions.frames, motions.axes
    k = stages.modules(state.qpos)
    damper = stages.switches(model)[1]
    inputs = [damper, model.dof.damping, model.opt.timestep, *rates]
    launch(k.damping.damping_power, dim=out.dof.shape, inputs=inputs, outputs=[out.dof])
    if not fast(model):
        return
    launch(
        k.fluid.body_fluid_damping_power,
        dim=(launch.worlds, s.nbody),
        inputs=[stages.masses(model), stages.medium(launch, model, state), model.opt.timestep]
        + [frames, motions.velocity, motions.linear, motions.trial],
        outputs=[out.body],
    )
    if out.geom is not None:
        ellipsoid.damping_power(launch, model, state, lone_bodies(model)[0], motions, out.geom)
    parts = [part for part in (out.tendon, out.actuator) if part is not None]
    found = _damped_rows(launch, model, state, loads, frames, axes)
    for (pattern, entry, damping), part in zip(found, parts, strict=True):
        launch(
            k.damping.row_damping_power,
            dim=part.shape,
            inputs=[topology.branches(model), pattern.adr, pattern.dof, model.opt.timestep, entry, damping, *rates],
            outputs=[part],
        )
    if out.lone is not None:
        g = kernels(state.qpos.dtype, "rigid.tree.gyroscopic")
        inputs = [*_lone_arguments(model, state, frames, axes), *rates]
        launch(g.gyroscopic_power, dim=out.lone.shape, inputs=inputs, outputs=[out.lone])
