"""A native operation in place of a function: when it runs, and when the function does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.bridge.linear import instead, linear

X = jnp.linspace(0.5, 2.0, 4)


@pytest.fixture
def ran():
    return []


def test_the_fast_one_runs_unless_mapped_or_differentiated(ran):
    def fast(x, y):
        ran.append("fast")
        return x * y, x + y

    def plain(x, y):
        ran.append("plain")
        return x * y, x + y

    fn = instead(fast, plain)
    np.testing.assert_allclose(jax.jit(fn)(X, 2 * X)[0], 2 * X**2)
    assert set(ran) == {"fast"}
    ran.clear()
    np.testing.assert_allclose(jax.vmap(fn, (0, None))(X, 3.0)[0], 3 * X)
    np.testing.assert_allclose(jax.jvp(lambda x: fn(x, X)[0], (X,), (jnp.ones(4),))[1], X)
    np.testing.assert_allclose(jax.hessian(lambda x: fn(x, x)[0].sum())(X), 2 * jnp.eye(4))
    assert "plain" in ran


def test_reverse_mode_takes_the_transpose_and_the_rest_does_not(ran):
    def plain(r, x, y):
        ran.append("plain")
        return (r * x + y,)

    def transpose(r, cotangent):
        ran.append("transpose")
        return r * cotangent, cotangent

    def fn(r, x):
        return linear(plain, transpose, (r,), (x, X))[0]

    np.testing.assert_allclose(jax.jit(fn)(X, X), X**2 + X)
    np.testing.assert_allclose(jax.vmap(fn, (None, 0))(2.0, X[:, None]), 2 * X[:, None] + X[None])
    np.testing.assert_allclose(jax.jvp(fn, (X, X), (jnp.ones(4), jnp.ones(4)))[1], 2 * X)
    assert set(ran) == {"plain"}
    only = jax.linear_transpose(lambda x: linear(plain, transpose, (X,), (x, X))[0], X)
    np.testing.assert_allclose(jax.jit(only)(jnp.ones(4))[0], X)
    assert "transpose" in ran
    np.testing.assert_allclose(jax.grad(lambda r: fn(r, X).sum())(X), X)  # by the residuals: uses the plain function
