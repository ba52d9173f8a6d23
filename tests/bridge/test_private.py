"""Private parts of Warp, JAX and XLA that the bridge uses: a release that changes one fails a test by name."""

import ast
import ctypes
import importlib
import inspect
import os
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp
from jax._src import pjit
from jax._src.interpreters import pxla
from warp._src.jax import xla_ffi

import fphys  # noqa: F401
from fphys.bridge import driver, private
from fphys.bridge.start import start_warp

ROOT = Path(__file__).parents[2]
TABLE = {"Error_Create": 6, "Stream_Get": 10, "State_Set": 13, "State_Get": 14, "DeviceOrdinal_Get": 23}
"""Words of the table of XLA's functions."""
start_warp()


@wp.struct
class Pair:
    mass: wp.array2d(dtype=wp.float64)
    count: int


@wp.kernel
def product(pair: Pair, x: wp.array2d(dtype=wp.vec3d), y_out: wp.array2d(dtype=wp.vec3d)):
    world, i = wp.tid()
    y_out[world, i] = pair.mass[world, i] * x[world, i]


def test_nothing_private_is_used_elsewhere():
    """Only one file of the package names ``warp._src`` or ``jax._src``."""
    private_parts = ("warp._src", "jax._src", "jaxlib._", "wp._src")
    texts = {path.relative_to(ROOT / "fphys").as_posix(): path.read_text() for path in (ROOT / "fphys").rglob("*.py")}
    suspects = [name for name, text in sorted(texts.items()) if any(part in text for part in private_parts)]
    code = {name: ast.unparse(ast.parse(texts[name])) for name in suspects}  # without comments
    found = [name for name, text in code.items() if any(part in text for part in private_parts)]
    assert found == ["bridge/private.py"]


def test_arrays_are_packed_as_six_fields():
    """``array_t``: data and grad are pointers; strides are in bytes, and 0 shares one row among worlds."""
    names = [field[0] for field in private.array_t._fields_]
    assert names == ["data", "grad", "shape", "strides", "ndim", "flags"]
    x = wp.array(np.zeros((4, 3)), dtype=wp.float64, device="cpu")
    packed = x.__ctype__()
    assert isinstance(packed, private.array_t)
    assert (packed.data, packed.ndim, list(packed.shape[:2]), list(packed.strides[:2])) == (x.ptr, 2, [4, 3], [24, 8])


def test_types_know_their_sizes():
    vector = wp.types.vector(3, wp.float64)
    assert private.type_scalar_type(vector) is wp.float64 and private.type_size_in_bytes(vector) == 24
    assert private.is_array(wp.array2d(dtype=float)) and not private.is_array(3)


def test_a_structure_names_its_fields_and_their_types():
    assert isinstance(Pair, private.Struct)
    assert list(Pair.vars) == ["mass", "count"] and Pair.vars["count"].type is wp.int32
    assert [field[0] for field in Pair.ctype._fields_] == ["mass", "count"]


def test_a_kernel_names_its_arguments_and_their_types():
    assert [arg.label for arg in product.adj.args] == ["pair", "x", "y_out"]
    assert product.adj.args[1].type.dtype is wp.vec3d
    value = private.pack_arg(product, wp.int32, "count", 3, wp.get_device("cpu"), False)
    assert ctypes.c_int32.from_buffer_copy(bytes(value)).value == 3


def test_the_bounds_of_a_launch():
    bounds = private.launch_bounds((2, 3), 2)
    assert (bounds.size, list(bounds.shape)) == (6, [2, 3])


def test_the_native_library_has_what_a_gpu_needs():
    core = private.runtime().core
    for name, arguments in (("wp_memset_device", 5), ("wp_memcpy_d2d", 5), ("wp_cuda_launch_kernel", 11)):
        assert len(getattr(core, name).argtypes) == arguments, name


