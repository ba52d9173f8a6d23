"""The rigid part of a scene as one MuJoCo model: the native back end loads it, and every back end takes names, limits
and frames from it. A simple thing is one body of its name; in mechanisms that name is a prefix, as in "arm/elbow"."""

import dataclasses
import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import units
from ..errors import ModelError
from ..model.kinds import BY_JOINT
from ..model.load import read_spec
from ..model.sensors import SensorType
from ..model.structure import GeomType
from .materials import Rigid, Surface
from .morphs import MECHANISMS, MJCF, URDF, USD, Box, Capsule, Cylinder, Mesh, Morph, Plane, Sphere, Terrain
from .sensors import IMU, Camera, JointState, Rays
from .specs import GAINS, LIKE, ActionSpec, ObservationSpec

SITE = 6  # mjtObj
GEOM = {
    Plane: GeomType.PLANE,
    Terrain: GeomType.HFIELD,
    Sphere: GeomType.SPHERE,
    Capsule: GeomType.CAPSULE,
    Cylinder: GeomType.CYLINDER,
    Box: GeomType.BOX,
    Mesh: GeomType.MESH,
}
_SINGLE = (2, 3)  # joints with one coordinate: slide and hinge, mjtJoint
_HINGE = 3
_CONVEX = 0  # mjtMeshInertia
_OWN = ("timestep", "gravity")  # options that the scene itself sets
_WEIGHTLESS = 1 << 7  # mjDSBL_GRAVITY
_DISTANCE = 1  # rangefinders report only distances
_POINT = 1e-3  # radius of a sensor's site [m], only for drawing


@dataclasses.dataclass(frozen=True)
class Part:
    """A thing of a scene."""

    name: str
    morph: Morph
    material: Any
    surface: Surface


@dataclasses.dataclass(frozen=True, eq=False)
class Layout:
    """Names of a scene, and the places of what they name: the same for every back end."""

    joints: tuple[str, ...]  # hinges and slides, in the order of the file
    turning: tuple[bool, ...]  # whether each is a hinge
    ranges: tuple[tuple[float, float], ...]  # smallest and largest force or torque that the file allows [N or N m]
    frames: dict[str, tuple[str, tuple[float, ...], tuple[float, ...]]]  # body, position [m] and orientation in it
    sensors: dict[str, Any]

    @property
    def limits(self) -> tuple[float, ...]:
        """Largest force or torque that the file allows for each joint, in either direction [N or N m]."""
        return tuple(max(abs(low), abs(high)) for low, high in self.ranges)

    def ends(self, joints: Sequence[str], limit: Any = None) -> np.ndarray:
        """Smallest and largest force or torque on some joints [N or N m], (2, joint).

        Args:
            limit: of an ActionSpec; None for what the file allows.
        """
        if limit is None:
            found = dict(zip(self.joints, self.ranges, strict=True))
            return np.array([found[name] for name in joints], float).reshape(-1, 2).T
        return np.array([[-1.0], [1.0]]) * np.broadcast_to(np.asarray(limit, float), len(joints))

    def pick_joints(self, names: tuple[str, ...] | str) -> tuple[str, ...]:
        """Full names of joints; "all" means all of them."""
        return self.joints if names == "all" else tuple(resolve("joint", name, self.joints) for name in names)

    def kinds(self, what: str, joints: Sequence[str]) -> tuple[units.Kind, ...]:
        """The kind of gains, limits or controls of some joints; none if there are both hinges and slides among them.

        Args:
            what: a key of LIKE.
        """
        turning = {turns for name, turns in zip(self.joints, self.turning, strict=True) if name in joints}
        return tuple(BY_JOINT[LIKE[what]][turns] for turns in turning) if len(turning) == 1 else ()

    def settled(self, action: ActionSpec) -> ActionSpec:
        """An action's spec that fits the joints, with gains and limits as tuples; otherwise ModelError or UnitError."""
        joints = self.pick_joints(action.joints)
        changes: dict[str, Any] = {}
        for name in GAINS:
            given = getattr(action, name)
            numbers = units.si(given, self.kinds(name, joints), f"ActionSpec.{name}")
            if np.size(numbers) not in (1, len(joints)):
                raise ModelError(f"ActionSpec: {name} has {np.size(numbers)} numbers, there are {len(joints)} joints")
            if given is not None:
                changes[name] = tuple(np.ravel(numbers).tolist())
        return dataclasses.replace(action, **changes)

    def pick_frame(self, name: str) -> str:
        """Full name of a body or site."""
        return resolve("link", name, tuple(self.frames))

    def pick_body(self, name: str) -> str:
        """Full name of a body."""
        return resolve_body(
            name,
            [full for full, (body, *_) in self.frames.items() if full == body],
            {full: body for full, (body, *_) in self.frames.items() if full != body},
        )

    def joints_of(self, sensor: Any) -> tuple[str, ...]:
        """Joints that a JointState reads."""
        return self.pick_joints(sensor.joints or "all")

    def require(self, spec: ObservationSpec) -> None:
        """Raise ModelError for a name that the scene does not have."""
        self.pick_joints(spec.joints)
        for name in spec.links:
            self.pick_frame(name)
        for name in spec.sensors:
            sensor = self.sensors[resolve("sensor", name, tuple(self.sensors))]
            if isinstance(sensor, Camera):
                raise ModelError(f"ObservationSpec: {name!r} is a camera: call world.render(state, {name!r})")


