"""Finite elements, against theory: period and decay of a beam, order of the integrator; muscles; no locking."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from fphys.deformables import fem, mesh

from .test_fem import POISSON, YOUNG, block, principal_stress

LENGTH, HEIGHT, DENSITY, STIFF, NU = 0.2, 0.02, 1000.0, 2e6, 0.3975
ROOT = 1.875104
PERIOD = 2 * np.pi / (ROOT**2 * (STIFF / (1 - NU**2) * HEIGHT**2 / 12 / DENSITY) ** 0.5 / LENGTH**2)


def swing(cells: int, damping: tuple[float, ...] = (0.0,)) -> np.ndarray:
    """Tip of a cantilever [m], (step, world), that starts flat with the first mode's velocity; steps of 0.01 s."""
    body = mesh.box((10 * cells, cells), (LENGTH, HEIGHT))
    held = np.flatnonzero(body.vertices[:, 0] == 0)
    law = fem.StVenantKirchhoff(DENSITY, STIFF, NU)
    params = fem.Params(body, law, 0.01, stiffness_damping=jnp.asarray(damping), pinned=held, order=2)

    def mode(s: Any) -> Any:
        ratio = (np.cos(ROOT) + np.cosh(ROOT)) / (np.sin(ROOT) + np.sinh(ROOT))
        return np.cosh(s) - np.cos(s) - ratio * (np.sinh(s) - np.sin(s))

    v = np.zeros((len(damping), *body.vertices.shape))
    v[..., 1] = 0.1 * mode(ROOT * body.vertices[:, 0] / LENGTH) / mode(ROOT)
    state = fem.init(params, np.broadcast_to(body.vertices, v.shape), v)

    def advance(state: fem.State, _: None) -> tuple[fem.State, Any]:
        state = fem.step(params, state)
        return state, state.x[:, -1 - cells // 2, 1] - HEIGHT / 2

    state, tip = jax.jit(lambda: jax.lax.scan(advance, state, None, 26))()
    fem.check(params, state)
    return np.concatenate([np.zeros((1, len(damping))), tip])


def crossing(tip: np.ndarray) -> float:
    """When it comes back to zero the first time [s]."""
    i = np.flatnonzero((tip[1:-1] > 0) & (tip[2:] <= 0))[0] + 1
    return 0.01 * (i + tip[i] / (tip[i] - tip[i + 1]))


def peak(tip: np.ndarray) -> float:
    """The largest value, of a parabola through three."""
    i = int(tip[1:-1].argmax()) + 1
    a, b, c = tip[i - 1 : i + 2]
    return b + (a - c) ** 2 / (8 * (2 * b - a - c))


def test_a_cantilever_oscillates():
    """L 0.2, H 0.02, E 2 MPa, nu 0.3975: T = 0.254 s. Bending locks as h^2, so that two meshes give the limit."""
    coarse, fine = (2 * crossing(swing(cells)[:, 0]) for cells in (4, 8))
    assert pytest.approx(0.2540, abs=5e-5) == PERIOD
    assert fine == pytest.approx(PERIOD, rel=0.02)
    assert fine + (fine - coarse) / 3 == pytest.approx(PERIOD, rel=0.01)


def test_damping_by_stiffness_and_order():
    """Without damping hardly any motion is lost; with it the half period's decrement is pi b w / 2."""
    b = 2e-3
    free, damped = swing(2, (0.0, b)).T
    up, down = peak(free), peak(-free)
    assert down / up == pytest.approx(1, abs=5e-3)
    w = np.pi / crossing(free)
    decay = np.log(peak(damped) / peak(-damped)) - np.log(up / down)
    assert decay == pytest.approx(np.pi * b * w / 2, rel=0.03)


@pytest.mark.parametrize("order", [1, 2])
def test_the_error_falls_with_the_step(order: int):
    """A soft block, thrown, damped, with a muscle: the error is proportional to h to the order."""
    body = mesh.box((2, 1), (0.2, 0.1))
    params = fem.Params(
        body,
        fem.NeoHookean(1000.0, 1e4, 0.3),
        0.08,
        (0.0, -9.81),
        damping=0.5,
        pinned=(0, 1),
        order=order,
    )
    start = fem.init(params, velocities=jnp.asarray(body.vertices @ np.array([[1.0, 2.0], [0.0, 0.5]]))[None])
    muscle = jnp.asarray(np.diag([500.0, 0.0, 0.0]))[None, None]
    state = {}
    for n in (20, 40, 80):
        now = params.replace(timestep=jnp.asarray(0.08 / n))
        last, _ = jax.jit(
            lambda p, n=n: jax.lax.scan(lambda s, _: (fem.step(p, s, actuation=muscle), None), start, None, n)
        )(now)
        state[n] = np.asarray(last.x)
    ratio = np.linalg.norm(state[20] - state[40]) / np.linalg.norm(state[40] - state[80])
    assert ratio == pytest.approx(2**order, rel=0.15)


def test_only_the_symmetric_part_of_a_muscle_acts():
    params = fem.Params(mesh.box((2, 1, 1), (0.2, 0.1, 0.1)), fem.NeoHookean(1000.0, 1e5, 0.3), 0.01)
    pull = np.random.default_rng(0).uniform(0, 1e4, (1, 1, 3, 3))
    step = jax.jit(lambda pull: fem.step(params, fem.init(params), actuation=pull).x)
    given, even = step(pull), step(0.5 * (pull + pull.swapaxes(2, 3)))
    np.testing.assert_array_equal(given, even)
    assert np.abs(given[0] - params.mesh.vertices).max() > 1e-3


def test_a_muscle_shortens_a_block():
    """Free of loads, P + F S = 0: the closed form's stretches."""
    pull = 0.3 * YOUNG

    def across(s: float) -> float:
        found: Any = brentq(lambda b: principal_stress(fem.NeoHookean, np.array([s, b, b]))[2], 0.5, 2.0, xtol=1e-14)
        return found

    def left(s: float) -> float:
        return principal_stress(fem.NeoHookean, np.array([s, across(s), across(s)]))[0] + s * pull

    s: Any = brentq(left, 0.5, 1.0, xtol=1e-14)
    assert s < 0.85
    body = block(3)
    exact = body.vertices * np.array([s, across(s), across(s)])
    held = np.flatnonzero((body.vertices == 0).all(1) | (body.vertices[:, 1:] == 0).all(1))
    params = fem.Params(body, fem.NeoHookean(1000.0, YOUNG, POISSON), jnp.inf, pinned=held)
    muscle = jnp.asarray(np.diag([pull, 0.0, 0.0]))[None, None]
    state = jax.jit(fem.step)(params, fem.init(params), pins=jnp.asarray(exact[held]), actuation=muscle)
    fem.check(params, state)
    turned = np.asarray(state.x[0])  # about the held edge, which leaves one rotation free
    np.testing.assert_allclose(np.linalg.norm(turned[:, 1:], axis=1), np.linalg.norm(exact[:, 1:], axis=1), atol=1e-8)
    np.testing.assert_allclose(turned[:, 0], exact[:, 0], rtol=0, atol=1e-8)


def cook(cells: tuple[int, ...], mean: bool = True) -> float:
    """Cook's membrane at finite strain, E 240.565, nu 0.4999, shear 6.25: how far the loaded side rises.

    In the plane (in plane strain) the upper corner of the side; of a slab 10 thick, whose sides are free, the mean.
    """
    unit = mesh.box(cells, (1.0,) * len(cells))
    s, t = unit.vertices[:, :2].T
    x = np.stack([48 * s, 44 * s * (1 - t) + (44 + 16 * s) * t, *(10 * z for z in unit.vertices.T[2:])], 1)
    body, side = mesh.build(x, unit.elements), s == 1
    sides = body.topology.surface
    loaded = sides[side[sides].all(1)]
    size = mesh.measures(x, loaded)[:, None] / loaded.shape[1]
    force = np.zeros_like(x)
    np.add.at(force[:, 1], loaded, 6.25 * size)
    held = np.flatnonzero(s == 0)
    law = fem.NeoHookean(1.0, 240.565, 0.4999)
    params = fem.Params(body, law, jnp.inf, pinned=held, mean_dilatation=mean, iterations=200)
    state = jax.jit(fem.step)(params, fem.init(params), jnp.asarray(force)[None])
    fem.check(params, state)
    rise = np.asarray(state.x[0])[:, 1] - x[:, 1]
    return float(rise[side & (t == 1)][0]) if len(cells) == 2 else float((rise * force[:, 1]).sum() / force[:, 1].sum())


def limit(coarse: float, fine: float) -> float:
    """Of cells half as large, again and again, with the corner's order: from 8, 16 and 32 cells it was 1.35."""
    return fine + (fine - coarse) / (2**1.35 - 1)


def test_cooks_membrane_nearly_incompressible():
    """Plane strain: 6.9 (Simo and Armero 1992). Without means tetrahedra lock."""
    coarse, fine = cook((8, 8)), cook((16, 16))
    assert fine > cook((16, 16), mean=False) + 0.2
    assert limit(coarse, fine) == pytest.approx(6.9, rel=0.02)
    assert cook((6, 6, 1)) > 2.2 * cook((6, 6, 1), mean=False)


@pytest.mark.slow
def test_a_slab_nearly_incompressible():
    """8.46, by composite tetrahedra."""
    assert limit(cook((6, 6, 1)), cook((12, 12, 2))) == pytest.approx(8.46, rel=0.03)
