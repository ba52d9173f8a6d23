"""Colliders of a USD stage as geoms of MuJoCo, their contacts, and the masses of bodies."""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from .structure import GeomType
from .usd_stage import Stage, path_of, pxr

DENSITY = 1000.0  # of what has none, USD's default [kg/m³]
_CLASSES = 31  # bits of contype
MASS = ("physics:mass", "physics:density", "physics:centerOfMass")
MASS += ("physics:diagonalInertia", "physics:principalAxes", "newton:inertia")
_TURN = {"X": np.array([[0.0, 0, 1], [0, 1, 0], [-1, 0, 0]]), "Y": np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]])}
"""Rotations that take the z axis to a shape's own axis."""
_INERTIA = {"convex": 0, "exact": 1, "legacy": 2, "shell": 3}  # mjtMeshInertia
_GEOM = {"mjc:priority": "priority", "mjc:condim": "condim", "mjc:solmix": "solmix", "mjc:solref": "solref"}
_SIZES = {"solref": 2, "solimp": 5}
_GEOM |= {"mjc:solimp": "solimp", "mjc:margin": "margin", "mjc:gap": "gap", "newton:contactMargin": "margin"}


@dataclasses.dataclass(eq=False)
class Collider:
    """A collider."""

    prim: Any
    pose: np.ndarray  # in its body, rigid, (4, 4)
    geom: dict[str, Any]  # arguments of add_geom, without the pose
    mesh: dict[str, Any] | None  # arguments of add_mesh
    material: Any  # prim, or None
    volume: float = 0.0  # [m³]
    center: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(3))  # in the body [m]
    inertia: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((3, 3)))  # about it, at density 1 [m⁵]


def rigid(matrix: np.ndarray) -> np.ndarray:
    """A transform without its scale and shear, (4, 4)."""
    u, _, v = np.linalg.svd(matrix[:3, :3])
    out = np.eye(4)
    out[:3, :3] = (u @ v) * np.linalg.det(u @ v)
    out[:3, 3] = matrix[:3, 3]
    return out


def collider(usd: Stage, prim: Any, body: np.ndarray) -> Collider | None:
    """A prim with CollisionAPI as a geom; None if it is off, or not simulated.

    Args:
        body: the pose of its body in the world, rigid, (4, 4).
    """
    if usd.get(prim, "physics:collisionEnabled", True) is False:
        usd.leave(prim)
        return None
    whole = np.linalg.inv(body) @ usd.transform(prim)
    pose = rigid(whole)
    stretch = pose[:3, :3].T @ whole[:3, :3]
    scale = np.abs(np.diag(stretch))
    kind, mesh = str(prim.GetTypeName()), None
    axis = usd.get(prim, "axis", "Z", "XYZ")
    if kind != "Mesh" and np.abs(stretch - np.diag(np.diag(stretch))).max() > 1e-6 * scale.max():
        usd.refuse(prim, "a shape whose scale is not along its own axes")
    turn = np.eye(4)
    turn[:3, :3] = _TURN.get(axis, np.eye(3))
    along = scale["XYZ".index(axis)]
    wide = np.delete(scale, "XYZ".index(axis))
    match kind:
        case "Cube":
            geom = {"type": GeomType.BOX, "size": usd.get(prim, "size", 2.0) / 2 * scale}
        case "Sphere":
            even = np.ptp(scale) <= 1e-6 * scale.max()
            geom = {
                "type": GeomType.SPHERE if even else GeomType.ELLIPSOID,
                "size": usd.get(prim, "radius", 1.0) * scale,
            }
        case "Capsule" | "Cylinder" | "Capsule_1" | "Cylinder_1":
            short = 0.5 if "Capsule" in kind else 1.0
            radius = usd.get(prim, "radius", short)
            ends = (
                [usd.get(prim, f"radius{end}", short) for end in ("Top", "Bottom")] if kind[-2:] == "_1" else [radius]
            )
            if len({*ends}) > 1:
                usd.refuse(prim, "a capsule or cylinder with two radii")
            if np.ptp(wide) > 1e-6 * wide.max():
                usd.note(prim, "it is scaled unevenly across its axis, and read as round: by the larger scale")
            half = usd.get(prim, "height", 1.0 if "Capsule" in kind else 2.0) / 2
            form = GeomType.CAPSULE if "Capsule" in kind else GeomType.CYLINDER
            geom, pose = {"type": form, "size": (ends[0] * wide.max(), half * along, 0)}, pose @ turn
        case "Plane":
            geom, pose = {"type": GeomType.PLANE, "size": (0, 0, 1)}, pose @ turn
        case "Mesh":
            geom, pose, mesh = _mesh(usd, prim, whole)
        case "Xform" | "Scope" | "":
            usd.note(prim, "its CollisionAPI is not read: it has no shape of its own")
            return None
        case _:
            usd.refuse(
                prim, f"a collider of type {kind or 'none'}; cubes, spheres, capsules, cylinders, planes and meshes are"
            )
            return None
    if not np.isfinite(np.asarray(geom.get("size", 0.0), float)).all():
        raise usd.fault(prim, "its size is not finite")
    material = _material(prim)
    geom |= _contact(usd, prim, material)
    return Collider(prim, pose, geom, mesh, material)


