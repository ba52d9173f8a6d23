"""The static part of a model: its topology, names, and the discrete choices of its file.

A :class:`Structure` is static under ``jit``: hashable, compared by content, never traced. All
arrays are read-only NumPy ``int32`` (or ``bool``; bounds of sensors are floats) and carry no world
axis. Names follow MuJoCo.
"""

import dataclasses
import enum
import functools
import hashlib
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

Ints = np.ndarray
"""A read-only ``int32`` array."""


class JointType(enum.IntEnum):
    """MuJoCo's ``mjtJoint``."""

    FREE = 0
    BALL = 1
    SLIDE = 2
    HINGE = 3


class GeomType(enum.IntEnum):
    """MuJoCo's ``mjtGeom``."""

    PLANE = 0
    HFIELD = 1
    SPHERE = 2
    CAPSULE = 3
    ELLIPSOID = 4
    CYLINDER = 5
    BOX = 6
    MESH = 7
    SDF = 8


class Integrator(enum.IntEnum):
    """MuJoCo's ``mjtIntegrator``."""

    EULER = 0
    RK4 = 1
    IMPLICIT = 2
    IMPLICITFAST = 3


CONNECT, WELD, JOINT, TENDON = 0, 1, 2, 3
"""The supported types of MuJoCo's ``mjtEq``."""

EQUALITY_ROWS = {CONNECT: 3, WELD: 6, JOINT: 1, TENDON: 1}


MUSCLE = 2
"""MuJoCo's mjGAIN_MUSCLE and mjBIAS_MUSCLE."""


@dataclasses.dataclass(frozen=True, eq=False)
class BodyTree:
    parent: Ints  # (nbody,) parent body; the world's is 0
    root: Ints  # (nbody,) top-level body of the tree that the body belongs to; the world's is 0
    mocap: Ints  # (nbody,) index into state.mocap_pos, or -1
    frame: Ints  # (nbody,) the body's last frame (see Frames): its pose
    weld: Ints  # (nbody,) body that it is welded to (body_weldid)


@dataclasses.dataclass(frozen=True, eq=False)
class Frames:
    """Kinematic frames in topological order: one fixed to each body, then one after each of its joints.

    Expanding bodies with several joints into one frame per joint lets every kernel write each array
    element once, as reverse mode requires.
    """

    parent: Ints  # (nframe,) frame that this one hangs on; the world's is 0 itself
    body: Ints  # (nframe,) the body that it belongs to
    joint: Ints  # (nframe,) the joint that moves it, or -1 for the frame fixed in the parent


@dataclasses.dataclass(frozen=True, eq=False)
class Joints:
    type: Ints  # (njnt,) JointType
    qpos: Ints  # (njnt,) first index in qpos
    dof: Ints  # (njnt,) first index in qvel
    body: Ints  # (njnt,) body that it moves
    frame: Ints  # (njnt,) frame after it
    actfrclimited: np.ndarray  # (njnt,) bool: the sum of the actuators' forces has a range
    actgravcomp: np.ndarray  # (njnt,) bool: actuators carry the compensated gravity


@dataclasses.dataclass(frozen=True, eq=False)
class Dofs:
    joint: Ints  # (nv,)
    body: Ints  # (nv,)
    parent: Ints  # (nv,) previous dof towards the root, or -1
    frame: Ints  # (nv,) frame after the dof's joint


@dataclasses.dataclass(frozen=True, eq=False)
class Geoms:
    type: Ints  # (ngeom,) GeomType
    body: Ints  # (ngeom,)
    condim: Ints  # (ngeom,)
    priority: Ints  # (ngeom,)
    pair: Ints  # (npair, 2) geom pairs that may collide, narrow-phase order (type1 <= type2); named pairs come last;
    # none in a sparse model, where a pair's number is the lower geom times ngeom, plus the higher
    pair_condim: Ints  # (npair,) dimension of their contacts: 1, 3, 4 or 6
    reach: Ints  # (ngeom, 5) what decides whether two geoms may touch, see pairs.reach
    apart: Ints  # pairs of bodies that do not touch: the lower times nbody, plus the higher
    named: Ints  # (nnamed,) index in model.pair of the named pairs, which come last
    fluid: Ints  # geoms whose shape the medium acts on, rather than on their body's box of equal inertia
    grid: Ints  # (ngeom, 4) for a height field: its index, rows and columns, first in model.hfield.data; else -1
    nearest: bool = False  # whether contacts are the points of a pair that are nearest to each other, alone


