"""The launches that make up the rigid-body operations, one function per stage.

Each function takes ``launch`` (see :func:`fphys.bridge.warp_op`), symbolic arrays and the model, records
its kernel launches, and returns the arrays that they write. Operations compose them; their adjoints follow.
"""

from typing import Any, NamedTuple

import numpy as np

from ..bridge import kernels
from ..model import Model, State
from ..model.structure import Structure, memo

Buffer = Any


class Frames(NamedTuple):
    pos: Buffer  # (world, frame, 3)
    quat: Buffer  # (world, frame, 4)


class Loads(NamedTuple):
    """External loads on the mechanism; None is no load."""

    ctrl: Buffer | None  # (world, nu)
    wrench: Buffer | None  # (world, nbody, 6): force, torque at the centre of mass, world axes
    force: Buffer | None  # (world, nv)


class Rows(NamedTuple):
    """Rows of the constraint Jacobian, with a fixed range of rows for each family."""

    jacobian: Buffer  # (world, row, nv); in a sparse model (world, row, 1), the only entry of a joint's row
    weight: Buffer  # 1 / R, zero for a row that does not act, (world, row)
    reference: Buffer  # (world, row)
    bound: Buffer  # least and greatest value of minus its force, (world, row, 2)


class Setting(NamedTuple):
    """The common inputs of the solve and of the forces at given accelerations."""

    frames: Frames
    axes: Buffer
    contacts: Any  # collision.Contacts
    row: Buffer  # first row of each contact, (world, contact)
    rows: Rows


def lanes(launch: Any, count: int) -> int:
    """Number of threads that share ``count`` items of a world: one on a CPU, where a launch spends some 40 ns on each
    thread, even an idle one; on a GPU one per item."""
    return 1 if launch.platform == "cpu" else count


def shared(launch: Any, kernel: Any, inputs: list[Any], outputs: list[Any]) -> None:
    """Launch a kernel that gives each world to a team of threads: a warp on a GPU, one thread on a CPU."""
    team = 1 if launch.platform == "cpu" else 32
    launch(kernel, dim=(launch.worlds, team), inputs=[team, *inputs], outputs=outputs)


def columns(model: Model, dof: np.ndarray) -> np.ndarray:
    """The columns where the entries of dofs are in the rows of the constraint Jacobian."""
    return np.zeros_like(dof) if model.structure.sparse else dof


def packed_size(nv: int) -> int:
    """Number of entries in a packed lower triangle."""
    return nv * (nv + 1) // 2


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


def modules(like: Any) -> Kernels:
    """The kernel modules in the precision of an array."""
    return Kernels(*(kernels(like.dtype, f"rigid.{name}") for name in Kernels._fields))


def types(like: Any) -> Any:
    """Scalars, vectors and matrices in the precision of an array."""
    return kernels(like.dtype, "_precision")


def dof_origin(model: Model) -> np.ndarray:
    """The frame at whose origin each dof's motion is expressed: that of its tree's root body."""
    s = model.structure
    return s.body.frame[s.body.root[s.dof.body]]


def body_origin(model: Model) -> np.ndarray:
    """The frame of the root of each body's tree."""
    s = model.structure
    return s.body.frame[s.body.root]


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


def dof_axes(
    launch: Any, model: Model, state: State, frames: Frames, out: Buffer | None = None, own: bool = False
) -> Buffer:
    """The motion that each dof causes, (world, nv, 6), about its tree's origin, or with ``own`` about its body's."""
    s = model.structure
    k = modules(state.qpos)
    t = types(state.qpos)
    axes = out or launch.scratch((launch.worlds, s.nv), t.motion)
    launch(
        k.kinematics.dof_axes,
        dim=(launch.worlds, lanes(launch, s.nv)),
        inputs=[
            lanes(launch, s.nv),
            s.dof.joint,
            s.body.frame[s.dof.body] if own else dof_origin(model),
            s.joint.type,
            s.joint.dof,
            s.joint.frame,
            s.frame.parent,
        ]
        + [model.joint.pos, model.joint.axis, frames.pos, frames.quat],
        outputs=[axes],
    )
    return axes


def both_axes(launch: Any, model: Model, state: State, frames: Frames) -> tuple[Buffer, Buffer]:
    """The motion that each dof causes, about its tree's origin and about its body's."""
    return dof_axes(launch, model, state, frames), dof_axes(launch, model, state, frames, own=True)


def frame_motion(
    launch: Any, model: Model, state: State, axes: Buffer, rate: Buffer, out: Buffer | None = None
) -> Buffer:
    """The motion of every frame for given rates of the dofs, (world, frame, 6)."""
    s = model.structure
    k = modules(state.qpos)
    t = types(state.qpos)
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