def _mesh(usd: Stage, prim: Any, whole: np.ndarray) -> tuple[dict[str, Any], np.ndarray, dict[str, Any] | None]:
    """The hull of a mesh, or the box or ball around it."""
    points = np.asarray(usd.get(prim, "points", np.zeros((0, 3))), float).reshape(-1, 3)
    if not np.isfinite(points).all() or len(points) < 4:
        raise usd.fault(prim, f"a mesh of {len(points)} points: it needs four, all finite")
    usd.count(prim, len(points))
    how = usd.get(prim, "physics:approximation", "none")
    if how in ("boundingCube", "boundingSphere"):
        pose, low, high = rigid(whole), points.min(0), points.max(0)
        scale = np.abs(np.diag(pose[:3, :3].T @ whole[:3, :3]))
        pose[:3, 3] = (whole @ [*(low + high) / 2, 1])[:3]
        if how == "boundingCube":
            return {"type": GeomType.BOX, "size": (high - low) / 2 * scale}, pose, None
        radius = np.linalg.norm((points - (low + high) / 2) * scale, axis=1).max()
        return {"type": GeomType.SPHERE, "size": (radius, 0, 0)}, pose, None
    if how != "convexHull":
        usd.note(prim, f"a mesh with approximation {how!r} collides as its convex hull")
    points = points @ whole[:3, :3].T + whole[:3, 3]
    inertia = usd.get(prim, "mjc:inertia", "convex", _INERTIA)
    mesh: dict[str, Any] = {"uservert": points.ravel(), "inertia": _INERTIA[inertia]}
    limit = int(usd.get(prim, "newton:maxHullVertices", usd.get(prim, "mjc:maxhullvert", -1.0)))
    if limit > 0:
        mesh["maxhullvert"] = limit
    if inertia != "convex":
        mesh["userface"] = _triangles(usd, prim, len(points), np.linalg.det(whole[:3, :3]) < 0).ravel()
    return {"type": GeomType.MESH}, np.eye(4), mesh


def _triangles(usd: Stage, prim: Any, points: int, mirrored: bool) -> np.ndarray:
    """The faces of a mesh as triangles, (n, 3)."""
    counts = np.asarray(usd.get(prim, "faceVertexCounts", np.zeros(0))).astype(int)
    index = np.asarray(usd.get(prim, "faceVertexIndices", np.zeros(0))).astype(int)
    if counts.sum() != len(index) or (index < 0).any() or (index >= points).any() or (counts < 3).any():
        raise usd.fault(prim, "faceVertexCounts and faceVertexIndices do not fit together and to the points")
    starts = np.cumsum(counts) - counts
    fans = [(s, s + k, s + k + 1) for s, n in zip(starts, counts, strict=True) for k in range(1, n - 1)]
    triangles = index[np.array(fans, int).reshape(-1, 3)]
    left = usd.get(prim, "orientation", "rightHanded") == "leftHanded"
    return triangles[:, ::-1] if left != mirrored else triangles


def _material(prim: Any) -> Any:
    """The prim of the physical material that is bound to a prim, or None."""
    shade = pxr("UsdShade")
    material = shade.MaterialBindingAPI(prim).ComputeBoundMaterial("physics")[0]
    found = material.GetPrim() if material else None
    return found if found and found.HasAPI(pxr("UsdPhysics").MaterialAPI) else None