def resolve(kind: str, name: str, known: Sequence[str]) -> str:
    """The full name: as given, or the only known name that ends with it after a slash."""
    if name in known:
        return name
    found = [full for full in known if full.endswith(f"/{name}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise ModelError(f"{kind} {name!r} may be {' or '.join(map(repr, found))}: give the full name")
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known) or 'none'}"
    raise ModelError(f"the scene has no {kind} {name!r}: {hint}")


def resolve_body(name: str, bodies: Sequence[str], sites: Mapping[str, str]) -> str:
    """The full name of the body that a sensor is fixed to; ``sites`` maps names of sites to their bodies."""
    found = _called(name, sites)
    if found and not _called(name, bodies):
        raise ModelError(
            f"the scene has no link {name!r}: {found[0]!r} is a site of {sites[found[0]]!r}; fix the sensor to that "
            "link, and say where on it by pos= and quat= of an IMU, pos= of a camera, origins= of rays"
        )
    return resolve("link", name, bodies)


def _called(name: str, known: Iterable[str]) -> list[str]:
    return [full for full in known if full == name or full.endswith(f"/{name}")]


def compose(parts: Sequence[Part], sensors: dict[str, Any], timestep: float, gravity: Sequence[float]) -> Any:
    """The ``mujoco.MjSpec`` of all rigid things, with those sensors that MuJoCo has.

    Options that files set, other than time step and gravity, hold for the whole scene.

    Raises:
        ModelError: a file is refused, or two files set different options.
    """
    spec = read_spec()
    spec.option.timestep, spec.option.gravity = timestep, gravity
    stated: dict[str, tuple[str, Any]] = {}
    for part in parts:
        if not isinstance(part.material, Rigid):
            continue
        if isinstance(part.morph, MECHANISMS):
            _attach(spec, part, stated)
        else:
            _add_body(spec, part)
    for name, (_, value) in stated.items():
        setattr(spec.option, name, value)
    if spec.option.disableflags & _WEIGHTLESS:
        spec.option.gravity = (0.0, 0.0, 0.0)  # for engines and matter, which do not know the flag
    for name, sensor in sensors.items():
        _add_sensor(spec, name, sensor)
    return spec


