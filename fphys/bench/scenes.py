"""Observations of a scene as benchmark cases."""

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys.scene import MJCF, ObservationSpec, Scene

from .case import Case, Workload

Array = jax.Array


def scene_cases() -> list[Case]:
    """An arm's joints alone, and with the pose and velocity of its end effector, in 4,096 worlds."""
    specs = {"joints": ObservationSpec("all"), "end_effector": ObservationSpec("all", ("end_effector",))}
    return [
        Case(f"scene.franka.observe_{name}", lambda worlds, spec=spec: _observed(spec, worlds), 1, "observations",
             worlds=(4096,), tags=("scene", "franka"))
        for name, spec in specs.items()
    ]  # fmt: skip


def _observed(spec: ObservationSpec, worlds: int) -> Workload:
    scene = Scene()
    scene.add(MJCF(fphys.asset("franka")), name="arm")
    world = scene.build(worlds)
    rng = np.random.default_rng(0)
    real = world.model.qpos0.dtype
    q, v = (jnp.asarray(rng.uniform(-1, 1, (worlds, 7)), real) for _ in range(2))
    state = world.init(q)
    state = state.replace(rigid=state.rigid.replace(qvel=v))

    def validate(found: Array) -> None:
        wanted = [state.rigid.qpos, state.rigid.qvel]
        if spec.links:
            site = fphys.kinematics(world.model, state.rigid).site.pos[:, world.model.id("site", "arm/end_effector")]
            wanted.append(site)
        columns = jnp.concatenate(wanted, 1)
        if not np.allclose(found[:, : columns.shape[1]], columns, atol=1e-5):
            raise ValueError("the observation is not what state and kinematics say")

    return Workload(lambda world, state: world.observe(state, spec), (world, state), validate)
