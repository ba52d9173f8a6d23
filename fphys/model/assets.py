"""The models and recordings that come with fphys; ``docs/assets.md`` gives the source of their figures."""

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from ..errors import ModelError


def asset(name: str) -> str:
    """Path of one of our own models, for :func:`fphys.load`: ``asset("franka")``."""
    return _find("model", name, _room().glob("*.xml"), _room().glob("*.urdf"))


def recording(name: str) -> str:
    """Path of one of our own recorded motions, a CSV file: ``recording("double-pendulum")``."""
    return _find("recording", name, (_room() / "recordings").glob("*.csv"))


def trained(name: str) -> str:
    """Path of one of our own trained policies, for :func:`fphys.rl.load_policy`: ``trained("ant")``."""
    return _find("policy", name, (_room() / "policies").glob("*.safetensors"))


def _room() -> Path:
    return Path(str(files("fphys") / "assets"))


def _find(kind: str, name: str, *globs: Iterable[Path]) -> str:
    found = {path.stem: str(path) for paths in globs for path in paths}
    if name not in found:
        raise ModelError(f"no {kind} called {name!r} comes with fphys: choose one of {', '.join(sorted(found))}")
    return found[name]
