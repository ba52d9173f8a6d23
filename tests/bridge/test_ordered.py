"""Sums in a fixed order on a GPU: asked for by XLA's flags, and the same numbers as elsewhere."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp

from fphys.bridge import ffi, ordered, record, warp_op
from fphys.errors import BridgeError

from ..gpu import scenes
from ..gpu.stand_in import standing_in


@pytest.mark.parametrize(
    ("flags", "asked"),
    [
        ("", False),
        ("--xla_gpu_deterministic_ops=true", True),
        ("--xla_cpu_enable_fast_math=false --xla_gpu_exclude_nondeterministic_ops", True),
        ("--xla_gpu_deterministic_ops=1 --xla_gpu_deterministic_ops=false", False),
        ("--xla_gpu_deterministic_ops=0 --xla_gpu_exclude_nondeterministic_ops=True", True),
        ("--xla_gpu_deterministic_ops_of_another_kind=true", False),
    ],
)
def test_xlas_flags_ask_for_it(flags, asked, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", flags)
    assert ordered._asked.__wrapped__() == asked


SCALE = 3.0


@wp.func
def weight(x: wp.float64) -> wp.float64:
    return wp.sin(x) * x


@wp.struct
class Pull:
    """Fields of a structure have gradients, too."""

    strength: wp.array(dtype=wp.float64)
    at: wp.array2d(dtype=wp.float64)


def pulled(power: int) -> Any:
    @wp.kernel
    def pull(own: Pull, x: wp.array2d(dtype=wp.float64), y: wp.array3d(dtype=wp.float64)):
        """Every thread reads what others read: a number of the world, its last entry, and a sum of all."""
        world, i, k = wp.tid()
        total = wp.float64(0.0)
        for j in range(x.shape[1]):
            total += weight(x[world, j])
        if k == 0:
            total = total * own.strength[world] ** wp.float64(power)
        else:
            total += wp.float64(SCALE) * own.at[world, k] * x[world, x.shape[1] - 1]
        y[world, i, k] = total * own.at[world, i]

    return pull


@wp.kernel
def gathered(number: wp.array(dtype=int), y: wp.array3d(dtype=wp.float64), z: wp.array2d(dtype=wp.float64)):
    """Threads add to the same numbers."""
    world, i, k = wp.tid()
    wp.atomic_add(z, world, number[i], y[world, i, k])


KERNEL, NUMBER = pulled(2), np.array([0, 1, 0], np.int32)


def work(launch: Any, strength: Any, at: Any, x: Any, z: Any) -> None:
    y = launch.scratch((*x.shape, 3), wp.float64)
    launch(KERNEL, dim=y.shape, inputs=[{"strength": strength, "at": at}, x], outputs=[y])
    launch(gathered, dim=y.shape, inputs=[NUMBER, y], outputs=[z])


op = warp_op(work, lambda strength, at, x: x)


def results() -> Any:
    """A number, and its gradients by all that the operation reads."""
    rng = np.random.default_rng(0)
    strength, at, x = (jnp.asarray(rng.normal(size=shape)) for shape in ((1,), (5, 3), (5, 3)))
    loss = jax.jit(jax.value_and_grad(lambda *args: jnp.sum(jnp.sin(op(*args))), (0, 1, 2)))
    return jax.tree.map(np.asarray, loss(strength**2, at, x))


def test_the_numbers_are_those_of_any_order(monkeypatch):
    """Loops in place of threads: over two axes, with structures, closures, and values that worlds share."""
    here = results()
    for cached in (op.forward_plan, op.backward_plan, op.recorded):
        cached.cache_clear()
    monkeypatch.setattr(ordered, "_asked", lambda: True)
    with standing_in():
        there = results()
        plans = [held.plan for held in ffi.plans().held.values() if held.plan.name == op.name and held.on_gpus]
    assert {len(launch.dim) for plan in plans for launch, _ in plan.launches} == {1, 3}, "the first launch adds nothing"
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-14), there, here)


@wp.func
def put(z: wp.array2d(dtype=wp.float64), world: int, i: int, value: wp.float64):
    z[world, i] += value


@wp.kernel
def through_a_function(number: wp.array(dtype=int), y: wp.array2d(dtype=wp.float64), z: wp.array2d(dtype=wp.float64)):
    world, i = wp.tid()
    put(z, world, number[i], y[world, i])


@wp.kernel
def to_itself(y: wp.array2d(dtype=wp.float64), z: wp.array2d(dtype=wp.float64)):
    world, i = wp.tid()
    v = wp.vec2d()
    v[0] += y[world, i]
    z[world, i] = v[0]


def test_what_adds_is_seen():
    """In a kernel and in what it calls; a vector of its own is no array."""
    assert [record._adds(kernel) for kernel in (gathered, through_a_function, to_itself, KERNEL)] == [1, 1, 0, 0]


def test_material_points_say_what_their_cpp_adds(monkeypatch):
    """Nobody sees it in the Python of these kernels."""
    scene = scenes.SCENES["mpm, in contact"]("float64")
    monkeypatch.setattr(ordered, "_asked", lambda: True)
    with standing_in():
        lowered = jax.jit(scene.fn).lower(scene.fixed, scene.moved)
        launches = [launch for held in ffi.plans().held.values() for launch, _ in held.plan.launches]
    del lowered
    in_order = {launch.kernel.key for launch in launches if launch.kernel.key.endswith("_in_order")}
    assert in_order >= {"scatter_in_order", "carry_in_order", "fill_in_order"}


@wp.kernel
def early(x: wp.array2d(dtype=wp.float64), y: wp.array2d(dtype=wp.float64)):
    world, i = wp.tid()
    if i == 0:
        return
    y[world, i] = x[world, i]


def test_a_kernel_that_ends_early_is_refused():
    """A loop would end with it."""
    launch = record.Launch(early, (2, 3), (), ())
    with pytest.raises(BridgeError, match=r"early cannot take its threads one by one.*not return early"):
        ordered.in_order(launch)
