"""Coupling as benchmark cases: a step of bodies and matter, beside the same solvers that do not feel each other."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fphys

from .. import coupling
from ..coupling.exchange import Pose
from ..coupling.particles import colliders
from ..deformables import fem, mesh, pbd
from ..particles import mpm, sph
from . import genesis_coupled
from .case import Case, Workload

Array = jax.Array

STEPS = 10
SUBSTEPS = 4
STEP = 0.004  # s
SPEED = 1.0  # m/s
BALL = f"""<mujoco><option timestep="{STEP}"/><worldbody><body pos="0 0 .1"><freejoint/>
<geom name="ball" size=".1" density="300"/></body></worldbody></mujoco>"""
BLADE = """<geom name="blade" type="box" pos="0 0 .16" size=".07 .03 .06" contype="1"/><site name="end_effector" """
"""Genesis couples geoms with a contype; there is no other to collide with."""
SPACING = 0.025  # m, of the fluid's particles around the boxes


class Scene(NamedTuple):
    """Bodies and one medium that they touch."""

    model: Any
    state: Any
    medium: Any
    matter: Any
    alone: Callable[[Any], Any]  # a substep of the matter beside bodies that stay where they are at first
    file: str | None = None  # MJCF of its mechanism; None: free balls or boxes


def coupling_cases() -> list[Case]:
    """Balls, an arm and boxes with cloth, finite elements, 32 thousand material points or fluid particles; gradients.

    Those with particles also in Genesis.
    """
    found = []
    for name, make, worlds in (
        ("cloth-ball", _cloth, (1, 256)),
        ("rubber-ball", _rubber, (1, 256)),
        ("jelly-ball", _jelly, (1,)),
        ("water-arm", _arm, (1,)),
        ("water-boxes", _boxes, (1,)),
    ):
        step, tags = f"coupling.{name}.step", ("coupling", name)
        peer = name not in ("cloth-ball", "rubber-ball") and genesis_coupled.INSTALLED
        each = [
            Case(f"coupling.{name}.apart", _setup(make, _apart), STEPS, "steps", worlds),
            Case(step, _setup(make, _together), STEPS, "steps", worlds, f"coupling.{name}.apart", 1.1),
            Case(f"{step}_grad", _setup(make, _backward), STEPS, "steps", worlds, step, 4.0),
            *([Case(f"{step}_genesis", _setup(make, _genesis), STEPS, "steps", (1,), step)] if peer else []),
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


def _held(model: Any, state: Any, medium: Any, matter: Any) -> Scene:
    """A scene whose matter, alone, meets the geoms where they are."""
    m = fphys.kinematics(model, state).body
    pose, numbers = Pose.resting(m.pos, m.quat), tuple(range(model.structure.nbody))
    shapes, _ = colliders(model, medium.geoms, pose, numbers, "separate")
    return Scene(model, state, medium, matter, lambda now: medium.solver.step(medium.params, now, colliders=shapes))


def _cloth(worlds: int) -> Scene:
    """Held at its rim, 20 by 20 cells; the ball begins on it."""
    sheet = mesh.cloth((20, 20), (1.0, 1.0))
    rim = np.flatnonzero(np.abs(sheet.vertices[:, :2] - 0.5).max(1) > 0.499)
    pinned = tuple(rim.tolist())
    params = pbd.Params(sheet, 0.5, STEP / SUBSTEPS, stretch=1e-5, gravity=(0.0, 0.0, -9.81), pinned=pinned, substeps=1)
    x = np.broadcast_to((sheet.vertices - [0.5, 0.5, 0.0]).astype(np.float32), (worlds, *sheet.vertices.shape))
    return _held(*_ball(worlds), coupling.PBD(params, ("ball",)), pbd.init(params, x))


def _rubber(worlds: int) -> Scene:
    """A block of 4 by 4 by 2 cubes of finite elements, held at its bottom; the ball begins on it."""
    body = mesh.box((4, 4, 2), (0.4, 0.4, 0.2))
    held = np.flatnonzero(body.vertices[:, 2] == 0)
    params = fem.Params(
        body, fem.NeoHookean(1000.0, 1e5, 0.3), STEP / SUBSTEPS, (0.0, 0.0, -9.81), pinned=tuple(held.tolist())
    )
    x = np.broadcast_to((body.vertices - [0.23, 0.22, 0.2]).astype(np.float32), (worlds, *body.vertices.shape))
    return _held(*_ball(worlds), coupling.FEM(params, ("ball",)), fem.init(params, x))


def _jelly(worlds: int) -> Scene:
    """A block of 32 particles along each edge; the ball begins on it."""
    x = _block((32, 32, 32), 0.025, (-0.4, -0.4, -0.8), worlds)
    params = mpm.Params(
        mpm.NeoHookean(1000.0, 1e5, 0.3),
        STEP / SUBSTEPS,
        (0.0, 0.0, -9.81),
        cell=0.05,
        shape=(24, 24, 24),
        lower=(-0.6, -0.6, -0.8),
    )
    return _held(*_ball(worlds), coupling.MPM(params, ("ball",)), mpm.init(params, x))


def _arm(worlds: int) -> Scene:
    """A Franka whose blade begins in the middle of 32 thousand particles of water; its motors are off, and it falls."""
    text = Path(fphys.asset("franka")).read_text(encoding="utf-8").replace('<site name="end_effector" ', BLADE)
    model = fphys.load(text)
    model = model.replace({"opt.timestep": jnp.full_like(model.opt.timestep, STEP)})
    state = fphys.init(model, worlds, qpos=model.key.qpos[model.id("key", "home")])
    middle = np.asarray(fphys.kinematics(model, state).geom.pos[0, model.id("geom", "blade")], float)
    lower = middle - [0.4, 0.4, 0.3]
    params = mpm.Params(
        mpm.Liquid(1000.0, bulk=1e5, gamma=7.0),
        STEP / SUBSTEPS,
        (0.0, 0.0, -9.81),
        cell=0.05,
        shape=(16, 16, 16),
        lower=tuple(lower.tolist()),
    )
    x = _block((32, 32, 32), 0.025, lower, worlds)
    return _held(model, state, coupling.MPM(params, ("blade",)), mpm.init(params, x))._replace(file=text)


def _boxes(worlds: int) -> Scene:
    """Ten boxes fall into a tank with 32 thousand particles of fluid."""
    params = sph.Params(SPACING, STEP / SUBSTEPS, 8.0, gravity=(0.0, 0.0, -9.81), artificial=0.1)
    count, thick = np.array((40, 40, 20)), 3
    water = _block(count, SPACING, (0.0, 0.0, 0.0), 1)[0]
    tank = _block(count + [2 * thick, 2 * thick, thick + 4], SPACING, np.array([-thick] * 3) * SPACING, 1)[0]
    top = count[:2] * SPACING
    tank = tank[((tank[:, :2] < 0) | (tank[:, :2] > top)).any(1) | (tank[:, 2] < 0)]
    half = 2 * SPACING
    own = _block((4, 4, 4), SPACING, (-half,) * 3, 1)[0]
    at = [(0.14 + 0.18 * i, 0.3 + 0.4 * j, 0.5 + half) for j in range(2) for i in range(5)]
    text = "".join(
        f'<body pos="{x} {y} {z}"><freejoint/><geom type="box" size="{half} {half} {half}" density="500" '
        f'contype="0" conaffinity="0"/></body>'
        for x, y, z in at
    )
    model = fphys.load(f'<mujoco><option timestep="{STEP}"/><worldbody>{text}</worldbody></mujoco>')
    state = fphys.init(model, worlds)
    state = state.replace(qvel=state.qvel.at[:, 2::6].set(-SPEED))
    x = np.concatenate([water, tank, *(own + np.array(a, np.float32) for a in at)])
    kind = np.repeat((sph.FLUID, sph.WALL), (len(water), len(x) - len(water))).astype(np.int32)
    walls = jnp.asarray(np.concatenate([tank, *(own for _ in at)]))
    body = (0,) * len(tank) + tuple(np.repeat(np.arange(1, 11), len(own)).tolist())
    matter = sph.init(params, jnp.asarray(np.broadcast_to(x, (worlds, *x.shape))), material=kind)
    return Scene(model, state, coupling.SPH(params, walls, body), matter, lambda now: sph.step(params, now))


def _block(count: Any, spacing: float, lower: Any, worlds: int) -> np.ndarray:
    """Particles of a lattice, float32, shape (world, n, 3)."""
    axes = [low + spacing * (np.arange(n) + 0.5) for low, n in zip(lower, count, strict=True)]
    x = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3).astype(np.float32)
    return np.broadcast_to(x, (worlds, *x.shape))


def _run(scene: Scene, state: Any, matter: Any) -> Any:
    def advance(now: Any, _: None) -> tuple[Any, None]:
        state, (matter,) = coupling.step(scene.model, now[0], (scene.medium,), (now[1],), substeps=SUBSTEPS)
        return (state, matter), None

    return jax.lax.scan(advance, (state, matter), None, STEPS)[0]


def _free(scene: Scene, state: Any) -> Any:
    """The bodies without the matter."""
    return jax.lax.scan(lambda now, _: (fphys.step(scene.model, now), None), state, None, STEPS)[0]


def _together(scene: Scene) -> Workload:
    def validate(after: Any) -> None:
        """The bodies fall more slowly than they would alone, and nothing is faulty."""
        state, matter = after
        if np.asarray(state.status).any() or np.asarray(matter.status).any():
            raise ValueError("a world is faulty")
        free = np.asarray(jax.jit(lambda s: _free(scene, s))(scene.state).qvel)
        if np.abs(np.asarray(state.qvel) - free).max(1).min() < 0.01:
            raise ValueError(f"after {STEPS} steps the bodies move as if alone, at {free[0]}")

    return Workload(lambda *now: _run(scene, *now), (scene.state, scene.matter), validate)


def _genesis(scene: Scene) -> Workload:
    def wanted() -> tuple[Array, Array]:
        ours, _ = jax.jit(lambda *now: _run(scene, *now))(scene.state, scene.matter)
        return ours.qvel[0], jax.jit(lambda state: _free(scene, state))(scene.state).qvel[0]

    return genesis_coupled.coupled(scene, STEPS, SUBSTEPS, wanted, scene.file)


def _apart(scene: Scene) -> Workload:
    """The steps of both solvers; the matter meets the bodies where they are at the start."""

    def run(state: Any, matter: Any) -> Any:
        def advance(now: Any, _: None) -> tuple[Any, None]:
            one = lambda m, _: (scene.alone(m), None)  # noqa: E731
            return (fphys.step(scene.model, now[0]), jax.lax.scan(one, now[1], None, SUBSTEPS)[0]), None

        return jax.lax.scan(advance, (state, matter), None, STEPS)[0]

    def validate(after: Any) -> None:
        if any(np.asarray(a.status).any() for a in after):
            raise ValueError("a world is faulty")
        if not (np.asarray(after[0].time) > (STEPS - 0.5) * STEP).all():
            raise ValueError("the bodies do not move")

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
