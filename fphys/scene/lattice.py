"""Square lattices of points that fill shapes: the initial positions of a scene's particles."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ..errors import ModelError
from ..math import rotate
from .morphs import Box, Capsule, Cylinder, Source, Sphere


def placed(morph: Any, spacing: float) -> np.ndarray:
    """Points of a square lattice that lie inside a morph [m], world axes, shape (particle, 3); a source's room."""
    if isinstance(morph, Source):
        return np.tile(morph.pos, (morph.most, 1))
    counts = np.maximum(np.round(2 * _half(morph) / spacing).astype(int), 1)
    points = grid(counts, np.full(3, spacing))
    return turned(morph.quat, points[_inside(morph, points)]) + np.asarray(morph.pos)


def filled(part: Any, domain: Any) -> np.ndarray:
    """The points of a thing of particles in a domain, as :func:`placed`; ModelError if one is outside of it."""
    points = placed(part.morph, domain.spacing)
    if not isinstance(part.morph, Source):
        expect_inside(part.name, points, domain)
    return points


def expect_inside(name: str, points: np.ndarray, domain: Any) -> None:
    """Refuse particles outside a domain; ModelError by the thing's name."""
    slack = 1e-3 * domain.spacing  # for rounding
    outside = ((points < np.subtract(domain.lower, slack)) | (points > np.add(domain.upper, slack))).any(1)
    if outside.any():
        raise ModelError(
            f"{name!r}: {outside.sum()} of its {len(points)} particles are outside the Domain, the first at "
            f"{points[outside][0].round(6).tolist()} m: the Domain is {domain.lower} to {domain.upper}, enlarge it or "
            "move the thing"
        )


def grid(counts: np.ndarray, spacing: np.ndarray) -> np.ndarray:
    """Points about the origin, with the given count and spacing [m] along each axis, shape (point, 3)."""
    axes = [(np.arange(n) + 0.5 - n / 2) * step for n, step in zip(counts, spacing, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)


def turned(quat: Any, points: np.ndarray) -> np.ndarray:
    """Points rotated by an orientation, shape (point, 3)."""
    many = jnp.broadcast_to(jnp.asarray(quat, float), (len(points), 4))
    return np.asarray(rotate(many, jnp.asarray(points, float)), float)


def _half(morph: Any) -> np.ndarray:
    match morph:
        case Box(size=size):
            return np.asarray(size) / 2
        case Sphere(radius=r):
            return np.full(3, r)
        case Cylinder(radius=r, length=length):
            return np.array([r, r, length / 2])
        case Capsule(radius=r, length=length):
            return np.array([r, r, length / 2 + r])
    raise AssertionError(morph)


def _inside(morph: Any, points: np.ndarray) -> np.ndarray:
    across = np.hypot(points[:, 0], points[:, 1])
    match morph:
        case Sphere(radius=r):
            return np.linalg.norm(points, axis=1) <= r
        case Cylinder(radius=r):
            return across <= r
        case Capsule(radius=r, length=length):
            return np.hypot(across, np.maximum(np.abs(points[:, 2]) - length / 2, 0)) <= r
    return np.ones(len(points), bool)
