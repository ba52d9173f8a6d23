"""States in contact in which gradients are taken: sliding, sticking, deep, on an edge, parting, straight."""

import functools
from typing import Any, NamedTuple

import mujoco
import numpy as np

import fphys
from fphys import oracle

from ..parity import corpus

NAMES = (*corpus.SCENES, "ant", "humanoid", "stack of boxes, elliptic", "capsules on a box")
STEADY = {
    "franka pushing a box",
    "hand grasping a ball",
    "box on a plane",
    "ball on a slope",
    "stack of boxes, elliptic",
}
"""These start near their reference position, where they touch."""


class Start(NamedTuple):
    """States and controls, world axis first."""

    qpos: np.ndarray
    qvel: np.ndarray
    ctrl: np.ndarray

    def state(self, of: fphys.Model) -> fphys.State:
        real = of.qpos0.dtype
        return fphys.init(of, len(self.qpos), qpos=self.qpos.astype(real), qvel=self.qvel.astype(real))

    def take(self, which: Any) -> "Start":
        return Start(*(x[which] for x in self))


@functools.cache
def along(name: str, count: int, seed: int = 0) -> Start:
    """States in contact along MuJoCo's trajectories under random actions; where cones are elliptic and there is
    friction, in a quarter at least a contact slides."""
    m = corpus.case(name).structure.source
    slippery = m.opt.cone == mujoco.mjtCone.mjCONE_ELLIPTIC and (m.geom_condim > 1).any()
    few = max(1, count // 4) if slippery else 0
    rng, d, rows, sliding = np.random.default_rng(seed), mujoco.MjData(m), [], []
    while len(rows) < count or sum(sliding) < few:
        begin(name, m, d, rng)
        first = int(rng.integers(0, 10))
        for t in range(150):
            if t % 10 == 0:
                d.ctrl[:] = oracle.action(m, rng)
                if name.startswith("hand"):
                    d.ctrl[:] = 0.6 * m.actuator_ctrlrange[:, 1] * rng.uniform(0.5, 1, m.nu)
            before = (d.qpos.copy(), d.qvel.copy(), d.ctrl.copy())
            mujoco.mj_step(m, d)
            if t % 10 == first and d.ncon and d.efc_force[d.contact.efc_address[d.contact.efc_address >= 0]].any():
                rows.append(before)
                sliding.append(slides(d))
    order = rng.permutation(len(rows)).tolist()
    needed = [i for i in order if sliding[i]][:few]
    keep = sorted([*needed, *(i for i in order if i not in needed)][:count], key=order.index)
    return Start(*(np.array([rows[i][k] for i in keep]) for k in range(3)))


def slides(d: mujoco.MjData) -> bool:
    """Whether a contact with an elliptic cone slides."""
    rows = d.contact.efc_address[d.contact.efc_address >= 0]
    return bool((d.efc_state[rows] == mujoco.mjtConstraintState.mjCNSTRSTATE_CONE).any())


def begin(name: str, m: mujoco.MjModel, d: mujoco.MjData, rng: np.random.Generator) -> None:
    """Near the reference position or the file's key: sliding, sticking or falling."""
    mujoco.mj_resetData(m, d)
    if m.nkey:
        mujoco.mj_resetDataKeyframe(m, d, 0)
    size = 0.003 if name in STEADY else 0.15
    mujoco.mj_integratePos(m, d.qpos, size * rng.standard_normal(m.nv), 1.0)
    if rng.uniform() < 0.5:
        d.qvel[:] = (0.3 if name in STEADY else 0.5) * rng.standard_normal(m.nv)
        if name.startswith("box"):
            d.qvel[:2] += rng.uniform(0.5, 1.5, 2)
        if name.startswith("franka"):
            d.qvel[-5] += rng.uniform(0.5, 1.5)  # of the box, along the fist


KINDS = ("penetration", "edge", "lift-off", "symmetry")


@functools.cache
def states(name: str, count: int, seed: int = 1) -> Start:
    """States along trajectories, a quarter each: pressed in, turned on an edge, parting, and straight at rest."""
    m = corpus.case(name).structure.source
    rng, d = np.random.default_rng(seed), mujoco.MjData(m)
    base = along(name, count, seed)
    free = m.jnt_dofadr[m.jnt_type == mujoco.mjtJoint.mjJNT_FREE]
    for w in range(count):
        kind = KINDS[w % 4]
        qpos, qvel, shift = base.qpos[w], base.qvel[w], np.zeros(m.nv)
        if kind == "symmetry":
            mujoco.mj_resetData(m, d)
            if m.nkey:
                mujoco.mj_resetDataKeyframe(m, d, 0)
            qpos[:], qvel[:], base.ctrl[w] = d.qpos, 0, m.actuator_ctrlrange.mean(1)
            qvel[free + 2] = rng.choice([-1.0, 0.0])
            settle(m, d, qpos, free, depth=rng.choice([0, 1e-4, 7e-4]))
            continue
        if kind == "edge":
            shift[free[-1] + 3 : free[-1] + 6] = rng.choice([-1, 1], 3) * rng.choice([0, np.pi / 4], 3)
        mujoco.mj_integratePos(m, qpos, shift, 1.0)
        if kind == "lift-off":
            qvel[free + 2] = rng.uniform(0, 3, len(free))
        settle(m, d, qpos, free, depth=rng.uniform(0, 0.02) if kind == "penetration" else 10 ** rng.uniform(-12, -3))
    return base


def settle(m: mujoco.MjModel, d: mujoco.MjData, qpos: np.ndarray, free: np.ndarray, depth: float) -> None:
    """Lower or lift all free bodies until the deepest contact of theirs is as deep as this."""
    height = m.jnt_qposadr[m.jnt_type == mujoco.mjtJoint.mjJNT_FREE] + 2

    def deepest(z: float) -> float:
        d.qpos[:] = qpos
        d.qpos[height] += z
        mujoco.mj_kinematics(m, d)
        mujoco.mj_comPos(m, d)
        mujoco.mj_collision(m, d)
        return float(-d.contact.dist.min()) if d.ncon else -1.0

    low, high = -2.0, 0.5
    if not len(free) or deepest(low) < depth or deepest(high) > depth:
        return
    for _ in range(45):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if deepest(middle) > depth else (low, middle)
    qpos[height] += low
