"""Archimedes: a floating box displaces its own mass of water."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import coupling
from fphys.particles import mpm, sph

from .scenes import STEP, grid, in_tank, sides

TANK, DEPTH, HALF, SPEED = 1.0, 0.4, 0.1, 25.0
"""Width and depth of the water, half the box's edge [m], speed of sound [m/s]."""

AT = 0.5037
"""The box's middle: its sides lie between nodes, so that no rounding decides which of them it holds."""

BOX = f"""<mujoco><option timestep="{STEP}" gravity="0 -9.81 0"/><worldbody>
<body pos="{AT} 0 0"><joint type="slide" axis="0 1 0" damping="200"/>
<geom type="box" size="{HALF} {HALF} 0.5" density="1000" friction="0"/></body></worldbody></mujoco>"""


def around(spacing: float) -> np.ndarray:
    """Water around the half immersed box."""
    water = grid((0, 0), (TANK, DEPTH), spacing)
    return water[~((abs(water[:, 0] - AT) < HALF) & (abs(water[:, 1] - DEPTH) < HALF))]


def in_mpm(cell: float, worlds: int) -> tuple[Any, Any, int, float]:
    substeps = math.ceil(STEP * SPEED / (0.4 * cell))
    shape = round(TANK / cell), round(2 * DEPTH / cell)
    liquid = mpm.Liquid(1000.0, bulk=1000 * SPEED**2, gamma=7.0)
    params = mpm.Params(liquid, STEP / substeps, (0, -9.81), cell=cell, shape=shape)
    x = around(cell / 2)
    matter = mpm.init(params, jnp.broadcast_to(jnp.asarray(x), (worlds, *x.shape)))
    return coupling.MPM(params, (0,)), matter, substeps, len(x) * (cell / 2) ** 2


def in_sph(spacing: float, worlds: int) -> tuple[Any, Any, int, float]:
    params = sph.Params(spacing, STEP, SPEED, gravity=(0, -9.81), artificial=0.1)
    substeps = math.ceil(STEP / float(sph.limit(params, 2.0).min()))
    params = params.replace(timestep=STEP / substeps)
    water, reach = around(spacing), 3 * spacing
    tank = grid((-reach, -reach), (TANK + reach, 2 * DEPTH), spacing)
    tank = tank[(tank[:, 0] < 0) | (tank[:, 0] > TANK) | (tank[:, 1] < 0)]
    box = grid((-HALF, -HALF), (HALF, HALF), spacing)
    x = np.concatenate([water, tank, box + [AT, DEPTH]])
    kinds = sph.FLUID, sph.SLIP_WALL, sph.WALL
    kind = np.repeat(kinds, [len(water), len(tank), len(box)]).astype(np.int32)
    matter = sph.init(params, jnp.broadcast_to(jnp.asarray(x), (worlds, *x.shape)), material=kind, max_neighbors=60)
    walls = jnp.asarray(np.pad(np.concatenate([tank, box]), ((0, 0), (0, 1))))
    body = (0,) * len(tank) + (1,) * len(box)
    return coupling.SPH(params, walls, body), matter, substeps, len(water) * spacing**2


def drafts(medium: Any, matter: Any, substeps: int, area: float, densities: np.ndarray, seconds: float) -> np.ndarray:
    """How deep the boxes are below the water's level, as parts of their height."""
    model = fphys.load(BOX, dtype=jnp.float64)
    share = jnp.asarray(densities)[:, None]
    model = model.replace({"body.mass": model.body.mass * share, "body.inertia": model.body.inertia * share[..., None]})
    state = fphys.init(model, len(densities)).replace(qpos=jnp.full((len(densities), 1), DEPTH))

    @functools.partial(jax.jit, static_argnums=2)
    def roll(state: Any, matter: Any, steps: int) -> Any:
        def advance(now: Any, _: None) -> Any:
            state, (matter,) = coupling.step(model, now[0], (medium,), (now[1],), substeps=substeps)
            if isinstance(matter, sph.State):
                matter = sph.renew(medium.params, matter, 0.02)
            return (state, matter), None

        return jax.lax.scan(advance, (state, matter), None, steps)[0]

    state, matter = roll(state, matter, round(seconds / STEP))
    assert not np.asarray(matter.status).any() and not np.asarray(state.status).any()
    bottom = np.asarray(state.qpos[:, 0]) - HALF
    return (area / TANK - bottom) / (1 - 2 * HALF / TANK) / (2 * HALF)


