"""Arrays that cannot cross unchanged, or whose owner writes to them, deletes them or has donated them.

Faults 15, 16, 17, 19, 20 and 21, at the borders to NumPy, torch and Warp.
"""

import gc
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import warp as wp

import fphys
from fphys.bridge import dlpack
from fphys.errors import BridgeError, PlacementError, PrecisionError

pytestmark = pytest.mark.extra("torch")


class Border(NamedTuple):
    out: Any
    back: Any
    make: Any  # makes their array from NumPy's numbers, in memory of its own
    numbers: Any  # its memory, as NumPy sees it


def aligned(x: np.ndarray) -> np.ndarray:
    memory = dlpack.empty(x.shape, x.dtype)
    memory[...] = x
    return memory


BORDERS = {
    "numpy": Border(dlpack.to_numpy, dlpack.from_numpy, aligned, lambda a: a),
    "torch": Border(dlpack.to_torch, dlpack.from_torch, torch.tensor, lambda a: a.numpy()),
    "warp": Border(dlpack.to_warp, dlpack.from_warp, lambda x: wp.array(x, device="cpu"), lambda a: a.numpy()),
}
X = np.arange(64.0).reshape(8, 8)


@pytest.fixture(params=BORDERS)
def border(request) -> Border:
    return BORDERS[request.param]


@pytest.fixture(params=["dlpack.from_numpy", "dlpack.from_torch", "dlpack.from_warp"])
def entry(request) -> Border:
    return BORDERS[request.param.removeprefix("dlpack.from_")]


# Fault 15: strides


@pytest.mark.parametrize(
    ("cut", "strides"),
    [
        (lambda a: a[::2], r"shape \(4, 8\) has strides \(16, 1\) in elements.*row-major, \(8, 1\)"),
        (lambda a: a[:, ::2], r"shape \(8, 4\) has strides \(8, 2\) in elements.*row-major, \(4, 1\)"),
        (
            lambda a: a.transpose(1, 0) if isinstance(a, torch.Tensor) else a.transpose(),
            r"shape \(8, 8\) has strides \(1, 8\)",
        ),
        (lambda a: a[:, 1:], r"shape \(8, 7\) has strides \(8, 1\)"),
    ],
    ids=["rows", "columns", "transposed", "offset"],
)
def test_strides_are_named_or_copied(border, cut, strides):
    theirs = cut(border.make(X))
    with pytest.raises(PlacementError, match=rf"from_\w+: \w+ of {strides}.*copy=True"):
        border.back(theirs, copy=False)
    np.testing.assert_array_equal(border.back(theirs), border.numbers(theirs), strict=True)


def test_an_offset_is_named_or_copied(border):
    theirs = border.make(X.ravel())[1:]
    with pytest.raises(PlacementError, match=r"begins 8 bytes after a multiple of 64.*copy=True"):
        border.back(theirs, copy=False)
    np.testing.assert_array_equal(border.back(theirs), X.ravel()[1:])


def test_aligned_rows_are_shared(border):
    theirs = border.make(X)[1:]
    alias = border.back(theirs, copy=False)
    assert alias.unsafe_buffer_pointer() == border.numbers(theirs).ctypes.data


def test_repeated_and_reversed_memory():
    repeated, reversed_ = torch.arange(8.0).expand(3, 8), X[::-1]
    with pytest.raises(PlacementError, match=r"strides \(0, 1\)"):
        dlpack.from_torch(repeated, copy=False)
    with pytest.raises(PlacementError, match=r"strides \(-8, 1\)"):
        dlpack.from_numpy(reversed_, copy=False)
    np.testing.assert_array_equal(dlpack.from_torch(repeated), repeated.numpy())
    np.testing.assert_array_equal(dlpack.from_numpy(reversed_), reversed_)


def test_lazy_conjugates_are_copied_with_their_sign():
    lazy = torch.tensor([1 + 2j, 3 - 4j]).conj()
    np.testing.assert_array_equal(dlpack.from_torch(lazy), np.array([1 - 2j, 3 + 4j], np.complex64))
    with pytest.raises(PlacementError, match="conjugate"):
        dlpack.from_torch(lazy, copy=False)


# Fault 16: dtypes and devices


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: dlpack.to_torch(jnp.zeros(4, "int4")), r"to_torch: x is int4\[4\]"),
        (lambda: dlpack.to_torch(jax.random.key(0)), r"to_torch: x is key<fry>.*key_data"),
        (lambda: dlpack.to_warp(jnp.zeros(4, "complex64")), r"to_warp: x is complex64\[4\]"),
        (lambda: dlpack.from_numpy(np.zeros(4, ">f8")), r"array is >f8, of the other byte order"),
        (lambda: dlpack.from_numpy(np.array([None])), r"array is object, wanted is bool or a number"),
        (lambda: dlpack.from_numpy(np.zeros(2, "datetime64[s]")), r"array is datetime64\[s\], wanted"),
        (lambda: dlpack.from_numpy(np.array(["a"])), r"array is <U1, wanted"),
        (lambda: dlpack.from_torch(torch.empty(2, dtype=torch.bits16)), "tensor is bits16, wanted"),
    ],
)
def test_dtypes_are_named(call, text):
    with pytest.raises(PrecisionError, match=text):
        call()


