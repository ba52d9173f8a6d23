"""Compiling and loading kernel modules: with progress, and with a second try if the cache is broken."""

import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..errors import BridgeError
from . import cache

_LOCK = threading.RLock()


def load(kernels: Iterable[Any], device: Any, name: str) -> tuple[dict[Any, Any], list[Any]]:
    """Load the modules of ``kernels`` on ``device``; returns each kernel's hooks, and objects that keep them loaded.

    A module that gains a kernel later is compiled again, and Warp unloads the old code once nothing refers to it.

    Modules that are not in Warp's cache are compiled, and ``compiling i/n`` is printed on standard error. A cached
    binary that is damaged or does not load (a write cut short, a full disk) is removed and built once more.

    Raises:
        BridgeError: a module does not compile (every later launch of it raises again), or no folder can be written.
    """
    kernels = list(kernels)
    block_dim = 1 if device.is_cpu else 256
    with _LOCK:
        modules = list(dict.fromkeys(k.module for k in kernels))
        loaded = {m: m.execs.get((device.context, block_dim)) for m in modules}
        missing = [m for m in modules if loaded[m] is None and not cache.is_whole(_binary(m, device, block_dim))]
        for module in modules:
            if module in missing:
                short = module.name.split(".", 1)[-1]
                print(f"compiling {missing.index(module) + 1}/{len(missing)} {short}", file=sys.stderr, flush=True)
            own = [k for k in kernels if k.module is module]
            loaded[module] = _load(module, own, device, block_dim, name)
        return {k: loaded[k.module].get_kernel_hooks(k) for k in kernels}, list(loaded.values())


def kernel_hash(kernel: Any) -> str:
    """A hash of a kernel's source and of all functions that it calls, equal in every process."""
    kernel.module.get_module_hash(1)
    return kernel.module.hashers[1].kernel_hashes[kernel].hex()


def _binary(module: Any, device: Any, block_dim: int) -> Path:
    """Where the cache keeps a module, or will keep it."""
    module.get_module_hash(block_dim)
    name = module._get_compile_output_name(device, block_dim=block_dim)
    return cache.folder() / module.get_module_identifier(block_dim) / name


def _load(module: Any, kernels: list[Any], device: Any, block_dim: int, name: str) -> Any:
    if module.execs.get((device.context, block_dim)) is None and not cache.is_whole(_binary(module, device, block_dim)):
        cache.make_room()
        cache.discard(_binary(module, device, block_dim))
    try:
        return _complete(module, kernels, device, block_dim)
    except OSError as error:
        cache.use_temporary(str(error))
    except Exception as first:
        if (device.context, block_dim) in module.failed_builds:
            raise BridgeError(f"{name}: kernel module {module.name} does not compile: {first}") from first
        cache.discard(_binary(module, device, block_dim))
    module.failed_builds.pop((device.context, block_dim), None)
    module.unload()
    try:
        return _complete(module, kernels, device, block_dim)
    except Exception as second:
        raise BridgeError(f"{name}: kernel module {module.name} does not load on {device}: {second}") from second


def _complete(module: Any, kernels: list[Any], device: Any, block_dim: int) -> Any:
    """The loaded module, if its binary holds what it should: a damaged binary may load without its functions."""
    loaded = module.load(device, block_dim)
    for kernel in kernels:
        if loaded.get_kernel_hooks(kernel).forward is None:
            raise RuntimeError(f"kernel {kernel.key} is missing from the compiled module")
    cache.seal(_binary(module, device, block_dim))
    return loaded
