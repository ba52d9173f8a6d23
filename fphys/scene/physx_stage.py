"""The stage that PhysX reads: a compiled scene as columns of an ``ovstage.Stage``, the worlds beside one another.

Bodies without joints between them are one link. PhysX has one joint between two links, so a body with several joints
hangs on a chain of light links, one for each joint. A mechanism that hangs on the world hangs on a link that is held
there. A joint's coordinate is zero in the pose that the file has at ``qpos0``.
"""

import dataclasses
import importlib
from typing import Any

import numpy as np

from ..model.structure import GeomType, JointType

ORDINAL = 1
WORLD = "/World/w{:05d}"
EVERY = "/World/w*"
_LIGHT = 1e-4  # mass and inertia of a link between two joints of a body, relative to those of the body
_BASE = 1.0  # mass [kg] and inertia [kg m^2] of a link that is held in the world, which never count
_FAST = 1e8  # largest angular velocity of a body [deg/s], where PhysX's own is 100 rad/s
_HULL = 255  # most vertices of a convex hull
_DEGREE = np.pi / 180


@dataclasses.dataclass(frozen=True, eq=False)
class Tree:
    """What moves together: a free body, or an articulation."""

    links: tuple[int, ...]  # first bodies of the links, the root's first
    joints: tuple[int, ...]  # hinges, slides and balls, as MuJoCo numbers them
    floating: bool

    @property
    def alone(self) -> bool:
        """Whether it is one free body, and so no articulation."""
        return self.floating and len(self.links) == 1

    @property
    def folder(self) -> str:
        """Name of the prim that holds its links."""
        return f"t{self.links[0]}"

    @property
    def root(self) -> str:
        """Path of the prim that is its root, as a pattern for all worlds."""
        return f"{EVERY}/{self.folder}/{f'b{self.links[0]}' if self.floating else 'held'}"


def trees(m: Any) -> list[Tree]:
    """What moves in a compiled scene, a ``mujoco.MjModel``."""
    found: dict[int, list[int]] = {}
    for b in range(1, m.nbody):
        if m.body_weldid[b] == b:
            found.setdefault(_root(m, b), []).append(b)
    return [
        Tree(
            tuple(links),
            tuple(j for b in links for j in _joints(m, b) if m.jnt_type[j] != JointType.FREE),
            bool(m.jnt_type[m.body_jntadr[root]] == JointType.FREE),
        )
        for root, links in found.items()
    ]


def _root(m: Any, body: int) -> int:
    while above := int(m.body_weldid[m.body_parentid[body]]):
        body = above
    return body


def _joints(m: Any, body: int) -> list[int]:
    """The joints between a body and its parent, the one next to the parent first."""
    return list(range(m.body_jntadr[body], m.body_jntadr[body] + m.body_jntnum[body]))


def poses(m: Any) -> np.ndarray:
    """Poses of all bodies in the world at ``qpos0``, shape (body, 4, 4)."""
    made = np.tile(np.eye(4), (m.nbody, 1, 1))
    for b in range(1, m.nbody):
        made[b] = made[m.body_parentid[b]] @ pose(m.body_pos[b], m.body_quat[b])
    return made


def pose(pos: Any, quat: Any) -> np.ndarray:
    """A pose as a matrix, (4, 4); the quaternion is (w, x, y, z)."""
    w, x, y, z = np.asarray(quat, float) / np.linalg.norm(quat)
    made = np.eye(4)
    made[:3, :3] += 2 * np.array(
        [
            [-y * y - z * z, x * y - w * z, x * z + w * y],
            [x * y + w * z, -x * x - z * z, y * z - w * x],
            [x * z - w * y, y * z + w * x, -x * x - y * y],
        ]
    )
    made[:3, 3] = pos
    return made


def quat(turn: np.ndarray) -> list[float]:
    """A rotation as a quaternion (x, y, z, w), PhysX's order: an eigenvector (Bar-Itzhack 2000)."""
    (a, b, c), (d, e, f), (g, h, i) = turn
    k = [
        [a - e - i, b + d, c + g, h - f],
        [b + d, e - a - i, f + h, c - g],
        [c + g, f + h, i - a - e, d - b],
        [h - f, c - g, d - b, a + e + i],
    ]
    found = np.linalg.eigh(np.array(k))[1][:, -1]
    return (found if found[3] >= 0 else -found).tolist()