def body_arguments(model: Model) -> list[Any]:
    """The first arguments of every kernel over bodies."""
    s = model.structure
    return [s.body.frame, body_origin(model), model.body.ipos, model.body.iquat, model.body.mass, model.body.inertia]


def medium_arguments(launch: Any, model: Model, state: State) -> list[Any]:
    """Gravity compensation, gravity, and the medium; like MuJoCo, without passive forces if springs and dampers are
    both disabled."""
    g = gravity(launch, model, state)
    if any(switches(model)):
        return [model.body.gravcomp, g, model.opt.wind, model.opt.density, model.opt.viscosity]
    real, w = types(state.qpos).real, launch.worlds
    none = [launch.scratch(shape, real, zeroed=True) for shape in ((w, model.structure.nbody), (w,), (w,))]
    return [none[0], g, model.opt.wind, *none[1:]]


def applied_wrench(launch: Any, model: Model, state: State, loads: Loads) -> Buffer:
    if loads.wrench is not None:
        return loads.wrench
    return launch.scratch((launch.worlds, model.structure.nbody), types(state.qpos).vec6, zeroed=True)


def applied_force(launch: Any, model: Model, state: State, loads: Loads) -> Buffer:
    if loads.force is not None:
        return loads.force
    return launch.scratch((launch.worlds, model.structure.nv), types(state.qpos).real, zeroed=True)


def refsafe(model: Model) -> int:
    """Whether constraints are kept from being stiffer than the time step allows."""
    return int("refsafe" not in model.structure.disabled)


def switches(model: Model) -> list[int]:
    """Whether springs and dampers act."""
    return [int("spring" not in model.structure.disabled), int("damper" not in model.structure.disabled)]


class Tendons(NamedTuple):
    """Lengths and velocities of tendons, (world, ntendon)."""

    length: Buffer
    velocity: Buffer


def actuated(model: Model, loads: Loads) -> bool:
    return model.structure.nu > 0 and loads.ctrl is not None and "actuation" not in model.structure.disabled


def last_dof(model: Model) -> np.ndarray:
    """The outermost dof that moves each body, or -1."""
    s = model.structure
    out = np.full(s.nbody, -1, np.int32)
    for b in range(1, s.nbody):
        own = np.flatnonzero(s.dof.body == b)
        out[b] = own[-1] if own.size else out[s.body.parent[b]]
    return out


def branches(model: Model) -> np.ndarray:
    """Whether two dofs lie on one branch of the tree, (nv, nv)."""
    s = model.structure
    out = np.eye(s.nv, dtype=np.int32)
    for d in range(s.nv):
        j = s.dof.parent[d]
        while j >= 0:
            out[d, j] = out[j, d] = 1
            j = s.dof.parent[j]
    return out


@memo
def ancestry(structure: Structure) -> np.ndarray:
    """Which dofs move which bodies, int, (nbody, nv)."""
    out = np.zeros((structure.nbody, structure.nv), np.int32)
    for b in range(1, structure.nbody):
        out[b] = out[structure.body.parent[b]]
        out[b, structure.dof.body == b] = 1
    return out


class Pattern(NamedTuple):
    """Sparsity pattern, row by row, of a matrix with one column per dof."""

    adr: np.ndarray  # (row + 1,) entries of row r are adr[r]:adr[r + 1]
    row: np.ndarray  # (entry,)
    dof: np.ndarray  # (entry,)


def make_pattern(mask: np.ndarray) -> Pattern:
    """The pattern of a boolean matrix, (row, nv)."""
    row, dof = np.nonzero(mask)
    adr = np.concatenate([[0], np.cumsum(mask.astype(bool).sum(1))])
    return Pattern(*(x.astype(np.int32) for x in (adr, row, dof)))


def row_products(launch: Any, pattern: Pattern, entry: Buffer, rate: Buffer) -> Buffer:
    """Rows times rates of the dofs, (world, row)."""
    count = pattern.adr.size - 1
    out = launch.scratch((launch.worlds, count), types(rate).real)
    if count:
        inputs = [pattern.adr, pattern.dof, entry, rate]
        launch(modules(rate).tendon.row_products, dim=(launch.worlds, count), inputs=inputs, outputs=[out])
    return out


def dense_rows(launch: Any, pattern: Pattern, entry: Buffer, out: Buffer) -> None:
    """Write the entries into a matrix of zeros, (world, row, nv)."""
    if pattern.row.size:
        inputs = [pattern.row, pattern.dof, entry]
        launch(modules(entry).tendon.dense_rows, dim=(launch.worlds, pattern.row.size), inputs=inputs, outputs=[out])
