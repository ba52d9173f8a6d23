"""One kernel folder, two precisions: the dtype of the arrays decides which copy runs."""

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

import numpy as np

PACKAGES = {"float32": "fphys_kernels_f32", "float64": "fphys_kernels_f64"}


def kernels(dtype: Any, name: str) -> ModuleType:
    """Load a module of ``fphys.kernels`` in the precision of ``dtype``.

    Args:
        dtype: ``float32`` or ``float64``; anything with a NumPy dtype.
        name: dotted name inside ``fphys.kernels``, such as ``"rigid.tree.kinematics"``.

    The folder is loaded under one package name per precision; ``kernels/_precision.py`` derives
    ``real`` and its vectors from that name, so both live in one process, each with its own caches.

    Raises:
        TypeError: if ``dtype`` is neither ``float32`` nor ``float64``.
    """
    package = PACKAGES.get(np.dtype(dtype).name)
    if package is None:
        raise TypeError(
            f"kernels run in float32 or float64, got {np.dtype(dtype).name}: cast the arrays to one of these"
        )
    if package not in sys.modules:
        origin = importlib.util.find_spec("fphys.kernels")
        if origin is None or not origin.submodule_search_locations:
            raise ImportError("fphys.kernels is not installed: install the project with pip")
        folder = next(iter(origin.submodule_search_locations))
        spec = importlib.util.spec_from_file_location(
            package, f"{folder}/__init__.py", submodule_search_locations=[folder]
        )
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[package] = module
        spec.loader.exec_module(module)
    return importlib.import_module(f"{package}.{name}")
