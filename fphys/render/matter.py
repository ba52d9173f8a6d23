"""Particles in images: water and soft bodies by their surface, sand grain by grain. mujoco draws the triangles."""

import dataclasses
from typing import Any

import numpy as np

from ..errors import MissingDependencyError
from .flex import PALETTE

SMOOTH, SHARP = 0.9, 0.55  # standard deviations of two filters, in spacings: for the bulk, and for drops
LEVEL = 0.4  # of the density inside, where the surface is
DROPS = 2.0  # what the density of drops counts, so that one particle reaches the level anywhere in its cell
FINENESS = 0.5  # edge of the density's grid, in spacings
MARGIN = 6  # cells of that grid beyond the last particle
Mesh = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class Surface:
    """Particles as one smooth surface, for :func:`fphys.render.frames`.

    It is where the particles' density falls to two fifths of that inside, by marching cubes (Lorensen and Cline 1987)
    of scikit-image. The density is smoothed by a wide Gaussian; drops, which it would lose, by a narrow one.
    """

    x: Any  # Positions [m], shape (time, world, particle, 3); those that are not finite are left out.
    spacing: float  # Between particles at rest [m].
    color: tuple[float, ...] = PALETTE[0]  # Red, green, blue, and opacity if it is not 1; each 0 to 1.
    shine: float = 0.6  # Strength of highlights, 0 to 1.
    drops: bool = True  # Whether to show particles on their own; a body that stays whole is smoother without.

    def path(self, world: int, every: int = 1) -> np.ndarray:
        """One world's particles [m], shape (time, particle, 3).

        Raises:
            ValueError: a shape or number does not fit, or no first position is finite.
        """
        x = _path(self.x, self.spacing, "spacing", world, every)
        if not np.isfinite(x[0]).any():
            raise ValueError(f"no first position of the particles in world {world} is finite: nothing can be drawn")
        return x

    def triangles(self, x: np.ndarray) -> Mesh:
        """Corners [m] and normals of the surface of particles at one time, both (triangle, 3, 3).

        Args:
            x: positions [m], shape (particle, 3); those that are not finite are left out.

        Raises:
            MissingDependencyError: scikit-image is not installed.
        """
        try:
            from scipy.ndimage import gaussian_filter
            from skimage.measure import marching_cubes
        except ImportError as cause:
            raise MissingDependencyError("surfaces need scikit-image: pip install scikit-image") from cause
        x = x[np.isfinite(x).all(-1)]
        none = np.zeros((0, 3, 3), np.float32)
        if not len(x):
            return none, none
        edge = FINENESS * self.spacing
        lower = x.min(0) - MARGIN * edge
        density = _density((x - lower) / edge, np.ceil(np.ptp(x, axis=0) / edge).astype(int) + 2 * MARGIN + 1)
        density = (density / FINENESS**3).astype(np.float32)
        wide = gaussian_filter(density, SMOOTH / FINENESS, mode="constant", truncate=3.0)
        if self.drops:
            narrow = DROPS * gaussian_filter(density, SHARP / FINENESS, mode="constant", truncate=3.0)
            wide = np.maximum(wide, narrow * np.clip(3 * (1 - wide / LEVEL), 0, 1))  # none in the bulk
        if not wide.max() > LEVEL:
            return none, none
        corners, faces, normals, _ = marching_cubes(wide, LEVEL)
        place = (lower + edge * corners).astype(np.float32)
        return place[faces[:, ::-1]], normals.astype(np.float32)[faces[:, ::-1]]


@dataclasses.dataclass(frozen=True, eq=False)
class Grains:
    """Particles one by one, as small crystals that lie in all directions, for :func:`fphys.render.frames`."""

    x: Any  # Positions [m], shape (time, world, particle, 3); those that are not finite are left out.
    radius: float  # [m]
    color: tuple[float, ...] = (0.86, 0.72, 0.48)  # Red, green, blue, and opacity if it is not 1; each 0 to 1.
    shine: float = 0.1  # Strength of highlights, 0 to 1.

    def path(self, world: int, every: int = 1) -> np.ndarray:
        """One world's particles [m], shape (time, particle, 3). Raises ValueError: a shape or number does not fit."""
        return _path(self.x, self.radius, "radius", world, every)

    def triangles(self, x: np.ndarray) -> Mesh:
        """Corners [m] and normals of octahedra at one time, both (triangle, 3, 3). Each keeps its direction.

        Args:
            x: positions [m], shape (particle, 3); those that are not finite are left out.
        """
        directions = np.random.default_rng(0).normal(size=(len(x), 3, 3))
        axes = np.linalg.qr(directions)[0].astype(np.float32)
        there = np.isfinite(x).all(-1)
        x, axes = x[there].astype(np.float32), axes[there]
        ends = np.stack([axes, -axes], 2)  # (grain, axis, sign, 3)
        signs = np.array([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)])
        right = np.linalg.det(axes) > 0
        corners = ends[:, [0, 1, 2], signs]  # (grain, 8, 3, 3)
        odd = (signs.sum(1) % 2 == 0)[None] ^ right[:, None]  # seen from outside, corners run counterclockwise
        corners = np.where(odd[..., None, None], corners[:, :, ::-1], corners).reshape(-1, 3, 3)
        flat = corners.mean(1, keepdims=True) * np.float32(3**0.5)
        return np.repeat(x, 8, 0)[:, None] + np.float32(self.radius) * corners, (corners + flat) / 2


def _path(x: Any, size: float, name: str, world: int, every: int) -> np.ndarray:
    x = np.asarray(x)
    if x.ndim != 4 or x.shape[3] != 3 or 0 in x.shape:
        raise ValueError(f"x of particles has shape {x.shape}, must be (time, world, particle, 3)")
    if not 0 < size < np.inf:
        raise ValueError(f"{name} is {size}, must be a positive number [m]")
    if not 0 <= world < x.shape[1]:
        raise ValueError(f"world is {world}, the particles have worlds 0 to {x.shape[1] - 1}")
    return x[::every, world]


def _density(x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Particles per cell of a grid: each is spread over the eight nodes around it, linearly."""
    base = np.floor(x).astype(int)
    share = x - base
    total = np.zeros(int(np.prod(shape)))
    for corner in np.ndindex(2, 2, 2):
        weight = np.where(corner, share, 1 - share).prod(-1)
        total += np.bincount(np.ravel_multi_index(tuple((base + corner).T), tuple(shape)), weight, len(total))
    return total.reshape(shape)
