"""Scenes: one description that several engines simulate."""

import dataclasses
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from .. import units
from ..errors import ModelError
from .compose import Part, compose
from .materials import FEM, MPM, PBD, SPH, Drain, Rigid, Substance, Surface
from .morphs import MECHANISMS, Box, Capsule, Cloth, Cylinder, Mesh, Morph, Plane, Rope, Source, Sphere
from .sensors import Sensor
from .specs import ActionSpec
from .support import refuse

if TYPE_CHECKING:
    from . import genesis, native, physx

BACKENDS = ("native", "genesis", "physx")
FILLED = (Box, Sphere, Capsule, Cylinder, Source)
"""Morphs that particles can fill, or come from."""


@dataclasses.dataclass(frozen=True)
class Domain:
    """Where particles may be, and their resolution. Bodies do not feel its faces.

    MPM's grid has whole cells: edges that are not a multiple of two spacings are refused when a scene with MPM is
    built. A fluid of SPH has its faces where they are given; its layers of walls are spread evenly to fit.
    """

    lower: tuple[float, float, float]  # corner [m]
    upper: tuple[float, float, float]  # corner [m]
    spacing: float  # of particles at rest [m]; a cell of MPM's grid is two of them

    def __post_init__(self) -> None:
        units.settle(self, lower=units.length, upper=units.length, spacing=units.length)
        size = np.subtract(self.upper, self.lower)
        if size.shape != (3,) or not (self.spacing > 0 and (size > 4 * self.spacing).all() and np.isfinite(size).all()):
            raise ModelError(
                f"Domain: {self.lower} to {self.upper} at spacing {self.spacing}: every edge must be finite, "
                "and longer than four"
            )


class Scene:
    """The description of a scene: add things and sensors, then :meth:`build` a world on a back end.

    Args:
        timestep: of ``World.step`` [s].
        gravity: [m/s^2].
        domain: of the particles, if there are any.
        max_force: the largest force or torque that a control may ask for [N or N m]. A larger one is more often a
            mistake of units than a strong robot: it is refused if its value is known; under ``jit`` its world is held
            as for a NaN (status BADCTRL).

    All may be quantities (:mod:`fphys.units`), as may sizes, poses, masses, gains and controls.

    Raises:
        ModelError: a number is not finite, or the time step is not positive. UnitError: a quantity of another kind.
    """

    def __init__(
        self,
        timestep: float = 0.002,
        gravity: Sequence[float] = (0.0, 0.0, -9.81),
        domain: Domain | None = None,
        max_force: float = 1e6,
    ) -> None:
        timestep = units.si(timestep, units.duration, "timestep")
        gravity = units.si(gravity, units.acceleration, "gravity")
        max_force = units.si(max_force, (units.force, units.torque), "max_force")
        numbers = np.asarray(gravity, float)
        if numbers.shape != (3,) or not np.isfinite(numbers).all():
            raise ModelError(f"gravity is {gravity}, must be three numbers [m/s^2]")
        if not (np.isfinite(timestep) and timestep > 0):
            raise ModelError(f"timestep is {timestep}, must be positive [s]")
        if not max_force > 0:
            raise ModelError(f"max_force is {max_force}, must be positive [N or N m]")
        self.timestep, self.gravity, self.domain = float(timestep), tuple(numbers.tolist()), domain
        self.max_force = float(max_force)
        self.parts: list[Part] = []
        self.sensors: dict[str, Any] = {}

    def add(
        self, morph: Morph, material: Substance | None = None, surface: Surface | None = None, name: str | None = None
    ) -> str:
        """Add a thing.

        Args:
            morph: its shape and pose.
            material: what it is made of; by default :class:`Rigid`.
            surface: how it looks; for MJCF, URDF and USD the file defines it.
            name: of its body, and prefix of the names in a file; by default its kind, numbered if there are several.

        Returns:
            The name.

        Raises:
            ModelError: the name is taken, or the material does not fit the morph.
        """
        if not isinstance(morph, Morph):
            raise ModelError(f"morph is {type(morph).__name__}: it must be one of fphys.scene's, Box(...) say")
        kind = type(morph).__name__.lower()
        if name is None:
            used = sum(part.name.rstrip("0123456789") == kind for part in self.parts)
            name = f"{kind}{used + 1}" if used else kind
        self._require_free(name)
        material = Rigid() if material is None else material
        if not isinstance(material, Substance):
            raise ModelError(
                f"{name!r}: material is {type(material).__name__}, must be Rigid, MPM, SPH, FEM, PBD or Drain"
            )
        _expect_fit(name, morph, material)
        if isinstance(material, MPM | SPH):
            if not isinstance(morph, FILLED):
                kinds = ", ".join(f.__name__ for f in FILLED)
                raise ModelError(f"{name!r}: particles fill {kinds}, not {type(morph).__name__}")
            if self.domain is None:
                raise ModelError(
                    f"{name!r} is made of particles: Scene(domain=Domain(lower, upper, spacing)) is needed"
                )
        elif isinstance(material, Rigid) and isinstance(morph, MECHANISMS):
            for what, value in (("density", material.density), ("mass", material.mass), ("surface", surface)):
                if value is not None:
                    raise ModelError(f"{name!r}: the file of {type(morph).__name__} says its {what}: leave it out")
        self.parts.append(Part(name, morph, material, surface or Surface()))
        return name

    def add_sensor(self, sensor: Sensor, name: str | None = None) -> str:
        """Add a sensor of ``fphys.scene``.

        Returns:
            Its name, by default its kind, numbered if there are several.

        Raises:
            ModelError: the name is taken. A missing link is detected only when the scene is built.
        """
        if not isinstance(sensor, Sensor):
            raise ModelError(f"sensor is {type(sensor).__name__}: it must be one of fphys.scene's, IMU(...) say")
        kind = type(sensor).__name__.lower()
        if name is None:
            used = sum(other.rstrip("0123456789") == kind for other in self.sensors)
            name = f"{kind}{used + 1}" if used else kind
        self._require_free(name)
        self.sensors[name] = sensor
        return name

    @overload
    def build(
        self,
        num_worlds: int,
        backend: Literal["native"] = "native",
        action: ActionSpec | None = None,
        dtype: Any = None,
    ) -> "native.World": ...

    @overload
    def build(
        self, num_worlds: int, backend: Literal["genesis"], action: ActionSpec | None = None, dtype: Any = None
    ) -> "genesis.World": ...

    @overload
    def build(
        self, num_worlds: int, backend: Literal["physx"], action: ActionSpec | None = None, dtype: Any = None
    ) -> "physx.World": ...

    @overload
    def build(self, num_worlds: int, backend: str, action: ActionSpec | None = None, dtype: Any = None) -> Any: ...

    def build(
        self, num_worlds: int, backend: str = "native", action: ActionSpec | None = None, dtype: Any = None
    ) -> Any:
        """The world that simulates this scene. Later changes of the scene do not affect it.

        Args:
            num_worlds: number of copies.
            backend: "native", which is pure and differentiable, or "genesis" or "physx", which are neither.
            action: what controls mean; by default torques on all hinges and slides.
            dtype: as in :func:`fphys.load`; native only.

        Returns:
            :class:`World`, or of the other back ends :class:`fphys.scene.genesis.World` and
            :class:`fphys.scene.physx.World`, which have the same ``init``, ``step``, ``observe``, ``columns`` and
            ``check``.

        Raises:
            UnsupportedError: the back end lacks features of the scene; the error names all of them.
            ModelError: a name does not exist, a file is refused, or a number does not fit.
            MissingDependencyError: the back end's package is not installed.
        """
        if backend not in BACKENDS:
            raise ModelError(f"backend is {backend!r}, must be one of {', '.join(BACKENDS)}")
        if not isinstance(num_worlds, int) or num_worlds < 1:
            raise ModelError(f"num_worlds is {num_worlds!r}, must be a whole number, at least 1")
        for part in self.parts:
            for field in ("mass", "friction", "speed"):
                value = getattr(part.morph if field == "speed" else part.material, field, None)
                if isinstance(value, tuple) and len(value) != num_worlds:
                    raise ModelError(f"{part.name!r}: {field} has {len(value)} numbers, num_worlds is {num_worlds}")
        refuse(self, backend)
        spec = compose(self.parts, self.sensors, self.timestep, self.gravity)
        # each imports its engine
        engine = importlib.import_module(f".{backend}", __package__)
        return engine.build(self, spec, num_worlds, action or ActionSpec(), dtype)

    def _require_free(self, name: str) -> None:
        taken = {"world", *self.sensors, *(part.name for part in self.parts)}
        if not name or name in taken or "/" in name or ":" in name:
            raise ModelError(f"name {name!r} is taken, empty, or has a slash or colon, which divide names of parts")


