"""Incompressible fluid by ``jax.shard_map``, which checks what varies from device to device."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from fphys import distributed
from fphys.particles import sample, sph

WORLDS = 2


def test_a_step_of_dfsph_and_its_gradient_are_those_of_one_device():
    fluid = sph.Params(0.05, 1e-3, 10.0, gravity=(0.3, -9.81), method="dfsph", tolerance=1e-12)
    noise = 0.002 * np.random.default_rng(0).normal(size=(WORLDS, 9, 2))
    x = sample.box((0.0, 0.0), (0.15, 0.15), 0.05)[None] + noise
    state = sph.init(fluid, x, 0.1 * np.sin(100 * x))

    def value(gravity: Any, state: sph.State) -> Any:
        def cost(gravity: Any) -> Any:
            after = sph.step(fluid.replace(gravity=gravity), state)
            return (after.v**2).sum() + (after.p**2).sum(), after

        slope, after = jax.grad(cost, has_aux=True)(gravity)
        return after.v, after.p, after.status, slope

    gravity = jnp.array([0.3, -9.81])
    expected = jax.jit(value)(gravity, state)
    outs = (P("world"), P("world"), P("world"), P())
    spread = jax.shard_map(value, mesh=distributed.mesh(), in_specs=(P(), P("world")), out_specs=outs)
    for ours, theirs in zip(jax.jit(spread)(gravity, state), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)  # a step that is differentiated solves to 1e-8
    assert (expected[1] > 0).any() and (expected[2] == 0).all()