def test_the_call_frame_of_xla():
    """Sizes and offsets of XLA's C structures, in version 0 of its FFI, as Warp has them."""
    frame, buffer = xla_ffi.XLA_FFI_CallFrame, xla_ffi.XLA_FFI_Buffer
    assert {name: getattr(frame, name).offset for name in ("args", "rets", "attrs")} == {
        "args": 40,
        "rets": 80,
        "attrs": 120,
    }
    assert buffer.data.offset == 24
    assert xla_ffi.XLA_FFI_Scalar.value.offset == 8
    assert ctypes.sizeof(private.TypeInfo) == 24
    table = {name: getattr(xla_ffi.XLA_FFI_Api, f"XLA_FFI_{name}").offset // 8 for name in TABLE}
    assert table == TABLE
    native = Path(driver.__file__).with_name("native.h").read_text()
    for name, word in {"ERROR_CREATE": 6, "STREAM_GET": 10, "STATE_SET": 13, "STATE_GET": 14, "DEVICE_GET": 23}.items():
        assert f"{name} = {word}" in native
    assert (xla_ffi.XLA_FFI_Stream_Get_Args.stream.offset, ctypes.sizeof(xla_ffi.XLA_FFI_Stream_Get_Args)) == (24, 32)
    assert xla_ffi.XLA_FFI_DeviceOrdinal_Get_Args.device_ordinal.offset == 24


def test_jax_programs_can_be_dropped_and_refused(monkeypatch: pytest.MonkeyPatch):
    """For forked children: a compiled call goes through Python again, and through these functions."""
    monkeypatch.setattr(pjit, "_resolve_and_lower", pjit._resolve_and_lower)
    monkeypatch.setattr(pxla.ExecuteReplicated, "__call__", pxla.ExecuteReplicated.__call__)
    monkeypatch.setattr(pxla, "batched_device_put", pxla.batched_device_put)
    assert "_resolve_and_lower(" in inspect.getsource(pjit)
    double = jax.jit(lambda x: 2.0 * x)
    assert double(jnp.ones(3))[0] == 2.0 and private.jax_has_started()
    calls = []

    def refuse(*args: object, **kwargs: object) -> None:
        calls.append(args)
        raise RuntimeError("refused")

    private.forget_compiled()
    private.refuse_calls(refuse)
    with pytest.raises(RuntimeError, match="refused"):
        double(jnp.ones(3))
    with pytest.raises(RuntimeError, match="refused"):
        jax.jit(lambda x: 3.0 * x)(jnp.ones(3))
    with pytest.raises(RuntimeError, match="refused"):
        jax.device_put(np.ones(3))
    assert calls


def test_forward_mode_is_explained():
    """The message is ours where a backward rule is, and JAX's elsewhere; jitted, batched and as it is."""

    @jax.custom_vjp
    def theirs(x):
        return x

    theirs.defvjp(lambda x: (x, None), lambda _, g: (g,))
    for fn in (theirs, jax.jit(theirs)):
        with pytest.raises(TypeError, match="can't apply forward-mode"):
            jax.jacfwd(fn)(1.0)


def test_gloo_listens_where_it_is_told(monkeypatch):
    library = importlib.import_module("jaxlib._jax")
    assert importlib.import_module("jax._src.xla_bridge")._jax is library  # which makes the client from it
    monkeypatch.setattr(library, "make_gloo_tcp_collectives", library.make_gloo_tcp_collectives)
    assert "hostname" in library.make_gloo_tcp_collectives.__doc__
    for host in ("127.0.0.1", "127.0.0.2"):
        private.gather_at(host)
        assert library.make_gloo_tcp_collectives.keywords == {"hostname": host}
    assert not private.in_a_group()


def test_the_thread_of_gloo_gives_way(monkeypatch):
    """Else a message takes 3 ms instead of 0.2 where processes have one core each."""
    end, threads = threading.Event(), []

    def make(hostname):
        threads.append(threading.Thread(target=end.wait))
        threads[-1].start()

    monkeypatch.setattr(importlib.import_module("jaxlib._jax"), "make_gloo_tcp_collectives", make)
    for _ in range(2):
        private.gather_at("127.0.0.1")
        importlib.import_module("jaxlib._jax").make_gloo_tcp_collectives()
    policies = [os.sched_getscheduler(thread.native_id) for thread in threads]
    own = os.sched_getscheduler(0)
    end.set()
    assert policies == [os.SCHED_BATCH] * 2 and own != os.SCHED_BATCH


def test_a_shard_map_without_jit_is_known():
    mesh = jax.make_mesh((2,), ("world",), axis_types=(jax.sharding.AxisType.Auto,))
    found = []

    def f(x):
        found.append(private.is_eager_in_shard_map(x))
        return x

    spec = jax.sharding.PartitionSpec("world")
    spread = jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec)
    spread(jnp.ones(2))
    jax.jit(spread)(jnp.ones(2))
    assert found == [True, False]
