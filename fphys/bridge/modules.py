"""Compiling and loading kernel modules: with progress, and with a second try when the cache is broken."""

import os
import shutil
import sys
import threading
from collections.abc import Iterable
from typing import Any

import warp as wp

from ..errors import BridgeError
from .start import start_warp

_LOCK = threading.RLock()


def load(kernels: Iterable[Any], device: Any, name: str) -> tuple[dict[Any, Any], list[Any]]:
    """Load the modules of ``kernels`` on ``device``; returns each kernel's hooks, and what keeps their code loaded.

    A module that gains a kernel later is compiled anew, and Warp unloads the old code once nobody holds it.

    Modules that are not in Warp's cache are compiled, with ``compiling i/n`` on standard error. A
    cached binary that does not load (a write cut short, a full disk) is removed and built once more.

    Raises:
        BridgeError: if a module does not compile; every later launch of it raises again.
    """
    kernels = list(kernels)
    block_dim = 1 if device.is_cpu else 256
    with _LOCK:
        modules = list(dict.fromkeys(k.module for k in kernels))
        loaded = {m: m.execs.get((device.context, block_dim)) for m in modules}
        missing = [m for m in modules if loaded[m] is None and not _cached(m, device, block_dim)]
        for module in modules:
            if module in missing:
                short = module.name.split(".", 1)[-1]
                print(f"compiling {missing.index(module) + 1}/{len(missing)} {short}", file=sys.stderr, flush=True)
            own = [k for k in kernels if k.module is module]
            loaded[module] = _load(module, own, device, block_dim, name)
        return {k: loaded[k.module].get_kernel_hooks(k) for k in kernels}, list(loaded.values())


def cache_folder() -> str:
    """Where compiled kernels are kept; each is named by its content and compiled once."""
    start_warp()
    return str(wp.config.kernel_cache_dir)


def _folder(module: Any, block_dim: int) -> str:
    return os.path.join(str(wp.config.kernel_cache_dir), module.get_module_identifier(block_dim))


def _cached(module: Any, device: Any, block_dim: int) -> bool:
    module.get_module_hash(block_dim)
    return os.path.exists(
        os.path.join(_folder(module, block_dim), module._get_compile_output_name(device, block_dim=block_dim))
    )


def _load(module: Any, kernels: list[Any], device: Any, block_dim: int, name: str) -> Any:
    try:
        return _complete(module, kernels, device, block_dim)
    except Exception as first:
        if (device.context, block_dim) in module.failed_builds:
            raise BridgeError(f"{name}: kernel module {module.name} does not compile: {first}") from first
        shutil.rmtree(_folder(module, block_dim), ignore_errors=True)
        module.unload()
        try:
            return _complete(module, kernels, device, block_dim)
        except Exception as second:
            raise BridgeError(f"{name}: kernel module {module.name} does not load on {device}: {second}") from second


def _complete(module: Any, kernels: list[Any], device: Any, block_dim: int) -> Any:
    """The loaded module, if its binary holds what it should: a damaged one may load without its functions."""
    loaded = module.load(device, block_dim)
    for kernel in kernels:
        if loaded.get_kernel_hooks(kernel).forward is None:
            raise RuntimeError(f"kernel {kernel.key} is missing from the compiled module")
    return loaded
