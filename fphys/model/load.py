"""Models from MJCF, URDF and MuJoCo, and back: the only file of the framework's core that imports mujoco."""

import contextlib
import copy
import dataclasses
import importlib
import logging
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..errors import ModelError, UnsupportedError
from . import urdf, usd
from .arguments import expect
from .assets import located
from .guard import Document, admit
from .hulls import read_hulls
from .memory import NO_MEMORY, with_less
from .meshes import read_meshes
from .model import Model
from .pairs import apart, contact_pairs, is_sparse, reach
from .sensors import read_cameras, read_sensors
from .source import held, leaf_values, read_field
from .state import State
from .structure import (
    Actuators,
    BodyTree,
    Dofs,
    Equalities,
    Frames,
    Frictions,
    Geoms,
    GeomType,
    Integrator,
    Joints,
    JointType,
    Limits,
    Sites,
    Structure,
    Tendons,
)
from .tractable import require_tractable
from .validate import (
    disable_flags,
    disabled_by,
    read_otherwise,
    require_finite,
    require_physical,
    require_supported,
)
from .whitelist import GROUPS, LEAVES

_DERIVED = (
    "body.invweight0",
    "dof.invweight0",
    "tendon.invweight0",
    "tendon.length0",
    "actuator.acc0",
    "equality.data",
    "opt.meaninertia",
    "geom.fluid",
)
_SITE = 6  # mjOBJ_SITE
_AROUND = (4, 5)  # mjWRAP_SPHERE, mjWRAP_CYLINDER
_KINDS = ("body", "joint", "geom", "site", "tendon", "actuator", "key", "sensor", "camera")


def load(
    source: Any,
    disable: Iterable[str] = (),
    root: str | Path | None = None,
    dtype: Any = None,
    mend: bool = False,
) -> Model:
    """Load a mechanism from MJCF, URDF or USD.

    Args:
        source: path of a file, XML text, a ``mujoco.MjModel`` or a ``mujoco.MjSpec``; the last two are copied. USD
            files end in .usd, .usda, .usdc or .usdz. Or the name of a model that comes with fphys: "cartpole".
        disable: constraints to leave out: any of "contact", "limit", "equality", "frictionloss".
        root: folder that the model's meshes, includes and layers may lie in, besides the folder of the file itself and
            the ROS package that it is in. "auto" is the nearest folder above the file that holds all of them, but
            neither your home nor a folder above it: pass it if you trust the model. Without it, text opens no files.
        dtype: float32 or float64; by default float64 if JAX's x64 is on.
        mend: give bodies of a URDF that have no mass, or an inertia that no solid has, small ones that they can have,
            with a warning that names each. Without it, such a body is refused.

    Returns:
        The model, every leaf with a leading world axis of size 1.

    Raises:
        ModelError: the file is malformed, names files outside ``root``, or is not physical.
        UnsupportedError: it uses features that are not simulated; the error names every such element.
        MissingDependencyError: the file is USD, and usd-core is not installed.
    """
    real, source = _dtype(dtype), located(source)
    flags = disable_flags(disable)
    m, label = _compile(source, root, mend)
    m.opt.disableflags |= flags
    disabled = disabled_by(m.opt.disableflags)
    require_finite(m, label)
    require_physical(m, label)
    require_tractable(m, disabled, label)
    require_supported(m, disabled, label)
    for change in read_otherwise(m, disabled):
        warnings.warn(f"{label}: {change}", UserWarning, stacklevel=2)
    return _model(m, _structure(m, disabled), real)


def read_spec(source: Any = None, root: str | Path | None = None) -> Any:
    """A ``mujoco.MjSpec`` to compose a model from, for :func:`load`: from MJCF, URDF or USD, by default empty.

    Args:
        source: path of a file, XML text, or a ``mujoco.MjSpec``, which is copied; None for an empty one.
        root: as in :func:`load`.

    Raises:
        ModelError: as :func:`load`; a compiled ``MjModel`` cannot be decompiled.
    """
    mujoco = _mujoco()
    if source is None:
        return mujoco.MjSpec()
    if isinstance(source, mujoco.MjSpec):
        return source.copy()
    if not isinstance(source, str | Path):
        raise ModelError(f"source is {type(source).__name__}: it must be a path, XML text or an MjSpec")
    if usd.is_usd(source):
        with _logged_warnings():
            return usd.read(mujoco.MjSpec, source, root)
    document = admit(source, root)
    try:
        with _logged_warnings():
            if document.path is None:
                return mujoco.MjSpec.from_string(document.xml.decode())
            path = _main(document.path)
            return mujoco.MjSpec.from_file(path, include={path: document.xml})
    except Exception as error:
        raise ModelError(_where(document, str(error).strip())) from error


