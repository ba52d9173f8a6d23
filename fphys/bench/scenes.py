"""Observations of a scene as benchmark cases."""

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys.math import rotate
from fphys.scene import IMU, MJCF, JointState, ObservationSpec, Plane, Rays, Scene

from .case import Case, Workload

Array = jax.Array

TIP = ("end_effector",)
SPECS = {
    "joints": ObservationSpec("all"),
    "end_effector": ObservationSpec("all", TIP),
    "all": ObservationSpec("all", TIP, ("encoder",)),
    "imu": ObservationSpec(sensors=("imu",)),
    "rays": ObservationSpec(sensors=("rays",)),
}
TURNS = 2 * np.pi * np.arange(8) / 8
RAYS = Rays(np.stack([np.cos(TURNS), np.sin(TURNS), np.ones(8)], 1), "arm/link7", (0.0, 0.0, 0.3))  # beyond the hand


def scene_cases() -> list[Case]:
    """Observations of 4,096 arms: joints, the end effector's pose and velocity, and a sensor. Also an accelerometer,
    which needs the forces of a step, and eight rays from the last link among 28 geoms."""
    return [
        Case(f"scene.franka.observe_{name}", lambda worlds, spec=spec: observed(spec, worlds), 1, "observations",
             worlds=(4096,), tags=("scene", "franka"))
        for name, spec in SPECS.items()
    ]  # fmt: skip


def observed(spec: ObservationSpec, worlds: int) -> Workload:
    """An observation of moving arms."""
    scene = Scene()
    scene.add(MJCF(fphys.asset("franka")), name="arm")
    scene.add_sensor(JointState(), name="encoder")
    scene.add_sensor(IMU("arm/link7"), name="imu")
    if "rays" in spec.sensors:
        scene.add(Plane())
        scene.add_sensor(RAYS, name="rays")
    world = scene.build(worlds)
    rng = np.random.default_rng(0)
    real = world.model.qpos0.dtype
    q, v = (jnp.asarray(rng.uniform(-1, 1, (worlds, 7)), real) for _ in range(2))
    state = world.init(q)
    state = state.replace(rigid=state.rigid.replace(qvel=v))

    def validate(found: Array) -> None:
        model, rigid = world.model, state.rigid
        columns = dict(zip(world.columns(spec), np.asarray(found).T, strict=True))
        poses = fphys.kinematics(model, rigid)
        where = poses.site.pos[:, model.id("site", "arm/end_effector")]
        body = model.id("body", "arm/link7")
        back = poses.body.quat[:, body] * jnp.array([[1.0, -1.0, -1.0, -1.0]], real)
        spin = rotate(back, poses.body.vel[:, body, 3:])
        wanted: dict[str, Array] = dict(
            zip(("arm/end_effector:x", "arm/end_effector:y", "arm/end_effector:z"), where.T)
        )
        wanted |= dict(zip(("imu:spin.x", "imu:spin.y", "imu:spin.z"), spin.T))
        for i, joint in enumerate(world.joints):
            for given in (joint, f"encoder:{joint}"):
                wanted |= {f"{given}:position": rigid.qpos[:, i], f"{given}:velocity": rigid.qvel[:, i]}
        if "rays" in spec.sensors:
            far = _to_ground(poses.body.pos[:, body], poses.body.quat[:, body])
            met = np.stack([columns[f"rays:{i}"] for i in range(len(TURNS))], 1)
            if not ((0 <= met) & (met <= 1.001 * far)).all() or (met >= 0.999 * far).mean() < 0.5:
                raise ValueError("a ray passes through the ground, or ends where nothing is")
            return
        checked = wanted.keys() & columns.keys()
        if not checked or not all(np.allclose(columns[name], wanted[name], atol=1e-5) for name in checked):
            raise ValueError("the observation does not agree with state and kinematics")

    return Workload(lambda world, state: world.observe(state, spec), (world, state), validate)


def _to_ground(pos: Array, quat: Array) -> np.ndarray:
    """How far rays from a link can go: to the ground, or to their maximum range; shape (world, ray)."""
    shape = (*pos.shape[:1], len(TURNS))
    turn = jnp.broadcast_to(quat[:, None], (*shape, 4))
    both = (jnp.broadcast_to(jnp.asarray(x, pos.dtype), (*shape, 3)) for x in (RAYS.directions, RAYS.origins))
    ray, arm = (rotate(turn, x) for x in both)
    drop, height = -ray[..., 2], pos[:, None, 2] + arm[..., 2]
    seen = (drop > 0) & (height > 0)  # a plane is visible only from its front
    return np.minimum(np.where(seen, height / np.where(seen, drop, 1.0), np.inf), RAYS.max_range)
