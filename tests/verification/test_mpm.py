"""The material point method against theory: a vibrating bar, colliding disks, a liquid at rest, friction, spin."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.particles import mpm


def lattice(low: Any, high: Any, spacing: float) -> np.ndarray:
    """Points at the centres of cells of this spacing, shape (1, n, dim)."""
    lines = [np.arange(a + spacing / 2, b, spacing) for a, b in zip(low, high, strict=True)]
    return np.stack(np.meshgrid(*lines, indexing="ij"), -1).reshape(1, -1, len(lines))


def play(params: mpm.Params, state: mpm.State, steps: int, every: int = 1, **given: Any) -> mpm.State:
    """States after each ``every`` steps, stacked."""

    @jax.jit
    def run(state: mpm.State) -> mpm.State:
        def block(s: mpm.State, _: None) -> tuple[mpm.State, mpm.State]:
            s = jax.lax.fori_loop(0, every, lambda _, s: mpm.step(params, s, **given), s)
            return s, s

        return jax.lax.scan(block, state, None, length=steps // every)[1]

    states = run(state)
    assert not states.status.any()
    return states


def momentum(params: mpm.Params, states: mpm.State) -> np.ndarray:
    mass = params.materials[0].density * np.asarray(states.volume)
    return (mass[..., None] * np.asarray(states.v)).sum(-2)


def kinetic(params: mpm.Params, states: mpm.State) -> np.ndarray:
    """Of the particles and of the affine field about each, whose moment of inertia is m dx^2 / 4 along each axis."""
    mass = params.materials[0].density * np.asarray(states.volume)
    affine = params.cell**2 / 4 * (np.asarray(states.C) ** 2).sum((-1, -2))
    return 0.5 * (mass * ((np.asarray(states.v) ** 2).sum(-1) + affine)).sum(-1)


def test_a_bar_vibrates_at_its_frequency(full: bool):
    """Held at one end, E = 4 pi^2, rho = L = 1, nu = 0: period 4 L / sqrt(E / rho) within 1 %, energy within 1 %."""
    cells, periods = 40, 10
    young, speed, amplitude = 4 * np.pi**2, 2 * np.pi, 0.05
    period = 4 / speed
    steps_a_period = 400 if full else 320
    params = mpm.Params(
        mpm.NeoHookean(1.0, young, 0.0), period / steps_a_period, cell=1 / cells, shape=(cells + 4, 1, 1)
    )
    x = lattice((0, 0, 0), (1, 1 / cells, 1 / cells), 0.5 / cells)
    shape = np.sin(0.5 * np.pi * x[..., 0])
    state = mpm.init(params, x, np.stack([amplitude * shape, 0 * shape, 0 * shape], -1))
    every = 4
    states = play(params, state, periods * steps_a_period, every)
    mode = (np.asarray(states.v)[:, 0, :, 0] * shape).sum(-1) / (shape**2).sum()
    time = every * params.timestep * np.arange(1, len(mode) + 1)
    phase = np.unwrap(np.angle(hilbert(mode)))
    inner = (time > 0.5 * period) & (time < time[-1] - 0.5 * period)
    slope = np.polyfit(time[inner], phase[inner], 1)[0]
    assert 2 * np.pi / slope == pytest.approx(period, rel=0.01)
    stretch = np.asarray(states.F)[..., 0, 0]
    # nu = 0: psi = mu / 2 (F^2 - 1 - 2 ln F), mu = E / 2
    elastic = (young / 4 * (stretch**2 - 1 - 2 * np.log(stretch)) * np.asarray(states.volume)).sum((-1, -2))
    energy = kinetic(params, states)[:, 0] + elastic
    assert abs(energy[-20:].mean() / energy[:20].mean() - 1) < 0.01


def hilbert(x: np.ndarray) -> np.ndarray:
    from scipy.signal import hilbert

    return hilbert(x)


def test_disks_collide_and_part(full: bool):
    """Sulsky, Chen and Schreyer 1994: momentum to rounding, and in full size kinetic energy back to 5 %.

    The disks part at 2.0 s and ring: what comes back is the most that is seen after that, for it never comes back all
    at once. 0.935 of it with 16 cells per radius, 0.953 with 32, which is full size and meets the bar.
    """
    spacing, step = (0.003125, 2e-3) if full else (0.00625, 4e-3)
    young, poisson = 1000.0, 0.3
    params = mpm.Params(
        mpm.NeoHookean(1000.0, young, poisson), step, cell=2 * spacing, shape=(round(0.5 / spacing),) * 2
    )
    grid = lattice((-0.2, -0.2), (0.2, 0.2), spacing)[0]
    disk = grid[np.linalg.norm(grid, axis=1) < 0.2]
    x = np.concatenate([disk + 0.25, disk + 0.75])[None]
    v = np.concatenate([np.full_like(disk, 0.1), np.full_like(disk, -0.1)])[None]
    states = play(params, mpm.init(params, x, v), round(3.4 / step), round(0.02 / step))
    moving = kinetic(params, states)[:, 0]
    f = np.asarray(states.F)[:, 0]
    log = np.log(np.linalg.det(f))
    mu, lam = young / 2.6, young * poisson / (1.3 * 0.4)
    strain = mu / 2 * ((f**2).sum((-1, -2)) - 3 - 2 * log) + lam / 2 * log**2
    energy = moving + (strain * np.asarray(states.volume)[:, 0]).sum(-1)
    np.testing.assert_allclose(momentum(params, states), 0.0, atol=1e-11 * 1000 * 0.25)
    assert moving.min() < 0.1 * moving[0]  # they did meet
    assert (np.asarray(states.v)[-1, 0, : len(disk)].mean(0) < -0.08).all()
    assert energy[80:].min() > 0.945 * energy[0] and energy.max() < 1.0001 * energy[0]
    assert moving[105:].max() > (0.95 if full else 0.93) * moving[0]


@pytest.mark.parametrize("hold", ["nodes", "face"])
def test_a_liquid_rests_under_its_weight(hold: str):
    """p = rho g (H - z) within 3 % of rho g H."""
    height, gravity, density = 0.5, 10.0, 1000.0
    bulk = density * 100 * gravity * height  # sound ten times as fast as a fall from the surface
    cell = 1 / 32
    walls = mpm.Walls("slip", hold=hold)
    params = mpm.Params(mpm.Liquid(density, bulk, 7.0, 5.0), 2e-4, (0.0, -gravity), walls, cell=cell, shape=(8, 24))
    x = lattice((0, 0), (0.25, height), cell / 2)
    pressure = density * gravity * (height - x[..., 1])
    ratio = (1 + 7 * pressure / bulk) ** (-1 / 7)
    state = mpm.init(params, x)
    state = state.replace(F=jnp.asarray(np.cbrt(ratio)[..., None, None] * np.eye(3)))
    state = state.replace(volume=jnp.asarray((cell / 2) ** 2 / ratio))
    states = play(params, state, 6000, 50)
    late = jax.tree.map(lambda a: np.asarray(a[60:]).mean(0), states)
    found = bulk / 7 * (np.linalg.det(np.asarray(late.F)) ** -7 - 1)
    wanted = density * gravity * (height - late.x[..., 1])
    assert np.sqrt(np.mean((found - wanted) ** 2)) < 0.01 * density * gravity * height
    assert np.abs(found - wanted).max() < 0.03 * density * gravity * height


@pytest.mark.parametrize(("tilt", "hold"), [(-5.0, "nodes"), (5.0, "nodes"), (-5.0, "face")])
def test_a_block_stops_on_a_slope_below_atan_mu(tilt: float, hold: str):
    """On a slope of atan(mu) - 5 degrees it stops; at + 5 it goes on; both at g (sin - mu cos), within 1 %."""
    friction, gravity, speed, young, height = 0.4, 10.0, 1.0, 1e6, 0.25
    slope = np.arctan(friction) + np.radians(tilt)
    weight = gravity * np.array([np.sin(slope), -np.cos(slope)])
    cell = 1 / 16
    walls = mpm.Walls(("open", "open", "separate", "open"), friction, hold=hold)
    params = mpm.Params(mpm.NeoHookean(1000.0, young, 0.0), 5e-4, weight, walls, cell=cell, shape=(64, 6))
    x = lattice((0.25, 0.0), (0.75, height), cell / 2)
    state = mpm.init(params, x, np.stack([np.full(x.shape[:2], speed), np.zeros(x.shape[:2])], -1))
    gradient = np.array(state.F)
    gradient[..., 1, 1] -= 1000.0 * gravity * np.cos(slope) * (height - x[..., 1]) / young  # at rest along the normal
    states = play(params, state.replace(F=jnp.asarray(gradient)), 2800, 100)
    mean = np.asarray(states.v)[:, 0, :, 0].mean(1)
    time = 0.05 * np.arange(1, len(mean) + 1)
    rate = gravity * (np.sin(slope) - friction * np.cos(slope))
    sliding = time < 0.8
    assert np.polyfit(time[sliding], mean[sliding], 1)[0] == pytest.approx(rate, rel=0.01)
    if tilt < 0:
        assert np.abs(mean[time > 1.2 * speed / -rate]).max() < 0.01 * speed
    else:
        assert mean[-1] > 2 * speed


def test_a_disk_spins_freely():
    """A turn of a free disk: angular momentum stays, no strain grows."""
    cell, rate = 1 / 16, 0.5
    turn = 2 * np.pi / rate
    steps = 2000
    params = mpm.Params(mpm.Corotated(1000.0, 1e4, 0.3), turn / steps, cell=cell, shape=(16, 16))
    grid = lattice((-0.25, -0.25), (0.25, 0.25), cell / 2)[0]
    disk = grid[np.linalg.norm(grid, axis=1) < 0.25]
    v = rate * np.stack([-disk[:, 1], disk[:, 0]], -1)
    state = mpm.init(params, (disk + 0.5)[None], v[None])
    spin = np.zeros((3, 3))
    spin[1, 0], spin[0, 1] = rate, -rate
    state = state.replace(C=jnp.broadcast_to(jnp.asarray(spin), state.C.shape))
    states = play(params, state, steps, steps // 8)

    def angular(s: mpm.State) -> np.ndarray:
        arm, v, c = np.asarray(s.x) - 0.5, np.asarray(s.v), np.asarray(s.C)
        swirl = cell**2 / 4 * (c[..., 1, 0] - c[..., 0, 1])
        return (arm[..., 0] * v[..., 1] - arm[..., 1] * v[..., 0] + swirl).sum(-1)

    np.testing.assert_allclose(angular(states)[:, 0], angular(state)[0], rtol=1e-9)
    stretch = np.linalg.svd(np.asarray(states.F))[1]
    assert np.abs(stretch - 1).max() < 2e-3  # rho w^2 R^2 / E is 1.6e-3
    np.testing.assert_allclose(np.asarray(states.x)[-1, 0], disk + 0.5, atol=2e-3)