IN_SPACE = f"""<mujoco><option timestep="{STEP}" gravity="0 0 -9.81"/><worldbody>
<body><joint type="slide" axis="0 0 1" damping="60"/>
<geom type="box" size="{HALF} {HALF} {HALF}" density="1000"/></body></worldbody></mujoco>"""


HEAVE = f"""<mujoco><option timestep="{STEP}" gravity="0 -9.81 0"/><worldbody><body pos="0 0 0">
<joint type="slide" axis="0 1 0"/><inertial pos="0 0 0" mass="{{mass}}" diaginertia="1 1 1"/></body>
</worldbody></mujoco>"""

BEAM, DRAFT, GAP, UNDER = 0.4, 0.2, 0.1, 0.2
"""Of a box that heaves between two walls: its width and draft, the gaps beside it and below it [m]."""


def added_mass(cells: int) -> float:
    """Of the water around the heaving box, for a metre [kg/m].

    The surfaces in the gaps move as a whole, by conservation of volume: waves in them are much faster. With the
    potential phi of the box's unit velocity, grad^2 phi = 0, the energy is rho / 2 the integral of phi dphi/dn.
    """
    h = GAP / cells
    across, deep, under, half = (round(a / h) for a in (GAP, DRAFT, UNDER, BEAM / 2))
    wet = np.ones((half + across, under + deep), bool)
    wet[:half, under:] = False
    number = np.where(wet, np.cumsum(wet).reshape(wet.shape) - 1, -1)
    count = wet.sum()
    laplace, flow = np.zeros((count, count)), np.zeros(count)
    for a, b in ((number[:-1], number[1:]), (number[:, :-1], number[:, 1:])):
        for i, j in np.stack([a, b], -1).reshape(-1, 2):
            if i >= 0 and j >= 0:
                laplace[[i, j], [j, i]] += 1
                laplace[[i, j], [i, j]] -= 1
    rising = BEAM / 2 / GAP  # of the gap's surface, upwards, as the box sinks at unit velocity
    flow[number[:half, under - 1]] = h
    flow[number[half:, -1]] = -h * rising
    phi = np.linalg.lstsq(laplace, flow, rcond=None)[0] - flow / 2  # at the walls, half a cell on
    return float(-2 * 1000 * phi @ flow)  # both halves


def heave_period(spacing: float, seconds: float) -> float:
    """Of the box in SPH [s]."""
    width, deep = BEAM + 2 * GAP, UNDER + DRAFT
    lower, upper, sound = np.array([-width / 2, -deep]), np.array([width / 2, 0.0]), 20.0
    params = sph.Params(spacing, STEP, sound, gravity=(0, -9.81), artificial=0.02)
    box = grid((-BEAM / 2, -DRAFT), (BEAM / 2, DRAFT / 2), spacing)
    water = grid(lower, upper, spacing)
    water = water[(abs(water[:, 0]) > BEAM / 2) | (water[:, 1] < -DRAFT)]
    tank, at = sides(lower, upper, 0.1, spacing), np.zeros(2)
    pressure = np.concatenate([-9810.0 * water[:, 1], np.zeros(len(tank) + len(box))])[None]
    kinds, given = (sph.SLIP_WALL, sph.SLIP_WALL), {"pressure": jnp.asarray(pressure), "max_neighbors": 60}
    medium, matter, substeps = in_tank(params, 1.0, water, tank, box, at, kinds, **given)
    model = fphys.load(HEAVE.format(mass=1000 * BEAM * DRAFT), dtype=jnp.float64)
    state = fphys.init(model, 1).replace(qvel=jnp.full((1, 1), 0.15))

    @jax.jit
    def roll(state: Any, matter: Any) -> Any:
        def advance(now: Any, _: None) -> Any:
            state, (matter,) = coupling.step(model, now[0], (medium,), (now[1],), substeps=substeps)
            return (state, sph.renew(medium.params, matter, 0.02)), state.qvel[0, 0]

        return jax.lax.scan(advance, (state, matter), None, round(seconds / STEP))

    (state, matter), v = roll(state, matter)
    assert not np.asarray(matter.status).any() and not np.asarray(state.status).any()
    return period(STEP * np.arange(1, len(v) + 1), np.asarray(v))


