"""A hundred thousand steps without growth of memory."""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.particles import mpm, sph

from .sph_scenes import lattice, pool


def resident() -> int:
    """Memory of this process [bytes]."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def block() -> tuple[mpm.Params, mpm.State]:
    params = mpm.Params(mpm.Corotated(1000.0, 1e4, 0.3), 2e-3, (0.0, -9.81), cell=1 / 16, shape=(8, 8))
    return params, mpm.init(params, lattice([0.1, 0.1], [0.3, 0.3], 1 / 32)[None].astype("float32"))


@pytest.mark.slow
@pytest.mark.parametrize(("step", "made"), [(mpm.step, block), (sph.step, lambda: pool("float32", worlds=1))])
def test_memory_does_not_grow(step: Any, made: Any):
    """In calls of ten thousand steps, and of one; what the first calls allocate is not counted."""
    params, state = made()
    one = jax.jit(step)
    many = jax.jit(lambda s: jax.lax.fori_loop(0, 10_000, lambda _, s: step(params, s), s))
    for _ in range(2000):
        state = one(params, state)
    state = jax.block_until_ready(many(state))
    before = resident()
    for _ in range(8):
        state = many(state)
    for _ in range(10_000):
        state = one(params, state)
    jax.block_until_ready(state)
    assert resident() - before < 8e6
    assert bool(jnp.isfinite(state.x).all()) and not np.asarray(state.status).any()
