"""Small systems of every solver, as functions of gravity and state."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys import rigid
from fphys.deformables import fem, mesh, pbd
from fphys.particles import mpm, sph

WORLDS = 4
GRAVITY = (0.3, -9.81)


def shaken(x: np.ndarray, dtype: Any) -> np.ndarray:
    return (x + 0.002 * np.random.default_rng(0).normal(size=(WORLDS, *x.shape))).astype(dtype)


def of_rigid(dtype: Any) -> Any:
    model = fphys.load(fphys.asset("ball"), dtype=dtype)
    state = fphys.init(model, WORLDS, qvel=np.arange(1.0, 13.0) / 10)

    def step(gravity: Any, state: Any) -> Any:
        return rigid.step(model.replace({"opt.gravity": jnp.append(gravity, 0.0)[None]}), state)

    return step, state


def of_mpm(dtype: Any) -> Any:
    params = mpm.Params(mpm.Corotated(1000.0, 1e4, 0.3), 1e-3, GRAVITY, cell=0.1, shape=(10, 10))
    x = shaken(np.array([(i, j) for i in (0.3, 0.35, 0.4) for j in (0.3, 0.35)]), dtype)
    return lambda g, s: mpm.step(params.replace(gravity=g), s), mpm.init(params, x, 0.1 * np.sin(100 * x))


def of_sph(dtype: Any) -> Any:
    params = sph.Params(0.05, 1e-3, 10.0, viscosity=0.1, gravity=GRAVITY)
    x = shaken(np.array([(i, j) for i in (0.3, 0.35, 0.4) for j in (0.3, 0.35)]), dtype)
    return lambda g, s: sph.step(params.replace(gravity=g), s), sph.init(params, x, 0.1 * np.sin(100 * x))


def of_fem(dtype: Any) -> Any:
    body = mesh.box((2, 1), (0.4, 0.2))
    params = fem.Params(body, fem.NeoHookean(1000.0, 1e4, 0.3), 1e-3, GRAVITY, pinned=(0, 1))
    x = shaken(body.vertices, dtype)
    return lambda g, s: fem.step(params.replace(gravity=g), s), fem.init(params, x, 0.1 * np.sin(100 * x))


def of_pbd(dtype: Any) -> Any:
    sheet = mesh.cloth((2, 2), (0.2, 0.2))
    params = pbd.Params(sheet, 0.2, 1e-2, 1e-3, gravity=(*GRAVITY, 0.0), pinned=(0,), substeps=2)
    x = shaken(sheet.vertices, dtype)
    step = lambda g, s: pbd.step(params.replace(gravity=jnp.append(g, 0.0)), s)  # noqa: E731
    return step, pbd.init(params, x, 0.1 * np.sin(100 * x))


def same(ours: Any, theirs: Any, tolerance: float) -> None:
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1.0, np.abs(b).max(initial=0)))
