"""Coupling as benchmark cases: a step of bodies and matter, beside the same solvers that do not feel each other."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

import fphys

from .. import coupling
from ..coupling.exchange import Pose
from ..coupling.particles import colliders
from ..deformables import mesh, pbd
from ..particles import mpm
from .case import Case, Workload

Array = jax.Array

STEPS = 10
SUBSTEPS = 4
STEP = 0.004  # s
SPEED = 1.0  # m/s
FALLEN = -SPEED - 9.81 * STEPS * STEP  # m/s, of a ball alone
BALL = f"""<mujoco><option timestep="{STEP}"/><worldbody><body pos="0 0 .1"><freejoint/>
<geom name="ball" size=".1" density="300"/></body></worldbody></mujoco>"""


class Scene(NamedTuple):
    """Bodies and one medium that they touch."""

    model: Any
    state: Any
    medium: Any
    matter: Any


def coupling_cases() -> list[Case]:
    """A ball on a cloth, in one world and in many, and a ball on 32 thousand material points; and their gradients."""
    found = []
    for name, make, worlds in (("cloth-ball", _cloth, (1, 256)), ("jelly-ball", _jelly, (1,))):
        step, tags = f"coupling.{name}.step", ("coupling", name)
        each = [
            Case(f"coupling.{name}.apart", _setup(make, _apart), STEPS, "steps", worlds),
            Case(step, _setup(make, _together), STEPS, "steps", worlds, f"coupling.{name}.apart", 1.1),
            Case(f"{step}_grad", _setup(make, _backward), STEPS, "steps", worlds, step, 4.0),
        ]
        found += [dataclasses.replace(c, tags=tags) for c in each]
    return found


def _setup(make: Callable[[int], Scene], work: Callable[[Scene], Workload]) -> Callable[[int], Workload]:
    return lambda worlds: work(make(worlds))


def _ball(worlds: int) -> tuple[Any, Any]:
    """Its lowest point at the height 0, falling."""
    model = fphys.load(BALL)
    state = fphys.init(model, worlds)
    return model, state.replace(qvel=state.qvel.at[:, 2].set(-SPEED))


def _cloth(worlds: int) -> Scene:
    """Held at its rim, 20 by 20 cells; the ball begins on it."""
    sheet = mesh.cloth((20, 20), (1.0, 1.0))
    rim = np.flatnonzero(np.abs(sheet.vertices[:, :2] - 0.5).max(1) > 0.499)
    pinned = tuple(rim.tolist())
    params = pbd.Params(sheet, 0.5, STEP / SUBSTEPS, stretch=1e-5, gravity=(0.0, 0.0, -9.81), pinned=pinned, substeps=1)
    x = np.broadcast_to((sheet.vertices - [0.5, 0.5, 0.0]).astype(np.float32), (worlds, *sheet.vertices.shape))
    return Scene(*_ball(worlds), coupling.PBD(params, ("ball",)), pbd.init(params, x))


def _jelly(worlds: int) -> Scene:
    """A block of 32 particles along each edge; the ball begins on it."""
    axis = (np.arange(32) + 0.5) / 40 - 0.4
    x = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(1, -1, 3) - [0.0, 0.0, 0.4]
    params = mpm.Params(
        mpm.NeoHookean(1000.0, 1e5, 0.3),
        STEP / SUBSTEPS,
        (0.0, 0.0, -9.81),
        cell=0.05,
        shape=(24, 24, 24),
        lower=(-0.6, -0.6, -0.8),
    )
    x = np.broadcast_to(x.astype(np.float32), (worlds, *x.shape[1:]))
    return Scene(*_ball(worlds), coupling.MPM(params, ("ball",)), mpm.init(params, x))


def _run(scene: Scene, state: Any, matter: Any) -> Any:
    def advance(now: Any, _: None) -> tuple[Any, None]:
        state, (matter,) = coupling.step(scene.model, now[0], (scene.medium,), (now[1],), substeps=SUBSTEPS)
        return (state, matter), None

    return jax.lax.scan(advance, (state, matter), None, STEPS)[0]


def _together(scene: Scene) -> Workload:
    def validate(after: Any) -> None:
        """The ball falls more slowly than it would alone, and nothing is faulty."""
        state, matter = after
        if np.asarray(state.status).any() or np.asarray(matter.status).any():
            raise ValueError("a world is faulty")
        if not (np.asarray(state.qvel[:, 2]) > 0.99 * FALLEN).all():
            raise ValueError(f"after {STEPS} steps the ball falls at {np.asarray(state.qvel[0, 2])} m/s, as if alone")

    return Workload(lambda *now: _run(scene, *now), (scene.state, scene.matter), validate)


def _apart(scene: Scene) -> Workload:
    """The steps of both solvers; the matter meets the ball where it is at the start."""
    pose = Pose(scene.state.qpos[:, None, :3], scene.state.qpos[:, None, 3:])
    shapes, _ = colliders(scene.model, scene.medium.geoms, pose, (1,), "separate")
    solver = pbd if isinstance(scene.medium, coupling.PBD) else mpm

    def run(state: Any, matter: Any) -> Any:
        def advance(now: Any, _: None) -> tuple[Any, None]:
            one = lambda m, _: (solver.step(scene.medium.params, m, colliders=shapes), None)  # noqa: E731
            return (fphys.step(scene.model, now[0]), jax.lax.scan(one, now[1], None, SUBSTEPS)[0]), None

        return jax.lax.scan(advance, (state, matter), None, STEPS)[0]

    def validate(after: Any) -> None:
        if not np.allclose(after[0].qvel[:, 2], FALLEN, rtol=1e-4):
            raise ValueError(f"the ball falls at {np.asarray(after[0].qvel[0, 2])} m/s, not {FALLEN}")

    return Workload(run, (scene.state, scene.matter), validate)


def _backward(scene: Scene) -> Workload:
    def fn(state: Any, matter: Any) -> tuple[Array, Array]:
        def place(qvel: Array, v: Array) -> Array:
            end, after = _run(scene, state.replace(qvel=qvel), matter.replace(v=v))
            return end.qpos[:, 2].sum() + after.x.mean()

        return jax.grad(place, (0, 1))(state.qvel, matter.v)

    def validate(grads: Any) -> None:
        if not all(np.isfinite(np.asarray(g)).all() and np.abs(np.asarray(g)).max() > 0 for g in grads):
            raise ValueError("a gradient is zero or not finite")

    return Workload(fn, (scene.state, scene.matter), validate)
