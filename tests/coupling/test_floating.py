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

from .scenes import STEP, grid

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


def test_the_draft_in_mpm():
    """Within 2 % of the height, at eight cells a side."""
    assert abs(drafts(*in_mpm(0.025, 1), np.array([0.5]), 1.2) - 0.5) < 0.02


@pytest.mark.slow
def test_the_drafts_in_sph():
    densities = np.array([0.3, 0.5, 0.7, 0.9])
    np.testing.assert_allclose(drafts(*in_sph(0.02, 4), densities, 3.0), densities, atol=0.01)
