"""Kernels compile for a GPU. Warp's wheel contains the compiler, so this needs no GPU."""

import sys

import numpy as np
import pytest
import warp as wp

from fphys.bridge import kernels

from .test_kernel_style import KERNELS

ROOM = KERNELS[0].parent
NAMES = [".".join(path.relative_to(ROOM).with_suffix("").parts) for path in KERNELS if "@wp.kernel" in path.read_text()]
pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="Warp for macOS has no compiler for GPUs")
QUICK = ["particles.grid", "relu"]


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in NAMES])
def test_kernels_compile_for_cuda(name: str, tmp_path):
    """For compute capability 8.0, with adjoints. Native code has its own branch there."""
    found = [k for k in vars(kernels(np.float32, name)).values() if isinstance(k, wp.Kernel)]
    for module in {kernel.module for kernel in found if not kernel.is_generic}:
        (path,) = wp.compile_aot_module(module, arch=80, use_ptx=True, module_dir=tmp_path)
        text = path.read_text()
        assert all(f".entry {kernel.key}" in text for kernel in found if kernel.module is module)
