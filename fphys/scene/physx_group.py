"""What moves together in a scene, in all worlds at once: PhysX's arrays of it, its gains and where it begins."""

import importlib
import warnings
from typing import Any

import numpy as np

from ..model.structure import JointType
from .physx_stage import Tree, inertia, poses, quat

NUMBERS = np.dtype(np.float32)  # PhysX computes in single precision
NEVER = 1e12  # a force that is no limit [N or N m]
_ALONE = {"LINK_POSE": "RIGID_BODY_POSE", "LINK_VELOCITY": "RIGID_BODY_VELOCITY"}
_ALONE |= {"LINK_ACCELERATION": "RIGID_BODY_ACCELERATION"}


class Group:
    """A tree of a scene in all worlds.

    Arrays are (world, link, ...) or (world, dof). Coordinates are PhysX's, zero where MuJoCo's are ``qpos0``.
    """

    def __init__(self, engine: Any, tree: Tree, m: Any, places: np.ndarray) -> None:
        self._engine, self.tree, self.places = engine, tree, places
        worlds, at = len(places), poses(m)
        self._bound: dict[str, Any] = {}
        self._seen: dict[str, np.ndarray] = {}
        names, dofs = [f"b{tree.links[0]}"], []
        if not tree.alone:
            bound = self._bind("DOF_POSITION" if tree.joints else "LINK_POSE")
            names, dofs = bound.body_names, bound.dof_names
        self.links = {int(name[1:]): k for k, name in enumerate(names) if name[1:].isdigit()}
        self.centre = np.zeros((len(names), 3), NUMBERS)  # of mass, in the link's frame [m]
        for b, k in self.links.items():
            members = np.flatnonzero(m.body_weldid == b)
            self.centre[k] = inertia(m, members, np.linalg.inv(at[b]) @ at[members])[1]
        joints = [int(name[1:].partition(":")[0]) for name in dofs]
        single = [j if m.jnt_type[j] != JointType.BALL else -1 for j in joints]
        self.joints = single  # MuJoCo's number of the joint of each dof, -1 in a ball
        own = [(j, m.jnt_qposadr[j]) for j in joints]
        self.zero = np.array([m.qpos0[q] if k >= 0 else 0.0 for k, (j, q) in zip(single, own, strict=True)])
        self.spring = np.array([m.jnt_stiffness[j] if k >= 0 else 0.0 for k, (j, q) in zip(single, own, strict=True)])
        rest = [m.qpos_spring[q] - m.qpos0[q] if k >= 0 else 0.0 for k, (j, q) in zip(single, own, strict=True)]
        free = [(-np.inf, np.inf) if k < 0 or not m.jnt_limited[j] else m.jnt_range[j] for k, j in zip(single, joints)]
        self.range = np.reshape(free, (-1, 2)) - self.zero[:, None]
        self._rest = np.array(rest)
        home = at[tree.links[0]]
        self.name, self.home = m.body(tree.links[0]).name, home[:3, 3]  # of the first link, and where it begins [m]
        self._pose = np.concatenate([places + self.home, np.tile(quat(home[:3, :3]), (worlds, 1))], 1, dtype=NUMBERS)
        self.start = np.zeros((worlds, len(joints)), NUMBERS)
        self.force, self.velocity = np.zeros_like(self.start), np.zeros_like(self.start)
        self._target = np.zeros_like(self.start)
        self._drive: tuple[np.ndarray, ...] = ()

    def read(self, kind: str) -> np.ndarray:
        """The present numbers of a kind of PhysX's tensors, copied out of it once a step."""
        if kind not in self._seen:
            bound = self._bind(kind)
            out = np.empty(bound.shape, NUMBERS)
            bound.read(out)
            out = out[:, None] if self.tree.alone else out
            if kind == "LINK_POSE":
                out[:, :, :3] -= self.places[:, None]
            self._seen[kind] = out
        return self._seen[kind]

    def write(self, kind: str, value: np.ndarray) -> None:
        """Set the numbers of a kind: float32, contiguous."""
        self._bind(kind).write(value)

    def keep(self, kind: str, value: np.ndarray) -> None:
        """Have a kind's numbers be these until the next step."""
        self._seen[kind] = value

    def forget(self) -> None:
        """Read anew: a step was made."""
        self._seen.clear()

    def place(self) -> None:
        """Put everything where it begins, at rest."""
        self.forget()
        still = np.zeros((len(self.places), 6), NUMBERS)
        if self.tree.alone:
            self.write("LINK_POSE", self._pose)
            self.write("LINK_VELOCITY", still)
            return
        if self.tree.floating:
            self.write("ROOT_POSE", self._pose)
            self.write("ROOT_VELOCITY", still)
        if self.joints:
            self.write("DOF_POSITION", self.start)
            self.write("DOF_VELOCITY", np.zeros_like(self.start))

    def drive(self, kp: np.ndarray, kd: np.ndarray, limit: np.ndarray) -> None:
        """Set the gains and limits of the drives, (dof,). A joint's own spring is a part of its drive."""
        if not self.joints:
            return
        whole = self.spring + kp
        self._drive, self._share = (whole, kd), (kp / np.maximum(whole, 1e-30)).astype(NUMBERS)
        self._still = (self._rest * (1 - self._share) - self._share * self.zero).astype(NUMBERS)
        self.write("DOF_MAX_FORCE", self._all(np.minimum(limit, NEVER)))
        self.let_go()

    def hold(self) -> None:
        """Have the drives act."""
        for kind, value in zip(("DOF_STIFFNESS", "DOF_DAMPING"), self._drive, strict=True):
            self.write(kind, self._all(value))

    def let_go(self) -> None:
        """Have only the joints' own springs act."""
        if not self.joints:
            return
        self.force[:], self.velocity[:], self._target[:] = 0.0, 0.0, self._rest
        self.write("DOF_STIFFNESS", self._all(self.spring))
        self.write("DOF_DAMPING", self._all(np.zeros_like(self.spring)))
        self.write("DOF_POSITION_TARGET", self._target)
        self.write("DOF_VELOCITY_TARGET", self.velocity)
        self.write("DOF_ACTUATION_FORCE", self.force)

    def aim(self, dofs: Any, target: np.ndarray) -> None:
        """Set targets of position [m or rad], (world, dof): with a spring, where both together rest."""
        self._target[:, dofs] = self._still[dofs] + self._share[dofs] * target
        self.write("DOF_POSITION_TARGET", self._target)

    def _all(self, value: np.ndarray) -> np.ndarray:
        return np.tile(value, (len(self.start), 1)).astype(NUMBERS)

    def _bind(self, kind: str) -> Any:
        if kind not in self._bound:
            name = _ALONE[kind] if self.tree.alone else f"ARTICULATION_{kind}"
            self._bound[kind] = binding(self._engine, self.tree.root, name)
        return self._bound[kind]


def binding(engine: Any, pattern: str, kind: str) -> Any:
    """An array over all worlds, to read or write at once, worlds in their order."""
    kinds = importlib.import_module("ovphysx.types").TensorType
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # they go with the version, which is fixed
        bound = engine.create_tensor_binding(pattern=pattern, tensor_type=kinds[kind], raise_if_empty=True)
    assert bound.prim_paths == sorted(bound.prim_paths)
    return bound