@dataclasses.dataclass(frozen=True, eq=False)
class Hulls:
    """Convex hulls of the meshes that geoms touch with; the vertices of all meshes are concatenated."""

    vert: np.ndarray  # (nvert, 3) float64, position in the geom's frame [m]
    edge: Ints  # (nvert + 1,) neighbours of vertex v are neighbour[edge[v]:edge[v + 1]]
    neighbour: Ints  # vertices that share an edge
    leaving: Ints  # the edge that leads to each of them
    ends: Ints  # (nedge, 2) the two vertices of each edge
    normal: np.ndarray  # (nface, 3) float64, outward normal of each flat face
    level: np.ndarray  # (nface, 3) float64, MuJoCo's normal of each side, along which another touches that rests on it
    corner: Ints  # (nface + 1,) vertices of face f, in order around it, are corners[corner[f]:corner[f + 1]]
    corners: Ints
    meeting: Ints  # (nvert + 1,) faces that meet at vertex v are faces[meeting[v]:meeting[v + 1]]
    faces: Ints
    beside: Ints  # (nvert + 1,) sides that meet at vertex v, in MuJoCo's order, are sides[beside[v]:beside[v + 1]]
    sides: Ints
    merged: Ints  # (nface,) the nearly flat side that each face belongs to, mostly itself
    first: Ints  # (ngeom,) first vertex of each geom's hull, or -1
    own_verts: Ints  # (ngeom, 2) first vertex of each geom's hull, and one past the last
    own_edges: Ints  # (ngeom, 2) first edge of each geom's hull, and one past the last
    own_faces: Ints  # (ngeom, 3) the same for faces, then one past the sides that several faces make up
    radius: np.ndarray  # (ngeom,) float64, of a ball about the geom's origin that contains its hull, or 0 [m]

    @property
    def parts(self) -> np.ndarray:
        """(ngeom,) how many vertices, edges and faces each geom's hull has."""
        own = self.own_verts, self.own_edges, self.own_faces
        return sum((x[:, 1] - x[:, 0] for x in own), np.zeros(len(self.first), np.int32))

    @property
    def names(self) -> np.ndarray:
        """(ngeom,) how many numbers a contact needs to tell apart the parts of each geom's hull, or their corners."""
        return np.maximum(self.parts, self.corner[self.own_faces[:, -1]] - self.corner[self.own_faces[:, 0]])


@dataclasses.dataclass(frozen=True, eq=False)
class Limits:
    """Limits in MuJoCo's order: each joint's lower, then upper limit; a ball joint has only one."""

    joint: Ints  # (nlimit,)
    side: Ints  # (nlimit,) -1 lower, 1 upper
    tendon: Ints  # (ntendonlimit,)
    tendon_side: Ints  # (ntendonlimit,)


@dataclasses.dataclass(frozen=True, eq=False)
class Frictions:
    dof: Ints  # dofs with dry friction
    tendon: Ints  # tendons with dry friction


@dataclasses.dataclass(frozen=True, eq=False)
class Equalities:
    """Equality constraints that are active, in the file's order."""

    index: Ints  # (neq,) index in model.equality
    type: Ints  # (neq,) mujoco.mjtEq: CONNECT, WELD, JOINT or TENDON
    object: Ints  # (neq, 2) bodies, sites, joints or tendons; the second joint or tendon may be -1
    site: Ints  # (neq,) whether a connection's or weld's objects are sites


@dataclasses.dataclass(frozen=True, eq=False)
class Sites:
    body: Ints  # (nsite,)


