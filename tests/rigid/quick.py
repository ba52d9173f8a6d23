"""Reduced sizes spend most of their time in XLA's optimiser, for programs that run once."""

import os
from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def quick_compilation() -> Iterator[None]:
    """Compile without optimisation, but for the full sizes; the Warp kernels are the same."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", not os.environ.get("FPHYS_FULL"))
    yield
    jax.config.update("jax_disable_most_optimizations", before)
