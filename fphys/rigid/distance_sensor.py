"""Distance sensors: how far apart two things are, in which direction, and where they are nearest to each other."""

import jax
import jax.numpy as jnp
import numpy as np

from .collide.apart import Apart
from .measure import Scene

Array = jax.Array


def distances(scene: Scene, which: np.ndarray) -> Array:
    """Of sensors (k,), negative where the things overlap; at most the cutoff, (world, k)."""
    return _nearest(scene, which).distance


def normals(scene: Scene, which: np.ndarray) -> Array:
    """From the nearest point of the first thing to that of the second, zero beyond the cutoff, (world, k, 3).

    Where the things overlap these points have changed sides.
    """
    found = _nearest(scene, which)
    return jnp.sign(found.distance)[..., None] * found.normal


def segments(scene: Scene, which: np.ndarray) -> Array:
    """The nearest points of both things, world axes, zero beyond the cutoff, (world, k, 2, 3)."""
    return _nearest(scene, which).ends


def _nearest(scene: Scene, which: np.ndarray) -> Apart:
    """The nearest pair of geoms of each sensor's things."""
    rows, found = scene.apart
    out = []
    for i in which:
        own = Apart(*(x[:, rows[int(i)]] for x in found))
        best = jnp.argmin(jax.lax.stop_gradient(own.distance), 1)
        out.append(Apart(*(_taken(x, best) for x in own)))
    return Apart(*(jnp.stack(each, 1) for each in zip(*out, strict=True)))


def _taken(values: Array, best: Array) -> Array:
    """One entry of each world, (world, pair, ...) to (world, ...)."""
    return jnp.take_along_axis(values, best.reshape(-1, *[1] * (values.ndim - 1)), 1)[:, 0]
