"""What can go wrong on CUDA and nowhere else; ``docs/gpu.md`` has the reason for each test.

Tests that take the fixture ``cuda`` need a GPU. The others also run with its stand-in.
"""

import contextlib
import ctypes
import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp

import fphys
from fphys.bridge import dlpack, ffi, warp_op

from . import scenes
from .stand_in import LAUNCH

pytestmark = pytest.mark.gpu
f64 = wp.float64


@wp.kernel
def add_table(table: wp.array(dtype=f64), x: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    y_out[world, i] = x[world, i] + table[i]


@wp.kernel
def times(shared: wp.array2d(dtype=f64), x: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    y_out[world, i] = shared[world, i] * x[world, i]


@wp.kernel
def accumulate(x: wp.array2d(dtype=f64), sum_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    wp.atomic_add(sum_out, world, i % sum_out.shape[1], x[world, i])


def with_table(table: np.ndarray) -> Any:
    def launch_it(launch: Any, x: Any, y: Any) -> None:
        launch(add_table, dim=x.shape, inputs=[table, x], outputs=[y])

    return warp_op(launch_it, lambda x: x)


def launch_product(launch: Any, shared: Any, x: Any, y: Any) -> None:
    launch(times, dim=x.shape, inputs=[shared, x], outputs=[y])


def launch_sums(launch: Any, x: Any, y: Any) -> None:
    sums = launch.scratch((launch.worlds, 3), f64, zeroed=True)
    launch(accumulate, dim=x.shape, inputs=[x], outputs=[sums])
    launch(accumulate, dim=(launch.worlds, 3), inputs=[sums], outputs=[y])


product = warp_op(launch_product, lambda shared, x: x)
sums = warp_op(launch_sums, lambda x: jax.ShapeDtypeStruct((x.shape[0], 3), x.dtype), differentiable=False)


def close(found: Any, wanted: Any, tol: float = 1e-12) -> None:
    wanted = np.asarray(wanted)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tol * max(1.0, float(np.abs(wanted).max(initial=0.0))))


@contextlib.contextmanager
def counted() -> Iterator[list[int]]:
    """How many kernels the bridge hands to CUDA: not those that a graph replays."""
    bridge, count = ffi.plans().bridge, [0]
    before = bridge.launch
    own = LAUNCH(before)

    @LAUNCH
    def launch(*args: Any) -> int:
        count[0] += 1
        return own(*args)

    bridge.launch = ctypes.cast(launch, ctypes.c_void_p).value
    try:
        yield count
    finally:
        bridge.launch = before


def child(text: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=240,
        env={**os.environ, "JAX_ENABLE_X64": "1", **environment}, cwd=Path(__file__).parents[2],
    )  # fmt: skip


def test_xla_and_warp_wait_for_each_other(gpu, on_gpu):
    """Long kernels of XLA and of Warp in turns: whoever does not wait reads what is not there yet."""
    size = (64, 1 << 14)
    x = jax.device_put(np.random.default_rng(0).normal(size=size), gpu)
    shared = jnp.full((1, size[1]), 1.01)

    def chain(x: Any) -> Any:
        for _ in range(20):
            x = jnp.sin(product(shared, jnp.cos(x) + jnp.cumsum(x, 1) / size[1]))
        return x

    def plain(x: Any) -> Any:
        for _ in range(20):
            x = jnp.sin(1.01 * (jnp.cos(x) + jnp.cumsum(x, 1) / size[1]))
        return x

    with on_gpu():
        close(jax.jit(chain)(x), jax.jit(plain)(x), 1e-11)


def test_a_large_constant_has_arrived_at_the_first_launch(gpu, on_gpu):
    """It is copied on Warp's stream, when the program is first run, and read on XLA's."""
    table = np.random.default_rng(1).normal(size=1 << 20)
    x = jax.device_put(np.zeros((2, 1 << 20)), gpu)
    with on_gpu():
        close(jax.jit(with_table(table))(x), np.stack([table, table]), 0.0)


def test_a_branch_that_is_first_taken_inside_a_loop(gpu, on_gpu):
    """XLA may record both branches of a condition, and a loop's body, before any of them has run."""
    one, other = with_table(np.arange(5.0)), with_table(-np.arange(5.0))
    x = jax.device_put(np.ones((3, 5)), gpu)

    def step(x: Any, i: Any) -> tuple[Any, None]:
        return jax.lax.cond(i % 7 == 6, one, other, x), None

    with on_gpu():
        found = jax.jit(lambda x: jax.lax.scan(step, x, jnp.arange(70))[0])(x)
    close(found, 1 - 50 * np.arange(5.0) * np.ones((3, 1)))


def test_a_loop_is_recorded_once(cuda, gpu, record_property):
    """Recording costs four times a launch: a hundred steps of an ant hand no more kernels to CUDA than a few do."""
    scene = scenes.SCENES["ant"]("float32")
    model, state = jax.device_put(scene.fixed, gpu)
    ctrl = jax.device_put(scene.moved["ctrl"], gpu)

    def roll(length: int) -> Any:
        def step(state: Any, _: None) -> tuple[Any, None]:
            return fphys.step(model, state, ctrl), None

        return jax.jit(lambda state: jax.lax.scan(step, state, None, length)[0])

    one, many = roll(1), roll(100)
    jax.block_until_ready((one(state), one(state), many(state), many(state)))
    with counted() as alone:
        jax.block_until_ready(one(state))
    with counted() as launches:
        jax.block_until_ready(many(state))
    record_property("launches_of_one_step", alone[0])
    record_property("launches_of_100_steps", launches[0])
    assert launches[0] <= 300


def test_buffers_that_move(gpu, on_gpu):
    """Calls with arrays at ever new addresses, some of them kept: each result is of its own argument."""
    with on_gpu():
        run, kept = jax.jit(lambda x: product(jnp.full((1, 7), 2.0), jnp.sin(x))), []
        for i in range(40):
            x = jax.device_put(np.full((1 + i % 3, 7), float(i)), gpu)
            found = run(x)
            kept += [x, found] if i % 2 else []
            close(found, 2 * np.sin(np.full(x.shape, float(i))))


def test_scratch_is_zeroed_for_each_of_two_threads(gpu, on_gpu):
    """Two threads run one program at the same time; each call has its own scratch memory, and clears it."""
    with on_gpu():
        run = jax.jit(sums)
        given = [jax.device_put(np.random.default_rng(i).normal(size=(64, 999)), gpu) for i in range(2)]
        wanted = [np.asarray(x).reshape(64, -1, 3).sum(1) for x in given]
        jax.block_until_ready(run(given[0]))
        faults: list[BaseException] = []

        def work(i: int) -> None:
            try:
                for _ in range(30):
                    close(run(given[i]), wanted[i], 1e-11)
            except BaseException as fault:
                faults.append(fault)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not faults, faults[0]


def test_gradients_of_a_shared_value_add_up(gpu, on_gpu):
    """Sixty thousand worlds add to one number by atomics; there is one row, not one for each block of a CPU."""
    x = jax.device_put(np.random.default_rng(2).normal(size=(60_000, 4)), gpu)
    with on_gpu():
        slope = jax.jit(jax.grad(lambda shared: jnp.sum(product(shared, x))))(jnp.ones((1, 4)))
    close(slope, np.asarray(x).sum(0, keepdims=True), 1e-10)


def test_rows_of_odd_length_and_slices(gpu, on_gpu):
    """XLA may hand over a part of a buffer; rows of three numbers begin anywhere."""
    whole = jax.device_put(np.random.default_rng(3).normal(size=(9, 3)), gpu)
    with on_gpu():
        run = jax.jit(lambda x: [product(jnp.ones((1, 3)), part) for part in jnp.split(x, [1, 4, 6])])
        close(jnp.concatenate(run(whole)), whole)
        found = jax.jit(lambda x: product(x[2:3], x[1:])[::2])(whole)
        close(found, np.asarray(whole)[2:3] * np.asarray(whole)[1::2])


def test_products_of_float32_keep_their_digits(gpu, on_gpu):
    """XLA's default on a GPU rounds the factors to ten bits, which is an error of 3e-4."""
    a, b = (np.random.default_rng(i).normal(size=(16, 96, 96)).astype(np.float32) for i in range(2))
    run = jax.jit(lambda a, b: (fphys.math.matmul(a, b), fphys.math.einsum("wij,wjk->wik", a, b)))
    with on_gpu():
        for found in run(*jax.device_put((a, b), gpu)):
            close(found, a.astype(float) @ b.astype(float), 1e-6)


def test_packed_arguments_live_as_long_as_programs(gpu, on_gpu):
    """Hundreds of plans come and go, and their constants with them; a program that is kept still has its own."""
    x = jax.device_put(np.ones((2, 6)), gpu)
    with on_gpu():
        table = np.arange(6.0)
        first = jax.jit(with_table(table)).lower(x).compile()
        for i in range(150):
            close(with_table(np.full(6, float(i)))(x), np.full((2, 6), 1.0 + i))
        jax.clear_caches()
        gc.collect()
        ffi.plans().sweep()
        close(first(x), 1 + np.stack([table, table]))


def test_processor_and_gpu_in_one_process(cuda, gpu, cpu):
    """One function, jitted for both, called in turns."""
    run = jax.jit(lambda x: jax.grad(lambda x: jnp.sum(product(jnp.full((1, 5), 3.0), x) ** 2))(x))
    for i in range(6):
        device = (gpu, cpu)[i % 2]
        found = run(jax.device_put(np.full((4, 5), float(i)), device))
        assert found.devices() == {device}
        close(found, np.full((4, 5), 18.0 * i))


def test_every_gpu(cuda):
    """Programs go where their arrays are; each GPU has its own modules and constants."""
    for device in jax.devices("gpu"):
        x = jax.device_put(np.ones((2, 6)), device)
        close(jax.jit(with_table(np.arange(6.0)))(x), np.stack([1 + np.arange(6.0)] * 2))


@pytest.mark.extra("torch")
def test_arrays_of_torch_and_warp_beside_xlas_own(cuda, gpu):
    """By pointer, without a copy, and each library's stream waits for the other's."""
    import torch

    x = jax.device_put(np.random.default_rng(4).normal(size=(256, 1024)).astype(np.float32), gpu)
    for _ in range(20):
        x = jnp.sin(x)
        y = dlpack.from_torch(dlpack.to_torch(x, copy=False) * 2.0)
        z = dlpack.from_warp(dlpack.to_warp(x, copy=False))
        np.testing.assert_array_equal(y, 2 * np.asarray(x))
        np.testing.assert_array_equal(z, x)
    shared = dlpack.to_torch(x, copy=False)
    assert shared.data_ptr() == x.unsafe_buffer_pointer() and shared.is_cuda
    assert torch.cuda.memory_allocated() < 1 << 28


OUT_OF_MEMORY = """
    import jax, jax.numpy as jnp, numpy as np
    import fphys
    model = fphys.load(fphys.asset("ant"))
    step = jax.jit(fphys.step)
    state, ctrl = fphys.init(model, 4), jnp.zeros((4, 8))
    before = step(model, state, ctrl)
    try:
        jax.block_until_ready(jnp.ones((1 << 40,)))
        print("no error")
    except Exception as error:
        print("RESOURCE_EXHAUSTED" in str(error))
    print(bool((step(model, state, ctrl).qpos == before.qpos).all()))
"""


def test_out_of_memory_leaves_the_process_usable(cuda):
    done = child(OUT_OF_MEMORY)
    assert done.stdout.split() == ["True", "True"], done.stdout + done.stderr


BESIDE = """
    import jax, jax.numpy as jnp, numpy as np
    import torch, warp as wp
    import fphys
    x = jnp.ones(1 << 20)
    model = fphys.load(fphys.asset("ant"))
    after = jax.jit(fphys.step)(model, fphys.init(model, 256), jnp.zeros((256, 8)))
    a, b = torch.ones(1 << 28, device="cuda"), wp.zeros(1 << 28, dtype=float, device="cuda")
    print(float(a.sum()) == 1 << 28, b.numpy().max() == 0.0, bool(jnp.isfinite(after.qpos).all()))
"""


@pytest.mark.extra("torch")
def test_xla_takes_its_share_and_the_others_find_room(cuda):
    """XLA takes three quarters of the memory at its start, and torch and Warp take a gigabyte each beside it."""
    done = child(BESIDE, XLA_PYTHON_CLIENT_PREALLOCATE="true")
    assert done.stdout.split() == ["True"] * 3, done.stdout + done.stderr


OUT_OF_BOUNDS = """
    import jax, jax.numpy as jnp
    import warp as wp
    from fphys.bridge import warp_op

    @wp.func_native("y.data[(long long)i << 40] = 1.0f;")
    def spoil(i: int, y: wp.array2d(dtype=float)): ...

    @wp.kernel(enable_backward=False)
    def astray(x: wp.array2d(dtype=float), y_out: wp.array2d(dtype=float)):
        world, i = wp.tid()
        y_out[world, i] = x[world, i]
        spoil(i + 1, y_out)

    def run(launch, x, y):
        launch(astray, dim=x.shape, inputs=[x], outputs=[y])

    op = jax.jit(warp_op(run, lambda x: x, differentiable=False))
    for _ in range(3):
        try:
            print(jax.block_until_ready(op(jnp.ones((1, 4), jnp.float32))))
        except Exception as error:
            print("error:", str(error).splitlines()[0])
"""


def test_a_write_out_of_bounds_is_an_error_in_every_later_call(cuda, tmp_path):
    """CUDA's error 700 kills the process's context: no later call may give numbers, and the process can end."""
    source = tmp_path / "astray.py"
    source.write_text(textwrap.dedent(OUT_OF_BOUNDS))  # Warp reads a kernel's source from its file
    done = subprocess.run([sys.executable, source], capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout.count("error:") == 3, done.stdout + done.stderr


IN_FLIGHT = """
    import jax, jax.numpy as jnp
    import fphys
    model = fphys.load(fphys.asset("ant"))
    ctrls = jnp.zeros((500, 64, 8))
    run = jax.jit(lambda state: fphys.rollout(model, state, ctrls).qpos[-1])
    start = fphys.init(model, 64)
    jax.block_until_ready(run(start))
    run(start)
    print("end", flush=True)
"""


def test_exit_with_an_operation_in_flight(cuda):
    """The interpreter ends while kernels run on its buffers: it waits for them, or refuses them, and says nothing."""
    done = child(IN_FLIGHT)
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (0, "end\n", False), done.stderr
