"""Arrays cross by copy or by alias: with the same numbers, sharing memory on request, without memory growth."""

import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import warp as wp

from fphys.bridge import dlpack
from fphys.errors import MissingDependencyError, PlacementError, PrecisionError

pytestmark = pytest.mark.extra("torch")


class Library(NamedTuple):
    out: Any  # from JAX to the other side
    back: Any  # and back to JAX
    pointer: Any
    numbers: Any  # the other side's array as NumPy's


LIBRARIES = {
    "numpy": Library(dlpack.to_numpy, dlpack.from_numpy, lambda a: a.ctypes.data, np.asarray),
    "torch": Library(dlpack.to_torch, dlpack.from_torch, lambda a: a.data_ptr(), lambda a: a.numpy()),
    "warp": Library(dlpack.to_warp, dlpack.from_warp, lambda a: a.ptr, lambda a: a.numpy()),
}
SHAPES = [(), (1,), (3, 4), (2, 1, 5), (0, 3)]
DTYPES = ["bool", "int8", "uint8", "int32", "int64", "uint32", "float16", "float32", "float64"]


@pytest.fixture(params=LIBRARIES)
def library(request) -> Library:
    return LIBRARIES[request.param]


def numbers(shape: tuple[int, ...], dtype: Any = "float64") -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).uniform(0, 100, shape).astype(dtype))


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_there_and_back(library, dtype, copy):
    for shape in SHAPES[1:] if library.out is dlpack.to_warp else SHAPES:
        x = numbers(shape, dtype)
        there = library.out(x, copy=copy)
        back = library.back(there, copy=copy)
        np.testing.assert_array_equal(library.numbers(there), np.asarray(x), strict=True)
        np.testing.assert_array_equal(back, np.asarray(x), strict=True)
        if x.size:
            assert (library.pointer(there) == x.unsafe_buffer_pointer()) is not copy
            assert (back.unsafe_buffer_pointer() == library.pointer(there)) is not copy


@pytest.mark.parametrize("dtype", ["bfloat16", "complex64", "complex128", "float8_e4m3fn"])
def test_dtypes_of_torch_and_numpy(dtype):
    x = numbers((3, 4)).astype(dtype)
    for copy in (True, False):
        np.testing.assert_array_equal(dlpack.from_torch(dlpack.to_torch(x, copy=copy), copy=copy), x)
        np.testing.assert_array_equal(dlpack.from_numpy(dlpack.to_numpy(x, copy=copy), copy=copy), x)


def test_bfloat16_of_warp():
    x = numbers((3, 4)).astype("bfloat16")
    np.testing.assert_array_equal(dlpack.from_warp(dlpack.to_warp(x)), x)


def test_vectors_of_warp():
    x = numbers((5, 3), "float32")
    for copy in (True, False):
        there = dlpack.to_warp(x, dtype=wp.vec3, copy=copy)
        assert there.shape == (5,) and there.dtype is wp.vec3
        np.testing.assert_array_equal(dlpack.from_warp(there, copy=copy), x, strict=True)
    with pytest.raises(TypeError, match=r"to_warp: x is float64\[5, 3\]"):
        dlpack.to_warp(numbers((5, 3)), dtype=wp.vec3)


def test_a_copy_is_independent(library):
    x = numbers((4, 4))
    there = library.out(x)
    view = library.numbers(there)
    assert view.flags.writeable and np.shares_memory(view, library.numbers(there))
    view[...] = 0
    assert float(jnp.min(x)) > 0


def test_a_view_of_jax_is_read_only_in_numpy():
    with pytest.raises(ValueError, match="read-only"):
        dlpack.to_numpy(numbers((4,)), copy=False)[0] = 1


def test_unsupported_arrays_are_refused():
    with pytest.raises(TypeError, match=r"array is masked.*array.filled"):
        dlpack.from_numpy(np.ma.masked_array([1.0, 2.0], [True, False]))
    with pytest.raises(PrecisionError, match=r"array is \w+, wanted is bool or a number that JAX has"):
        dlpack.from_numpy(np.zeros(2, np.longdouble))
    with pytest.raises(ValueError, match=r"x has no axis.*x\[None\]"):
        dlpack.to_warp(jnp.float32(1.0))


def test_memory_for_numpy_is_aligned():
    for shape in (7, (3, 5), (), (0,)):
        memory = dlpack.empty(shape, "float32")
        assert memory.ctypes.data % dlpack.ALIGNMENT == 0 or not memory.size
        assert memory.flags.c_contiguous and memory.flags.writeable
        assert memory.shape == np.empty(shape).shape and memory.dtype == np.float32
        dlpack.from_numpy(memory, copy=False)


def test_the_second_device_of_the_host(library):
    x = jax.device_put(numbers((4,)), jax.devices()[1])
    np.testing.assert_array_equal(library.back(library.out(x)), x)


def test_an_array_on_two_devices_is_refused(library):
    mesh = jax.make_mesh((2,), ("world",))
    x = jax.device_put(numbers((4,)), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("world")))
    with pytest.raises(PlacementError, match="x lies on 2 devices: gather it"):
        library.out(x)


def test_transposed_arrays_leave_unchanged(library):
    """A transposed array that came in from outside keeps its own strides inside JAX."""
    x = jax.dlpack.from_dlpack(torch.arange(12.0).reshape(3, 4).T)
    for copy in (True, False):
        np.testing.assert_array_equal(library.numbers(library.out(x, copy=copy)), np.arange(12.0).reshape(3, 4).T)


def test_missing_packages(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "cupy", None)
    for call, text in [
        (dlpack.to_torch, r"\.\[torch\]"),
        (dlpack.from_torch, r"\.\[torch\]"),
        (dlpack.to_cupy, "cupy"),
        (dlpack.from_cupy, "cupy"),
    ]:
        with pytest.raises(MissingDependencyError, match=f"pip install .*{text}"):
            call(jnp.ones(3))


GROWTH = """
import json, os, sys
import jax, jax.numpy as jnp, torch
from fphys.bridge import dlpack

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

names = ("numpy", "torch", "warp")
def around(x, copy, name):
    return getattr(dlpack, "from_" + name)(getattr(dlpack, "to_" + name)(x, copy=copy), copy=copy)

small, grown = jnp.ones(256), {}
for name in names:
    for copy in (True, False):
        for _ in range(500):
            around(small, copy, name)
for name in names:
    for copy in (True, False):
        before = resident()
        for _ in range(int(sys.argv[1])):
            around(small, copy, name)
        grown[f"{name}, {'copied' if copy else 'shared'} often"] = resident() - before
large = jnp.full(1 << 28, 3.0, "float32").block_until_ready()
for name in names:
    before = resident()
    there = getattr(dlpack, "to_" + name)(large, copy=False)
    back = getattr(dlpack, "from_" + name)(there, copy=False)
    grown[name] = resident() - before
    assert back.unsafe_buffer_pointer() == large.unsafe_buffer_pointer() and float(back[-1]) == 3
    del there, back
print(json.dumps(grown))
"""


def test_a_gibibyte_crosses_and_ten_thousand_crossings_leave_memory_flat(full):
    """Ten thousand crossings in all; in full size, of each kind."""
    child = subprocess.run(
        [sys.executable, "-c", GROWTH, "10000" if full else "1667"],
        env={name: value for name, value in os.environ.items() if name != "XLA_FLAGS"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert child.returncode == 0, child.stderr
    grown = json.loads(child.stdout)
    assert len(grown) == 9
    assert {what: size for what, size in grown.items() if size >= 1 << 20} == {}
