"""Damping that the integrator treats implicitly: the matrix M + h D, and the power of h D a.

Euler: D is the joints' viscous damping. implicitfast: D is minus the derivative by velocity of all
passive and actuator forces, symmetric, and sparse as the tree is.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..bridge import kernels
from ..model import Model, State
from ..model.structure import Integrator, JointType
from . import launches as L


def _fast(model: Model) -> bool:
    return model.structure.integrator == Integrator.IMPLICITFAST


def _coupled(model: Model, loads: L.Loads) -> bool:
    """Whether tendons or actuators damp."""
    return _fast(model) and (model.structure.ntendon > 0 or L.actuated(model, loads))


def _drives(launch: Any, model: Model, state: State, loads: L.Loads) -> list[Any]:
    return list(L.drives(launch, model, state, loads.ctrl, L.tendons(launch, model, state)))


def _tendon_arguments(model: Model) -> list[Any]:
    s = model.structure
    return [L.branches(model), s.tendon.adr, s.joint.dof[s.tendon.joint]]


def _transmission_arguments(model: Model) -> list[Any]:
    s = model.structure
    return [s.actuator.transmission, s.actuator.target, s.joint.type, s.joint.qpos, s.joint.dof]


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
    inputs = [s.dof.parent, damper, model.dof.damping, model.opt.timestep, mass]
    launch(k.damping.add_joint_damping, dim=w, inputs=inputs, outputs=[matrix])
    if not _fast(model):
        return matrix
    if _coupled(model, loads):
        slope = launch.scratch((w, s.nu if L.actuated(model, loads) else 0), t.real)
        if L.actuated(model, loads):
            force = launch.scratch((w, s.nu), t.real)
            drives = _drives(launch, model, state, loads)
            launch(
                k.actuation.actuator_forces,
                dim=(w, s.nu),
                inputs=[*L.force_arguments(model), *drives],
                outputs=[force, slope],
            )
        before, matrix = matrix, launch.scratch(size, t.real)
        launch(
            k.damping.add_implicit_damping,
            dim=w,
            inputs=[s.dof.parent, *_tendon_arguments(model), *_transmission_arguments(model), damper]
            + [
                model.opt.timestep,
                model.tendon.coef,
                model.tendon.damping,
                model.actuator.gear,
                state.qpos,
                slope,
                before,
            ],
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


def lone_bodies(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Free bodies without further dofs in their tree, and their first dofs."""
    s = model.structure
    tree = s.body.root[s.dof.body]
    body = [b for b in s.joint.body[s.joint.type == JointType.FREE] if np.sum(tree == s.body.root[b]) == 6]
    first = [int(np.flatnonzero(s.dof.body == b)[0]) for b in body]
    return np.array(body, np.int32), np.array(first, np.int32)


def gyroscopic(model: Model) -> bool:
    """Whether some bodies' gyroscopic forces are implicit."""
    return _fast(model) and lone_bodies(model)[0].size > 0


def _lone_arguments(model: Model, state: State, frames: L.Frames, axes: Any) -> list[Any]:
    """Each lone body is the root of its tree, so its own frame is the reference point."""
    body = [model.body.ipos, model.body.iquat, model.body.mass, model.body.inertia]
    return [*lone_bodies(model), model.structure.body.frame, *body, model.opt.timestep, frames.quat, state.qvel, axes]


def solve_implicit(
    launch: Any, model: Model, factor: Any, inverse: Any, force: Any, out: Any, *, transposed: bool = False
) -> None:
    """x = (M + h D)^-1 force from the tree's factor and, where there are lone bodies, their inverses."""
    k = L.modules(force)
    parent = model.structure.dof.parent
    if not gyroscopic(model):
        launch(k.dynamics.solve, dim=launch.worlds, inputs=[parent, factor, force], outputs=[out])
        return
    g = kernels(force.dtype, "rigid.gyroscopic")
    others = launch.scratch((launch.worlds, model.structure.nv), g.real)
    launch(k.dynamics.solve, dim=launch.worlds, inputs=[parent, factor, force], outputs=[others])
    inputs = [lone_bodies(model)[1], int(transposed), inverse, force, others]
    launch(g.solve_free, dim=launch.worlds, inputs=inputs, outputs=[out])


def lone_inverses(launch: Any, model: Model, state: State, frames: L.Frames, axes: Any, matrix: Any, out: Any) -> None:
    """Inverses of the lone bodies' blocks, (world, lone, 6, 6), where there are any."""
    if gyroscopic(model):
        g = kernels(state.qpos.dtype, "rigid.gyroscopic")
        dim = (launch.worlds, lone_bodies(model)[0].size)
        launch(g.free_inverses, dim=dim, inputs=[*_lone_arguments(model, state, frames, axes), matrix], outputs=[out])


def lone_shape(model: Model) -> tuple[int, ...]:
    return (lone_bodies(model)[0].size if gyroscopic(model) else 0, 6, 6)


def implicit_sizes(model: Model, loads: L.Loads) -> list[int]:
    """Parts of the power of h D a: dofs, then bodies, tendons, actuators, lone bodies."""
    s = model.structure
    if not _fast(model):
        return [s.nv]
    lone = lone_bodies(model)[0].size
    sizes = [s.nv, s.nbody, s.ntendon, s.nu * L.actuated(model, loads), lone]
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
    if not _fast(model):
        return
    launch(
        k.fluid.body_fluid_damping_power,
        dim=(w, s.nbody),
        inputs=[*L.body_arguments(model), model.opt.wind, model.opt.density, model.opt.viscosity, model.opt.timestep]
        + [*frames, *motions],
        outputs=[next(parts)],
    )
    if s.ntendon:
        inputs = [
            *_tendon_arguments(model),
            damper,
            model.opt.timestep,
            model.tendon.coef,
            model.tendon.damping,
            *rates,
        ]
        launch(k.damping.tendon_damping_power, dim=(w, s.ntendon), inputs=inputs, outputs=[next(parts)])
    if L.actuated(model, loads):
        discrete, continuous = L.force_arguments(model)[:3], L.force_arguments(model)[3:]
        launch(
            k.damping.actuator_damping_power,
            dim=(w, s.nu),
            inputs=[*_tendon_arguments(model), *_transmission_arguments(model), *discrete]
            + [model.opt.timestep, model.tendon.coef, model.actuator.gear, *continuous, state.qpos]
            + [*_drives(launch, model, state, loads), *rates],
            outputs=[next(parts)],
        )
    if gyroscopic(model):
        g = kernels(state.qpos.dtype, "rigid.gyroscopic")
        dim = (w, lone_bodies(model)[0].size)
        inputs = [*_lone_arguments(model, state, frames, axes), *rates]
        launch(g.gyroscopic_power, dim=dim, inputs=inputs, outputs=[next(parts)])