def to_mujoco(model: Model, state: State, world: int = 0) -> tuple[Any, Any]:
    """One world as a MuJoCo model and data, after ``mj_forward``: for viewers, and for comparison.

    Args:
        model: its leaves go into a copy of the compiled model that it was loaded from.
        state: positions, velocities, activations, time, mocap poses and warm start go into the data.
        world: which world.

    Returns:
        ``(mujoco.MjModel, mujoco.MjData)``, independent of ``model`` and ``state``.

    Raises:
        ValueError: there is no such world. TypeError: not a model or not a state.
    """
    expect(model, state)
    mujoco = _mujoco()
    worlds = state.qpos.shape[0]
    if not 0 <= world < worlds:
        raise ValueError(f"world is {world}, the state has {worlds}: choose 0 to {worlds - 1}")
    m = copy.copy(model.structure.source)
    changed = {path for path in LEAVES if _write(m, model, path, world)}
    if changed:
        _follow(m, changed)
        mujoco.mj_setConst(m, mujoco.MjData(m))
        for path in _DERIVED:
            _write(m, model, path, world)
    d = mujoco.MjData(m)
    for name in ("qpos", "qvel", "act", "mocap_pos", "mocap_quat"):
        getattr(d, name)[:] = np.asarray(getattr(state, name))[world]
    d.time = float(np.asarray(state.time)[world])
    d.qacc_warmstart[:] = np.asarray(state.warmstart)[world]
    mujoco.mj_forward(m, d)
    d.qacc_warmstart[:] = np.asarray(state.warmstart)[world]
    return m, d


def _mujoco() -> Any:
    return importlib.import_module("mujoco")


def _dtype(dtype: Any) -> np.dtype:
    x64 = jax.dtypes.canonicalize_dtype(np.float64) == np.float64
    real = np.dtype(dtype if dtype is not None else np.float64 if x64 else np.float32)
    if real not in (np.float32, np.float64):
        raise ModelError(f"dtype is {real}: a model is float32 or float64")
    if real == np.float64 and not x64:
        raise ModelError(
            'dtype is float64, but JAX\'s x64 is off: call jax.config.update("jax_enable_x64", True) first, or set the '
            "environment variable JAX_ENABLE_X64=1"
        )
    return real


def _compile(source: Any, root: str | Path | None, mend: bool) -> tuple[Any, str]:
    """The compiled model, our own copy, and its name in errors."""
    with _logged_warnings():
        return _compile_quietly(source, root, mend)


def _compile_quietly(source: Any, root: str | Path | None, mend: bool) -> tuple[Any, str]:
    mujoco = _mujoco()
    if isinstance(source, mujoco.MjModel):
        return copy.copy(source), "MjModel"
    label = str(source) if usd.is_usd(source) else "MjSpec"
    if usd.is_usd(source):
        source = usd.read(mujoco.MjSpec, source, root)
    if isinstance(source, mujoco.MjSpec):
        try:
            return source.copy().compile(), label
        except Exception as error:
            if NO_MEMORY in str(error):
                return with_less(source.copy(), label), label
            raise ModelError(f"{label}: {str(error).strip()}") from error
    if not isinstance(source, str | Path):
        raise ModelError(f"source is {type(source).__name__}: it must be a path, XML text, an MjModel or an MjSpec")
    document = admit(source, root)
    try:
        if document.path is None:
            return mujoco.MjModel.from_xml_string(document.xml.decode()), document.label
        path = _main(document.path)
        return mujoco.MjModel.from_xml_path(path, {path: document.xml}), document.label
    except Exception as error:
        path = _main(document.path or Path("text"))

        def read(xml: bytes) -> Any:
            return mujoco.MjSpec.from_file(path, include={path: xml})

        why = _where(document, str(error).strip())
        if not urdf.is_urdf(document.xml):
            if NO_MEMORY in why:
                return with_less(read(document.xml), document.label), document.label
            raise ModelError(why) from error
        folder = document.path and document.path.parent
        return urdf.compiled(read, document.xml, folder, document.label, why, mend), document.label


