"""PhysX on the CPU compared with fphys: its back end of scenes (``Scene.build``), all worlds in one space.

PhysX has its own equations and contacts, so few of its steps agree with MuJoCo's to 1e-3. Contacts have no margins
there: those of the ant are left out.
"""

import os
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..bridge.workers import num_threads
from ..math import rotate
from ..scene import MJCF, ActionSpec, Scene
from .case import Workload
from .engines import STEPS, accuracy, described, problem

_held: list[Any] = []  # the world of the last case


def physx(name: str, integrator: str, worlds: int) -> Workload:
    """PhysX, in float32."""
    given = problem(name, integrator, worlds)
    model, spec = given.model, described(name, integrator)
    for geom in spec.geoms:
        geom.margin = geom.gap = 0.0
    scene = Scene(timestep=model.opt.timestep, gravity=model.opt.gravity)
    scene.add(MJCF(spec))
    while _held:
        _held.pop().close()
    os.environ.setdefault("FPHYS_THREADS", str(num_threads()))  # read where ovphysx starts, once
    world: Any = scene.build(worlds, backend="physx", action=ActionSpec("torque"))
    _held.append(world)
    (group,) = world.groups
    qpos_of, dof_of = model.jnt_qposadr[group.joints], model.jnt_dofadr[group.joints]
    start = {"DOF_POSITION": given.qpos[:, qpos_of] - group.zero, "DOF_VELOCITY": given.qvel[:, dof_of]}
    quat = jnp.asarray(given.qpos[:, 3:7])
    arm = rotate(quat, jnp.asarray(group.centre[0], quat.dtype)) if group.tree.floating else 0.0
    if group.tree.floating:  # MuJoCo's twist is at the body's frame and turns in it, PhysX's is at the centre of mass
        spin = rotate(quat, jnp.asarray(given.qvel[:, 3:6]))
        place = group.places + np.pad(given.qpos[:, 2:3], ((0, 0), (2, 0)))  # moved to where the world has room
        start["ROOT_POSE"] = np.concatenate([place, np.roll(quat, -1, axis=1)], 1)
        start["ROOT_VELOCITY"] = np.concatenate([given.qvel[:, :3] + np.cross(spin, arm), spin], 1)
    start = {kind: np.ascontiguousarray(value, np.float32) for kind, value in start.items()}
    forces = np.zeros((STEPS, worlds, len(group.joints)), np.float32)
    for a, (joint, gear) in enumerate(zip(model.actuator_trnid[:, 0], model.actuator_gear[:, 0], strict=True)):
        forces[:, :, group.joints.index(joint)] = given.ctrl[:, :, a].T * gear

    def fn(forces: np.ndarray) -> np.ndarray:
        for kind, value in start.items():
            group.write(kind, value)
        for force in forces:
            group.write("DOF_ACTUATION_FORCE", force)
            world.engine.step_sync(model.opt.timestep)
        group.forget()
        qvel = np.zeros_like(given.qvel)
        qvel[:, dof_of] = group.read("DOF_VELOCITY")
        if group.tree.floating:
            twist = group.read("ROOT_VELOCITY")
            qvel[:, :3] = twist[:, :3] - np.cross(twist[:, 3:], arm)
            qvel[:, 3:6] = rotate(quat * jnp.array([1, -1, -1, -1]), jnp.asarray(twist[:, 3:], quat.dtype))
        return qvel

    return Workload(fn, (forces,), lambda _: accuracy(given, fn(forces[:1])), jit=False)
