"""What back ends lack. A scene that asks for it is refused when it is built, with everything named at once."""

from collections.abc import Iterator
from typing import Any

from ..errors import UnsupportedError
from .materials import MPM, SPH, Rigid
from .morphs import Plane, Terrain

LACKS: dict[str, dict[type, str]] = {
    "native": {
        Terrain: "contacts with height fields are not simulated",
        MPM: "particles are not simulated here yet",
        SPH: "particles are not simulated here yet",
    },
}
"""Of each back end, the morphs, materials and sensors that it lacks, and why."""


def refuse(scene: Any, backend: str) -> None:
    """Raise UnsupportedError with all that a back end lacks of what a scene asks for."""
    faults = [*_kinds(scene, backend), *_RULES[backend](scene)]
    if faults:
        listed = "\n".join(f"  {fault}" for fault in faults)
        raise UnsupportedError(f"the back end {backend!r} cannot simulate this scene:\n{listed}")


def _kinds(scene: Any, backend: str) -> Iterator[str]:
    lacks = LACKS[backend]
    for part in scene.parts:
        for what in (part.morph, part.material):
            if type(what) in lacks:
                yield f"{part.name!r}, {type(what).__name__}: {lacks[type(what)]}"
    for name, sensor in scene.sensors.items():
        if type(sensor) in lacks:
            yield f"{name!r}, {type(sensor).__name__}: {lacks[type(sensor)]}"


def movable(part: Any) -> bool:
    """Whether a rigid thing may move."""
    return isinstance(part.material, Rigid) and not (part.morph.fixed or isinstance(part.morph, Plane | Terrain))


def _native(scene: Any) -> Iterator[str]:
    kinds = {kind for kind in (MPM, SPH) for part in scene.parts if isinstance(part.material, kind)}
    if len(kinds) == 2:
        yield "MPM and SPH together: they would push one another, and nothing couples them"
    if kinds:
        for part in scene.parts:
            if movable(part) and part.material.pushed:
                yield (
                    f"{part.name!r} moves and particles would push it, which needs coupling both ways: say "
                    "Rigid(pushed=False) if they need not, or fix it"
                )


_RULES = {"native": _native}