def _main(path: Path) -> bytes:
    """The name under which MuJoCo is given a document: of no other file, which it would take for included already."""
    return os.fsencode(path.with_name(f".{path.name}.xml"))  # a name need not be Unicode


@contextlib.contextmanager
def _logged_warnings() -> Iterator[None]:
    """Send MuJoCo's warnings to Python's log rather than to MUJOCO_LOG.TXT in the working folder."""
    mujoco = _mujoco()
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(logging.getLogger(__name__).warning)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _where(document: Document, message: str) -> str:
    """MuJoCo's message with the file, and the line if it gives one."""
    line = re.search(r"line(?: number)?[ =]([1-9]\d*)", message, re.IGNORECASE)
    return f"{document.label}:{line[1]}: {message}" if line else f"{document.label}: {message}"


def _model(m: Any, structure: Structure, real: np.dtype) -> Model:
    def leaf(path: str) -> np.ndarray:
        values = _at_rest(m)[None] if path == "tendon.follows" else leaf_values(m, path)
        return np.array(values, real)  # a copy: JAX would alias MuJoCo's memory

    groups: dict[str, Any] = {
        g: cls(**{f.name: leaf(f"{g}.{f.name}") for f in dataclasses.fields(cls)}) for g, (cls, _) in GROUPS.items()
    }
    groups |= {name: leaf(name) for name in ("qpos0", "qpos_spring")}
    return jax.device_put(Model(**groups, structure=structure))  # jnp.asarray would compile a program for each shape


def _structure(m: Any, disabled: frozenset[str]) -> Structure:
    def ints(values: Any) -> np.ndarray:
        return np.array(values, np.int32)

    def flags(values: Any) -> np.ndarray:
        return np.array(values, bool)

    frames, last, after = _frames(m)
    pair, dim, index = contact_pairs(m, disabled)
    counts = ("nq", "nv", "nu", "na", "nbody", "njnt", "ngeom", "nsite", "ntendon", "nmocap", "nkey")
    return Structure(
        dims={name: int(getattr(m, name)) for name in counts},
        body=BodyTree(
            parent=ints(m.body_parentid),
            root=ints(m.body_rootid),
            mocap=ints(m.body_mocapid),
            frame=last,
            weld=ints(m.body_weldid),
        ),
        frame=frames,
        joint=Joints(
            type=ints(m.jnt_type),
            qpos=ints(m.jnt_qposadr),
            dof=ints(m.jnt_dofadr),
            body=ints(m.jnt_bodyid),
            frame=after,
            actfrclimited=flags(m.jnt_actfrclimited),
            actgravcomp=flags(m.jnt_actgravcomp),
        ),
        dof=Dofs(
            joint=ints(m.dof_jntid), body=ints(m.dof_bodyid), parent=ints(m.dof_parentid), frame=after[m.dof_jntid]
        ),
        geom=Geoms(
            type=ints(m.geom_type),
            body=ints(m.geom_bodyid),
            condim=ints(m.geom_condim),
            priority=ints(m.geom_priority),
            pair=pair,
            pair_condim=dim,
            reach=reach(m, disabled),
            apart=apart(m),
            named=index,
            fluid=ints(np.flatnonzero(m.geom_fluid[:, 0] > 0)),
            grid=_grids(m),
        ),
        hull=read_hulls(m, disabled),
        mesh=read_meshes(m),
        limit=_limits(m, "limit" in disabled),
        friction=Frictions(
            dof=ints(np.flatnonzero(m.dof_frictionloss != 0) if "frictionloss" not in disabled else []),
            tendon=ints(np.flatnonzero(m.tendon_frictionloss > 0) if "frictionloss" not in disabled else []),
        ),
        equality=_equalities(m, "equality" in disabled),
        site=Sites(body=ints(m.site_bodyid)),
        tendon=Tendons(
            adr=ints([*m.tendon_adr, m.nwrap]),
            kind=ints(m.wrap_type),
            object=ints(m.wrap_objid),
            side=ints(np.where(np.isin(m.wrap_type, _AROUND), m.wrap_prm, -1).round()),
            actfrclimited=flags(m.tendon_actfrclimited),
            heavy=flags(m.tendon_armature),
        ),
        actuator=Actuators(
            transmission=ints(m.actuator_trntype),
            target=ints(m.actuator_trnid[:, 0]),
            reference=ints(m.actuator_trnid[:, 1]),
            dynamics=ints(m.actuator_dyntype),
            gain=ints(m.actuator_gaintype),
            bias=ints(m.actuator_biastype),
            act=ints(m.actuator_actadr),
            ctrllimited=flags(m.actuator_ctrllimited),
            forcelimited=flags(m.actuator_forcelimited),
            actlimited=flags(m.actuator_actlimited),
            actearly=flags(m.actuator_actearly),
        ),
        sensor=read_sensors(m),
        camera=read_cameras(m),
        integrator=Integrator(m.opt.integrator),
        cone=int(m.opt.cone),
        sparse=is_sparse(m, disabled),
        iterations=int(m.opt.iterations),
        ls_iterations=int(m.opt.ls_iterations),
        noslip_iterations=int(m.opt.noslip_iterations),
        noslip_tolerance=float(m.opt.noslip_tolerance),
        disabled=disabled,
        names={kind: _names(m, kind) for kind in _KINDS},
        source=m,
    )


