"""A program in float32 and one in float64, in turns in one process: what the host keeps of a mesh serves both."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import fphys
from fphys.deformables import fem, mesh, pbd, rod
from fphys.particles import boundary, mpm, sample, sph

POINTS = sample.box((0.2, 0.2), (0.5, 0.5), spacing=0.05)
SHEET, BAR, CABLE = mesh.cloth((3, 4), (0.3, 0.4)), mesh.box((2, 2, 2), (0.2, 0.2, 0.2)), mesh.rope(5, 0.5)
BALL = boundary.sphere((0.1, 0.1, -0.2), 0.15)
LAW = fem.NeoHookean(1000.0, 1e4, 0.3)


def of_pbd(x: Any) -> Any:
    params = pbd.Params(SHEET, 0.2, 0.01, 1e-5, bend=1e-4, gravity=(0.0, 0.0, -9.81), pinned=(0,), apart=0.05)
    return pbd.step(params, pbd.init(params, x), colliders=(BALL,)).x


def of_fem(x: Any) -> Any:
    params = fem.Params(BAR, LAW, timestep=0.01, gravity=(0.0, 0.0, -9.81), pinned=(0, 1))
    return fem.step(params, fem.init(params, x), colliders=(BALL,)).x


def of_sheets(x: Any) -> Any:
    params = fem.Params(SHEET, LAW, timestep=0.01, thickness=0.001, gravity=(0.0, 0.0, -9.81), pinned=(0, 1))
    return fem.step(params, fem.init(params, x)).x


def of_rods(x: Any) -> Any:
    params = rod.Params(CABLE, density=0.2, radius=0.01, timestep=0.01, bend=0.02, twist=0.02, pinned=(0,))
    return rod.step(params, rod.init(params).replace(x=x)).x


def of_mpm(x: Any) -> Any:
    params = mpm.Params(mpm.Liquid(1000.0, 1e5), 5e-4, (0.0, -9.81), mpm.Walls("slip"), cell=0.1, shape=(8, 8))
    return mpm.step(params, mpm.init(params, x).replace(v=x * x)).v


def of_sph(x: Any) -> Any:
    params = sph.Params(spacing=0.05, timestep=1e-4, sound_speed=30.0, gravity=(0.0, -9.81))
    return sph.step(params, sph.init(params, x)).v


CASES: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "pbd": (of_pbd, SHEET.vertices),
    "fem": (of_fem, BAR.vertices),
    "sheets": (of_sheets, SHEET.vertices),
    "rod": (of_rods, CABLE.vertices),
    "mpm": (of_mpm, POINTS),
    "sph": (of_sph, POINTS),
}


@pytest.mark.parametrize("name", CASES)
def test_float32_and_float64_in_turns(name: str):
    fn, x = CASES[name]

    def gradient(double: bool) -> np.ndarray:
        with jax.enable_x64(double):
            start = jax.numpy.asarray(x[None], np.float64 if double else np.float32)
            return np.asarray(jax.jit(jax.grad(lambda x: (fn(x) ** 2).sum()))(start))

    found = [gradient(double) for double in (False, True, False)]
    assert [str(g.dtype) for g in found] == ["float32", "float64", "float32"]
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_allclose(found[0], found[1], atol=1e-2 * np.abs(found[1]).max())


def test_a_rigid_step_in_turns():
    def gradient(double: bool) -> np.ndarray:
        with jax.enable_x64(double):
            model = fphys.load("ant")
            state = fphys.init(model, 1)
            slope = jax.grad(lambda qvel: (fphys.step(model, state.replace(qvel=qvel)).qpos ** 2).sum())
            return np.asarray(jax.jit(slope)(state.qvel))

    found = [gradient(double) for double in (False, True, False)]
    assert [str(g.dtype) for g in found] == ["float32", "float64", "float32"]
    np.testing.assert_allclose(found[0], found[1], atol=1e-3 * np.abs(found[1]).max())
