"""The LSTM's native code agrees with XLA's loops."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys import nn
from fphys.nn.lstm import _native, _plain, _rows, lstm

RNG = np.random.default_rng(5)
HIDDEN, TIMES = 64, 5


@pytest.fixture(autouse=True)
def _float32(x32):
    return x32


def normal(*shape):
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def arguments(batch, hidden=HIDDEN):
    return (
        normal(batch, TIMES, 4 * hidden),
        normal(hidden, 4 * hidden) / 9,
        normal(batch, hidden),
        normal(batch, hidden),
    )


def names(fn, *args):
    """A function's primitives, at any depth."""

    def within(jaxpr):
        for eq in jaxpr.eqns:
            yield eq.primitive.name
            for inner in jax.tree.leaves(list(eq.params.values()), is_leaf=lambda p: hasattr(p, "eqns")):
                if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                    yield from within(getattr(inner, "jaxpr", inner))

    return set(within(jax.make_jaxpr(fn)(*args).jaxpr))


def close(found, expected):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=3e-6 * np.abs(b).max())


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("batch", "hidden"), [(13, 64), (32, 128)])  # groups of 6, 6 and 1; and of 6, 6, 2 and 2
def test_values_slopes_and_cotangents(reverse, batch, hidden):
    args = arguments(batch, hidden)
    (noted, moved), (expected, plainly) = _native(reverse, 1, _rows(*args)), _plain(reverse, 1)
    out, c, slopes = jax.jit(noted)(*args)
    *values, a, b, d, e, f, g = expected(*args)
    close((out, c, slopes), (*values, jnp.concatenate([a, b, d, e, f, g], -1).swapaxes(0, 1)))

    cotangents = (normal(*out.shape), normal(*c.shape))
    inputs = (args[0], *args[2:])
    found = jax.linear_transpose(functools.partial(moved, slopes, args[1]), *inputs)(cotangents)
    wanted = jax.linear_transpose(functools.partial(plainly, a, b, d, e, f, g, args[1]), *inputs)(cotangents)
    close(found, wanted)


def test_gradients_are_native_and_values_are_not():
    args = arguments(16)
    loss = lambda *args: sum((x**2).sum() for x in jax.tree.leaves(lstm(False, 1, *args)))  # noqa: E731
    gradient = jax.grad(loss, (0, 1, 2, 3))
    traced = jax.jit(gradient).trace(*args)
    cpu, cuda = (traced.lower(lowering_platforms=(platform,)).as_text() for platform in ("cpu", "cuda"))
    assert "fphys_warp" in cpu and "stablehlo.while" not in cpu
    assert "fphys_warp" not in cuda and "stablehlo.while" in cuda, "the lowering decides the platform"
    assert "ffi_call" not in names(loss, *args)  # so that a model can be exported
    with jax.enable_x64(True):
        wide = [jnp.asarray(x, jnp.float64) for x in args]
        assert "ffi_call" not in names(gradient, *wide)
        expected = jax.tree.map(np.asarray, gradient(*wide))
    close(jax.jit(gradient)(*args), expected)
    close(gradient(*args), jax.grad(jax.checkpoint(loss), (0, 1, 2, 3))(*args))


def test_forward_mode_maps_and_second_derivatives():
    given, kernel, h, c = arguments(16)

    def loss(kernel, given=given):
        return (lstm(False, 1, given, kernel, h, c)[1] ** 2).sum()

    direction = normal(*kernel.shape)
    gradient = jax.grad(loss)(kernel)
    np.testing.assert_allclose(jax.jvp(loss, (kernel,), (direction,))[1], (gradient * direction).sum(), rtol=1e-4)
    two = jnp.stack([given, normal(*given.shape)])
    mapped = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(kernel, two)
    close(mapped, jnp.stack([jax.grad(loss)(kernel, x) for x in two]))
    close(jax.grad(lambda k: jax.vmap(lambda x: loss(k, x))(two).sum())(kernel), mapped.sum(0))

    forward = jax.jvp(jax.grad(loss), (kernel,), (direction,))[1]
    close(jax.grad(lambda k: (jax.grad(loss)(k) * direction).sum())(kernel), forward)
    with jax.enable_x64(True):
        wide = [jnp.asarray(x, jnp.float64) for x in (given, kernel, h, c, direction)]
        exact = lambda k: (lstm(False, 1, wide[0], k, *wide[2:4])[1] ** 2).sum()  # noqa: E731
        expected = np.asarray(jax.jvp(jax.grad(exact), (wide[1],), (wide[4],))[1])
    close(forward, expected)


def test_nonfinite_and_large_values():
    given, kernel, h, c = arguments(8)
    given = given.at[0, 1, 3].set(jnp.nan).at[1, 2, :].set(jnp.inf).at[2, 0, :].set(-jnp.inf).at[3].set(1e30)
    given = given.at[4].set(-1e4)
    noted, expected = _native(False, 1, 8)[0](given, kernel, h, c), _plain(False, 1)[0](given, kernel, h, c)
    for a, b in zip(noted[:2], expected[:2], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6)  # NaN in the same places
    assert np.isnan(noted[0][0, 1]).any() and np.isfinite(noted[0][1:]).all()


@pytest.mark.parametrize(("batch", "hidden"), [(7, 64), (17, 64), (16, 32)])
def test_other_shapes_take_xlas_loops(batch, hidden):
    given, kernel, h, c = arguments(batch, hidden)
    assert not _rows(given, kernel, h, c)
    assert "ffi_call" not in names(jax.grad(lambda k: lstm(False, 1, given, k, h, c)[1].sum()), kernel)


def test_no_time_passes():
    """A sequence of length zero, of a batch and a width that native code would take."""
    module, params, aux = nn.init(lambda rngs: nn.LSTM(4, 64, rngs=rngs), jax.random.key(0))
    x, start = jnp.zeros((8, 0, 4), jnp.float32), jnp.ones((1, 8, 64), jnp.float32)

    def end(params, start):
        y, (h, c) = nn.apply(module, params, aux, x, carry=(start, 2 * start))[0]
        return y.sum() + h.sum() + c.sum()

    grads = jax.grad(end, (0, 1))(params, start)
    assert all(not leaf.any() for leaf in jax.tree.leaves(grads[0]))
    np.testing.assert_array_equal(grads[1], 3 * start)
