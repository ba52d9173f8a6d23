"""Where particles begin: points that fill a box, a ball or a closed mesh, on a lattice or as blue noise. Host only.

Points stand for equal volumes, spacing^dim each: pass that as ``volume`` to :func:`fphys.particles.mpm.init`, and the
spacing to :class:`fphys.particles.sph.Params`. A lattice has one row of points half a spacing from a box's faces. Blue
noise has as many points, none close together and no rows: one at random in each cube, then some sweeps of Lloyd's
relaxation, each of which moves every point to the middle of what is nearer to it than to any other.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .. import units
from ..errors import MissingDependencyError, install

__all__ = ["ball", "box", "mesh"]

Array = np.ndarray

FINE = 4
"""Test points along each edge of a point's own cube, on which blue noise is relaxed."""

SWEEPS = 6
"""Of Lloyd's relaxation: enough to part points that begin close together; many more would order them in rows."""


def box(lower: Any, upper: Any, spacing: Any, seed: int | None = None) -> Array:
    """Points in a box, in two dimensions a rectangle.

    Args:
        lower, upper: corners [m], shape (dim,).
        spacing: of the lattice, or the edge of the cube that each point stands for [m].
        seed: None for the lattice, whose rows come as close to the upper faces as whole spacings do; a number for blue
            noise, the same for the same seed.

    Returns:
        Positions [m], float64, shape (n, dim).

    Raises:
        ValueError: the box is empty, the spacing is not positive, or larger than the box. UnitError: a quantity.
    """
    lower, upper, spacing = _corners(lower, upper, spacing)
    if seed is None:
        return _lattice(lower, upper, spacing)
    return _blue(lambda x: np.ones(len(x), bool), lower, upper, spacing, seed)


def ball(centre: Any, radius: Any, spacing: Any, seed: int | None = None) -> Array:
    """Points in a ball, in two dimensions a disk; as :func:`box`. The lattice is symmetric about the centre [m]."""
    centre = np.asarray(units.si(centre, units.length, "centre"), float)
    radius = float(units.si(radius, units.length, "radius"))
    lower, upper, spacing = _corners(centre - radius, centre + radius, spacing)

    def inside(x: Array) -> Array:
        return ((x - centre) ** 2).sum(1) <= radius**2

    if seed is None:
        reach = spacing * np.ceil(radius / spacing)
        return _those(inside, _lattice(centre - reach, centre + reach, spacing))
    return _blue(inside, lower, upper, spacing, seed)


def mesh(surface: Any, spacing: Any, seed: int | None = None) -> Array:
    """Points inside a closed surface in space; as :func:`box`.

    Args:
        surface: a file that trimesh reads (.stl, .obj, .ply, .off), in metres, or an object with ``vertices`` (n, 3)
            [m] and ``faces`` (m, 3), such as ``trimesh.Trimesh``. A point is inside where the surface winds around it
            (Jacobson et al. 2013), so that faces that cross do no harm.

    Raises:
        MissingDependencyError: trimesh is not installed, and a file is given. FileNotFoundError: there is no such file.
        ValueError: the surface is open; or nothing is inside: it is inside out, or the spacing is too large.
    """
    if isinstance(surface, str | Path):
        surface = _read(Path(surface))
    corners = np.asarray(surface.vertices, float)[np.asarray(surface.faces)]
    _expect_closed(corners)
    lower, upper, spacing = _corners(corners.min((0, 1)), corners.max((0, 1)), spacing)

    def inside(x: Array) -> Array:
        return _winding(x, corners) > 0.5

    points = _lattice(lower, upper, spacing) if seed is None else _blue(inside, lower, upper, spacing, seed)
    return _those(inside, points) if seed is None else points


def _corners(lower: Any, upper: Any, spacing: Any) -> tuple[Array, Array, float]:
    lower, upper = (np.asarray(units.si(x, units.length, "corner"), float) for x in (lower, upper))
    spacing = float(units.si(spacing, units.length, "spacing"))
    if lower.shape != upper.shape or lower.shape not in ((2,), (3,)):
        raise ValueError(f"corners have shapes {lower.shape} and {upper.shape}: give two or three numbers for each")
    if not (spacing > 0 and np.isfinite(spacing)):
        raise ValueError(f"spacing is {spacing} m: it must be positive and finite")
    if not (np.isfinite(upper - lower).all() and (upper - lower >= 0.5 * spacing).all()):
        raise ValueError(f"from {lower} to {upper} m there is no room for particles {spacing} m apart")
    return lower, upper, spacing


