"""The bridge's way to a GPU, with a stand-in for CUDA: it runs everywhere."""

import gc
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp

from fphys.bridge import driver, ffi, warp_op
from fphys.bridge.workers import num_blocks
from fphys.particles import neighbors

from .stand_in import STREAM, standing_in
from .test_gpu_solvers import worst


@wp.kernel
def scaled(
    factor: wp.array(dtype=wp.float64),
    shared: wp.array2d(dtype=wp.float64),
    x: wp.array2d(dtype=wp.float64),
    y_out: wp.array2d(dtype=wp.float64),
):
    world, i = wp.tid()
    y_out[world, i] = factor[i] * shared[world, 0] * x[world, i] * x[world, i]


@wp.kernel
def summed(y: wp.array2d(dtype=wp.float64), last: wp.array2d(dtype=wp.float64), z_out: wp.array2d(dtype=wp.float64)):
    world, i = wp.tid()
    z_out[world, i] = y[world, i] + y[world, (i + 1) % y.shape[1]] + last[world, i]


FACTOR = np.array([1.0, 2.0, 3.0])


def both(launch: Any, shared: Any, x: Any, y: Any, z: Any) -> None:
    """An output that is read again, a constant, zeroed scratch memory and a value that all worlds share."""
    zero = launch.scratch(x.shape, wp.float64, zeroed=True)
    launch(scaled, dim=x.shape, inputs=[FACTOR, shared, x], outputs=[y])
    launch(summed, dim=x.shape, inputs=[y, zero], outputs=[z])


operation = warp_op(both, lambda shared, x: (x, x))
WORLDS = 500


def loss(shared: Any, x: Any) -> Any:
    y, z = operation(shared, x)
    return jnp.sum(y**2) + jnp.sum(jnp.sin(z))


def arguments() -> tuple[Any, Any]:
    return jnp.full((1, 1), 1.5), jnp.asarray(np.random.default_rng(0).normal(size=(WORLDS, 3)))


def test_values_and_gradients_are_the_processors():
    """The shared value's gradient has one row on a GPU, and a row for each block of worlds on a CPU."""
    assert num_blocks(WORLDS, 1, 1) > 1 or driver.load() is None
    run = lambda: jax.jit(lambda *a: (operation(*a), jax.grad(loss, (0, 1))(*a)))(*arguments())  # noqa: E731
    here = run()
    with standing_in() as log:
        there = run()
        packed, launches = log.packed, log.launches
        run()
        assert (log.packed, log.launches) == (packed, 2 * launches), "packed once, launched at each call"
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-13), there, here)
    assert log.streams == {STREAM} and log.clears > 0 and log.copies > 0


def test_a_result_that_is_not_finite_is_a_difference():
    with pytest.raises(AssertionError, match="not finite"):
        worst([np.array([1.0, np.nan])], [np.array([1.0, 2.0])])
    assert worst([np.array([1.0, 2.2])], [np.array([1.0, 2.0])]) == pytest.approx(0.1)


@pytest.mark.parametrize("dim", [2, 3])
def test_a_gpu_sorts_particles_as_a_processor_counts_them(dim):
    """The same cells, slots and neighbours; one particle takes no part, one is nowhere, and two worlds differ."""
    x = np.random.default_rng(1).uniform(0, 1, (2, 300, 3))
    x[0, 5], x[..., dim:] = np.nan, 0.0
    valid = np.ones((2, 300), np.int32)
    valid[1, 7] = 0
    grid = neighbors.make_grid(0.2, ((0.0, 1.0), None, None)[:dim], (1.0, 1.0, 1.0), 300)
    found = lambda: neighbors.build(grid, jnp.asarray(x), jnp.asarray(valid), 64)  # noqa: E731
    here = found()
    with standing_in() as log:
        there = found()
        assert log.launches == 2, "to locate and to list; XLA sorts"
    for name in ("order", "slot", "number"):
        np.testing.assert_array_equal(getattr(there, name), getattr(here, name), err_msg=name)
    listed = np.arange(64) < np.asarray(here.number)[..., None]
    np.testing.assert_array_equal(np.where(listed, there.index[..., :64], 0), np.where(listed, here.index[..., :64], 0))


def test_transforms_and_a_scan():
    shared, x = arguments()

    def rolled(x: Any) -> Any:
        return jax.lax.scan(lambda x, _: (x + 1e-2 * operation(shared, x)[1], x), x, None, length=20)[1]

    with standing_in():
        batched = jax.vmap(lambda x: jax.grad(loss, 1)(shared, x))(jnp.stack([x, 2 * x]))
        path = jax.jit(rolled)(x)
    np.testing.assert_allclose(batched[1], jax.grad(loss, 1)(shared, 2 * x), rtol=1e-12)
    np.testing.assert_allclose(path, jax.jit(rolled)(x), rtol=1e-12)


def test_a_kernel_that_fails_is_named():
    """CUDA's error 700 reaches the user with the operation, the kernel and the device."""
    with standing_in() as log:
        log.fail_at = 2
        with pytest.raises(Exception, match=r"BridgeError: both: kernel summed failed on cuda:0"):
            jax.block_until_ready(jax.jit(operation)(*arguments()))


def test_plans_are_freed_with_their_programs():
    """A program that was compiled and whose trace is gone keeps its plan; with the program the plan goes."""
    with standing_in():
        compiled = jax.jit(operation).lower(*arguments()).compile()
        jax.clear_caches()
        operation.operation.cache_clear()
        operation.forward_plan.cache_clear()
        gc.collect()
        ffi.plans().sweep()
        value = compiled(*arguments())
        del compiled, value
        gc.collect()
        ffi.plans().sweep()
        assert not any(held.on_gpus for held in ffi.plans().held.values())


def test_each_danger_has_its_test():
    """Every test that the table of docs/gpu.md names exists."""
    root = Path(__file__).parents[2]
    text = (root / "docs/gpu.md").read_text(encoding="utf-8")
    rows = text.partition("| what | why")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(rows) > 20
    for row in rows:
        named = row.split("|")[3]
        assert "`" in named or "the same" in named, row
        file = None
        for name in re.findall(r"`([\w/.]+)`", named):
            if name in ("solvers", "cuda", "bridge", "stand_in", "threads"):
                path = f"test_{name}.py" if name in ("stand_in", "threads") else f"test_gpu_{name}.py"
                file = (Path(__file__).parent / path).read_text(encoding="utf-8")
            elif name.endswith(".py"):
                assert (root / name).exists(), name
            else:
                assert file is not None and f"def test_{name}(" in file, name
