"""Kernels compile for a GPU. Warp's wheel contains the compiler, so this needs no GPU."""

import multiprocessing
import os
import re
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
"""Files whose kernels need more, and how much."""


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
            (entry,) = (n for n in found if re.fullmatch(rf"{kernel.key}_[0-9a-f]+_cuda_kernel_{direction}", n))
            assert 0 < found[entry].registers <= 255
            assert found[entry].stack <= DEEP.get(name, STACK), f"{entry}: {found[entry]}"


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
    """A row for each file, its time and its size."""
    done = command(tmp_path, "relu")
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()
    assert rows[0].split() == ["seconds", "KiB", "stack", "registers", "file"]
    assert {row.split()[-2] for row in rows[1:3]} == set(PACKAGES) and rows[3].startswith("2 of 2 files in")
    assert len(list(tmp_path.rglob("*.cubin"))) == 2 and not list(tmp_path.rglob("*.cu"))


def test_the_command_fails_for_a_file_that_takes_too_long(tmp_path: Path):
    """It is named in the first rows, the others are compiled, and nothing is removed."""
    (older := tmp_path / wp.config.version / "wp_fphys_kernels_f32.relu_0000000").mkdir(parents=True)
    done = command(tmp_path, "relu", "--limit", "0.01")
    assert done.returncode == 1 and older.exists()
    assert done.stdout.splitlines()[1].endswith("relu not compiled in 0 s")
    assert "2 files of kernels are not compiled" in done.stderr


def test_who_stops_ends_the_compilers(tmp_path: Path):
    """As Ctrl-C does: what runs is ended, and what waits does not begin."""
    built = ahead.build_all(ARCH, tmp_path, ["relu", "rigid.solve.newton"])
    assert next(built).binary is not None
    built.close()
    assert not list(tmp_path.rglob("*newton*")) and not multiprocessing.active_children()


def test_a_compiler_that_dies_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ahead, "_tell", os.abort)  # it takes no arguments: an error that nothing catches
    (one, _) = ahead.build_all(ARCH, tmp_path, ["relu"])
    assert one.binary is None and "exit code 1;" in one.fault


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fphys.bridge.ahead", str(ARCH), str(folder), *arguments, "--processes", "1"]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