def layout(source: Any, sensors: dict[str, Any]) -> Layout:
    """Names and frames of a compiled scene, a ``mujoco.MjModel``.

    Raises:
        ModelError: a sensor names a link or joint that does not exist.
    """
    m = source
    joints = [j for j in range(m.njnt) if m.jnt_type[j] in _SINGLE]
    frames: dict[str, Any] = {}
    for b in range(1, m.nbody):
        if m.body(b).name.partition(":")[0] in sensors:  # it carries the sites of rays
            continue
        frames[m.body(b).name] = (m.body(b).name, (0.0,) * 3, (1.0, 0.0, 0.0, 0.0))
    for s in range(m.nsite):
        name = m.site(s).name
        if name and name not in frames:
            body = m.body(int(m.site_bodyid[s])).name
            frames[name] = (body, tuple(m.site_pos[s].tolist()), tuple(m.site_quat[s].tolist()))
    found = Layout(
        joints=tuple(m.joint(j).name for j in joints),
        turning=tuple(bool(m.jnt_type[j] == _HINGE) for j in joints),
        ranges=tuple(_range(m, j) for j in joints),
        frames=frames,
        sensors=sensors,
    )
    for sensor in sensors.values():
        if isinstance(sensor, JointState):
            found.joints_of(sensor)
        elif sensor.link is not None:
            found.pick_body(sensor.link)
    return found


def _range(m: Any, joint: int) -> tuple[float, float]:
    """Smallest and largest force or torque on a joint: its own range, and the sum of its actuators' if all have one.

    As in MuJoCo the joint's range comes last.
    """
    low, high = -np.inf, np.inf
    own = np.flatnonzero((m.actuator_trntype == 0) & (m.actuator_trnid[:, 0] == joint))
    if own.size and m.actuator_forcelimited[own].all():
        low, high = np.sort(m.actuator_forcerange[own] * m.actuator_gear[own, :1], axis=1).sum(0)
    if m.jnt_actfrclimited[joint]:
        low, high = np.clip((low, high), *m.jnt_actfrcrange[joint])
    return float(low), float(high)


def _add_body(spec: Any, part: Part) -> None:
    morph, material = part.morph, part.material
    body = spec.worldbody.add_body(name=part.name, pos=morph.pos, quat=morph.quat)
    geom: dict[str, Any] = {"type": int(GEOM[type(morph)]), "name": part.name, "rgba": part.surface.rgba}
    match morph:
        case Plane():
            geom["size"] = (0.0, 0.0, 1.0)
        case Box(size=size):
            geom["size"] = np.asarray(size) / 2
        case Sphere(radius=radius):
            geom["size"] = (radius, 0.0, 0.0)
        case Capsule(radius=radius, length=length) | Cylinder(radius=radius, length=length):
            geom["size"] = (radius, length / 2, 0.0)
        case Terrain():
            geom |= _terrain(spec, part.name, morph)
        case Mesh(file=file, scale=scale):
            path = str(Path(file).absolute())
            spec.add_mesh(name=part.name, file=path, scale=(scale,) * 3, inertia=_CONVEX)
            geom["meshname"] = part.name
    if material.mass is not None:
        geom["mass"] = first(material.mass)
    else:
        geom["density"] = 1000.0 if material.density is None else material.density
    body.add_geom(**geom)
    if not (morph.fixed or isinstance(morph, Plane | Terrain)):
        body.add_freejoint(name=part.name)


def _terrain(spec: Any, name: str, morph: Terrain) -> dict[str, Any]:
    """A height field, whose geom has its origin in the middle and its rows along y."""
    heights = np.asarray(morph.heights, float)
    low, size = heights.min(), max(np.ptp(heights), _POINT)
    reach = (np.array(heights.shape) - 1) * morph.spacing / 2
    scaled = ((heights - low) / size).T
    spec.add_hfield(
        name=name,
        nrow=scaled.shape[0],
        ncol=scaled.shape[1],
        size=(*reach, size, morph.spacing),
        userdata=scaled.ravel(),
    )
    return {"hfieldname": name, "pos": (*reach, low)}


