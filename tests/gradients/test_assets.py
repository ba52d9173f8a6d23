"""Every asset as it loads by default: one step has a gradient by state, control and model."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys

NAMES = sorted(path.stem for path in (Path(fphys.__file__).parent / "assets").glob("*.*") if path.suffix != ".md")
FAST = {"arm-urdf", "cartpole", "franka"}  # limits and no contact; the others have gradient tests of their own


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in NAMES])
def test_gradient_of_a_step(name):
    model = fphys.load(fphys.asset(name))
    s, rng = model.structure, np.random.default_rng(0)
    state = fphys.init(model, 2, qvel=0.1 * rng.standard_normal((2, s.nv)))
    weights = rng.standard_normal((2, s.nv))

    def loss(mass, qvel, ctrl):
        after = fphys.step(model.replace({"body.mass": mass}), state.replace(qvel=qvel), ctrl)
        return jnp.sum(weights * after.qvel)

    grads = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(model.body.mass, state.qvel, jnp.zeros((2, s.nu)))
    for grad in grads:
        assert np.isfinite(grad).all() and (not grad.size or np.abs(grad).max() > 0)