def _lattice(lower: Array, upper: Array, spacing: float) -> Array:
    """Centres of cubes from the lower corner on, as many as fit best."""
    count = np.maximum(np.round((upper - lower) / spacing), 1).astype(int)
    axes = [low + spacing * (np.arange(n) + 0.5) for low, n in zip(lower, count, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))


def _those(inside: Callable[[Array], Array], points: Array) -> Array:
    """The points that are inside; ValueError if there is none."""
    found = points[inside(points)]
    if not len(found):
        raise ValueError("no particle is inside: the surface is inside out, or the spacing is too large")
    return found


def _expect_closed(corners: Array) -> None:
    """Refuse triangles (m, 3, 3) unless as many go along each edge one way as the other; ValueError."""
    places, number = np.unique(corners.reshape(-1, 3), axis=0, return_inverse=True)
    start = number.reshape(-1, 3)
    ends = np.stack([start, np.roll(start, -1, 1)], -1).reshape(-1, 2)
    edges, of = np.unique(np.sort(ends, 1), axis=0, return_inverse=True)
    ways = np.bincount(of.reshape(-1), np.sign(ends[:, 1] - ends[:, 0]), len(edges))
    if len(found := edges[ways != 0]):
        a, b = places[found[0]]
        raise ValueError(
            f"the surface is open: {len(found)} edges lack a triangle on one side, or one winds the wrong way; the "
            f"first is from {a} to {b} m. Close it, for example by trimesh.repair.fill_holes and fix_normals"
        )


def _blue(inside: Callable[[Array], Array], lower: Array, upper: Array, spacing: float, seed: int) -> Array:
    """Points relaxed on a fine lattice of the shape; each keeps the mean of the fine points nearest to it."""
    from scipy.spatial import KDTree

    if not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed is {seed!r}: give a whole number that is not negative, or None for the lattice")
    rng, fine = np.random.default_rng(seed), spacing / FINE
    tests = _those(inside, _lattice(lower, upper, fine))
    tests = tests + fine * rng.uniform(-0.5, 0.5, tests.shape)  # else points lock into the fine lattice
    cube = np.floor((tests - lower) / spacing).astype(int)
    order = np.lexsort(cube.T[::-1])  # cube by cube, of which each begins with one point: even over long distances
    starts = np.linspace(0, len(tests), max(1, round(len(tests) / FINE ** len(lower))) + 1)
    picked = rng.uniform(starts[:-1], starts[1:]).astype(int)
    points = tests[order[picked]]
    for _ in range(SWEEPS):
        nearest = KDTree(points).query(tests)[1]
        size = np.bincount(nearest, minlength=len(points))[:, None]
        total = np.stack([np.bincount(nearest, tests[:, a], len(points)) for a in range(len(lower))], 1)
        points = np.where(size > 0, total / np.maximum(size, 1), points)
    return _those(inside, points)


def _winding(x: Array, corners: Array) -> Array:
    """How often a surface of triangles (m, 3, 3) winds around points: the sum of solid angles over 4 pi."""
    found = np.zeros(len(x))
    chunk = max(1, 2_000_000 // len(corners))
    for first in range(0, len(x), chunk):
        a, b, c = np.moveaxis(corners[None] - x[first : first + chunk, None, None], 2, 0)
        p, q, r = (np.linalg.norm(v, axis=-1) for v in (a, b, c))
        volume = (a * np.cross(b, c)).sum(-1)
        below = p * q * r + (a * b).sum(-1) * r + (b * c).sum(-1) * p + (c * a).sum(-1) * q
        found[first : first + chunk] = np.arctan2(volume, below).sum(1) / (2 * np.pi)
    return found


def _read(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    try:
        import trimesh
    except ImportError as error:
        raise MissingDependencyError(f"{path}: {error.name} reads this file: {install('meshes')}") from error
    return trimesh.load(path, force="mesh")
