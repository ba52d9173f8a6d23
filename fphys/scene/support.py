"""What back ends lack. A scene that asks for it is refused when it is built, with everything named at once."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from .materials import MPM, SPH, Rigid
from .morphs import Plane, Terrain
from .sensors import Camera, Rays

LACKS: dict[str, dict[type, str]] = {
    "native": {
        SPH: "the walls of a fluid do not move with bodies yet; fphys.particles.sph has fluids by themselves",
    },
    "genesis": {
        MPM: "particles are not passed on to Genesis yet",
        SPH: "particles are not passed on to Genesis yet",
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
    if not any(isinstance(part.material, MPM) for part in scene.parts):
        return
    for part in scene.parts:
        if movable(part) and part.material.pushed:
            yield (
                f"{part.name!r} moves and particles would push it, which needs coupling both ways; say "
                "Rigid(pushed=False) if they need not, or fix it"
            )
    for name, sensor in scene.sensors.items():
        if isinstance(sensor, Camera | Rays):
            yield f"{name!r}, {type(sensor).__name__}: it would not see the particles"


def _genesis(scene: Any) -> Iterator[str]:
    for part in scene.parts:
        if isinstance(part.material, Rigid):
            if not part.material.pushed:
                yield f"{part.name!r}, Rigid(pushed=False): particles push whatever moves"
            friction = 1.0 if part.material.friction is None else part.material.friction
            if not 0.01 <= np.min(friction) <= np.max(friction) <= 5.0:
                yield f"{part.name!r}, Rigid(friction={part.material.friction}): Genesis takes 0.01 to 5"
    for name, sensor in scene.sensors.items():
        if isinstance(sensor, Rays) and sensor.link is not None:
            yield f"{name!r}, Rays on a link: Genesis's rays hit the link that they start from; link=None is possible"


_RULES = {"native": _native, "genesis": _genesis}