@dataclasses.dataclass(frozen=True, eq=False)
class Tendons:
    """Fixed tendons are weighted sums of joint positions; spatial ones are paths through wraps, in order."""

    adr: Ints  # (ntendon + 1,) wraps of tendon t are adr[t]:adr[t + 1]
    kind: Ints  # (nwrap,) mujoco.mjtWrap: JOINT, PULLEY, SITE, SPHERE or CYLINDER
    object: Ints  # (nwrap,) joint, site or geom of each wrap, or -1
    side: Ints  # (nwrap,) site that marks the side of the geom on which the tendon passes, or -1
    actfrclimited: np.ndarray  # (ntendon,) bool: the sum of the actuators' forces has a range
    heavy: np.ndarray  # (ntendon,) bool: the file gave armature


@dataclasses.dataclass(frozen=True, eq=False)
class Actuators:
    transmission: Ints  # (nu,) mujoco.mjtTrn: JOINT, JOINTINPARENT, SLIDERCRANK, TENDON, SITE or BODY
    target: Ints  # (nu,) joint, tendon, site or body
    reference: Ints  # (nu,) reference site or slider site, or -1
    dynamics: Ints  # (nu,) mujoco.mjtDyn
    gain: Ints  # (nu,) mujoco.mjtGain
    bias: Ints  # (nu,) mujoco.mjtBias
    act: Ints  # (nu,) index in act, or -1
    ctrllimited: np.ndarray  # (nu,) bool
    forcelimited: np.ndarray  # (nu,) bool
    actlimited: np.ndarray  # (nu,) bool
    actearly: np.ndarray  # (nu,) bool: the force uses the activation of the next step


@dataclasses.dataclass(frozen=True, eq=False)
class Meshes:
    """Triangles that rays may hit, all meshes' one after the other, and above each mesh's a tree of boxes.

    The nodes of a tree stand in the order of a walk that visits each before its children.
    """

    vert: np.ndarray  # (nvert, 3) float64, position in the geom's frame [m]
    corner: Ints  # (ntriangle, 3) vertices
    middle: np.ndarray  # (nnode, 3) float64, centre of the box about a node's triangles, in the geom's frame [m]
    half: np.ndarray  # (nnode, 3) float64, half of its sides [m]
    past: Ints  # (nnode,) the node after those below this one
    triangle: Ints  # (nnode,) the triangle of a leaf, or -1
    root: Ints  # (ngeom,) first node of each geom's mesh, or -1


@dataclasses.dataclass(frozen=True, eq=False)
class Sensors:
    """Sensors. The readings of sensor i are columns adr[i] to adr[i] + dim[i] of :func:`fphys.sensors`."""

    type: Ints  # (nsensor,) SensorType
    kind: Ints  # (nsensor,) mujoco.mjtObj of the element that it is attached to
    target: Ints  # (nsensor,) index of that element
    reference_kind: Ints  # (nsensor,) mujoco.mjtObj of the reference frame
    reference: Ints  # (nsensor,) index of that frame, or -1
    adr: Ints  # (nsensor,)
    dim: Ints  # (nsensor,)
    low: np.ndarray  # (nsensor,) float: readings are clamped to [low, high]
    high: np.ndarray  # (nsensor,) float
    zone: Ints  # (nsensor,) GeomType of the site whose volume a touch, insidesite or contact sensor watches, or -1
    zone_size: np.ndarray  # (nsensor, 3) float, its size [m]
    contact: Ints  # (nsensor, 2) of a contact sensor: bits of what it reports, and how it chooses among contacts
    data: Ints  # (nsensor,) of a rangefinder: bits of what it reports
    pair: Ints  # (n, 2) geoms whose distance is measured, the pairs of one sensor after those of another
    pair_adr: Ints  # (nsensor + 1,) the pairs of sensor i are pair[pair_adr[i]:pair_adr[i + 1]]
    within: np.ndarray  # (nsensor,) float: distance up to which they are measured [m]
    visible: Ints  # geoms that rays hit
    missing: tuple[str, ...]  # (nsensor,) why the sensor is not simulated, or ""