def _grids(m: Any) -> np.ndarray:
    """For geoms that are height fields: the field's index, rows and columns, first height, (ngeom, 4); else -1."""
    out, own = np.full((m.ngeom, 4), -1, np.int32), np.flatnonzero(m.geom_type == GeomType.HFIELD)
    field = m.geom_dataid[own]
    out[own] = np.stack([field, m.hfield_nrow[field], m.hfield_ncol[field], m.hfield_adr[field]], -1)
    return out


def _limits(m: Any, disabled: bool) -> Limits:
    """Both sides of each limited joint and tendon; a ball joint's limit has one side."""
    rows = [
        (j, side)
        for j in np.flatnonzero(m.jnt_limited)
        for side in ((1,) if m.jnt_type[j] == JointType.BALL else (-1, 1))
        if m.jnt_type[j] != JointType.FREE
    ]
    tendons = [(t, side) for t in np.flatnonzero(m.tendon_limited) for side in (-1, 1)]
    joint, tendon = (np.array([] if disabled else x, np.int32).reshape(-1, 2) for x in (rows, tendons))
    columns = (np.ascontiguousarray(x) for x in (*joint.T, *tendon.T))
    return Limits(*columns)


def _equalities(m: Any, disabled: bool) -> Equalities:
    index = np.flatnonzero(m.eq_active0) if not disabled else np.zeros(0, np.int64)
    return Equalities(
        index=np.array(index, np.int32),
        type=np.array(m.eq_type[index], np.int32),
        object=np.stack([m.eq_obj1id[index], m.eq_obj2id[index]], -1).astype(np.int32),
        site=np.array(m.eq_objtype[index] == _SITE, np.int32),
    )


def _at_rest(m: Any) -> np.ndarray:
    """Which tendons have their length at qpos_spring as rest length: MuJoCo's default if the file gives none."""
    mujoco = _mujoco()
    d = mujoco.MjData(m)
    d.qpos[:] = m.qpos_spring
    for stage in (mujoco.mj_kinematics, mujoco.mj_comPos, mujoco.mj_tendon):
        stage(m, d)
    return (m.tendon_lengthspring == d.ten_length[:, None]).all(axis=1)


