"""Shared by the tests of networks."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture
def flax_promotes() -> Iterator[None]:
    """Flax's norms promote float64 with float32 ("at least float32"), which strict promotion refuses."""
    with jax.numpy_dtype_promotion("standard"):
        yield