def _attach(spec: Any, part: Part, stated: dict[str, tuple[str, Any]]) -> None:
    morph: Any = part.morph
    child = read_spec(morph.source, morph.root)
    for name, value in _options(child):
        other, before = stated.setdefault(name, (part.name, value))
        if np.any(np.asarray(before) != np.asarray(value)):
            raise ModelError(
                f"option {name} is {before} in {other!r} and {value} in {part.name!r}: a scene has one, edit the files"
            )
    if isinstance(morph, URDF) and not morph.fixed:
        base = child.worldbody.first_body()
        if base is None:
            raise ModelError(f"{part.name!r}: the URDF has no link that could move: take fixed=True")
        base.add_freejoint(name="root")
    if isinstance(morph, MJCF | USD) and morph.fixed:
        kind, what = (
            ("USD", "fix its root by a joint in") if isinstance(morph, USD) else ("MJCF", "take the free joint out of")
        )
        raise ModelError(f"{part.name!r}: fixed=True has no meaning for {kind}: {what} the file")
    _name_all(child)
    for name in _names(child.option):  # the options that it sets are kept above; MuJoCo would warn of each
        setattr(child.option, name, getattr(spec.option, name))
    frame = spec.worldbody.add_frame(pos=morph.pos, quat=morph.quat)
    spec.attach(child, prefix=f"{part.name}/", frame=frame)


def _name_all(spec: Any) -> None:
    """Name joints and bodies that the file does not, by their number in it."""
    for kind, found in (("joint", spec.joints), ("body", spec.bodies)):
        taken = {one.name for one in found}
        for i, one in enumerate(found):
            if not one.name:
                one.name = next(name for k in itertools.count() if (name := f"{kind}{i}" + "_" * k) not in taken)


def _options(spec: Any) -> Iterator[tuple[str, Any]]:
    """Options that a file sets to other values than MuJoCo's defaults, except those that the scene sets."""
    default = read_spec().option
    for name in set(_names(default)) - set(_OWN):
        value = getattr(spec.option, name)
        if np.any(np.asarray(value) != np.asarray(getattr(default, name))):
            yield name, np.array(value) if isinstance(value, np.ndarray) else value


def _names(option: Any) -> list[str]:
    return [name for name in dir(option) if not name.startswith("_")]


def _add_sensor(spec: Any, name: str, sensor: Any) -> None:
    link = getattr(sensor, "link", None)
    if isinstance(sensor, IMU):
        _site(spec, name, link, sensor.pos, sensor.quat)
        for part, kind in (("accelerometer", SensorType.ACCELEROMETER), ("gyro", SensorType.GYRO)):
            spec.add_sensor(name=f"{name}:{part}", type=int(kind), objtype=SITE, objname=name)
    elif isinstance(sensor, Rays):
        if link in (None, "world"):  # a rangefinder passes what is on its own body, and so would the floor of a file
            link = f"{name}:world"
            spec.worldbody.add_body(name=link)
        for i, (origin, direction) in enumerate(zip(sensor.origins, sensor.directions, strict=True)):
            site = f"{name}:{i}"
            _site(spec, site, link, origin, _along(direction))
            spec.add_sensor(
                name=site, type=int(SensorType.RANGEFINDER), objtype=SITE, objname=site, intprm=[_DISTANCE, 0, 0]
            )
    elif isinstance(sensor, Camera):
        _body(spec, link).add_camera(name=name, pos=sensor.pos, quat=sensor.quat, fovy=sensor.fov)


def _site(spec: Any, name: str, link: str | None, pos: Any, quat: Any) -> None:
    _body(spec, link).add_site(name=name, pos=pos, quat=quat, size=(_POINT,) * 3, group=5)


def _body(spec: Any, link: str | None) -> Any:
    if link in (None, "world"):
        return spec.worldbody
    bodies = [body.name for body in spec.bodies if body.name != "world"]
    sites = {site.name: site.parent.name for site in spec.sites if site.name}
    return spec.body(resolve_body(link, bodies, sites))


def _along(direction: Sequence[float]) -> tuple[float, ...]:
    """A rotation that turns the z axis to a unit vector."""
    x, y, z = direction
    if z < -1 + 1e-12:
        return (0.0, 1.0, 0.0, 0.0)
    q = np.array([1 + z, -y, x, 0.0])
    return tuple((q / np.linalg.norm(q)).tolist())


def first(value: float | tuple[float, ...]) -> float:
    """A number, or the first of several."""
    return value[0] if isinstance(value, tuple) else value
