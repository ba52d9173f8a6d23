"""Morphs: the shape of a thing of a scene, and its initial pose."""

import dataclasses
import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from .. import units
from ..errors import ModelError

Vector = tuple[float, ...]


def expect_bool(thing: Any, name: str) -> None:
    """Refuse a flag that is neither True nor False, such as "no", which would be true; ModelError."""
    if not isinstance(value := getattr(thing, name), bool | np.bool_):
        raise ModelError(f"{type(thing).__name__}: {name} is {value!r}, must be True or False")


def whole(thing: Any, name: str, value: Any) -> int:
    """A whole number of at least one; ModelError."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ModelError(f"{type(thing).__name__}: {name} is {value!r}, must be a whole number, at least 1")
    return int(value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Morph:
    """Base of all morphs: a pose in the world, and whether the thing is fixed there. Lengths may be quantities."""

    pos: Vector = (0.0, 0.0, 0.0)  # Position of its origin [m].
    quat: Vector = (1.0, 0.0, 0.0, 0.0)  # Orientation (w, x, y, z), of any length.
    fixed: bool = False  # Whether it is fixed to the world.

    lengths: ClassVar[tuple[str, ...]] = ()  # fields that must be positive

    def __post_init__(self) -> None:
        units.settle(self, pos=units.length, quat=(), **dict.fromkeys(self.lengths, units.length))
        expect_bool(self, "fixed")
        for name, size in (("pos", 3), ("quat", 4)):
            value = np.asarray(getattr(self, name), float)
            if value.shape != (size,) or not np.isfinite(value).all():
                raise ModelError(f"{type(self).__name__}: {name} is {getattr(self, name)}, must be {size} numbers")
            object.__setattr__(self, name, tuple(value.tolist()))
        if not any(self.quat):
            raise ModelError(f"{type(self).__name__}: quat is zero, must be an orientation (w, x, y, z)")
        object.__setattr__(self, "quat", tuple((np.array(self.quat) / np.linalg.norm(self.quat)).tolist()))
        for name in self.lengths:
            value = np.asarray(getattr(self, name), float)
            if not (np.isfinite(value).all() and (value > 0).all()):
                raise ModelError(f"{type(self).__name__}: {name} is {getattr(self, name)}, must be positive, in metres")


@dataclasses.dataclass(frozen=True)
class Plane(Morph):
    """The ground: an infinite plane whose normal is its own z axis. Never moves."""


@dataclasses.dataclass(frozen=True)
class Box(Morph):
    """A box with three edge lengths."""

    size: Vector  # Whole edges [m], (3,).

    lengths = ("size",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if np.shape(self.size) != (3,):
            raise ModelError(f"Box: size is {self.size}, must be three edges [m]")
        object.__setattr__(self, "size", tuple(map(float, self.size)))


@dataclasses.dataclass(frozen=True)
class Sphere(Morph):
    """A ball."""

    radius: float  # [m]

    lengths = ("radius",)


@dataclasses.dataclass(frozen=True)
class Capsule(Morph):
    """A cylinder along its own z axis with half balls at its ends."""

    radius: float  # [m]
    length: float  # Of the cylinder, without the half balls [m].

    lengths = ("radius", "length")


@dataclasses.dataclass(frozen=True)
class Cylinder(Morph):
    """A cylinder along its own z axis."""

    radius: float  # [m]
    length: float  # [m]

    lengths = ("radius", "length")


@dataclasses.dataclass(frozen=True)
class Mesh(Morph):
    """A triangle mesh from an OBJ or STL file; if it is rigid it collides as its convex hull. What deforms may also be
    from a .msh, .vtk or .vtu file, with tetrahedra."""

    file: str | Path
    scale: float = 1.0  # metres per unit of the file

    lengths = ("scale",)

    def __post_init__(self) -> None:
        super().__post_init__()
        path = Path(self.file)
        if path.suffix.lower() not in (".obj", ".stl", ".msh", ".vtk", ".vtu"):
            raise ModelError(
                f"Mesh: {self.file} must end in .obj or .stl, the formats that are read; what deforms also in .msh, "
                ".vtk or .vtu"
            )
        if not path.is_file():
            raise ModelError(f"Mesh: there is no file {self.file}")


@dataclasses.dataclass(frozen=True)
class Cloth(Morph):
    """A flat rectangle of cloth, as ``mesh.cloth`` makes it: its middle at ``pos``, its normal along its own z axis."""

    size: tuple[float, float]  # Whole edges [m].
    cells: tuple[int, int]  # Along a row, and rows.

    lengths = ("size",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if np.shape(self.size) != (2,) or np.shape(self.cells) != (2,):
            raise ModelError(f"Cloth: size is {self.size}, cells {self.cells}: give two edges [m] and two numbers")
        object.__setattr__(self, "cells", tuple(whole(self, "cells", n) for n in self.cells))


@dataclasses.dataclass(frozen=True)
class Rope(Morph):
    """A straight rope along its own x axis, its middle at ``pos``."""

    length: float  # [m]
    cells: int  # Edges that it is made of.

    lengths = ("length",)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "cells", whole(self, "cells", self.cells))


@dataclasses.dataclass(frozen=True)
class Source(Morph):
    """A round opening across its own z axis, out of which particles flow along it. It holds nothing. Its material is of
    particles; :mod:`fphys.particles.flow` says when a layer enters."""

    radius: float  # [m]
    speed: float | tuple[float, ...]  # of the particles as they enter [m/s], shape () or (num_worlds,)
    most: int  # particles of it that there is room for at once
    start: float = 0.0  # [s]
    stop: float = math.inf  # [s]

    lengths = ("radius",)

    def __post_init__(self) -> None:
        super().__post_init__()
        units.settle(self, speed=units.velocity, start=units.duration, stop=units.duration)
        speed = np.asarray(self.speed, float)
        if speed.ndim > 1 or not (np.isfinite(speed).all() and (speed >= 0).all()):
            raise ModelError(f"Source: speed is {self.speed}, must not be negative: a number, or one for each world")
        object.__setattr__(self, "speed", tuple(speed.tolist()) if speed.ndim else float(speed))
        object.__setattr__(self, "most", whole(self, "most", self.most))
        if not self.start < self.stop:
            raise ModelError(f"Source: it starts at {self.start} s and stops at {self.stop} s: start must come first")


@dataclasses.dataclass(frozen=True)
class MJCF(Morph):
    """A mechanism from an MJCF file or its text. The file says which bodies move; ``fixed`` has no meaning."""

    source: Any  # path, XML text or mujoco.MjSpec
    root: str | Path | None = None  # folder that its meshes and includes may lie in besides its own


@dataclasses.dataclass(frozen=True)
class URDF(Morph):
    """A mechanism from a URDF file or its text; its base is fixed unless ``fixed=False``."""

    source: Any  # path or XML text
    root: str | Path | None = None  # folder that its meshes may lie in besides its own
    fixed: bool = dataclasses.field(default=True, kw_only=True)


@dataclasses.dataclass(frozen=True)
class USD(Morph):
    """A mechanism from a USD file. The file says which bodies move; ``fixed`` has no meaning."""

    source: str | Path
    root: str | Path | None = None  # folder that its layers may lie in besides its own


@dataclasses.dataclass(frozen=True)
class Terrain(Morph):
    """A terrain of heights on a square grid; ``pos`` is its corner with the least x and y. Never moves."""

    heights: Any = dataclasses.field(compare=False)  # [m], shape (nx, ny)
    spacing: float  # between heights [m]

    lengths = ("spacing",)

    def __post_init__(self) -> None:
        super().__post_init__()
        units.settle(self, heights=units.length)
        heights = np.asarray(self.heights, float)
        if heights.ndim != 2 or min(heights.shape) < 2 or not np.isfinite(heights).all():
            raise ModelError(f"Terrain: heights have shape {heights.shape}, must be (nx, ny), at least 2 x 2, finite")


SHAPES = (Plane, Box, Sphere, Capsule, Cylinder, Mesh, Terrain)
"""Morphs that are one body with one shape."""

MECHANISMS = (MJCF, URDF, USD)
"""Morphs whose file defines their bodies."""
