"""Exchange of arrays through DLPack: between JAX and torch, NumPy, Warp and CuPy.

Every function copies by default. JAX arrays are immutable and the others are not, so an alias lets the other side
change what JAX believes constant. ``copy=False`` asks for an alias: it returns the very same memory, and raises where
that is impossible (strides, alignment, device) instead of copying silently. An alias keeps its owner alive, and
aliased memory is not donated: JAX then writes its result elsewhere.

Gradients do not cross: use ``fphys.bridge.torch`` for that.

Source: the DLPack protocol, https://dmlc.github.io/dlpack/latest/python_spec.html.
"""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.dtypes import canonicalize_dtype, extended

from ..errors import BridgeError, MissingDependencyError, PlacementError, PrecisionError, install
from .start import start_warp

if TYPE_CHECKING:
    import torch
    import warp as wp

__all__ = ["empty", "from_cupy", "from_numpy", "from_torch", "from_warp", "to_cupy", "to_numpy", "to_torch", "to_warp"]

ALIGNMENT = 64
"""Bytes: XLA's kernels need arrays that begin at a multiple of it."""


def empty(shape: "int | tuple[int, ...]", dtype: Any) -> np.ndarray:
    """Uninitialised NumPy memory, aligned for ``from_numpy(..., copy=False)``; NumPy's own memory seldom is."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


# Out of JAX


def to_numpy(x: jax.Array, *, copy: bool = True) -> np.ndarray:
    """A NumPy array of the same shape and dtype [any unit]; no gradient crosses.

    Args:
        x: on any device.
        copy: False gives a read-only view of JAX's own memory, which must be on the host.

    Raises:
        TypeError: ``x`` is not a JAX array, or is traced.
        BridgeError: ``x`` has been deleted.
        PlacementError: ``x`` lies on several devices, or (without a copy) not on the host.
    """
    platform = _leaving("to_numpy", x)
    if copy:
        return np.array(x)
    if platform != "cpu":
        raise PlacementError(f"to_numpy: x lies on {platform}, NumPy reads the host's memory: copy (copy=True)")
    return np.asarray(x)


def to_torch(x: jax.Array, *, copy: bool = True) -> "torch.Tensor":
    """A tensor of the same shape and dtype [any unit], on the same device; it requires no gradient.

    Args:
        x: on a CPU or a CUDA device.
        copy: False gives a tensor in JAX's own memory: writing to it changes an array that JAX holds immutable.

    Raises:
        TypeError: ``x`` is not a JAX array, or is traced.
        PrecisionError: torch has no such dtype (for example int4, or random keys).
        BridgeError: ``x`` has been deleted.
        PlacementError: ``x`` lies on several devices.
        MissingDependencyError: torch is not installed.
    """
    torch = import_torch()
    platform = _leaving("to_torch", x)
    alias = _crossing("to_torch", x, torch.from_dlpack)
    if not copy:
        return alias
    own = alias.clone(memory_format=torch.contiguous_format)
    if platform != "cpu":
        torch.cuda.current_stream(own.device).synchronize()  # x may be freed as soon as this returns
    return own


def to_warp(x: jax.Array, *, dtype: Any = None, copy: bool = True) -> "wp.array":
    """A Warp array of the same numbers [any unit] on the same device; it requires no gradient.

    Args:
        x: on a CPU or a CUDA device.
        dtype: a Warp type; a vector or matrix if the last axes are its components: ``wp.vec3`` turns (n, 3) into (n,).
        copy: False gives an array in JAX's own memory: a kernel that writes to it changes an array that JAX holds
            immutable.

    Raises:
        TypeError: ``x`` is not a JAX array, or is traced.
        ValueError: ``x`` has no axis; Warp's arrays have at least one.
        PrecisionError: Warp has no such dtype (complex numbers), or it differs from that of ``dtype``'s components.
        BridgeError: ``x`` has been deleted.
        PlacementError: ``x`` lies on several devices.
    """
    import warp as wp

    start_warp()
    platform = _leaving("to_warp", x)
    if not x.ndim:
        raise ValueError("to_warp: x has no axis, Warp's arrays have one at least: give x[None]")
    alias = _crossing("to_warp", x, lambda x: wp.from_dlpack(x, dtype=dtype))
    if not copy:
        return alias
    own = wp.clone(alias)
    if platform != "cpu":
        wp.synchronize_device(own.device)
    return own


def to_cupy(x: jax.Array, *, copy: bool = True) -> Any:
    """A CuPy array of the same shape and dtype [any unit] on the same CUDA device; no gradient crosses.

    ``copy`` and errors are those of :func:`to_torch`.

    Raises:
        PlacementError: ``x`` is not on a CUDA device.
        MissingDependencyError: CuPy is not installed.
    """
    cupy = _import_cupy()
    if (platform := _leaving("to_cupy", x)) == "cpu":
        raise PlacementError(
            f"to_cupy: x lies on {platform}, CuPy's arrays are on CUDA devices: jax.device_put it there"
        )
    alias = _crossing("to_cupy", x, cupy.from_dlpack)
    if not copy:
        return alias
    own = alias.copy()
    cupy.cuda.get_current_stream().synchronize()
    return own


# Into JAX


def from_numpy(array: np.ndarray, *, copy: bool = True) -> jax.Array:
    """A JAX array of the same shape and dtype; the copy lies on JAX's default device.

    Args:
        array: any strides.
        copy: False lets JAX read NumPy's own memory, so that a later write to ``array`` shows in an array that JAX
            holds immutable. It must be row-major and begin at a multiple of 64 bytes: see :func:`empty`.

    Raises:
        TypeError: ``array`` is not a NumPy array, or is a masked one.
        PrecisionError: JAX has no such dtype, or it has 64 bits and x64 is off.
        PlacementError: (without a copy) strides or alignment do not allow it.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_numpy: array is {_kind(array)}, wanted is numpy.ndarray")
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError("from_numpy: array is masked, and JAX has no masks: give array.filled(value), or array.data")
    _arriving("from_numpy", "array", array.dtype)
    if copy:
        own = empty(array.shape, array.dtype)
        own[...] = array
        return jax.device_put(own)
    strides = tuple(stride // array.itemsize for stride in array.strides)
    _refuse_copy("from_numpy", "array", array.shape, strides, array.flags.c_contiguous, array.ctypes.data)
    alias = jax.device_put(array, jax.devices("cpu")[0], may_alias=True)
    if array.size and alias.unsafe_buffer_pointer() != array.ctypes.data:
        raise PlacementError("from_numpy: JAX did not take the memory of array as it is: copy (copy=True)")
    return alias


def from_torch(tensor: "torch.Tensor", *, copy: bool = True) -> jax.Array:
    """A JAX array of the same shape and dtype, on the same device.

    Args:
        tensor: any strides; it must not require a gradient, which would be lost.
        copy: False lets JAX read torch's own memory, so that a later in-place operation shows in an array that JAX
            holds immutable. It must be row-major and begin at a multiple of 64 bytes, as tensors do that are not views.

    Raises:
        TypeError: ``tensor`` is not a tensor.
        PrecisionError: JAX has no such dtype (for example quantised), or it has 64 bits and x64 is off.
        PlacementError: JAX has no such device, or (without a copy) strides or alignment do not allow it.
        BridgeError: ``tensor`` requires a gradient, or is sparse.
        MissingDependencyError: torch is not installed.
    """
    return take_torch("from_torch", "tensor", tensor, copy)


def from_warp(array: "wp.array", *, copy: bool = True) -> jax.Array:
    """A JAX array on the same device; vectors and matrices become trailing axes. No Warp tape sees it.

    Args:
        array: any strides.
        copy: False lets JAX read Warp's own memory, so that a kernel that writes to it later changes an array that JAX
            holds immutable. It must be row-major and begin at a multiple of 64 bytes.

    Raises:
        TypeError: ``array`` is not a ``wp.array``, or is an array of structures.
        PrecisionError: it has 64 bits and x64 is off.
        PlacementError: JAX has no such device, or (without a copy) strides or alignment do not allow it.
    """
    import warp as wp

    from .private import type_size_in_bytes

    start_warp()
    if not isinstance(array, wp.array):
        raise TypeError(f"from_warp: array is {_kind(array)}, wanted is warp.array")
    device: Any = array.device
    _arriving("from_warp", "array", _warp_dtype(array))
    _reachable("from_warp", "array", "cpu" if device.is_cpu else "cuda")
    if copy:
        own = wp.clone(array, requires_grad=False)
        if not device.is_cpu:
            wp.synchronize_device(device)
        return jax.dlpack.from_dlpack(own)
    item = type_size_in_bytes(array.dtype)
    strides = tuple(int(stride or 0) // item for stride in array.strides or ())
    _refuse_copy("from_warp", "array", tuple(array.shape), strides, bool(array.is_contiguous), array.ptr or 0)
    return jax.dlpack.from_dlpack(array, copy=False)


def from_cupy(array: Any, *, copy: bool = True) -> jax.Array:
    """A JAX array on the same CUDA device; ``copy`` and errors are those of :func:`from_torch`.

    Raises:
        MissingDependencyError: CuPy is not installed.
    """
    cupy = _import_cupy()
    if not isinstance(array, cupy.ndarray):
        raise TypeError(f"from_cupy: array is {_kind(array)}, wanted is cupy.ndarray")
    _arriving("from_cupy", "array", array.dtype)
    _reachable("from_cupy", "array", "cuda")
    if copy:
        own = array.copy(order="C")
        cupy.cuda.get_current_stream().synchronize()
        return jax.dlpack.from_dlpack(own)
    strides = tuple(stride // array.itemsize for stride in array.strides)
    _refuse_copy("from_cupy", "array", array.shape, strides, array.flags.c_contiguous, array.data.ptr)
    return jax.dlpack.from_dlpack(array, copy=False)


# Checks


def import_torch() -> Any:
    """Import torch on first use."""
    try:
        import torch
    except ImportError as cause:
        raise MissingDependencyError(f"torch is not installed: {install('torch')}") from cause
    return torch


def take_torch(function: str, name: str, tensor: Any, copy: bool) -> jax.Array:
    """:func:`from_torch`, for the argument ``name`` of another function."""
    torch = import_torch()
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{function}: {name} is {_kind(tensor)}, wanted is torch.Tensor")
    _arriving(function, name, _numpy_dtype(function, name, tensor))
    if tensor.requires_grad:
        raise BridgeError(
            f"{function}: {name} requires a gradient, which does not cross: tensor.detach() if none is wanted, else "
            "fphys.bridge.torch.as_torch for JAX inside torch, and as_jax for torch inside JAX"
        )
    if tensor.layout != torch.strided:
        raise BridgeError(f"{function}: {name}'s layout is {tensor.layout}, JAX's arrays are dense: tensor.to_dense()")
    _reachable(function, name, tensor.device.type)
    if copy:
        own = tensor.clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()
        return jax.dlpack.from_dlpack(own)
    if tensor.is_conj() or tensor.is_neg():
        raise PlacementError(f"{function}: {name} is a lazy conjugate or negative: copy (copy=True)")
    _refuse_copy(function, name, tensor.shape, tensor.stride(), tensor.is_contiguous(), tensor.data_ptr())
    return jax.dlpack.from_dlpack(tensor.view(-1).view(tensor.shape), copy=False)


def _import_cupy() -> Any:
    try:
        import cupy  # type: ignore[import-not-found]
    except ImportError as cause:
        raise MissingDependencyError("CuPy is not installed: pip install cupy-cuda13x") from cause
    return cupy


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _leaving(function: str, x: Any) -> str:
    """The platform of a JAX array. Raises if the array cannot leave JAX."""
    if isinstance(x, Tracer):
        raise TypeError(
            f"{function}: x is traced ({x.aval}), it has no memory yet: cross outside of jit, grad and vmap; "
            "fphys.bridge.torch.as_jax calls torch from inside"
        )
    if not isinstance(x, jax.Array):
        raise TypeError(f"{function}: x is {_kind(x)}, wanted is jax.Array")
    if x.is_deleted():
        raise BridgeError(
            f"{function}: x, {x.dtype}{list(x.shape)}, has been deleted: x.delete() was called, or x was donated to a "
            "jitted function (donate_argnums), which then owned its memory. Cross before, or do not donate it"
        )
    if jnp.issubdtype(x.dtype, extended):
        raise PrecisionError(f"{function}: x is {x.dtype}, which no other library has: jax.random.key_data(x) crosses")
    if len(x.devices()) > 1:
        raise PlacementError(
            f"{function}: x lies on {len(x.devices())} devices: gather it first, jax.device_put(x, jax.devices()[0])"
        )
    return next(iter(x.devices())).platform


def _crossing(function: str, x: jax.Array, take: Any) -> Any:
    try:
        return take(x)
    except Exception as cause:
        raise PrecisionError(
            f"{function}: x is {x.dtype}{list(x.shape)}, which the other side refuses: {cause}"
        ) from cause


def _arriving(function: str, name: str, dtype: Any) -> None:
    """Refuse a dtype that JAX does not have or would truncate."""
    dtype = np.dtype(dtype)
    if not dtype.isnative:
        raise PrecisionError(
            f"{function}: {name} is {dtype.str}, of the other byte order: array.astype({dtype.name!r})"
        )
    known = dtype.kind in "biufc" or jnp.issubdtype(dtype, np.number)
    if dtype.hasobject or not known or dtype.type in (np.longdouble, np.clongdouble):
        raise PrecisionError(f"{function}: {name} is {dtype}, wanted is bool or a number that JAX has")
    if (kept := canonicalize_dtype(dtype)) != dtype:
        raise PrecisionError(
            f"{function}: {name} is {dtype}, and JAX without x64 would make it {kept}: "
            f'jax.config.update("jax_enable_x64", True), or cast {name} to {kept}'
        )


def _numpy_dtype(function: str, name: str, tensor: Any) -> np.dtype:
    """The NumPy or JAX dtype with the name of a tensor's dtype."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    try:
        return jnp.dtype(dtype)
    except TypeError as cause:
        raise PrecisionError(f"{function}: {name} is {dtype}, wanted is bool or a number that JAX has") from cause


def _warp_dtype(array: Any) -> np.dtype:
    """The dtype of a Warp array's components."""
    import warp as wp

    from .private import type_scalar_type

    try:
        return np.dtype(wp.dtype_to_numpy(type_scalar_type(array.dtype)))
    except TypeError as cause:
        raise TypeError(
            f"from_warp: array holds {array.dtype.__name__}, wanted are numbers, vectors or matrices"
        ) from cause


def _reachable(function: str, name: str, device: str) -> None:
    """Refuse a device that this process's JAX does not have."""
    try:
        found = device in ("cpu", "cuda") and bool(jax.devices(device))
    except RuntimeError:
        found = False
    if not found:
        raise PlacementError(
            f"{function}: {name} lies on {device}, wanted is one of JAX's devices ({jax.default_backend()}): "
            f"move it there first, or {install('cuda')}"
        )


def _refuse_copy(function: str, name: str, shape: Any, strides: Any, contiguous: bool, pointer: int) -> None:
    """Raise if memory cannot be shared with its present layout."""
    if not contiguous:
        wanted = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
        raise PlacementError(
            f"{function}: {name} of shape {tuple(shape)} has strides {tuple(strides)} in elements, JAX's arrays are "
            f"row-major, {wanted}: copy (copy=True)"
        )
    if pointer % ALIGNMENT and 0 not in shape:
        raise PlacementError(
            f"{function}: {name} begins {pointer % ALIGNMENT} bytes after a multiple of {ALIGNMENT}, where arrays of "
            "XLA begin: copy (copy=True), or let it lie in memory of fphys.bridge.dlpack.empty"
        )
