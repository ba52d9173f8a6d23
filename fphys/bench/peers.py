"""``fphys bench --peers``: fphys compared with other libraries, in one run on one machine.

The rigid engines are in :mod:`.engines`; torch is compared in training. Libraries that are not installed are listed.
"""

import contextlib
import functools
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from ..bridge.workers import num_threads
from ..errors import install
from . import engines
from .case import Case, Workload
from .environments import environment_peers
from .measure import Result
from .physx import physx
from .training import training_cases

ENGINES: dict[str, tuple[str, Callable[..., Workload]]] = {
    "mujoco_warp": ("mujoco_warp", engines.mujoco_warp),
    "newton": ("newton", engines.newton),
    "mjx": ("mujoco.mjx", engines.mjx),
    "genesis": ("genesis", engines.genesis),
    "physx": ("ovphysx", physx),
    "gymnasium": ("gymnasium", engines.gymnasium),
}
"""Peers besides MuJoCo in C, which is always there: their package and workload, by name."""

OURS = ("fphys", "pure", "vector")
"""How the names of our own cases begin that are compared with something."""

ABSENT = {
    "gymnasium": "pip install gymnasium; all engines run its models",
    "mujoco_warp": "pip install mujoco-warp==4.0.0",
    "mujoco.mjx": "pip install --no-deps mujoco-mjx==3.17.0 etils scipy; its dependencies would bring an older mujoco",
    "newton": "pip install --no-deps newton==1.8.0, with mujoco-warp; its [sim] extra would bring an older mujoco",
    "genesis": install("genesis"),
    "ovphysx": install("physx"),
    "torch": install("torch"),
    "envpool": 'pip install --no-deps envpool "envpool-assets<0.4" optree',
    "brax": "pip install --no-deps brax jaxopt ml_collections mujoco-mjx; its dependencies would bring an older mujoco",
}
"""Peers, and how to install them."""


def installed(package: str) -> bool:
    """Whether a package can be found for import."""
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def absent() -> dict[str, str]:
    """The peers that are not installed, and how to install them."""
    return {name: how for name, how in ABSENT.items() if not installed(name)}


def peer_cases() -> list[Case]:
    """The cases of installed peers, with ours first in each group."""
    with contextlib.suppress(ImportError):  # torch.compile needs it imported before a peer imports distutils
        importlib.import_module("setuptools")
    rigid = [case for name in ("ant", "humanoid") for kind in ("euler", "shipped") for case in _rigid(name, kind)]
    return [
        *(rigid if installed("gymnasium") else []),
        *_rigid("franka", "shipped", (1024,)),
        *training_cases(),
        *environment_peers(),
    ]


def _rigid(name: str, integrator: str, sizes: tuple[int, ...] = (64, 1024, 8192)) -> list[Case]:
    base, peers = f"{name}.{integrator}", dict(ENGINES)
    if name == "franka":
        del peers["gymnasium"], peers["mjx"]  # Gymnasium has no Franka; MJX takes 25 s for ten steps of 64 worlds
    if integrator != "euler" and name != "franka":
        del peers["physx"]  # its integrator is its own: once is enough

    def case(engine: str, setup: Any) -> Case:
        setup, beside = functools.partial(setup, name, integrator), None if engine == "fphys" else f"{base}.fphys"
        some = sizes[:1] if engine == "mjx" else sizes  # with two threads, XLA hangs in MJX at 1,024 worlds
        return Case(f"{base}.{engine}", setup, engines.STEPS, worlds=some, relative_to=beside, tags=(name, engine))

    found = [case("fphys", engines.ours), case("fphys_grad", engines.ours_gradient)]
    for count in sorted({1, num_threads()}):
        setup = functools.partial(engines.mujoco_c, count=count)
        found.append(case(f"mujoco_{count}_threads" if count > 1 else "mujoco_1_thread", setup))
    return found + [case(peer, setup) for peer, (package, setup) in peers.items() if installed(package)]


def verdict(results: Sequence[Result]) -> dict[str, Any]:
    """By case and number of worlds, a peer's time as a multiple of ours: where fphys leads and where it follows."""
    found: dict[str, dict[str, Any]] = {"leads": {}, "follows": {}}
    for result in results:
        peer = result.case.rpartition(".")[2]
        if result.ratio is not None and not peer.startswith(OURS):
            found["leads" if result.ratio > 1 else "follows"][f"{result.case}, {result.worlds:,}"] = result.ratio
    return {"fphys": found, "absent": absent()}


def summary(results: Sequence[Result]) -> str:
    """The verdict as text."""
    found = verdict(results)
    lines = []
    for word, text in (("leads", "fphys is faster than"), ("follows", "fphys is slower than")):
        for case, ratio in sorted(found["fphys"][word].items(), key=lambda item: -abs(item[1] - 1)):
            lines.append(f"{text} {case} worlds: {max(ratio, 1 / ratio):.2f} times")
    lines += [f"left out: {name} is not installed ({how})" for name, how in found["absent"].items()]
    return "\n".join(lines)
