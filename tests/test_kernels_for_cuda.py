"""Kernels compile for a GPU. Warp's wheel contains the compiler, so this needs no GPU."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import warp as wp

from fphys.bridge import ahead, cache, kernels
from fphys.bridge.precision import PACKAGES

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="Warp for macOS has no compiler for GPUs")
ARCH = 90
QUICK = [("float32", "particles.grid"), ("float64", "relu")]
CASES = [(dtype, name) for name in ahead.names() for dtype in PACKAGES]
STACK = 16 << 10
"""Most bytes of stack. The driver reserves it for each of some 270,000 threads of an H100: 4.3 GB of its 80."""
DEEP: dict[str, int] = {}
"""Kernels that need more, and how much."""


@pytest.mark.parametrize(
    ("dtype", "name"), [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in CASES]
)
def test_kernels_compile_for_cuda(dtype: str, name: str, tmp_path: Path):
    """To machine code for compute capability 9.0, with adjoints. Native code has its own branch there."""
    binary = ahead.build(dtype, name, ARCH, tmp_path)
    found = ahead.resources(binary)
    own = [k for k in vars(kernels(dtype, name)).values() if isinstance(k, wp.Kernel) and not k.is_generic]
    for kernel in (k for k in own if k.module.name.endswith(name)):
        directions = ["forward", "backward"] if kernel.options.get("enable_backward", True) else ["forward"]
        for direction in directions:
            (entry,) = (n for n in found if n.startswith(f"{kernel.key}_") and n.endswith(f"_{direction}"))
            assert 0 < found[entry].registers <= 255
            assert found[entry].stack <= DEEP.get(kernel.key, STACK), f"{entry}: {found[entry]}"


def test_a_process_elsewhere_takes_the_binaries(tmp_path: Path):
    """They lie where the bridge of a GPU looks for them, under the names that it asks for, and sealed."""
    binary = ahead.build("float64", "relu", ARCH, tmp_path)
    (module,) = {k.module for k in vars(kernels(np.float64, "relu")).values() if isinstance(k, wp.Kernel)}

    class Device:
        is_cpu, context, alias, arch = False, 1, "cuda:0", ARCH
        get_cuda_output_format = staticmethod(lambda preferred: wp.config.cuda_output)
        get_cuda_compile_arch = staticmethod(lambda: ARCH)
        _get_cuda_arch_suffix = staticmethod(lambda arch: "")

    wanted = f"{module.get_module_identifier(256)}/{module._get_compile_output_name(Device(), block_dim=256)}"
    assert binary == tmp_path / wp.config.version / wanted
    assert cache.is_whole(binary) and cache._checksum_file(binary).exists()
    assert (binary.parent / module._get_meta_name(256)).exists()


def test_the_command_compiles_what_it_is_asked_for(tmp_path: Path):
    command = [sys.executable, "-m", "fphys.bridge.ahead", str(ARCH), str(tmp_path), "relu", "--processes", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.startswith("2 files in") and "bytes of stack" in done.stdout
    assert len(list(tmp_path.rglob("*.cubin"))) == 2 and not list(tmp_path.rglob("*.cu"))
