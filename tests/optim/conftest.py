"""What tests of optimizers share."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture
def optax_promotes() -> Iterator[None]:
    """Optax raises its float decay rates to an integer count, which strict promotion refuses."""
    with jax.numpy_dtype_promotion("standard"):
        yield
