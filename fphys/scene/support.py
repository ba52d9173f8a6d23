"""What back ends lack. A scene that needs it is refused when it is built; the error names everything at once."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from . import genesis_particles
from .genesis_particles import particulate
from .materials import FEM, PBD, SPH, Drain, Rigid
from .morphs import USD, Plane, Rope, Source, Terrain
from .sensors import Camera, Rays


def refuse(scene: Any, backend: str) -> None:
    """Raise UnsupportedError with everything that the back end lacks of what the scene needs."""
    faults = [*_common(scene), *_RULES[backend](scene)]
    if faults:
        listed = "\n".join(f"  {fault}" for fault in faults)
        raise UnsupportedError(f"the back end {backend!r} cannot simulate this scene:\n{listed}")


def _common(scene: Any) -> Iterator[str]:
    """Features that no back end simulates."""
    parts = particulate(scene)
    if len({part.material for part in parts if isinstance(part.material, SPH)}) > 1:
        yield "SPH of several substances: a scene has one fluid"
    for part in scene.parts if not parts else ():
        if isinstance(part.material, Drain):
            yield f"{part.name!r}, Drain: there are no particles that it could remove"


def flowing(scene: Any) -> list[Any]:
    """The sources and drains of a scene."""
    return [part for part in scene.parts if isinstance(part.morph, Source) or isinstance(part.material, Drain)]


def _natively(scene: Any) -> Iterator[str]:
    """What other back ends lack."""
    if len({type(part.material) for part in particulate(scene)}) > 1:
        yield "MPM and SPH in one scene: they would not feel each other; take one of the two"
    for part in deformable(scene):
        yield f"{part.name!r}, {type(part.material).__name__}: deformable things are simulated natively only"
    for part in flowing(scene):
        kind = type(part.morph if isinstance(part.morph, Source) else part.material).__name__
        yield f"{part.name!r}, {kind}: particles are born and removed natively only"


def deformable(scene: Any) -> list[Any]:
    """The things of a scene that deform."""
    return [part for part in scene.parts if isinstance(part.material, FEM | PBD)]


def movable(part: Any) -> bool:
    """Whether a rigid thing may move."""
    return isinstance(part.material, Rigid) and not (part.morph.fixed or isinstance(part.morph, Plane | Terrain))


def _native(scene: Any) -> Iterator[str]:
    parts = particulate(scene)
    if len({type(part.material) for part in parts}) > 1 and flowing(scene):
        yield "MPM and SPH in one scene with sources or drains: take one of the two"
    if not (ropes := [part.name for part in scene.parts if isinstance(part.morph, Rope)]):
        return
    for name in ropes if parts else ():
        yield f"{name!r}, Rope: it would not feel the particles, as it has no surface"
    for name, sensor in scene.sensors.items():
        if isinstance(sensor, Rays):
            yield f"{name!r}, Rays: they would not see the ropes, which have no surface"


def _genesis(scene: Any) -> Iterator[str]:
    yield from genesis_particles.faults(scene)
    yield from _natively(scene)
    for part in scene.parts:
        if isinstance(part.material, Rigid):
            if isinstance(part.morph, USD):
                yield f"{part.name!r}, USD: its meshes have no files, which Genesis reads; take the native back end"
            if not part.material.pushed:
                yield f"{part.name!r}, Rigid(pushed=False): particles push whatever moves"
            friction = 1.0 if part.material.friction is None else part.material.friction
            if not 0.01 <= np.min(friction) <= np.max(friction) <= 5.0:
                yield f"{part.name!r}, Rigid(friction={part.material.friction}): Genesis takes 0.01 to 5"
    for name, sensor in scene.sensors.items():
        if isinstance(sensor, Rays) and (particulate(scene) or deformable(scene)):
            yield f"{name!r}, Rays: they would not see the {'particles' if particulate(scene) else 'deformable things'}"
        if isinstance(sensor, Rays) and sensor.link is not None:
            yield (
                f"{name!r}, Rays on a link: Genesis's rays hit the link that they start from, and those that start "
                "beyond it miss what it rests on; link=None is possible"
            )


def _physx(scene: Any) -> Iterator[str]:
    """Contents of files are refused later, by ``physx_faults.py``."""
    for part in particulate(scene):
        yield f"{part.name!r}, {type(part.material).__name__}: PhysX's particles are for GPUs alone"
    yield from _natively(scene)
    for name, sensor in scene.sensors.items():
        if isinstance(sensor, Rays):
            yield f"{name!r}, Rays: ovphysx casts one ray a call, and its rays are to be removed"
        elif isinstance(sensor, Camera):
            yield f"{name!r}, Camera: ovphysx draws nothing"


_RULES = {"native": _native, "genesis": _genesis, "physx": _physx}
