"""What things of a scene are made of, and how they look."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import units
from ..deformables import fem, mesh, pbd
from ..deformables.arguments import vertex_numbers
from ..deformables.fem import Law
from ..errors import ModelError
from ..particles.arguments import kind_of
from ..particles.materials import Material
from ..particles.mpm_arguments import numbers_of
from .morphs import expect_bool


def _refusing(material: Any, field: str, check: Callable[[Any], Any], value: Any) -> Any:
    """What a solver's check returns; ModelError with its words."""
    try:
        return check(value)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{type(material).__name__}: {field}: {error}") from error


@dataclasses.dataclass(frozen=True)
class Rigid:
    """A body that does not deform. ``mass`` and ``friction`` are one number, or one for each world."""

    density: float | None = None  # [kg/m^3]; 1000 if neither density nor mass is given
    mass: float | tuple[float, ...] | None = None  # [kg], shape () or (num_worlds,); instead of a density
    friction: float | tuple[float, ...] | None = None  # sliding coefficient, shape () or (num_worlds,); default 1
    pushed: bool = True  # False: particles do not move it, but it moves them

    def __post_init__(self) -> None:
        units.settle(self, density=units.density, mass=units.mass, friction=())
        if self.density is not None and self.mass is not None:
            raise ModelError(f"Rigid: density {self.density} and mass {self.mass}: give one of the two")
        expect_bool(self, "pushed")
        for name in ("density", "mass", "friction"):
            value = getattr(self, name)
            if value is None:
                continue
            numbers = np.asarray(value, float)
            least = 0.0 if name == "friction" else np.finfo(float).tiny
            if numbers.ndim > 1 or not (np.isfinite(numbers).all() and (numbers >= least).all()):
                must = "not negative" if name == "friction" else "positive"
                raise ModelError(
                    f"Rigid: {name} is {value}, must be {must} and finite: a number, or one for each world"
                )
            object.__setattr__(self, name, tuple(numbers.tolist()) if numbers.ndim else float(numbers))


@dataclasses.dataclass(frozen=True)
class MPM:
    """Particles of the material point method, which fill the morph: elastic bodies, sand, snow, liquids."""

    law: Material  # of fphys.particles.materials: Corotated, NeoHookean, Liquid, Snow, Sand, MohrCoulomb or VonMises

    def __post_init__(self) -> None:
        if not isinstance(self.law, Material):
            raise ModelError(f"MPM: law is {kind_of(self.law)}, must be one of fphys.particles.materials")
        object.__setattr__(self, "law", units.bare(self.law, self.law.kinds, type(self.law).__name__))
        _refusing(self, "law", numbers_of, self.law)


@dataclasses.dataclass(frozen=True)
class SPH:
    """Particles of a weakly compressible fluid, which fill the morph."""

    sound_speed: float  # [m/s], about ten times the fastest flow
    density: float = 1000.0  # at rest [kg/m^3]
    viscosity: float = 0.0  # dynamic [Pa s]
    artificial: float = 0.05  # alpha of the artificial viscosity

    def __post_init__(self) -> None:
        kinds = {"sound_speed": units.velocity, "density": units.density, "viscosity": units.viscosity}
        units.settle(self, **kinds, artificial=())
        for name in (*kinds, "artificial"):
            value, positive = getattr(self, name), name in ("sound_speed", "density")
            if not (np.isfinite(value) and value >= (np.finfo(float).tiny if positive else 0.0)):
                must = "positive" if positive else "not negative"
                raise ModelError(f"SPH: {name} is {value}, must be {must} and finite")


@dataclasses.dataclass(frozen=True)
class FEM:
    """Finite elements: a body of the tetrahedra of a :class:`Mesh` file, or a sheet of its triangles or of Cloth."""

    law: Law  # of fphys.deformables.fem: NeoHookean, Corotated or StVenantKirchhoff
    damping: float = 0.0  # by mass [1/s]
    pinned: tuple[int, ...] = ()  # numbers of the vertices that stay where they begin
    thickness: float | None = None  # of a sheet [m]; sheets need it
    bending: float | None = None  # stiffness of a sheet [N m]; by default that of a plate of its material

    def __post_init__(self) -> None:
        units.settle(self, damping=units.frequency, thickness=units.length)
        if not isinstance(self.law, Law):
            raise ModelError(f"FEM: law is {kind_of(self.law)}, must be one of fphys.deformables.fem")
        object.__setattr__(self, "law", units.bare(self.law, self.law.kinds, type(self.law).__name__))
        object.__setattr__(self, "pinned", _refusing(self, "pinned", vertex_numbers, self.pinned))

    def params(self, body: mesh.Mesh, timestep: float, gravity: Any) -> fem.Params:
        """The solver's parameters for a mesh, with a time step [s] and gravity [m/s^2]."""
        given = body, self.law, timestep, gravity, self.damping, self.pinned
        return fem.Params(*given, thickness=self.thickness, bending=self.bending)


@dataclasses.dataclass(frozen=True)
class PBD:
    """Position-based dynamics: cloth, ropes, and soft bodies of the elements of a :class:`Mesh` file."""

    density: float  # [kg/m^2] of cloth, [kg/m] of ropes, [kg/m^3] of solids
    stretch: float = 0.0  # compliance of every edge [m/N]
    squeeze: float | None = None  # compliance of areas or volumes, see fphys.deformables.pbd
    bend: float | None = None  # bending stiffness of cloth [N m], of ropes [N m^2]
    damping: float = 0.0  # velocities decay by exp(-c t) [1/s]
    thickness: float = 0.005  # distance that vertices keep from rigid things [m]
    pinned: tuple[int, ...] = ()  # numbers of the vertices that stay where they begin
    substeps: int = 5

    def __post_init__(self) -> None:
        units.settle(self, damping=units.frequency, thickness=units.length)
        if not self.density > 0:
            raise ModelError(f"PBD: density is {self.density}, must be positive")
        object.__setattr__(self, "pinned", _refusing(self, "pinned", vertex_numbers, self.pinned))

    def params(self, body: mesh.Mesh, timestep: float, gravity: Any) -> pbd.Params:
        """The solver's parameters for a mesh, with a time step [s] and gravity [m/s^2]."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return pbd.Params(mesh=body, timestep=timestep, gravity=gravity, **own)


@dataclasses.dataclass(frozen=True)
class Drain:
    """Nothing: particles that come into the morph are removed. Bodies do not feel it."""


Substance = Rigid | MPM | SPH | FEM | PBD | Drain


@dataclasses.dataclass(frozen=True)
class Surface:
    """How a thing looks."""

    color: tuple[float, ...] = (0.6, 0.63, 0.67)  # red, green, blue, and opacity if it is not 1; each 0 to 1

    def __post_init__(self) -> None:
        units.settle(self, color=())
        values: Any = np.asarray(self.color, float)
        if values.shape not in ((3,), (4,)) or not ((values >= 0) & (values <= 1)).all():
            raise ModelError(f"Surface: color is {self.color}, must be 3 or 4 numbers from 0 to 1")

    @property
    def rgba(self) -> tuple[float, ...]:
        """Red, green, blue, opacity."""
        return (*map(float, self.color), 1.0)[:4]