def _expect_fit(name: str, morph: Morph, material: Substance) -> None:
    """Refuse rigid cloth, deformable boxes, and files that the material cannot be made from; ModelError."""
    kind, what = type(morph).__name__, type(material).__name__
    if isinstance(material, Drain) and not isinstance(morph, Plane | Box | Sphere | Capsule):
        raise ModelError(f"{name!r}: a Drain is a Plane, Box, Sphere or Capsule, not {kind}")
    if isinstance(morph, Source) and not isinstance(material, MPM | SPH):
        raise ModelError(f"{name!r}: out of a Source come particles, MPM(law) or SPH(...), not {what}")
    if isinstance(material, PBD) and not isinstance(morph, Cloth | Rope | Mesh):
        raise ModelError(f"{name!r}: PBD takes Cloth, Rope or Mesh, not {kind}")
    if isinstance(material, FEM) and not isinstance(morph, Cloth | Mesh):
        raise ModelError(f"{name!r}: FEM takes a Mesh of tetrahedra or triangles, or Cloth, not {kind}")
    if isinstance(material, FEM) and isinstance(morph, Cloth) and material.thickness is None:
        raise ModelError(f"{name!r}: Cloth of finite elements needs its thickness: FEM(law, thickness=...)")
    if isinstance(material, FEM | PBD) and morph.fixed:
        raise ModelError(f"{name!r}: fixed=True has no meaning for what deforms: say which vertices in {what}(pinned=)")
    if isinstance(morph, Cloth | Rope) and not isinstance(material, FEM | PBD):
        raise ModelError(f"{name!r}: {kind} is made of PBD(density, ...) or, if cloth, FEM(law, ...), not of {what}")
    if isinstance(material, Rigid) and isinstance(morph, Mesh) and Path(morph.file).suffix.lower() not in _RIGID:
        raise ModelError(f"{name!r}: Mesh: {morph.file} must end in .obj or .stl, the formats that rigid things have")


_RIGID = (".obj", ".stl")
