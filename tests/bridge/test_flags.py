"""One traced function, differentiated with respect to one argument and then another."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp

import fphys
from fphys.bridge import flags
from fphys.testing import check_transforms


@wp.kernel
def multiply(a: wp.array2d(dtype=wp.float64), b: wp.array2d(dtype=wp.float64), y: wp.array2d(dtype=wp.float64)):
    world, i = wp.tid()
    y[world, i] = a[world, i] * b[world, i]


def product():
    def launches(launch, a, b, y):
        launch(multiply, dim=y.shape, inputs=[a, b], outputs=[y])

    return fphys.bridge.warp_op(launches, outputs=lambda a, b: a, name="product")


A, B = jnp.array([[2.0, 3.0]]), jnp.array([[5.0, 7.0]])


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, jax.checkpoint], ids=["plain", "jit", "checkpoint"])
def test_pullbacks_of_one_function_do_not_mix(wrap):
    op = wrap(product())
    by_a = jax.vjp(lambda a: op(a, B), A)[1]
    by_b = jax.vjp(lambda b: op(A, b), B)[1]
    once_more = jax.vjp(lambda a: op(a, B), A)[1]
    one = jnp.ones_like(A)
    np.testing.assert_array_equal(by_a(one)[0], B)
    np.testing.assert_array_equal(by_b(one)[0], A)
    np.testing.assert_array_equal(once_more(one)[0], B)


@pytest.mark.parametrize("name", [pytest.param("franka", marks=pytest.mark.slow), "quadruped"])
def test_linearize_leaves_later_gradients_alone(name, fresh_traces):
    """With limits only, and with contact and implicitfast: the same rollout's gradient before and after."""
    model = fphys.load(fphys.asset(name))
    state = fphys.init(model, 2)
    ctrls = jnp.asarray(np.random.default_rng(0).uniform(-0.1, 0.1, (3, 2, model.structure.nu)))

    def slope():
        def loss(mass):  # franka: limits, but no pair of geoms that can touch
            return jnp.sum(fphys.rollout(model.replace({"body.mass": mass}), state, ctrls).qvel[-1] ** 2)

        return jax.jit(jax.grad(loss))(model.body.mass)

    before = slope()
    jax.clear_caches()
    jax.jit(fphys.linearize)(model, state, ctrls[0])
    np.testing.assert_allclose(slope(), before, rtol=1e-12)
    assert np.abs(before).max() > 0


def test_mixed_flags_are_noticed(monkeypatch):
    """Mutation test: with the flags in the tree structure, which JAX keeps once for all traces, a check must fail."""

    @jax.tree_util.register_static
    class Static(tuple):
        __slots__ = ()

    args = [np.random.default_rng(i).uniform(1.0, 2.0, (3, 2)) for i in range(2)]
    check_transforms(product(), args, max_patterns=1, batches=(2,))
    monkeypatch.setattr(flags, "save", Static)
    monkeypatch.setattr(flags, "load", tuple)
    with pytest.raises(AssertionError, match="by one part, then by another"):
        check_transforms(product(), args, max_patterns=1, batches=(2,))


@pytest.mark.parametrize("count", [0, 1, 29, 30, 31, 200])
def test_flags_round_trip(count):
    given = tuple(map(bool, np.random.default_rng(count).integers(0, 2, count)))
    assert flags.load(flags.save(given)) == given
    assert sum(array.size for array in flags.save(given)) == 0
