"""The stages that the rigid-body operations have in common, one function each.

Each function takes ``launch`` (see :func:`fphys.bridge.warp_op`), symbolic arrays and the model, records
its kernel launches, and returns the arrays that they write. Operations compose them; the bridge derives the adjoints.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from ..bridge import kernels
from ..model import Model, State
from . import team
from .tree import topology

Buffer = Any


class Frames(NamedTuple):
    """Poses of all frames."""

    pos: Buffer  # (world, frame, 3)
    quat: Buffer  # (world, frame, 4)


class Loads(NamedTuple):
    """External loads on the mechanism; None is no load."""

    ctrl: Buffer | None  # (world, nu)
    wrench: Buffer | None  # (world, nbody, 6): force, torque at the centre of mass, world axes
    force: Buffer | None  # (world, nv)


class Rows(NamedTuple):
    """Rows of the constraint Jacobian, with a fixed range of rows for each family."""

    jacobian: Buffer  # (world, row, nv); in a sparse model (world, row, width), see solve/links.py
    weight: Buffer  # 1 / R, zero for a row that does not act, (world, row)
    reference: Buffer  # (world, row)
    bound: Buffer  # lower and upper bound of minus its force, (world, row, 2)


class Motions(NamedTuple):
    """Poses of the frames and their motions, each (world, frame, 6); the optional ones are None where not needed."""

    frames: Frames
    axes: Buffer  # the motion that each dof causes, (world, nv, 6)
    velocity: Buffer
    linear: Buffer | None = None  # J a
    acceleration: Buffer | None = None  # J a + J' v - g
    trial: Buffer | None = None  # J l
    slowed: Buffer | None = None  # J l2, if the integrator damps


class Rates(NamedTuple):
    """Accelerations and the trial direction of the dofs, (world, nv), or of the tendons, (world, ntendon)."""

    acceleration: Buffer
    trial: Buffer


class Kernels(NamedTuple):
    """The kernel modules of smooth dynamics, in one precision."""

    kinematics: Any
    dynamics: Any
    dense: Any
    forces: Any
    tendon: Any
    activation: Any
    actuation: Any
    transmission: Any
    damping: Any
    fluid: Any


_MODULES = Kernels(
    kinematics="rigid.tree.kinematics",
    dynamics="rigid.tree.dynamics",
    dense="rigid.dense",
    forces="rigid.forces.forces",
    tendon="rigid.forces.tendon",
    activation="rigid.forces.activation",
    actuation="rigid.forces.actuation",
    transmission="rigid.forces.transmission",
    damping="rigid.forces.damping",
    fluid="rigid.forces.fluid",
)


def modules(like: Any) -> Kernels:
    """The kernel modules in the precision of an array."""
    return Kernels(*(kernels(like.dtype, name) for name in _MODULES))


def types(like: Any) -> Any:
    """Scalars, vectors and matrices in the precision of an array."""
    return kernels(like.dtype, "_precision")


def frame_poses(launch: Any, model: Model, state: State, out: Frames | None = None) -> Frames:
    """Pose of every frame."""
    s = model.structure
    k = modules(state.qpos)
    t = types(state.qpos)
    shape = (launch.worlds, s.frame.parent.size)
    frames = out or Frames(launch.scratch(shape, t.vec3), launch.scratch(shape, t.quat))
    launch(
        k.kinematics.frame_poses,
        dim=launch.worlds,
        inputs=[s.frame.parent, s.frame.body, s.frame.joint, s.joint.type, s.joint.qpos, s.body.mocap]
        + [model.body.pos, model.body.quat, model.joint.pos, model.joint.axis, model.qpos0]
        + [state.qpos, state.mocap_pos, state.mocap_quat],
        outputs=list(frames),
    )
    return frames


def dof_axes(launch: Any, model: Model, frames: Frames, out: Buffer | None = None, own: bool = False) -> Buffer:
    """The motion that each dof causes, (world, nv, 6), about its tree's origin, or with ``own`` about its body's."""
    s = model.structure
    k = modules(frames.pos)
    t = types(frames.pos)
    axes = out or launch.scratch((launch.worlds, s.nv), t.motion)
    launch(
        k.kinematics.dof_axes,
        dim=(launch.worlds, team.lanes(launch, s.nv)),
        inputs=[
            team.lanes(launch, s.nv),
            s.dof.joint,
            s.body.frame[s.dof.body] if own else topology.dof_origin(model),
            s.joint.type,
            s.joint.dof,
            s.joint.frame,
            s.frame.parent,
        ]
        + [model.joint.pos, model.joint.axis, frames.pos, frames.quat],
        outputs=[axes],
    )
    return axes


def both_axes(launch: Any, model: Model, frames: Frames) -> tuple[Buffer, Buffer]:
    """The motion that each dof causes, about its tree's origin and about its body's."""
    return dof_axes(launch, model, frames), dof_axes(launch, model, frames, own=True)


def frame_motion(launch: Any, model: Model, axes: Buffer, rate: Buffer, out: Buffer | None = None) -> Buffer:
    """The motion of every frame for given rates of the dofs, (world, frame, 6)."""
    s = model.structure
    k = modules(rate)
    t = types(rate)
    motion = out or launch.scratch((launch.worlds, s.frame.parent.size), t.motion)
    launch(
        k.kinematics.frame_motion,
        dim=launch.worlds,
        inputs=[s.frame.parent, s.frame.joint, s.joint.type, s.joint.dof, axes, rate],
        outputs=[motion],
    )
    return motion


def frame_acceleration(
    launch: Any, model: Model, state: State, gravity: Buffer, axes: Buffer, velocity: Buffer, linear: Buffer
) -> Buffer:
    """Acceleration of every frame: the part that is linear in the dofs' accelerations, plus the rest."""
    s = model.structure
    k = modules(state.qpos)
    t = types(state.qpos)
    shape = (launch.worlds, s.frame.parent.size)
    bias, acceleration = launch.scratch(shape, t.motion), launch.scratch(shape, t.motion)
    launch(
        k.kinematics.frame_acceleration,
        dim=launch.worlds,
        inputs=[s.frame.parent, s.frame.joint, s.joint.type, s.joint.dof]
        + [gravity, axes, state.qvel, velocity, linear],
        outputs=[bias, acceleration],
    )
    return acceleration


