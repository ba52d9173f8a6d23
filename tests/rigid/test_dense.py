"""Packed symmetric matrices."""

import jax.numpy as jnp
import numpy as np
import pytest

from fphys.bridge import kernels, warp_op


@pytest.mark.parametrize(("dtype", "tol"), [("float64", 1e-14), ("float32", 1e-5)])
def test_product_with_a_difference(dtype, tol):
    """(A - B) x, as with full matrices: the damping that a backward pass takes from M and M + h D."""
    rng, n, worlds = np.random.default_rng(0), 5, 3
    i, j = np.tril_indices(n)
    packed = rng.normal(size=(2, worlds, i.size))
    full = np.zeros((2, worlds, n, n))
    full[..., i, j] = full[..., j, i] = packed
    x = rng.normal(size=(worlds, n))

    def launches(launch, before, after, x, y):
        kernel = kernels(x.dtype, "rigid.dense").multiply_change
        launch(kernel, dim=launch.worlds, inputs=[before, after, x], outputs=[y])

    product = warp_op(launches, lambda before, after, x: x, differentiable=False, zeroed=False)
    found = product(*(jnp.asarray(a, dtype) for a in (*packed, x)))
    np.testing.assert_allclose(found, np.einsum("wij,wj->wi", full[0] - full[1], x), rtol=0, atol=10 * tol)
