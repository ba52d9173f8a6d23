"""C++ headers of kernels: what changes a kernel's hash, by which its binary is found, and what does not."""

import importlib
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fphys.bridge.modules import kernel_hash

from .test_kernel_style import KERNELS

ROOM = KERNELS[0].parent
HEADERS = sorted(ROOM.rglob("*.h"))


def hash_of(folder: Path, name: str) -> str:
    """Of the kernel `move` in a copy of the kernels, loaded as the bridge does under a name of its own."""
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return kernel_hash(importlib.import_module(f"{name}.particles.grid").move)


@pytest.fixture
def copied(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return lambda name: shutil.copytree(ROOM, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))


@pytest.mark.parametrize(
    ("header", "new"),
    [("particles/native/grid.h", "u[a] = node[a] / node[3] - fall[a];"), ("native/warp.h", "// another remark\n")],
)
def test_a_changed_header_makes_another_kernel(copied, header, new):
    """Also one that is included; where the folder is does not matter."""
    hashes = [hash_of(copied(name), name) for name in ("here_f32", "there_f32")]
    file = copied("changed_f32") / header
    text = file.read_text()
    old = "u[a] = node[a] / node[3] + fall[a];" if "u[a]" in new else "using vec3i"
    assert text.count(old) == 1
    file.write_text(text.replace(old, new + ("" if "u[a]" in new else old)))
    changed = hash_of(file.parents[len(Path(header).parts) - 1], "changed_f32")
    assert hashes[0] == hashes[1] != changed


@pytest.mark.parametrize("path", HEADERS, ids=lambda path: str(path.relative_to(ROOM)))
def test_headers_are_read_once_and_by_an_editor(path):
    """An editor includes a file once; Warp, which gets no includes, needs each of them on a line of its own."""
    lines = path.read_text().splitlines()
    assert lines[0] == "#pragma once"
    assert len(lines) <= 500 and max(map(len, lines)) <= 120
    for line in lines:
        if line.startswith("#include"):
            assert (path.parent / line.split('"')[1]).is_file()


REPLAYED = """
import sys
import warp as wp
from fphys.bridge import kernels

for module in ("rigid.tree.articulated", "particles.keep", "particles.mpm"):
    found = kernels(sys.argv[1], module)
spread = kernels(sys.argv[1], "particles.spread").spread
print(spread.native_func, spread.custom_replay_func.native_func)
"""


def test_a_replay_has_its_functions_number():
    """Another function of the same name may be there first; Warp would number the two differently."""
    done = subprocess.run(
        [sys.executable, "-c", REPLAYED, "float32"], capture_output=True, text=True, timeout=300, check=True
    )
    name, replay = done.stdout.split()
    assert name != "spread_0" and replay == f"replay_{name}"


def test_kernels_name_replays_by_their_own_decorator():
    users = [path for path in ROOM.rglob("*.py") if "func_replay(" in path.read_text() and path.name != "_native.py"]
    assert len(users) >= 6 and not [path for path in users if "wp.func_replay(" in path.read_text()]
