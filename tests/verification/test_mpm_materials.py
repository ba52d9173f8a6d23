"""Materials of the material point method along prescribed deformations: moduli, yield, hardening, objectivity.

A block whose particles all have the same deformation gradient has a uniform stress. In a step from rest the stress
moves its free faces only, so the momentum that one half of it gains is the traction on the section between the halves.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.particles import mpm

CELLS, LOW, HIGH = 12, 3, 9  # the block is 6 cells wide, 2 particles along each edge of a cell
STEP = 1e-5


def block(material: mpm.Material) -> tuple[mpm.Params, mpm.State]:
    params = mpm.Params(material, STEP, cell=1.0, shape=(CELLS,) * 3)
    line = np.arange(LOW, HIGH, 0.5) + 0.25
    x = np.stack(np.meshgrid(line, line, line, indexing="ij"), -1).reshape(1, -1, 3)
    return params, mpm.init(params, x)


@functools.partial(jax.jit, static_argnums=2)
def stress(params: mpm.Params, state: mpm.State, axis: int) -> Any:
    """Kirchhoff's stress along an axis [Pa], by the momentum that the upper half gains."""
    rest = state.replace(v=jnp.zeros_like(state.v), C=jnp.zeros_like(state.C))
    after = mpm.step(params, rest)
    mass = params.materials[0].density * state.volume
    upper = state.x[..., axis] > 0.5 * (LOW + HIGH)
    area = (HIGH - LOW) ** 2
    return -jnp.sum(jnp.where(upper, mass * after.v[..., axis], 0.0)) / (area * params.timestep)


@jax.jit
def deformed(params: mpm.Params, state: mpm.State, change: Any) -> mpm.State:
    """The block after F = change F: a step with C = (change - 1) / h, the particles held in place."""
    rate = jnp.broadcast_to((change - jnp.eye(3)) / params.timestep, state.C.shape)
    after = mpm.step(params, state.replace(v=jnp.zeros_like(state.v), C=rate))
    return after.replace(x=state.x, v=state.v, C=state.C, status=state.status)


def everywhere(gradient: np.ndarray, state: mpm.State) -> Any:
    """The same deformation gradient for every particle."""
    return jnp.broadcast_to(jnp.asarray(gradient), state.F.shape)


def stretched(*factors: float) -> np.ndarray:
    return np.diag(np.array(factors))


@pytest.mark.parametrize("material", [mpm.Corotated, mpm.NeoHookean, mpm.VonMises])
def test_the_modulus_of_a_bar(material: Any):
    """sigma = E strain where the sides are free, contracting by nu: within 1 %."""
    young, poisson, strain = 1e5, 0.3, 1e-3
    extra = (1e9,) if material is mpm.VonMises else ()
    params, state = block(material(1000.0, young, poisson, *extra))
    axial, lateral = [], []
    for ratio in (0.25, 0.35):
        bar = deformed(params, state, stretched(1 + strain, 1 - ratio * strain, 1 - ratio * strain))
        axial.append(float(stress(params, bar, 0)))
        lateral.append(float(stress(params, bar, 1)))
    free = 0.25 - 0.1 * lateral[0] / (lateral[1] - lateral[0])  # where the sides bear nothing
    assert free == pytest.approx(poisson, rel=0.01)
    assert np.interp(free, (0.25, 0.35), axial) / strain == pytest.approx(young, rel=0.01)


def test_metal_yields_at_its_strength():
    """The difference of the principal stresses stops at sigma_y, and grows by the hardening modulus."""
    young, strength = 1e5, 500.0
    for hardening in (0.0, 1e4):
        params, state = block(mpm.VonMises(1000.0, young, 0.3, strength, hardening))
        found = []
        for _ in range(20):
            state = deformed(params, state, stretched(1.001, 1.001**-0.5, 1.001**-0.5))
            found.append(float(stress(params, state, 0) - stress(params, state, 1)))
        elastic = 2 * young / 2.6 * 1.5 * np.log(1.001)
        assert found[0] == pytest.approx(elastic, rel=1e-3)
        assert np.max(np.diff(found)) <= 1.01 * elastic
        plastic = float(state.history.mean())
        assert plastic == pytest.approx(20 * np.log(1.001) - found[-1] / (3 * young / 2.6), rel=0.01)
        assert found[-1] == pytest.approx(strength + hardening * plastic, rel=1e-3)


@pytest.mark.parametrize("steps", [1, 20])
@pytest.mark.parametrize("hardening", [0.0, 1e4, 1e6])
def test_metal_hardens_within_a_step(hardening: float, steps: int):
    """A shear of 6 % in few steps or many: (3 mu e - sigma_y) / (3 mu + H) is plastic, the stress sigma_y + H times it.

    The slope by H, of a single step, too, is that of this formula.
    """
    young, poisson, strength = 1e5, 0.3, 2e3
    mu = young / (2 + 2 * poisson)

    def sheared(hardening: Any) -> tuple[Any, Any]:
        metal = mpm.VonMises(1000.0, young, poisson, strength, hardening)
        params = mpm.Params(metal, STEP, cell=1.0, shape=(CELLS,) * 3)
        state, change = mpm.init(params, np.full((1, 1, 3), 6.0)), np.exp(0.06 / steps * np.array([1.0, -1.0, 0.0]))
        for _ in range(steps):
            state = deformed(params, state, jnp.diag(change))
        e = jnp.log(jnp.diagonal(state.F[0, 0]))  # the deformation stays along the axes
        return jnp.sqrt(1.5 * jnp.vdot(e, e)) * 2 * mu, state.history[0, 0]

    total = np.sqrt(4 / 3) * 0.06

    def exact(hardening: Any) -> tuple[Any, Any]:
        plastic = (3 * mu * total - strength) / (3 * mu + hardening)
        return strength + hardening * plastic, plastic

    np.testing.assert_allclose(sheared(hardening), exact(hardening), rtol=1e-9)
    for k in range(2):
        slopes = [jax.grad(lambda h, f=f, k=k: f(h)[k])(hardening) for f in (sheared, exact)]
        np.testing.assert_allclose(*slopes, rtol=1e-7)


