"""The house rules: a light import, a layered package, small files, a complete wheel."""

import ast
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import forget_files
from .pace import in_time

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OPTIONAL = set(PROJECT["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-module-level-imports"])

ROOMS = (
    ("errors", "tree", "math", "typing", "config", "units"),
    ("bridge", "testing"),
    ("distributed",),
    ("nn", "tensor", "optim", "losses", "metrics"),
    ("worlds", "implicit"),
    ("model",),
    ("rigid",),
    ("particles",),
    ("deformables",),
    ("coupling",),
    ("rollout", "control", "identify"),
    ("render",),
    ("scene",),
    ("loggers",),
    ("runs",),
    ("data", "train", "export"),
    ("envs",),
    ("rl",),
    ("",),  # fphys itself: its public names
    ("experiments",),
    ("oracle",),
    ("simulate", "page", "view", "live", "checking", "doctor", "bench"),
    ("cli",),
)
"""A room may import from itself and from rooms above it in this list."""


def python_files(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def imports(path: Path, tree: ast.AST | None = None) -> Iterator[tuple[str, bool]]:
    """Every module that a file imports, by absolute name, and whether the import is at the top level."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]

    def visit(node: ast.AST, top: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from ((alias.name, top) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = ".".join(package[: len(package) + 1 - child.level]) if child.level else ""
                full = ".".join(filter(None, (base, child.module)))
                yield from ((f"{full}.{alias.name}", top) for alias in child.names)
            elif isinstance(child, ast.Call) and ast.unparse(child.func).endswith("import_module"):
                if child.args and isinstance(child.args[0], ast.Constant):
                    yield (str(child.args[0].value), top)
                yield from visit(child, top)
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            else:
                yield from visit(
                    child, top and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
                )

    return visit(tree or ast.parse(path.read_text()), True)


def room(module: str) -> str:
    """``fphys.model.load`` -> ``model``. Public names such as ``fphys.load`` belong to fphys itself."""
    parts = module.split(".")
    known = {name for names in ROOMS for name in names}
    return parts[1] if len(parts) > 1 and parts[1] in known else ""


def violations(path: Path, tree: ast.AST | None = None) -> list[str]:
    """The imports of a file that break the rules."""
    name = path.relative_to(ROOT).as_posix()
    rank = {room: rank for rank, names in enumerate(ROOMS) for room in names}
    own = Path(name).with_suffix("").parts[1]
    found = []
    for module, top in imports(path, tree):
        package = module.split(".")[0]
        if name.startswith("kernels/"):
            if package not in ("warp", "kernels"):
                found.append(f"{name}: kernels import warp and each other, not {module}")
            continue
        if name in ("fphys/bench/engines.py", "fphys/oracle.py") and package in ("warp", "mujoco") and not top:
            continue  # other engines, which are compared with ours
        if package == "warp" and not name.startswith("fphys/bridge/"):
            found.append(f"{name}: only fphys/bridge/ imports warp")
        if package == "mujoco" and not name.startswith(("fphys/model/load.py", "fphys/render/")):
            found.append(f"{name}: only fphys/model/load.py and fphys/render/ import mujoco")
        if package in OPTIONAL and top:
            found.append(f"{name}: {package} is heavy or optional: import it in the function that needs it")
        if package == "fphys" and own != "__init__":
            if own not in rank:
                found.append(f"{name}: give the room {own!r} its place in ROOMS (tests/test_house.py)")
            elif rank[room(module)] > rank[own]:
                found.append(f"{name}: {module} comes later in ROOMS: arrows point one way")
    return found


def test_arrows_point_one_way():
    files = [path for path in python_files("fphys", "kernels") if "assets" not in path.parts[:-1]]
    assert len(files) > 10
    assert [fault for path in files for fault in violations(path)] == []


@pytest.mark.parametrize(
    ("file", "line", "fault"),
    [
        ("fphys/rigid/step.py", "import warp as wp", "only fphys/bridge/"),
        ("fphys/rigid/step.py", "def f():\n    from mujoco import mj_step", "only fphys/model/load.py"),
        ("fphys/runs.py", "try:\n    import matplotlib.pyplot\nexcept ImportError:\n    pass", "heavy or optional"),
        ("fphys/model/load.py", "import mujoco", "heavy or optional"),
        ("fphys/model/load.py", "from ..rigid.step import step", "one way"),
        ("fphys/model/load.py", "from .. import rigid", "one way"),
        ("fphys/model/load.py", "import fphys", "one way"),
        ("fphys/attic/old.py", "from ..errors import FphysError", "its place in ROOMS"),
        ("kernels/rigid/step.py", "import numpy as np", "kernels import warp"),
        ("kernels/rigid/step.py", "from fphys.tree import pytree", "kernels import warp"),
        ("kernels/step.py", "from ..fphys import tree", "kernels import warp"),
    ],
)
def test_a_wrong_import_is_found(file, line, fault):
    (found,) = violations(ROOT / file, ast.parse(line))
    assert fault in found


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("fphys/bridge/op.py", "import warp as wp"),
        ("fphys/model/load.py", "def load():\n    import mujoco"),
        ("fphys/rigid/step.py", "from ..model import Model\nfrom . import dynamics"),
        ("fphys/runs.py", "if TYPE_CHECKING:\n    import tqdm"),
        ("fphys/cli.py", "def f():\n    import tyro\n    import fphys"),
        ("kernels/rigid/step.py", "import warp as wp\nfrom .._precision import real\nfrom . import kinematics"),
    ],
)
def test_a_right_import_passes(file, line):
    assert violations(ROOT / file, ast.parse(line)) == []


@functools.cache
def modules() -> dict[str, Path]:
    """Every module of the project: ``fphys.rigid.step``, ``kernels.rigid.tree.dynamics``."""
    found = {}
    for path in python_files("fphys", "kernels"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if "assets" not in parts[:-1]:
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def kernel_names(tree: ast.AST) -> Iterator[str]:
    """The kernel modules that a file names: in ``kernels(dtype, "rigid.solve.newton")``, or in a table."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("kernels") and len(node.args) == 2:
            name = ast.unparse(node.args[1]).removeprefix("f").strip("'\"")
            yield "kernels." + name.partition("{")[0].rstrip(".")
        elif isinstance(node, ast.Constant) and f"kernels.{node.value}" in modules() and "." in str(node.value):
            yield f"kernels.{node.value}"


@functools.cache
def graph() -> dict[str, set[str]]:
    """What each module imports, in functions too, and which kernels it asks for by name."""
    files = modules()
    found: dict[str, set[str]] = {}
    for module, path in files.items():
        tree = ast.parse(path.read_text())
        names = {name.replace("fphys.kernels", "kernels") for name, _ in imports(path, tree)} | set(kernel_names(tree))
        known = set()
        for name in names:
            while name and name not in files:
                name = name.rpartition(".")[0]
            known.add(name)
        found[module] = known - {"", "kernels", module}
    return found


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Groups of modules that reach each other."""
    reached = {}
    for start in graph:
        seen, todo = set(), [start]
        while todo:
            for name in graph[todo.pop()] - seen:
                seen.add(name)
                todo.append(name)
        reached[start] = seen
    return [group for group in {frozenset(b for b in reached[a] if a in reached[b]) for a in graph} if group]


MUTUAL = {frozenset({"fphys.units.kinds", "fphys.units.quantity", "fphys.units.text"})}
"""A kind makes quantities, a quantity has a kind, and both are read from text."""


def test_no_import_goes_in_a_circle():
    assert set(circles(graph())) == MUTUAL
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [{"a", "b", "c"}]


KERNELS = {
    "rigid": {"rigid", "_precision"},
    "particles": {"particles", "_precision"},
    "deformables": {"deformables", "_precision"},
    "coupling": {"coupling"},
    "nn": {"lstm"},
    "bench": {"relu"},
}
"""The kernels that each room uses, also those that it asks for by name."""


def test_each_room_uses_its_own_kernels():
    found: dict[str, set[str]] = {}
    for name, used in graph().items():
        parts = {k.split(".")[1] for k in used if k.startswith("kernels.")}
        if parts and name.startswith("fphys."):
            found.setdefault(name.split(".")[1], set()).update(parts)
    assert found == KERNELS


PHYSICS = ("rigid", "particles", "deformables", "coupling", "control", "identify", "envs")


def rounded_products(tree: ast.AST) -> list[str]:
    """Products of matrices in XLA's own precision, which on a GPU is ten bits."""
    names = {f"jnp.{name}" for name in ("matmul", "dot", "vdot", "inner", "tensordot", "einsum")}
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) in names]
    products = [n for n in ast.walk(tree) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.MatMult)]
    return [ast.unparse(node) for node in [*calls, *products]]


