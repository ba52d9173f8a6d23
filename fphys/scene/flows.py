"""Sources and drains of a scene, as :mod:`fphys.particles.flow` takes them."""

import warnings
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..particles import boundary, flow
from .lattice import expect_inside, turned
from .materials import Drain
from .morphs import Box, Capsule, Plane, Source, Sphere

ASLANT = 0.1
"""A face is behind an opening if the cosine of the angle between their normals is larger than this."""


def sources(
    parts: Sequence[Any], ends: Sequence[int], domain: Any, real: Any, behind: float = 0.0
) -> tuple[flow.Source, ...]:
    """The sources among things of particles; a warning names those with less room behind them than they need.

    Args:
        parts: each of the material with its number.
        ends: one past the last slot of each.
        behind: the room that is needed between a face of the domain and an opening that it is behind [m].

    Raises:
        ModelError: an opening is not inside the domain.
    """
    found, spacing = [], domain.spacing
    for number, (part, first, end) in enumerate(zip(parts, [0, *ends], ends, strict=False)):
        morph = part.morph
        if not isinstance(morph, Source):
            continue
        (normal,) = turned(morph.quat, np.array([[0.0, 0.0, 1.0]]))
        points = flow.opening(morph.pos, normal, morph.radius, spacing)
        expect_inside(part.name, points, domain)
        gaps = np.where(normal > 0, points - domain.lower, np.subtract(domain.upper, points)).min(0)
        if (gaps[np.abs(normal) > ASLANT] < behind * (1 - 1e-6)).any():
            warnings.warn(
                f"{part.name!r}: the face of the domain behind this opening of MPM is nearer than {behind:g} m, and "
                "would hold back what flows: move the opening or the face",
                UserWarning,
                stacklevel=6,
            )
        velocity = np.multiply.outer(np.asarray(morph.speed), normal)
        found.append(
            flow.Source(
                jnp.asarray(points, real),
                jnp.asarray(velocity, real),
                jnp.asarray(spacing, real),
                jnp.asarray(morph.start, real),
                jnp.asarray(morph.stop, real),
                material=number,
                slots=(int(first), int(end)),
            )
        )
    return tuple(found)


def drains(scene: Any, real: Any) -> tuple[boundary.Collider, ...]:
    """The drains of a scene."""
    return tuple(_shape(part.morph, real) for part in scene.parts if isinstance(part.material, Drain))


def _shape(morph: Any, real: Any) -> boundary.Collider:
    at, turn = (jnp.asarray(a, real) for a in (morph.pos, morph.quat))
    match morph:
        case Plane():
            return boundary.plane(at, jnp.asarray(turned(morph.quat, np.array([[0.0, 0.0, 1.0]]))[0], real))
        case Sphere(radius=radius):
            return boundary.sphere(at, radius)
        case Capsule(radius=radius, length=length):
            return boundary.capsule(at, radius, length / 2, turn)
        case Box(size=size):
            return boundary.box(at, jnp.asarray(size, real) / 2, turn)
    raise AssertionError(morph)
