"""Which launches a pass runs: forward, those that its outputs depend on; backward, those whose values it needs."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp

from fphys.bridge import op as bridge_op
from fphys.bridge import warp_op
from fphys.testing import check_grads

f64 = wp.float64


@wp.func_native("y_out.data[i] = x.data[i] * x.data[i];")
def store_square(i: int, x: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)): ...  # type: ignore[empty-body]


@wp.func_native("x_bar.data[i] += 2.0 * x.data[i] * y_out_bar.data[i];")
def pull_square(i: int, x: wp.array2d(dtype=f64), y_out_bar: wp.array2d(dtype=f64), x_bar: wp.array2d(dtype=f64)): ...  # type: ignore[empty-body]


@wp.func
def squared(i: int, x: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    store_square(i, x, y_out)


@wp.func_replay(squared)
def no_replay_of_squared(i: int, x: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    pass


@wp.func_grad(squared)
def adj_squared(i: int, x: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    pull_square(i, x, wp.adjoint[y_out], wp.adjoint[x])


@wp.kernel
def square(x: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    squared(world * x.shape[1] + i, x, y_out)


@wp.func_native("y_out.data[i] = exp(x.data[i]);")
def store_exponential(i: int, x: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)): ...  # type: ignore[empty-body]


@wp.func
def exponential_of(i: int, x: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    store_exponential(i, x, y_out)


@wp.func_replay(exponential_of)
def no_replay_of_exponential(i: int, x: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    pass


@wp.func_grad(exponential_of)
def adj_exponential(i: int, x: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    """In terms of the stored value."""
    world, lane = i // x.shape[1], i % x.shape[1]
    wp.adjoint[x][world, lane] += y_out[world, lane] * wp.adjoint[y_out][world, lane]


@wp.kernel
def exponential(x: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    exponential_of(world * x.shape[1] + i, x, y_out)


@pytest.mark.parametrize(
    ("kernel", "value", "again"), [(square, np.square, []), (exponential, np.exp, ["exponential"])]
)
def test_an_adjoint_by_hand_says_what_it_reads(kernel: Any, value: Any, again: list[str], monkeypatch: Any):
    """Native code's results are stored again only where the replay or the adjoint reads them."""
    plans = []
    build = bridge_op.plan_backward
    monkeypatch.setattr(bridge_op, "plan_backward", lambda *args: plans.append(build(*args)) or plans[-1])
    op = warp_op(
        lambda launch, x, y: launch(kernel, dim=x.shape, inputs=[x], outputs=[y]),
        outputs=lambda x: x,
        zeroed=False,
        name=kernel.key,
    )
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4)))
    np.testing.assert_allclose(op(x), value(np.asarray(x)), rtol=1e-14)
    check_grads(op, (x,), tol=1e-7)
    assert [launch.kernel.key for launch, adjoint in plans[0][0].launches if not adjoint] == again


def test_launches_without_effect_are_left_out(monkeypatch: Any):
    """Neither a launch that nobody reads, nor one that only such a launch reads. Their results get no memory."""
    plans = []
    build = bridge_op.plan_forward
    monkeypatch.setattr(bridge_op, "plan_forward", lambda *args: plans.append(build(*args)) or plans[-1])

    def launches(launch: Any, x: Any, y: Any) -> None:
        kept, first, second = (launch.scratch(x.shape, f64, zeroed=True) for _ in range(3))
        for kernel, given, out in ((square, x, first), (square, x, kept), (exponential, first, second)):
            launch(kernel, dim=x.shape, inputs=[given], outputs=[out])
        launch(exponential, dim=x.shape, inputs=[kept], outputs=[y])

    op = warp_op(launches, outputs=lambda x: x, zeroed=False, differentiable=False, name="of which one")
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4)))
    np.testing.assert_allclose(op(x), np.exp(np.square(np.asarray(x))), rtol=1e-14)
    plan, scratch = plans[0]
    assert [launch.kernel.key for launch, _ in plan.launches] == ["square", "exponential"]
    assert len(plan.clears) == 1 and scratch == 3 * 64  # one array of 32 bytes per world, aligned
