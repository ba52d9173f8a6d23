"""Distances of an arm to what stands around it as benchmark cases, beside MuJoCo's sensors of them."""

from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import fphys

from ..model import Model, State
from . import engines
from .case import Case, Workload

OBSTACLES = (
    '<geom name="post" type="cylinder" size="0.05 0.5" pos="0.6 0.3 0.5"/>'
    '<geom name="crate" type="box" size="0.15 0.2 0.1" pos="0.4 -0.4 0.1" euler="0 0 0.5"/>'
    '<geom name="ball" type="ellipsoid" size="0.1 0.15 0.1" pos="0.3 0.1 1.1"/>'
)
LINKS = tuple(f"link{i}" for i in range(3, 8))
PAIRS = [(link, thing) for link in LINKS for thing in ("post", "crate", "ball")]


def distance_cases() -> list[Case]:
    """Five links of the arm, sixteen geoms, and three obstacles: 48 pairs of geoms in fifteen distances."""
    name, works = "rigid.franka.distances", {"": _ours, "_mujoco": _mujoco}
    return [
        Case(f"{name}{suffix}", _setup(work), len(PAIRS), "distances", (64, 1024), name if suffix else None)
        for suffix, work in works.items()
    ]


def _setup(work: Callable[[Model, State], Workload]) -> Callable[[int], Workload]:
    return lambda worlds: work(*_anywhere(worlds))


def _anywhere(worlds: int) -> tuple[Model, State]:
    """Arms in random poses."""
    sensors = "".join(f'<distance body1="{link}" geom2="{thing}" cutoff="2"/>' for link, thing in PAIRS)
    text = Path(fphys.asset("franka")).read_text().replace("</worldbody>", f"{OBSTACLES}</worldbody>")
    model = fphys.load(text.replace("</mujoco>", f"<sensor>{sensors}</sensor></mujoco>"))
    low, high = np.asarray(model.joint.range[0]).T
    qpos = np.random.default_rng(0).uniform(low, high, (worlds, len(low)))
    return model, fphys.init(model, worlds, qpos=jnp.asarray(qpos, model.qpos0.dtype))


def _ours(model: Model, state: State) -> Workload:
    def validate(found: object) -> None:
        wrong = np.asarray(found) - _read(model, state)
        if not (np.abs(wrong) < 1e-4).all():
            raise ValueError(f"distances differ from MuJoCo's by up to {np.abs(wrong).max()} m")

    return Workload(fphys.sensors, (model, state), validate)


def _mujoco(model: Model, state: State) -> Workload:
    def validate(found: np.ndarray) -> None:
        if not ((found > -0.2) & (found < 2)).all():
            raise ValueError("a distance is not that of an arm and its surroundings")

    return Workload(_read, (model, state), validate, jit=False)


def _read(model: Model, state: State) -> np.ndarray:
    """What MuJoCo's sensors read, world by world on one core."""
    return engines.sensor_readings(model.structure.source, np.asarray(state.qpos))
