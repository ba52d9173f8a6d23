"""``fphys doctor``: what is installed, what is missing, and how to get it."""

import importlib.metadata
import os
import platform
import time
from collections.abc import Callable, Iterator

from .errors import FphysError, install
from .runs import versions

GIVES = {
    "cuda": "NVIDIA GPUs",
    "torch": "PyTorch: gradients between JAX and torch (fphys.bridge.torch), weights for its modules",
    "genesis": "the Genesis engine: a back end of scenes, and gradients through it",
    "physx": "the PhysX engine: a back end of scenes",
    "onnx": "fphys.export: ONNX export and import, checked in its runtime",
    "ray": "actors on several machines that may come and go (fphys train --actors)",
    "test": "the test suite",
    "notebooks": "JupyterLab, and what the notebooks need in it",
    "docs": "the site (make docs)",
    "meshes": "files of meshes for deformables, files of particles, and more formats of meshes in URDFs",
    "suite": "tasks of DeepMind's control suite",
    "usd": "models from USD files (fphys.load of .usd, .usda, .usdc and .usdz)",
    "view": "fphys view: a model or a run in the browser",
    "browser": "a headless browser, with which make verify tests fphys view",
}
"""What each extra of the package adds."""

Row = tuple[str, str]


def report() -> Iterator[tuple[str, list[Row], bool]]:
    """Yield sections of title and rows, and whether that part of the core works."""
    for title, section in {
        "System": _system,
        "Versions": _versions,
        "Configuration": _configuration,
        "Devices": _devices,
        "Precision": _precision,
        "First step": _first_step,
        "Kernel cache": _kernel_cache,
        "Rendering": _rendering,
        "Extras": _extras,
    }.items():
        try:
            yield title, section(), True
        except Exception as error:  # report any error at all
            text = str(error) if isinstance(error, FphysError) else f"{type(error).__name__}: {error}"
            yield title, [("broken", text)], False


def main() -> int:
    """Print the report; 0 if the core works."""
    healthy = True
    for title, rows, works in report():
        healthy &= works
        print(title)
        width = max((len(name) for name, _ in rows), default=0)
        for name, text in rows:
            print(f"  {name:<{width}}  {text}")
        print(flush=True)
    print("The core works." if healthy else "Part of the core does not work: see `broken` above.")
    return 0 if healthy else 1


def _system() -> list[Row]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30 if hasattr(os, "sysconf") else None
    rows = [("system", f"{platform.system()} {platform.machine()}"), ("cpu", f"{os.cpu_count()} cores")]
    return rows + ([("memory", f"{memory:.1f} GiB")] if memory else [])


def _versions() -> list[Row]:
    return [(name, version or "not installed") for name, version in versions().items()]


def _configuration() -> list[Row]:
    from .config import FILE_VARIABLE, config_file, config_places, read_config

    path = config_file()
    if path is None:
        places = ", ".join(map(str, config_places()))
        return [("file", f"none: {FILE_VARIABLE} is not set, and there is no {places}")]
    settings = ", ".join(f"{key} = {value!r}" for key, value in read_config(path).items())
    return [("file", str(path)), ("says", settings or "nothing")]


def _devices() -> list[Row]:
    import jax

    from .config import describe, device_choice, use_device

    rows = [(describe(device).split()[0], device.device_kind) for device in jax.devices()]
    if all(name != "cpu" for name, _ in rows):
        rows.append(("cpu", "cpu"))
    chosen = use_device()
    return [
        *rows,
        ("in use", f"{describe(chosen)}, by {device_choice().source}"),
        ("change", "--device, FPHYS_DEVICE or fphys.toml"),
    ]


def _precision() -> list[Row]:
    import jax.numpy as jnp

    if jnp.zeros(()).dtype == jnp.float64:
        return [("float64", "on: models load in float64 unless dtype says otherwise")]
    return [("float32", "on: models load in float32"), ("float64", "off: JAX_ENABLE_X64=1 turns it on")]


def _first_step() -> list[Row]:
    """Time a jitted step through Warp kernels: the first call, which loads or builds kernels, and later ones."""
    import jax
    import jax.numpy as jnp

    import fphys

    model = fphys.load(fphys.asset("double-pendulum"))
    state = fphys.init(model, 1)
    ctrl = jnp.zeros((1, model.structure.nu), state.qpos.dtype)
    step = jax.jit(fphys.step)
    cold = _seconds(lambda: jax.block_until_ready(step(model, state, ctrl)))
    warm = sorted(_seconds(lambda: jax.block_until_ready(step(model, state, ctrl))) for _ in range(20))[10]
    return [("cold", f"{cold:.2f} s"), ("warm", f"{warm * 1e6:.0f} µs, double pendulum, one world")]


def _kernel_cache() -> list[Row]:
    from .bridge import cache
    from .bridge.start import start_warp

    start_warp()
    folder = cache.folder()
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    modules = sum(path.is_dir() for path in folder.iterdir()) if folder.is_dir() else 0
    size = sum(path.stat().st_size for path in files) / 2**20
    return [("folder", str(folder)), ("holds", f"{modules} modules, {size:.1f} MiB"), ("change", "WARP_CACHE_PATH")]


def _rendering() -> list[Row]:
    from .errors import MissingDependencyError
    from .render import canvas

    try:
        seconds = _seconds(lambda: canvas.gl_context(64, 64).free())
    except MissingDependencyError as error:
        return [("missing", str(error)), ("without it", "everything except images and videos works")]
    return [("OpenGL", f"{canvas.backend()}, {seconds:.2f} s to start")]


def _extras() -> list[Row]:
    names = importlib.metadata.metadata("fphys").get_all("Provides-Extra") or []
    rows = []
    for extra in names:
        absent = missing("fphys", extra)
        gives = GIVES.get(extra, "")
        fix = f"missing {', '.join(absent)}: {install(extra)}"
        rows.append((extra, f"{gives} — {fix}" if absent else f"{gives} — installed"))
    return rows


def missing(package: str, extra: str) -> list[str]:
    """Packages that an extra of an installed package needs and that are not installed, including nested extras."""
    from packaging.requirements import Requirement

    absent: list[str] = []
    for requirement in map(Requirement, importlib.metadata.requires(package) or []):
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}) or not marker.evaluate({"extra": extra}):
            continue
        try:
            importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            absent.append(requirement.name)
            continue
        for inner in sorted(requirement.extras):
            absent += missing(requirement.name, inner)
    return list(dict.fromkeys(absent))


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
