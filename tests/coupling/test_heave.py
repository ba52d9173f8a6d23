"""Floating bodies that heave in space, by smoothed particles: a box and a sphere, and linear waves in their tanks."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from scipy.sparse import coo_matrix
from scipy.sparse.linalg import splu

import fphys
from fphys import coupling
from fphys.particles import sph

from .scenes import STEP, grid, in_tank, sides
from .test_floating import period

Shape = Callable[[np.ndarray], np.ndarray]
"""Which points are in a body, (..., 3) to (...), from the middle of its waterline."""

BUOY = f"""<mujoco><option timestep="{STEP}" gravity="0 0 -9.81"/><worldbody><body>
<joint type="slide" axis="0 0 1"/><inertial pos="0 0 0" mass="{{mass}}" diaginertia="1 1 1"/></body>
</worldbody></mujoco>"""

EDGES, DRAFT, LIGHT = np.array([0.3, 0.2, 0.5]), 0.25, 15.0
"""A box [m], its draft [m] and mass [kg]."""

BOX_PERIOD = 1.149
"""Of its heave in the middle of a tank of 1 m x 1 m [s]; 0.973 without added mass."""

RADIUS, BALL, BALL_PERIOD = 0.15, 7.056, 0.777
"""A half immersed sphere (Kramer et al. 2021) [m, kg], and its period with an added mass of half its own [s]."""


def in_box(x: np.ndarray) -> np.ndarray:
    return (np.abs(x[..., :2]) < EDGES[:2] / 2).all(-1) & (x[..., 2] > -DRAFT) & (x[..., 2] < EDGES[2] - DRAFT)


def in_ball(x: np.ndarray) -> np.ndarray:
    return np.linalg.norm(x, axis=-1) < RADIUS


def modes(body: Shape, mass: float, wide: float, deep: float, h: float) -> tuple[np.ndarray, np.ndarray]:
    """Linear oscillations of a floating body and of the water in its square tank: periods [s], shares in heave.

    The coordinates are the body's height and those of the surface in cells of size h. With the potential phi of the
    flow that their rates imply, grad^2 phi = 0, the kinetic energy is rho / 2 the integral of phi dphi/dn. A quarter of
    the tank is enough. The share is that of a mode in the body's velocity after a push.
    """
    count, rows = round(wide / 2 / h), round(deep / h)
    side, down = h * (np.arange(count) + 0.5), h * (np.arange(rows) + 0.5) - deep
    wet = ~body(np.stack(np.meshgrid(side, side, down, indexing="ij"), -1))
    number = np.where(wet, np.cumsum(wet).reshape(wet.shape) - 1, -1)
    ends = []
    for axis in range(3):
        line = np.moveaxis(number, axis, 0)
        pairs = np.stack([line[:-1].ravel(), line[1:].ravel()])
        ends.append(pairs[:, (pairs >= 0).all(0)])
    i, j = np.concatenate(ends, 1)
    one, total = np.ones(len(i)), wet.sum()
    places = np.concatenate([i, j, i, j]), np.concatenate([j, i, i, j])
    laplace = coo_matrix((np.concatenate([-one, -one, one, one]), places), (total, total)).tocsc()
    laplace[0, 0] += 1  # the potential is known up to a constant
    surface = number[:, :, -1][wet[:, :, -1]]
    under = number[:, :, :-1][wet[:, :, :-1] & ~wet[:, :, 1:]]
    flow = np.zeros((total, 1 + len(surface)))
    flow[under, 0] = flow[surface, 1 + np.arange(len(surface))] = h**2
    free = scipy.linalg.null_space(flow.sum(0)[None])  # no water is lost
    moved = np.einsum("ij,jk->ik", flow, free)
    phi = splu(laplace).solve(moved) / h
    level = np.einsum("ji,j,jk->ik", free, flow.sum(0), free)
    inertia = 1000.0 * (np.einsum("ji,jk->ik", moved, phi) + h / 2 * level) + mass / 4 * np.outer(free[0], free[0])
    square, shape = scipy.linalg.eigh(9810.0 * level, (inertia + inertia.T) / 2)
    share = np.einsum("i,ij->j", free[0], shape) ** 2
    order = np.argsort(-share)
    return 2 * np.pi / np.sqrt(square[order]), share[order] / share.sum()


def heave(body: Shape, mass: float, wide: float, deep: float, spacing: float, seconds: float) -> np.ndarray:
    """Its velocity after each step [m/s]; it is let go a spacing above where it floats, for a push would be heard."""
    half = np.array([0.15, 0.15, 0.25])
    x = grid(-half, half + [0, 0, 0.05], spacing)
    inside = body(x)
    deepest = np.ones_like(inside)
    for way in spacing * 3 * np.concatenate([np.eye(3), -np.eye(3)]):
        deepest &= body(x + way)
    shell = x[inside & ~deepest]  # three layers
    lower, upper = np.array([-wide / 2, -wide / 2, -deep]), np.array([wide / 2, wide / 2, 0.0])
    water = grid(lower, upper, spacing)
    at = np.array([0.0, 0.0, spacing])
    water = water[~body(water - at)]
    tank = sides(lower, upper, 0.25 * deep, spacing)
    params = sph.Params(spacing, STEP, 15.0, gravity=(0, 0, -9.81), artificial=0.02)
    pressure = np.concatenate([-9810.0 * water[:, 2], np.zeros(len(tank) + len(shell))])[None]
    kinds, given = (sph.SLIP_WALL, sph.SLIP_WALL), {"pressure": jnp.asarray(pressure)}
    medium, matter, substeps = in_tank(params, 1.5, water, tank, shell, at, kinds, **given)
    model = fphys.load(BUOY.format(mass=mass), dtype=jnp.float64)
    state = fphys.init(model, 1).replace(qpos=jnp.full((1, 1), spacing))

    @jax.jit
    def roll(state: Any, matter: Any) -> Any:
        def advance(now: Any, _: None) -> Any:
            state, (matter,) = coupling.step(model, now[0], (medium,), (now[1],), substeps=substeps)
            return (state, sph.renew(medium.params, matter, 0.02)), state.qvel[0, 0]

        return jax.lax.scan(advance, (state, matter), None, round(seconds / STEP))

    (state, matter), v = roll(state, matter)
    assert not np.asarray(matter.status).any() and not np.asarray(state.status).any()
    return np.asarray(v)


def test_linear_waves_have_the_period_of_the_box():
    """1.149 s within 1 %; nearly all of the box's motion is that mode, the next one is a wave in the tank."""
    found, share = modes(in_box, LIGHT, 1.0, 0.5, 0.025)
    assert found[0] == pytest.approx(BOX_PERIOD, rel=0.01)
    assert share[0] > 0.99


@pytest.mark.slow
def test_the_heave_period_of_a_box_in_space():
    """Within 3 %, at eight particles along the shorter edge of its waterline: 2 % too short, and 3 % with four."""
    v = heave(in_box, LIGHT, 1.0, 0.5, 0.025, 2.0)
    assert period(STEP * np.arange(1, len(v) + 1), v) == pytest.approx(BOX_PERIOD, rel=0.03)


@pytest.mark.slow
def test_the_heave_period_of_a_sphere():
    """Within 4 %, twelve particles across. Linear waves in its tank, 0.6 m deep, have 0.80 s over the same time."""
    v = heave(in_ball, BALL, 1.2, 0.6, 0.025, 1.2)
    assert period(STEP * np.arange(1, len(v) + 1), v) == pytest.approx(BALL_PERIOD, rel=0.04)
