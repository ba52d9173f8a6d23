"""Damping that the integrator treats implicitly: the matrix M + h D, and the power of h D a.

Euler: D is the joints' viscous damping. implicitfast: D is minus the derivative of all passive and
actuator forces with respect to velocity, symmetric, with the tree's sparsity.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..bridge import kernels
from ..model import Model, State
from ..model.structure import Integrator, JointType
from . import actuation as A
from . import launches as L
from . import tendon as T


def fast(model: Model) -> bool:
    """Whether all forces that depend on velocity are implicit."""
    return model.structure.integrator == Integrator.IMPLICITFAST


def implicit_matrix(
    launch: Any, model: Model, state: State, loads: L.Loads, frames: L.Frames, axes: Any, mass: Any
) -> Any:
    """M + h D, packed, (world, nv (nv + 1) / 2)."""
    s = model.structure
    k = L.modules(state.qpos)
    t = L.types(state.qpos)
    w, size = launch.worlds, (launch.worlds, L.packed_size(s.nv))
    matrix = launch.scratch(size, t.real)
    damper = L.switches(model)[1]
    inputs = [damper, model.dof.damping, model.opt.timestep, mass]
    launch(k.damping.add_joint_damping, dim=w, inputs=inputs, outputs=[matrix])
    if not fast(model):
        return matrix
    for pattern, entry, damping in _damped_rows(launch, model, state, loads, frames, axes):
        before, matrix = matrix, launch.scratch(size, t.real)
        launch(
            k.damping.add_row_damping,
            dim=w,
            inputs=[L.branches(model), pattern.adr, pattern.dof] + [model.opt.timestep, entry, damping, before],
            outputs=[matrix],
        )
    velocity = L.frame_motion(launch, model, state, axes, state.qvel)
    before, matrix = matrix, launch.scratch(size, t.real)
    body = L.body_arguments(model)
    launch(
        k.fluid.add_fluid_damping,
        dim=w,
        inputs=[*body[:2], L.last_dof(model), s.dof.parent, *body[2:]]
        + [model.opt.wind, model.opt.density, model.opt.viscosity, model.opt.timestep, *frames, velocity, axes, before],
        outputs=[matrix],
    )
    return matrix


def _damped_rows(
    launch: Any, model: Model, state: State, loads: L.Loads, frames: L.Frames, axes: Any
) -> list[tuple[L.Pattern, Any, Any]]:
    """Tendons that damp and actuators whose force varies with velocity: rows, entries, damping (world, row)."""
    s, found = model.structure, []
    ten = T.tendons(launch, model, state, frames, axes)
    if _damps(model, loads)[0]:
        found.append((T.pattern(s), ten.jacobian, model.tendon.damping))
    if _damps(model, loads)[1]:
        drive = A.drives(launch, model, state, loads.ctrl, frames, axes, ten)
        found.append((A.moments(s).pattern, drive.moment, A.damping(launch, model, drive)))
    return found


def _damps(model: Model, loads: L.Loads) -> tuple[bool, bool]:
    """Whether tendons and actuators damp."""
    s = model.structure
    varies = bool(s.actuator.gain.any() or s.actuator.bias.any())
    return s.ntendon > 0 and bool(L.switches(model)[1]), L.actuated(model, loads) and varies


def lone_bodies(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Free bodies without further dofs in their tree, and their first dofs."""
    s = model.structure
    tree = s.body.root[s.dof.body]
    body = [b for b in s.joint.body[s.joint.type == JointType.FREE] if np.sum(tree == s.body.root[b]) == 6]
    first = [int(np.flatnonzero(s.dof.body == b)[0]) for b in body]
    return np.array(body, np.int32), np.array(first, np.int32)


def gyroscopic(model: Model) -> bool:
    """Whether the gyroscopic forces of some bodies are implicit."""
    return fast(model) and lone_bodies(model)[0].size > 0