def test_products_are_in_full_precision():
    """Physics multiplies matrices by ``fphys.math``: float32 has 24 bits on a GPU, too."""
    files = [path for room in PHYSICS for path in (ROOT / "fphys" / room).rglob("*.py")]
    assert {str(f): found for f in files if (found := rounded_products(ast.parse(f.read_text())))} == {}
    assert len(rounded_products(ast.parse("jnp.einsum('ij,j->i', a, b) + a @ b + matmul(a, b)"))) == 2


IMPORT = """
import sys, time
start = time.perf_counter()
import fphys
seconds = time.perf_counter() - start
print(seconds, *{name.split(".")[0] for name in sys.modules})
"""


@pytest.mark.alone
def test_import_is_light(tmp_path):
    fastest = float("inf")
    for _ in range(5):
        child = subprocess.run(
            [sys.executable, "-W", "error", "-c", IMPORT],
            env=os.environ | {"WARP_CACHE_PATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        seconds, *modules = child.stdout.split()
        assert child.stderr == ""
        assert OPTIONAL & set(modules) == set()
        fastest = min(fastest, float(seconds))
        if fastest <= 1.5:
            break
    assert in_time(fastest, 1.5)
    assert list(tmp_path.iterdir()) == []  # nothing was compiled


def test_no_file_is_long():
    lengths = {
        path: len(path.read_text().splitlines()) for path in python_files("fphys", "kernels", "tests", "benchmarks")
    }
    assert {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > 500} == {}


def test_units_stand_on_axes():
    """No title of a plot has one: it would be that of an axis without a label."""
    titled = re.compile(r"""title(?:=|\()f?"[^"{\n]*\[[^\]"\n]+\]""")
    drawing = [*python_files("fphys", "benchmarks"), *sorted((ROOT / "docs").glob("*.py"))]
    found = {str(path.relative_to(ROOT)): titled.findall(path.read_text()) for path in drawing}
    assert {name: titles for name, titles in found.items() if titles} == {}


def tracked() -> list[Path]:
    """The files of the repository, including those not yet added."""
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_path_of_a_machine():
    homes = rf"/(?:home|Users|root)/\w|{re.escape(str(ROOT))}\b"
    if len(ROOT.parts) > 2 and ROOT.parent.name != "tmp":
        homes += rf"|{re.escape(str(ROOT.parent))}/"
    pattern = re.compile(rf"(?<![\w./]){homes}".encode())
    files = tracked()
    assert ROOT / "pyproject.toml" in files
    assert [str(path.relative_to(ROOT)) for path in files if pattern.search(path.read_bytes())] == []


def test_project_is_complete():
    project = PROJECT["project"]
    assert project["requires-python"] == ">=3.11"
    assert set(project["optional-dependencies"]) >= {"cuda", "torch", "genesis", "onnx", "test", "docs"}
    assert "jax>=0.10,<0.12" in project["dependencies"]
    assert "torch==2.13.0" in project["optional-dependencies"]["torch"]
    assert project["scripts"]["fphys"] == "fphys.cli:main"
    apache = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == apache


def test_the_wheel_holds_everything(tmp_path):
    for name in ("fphys", "kernels"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    build = "import setuptools.build_meta as backend; backend.build_wheel('dist')"
    subprocess.run([sys.executable, "-c", build], cwd=tmp_path, check=True, capture_output=True, timeout=120)
    (wheel,) = (tmp_path / "dist").iterdir()
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    content = {
        path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*") if path.is_file()
    }
    source = {
        path.relative_to(ROOT).as_posix()
        for path in tracked()
        if path.relative_to(ROOT).parts[0] in ("fphys", "kernels")
    }
    assert source, "nothing is tracked"
    assert {f"fphys/{name}" if name.startswith("kernels/") else name for name in source} - content == set()
    assert not any("__pycache__" in name or name.startswith("tests") for name in content)
    child = subprocess.run(
        [sys.executable, "-c", "import fphys, fphys.kernels.rigid as k; print(fphys.__file__); print(k.__file__)"],
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
        cwd=tmp_path / "dist",
        capture_output=True,
        text=True,
        check=True,
    )
    assert child.stdout.splitlines() == [
        str(tmp_path / "site/fphys/__init__.py"),
        str(tmp_path / "site/fphys/kernels/rigid/__init__.py"),
    ]


def test_programs_that_were_read_are_kept(tmp_path: Path):
    """The oldest one is, if it was read last; and another session may delete files at the same time."""
    for number, read in enumerate((9, 1, 2)):
        (path := tmp_path / str(number)).write_bytes(bytes(10))
        os.utime(path, (read, number))
    (tmp_path / "gone").symlink_to("nowhere")
    forget_files(tmp_path, 20)
    assert {path.name for path in tmp_path.iterdir()} == {"0", "2", "gone"}
