"""SPH: a state that does not fit its parameters is refused, a number that cannot be stops its world."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.particles import sph
from fphys.particles.neighbors import make_grid

PARAMS = sph.Params(spacing=0.1, timestep=1e-3, sound_speed=20.0, gravity=(0.0, 0.0, -9.81))


def cloud(worlds: int = 3, params: sph.Params = PARAMS, **given: Any) -> sph.State:
    return sph.init(params, np.random.default_rng(0).uniform(0, 0.5, (worlds, 40, 3)), max_neighbors=40, **given)


@pytest.mark.parametrize("name", ["v", "rho", "p", "shift", "kind", "status"])
def test_fields_of_other_particles_are_refused(name: str):
    state = cloud()
    with pytest.raises(ValueError, match=rf"state\.{name} has shape"):
        sph.step(PARAMS, state.replace(**{name: getattr(state, name)[:1]}))


@pytest.mark.parametrize("change", [{"smoothing": 2.0}, {"spacing": 0.2}, {"periodic": ((0.0, 2.0), None, None)}])
def test_a_state_of_another_reach_is_refused(change: dict[str, Any]):
    """It would miss neighbours."""
    with pytest.raises(ValueError, match=r"make it anew with sph\.init"):
        sph.step(PARAMS.replace(**change), cloud())


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
@pytest.mark.parametrize("name", ["sound_speed", "density", "timestep"])
def test_a_number_that_cannot_be_stops_its_world_and_has_no_gradient(name: str, bad: float):
    state, good = cloud(), {"sound_speed": 20.0, "density": 1e3, "timestep": 1e-3}

    def one(value: Any) -> sph.State:
        return sph.step(PARAMS.replace(**{name: value}), state.replace(rho=1.01 * state.rho))

    values = jnp.full(3, good[name])
    wrong = values.at[1].set(bad)
    after, fine = jax.jit(one)(wrong), one(values)
    assert np.asarray(after.status)[1] & fphys.Status.BADPARAM and not np.asarray(after.status)[::2].any()
    np.testing.assert_array_equal(after.x[1], state.x[1])
    np.testing.assert_array_equal(after.x[::2], fine.x[::2])
    slope = jax.grad(lambda value: jnp.sum(one(value).v ** 2))
    np.testing.assert_array_equal(slope(wrong), slope(values).at[1].set(0.0))
    assert np.all(slope(values) != 0)


def test_a_kind_that_there_is_not_stops_its_world():
    state = cloud()
    after = sph.step(PARAMS, state.replace(kind=state.kind.at[1, 0].set(9)))
    np.testing.assert_array_equal(after.status, [0, fphys.Status.NONFINITE, 0])


def test_a_state_is_made_inside_jit():
    x = np.random.default_rng(0).uniform(0, 0.5, (1, 40, 3))
    made = jax.jit(lambda x: sph.init(PARAMS, x, max_neighbors=40))(x)
    np.testing.assert_array_equal(made.x, x)
    with pytest.raises(TypeError, match="material is traced"):
        jax.jit(lambda m: sph.init(PARAMS, x, material=m))(np.zeros(40, np.int32))


@pytest.mark.parametrize(
    ("change", "given", "says"),
    [
        ({"gravity": 9.81}, {}, "gravity is 9.81, and has a direction"),
        ({"viscosity": -1.0}, {}, "viscosity is -1.0: must be finite and not negative"),
        ({"exponent": 0.0}, {}, "exponent is 0.0: must be positive"),
        ({}, {"max_neighbors": -1}, "max_neighbors is -1"),
        ({}, {"max_neighbors": 20.5}, "max_neighbors is 20.5"),
        ({}, {"velocities": np.full((1, 40, 3), 100.0)}, "of particles at 173.205 m/s"),
    ],
)
def test_numbers_that_cannot_be_are_refused(change: dict[str, Any], given: dict[str, Any], says: str):
    x = np.random.default_rng(0).uniform(0, 0.5, (1, 40, 3))
    with pytest.raises(ValueError, match=says):
        sph.init(PARAMS.replace(**change), x, **given)


def test_nothing_is_a_number_in_float32_too():
    """As an array in single precision: no viscosity, diffusion or repulsion."""
    none = {name: np.zeros(1, np.float32) for name in ("viscosity", "artificial", "diffusion", "repulsion")}
    x = np.random.default_rng(0).uniform(0, 0.5, (1, 40, 3)).astype(np.float32)
    params = jax.tree.map(lambda a: np.asarray(a, np.float32), PARAMS).replace(**none)
    assert not sph.step(params, sph.init(params, x)).status.any()
    with pytest.raises(ValueError, match=r"viscosity is \[-1.\]: must be finite and not negative"):
        sph.init(params.replace(viscosity=-np.ones(1, np.float32)), x)


def test_particles_that_are_not_finite_and_kinds_that_are_not_whole_are_refused():
    x = np.random.default_rng(0).uniform(0, 0.5, (1, 40, 3))
    nowhere, none = np.where(np.arange(40)[None, :, None] == 7, np.nan, x), np.full((1, 40), np.inf)
    with pytest.raises(ValueError, match=r"positions of particle 7 in world 0 are \[nan nan nan\]: give finite"):
        sph.init(PARAMS, nowhere)
    with pytest.raises(ValueError, match="pressure of particle 0 in world 0 are inf: give finite"):
        sph.init(PARAMS, x, pressure=none)
    with pytest.raises(TypeError, match="material is float64: give whole numbers"):
        sph.init(PARAMS, x, material=np.zeros(40))
    empty = np.where(np.arange(40) == 7, sph.EMPTY, sph.FLUID)
    assert jax.numpy.isfinite(sph.init(PARAMS, nowhere, material=empty).x).all()


def test_the_limit_takes_a_speed_or_a_velocity():
    assert sph.limit(PARAMS, -30.0) == sph.limit(PARAMS, 30.0) < sph.limit(PARAMS, 0.0)


def test_a_share_for_other_worlds_is_refused():
    with pytest.raises(ValueError, match=r"share has shape \(2,\)"):
        sph.renew(PARAMS, cloud(), np.ones(2))


def test_a_radius_is_positive():
    with pytest.raises(ValueError, match="radius is 0"):
        make_grid(0.0, (None, None), [1.0, 1.0], 10)