def gravity(launch: Any, model: Model, state: State) -> Buffer:
    """Gravity, or zeros if the model disables it."""
    if "gravity" in model.structure.disabled:
        return launch.scratch((launch.worlds,), types(state.qpos).vec3, zeroed=True)
    return model.opt.gravity


class Masses(NamedTuple):
    """Mass and inertia of all bodies, as kernels take them."""

    frame: Any
    origin: Any
    ipos: Buffer
    iquat: Buffer
    mass: Buffer
    inertia: Buffer


def masses(model: Model) -> Masses:
    """Mass and inertia of all bodies."""
    own = model.body
    return Masses(model.structure.body.frame, topology.body_origin(model), own.ipos, own.iquat, own.mass, own.inertia)


def medium(launch: Any, model: Model, state: State) -> dict[str, Any]:
    """Gravity compensation, gravity, and the medium. Like in MuJoCo, compensation, density and viscosity are zero if
    springs and dampers are both disabled."""
    g, opt, real, w = gravity(launch, model, state), model.opt, types(state.qpos).real, launch.worlds
    if any(switches(model)):
        gravcomp, density, viscosity = model.body.gravcomp, opt.density, opt.viscosity
    else:
        shapes = ((w, model.structure.nbody), (w,), (w,))
        gravcomp, density, viscosity = (launch.scratch(shape, real, zeroed=True) for shape in shapes)
    s = model.structure
    boxed = np.ones(s.nbody, np.int32)
    boxed[s.geom.body[s.geom.fluid]] = 0
    medium = {"wind": opt.wind, "density": density, "viscosity": viscosity, "boxed": boxed}
    return {"gravcomp": gravcomp, "gravity": g, **medium}


def applied_wrench(launch: Any, model: Model, state: State, loads: Loads) -> Buffer:
    if loads.wrench is not None:
        return loads.wrench
    return launch.scratch((launch.worlds, model.structure.nbody), types(state.qpos).vec6, zeroed=True)


def applied_force(launch: Any, model: Model, state: State, loads: Loads) -> Buffer:
    if loads.force is not None:
        return loads.force
    return launch.scratch((launch.worlds, model.structure.nv), types(state.qpos).real, zeroed=True)


def refsafe(model: Model) -> int:
    """Whether the stiffness of constraints is limited to what the time step allows."""
    return int("refsafe" not in model.structure.disabled)


def soft(model: Model, solref: Any, solimp: Any) -> dict[str, Any]:
    """How soft constraints of one kind are, as kernels take it."""
    return {"solref": solref, "solimp": solimp, "timestep": model.opt.timestep, "refsafe": refsafe(model)}


def numbers(state: State, count: int, *inner: int) -> Any:
    """An output of one number, or an array of shape ``inner``, for each of ``count`` items."""
    return jax.ShapeDtypeStruct((state.qpos.shape[0], count, *inner), state.qpos.dtype)


def part(state: State, count: int) -> Any:
    """The same for what a model may lack: None if there are no items."""
    return numbers(state, count) if count else None


def switches(model: Model) -> list[int]:
    """Whether springs and dampers act."""
    return [int("spring" not in model.structure.disabled), int("damper" not in model.structure.disabled)]


def actuated(model: Model, loads: Loads) -> bool:
    return model.structure.nu > 0 and loads.ctrl is not None and "actuation" not in model.structure.disabled


def row_products(launch: Any, pattern: topology.Pattern, entry: Buffer, rate: Buffer) -> Buffer:
    """Rows times rates of the dofs, (world, row)."""
    count = pattern.adr.size - 1
    out = launch.scratch((launch.worlds, count), types(rate).real)
    if count:
        inputs = [pattern.adr, pattern.dof, entry, rate]
        launch(modules(rate).tendon.row_products, dim=(launch.worlds, count), inputs=inputs, outputs=[out])
    return out


def dense_rows(launch: Any, pattern: topology.Pattern, entry: Buffer, out: Buffer) -> None:
    """Write the entries into a matrix of zeros, (world, row, nv)."""
    if pattern.row.size:
        inputs = [pattern.row, pattern.dof, entry]
        launch(modules(entry).tendon.dense_rows, dim=(launch.worlds, pattern.row.size), inputs=inputs, outputs=[out])