def _contact(usd: Stage, prim: Any, material: Any) -> dict[str, Any]:
    """Friction and the parameters of contact."""
    geom: dict[str, Any] = {}
    if material:
        sliding = usd.get(material, "physics:dynamicFriction", 0.0)
        static = usd.get(material, "physics:staticFriction", 0.0)
        turning = usd.get(material, "mjc:torsionalfriction", usd.get(material, "newton:torsionalFriction", 0.005))
        rolling = usd.get(material, "mjc:rollingfriction", usd.get(material, "newton:rollingFriction", 0.0001))
        geom["friction"] = (sliding, turning, rolling)
        usd.ask(material, "physics:density")  # of bodies alone
        note = f"{path_of(material)}: its staticFriction is not read: contacts have one friction, dynamicFriction"
        if static not in (0, sliding) and note not in usd.notes:
            usd.notes.append(note)
        note = f"{path_of(material)}: its restitution is not read: contacts do not bounce"
        if usd.get(material, "physics:restitution", 0.0) and note not in usd.notes:
            usd.notes.append(note)
    for name, ours in _GEOM.items():
        if usd.has(prim, name):
            value = usd.get(prim, name, np.zeros(_SIZES[ours]) if ours in _SIZES else 0.0)
            geom[ours] = int(value) if ours in ("priority", "condim") else value
    gap = usd.get(prim, "newton:contactGap", -np.inf)
    if gap >= 0:
        geom["gap"] = gap
    if "solref" in geom:  # says the same
        usd.ask(prim, "newton:contactStiffness", "newton:contactDamping")
    return geom


def measure(usd: Stage, colliders: list[Collider], empty: Callable[[], Any]) -> None:
    """Set the volumes, centres and inertias of colliders: MuJoCo computes them."""
    spec = empty()
    solid = [own for own in colliders if own.geom["type"] != GeomType.PLANE]
    for i, own in enumerate(solid):
        body = spec.worldbody.add_body(name=str(i))
        body.add_freejoint()
        add_geom(spec, body, own, str(i), density=1.0, contype=0, conaffinity=0)
    try:
        compiled = spec.compile()
    except Exception as error:
        named = re.search(r"name '(\d+)'", str(error))
        prim = solid[int(named[1])].prim if named else usd.stage.GetPseudoRoot()
        raise usd.fault(prim, str(error).strip()) from error
    for i, own in enumerate(solid):
        b = compiled.body(str(i)).id
        axes = rotation(compiled.body_iquat[b])
        own.volume = float(compiled.body_mass[b])
        own.center = np.array(compiled.body_ipos[b])
        own.inertia = (axes * compiled.body_inertia[b]) @ axes.T


def add_geom(spec: Any, body: Any, own: Collider, name: str, **more: Any) -> Any:
    """Add a collider to a body of a spec, with its mesh; the new geom."""
    geom = {k: np.asarray(v, float) if isinstance(v, tuple) else v for k, v in own.geom.items()}
    geom["type"] = int(geom["type"])
    if own.mesh is not None:
        spec.add_mesh(name=name, **own.mesh)
        geom["meshname"] = name
    return body.add_geom(name=name, pos=own.pose[:3, 3], quat=quaternion(own.pose[:3, :3]), **geom, **more)


@dataclasses.dataclass
class Mass:
    """What a body's inertia is."""

    mass: float  # [kg]
    center: np.ndarray  # in the body [m]
    inertia: np.ndarray  # about it, (3, 3) [kg m²]


def mass_of(usd: Stage, prim: Any, body: np.ndarray, own: list[Collider]) -> Mass:
    """The mass of a body: its own, or that of its colliders, by their masses or densities, as UsdPhysics has it.

    MuJoCo's ``inertiaFromGeom`` makes it that of its colliders, if it has any.
    """
    square = usd.mass * usd.length**2
    density = usd.mass / usd.length**3
    whole = usd.get(prim, "physics:density", 0.0) * density

    words = ("false", "true", "auto")
    by_shapes = any(usd.get(s, "mjc:compiler:inertiaFromGeom", "auto", words) == "true" for s in usd.scenes[:1])

    def said(name: str, default: Any = None) -> Any:
        value = usd.get(prim, name, default)
        return default if own and by_shapes else value

    parts = []
    for part in own:
        mass = 0.0 if part.prim == prim else usd.get(part.prim, "physics:mass", 0.0) * usd.mass
        dense = usd.get(part.prim, "physics:density", 0.0) * density or whole
        if not dense and part.material:
            dense = usd.get(part.material, "physics:density", 0.0) * density
        mass = mass or part.volume * (dense or DENSITY)
        parts.append((mass, part))
        if part.prim != prim and usd.has(part.prim, "physics:diagonalInertia"):
            usd.note(part.prim, "its diagonalInertia is not read: that of a body is")
    total = sum(mass for mass, _ in parts)
    center = sum((mass * part.center for mass, part in parts), np.zeros(3)) / (total or 1.0)
    given = said("physics:mass", 0.0) * usd.mass
    if given < 0:
        raise usd.fault(prim, f"its mass is {given}, must not be negative")
    factor = given / total if given and total else 1.0
    com = said("physics:centerOfMass")
    if com is not None and np.isfinite(com).all():
        center = (np.linalg.inv(body) @ usd.transform(prim) @ [*com, 1])[:3]
    inertia = np.zeros((3, 3))
    for mass, part in parts:
        arm = part.center - center
        own_inertia = part.inertia * (mass / part.volume if part.volume else 0.0)
        inertia += factor * (own_inertia + mass * (arm @ arm * np.eye(3) - np.outer(arm, arm)))
    diagonal = said("physics:diagonalInertia", np.zeros(3))
    axes = said("physics:principalAxes", np.zeros(4))
    full = said("newton:inertia")
    if full is not None and len(full) == 6:
        xx, yy, zz, xy, xz, yz = full
        inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) * square
    elif np.any(diagonal):
        turn = rotation(axes) if np.any(axes) else np.eye(3)
        inertia = (turn * diagonal) @ turn.T * square
    if not (np.isfinite([given or total, *center]).all() and np.isfinite(inertia).all()):
        raise usd.fault(prim, "its mass, centre of mass or inertia is not finite")
    return Mass(given or total, center, inertia)