def _frames(m: Any) -> tuple[Frames, np.ndarray, np.ndarray]:
    """The kinematic frames, each body's last frame (nbody,), and the frame after each joint (njnt,)."""
    parent, body, joint = [0], [0], [-1]
    last, after = np.zeros(m.nbody, np.int32), np.zeros(m.njnt, np.int32)
    for b in range(1, m.nbody):
        parent.append(int(last[m.body_parentid[b]]))
        body.append(b)
        joint.append(-1)
        for j in range(m.body_jntadr[b], m.body_jntadr[b] + m.body_jntnum[b]):
            parent.append(len(parent) - 1)
            body.append(b)
            joint.append(j)
            after[j] = len(parent) - 1
        last[b] = len(parent) - 1
    frames = Frames(parent=np.array(parent, np.int32), body=np.array(body, np.int32), joint=np.array(joint, np.int32))
    return frames, last, after


def _names(m: Any, kind: str) -> tuple[str, ...]:
    count = {"body": m.nbody, "joint": m.njnt, "actuator": m.nactuator, "camera": m.ncam}.get(kind)
    return tuple(getattr(m, kind)(i).name for i in range(getattr(m, f"n{kind}") if count is None else count))


def _write(m: Any, model: Model, path: str, world: int) -> bool:
    """Write a leaf of one world into MuJoCo's model; returns whether it changed, in the leaf's precision."""
    group, _, name = path.rpartition(".")
    if group == "key":
        values = np.asarray(getattr(model.key, name))
        target = read_field(m, LEAVES[path]).reshape(values.shape)
    else:
        leaf = np.asarray(getattr(getattr(model, group) if group else model, name))
        values = leaf[world if leaf.shape[0] > 1 else 0]
        target = held(name, read_field(m, LEAVES[path]))
    if np.array_equal(target.astype(values.dtype), values):
        return False
    if target.ndim:
        target[...] = values
    else:
        owner, _, bare = LEAVES[path].rpartition(".")
        setattr(getattr(m, owner), bare, float(values))
    return True


def _follow(m: Any, changed: set[str]) -> None:
    """Update what MuJoCo caches of changed leaves: shortcuts between frames, and bounds of geoms."""
    inertial = bool(changed & {"body.ipos", "body.iquat"})
    if changed & {"body.ipos", "body.iquat", "joint.pos", "joint.axis"} and m.body_simple[1:].any():
        moved = (np.abs(m.body_ipos).max(axis=1) > 0) | (np.abs(m.body_iquat[:, 1:]).max(axis=1) > 0)
        moved |= np.array([bool(changed & {"joint.pos", "joint.axis"})])
        for body in np.flatnonzero(m.body_simple.astype(bool) & moved & (m.body_dofnum > 0)):
            raise UnsupportedError(
                f'body "{m.body(int(body)).name}": MuJoCo compiled it with a diagonal mass matrix, and the new '
                "inertial frame or joint axis needs a full one: write the change into the file and load that"
            )
    if inertial:
        m.body_sameframe[:] = 0
    if inertial or changed & {"geom.pos", "geom.quat", "geom.size"}:
        m.geom_sameframe[:] = 0
        _bound(m)
    if inertial or changed & {"site.pos", "site.quat"}:
        m.site_sameframe[:] = 0
    if changed & {"hfield.size", "hfield.data"}:
        m.geom_aabb[m.geom_type == GeomType.HFIELD, 3:] = m.bvh_aabb[:, 3:] = 1e6
    if changed & {"geom.margin", "geom.gap"}:
        m.body_margin[:] = 0
        np.maximum.at(m.body_margin, m.geom_bodyid, m.geom_margin + m.geom_gap)


def _bound(m: Any) -> None:
    """Set the bounds of geoms from their sizes; make boxes of the search tree so large that they reject nothing."""
    size = m.geom_size
    radii = {
        GeomType.SPHERE: size[:, 0],
        GeomType.CAPSULE: size[:, 0] + size[:, 1],
        GeomType.ELLIPSOID: size.max(axis=1),
        GeomType.CYLINDER: np.hypot(size[:, 0], size[:, 1]),
        GeomType.BOX: np.linalg.norm(size, axis=1),
    }
    for kind, radius in radii.items():
        own = m.geom_type == kind
        m.geom_rbound[own] = radius[own]
        m.geom_aabb[own, 3:] = radius[own, None]
    m.bvh_aabb[:, 3:] = 1e6