def test_snow_hardens_on_recompression():
    """Compressed beyond its limit, let go, compressed again: it bears more, by exp(xi (1 - Jp))."""
    material = mpm.Snow(young=1.4e5, hardening=10.0)
    params, state = block(material)
    squeeze, release = stretched(0.995, 1.0, 1.0), stretched(1 / 0.995, 1.0, 1.0)
    first = []
    for _ in range(6):
        state = deformed(params, state, squeeze)
        first.append(float(stress(params, state, 0)))
    virgin = np.interp(0.025, 0.005 * np.arange(1, 7), np.abs(first))
    for _ in range(4):
        state = deformed(params, state, release)
    assert abs(float(stress(params, state, 0))) < 0.4 * abs(first[-1])
    second = []
    for _ in range(12):
        state = deformed(params, state, squeeze)
        second.append(abs(float(stress(params, state, 0))))
    hardness = np.exp(material.hardening * (1 - float(state.history.mean())))
    assert hardness > 1.4
    assert second[-1] == pytest.approx(hardness * virgin, rel=0.03)
    assert np.linalg.svd(np.asarray(state.F[0, 0]))[1].min() == pytest.approx(1 - material.compression, rel=1e-9)


def sheared(params: mpm.Params, state: mpm.State, way: tuple[float, ...] = (1.0, -1.0, 0.0)) -> np.ndarray:
    """Principal stresses of sand that is pressed, and then deformed, in a plane if not told else, until it flows."""
    state = deformed(params, state, stretched(0.999, 0.999, 0.999))
    for _ in range(20):
        state = deformed(params, state, stretched(*(1.002**rate for rate in way)))
    return np.array([float(stress(params, state, axis)) for axis in range(3)])


def test_sand_matched_in_shear_slides_at_the_angle_given():
    """(s1 - s3) / (s1 + s3) = sin(31 degrees), Mohr and Coulomb's circle in the plane."""
    angle = np.radians(31.0)
    parts = sheared(*block(mpm.Sand(young=1e5, friction=mpm.matched_in_shear(angle))))
    circle = (parts.max() - parts.min()) / -(parts.max() + parts.min())
    assert circle == pytest.approx(np.sin(angle), rel=1e-3)


@pytest.mark.parametrize(
    ("way", "tolerance"),
    [((1.0, -1.0, 0.0), 1e-3), ((0.5, -1.0, 0.5), 0.02), ((1.0, -0.5, -0.5), 0.02), ((1.0, -0.75, -0.25), 0.02)],
)
def test_mohr_and_coulombs_sand_slides_at_its_angle_however_it_is_deformed(way: tuple[float, ...], tolerance: float):
    """In plane shear, compressed and pulled along an axis, where the pyramid's edges are rounded, and between."""
    angle = np.radians(31.0)
    parts = sheared(*block(mpm.MohrCoulomb(young=1e5, friction=angle)), way)
    circle = (parts.max() - parts.min()) / -(parts.max() + parts.min())
    assert circle == pytest.approx(np.sin(angle), rel=tolerance)
    cone = sheared(*block(mpm.Sand(young=1e5, friction=angle)), (0.5, -1.0, 0.5))  # what Klar's has in common
    assert (cone.max() - cone.min()) / -(cone.max() + cone.min()) == pytest.approx(np.sin(angle), rel=1e-3)


def test_sand_bears_no_tension_and_slides_at_its_angle():
    """Pulled, nothing; sheared under pressure, |dev| / p at the cone of 31 degrees."""
    params, state = block(mpm.Sand(young=1e5))
    pulled = deformed(params, state, stretched(1.01, 1.01, 1.01))
    assert abs(float(stress(params, pulled, 0))) < 1e-6 * 1e5
    assert float(pulled.history.mean()) == pytest.approx(3 * np.log(1.01), rel=1e-9)
    parts = sheared(params, state)
    pressure = -parts.mean()
    sine = np.sin(np.radians(31.0))
    wanted = np.sqrt(2 / 3) * 2 * sine / (3 - sine) * 3 * pressure  # |dev tau| = alpha (-tr tau), Klar et al. 2016
    assert np.linalg.norm(parts + pressure) == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("material", [mpm.Corotated, mpm.NeoHookean, mpm.Snow, mpm.Sand, mpm.MohrCoulomb, mpm.VonMises])
def test_a_rotation_leaves_no_stress(material: Any):
    extra = (1e9,) if material is mpm.VonMises else ()
    params, state = block(material(1000.0, 1e5, 0.3, *extra))
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    rotation *= np.sign(np.linalg.det(rotation))
    turned = state.replace(F=jnp.asarray(rotation @ np.asarray(state.F)))
    after = mpm.step(params, turned)
    assert np.abs(after.v).max() < 1e-13
    strained = state.replace(F=everywhere(rotation @ stretched(1.001, 1.0, 0.998), state))
    plain = state.replace(F=everywhere(rotation @ stretched(1.001, 1.0, 0.998) @ rotation.T, state))
    if material is not mpm.Snow:  # isotropic: the rotation before the stretch does not matter
        np.testing.assert_allclose(mpm.step(params, strained).v, mpm.step(params, plain).v, rtol=0, atol=1e-12)