@dataclasses.dataclass(frozen=True, eq=False)
class Cameras:
    """Cameras that are fixed to bodies. Theirs is the plane x, y; they look along -z."""

    body: Ints  # (ncam,)
    pos: np.ndarray  # (ncam, 3) float64, in the body's frame [m]
    quat: np.ndarray  # (ncam, 4) float64
    resolution: Ints  # (ncam, 2) pixels in width and height
    focal: np.ndarray  # (ncam, 2) float64, focal lengths [pixels]


@dataclasses.dataclass(frozen=True, eq=False)
class Structure:
    """The static half of a model. ``dims`` maps nq, nv, nu, na, nbody, njnt, ngeom, nsite, ntendon, nmocap, nkey."""

    dims: dict[str, int]
    body: BodyTree
    frame: Frames
    joint: Joints
    dof: Dofs
    geom: Geoms
    hull: Hulls
    mesh: Meshes
    limit: Limits
    friction: Frictions
    equality: Equalities
    site: Sites
    tendon: Tendons
    actuator: Actuators
    sensor: Sensors
    camera: Cameras
    integrator: Integrator
    cone: int  # mujoco.mjtCone: 0 pyramidal, 1 elliptic
    sparse: bool  # whether no matrices and no pairs are stored: the file says so, or it is large (see pairs.py)
    iterations: int
    ls_iterations: int
    noslip_iterations: int
    noslip_tolerance: float
    disabled: frozenset[
        str
    ]  # MuJoCo's disable flags, lower case: "contact", "limit", "equality", "frictionloss", "gravity", "damper", ...
    names: dict[
        str, tuple[str, ...]
    ]  # kind ("body", "joint", "geom", "site", "tendon", "actuator", "key", "sensor", "camera") -> names by index
    source: Any = dataclasses.field(repr=False)  # the compiled mujoco.MjModel, never modified; not part of the identity

    def __post_init__(self) -> None:
        digest = hashlib.sha256()

        def feed(value: Any) -> None:
            if dataclasses.is_dataclass(value):
                for field in dataclasses.fields(value):
                    if field.name != "source":
                        feed(getattr(value, field.name))
            elif isinstance(value, np.ndarray):
                value.setflags(write=False)
                digest.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
            elif isinstance(value, dict):
                digest.update(repr(sorted(value.items())).encode())
            elif isinstance(value, frozenset):
                digest.update(repr(sorted(value)).encode())
            else:
                digest.update(repr(value).encode())

        feed(self)
        object.__setattr__(self, "_digest", digest.hexdigest())

    @property
    def elliptic(self) -> bool:
        """Whether friction cones are elliptic."""
        return self.cone == 1

    @property
    def nrow(self) -> int:
        """Constraint rows besides those of contacts: each has its own place, whether it is active or not."""
        equality = np.array([EQUALITY_ROWS[int(t)] for t in self.equality.type], np.int64).sum()
        friction = self.friction.dof.size + self.friction.tendon.size
        return int(equality) + friction + self.limit.joint.size + self.limit.tendon.size

    @property
    def muscles(self) -> np.ndarray:
        """Which actuators are muscles, (nu,)."""
        return (self.actuator.gain == MUSCLE) | (self.actuator.bias == MUSCLE)

    def __getattr__(self, name: str) -> int:
        if name.startswith("n") and name in self.__dict__.get("dims", ()):
            return self.dims[name]
        raise AttributeError(name)

    def __hash__(self) -> int:
        return hash(self._digest)  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self._digest == other._digest  # type: ignore[attr-defined]


def memo(fn: Callable[[Structure], T]) -> Callable[[Structure], T]:
    """Decorator for a function of a structure: computes it once, and forgets it when the structure is freed."""
    known: weakref.WeakKeyDictionary[Structure, T] = weakref.WeakKeyDictionary()

    @functools.wraps(fn)
    def remembered(structure: Structure) -> T:
        value = known.get(structure)
        if value is None:
            value = known[structure] = fn(structure)
        return value

    return remembered
