"""Bodies that fall into water, against measurements: a wedge and a cylinder, in the plane."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import coupling
from fphys.particles import sph

from .scenes import clear, grid, in_tank, sides

FALL = """<mujoco><option timestep="{step}" gravity="0 -9.81 0"/><worldbody><body>
<joint type="slide" axis="0 1 0"/><inertial pos="0 0 0" mass="{mass}" diaginertia="1 1 1"/></body>
</worldbody></mujoco>"""


def entry(
    body: np.ndarray, mass: float, speed: float, spacing: float, size: Any, sound: float, seconds: float, step: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times [s], depths of the lowest point below the water's level [m], and speeds [m/s], downwards.

    Args:
        body: particles in its frame, whose origin is its lowest point.
        mass: for a metre [kg/m].
        size: width and depth of the water [m].
    """
    (width, deep), real = size, {"dtype": jnp.float64}
    lower, upper = np.array([-width / 2, -deep]), np.array([width / 2, 0.0])
    params = sph.Params(spacing, step, sound, gravity=(0, -9.81), artificial=0.05)
    at = np.array([0.0, 0.0])
    water = clear(grid(lower, upper, spacing), body + at, spacing)
    tank = sides(lower, upper, 0.5 * deep, spacing)
    pressure = np.concatenate([-9810.0 * water[:, 1], np.zeros(len(tank) + len(body))])[None]
    kinds = sph.SLIP_WALL, sph.SLIP_WALL
    given = {"pressure": jnp.asarray(pressure), "max_neighbors": 80}
    medium, matter, substeps = in_tank(params, 3 * speed, water, tank, body, at, kinds, **given)
    model = fphys.load(FALL.format(step=step, mass=mass), **real)
    state = fphys.init(model, 1).replace(qvel=jnp.full((1, 1), -speed))

    @jax.jit
    def roll(state: Any, matter: Any) -> Any:
        def advance(now: Any, _: None) -> Any:
            state, (matter,) = coupling.step(model, now[0], (medium,), (now[1],), substeps=substeps)
            return (state, matter), (state.qpos[0, 0], state.qvel[0, 0])

        return jax.lax.scan(advance, (state, matter), None, round(seconds / step))

    (state, matter), (y, v) = roll(state, matter)
    faults = int(matter.status[0]) & ~int(sph.Status.CFL)
    assert not faults and not np.asarray(state.status).any()
    return step * np.arange(1, len(y) + 1), -np.asarray(y), -np.asarray(v)


def wedge(spacing: float, deadrise: float = 25.0, beam: float = 1.2) -> np.ndarray:
    """Rows of particles along both faces."""
    slope = np.radians(deadrise)
    along, inwards = np.array([np.cos(slope), np.sin(slope)]), np.array([-np.sin(slope), np.cos(slope)])
    s = spacing * (np.arange(round(beam / 2 / np.cos(slope) / spacing)) + 0.5)
    rows = np.concatenate([s[:, None] * along + (k + 0.5) * spacing * inwards for k in range(3)])
    right = rows[rows[:, 0] > 0.25 * spacing]
    return np.concatenate([right, right * [-1, 1]])


def cylinder(spacing: float, radius: float) -> np.ndarray:
    """Rings of particles, above the origin."""
    rings = []
    for r in radius - spacing * (np.arange(min(round(radius / spacing), 4)) + 0.5):
        count = max(round(2 * np.pi * r / spacing), 1)
        angle = 2 * np.pi * (np.arange(count) + 0.5) / count
        rings.append(r * np.stack([np.cos(angle), np.sin(angle)], -1))
    return np.concatenate(rings) + [0.0, radius]


YETTOU = np.array([(5.9, 4.73), (10.8, 3.96), (15.4, 3.07), (20.9, 2.50), (26.0, 2.29), (30.5, 2.07), (39.9, 1.78)])
"""Times [ms] and speeds [m/s] of a wedge of 94 kg that falls at 5.05 m/s (Yettou, Desrochers and Champoux 2006).

The plane problem takes 94 kg/m, with which the theory beside it agrees; its own mass for a metre was not found.
"""

ZHAO = np.array([(4.9, 4.68), (10.7, 3.83), (15.4, 3.25), (20.2, 2.77), (40.1, 1.76)])
"""The same by the theory of Zhao and Faltinsen, digitised."""

CYLINDER = {
    0.5: np.array([(0.277, 0.50), (0.378, 0.61), (0.797, 1.07), (1.131, 1.22)]),
    1.0: np.array([(0.843, 1.68), (1.032, 2.01), (1.881, 2.72)]),
}
"""t (g / D)^(1/2) and depth / D of a cylinder by its density: D = 0.11 m, 2.955 m/s, digitised with an error of 10 %.

Of density 1, the points (0.138, 0.40) and (0.282, 0.94) are left out: free flight without any water reaches 0.403 and
0.84 at these times.
"""


def cylinder_depths(density: float, across: int, sound: float, until: float) -> np.ndarray:
    """Relative errors of the depths at the measured times up to a time."""
    size, spacing = 0.11, 0.11 / across
    points = CYLINDER[density]
    points, rate = points[points[:, 0] <= until], np.sqrt(9.81 / size)
    mass, water = 1000 * density * np.pi * size**2 / 4, (8 * size, 6 * size)
    body = cylinder(spacing, size / 2)
    t, y, _ = entry(body, mass, 2.955, spacing, water, sound, points[-1, 0] / rate + 2e-3, 1e-3)
    return np.interp(points[:, 0], t * rate, y / size) / points[:, 1] - 1


def test_a_light_cylinder(full: bool):
    assert np.abs(cylinder_depths(0.5, 12, 25.0, 2.0 if full else 0.4)).max() < 0.1


@pytest.mark.slow
def test_a_cylinder_as_dense_as_water():
    """A miss: 8 to 15 % less deep than measured, with twenty particles across; 12 to 18 % with twelve."""
    errors = cylinder_depths(1.0, 20, 40.0, 2.0)
    assert (errors < 0).all() and np.abs(errors).max() < 0.16 and abs(errors[-1]) < 0.1


@pytest.mark.slow
def test_a_wedge():
    """Within 5 % of theory; of the measurement only early and late, for in between the two differ by 10 %."""
    t, _, v = entry(wedge(0.01), 94.0, 5.05, 0.01, (3.0, 1.0), 80.0, 0.0405, 5e-4)
    theory, measured = (np.interp(a[:, 0], 1e3 * t, v) / a[:, 1] - 1 for a in (ZHAO, YETTOU))
    assert np.abs(theory).max() < 0.05
    assert np.abs(measured[[0, 1, 5, 6]]).max() < 0.05 and np.abs(measured).max() < 0.14
