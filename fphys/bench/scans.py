"""Distances to hilly ground below a walker's trunk as benchmark cases, beside MuJoCo's range finders."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from fphys.scene import Box, ObservationSpec, Rays, Scene, Terrain
from fphys.scene.native import State, World

from . import engines
from .case import Case, Workload

GRID = np.stack(np.meshgrid(np.linspace(-0.8, 0.8, 17), np.linspace(-0.5, 0.5, 11), 0.0), -1).reshape(-1, 3)
"""Where the rays begin, in the trunk's frame [m]."""
SPEC = ObservationSpec(sensors=("scan",))


def scan_cases() -> list[Case]:
    """187 rays of each world on a field of 200 x 200 heights."""
    name, works = "scene.hills.scan", {"": _ours, "_mujoco": _mujoco}
    return [
        Case(f"{name}{suffix}", _setup(work), len(GRID), "rays", (64, 1024), name if suffix else None, tags=("scene",))
        for suffix, work in works.items()
    ]


def _setup(work: Callable[[World, State], Workload]) -> Callable[[int], Workload]:
    return lambda worlds: work(*_tilted(worlds))


def _tilted(worlds: int) -> tuple[World, State]:
    """Trunks above hills."""
    rng = np.random.default_rng(0)
    scene = Scene()
    scene.add(Terrain(rng.uniform(0.0, 0.3, (200, 200)), 0.1, pos=(-10.0, -10.0, 0.0)), name="hills")
    scene.add(Box((0.6, 0.3, 0.1)), name="trunk")
    scene.add_sensor(Rays(np.tile([[0.0, 0.0, -1.0]], (len(GRID), 1)), "trunk", GRID), name="scan")
    world = scene.build(worlds)
    place, turn = rng.uniform(-8, 8, (worlds, 2)), np.c_[np.ones(worlds), rng.uniform(-0.1, 0.1, (worlds, 3))]
    qpos = np.c_[place, np.ones(worlds), turn / np.linalg.norm(turn, axis=1, keepdims=True)]
    state = world.init()
    return world, state.replace(rigid=state.rigid.replace(qpos=jnp.asarray(qpos, state.rigid.qpos.dtype)))


def _ours(world: World, state: State) -> Workload:
    def validate(found: object) -> None:
        wrong = float(np.abs(np.asarray(found) - _read(world, state)).max())
        if wrong > 1e-4:
            raise ValueError(f"distances differ from MuJoCo's by up to {wrong} m")

    return Workload(lambda world, state: world.observe(state, SPEC), (world, state), validate)


def _mujoco(world: World, state: State) -> Workload:
    def validate(found: np.ndarray) -> None:
        if not (found > 0.3).all():
            raise ValueError("a ray meets nothing")

    return Workload(_read, (world, state), validate, jit=False)


def _read(world: World, state: State) -> np.ndarray:
    """What MuJoCo's range finders read, world by world on one core."""
    return engines.sensor_readings(world.model.structure.source, np.asarray(state.rigid.qpos))
