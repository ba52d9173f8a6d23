"""Which launches a pass runs: forward, those that its outputs depend on; backward, those whose values it needs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp

from fphys.bridge import op as bridge_op
from fphys.bridge import warp_op
from fphys.bridge.plan import plan_backward, plan_forward
from fphys.errors import BridgeError
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


@wp.kernel
def both_of(x: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64), z_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    exponential_of(world * x.shape[1] + i, x, y_out)
    exponential_of(world * x.shape[1] + i, x, z_out)


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


@pytest.mark.parametrize("known", [(), (0,)])
def test_what_is_known_is_not_stored_again(known: tuple[int, ...], monkeypatch: Any):
    """The adjoint is given the output, under transforms, too, and when it is asked for alone."""
    plans = []
    build = bridge_op.plan_backward
    monkeypatch.setattr(bridge_op, "plan_backward", lambda *args: plans.append(build(*args)) or plans[-1])
    op = warp_op(
        lambda launch, x, y: launch(exponential, dim=x.shape, inputs=[x], outputs=[y]),
        outputs=lambda x: x,
        zeroed=False,
        known=known,
        name="exponential",
    )
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4)))
    check_grads(op, (x,), tol=1e-7)
    many = jnp.stack([x, -x])
    slopes = jax.vmap(jax.grad(lambda x: (op(x) ** 2).sum()))(many)
    np.testing.assert_allclose(slopes, 2 * np.exp(2 * np.asarray(many)), rtol=1e-14)
    np.testing.assert_allclose(op.vjp((x,), 3 * jnp.ones_like(x))[0], 3 * np.exp(np.asarray(x)), rtol=1e-14)
    replayed = [launch.kernel.key for plan, _ in plans for launch, adjoint in plan.launches if not adjoint]
    assert bool(replayed) == (not known)


def test_what_is_half_known_is_refused():
    def launches(launch: Any, x: Any, y: Any, z: Any) -> None:
        launch(both_of, dim=x.shape, inputs=[x], outputs=[y, z])

    op = warp_op(launches, outputs=lambda x: (x, x), zeroed=False, known=(0,), name="both")
    with pytest.raises(BridgeError, match="reads more of what both_of writes than the outputs that are known"):
        jax.grad(lambda x: op(x)[1].sum())(jnp.ones((1, 2)))


def test_kernels_may_clear_what_they_use():
    """Neither an output nor a cotangent is cleared, whose kernels say that they do it themselves."""
    cleared = []

    def launches(launch: Any, x: Any, y: Any) -> None:
        for array in cleared:
            launch.clears({"x": x, "y": y}[array])
        launch(square, dim=x.shape, inputs=[x], outputs=[y])

    def clears(which: list[str]) -> list[int]:
        cleared[:] = which
        op = warp_op(launches, outputs=lambda x: x, name="square")
        shapes = (jax.ShapeDtypeStruct((3, 4), np.float64),)
        tree = jax.tree.structure((0,))
        forward, _ = plan_forward(*op.recorded(tree, (0,), shapes, "cpu")[:3])
        record, inputs, outputs, _ = op.recorded(tree, (0,), shapes, "cpu")
        backward, _ = plan_backward(record, inputs, outputs, inputs)
        return [len(forward.clears), len(backward.clears)]

    assert [clears(which) for which in ([], ["x"], ["y"], ["x", "y"])] == [[1, 2], [1, 1], [0, 1], [0, 0]]


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
