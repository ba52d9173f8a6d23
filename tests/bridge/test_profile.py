"""The time of every stage: each launch under its name, forward and backward, and nothing outside the context."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.bridge import kernels, stage_times, warp_op


def _rectify(launch, x, y):
    launch(kernels(x.dtype, "relu").relu, dim=x.shape, inputs=[x], outputs=[y])


def test_stages_are_named_and_timed():
    op = warp_op(_rectify, outputs=lambda x: x, name="rectify")
    x = jnp.asarray(np.random.default_rng(0).standard_normal((4, 20_000)))
    forward, backward = jax.jit(op), jax.jit(jax.grad(lambda x: op(x).sum()))
    jax.block_until_ready((forward(x), backward(x)))
    with stage_times() as one:
        assert one == {}
        jax.block_until_ready(forward(x))
    with stage_times() as many:
        for _ in range(20):
            jax.block_until_ready(forward(x))
    with stage_times() as back:
        jax.block_until_ready(backward(x))
    assert list(one) == ["rectify.relu.relu"]
    assert 1e-6 < one["rectify.relu.relu"] < 1
    assert many["rectify.relu.relu"] > 3 * one["rectify.relu.relu"] / 20  # twenty calls, but a machine may pause
    assert "rectify.relu.relu.adjoint" in back


def test_what_is_compiled_inside_counts_too():
    op = warp_op(_rectify, outputs=lambda x: x, name="late")
    with stage_times() as times:
        jax.block_until_ready(op(jnp.ones((1, 3))))
    assert "late.relu.relu" in times


def test_one_at_a_time():
    with stage_times(), pytest.raises(RuntimeError, match="active already"), stage_times():
        pass
