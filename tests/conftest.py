"""Strict numerics for every test, and which tests can run on this machine.

``FPHYS_FULL=1`` runs the full sizes, compiled as users' programs are. Otherwise XLA compiles quickly, and once: workers
and the processes that they start share what it has compiled with each other and with the next run. With
``FPHYS_BARE=1``, tests that need a package which is not installed are skipped; otherwise a missing package is a
failure.
"""

import ast
import contextlib
import gc
import hashlib
import importlib.util
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .memory import forget_programs, forget_traces

os.environ.setdefault("NPROC", "32")  # XLA's threads: host callbacks must never wait for a free one
os.environ.setdefault("MUJOCO_GL", "egl")
DEVICES = " --xla_force_host_platform_device_count=2"
FULL = bool(os.environ.get("FPHYS_FULL"))
# Half of the time to compile is MLIR's, for fusions; a fifth is LLVM's optimisations. Kernels of the physics are Warp's
# and always optimised.
QUICK = (
    " --xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)
LARGE = 0.25  # share of the machine's memory that a worker may have
MOST = 2 << 30  # bytes of compiled programs that are kept from run to run
BARE = bool(os.environ.get("FPHYS_BARE"))
RARELY, USUALLY = 50_000, gc.get_threshold()  # when Python collects garbage
LEFT_OUT: dict[str, str] = {}


def pytest_configure(config: pytest.Config) -> None:
    cpu = config.getoption("markexpr") != "gpu" or bool(os.environ.get("FPHYS_STAND_IN"))
    if cpu:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    quick = QUICK if cpu and not FULL else ""  # XLA generates no unoptimised code for a GPU
    flags = (os.environ.get("XLA_FLAGS", "") + quick + DEVICES).split()
    # Each once: a worker inherits them, and JAX would keep programs of repeated flags apart.
    os.environ["XLA_FLAGS"] = "".join(f" {flag}" for flag in dict.fromkeys(flags))
    if quick:
        share_programs(programs(), trim=not hasattr(config, "workerinput"))
    gc.set_threshold(RARELY)  # by default 700: the garbage of traces took an eighth of the time
    import hypothesis
    import jax

    slow = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}  # a busy machine is no fault
    hypothesis.settings.register_profile("fphys", hypothesis.settings(), **slow)
    hypothesis.settings.load_profile("fphys")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_numpy_rank_promotion", "raise")
    jax.config.update("jax_numpy_dtype_promotion", "strict")


def programs() -> Path:
    """The user's folder of compiled programs of a kind of processor, for all checkouts, as Warp keeps kernels."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else [platform.processor()]
    kind = next((line for line in lines if line.startswith(("flags", "Features"))), lines[0])
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "fphys" / "tests" / hashlib.sha256(kind.encode()).hexdigest()[:16]


def share_programs(folder: Path, trim: bool) -> None:
    """Let JAX keep compiled programs in a folder, or nowhere if it cannot be written.

    Their names are hashes of program, options and versions. A program names the launches in it by a hash of these.
    """
    import jax

    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        return
    if trim:
        forget_files(folder, MOST)
    settings = {"jax_compilation_cache_dir": str(folder), "jax_persistent_cache_min_compile_time_secs": 0.0}
    for name, value in settings.items():  # JAX may be imported already, by the conftest.py of a folder
        os.environ[name.upper()] = str(value)
        jax.config.update(name, value)


def forget_files(folder: Path, most: int) -> None:
    """Delete files, longest unread first, until a folder has ``most`` bytes. Another session may do so, too.

    The system notes when a file was read, at least once a day; every run reads the programs that it needs.
    """
    found: list[tuple[float, int, Path]] = []
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            at = path.stat()
            found.append((max(at.st_atime, at.st_mtime), at.st_size, path))
    total = 0
    for _, size, path in sorted(found, reverse=True):
        total += size
        if total > most:
            path.unlink(missing_ok=True)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    if not BARE or collection_path.suffix != ".py":
        return None
    needed = missing(imported(collection_path))
    if needed:
        LEFT_OUT[collection_path.name] = needed[0]
    return True if needed else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") and not FULL:
            item.add_marker(pytest.mark.skip(reason="full size: make verify"))
        if item.get_closest_marker("browser") and not FULL and missing(["PyQt6"]):
            item.add_marker(pytest.mark.skip(reason="needs a browser: make .venv/browser.stamp"))
        for mark in item.iter_markers("extra"):
            if BARE and (needed := missing(mark.args)):
                item.add_marker(pytest.mark.skip(reason=f"bare environment: needs {needed[0]}"))
        if item.get_closest_marker("gpu") and not (has_gpu() or os.environ.get("FPHYS_STAND_IN")):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, package in sorted(LEFT_OUT.items()):
        terminalreporter.write_line(f"left out of the bare environment: {name} needs {package}")


def imported(path: Path) -> list[str]:
    """Packages that a file imports at its top level."""
    found: list[str] = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append(node.module)
    return found


def missing(packages: "list[str] | tuple[str, ...]") -> list[str]:
    """The packages that are not installed."""
    return [name for name in packages if importlib.util.find_spec(name.split(".")[0]) is None]


def has_gpu() -> bool:
    import jax

    return any(device.platform == "gpu" for device in jax.devices())


@pytest.fixture(scope="session")
def full() -> bool:
    """Whether the sizes are those of ``make verify``."""
    return FULL


@pytest.fixture(autouse=True, scope="module")
def bounded_memory() -> Iterator[None]:
    """Compiled programs stay until a process ends: a worker that has grown large forgets them between two files."""
    yield
    forget_programs(above=LARGE)


@pytest.fixture(scope="module")
def old_objects_stay() -> Iterator[None]:
    """For tests that collect garbage often: among new objects alone, for a worker has millions of old ones."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def usual_garbage() -> Iterator[None]:
    """For tests of what users wait for: garbage is collected as often as in their processes."""
    gc.set_threshold(*USUALLY)
    yield
    gc.set_threshold(RARELY)


@pytest.fixture
def environment() -> dict[str, str]:
    """That of a user's process, which has one device."""
    return os.environ | {"XLA_FLAGS": os.environ["XLA_FLAGS"].replace(DEVICES, "")}


@pytest.fixture
def x32() -> Iterator[None]:
    """JAX with float64 off, as users find it."""
    import jax

    with jax.enable_x64(False):
        yield


@pytest.fixture
def monkeypatch(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """What is replaced in the library acts at once, and no longer than the test: its programs are traced anew."""
    replace, replaced = monkeypatch.setattr, list[bool]()

    def setattr_(target: Any, *args: Any, **options: Any) -> None:
        replace(target, *args, **options)
        names = (target, getattr(target, "__name__", ""), getattr(target, "__module__", ""))
        if any(isinstance(name, str) and name.startswith("fphys") for name in names):
            replaced.append(True)
            forget_traces()

    monkeypatch.setattr = setattr_  # type: ignore[method-assign]
    yield monkeypatch
    monkeypatch.undo()
    if replaced:
        forget_traces()


@pytest.fixture
def fresh_traces() -> Iterator[None]:
    """For tests that replace a part of the library: JAX would otherwise reuse the trace of a step."""
    import jax

    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.fixture
def compiled_anew() -> Iterator[None]:
    """For tests of what compiling takes: nothing comes from the programs that are kept."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    yield
    jax.config.update("jax_compilation_cache_dir", folder)
    compilation_cache.reset_cache()