def _lone_arguments(model: Model, state: State, frames: L.Frames, axes: Any) -> list[Any]:
    """Arguments for lone bodies. Each is the root of its tree, so its own frame is the reference point."""
    body = [model.body.ipos, model.body.iquat, model.body.mass, model.body.inertia]
    return [*lone_bodies(model), model.structure.body.frame, *body, model.opt.timestep, frames.quat, state.qvel, axes]


def solve_implicit(
    launch: Any, model: Model, factor: Any, inverse: Any, force: Any, out: Any, *, transposed: bool = False
) -> None:
    """x = (M + h D)^-1 force from its factor and, for lone bodies, their inverses."""
    k = L.modules(force)
    if not gyroscopic(model):
        L.shared(launch, k.dense.solve_dense, [factor, force], [out])
        return
    g = kernels(force.dtype, "rigid.gyroscopic")
    others = launch.scratch((launch.worlds, model.structure.nv), g.real)
    L.shared(launch, k.dense.solve_dense, [factor, force], [others])
    inputs = [lone_bodies(model)[1], int(transposed), inverse, force, others]
    launch(g.solve_free, dim=launch.worlds, inputs=inputs, outputs=[out])


def lone_inverses(launch: Any, model: Model, state: State, frames: L.Frames, axes: Any, matrix: Any, out: Any) -> None:
    """Inverses of the lone bodies' blocks, (world, lone, 6, 6), if there are any."""
    if gyroscopic(model):
        g = kernels(state.qpos.dtype, "rigid.gyroscopic")
        dim = (launch.worlds, lone_bodies(model)[0].size)
        launch(g.free_inverses, dim=dim, inputs=[*_lone_arguments(model, state, frames, axes), matrix], outputs=[out])


def lone_shape(model: Model) -> tuple[int, ...]:
    return (lone_bodies(model)[0].size if gyroscopic(model) else 0, 6, 6)


def implicit_sizes(model: Model, loads: L.Loads) -> list[int]:
    """Sizes of the parts of the power of h D a: dofs, then bodies, tendons, actuators, lone bodies."""
    s = model.structure
    if not fast(model):
        return [s.nv]
    lone = lone_bodies(model)[0].size
    tendons, actuators = _damps(model, loads)
    sizes = [s.nv, s.nbody, s.ntendon * tendons, s.nu * actuators, lone]
    return [n for n in sizes if n]


def implicit_power(
    launch: Any,
    model: Model,
    state: State,
    loads: L.Loads,
    frames: L.Frames,
    axes: Any,
    motions: Sequence[Any],
    rates: Sequence[Any],
    outs: Sequence[Any],
) -> None:
    """l . h D a, in the parts of :func:`implicit_sizes`.

    Args:
        motions: of the frames, for the velocity, a and l.
        rates: a and l.
    """
    s = model.structure
    k = L.modules(state.qpos)
    w, parts = launch.worlds, iter(outs)
    damper = L.switches(model)[1]
    inputs = [damper, model.dof.damping, model.opt.timestep, *rates]
    launch(k.damping.damping_power, dim=(w, s.nv), inputs=inputs, outputs=[next(parts)])
    if not fast(model):
        return
    launch(
        k.fluid.body_fluid_damping_power,
        dim=(w, s.nbody),
        inputs=[*L.body_arguments(model), model.opt.wind, model.opt.density, model.opt.viscosity, model.opt.timestep]
        + [*frames, *motions],
        outputs=[next(parts)],
    )
    for pattern, entry, damping in _damped_rows(launch, model, state, loads, frames, axes):
        launch(
            k.damping.row_damping_power,
            dim=(w, pattern.adr.size - 1),
            inputs=[L.branches(model), pattern.adr, pattern.dof, model.opt.timestep, entry, damping, *rates],
            outputs=[next(parts)],
        )
    if gyroscopic(model):
        g = kernels(state.qpos.dtype, "rigid.gyroscopic")
        dim = (launch.worlds, lone_bodies(model)[0].size)
        inputs = [*_lone_arguments(model, state, frames, axes), *rates]
        launch(g.gyroscopic_power, dim=dim, inputs=inputs, outputs=[next(parts)])