def filters(
    usd: Stage, colliders: list[Collider], bodies: dict[Any, list[Collider]], apart: list[set[Collider]]
) -> list[tuple[int, int]]:
    """contype and conaffinity of colliders, from collision groups and filtered pairs.

    Args:
        bodies: the colliders of each, by path.
        apart: sets of colliders that do not touch one another.
    """
    physics = pxr("UsdPhysics")
    groups, filtered = {}, [(own, own) for own in apart]
    for prim in usd.prims:
        if prim.IsA(physics.CollisionGroup):
            query = physics.CollisionGroup(prim).GetCollidersCollectionAPI().ComputeMembershipQuery()
            groups[prim.GetPath()] = {own for own in colliders if query.IsPathIncluded(own.prim.GetPath())}
            usd.ask(prim, "physics:filteredGroups", "physics:mergeGroup", "physics:invertFilteredGroups")
        if prim.HasAPI(physics.FilteredPairsAPI):
            one = _below(prim, colliders, bodies)
            filtered += [(one, _below(t, colliders, bodies)) for t in usd.targets(prim, "physics:filteredPairs")]
    table = physics.CollisionGroup.ComputeCollisionGroupTable(usd.stage)

    def label(own: Collider) -> tuple[frozenset[Any], frozenset[Any]]:
        pairs = {(i, side) for i, pair in enumerate(filtered) for side in (0, 1) if own in pair[side]}
        return frozenset(path for path, members in groups.items() if own in members), frozenset(pairs)

    def touch(a: Any, b: Any) -> bool:
        off = any((i, 1 - side) in b[1] for i, side in a[1])
        return not off and all(table.IsCollisionEnabled(x, y) for x in a[0] for y in b[0])

    labels = [label(own) for own in colliders]
    classes = list(dict.fromkeys(labels))
    if len(classes) > _CLASSES:
        usd.refused.append(
            f"{len(classes)} kinds of colliders by groups and filtered pairs: MuJoCo has {_CLASSES} bits"
        )
        return [(1, 1)] * len(colliders)
    masks = {a: sum(1 << i for i, b in enumerate(classes) if touch(a, b)) for a in classes}
    return [(1 << classes.index(a), masks[a]) for a in labels]


def _below(prim: Any, colliders: list[Collider], bodies: dict[Any, list[Collider]]) -> set[Collider]:
    """The colliders of a body, or those at and below any other prim."""
    if prim.GetPath() in bodies:
        return set(bodies[prim.GetPath()])
    return {own for own in colliders if own.prim.GetPath().HasPrefix(prim.GetPath())}


def rotation(quat: Any) -> np.ndarray:
    """The rotation matrix of a quaternion (w, x, y, z) of any length, (3, 3)."""
    w, x, y, z = np.asarray(quat, float) / np.linalg.norm(quat)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def quaternion(matrix: np.ndarray) -> np.ndarray:
    """The unit quaternion (w, x, y, z) of a rotation matrix: the eigenvector of the largest eigenvalue."""
    m = matrix
    k = np.array(
        [
            [m[0, 0] + m[1, 1] + m[2, 2], m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]],
            [0, m[0, 0] - m[1, 1] - m[2, 2], m[0, 1] + m[1, 0], m[0, 2] + m[2, 0]],
            [0, 0, m[1, 1] - m[0, 0] - m[2, 2], m[1, 2] + m[2, 1]],
            [0, 0, 0, m[2, 2] - m[0, 0] - m[1, 1]],
        ]
    )
    own = np.linalg.eigh(np.triu(k) + np.triu(k, 1).T)[1][:, -1]
    return own if own[0] >= 0 else -own