@wp.struct
class Pair:
    a: float
    b: float


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: dlpack.to_numpy([1.0]), "to_numpy: x is builtins.list, wanted is jax.Array"),
        (lambda: dlpack.to_torch(X), "to_torch: x is numpy.ndarray, wanted is jax.Array"),
        (lambda: dlpack.from_torch(X), "from_torch: tensor is numpy.ndarray, wanted is torch.Tensor"),
        (lambda: dlpack.from_numpy(torch.zeros(2)), "from_numpy: array is torch.Tensor, wanted is numpy.ndarray"),
        (lambda: dlpack.from_warp(X), "from_warp: array is numpy.ndarray, wanted is warp.array"),
        (lambda: dlpack.from_warp(wp.zeros(2, dtype=Pair, device="cpu")), "array holds .*, wanted are numbers"),
        (lambda: jax.jit(dlpack.to_torch)(X), r"x is traced .*float64\[8,8\].*as_jax"),
        (lambda: jax.grad(lambda x: dlpack.to_numpy(x).sum())(X), "x is traced"),
    ],
)
def test_other_types_are_named(call, text):
    with pytest.raises(TypeError, match=text):
        call()


def test_tensors_without_dense_memory_are_refused():
    with pytest.raises(
        PlacementError, match=r"from_torch: tensor lies on meta, wanted is one of JAX's devices \(cpu\)"
    ):
        dlpack.from_torch(torch.zeros(2, device="meta"))
    with pytest.raises(BridgeError, match=r"layout is torch.sparse_coo.*to_dense"):
        dlpack.from_torch(torch.eye(2).to_sparse())


def test_a_gradient_is_not_lost():
    with pytest.raises(BridgeError, match=r"requires a gradient.*detach.*as_torch"):
        dlpack.from_torch(torch.zeros(2, requires_grad=True))


# Fault 17: float64 while JAX has it off


@pytest.mark.parametrize("dtype", ["float64", "int64"])
@pytest.mark.parametrize("copy", [True, False])
def test_64_bits_need_x64(entry, x32, dtype, copy):
    theirs = entry.make(X.astype(dtype))
    with pytest.raises(PrecisionError, match=rf"is {dtype}, and JAX without x64 .*{dtype[:-2]}32: .*jax_enable_x64"):
        entry.back(theirs, copy=copy)
    assert entry.back(entry.make(X.astype("float32")), copy=copy).dtype == np.float32


# Fault 19: writes to shared memory


def test_a_write_after_the_crossing(border):
    theirs = border.make(X)
    copied, shared = border.back(theirs), border.back(theirs, copy=False)
    border.numbers(theirs)[0, 0] = 77
    assert float(copied[0, 0]) == 0
    assert float(shared[0, 0]) == 77  # as copy=False implies


def test_a_write_to_an_exported_copy(border):
    x = jnp.asarray(X) + 0
    border.numbers(border.out(x))[...] = 77
    np.testing.assert_array_equal(x, X)


# Fault 20: use after free


def churn() -> None:
    gc.collect(0)
    for i in range(20):
        jnp.full((8, 8), -float(i)).block_until_ready()
        torch.full((8, 8), -1.0, dtype=torch.float64)
        np.full((8, 8), -1.0)


def test_the_consumer_keeps_the_owner_alive(border):
    theirs = border.make(X)
    alias = border.back(theirs, copy=False)
    del theirs
    churn()
    np.testing.assert_array_equal(alias, X)
    x = jnp.asarray(X) + 0
    there = border.out(x, copy=False)
    del x
    churn()
    np.testing.assert_array_equal(border.numbers(there), X)


# Fault 21: deleted and donated arrays


def test_a_deleted_array(border):
    x = jnp.ones((2, 3))
    x.delete()
    with pytest.raises(BridgeError, match=r"to_\w+: x, float64\[2, 3\], has been deleted.*donated"):
        border.out(x)


def test_a_donated_array(border):
    donate = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.ones((2, 3))
    donate(x)
    for copy in (True, False):
        with pytest.raises(BridgeError, match="has been deleted"):
            border.out(x, copy=copy)
    with pytest.raises((RuntimeError, ValueError), match="deleted"):
        donate(x)


def test_an_alias_survives_deletion_and_donation(border):
    for give_away in (jax.jit(lambda x: x + 1, donate_argnums=0), lambda x: x.delete()):
        x = jnp.asarray(X) + 0
        there = border.out(x, copy=False)
        give_away(x)
        churn()
        np.testing.assert_array_equal(border.numbers(there), X)


def test_bridge_errors_are_one_family():
    assert issubclass(PlacementError, (fphys.errors.BridgeError)) and issubclass(PlacementError, TypeError)
