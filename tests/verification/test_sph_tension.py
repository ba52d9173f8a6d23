"""Surface tension against Laplace's law, and its gradient."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys import scan
from fphys.particles import sph
from fphys.testing import check_grads

from ..particles.sph_scenes import lattice


def drop(number: int, dim: int, dtype: str = "float32", **changes: Any) -> tuple[sph.Params, sph.State, float]:
    """A round drop of radius 1/2 and tension 1 at the pressure of Laplace's law, and that pressure."""
    spacing = 0.5 / number
    x = lattice([-0.5] * dim, [0.5] * dim, spacing)
    x = x[np.linalg.norm(x, axis=1) < 0.5]
    volume = len(x) * spacing**dim
    radius = np.sqrt(volume / np.pi) if dim == 2 else (3 * volume / (4 * np.pi)) ** (1 / 3)
    pressure = (dim - 1) / radius
    given = {"smoothing": 1.5 if dim == 2 else 1.2, "viscosity": 0.2, "artificial": 0.05, "tension": 1.0}
    params = sph.Params(spacing, 1.0, 20.0, density=1.0, **given | changes)
    params = params.replace(timestep=0.8 * float(sph.limit(params, 0.5).min()))
    return params, sph.init(params, x[None].astype(dtype), pressure=np.full((1, len(x)), pressure, dtype)), pressure


@pytest.mark.parametrize(
    ("number", "dim"),
    [(12, 2), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((16, 2), (20, 2), (10, 3)))],
)
def test_the_pressure_in_a_drop_is_tension_over_radius(number: int, dim: int):
    """sigma / R in a plane, 2 sigma / R in space, within 5 %, in the inner half over the second half of the time."""
    params, state, wanted = drop(number, dim)

    def one(s: sph.State, _: None) -> Any:
        s = sph.step(params, s)
        inner = jnp.linalg.norm(s.x[0] - s.x[0].mean(0, keepdims=True), axis=-1) < 0.25
        return s, jnp.mean(s.p[0], where=inner)

    steps = round((1.0 if dim == 2 else 0.6) / params.timestep)
    last, p = jax.jit(lambda s: jax.lax.scan(one, s, None, length=steps))(state)
    sph.check(params, last)
    assert float(p[steps // 2 :].mean()) == pytest.approx(wanted, rel=0.05)
    assert float(jnp.abs(last.v).max()) < 0.1  # of the capillary speed, (sigma / (rho R))^(1/2) = 1.4
    gained = jnp.abs((last.v - state.v).sum(1)).max() / jnp.abs(last.v).sum()
    assert float(gained) < 1e-4  # rounding, in single precision, over the sum of what is left of motion


@pytest.mark.parametrize("dim", [2, 3])
def test_tension_keeps_momentum_and_walls_are_no_fluid(dim: int):
    """Of a drop that is not round: its forces cancel, and are the same on a wall, on which there are none."""
    params, state, _ = drop(4, dim, "float64")
    rng = np.random.default_rng(0)
    x = 1.1 * np.asarray(state.x) + 0.01 * rng.standard_normal(state.x.shape)
    wall = lattice([-1.0] * dim, [1.0] * (dim - 1) + [0.0], params.spacing)
    wall = wall - 0.55 * np.eye(dim)[-1]
    kind = np.repeat([sph.FLUID, sph.WALL], [x.shape[1], len(wall)])

    def tension(x: np.ndarray, kind: np.ndarray) -> np.ndarray:
        at = sph.init(params, x, material=kind, max_neighbors=200)
        return np.asarray(sph.forces(params, at) - sph.forces(params.replace(tension=None), at))

    alone = tension(x, kind[: x.shape[1]])
    beside = tension(np.concatenate([x, wall[None]], 1), kind)
    assert np.abs(alone.sum(1)).max() < 1e-13 * np.abs(alone).sum()
    assert np.abs(alone).max() > 1e-3 * float(params.tension) * params.spacing ** (dim - 2)
    assert np.abs(beside[:, : x.shape[1]] - alone).max() < 1e-12 * np.abs(alone).max()
    assert (beside[:, x.shape[1] :] == 0).all()


def test_tension_has_a_time_step_of_its_own_and_none_is_nothing():
    params, state, _ = drop(8, 2, "float64")
    none = params.replace(tension=None)
    assert float(sph.limit(params.replace(tension=1e4))[0]) < 0.5 * float(sph.limit(none)[0])
    with pytest.raises(ValueError, match="Courant"):
        sph.init(params.replace(tension=1e4), state.x)
    step = jax.jit(sph.step)
    assert (step(none, state).x == step(params.replace(tension=0.0), state).x).all()


@pytest.mark.parametrize("central", [False, True])
def test_gradients_with_tension(central: bool, full: bool):
    """By everything, of a drop that is not round."""
    params, state, _ = drop(4, 2, "float64", central=central)
    rng = np.random.default_rng(0)
    x = state.x * jnp.array([[[1.1, 0.9]]]) + 0.005 * rng.standard_normal(state.x.shape)
    rows = jax.tree.map(lambda leaf: jnp.atleast_1d(jnp.asarray(leaf, float)), params)
    rows = rows.replace(gravity=jnp.zeros((1, 2)), timestep=rows.timestep)

    def moved(params: Any, x: Any, rho: Any) -> Any:
        start = state.replace(x=x, rho=rho)
        last, _ = scan(lambda s, _: (sph.step(params, s), None), start, jnp.arange(20))
        return last.x, last.v, last.rho, last.p

    check_grads(moved, (rows, x, state.rho), tol=1e-6, directions=16 if full else 2)