def period(t: np.ndarray, v: np.ndarray) -> float:
    """Of the damped oscillation that is nearest to a motion, which sound makes rough."""

    def error(seconds: float, loss: float) -> float:
        turn, fade = 2 * np.pi * t / seconds, np.exp(-loss * t)
        base = np.stack([fade * np.cos(turn), fade * np.sin(turn), np.ones_like(t)], -1)
        return float(np.linalg.norm(base @ np.linalg.lstsq(base, v, rcond=None)[0] - v))

    tried = [(s, g) for s in np.linspace(0.6, 1.8, 241) for g in np.linspace(0, 3, 13)]
    return float(min(tried, key=lambda one: error(*one))[0])


def heave_theory() -> float:
    """Period of the box between the walls [s]: as it sinks, the water in the gaps rises, too."""
    mass = 1000 * BEAM * DRAFT + added_mass(5)
    stiffness = 9810 * BEAM * (1 + BEAM / (2 * GAP))
    return 2 * math.pi * math.sqrt(mass / stiffness)


def drafts_in_space(spacing: float, densities: np.ndarray, seconds: float) -> np.ndarray:
    """How deep cubes of 0.2 m float in a tank of 0.4 m, as parts of their height: SPH in space."""
    wide, deep, edge = 0.4, 0.3, 2 * HALF
    lower, upper, worlds = np.array([-wide / 2, -wide / 2, 0.0]), np.array([wide / 2, wide / 2, deep]), len(densities)
    params = sph.Params(spacing, STEP, 15.0, gravity=(0, 0, -9.81), artificial=0.1)
    box = grid((-HALF,) * 3, (HALF,) * 3, spacing)
    box = box[(abs(box) > HALF - 3 * spacing).any(1)]  # a shell
    water = grid(lower, upper, spacing)
    water = water[~((abs(water[:, :2]) < HALF).all(1) & (water[:, 2] > deep - HALF))]
    tank, at = sides(lower, upper, 0.2, spacing), np.array([0.0, 0.0, deep])
    pressure = np.concatenate([9810.0 * (deep - water[:, 2]), np.zeros(len(tank) + len(box))])[None]
    kinds, given = (sph.SLIP_WALL, sph.SLIP_WALL), {"pressure": jnp.asarray(pressure)}
    medium, matter, substeps = in_tank(params, 1.5, water, tank, box, at, kinds, **given)
    model = fphys.load(IN_SPACE, dtype=jnp.float64)
    share = jnp.asarray(densities)[:, None]
    model = model.replace({"body.mass": model.body.mass * share, "body.inertia": model.body.inertia * share[..., None]})
    state = fphys.init(model, worlds).replace(qpos=jnp.full((worlds, 1), deep))
    matter = jax.tree.map(lambda a: jnp.broadcast_to(a, (worlds, *a.shape[1:])), matter)

    @jax.jit
    def roll(state: Any, matter: Any) -> Any:
        def advance(now: Any, _: None) -> Any:
            state, (matter,) = coupling.step(model, now[0], (medium,), (now[1],), substeps=substeps)
            return (state, sph.renew(medium.params, matter, 0.02)), None

        return jax.lax.scan(advance, (state, matter), None, round(seconds / STEP))[0]

    state, matter = roll(state, matter)
    assert not np.asarray(matter.status).any() and not np.asarray(state.status).any()
    bottom, area = np.asarray(state.qpos[:, 0]) - HALF, wide**2
    return (len(water) * spacing**3 / area - bottom) / (1 - edge**2 / area) / edge


def test_the_draft_in_mpm():
    """Within 2 % of the height, at eight cells a side."""
    assert abs(drafts(*in_mpm(0.025, 1), np.array([0.5]), 1.2) - 0.5) < 0.02


@pytest.mark.slow
def test_the_drafts_in_sph():
    densities = np.array([0.3, 0.5, 0.7, 0.9])
    np.testing.assert_allclose(drafts(*in_sph(0.02, 4), densities, 3.0), densities, atol=0.01)


def test_the_heave_period(full: bool):
    """Of a box between walls, with the added mass of the water that it moves."""
    spacing, bound = (0.0125, 0.02) if full else (0.02, 0.07)  # eight and five particles across a gap
    assert abs(heave_period(spacing, 1.6) / heave_theory() - 1) < bound


@pytest.mark.slow
def test_the_draft_in_space():
    """Of a cube of half the water's density, five particles along its edges."""
    assert abs(drafts_in_space(0.04, np.array([0.5]), 1.2)[0] - 0.5) < 0.02