def inertia(m: Any, bodies: Any, own: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass [kg], its centre [m], and inertia about it [kg m^2] of bodies, whose poses in a frame are (body, 4, 4)."""
    placed = [at @ pose(m.body_ipos[b], m.body_iquat[b]) for b, at in zip(bodies, own, strict=True)]
    mass = m.body_mass[list(bodies)]
    centre = sum(w * at[:3, 3] for w, at in zip(mass, placed, strict=True)) / max(mass.sum(), 1e-12)
    whole = np.zeros((3, 3))
    for b, w, at in zip(bodies, mass, placed, strict=True):
        arm = at[:3, 3] - centre
        whole += at[:3, :3] @ np.diag(m.body_inertia[b]) @ at[:3, :3].T + w * (
            arm @ arm * np.eye(3) - np.outer(arm, arm)
        )
    return float(mass.sum()), centre, whole


def _row(matrix: np.ndarray, scale: Any = (1.0, 1.0, 1.0)) -> list[float]:
    """A pose as USD has it, for row vectors."""
    scaled = matrix.copy()
    scaled[:3, :3] *= scale
    return scaled.T.ravel().tolist()


class Author:
    """Writes prims into an empty ``ovstage.Stage``, each of them in every world.

    Args:
        m: the compiled scene, a ``mujoco.MjModel``.
        places: where the worlds stand [m], shape (world, 3).
        friction: sliding friction of bodies' geoms where it differs from world to world, shape (world,).
        mass: mass of bodies where it differs from world to world [kg], shape (world,).
        felt: bodies whose contact forces are reported.
    """

    def __init__(
        self,
        stage: Any,
        m: Any,
        places: np.ndarray,
        friction: dict[int, np.ndarray],
        mass: dict[int, np.ndarray],
        felt: set[int],
    ) -> None:
        self._population: Any = importlib.import_module("ovphysx.population")
        self._library: Any = importlib.import_module("ovstage")
        self._dictionary = self._library.PathDictionary(stage)
        self._stage, self._m, self._places = stage, m, places
        self._friction, self._mass, self._felt = friction, mass, felt
        self._at = poses(m)
        self._groups: dict[tuple[int, int], list[str]] = {}  # paths of geoms by contype and conaffinity
        self._materials: dict[float, list[str]] = {}
        self._apart: dict[int, set[int]] = {}  # links that do not touch, by the first of the two
        for signature in m.exclude_signature:
            a, b = (int(m.body_weldid[body]) for body in (signature >> 16, signature & 0xFFFF))
            self._apart.setdefault(a or b, set()).add(b if a else 0)

    def write(self) -> list[Tree]:
        """Write everything, and seal it; returns what moves."""
        m, found = self._m, trees(self._m)
        self._scene()
        paths = {b: f"{tree.folder}/b{b}" for tree in found for b in tree.links}
        for tree in found:
            self._new([tree.folder]).define_xform().write(self._stage, ORDINAL)
            if not tree.floating:
                self._hold(tree)
            for b in tree.links:
                self._link(tree, b, paths)
        for g in range(m.ngeom):
            if m.geom_contype[g] or m.geom_conaffinity[g]:
                self._geom(g, paths)
        self._filter()
        self._stage.advance_write_floor(ordinal=ORDINAL).wait()
        return found

    def _new(self, names: list[str]) -> Any:
        """A batch of prims in every world: the worlds of the first name, then those of the next."""
        return self._population.PrimBatch(self._dictionary, [p for name in names for p in self._paths(name)])

    def _one(self, path: str) -> Any:
        return self._population.PrimBatch(self._dictionary, [path])

    def _paths(self, name: str) -> list[str]:
        return [f"{WORLD.format(k)}/{name}" for k in range(len(self._places))]

    def _same(self, value: Any) -> list[Any]:
        return [value] * len(self._places)

    def _targets(self, name: str) -> list[list[str]]:
        return [[path] for path in self._paths(name)]

    def _scene(self) -> None:
        m = self._m
        self._population.write_stage_units(self._stage, self._dictionary, ORDINAL)
        strength = float(np.linalg.norm(m.opt.gravity))
        down = (m.opt.gravity / strength).tolist() if strength else [0.0, 0.0, -1.0]
        batch = self._one("/scene").define_physics_scene(gravity_direction=[down], gravity_magnitude=[strength])
        batch.apply_physx_scene_api(
            time_steps_per_second=[max(1, round(1 / m.opt.timestep))],
            enable_gpudynamics=[False],
            broadphase_type=["SAP"],
            disable_sleeping=[True],
        ).write(self._stage, ORDINAL)
        self._one("/World").define_xform().write(self._stage, ORDINAL)
        worlds = [WORLD.format(k) for k in range(len(self._places))]
        batch = self._population.PrimBatch(self._dictionary, worlds)
        frames = [_row(pose(place, (1, 0, 0, 0))) for place in self._places]
        batch.define_xform(local_matrix=frames).write(self._stage, ORDINAL)

    def _body(
        self, name: str, at: np.ndarray, weight: Any, root: bool = False, felt: bool = False, apart: Any = ()
    ) -> None:
        """A rigid body in every world; ``weight`` is its mass, (world,), its centre and its inertia about it."""
        mass, centre, whole = weight
        moments, axes = np.linalg.eigh(whole)
        if np.linalg.det(axes) < 0:
            axes[:, 0] *= -1
        batch = self._new([name]).define_xform(local_matrix=self._same(_row(at)))
        batch.apply_physics_rigid_body_api()
        batch.apply_physx_rigid_body_api(angular_damping=self._same(0.0), max_angular_velocity=self._same(_FAST))
        batch.apply_physics_mass_api(
            mass=mass.tolist(),
            center_of_mass=self._same(np.asarray(centre, float).tolist()),
            diagonal_inertia=[(moments * ratio).tolist() for ratio in mass / mass[0]],
            principal_axes=self._same(quat(axes)),
        )
        if root:
            batch.apply_physics_articulation_root_api()
            batch.apply_physx_articulation_api(sleep_threshold=self._same(0.0), stabilization_threshold=self._same(0.0))
        if felt:
            batch.apply_physx_contact_report_api(threshold=self._same(0.0))
        if apart:
            batch.apply_physics_filtered_pairs_api(
                filtered_pairs=[list(targets) for targets in zip(*(self._paths(other) for other in apart), strict=True)]
            )
        batch.write(self._stage, ORDINAL)

    def _hold(self, tree: Tree) -> None:
        """The link that holds a mechanism in the world, and the joint that holds the link."""
        at = self._at[self._m.body_parentid[tree.links[0]]]
        base = f"{tree.folder}/base"
        self._body(base, at, (np.full(len(self._places), _BASE), np.zeros(3), _BASE * np.eye(3)))
        turned = self._same(quat(at[:3, :3]))
        joint = self._new([f"{tree.folder}/held"]).define_physics_fixed_joint(
            local_pos0=(self._places + at[:3, 3]).tolist(), local_rot0=turned, body1=self._targets(base)
        )
        joint.apply_physics_articulation_root_api()
        joint.apply_physx_articulation_api(sleep_threshold=self._same(0.0), stabilization_threshold=self._same(0.0))
        joint.write(self._stage, ORDINAL)

    def _link(self, tree: Tree, b: int, paths: dict[int, str]) -> None:
        """A link, the joints between it and its parent, and the light links between these."""
        m, at = self._m, self._at
        members = np.flatnonzero(m.body_weldid == b)
        mass, centre, whole = inertia(m, members, np.linalg.inv(at[b]) @ at[members])
        masses = self._mass.get(b, np.full(len(self._places), mass))
        joints = [j for j in _joints(m, b) if m.jnt_type[j] != JointType.FREE]
        parent, above = int(m.body_weldid[m.body_parentid[b]]), f"{tree.folder}/base"
        if parent:
            above = paths[parent]
        apart = {paths[other] for other in self._apart.get(b, ()) if other}
        if len(joints) > 1 and parent:
            apart.add(above)
        root = b == tree.links[0] and tree.floating and not tree.alone
        self._body(paths[b], at[b], (masses, centre, whole), root, b in self._felt, apart)
        for k, j in enumerate(joints):
            below = paths[b] if j == joints[-1] else f"{tree.folder}/light{j}"
            if below != paths[b]:
                small = _LIGHT * (np.trace(whole) + masses[0] * centre @ centre) / 3 * np.eye(3)
                self._body(below, at[b], (_LIGHT * masses, np.zeros(3), small))
            where = np.linalg.inv(at[parent if parent else m.body_parentid[b]]) @ at[b] if k == 0 else np.eye(4)
            self._joint(f"{tree.folder}/j{j}", j, above, below, where)
            above = below

    def _joint(self, name: str, j: int, above: str, below: str, where: np.ndarray) -> None:
        """A joint between two links; ``where`` is the pose of the lower one in the upper one, (4, 4)."""
        m = self._m
        kind, dof = int(m.jnt_type[j]), int(m.jnt_dofadr[j])
        own = np.eye(4)
        own[:3, :3], own[:3, 3] = _along(m.jnt_axis[j]), m.jnt_pos[j]
        upper = where @ own
        frames: dict[str, Any] = {
            "local_pos0": self._same(upper[:3, 3].tolist()),
            "local_rot0": self._same(quat(upper[:3, :3])),
            "local_pos1": self._same(own[:3, 3].tolist()),
            "local_rot1": self._same(quat(own[:3, :3])),
            "body0": self._targets(above),
            "body1": self._targets(below),
        }
        batch = self._new([name])
        if kind == JointType.BALL:
            batch.define_physics_spherical_joint(axis=self._same("X"), **frames)
            axes, unit = ("rotX", "rotY", "rotZ"), _DEGREE
        else:
            turns = kind == JointType.HINGE
            unit = _DEGREE if turns else 1.0
            low, high = m.jnt_range[j] - m.qpos0[m.jnt_qposadr[j]] if m.jnt_limited[j] else (-np.inf, np.inf)
            limits = {"lower_limit": self._same(low / unit), "upper_limit": self._same(high / unit)}
            define = batch.define_physics_revolute_joint if turns else batch.define_physics_prismatic_joint
            define(axis=self._same("X"), **limits, **frames)
            axes = ("angular" if turns else "linear",)
            batch.apply_physics_drive_api(axes[0], stiffness=self._same(0.0), damping=self._same(0.0))
        loss = float(m.dof_frictionloss[dof])
        for axis in axes:
            batch.apply_physx_joint_axis_api(
                axis,
                armature=self._same(float(m.dof_armature[dof])),
                static_friction_effort=self._same(loss),
                dynamic_friction_effort=self._same(loss),
                viscous_friction_coefficient=self._same(float(m.dof_damping[dof]) * unit),
            )
        batch.write(self._stage, ORDINAL)

    def _geom(self, g: int, paths: dict[int, str]) -> None:
        m, body = self._m, int(self._m.geom_bodyid[g])
        link, kind, size = int(m.body_weldid[body]), GeomType(int(m.geom_type[g])), m.geom_size[g]
        at = np.linalg.inv(self._at[link]) @ self._at[body] @ pose(m.geom_pos[g], m.geom_quat[g])
        name = f"{paths[link]}/g{g}" if link else f"g{g}"
        batch, points = self._new([name]), None
        if kind == GeomType.PLANE:  # it never ends, so one serves all worlds
            name, batch = f"/World/g{g}", self._one(f"/World/g{g}")
            batch.define_plane(local_matrix=[_row(at)], axis=["Z"])
        else:
            points = _SHAPES[kind](self, batch, g, at, size)
        batch.apply_physics_collision_api()
        batch.apply_physx_collision_api(rest_offset=[0.0] if kind == GeomType.PLANE else self._same(0.0))
        own = self._friction.get(body)
        if own is None:
            own = np.full(len(self._places), m.geom_friction[g, 0] if m.geom_condim[g] > 1 else 0.0)
        bound = [[self._material(float(mu))] for mu in own]
        batch.apply_material_binding_api(material_binding_physics=bound[:1] if kind == GeomType.PLANE else bound)
        batch.write(self._stage, ORDINAL)
        if points is not None:
            self._write_points(self._paths(name), points)
        masks = int(m.geom_contype[g]), int(m.geom_conaffinity[g])
        self._groups.setdefault(masks, []).extend([name] if kind == GeomType.PLANE else self._paths(name))

    def _write_points(self, paths: list[str], points: np.ndarray) -> None:
        """The points of meshes, which ovphysx 0.7 itself writes in a layout that ovstage refuses."""
        lib = self._library
        vector = lib.numpy_to_dldatatype(np.float32, lanes=3)
        tensor = lib.make_dltensor(np.ascontiguousarray(points, np.float32), dtype=vector, shape=[len(points)], ndim=1)
        listed = self._dictionary.create_path_list_from_strings(paths)
        query = self._stage.query_from_path_list(listed)
        point = lib.AttributeSemantic.POINT
        self._stage.write_attribute(
            query, "points", ORDINAL, [tensor] * len(paths), is_array=True, semantic=point
        ).wait()
        self._stage.release_query(query).wait()
        self._dictionary.destroy_path_list(listed)

    def _material(self, mu: float) -> str:
        """Path of the material of a sliding friction; of two that touch, the larger one holds, as in MuJoCo."""
        if mu not in self._materials:
            path = f"/World/m{len(self._materials)}"
            batch = self._one(path).define_material()
            batch.apply_physics_material_api(static_friction=[mu], dynamic_friction=[mu], restitution=[0.0])
            batch.apply_physx_material_api(friction_combine_mode=["max"], restitution_combine_mode=["max"])
            batch.write(self._stage, ORDINAL)
            self._materials[mu] = [path]
        return self._materials[mu][0]

    def _filter(self) -> None:
        """Groups of geoms that may not touch, from their contype and conaffinity."""
        masks = list(self._groups)
        names = {mask: f"/World/c{i}" for i, mask in enumerate(masks)}
        for a in masks:
            never = [names[b] for b in masks if not (a[0] & b[1] or b[0] & a[1])]
            batch = self._one(names[a])
            batch.define_physics_collision_group(includes=[self._groups[a]], filtered_groups=[never])
            batch.write(self._stage, ORDINAL)

    def _box(self, batch: Any, g: int, at: np.ndarray, size: np.ndarray) -> None:
        batch.define_cube(local_matrix=self._same(_row(at, size)), size=self._same(2.0))

    def _sphere(self, batch: Any, g: int, at: np.ndarray, size: np.ndarray) -> None:
        batch.define_sphere(local_matrix=self._same(_row(at)), radius=self._same(float(size[0])))

    def _capsule(self, batch: Any, g: int, at: np.ndarray, size: np.ndarray) -> None:
        batch.define_capsule(local_matrix=self._same(_row(at)), **self._round(size))

    def _cylinder(self, batch: Any, g: int, at: np.ndarray, size: np.ndarray) -> None:
        batch.define_cylinder(local_matrix=self._same(_row(at)), **self._round(size))

    def _round(self, size: np.ndarray) -> dict[str, Any]:
        same = self._same
        return {"radius": same(float(size[0])), "height": same(2 * float(size[1])), "axis": same("Z")}

    def _hull(self, batch: Any, g: int, at: np.ndarray, size: np.ndarray) -> np.ndarray:
        m, mesh = self._m, int(self._m.geom_dataid[g])
        points = m.mesh_vert[m.mesh_vertadr[mesh] :][: m.mesh_vertnum[mesh]]
        self._mesh(batch, at, m.mesh_face[m.mesh_faceadr[mesh] :][: m.mesh_facenum[mesh]], "convexHull")
        batch.apply_physics_collision_api().apply_physx_convex_hull_collision_api(hull_vertex_limit=self._same(_HULL))
        return points

    def _field(self, batch: Any, g: int, at: np.ndarray, size: np.ndarray) -> np.ndarray:
        m, field = self._m, int(self._m.geom_dataid[g])
        rows, cols = int(m.hfield_nrow[field]), int(m.hfield_ncol[field])
        reach_x, reach_y, top, _ = m.hfield_size[field]
        heights = m.hfield_data[m.hfield_adr[field] :][: rows * cols].reshape(rows, cols) * top
        x, y = np.meshgrid(np.linspace(-reach_x, reach_x, cols), np.linspace(-reach_y, reach_y, rows))
        points = np.stack([x, y, heights], -1).reshape(-1, 3)
        at_corner = (np.arange(rows - 1)[:, None] * cols + np.arange(cols - 1)).ravel()
        a, b, c, d = at_corner, at_corner + 1, at_corner + cols + 1, at_corner + cols
        self._mesh(batch, at, np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)]), "none")
        return points

    def _mesh(self, batch: Any, at: np.ndarray, faces: np.ndarray, kind: str) -> None:
        batch.define_mesh(
            local_matrix=self._same(_row(at)),
            face_vertex_indices=self._same(faces.ravel().tolist()),
            face_vertex_counts=self._same([3] * len(faces)),
        )
        batch.apply_physics_mesh_collision_api(approximation=self._same(kind))


_SHAPES = {
    GeomType.BOX: Author._box,
    GeomType.SPHERE: Author._sphere,
    GeomType.CAPSULE: Author._capsule,
    GeomType.CYLINDER: Author._cylinder,
    GeomType.MESH: Author._hull,
    GeomType.HFIELD: Author._field,
}


def _along(axis: Any) -> np.ndarray:
    """A rotation that turns x to an axis, (3, 3)."""
    x = np.asarray(axis, float) / np.linalg.norm(axis)
    side = np.eye(3)[np.abs(x).argmin()]
    y = np.cross(side, x)
    y /= np.linalg.norm(y)
    return np.stack([x, y, np.cross(x, y)], 1)
