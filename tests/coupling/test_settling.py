"""A sphere sinks in a viscous liquid: in a tube by Stokes' law, as Haberman and Sayre correct it; and faster."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import coupling
from fphys.particles import sph

from .scenes import grid, in_tank

SINK = """<mujoco><option timestep="{step}" gravity="0 0 0"/><worldbody><body pos="0 0 0">
<joint type="slide" axis="0 0 1"/><inertial pos="0 0 0" mass="{mass}" diaginertia="1 1 1"/></body>
</worldbody></mujoco>"""


def haberman(ratio: float) -> float:
    """By how much a tube increases a sphere's drag, from the ratio of their diameters (Haberman and Sayre 1958)."""
    above = 1 - 0.75857 * ratio**5
    below = 1 - 2.1050 * ratio + 2.0865 * ratio**3 - 1.7068 * ratio**5 + 0.72603 * ratio**6
    return above / below


def settling_speed(across: int, tube: float, seconds: float) -> tuple[float, float]:
    """Final speed of a sphere that a given force pulls through a closed tube, and the theory's: Re = 0.1.

    Args:
        across: particles across the sphere, whose diameter is 1 m.
        tube: diameter of the tube in that of the sphere.
    """
    spacing, radius, long, viscosity, wanted = 1 / across, tube / 2, 5.0, 1.0, 0.1
    force = 3 * np.pi * viscosity * 1000 * wanted * haberman(1 / tube)
    step, sound = 0.05, 5.0
    params = sph.Params(spacing, step, sound, viscosity=1000.0 * viscosity, repulsion=0.0)
    thick = 3 * spacing
    x = grid((-radius - thick,) * 2 + (-long / 2 - thick,), (radius + thick,) * 2 + (long / 2 + thick,), spacing)
    r = np.linalg.norm(x[:, :2], axis=1)
    inside = (r < radius) & (abs(x[:, 2]) < long / 2)
    ball = x[np.linalg.norm(x, axis=1) < 0.5]
    water = x[inside & (np.linalg.norm(x, axis=1) >= 0.5)]
    tank = x[~inside & (r < radius + thick)]
    pressure = np.full((1, len(water) + len(tank) + len(ball)), 0.02 * 1000 * sound**2)
    given = {"pressure": jnp.asarray(pressure)}
    medium, matter, substeps = in_tank(params, 0.3, water, tank, ball, np.zeros(3), (sph.WALL, sph.WALL), **given)
    model = fphys.load(SINK.format(step=step, mass=1000 * np.pi / 6), dtype=jnp.float64)
    wrench = jnp.zeros((1, 2, 6)).at[0, 1, 2].set(-force)

    @jax.jit
    def roll(state: Any, matter: Any) -> Any:
        def advance(now: Any, _: None) -> Any:
            state, (matter,) = coupling.step(model, now[0], (medium,), (now[1],), substeps=substeps, wrench=wrench)
            return (state, matter), state.qvel[0, 0]

        return jax.lax.scan(advance, (state, matter), None, round(seconds / step))

    (state, matter), v = roll(fphys.init(model, 1), matter)
    assert not np.asarray(matter.status).any() and not np.asarray(state.status).any()
    return -float(v[-1]), wanted


@pytest.mark.slow
def test_the_settling_speed():
    """Within 10 %, at six particles across the sphere and eighteen across the tube."""
    found, theory = settling_speed(6, 3.0, 1.0)
    assert abs(found / theory - 1) < 0.1


def schiller_naumann(reynolds: float) -> float:
    """The drag coefficient of a sphere, up to a Reynolds number of 800."""
    return 24 / reynolds * (1 + 0.15 * reynolds**0.687)


def free_speed(reynolds: float, across: int, wide: float, high: float, seconds: float) -> np.ndarray:
    """Speed of a sphere of 1 m after each step, which a force pulls that Schiller and Naumann have at 1 m/s [m/s].

    The liquid is periodic across, and begins with the potential flow around the sphere, so that only the friction's
    part has to develop.

    Args:
        across: particles across the sphere; an odd number, so that its middle is one.
        wide: distance of the sphere's images [m].
        high: of the closed ends [m]; it begins 3 m below the upper one.
    """
    spacing, step, sound, real = 1 / across, 0.05, 10.0, jnp.float32
    sides = (-wide / 2, wide / 2)
    params = sph.Params(
        spacing, step, sound, viscosity=1000.0 / reynolds, repulsion=0.05, periodic=(sides, sides, None)
    )
    thick = 3 * spacing
    x = grid((sides[0], sides[0], -high / 2 - thick), (sides[1], sides[1], high / 2 + thick), spacing)
    at = x[np.linalg.norm(x - [0, 0, high / 2 - 3], axis=1).argmin()]
    off = x - at
    near, inside = np.linalg.norm(off, axis=1), abs(x[:, 2]) < high / 2
    ball, water, tank = off[near < 0.5], x[inside & (near >= 0.5)], x[~inside]
    count = len(water) + len(tank) + len(ball)
    given = {"pressure": jnp.full((1, count), 0.02 * 1000 * sound**2)}
    medium, matter, substeps = in_tank(params, 2.5, water, tank, ball, at, (sph.SLIP_WALL, sph.WALL), **given)
    away = (water - at) / np.linalg.norm(water - at, axis=1, keepdims=True)
    v = np.zeros((1, count, 3))
    v[0, : len(water)] = (np.array([0, 0, 1]) - 3 * away[:, 2:] * away) / (
        16 * np.linalg.norm(water - at, axis=1, keepdims=True) ** 3
    )
    matter = matter.replace(v=jnp.asarray(v))
    matter = jax.tree.map(lambda a: a.astype(real) if a.dtype == jnp.float64 else a, matter)
    medium = medium.replace(walls=medium.walls.astype(real))
    model = fphys.load(SINK.format(step=step, mass=1000 * np.pi / 6), dtype=real)
    state = fphys.init(model, 1).replace(qpos=jnp.full((1, 1), at[2], real), qvel=jnp.full((1, 1), -1.15, real))
    force = schiller_naumann(reynolds) * 1000 / 2 * np.pi / 4
    wrench = jnp.zeros((1, 2, 6), real).at[0, 1, 2].set(-force)

    @jax.jit
    def roll(state: Any, matter: Any) -> Any:
        def advance(now: Any, _: None) -> Any:
            state, (matter,) = coupling.step(model, now[0], (medium,), (now[1],), substeps=substeps, wrench=wrench)
            return (state, matter), state.qvel[0, 0]

        return jax.lax.scan(advance, (state, matter), None, round(seconds / step))

    (state, matter), v = roll(state, matter)
    assert not np.asarray(matter.status).any() and not np.asarray(state.status).any()
    return -np.asarray(v)


@pytest.mark.slow
def test_the_settling_speed_above_stokes():
    """Within 8 % at Re = 50, seven particles across, where the layer that friction slows is one particle thick."""
    v = free_speed(50.0, 7, 6.0, 12.0, 6.0)
    assert abs(v[-1] - v[-10]) < 0.01
    assert abs(v[-1] - 1) < 0.08
