"""What cameras and rangefinders see: points on pictures, and what is met by rays."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..math import rotate
from ..model.sensors import RAY_DATA
from ..model.structure import Cameras
from .collide.rays import first_met, geoms, ray_lengths
from .measure import CAMERA, Scene

Array = jax.Array

_TINY = 1e-15
"""MuJoCo's mjMINVAL."""


class Rays(NamedTuple):
    """The rays of sensors, one sensor's after another's."""

    row: np.ndarray  # which sensor's each is, (ray,)
    direction: np.ndarray  # in the frame of the sensor, unit vectors, (ray, 3)
    cosine: np.ndarray  # between ray and line of sight, (ray,)


def projections(scene: Scene, which: np.ndarray) -> Array:
    """Where cameras' pictures show sites [pixels], from the upper left corner, (world, k, 2)."""
    s, rows = scene.model.structure, scene.rows(which)
    at, camera = scene.attached[rows], scene.reference[rows]
    used = s.sensor.reference[which]
    focal, middle = s.camera.focal[used] * [-1, 1], s.camera.resolution[used] / 2
    point = camera.local(at.pos - camera.pos)
    depth = point[..., 2:]
    depth = jnp.where(jnp.abs(depth) < _TINY, jnp.where(depth < 0, -_TINY, _TINY), depth)
    return scene.constant(middle)[None] + scene.constant(focal)[None] * point[..., :2] / depth


def ranges(scene: Scene, which: np.ndarray) -> Array:
    """What the rays of sensors (k,) meet first that is not on their own body, one ray after the other, (world, n).

    A site has one ray, along its z axis; a camera one for each pixel, row by row from the upper left corner.
    """
    s, model, rays = scene.model.structure, scene.model, _rays(scene, which)
    at = scene.attached[scene.rows(which)][rays.row]
    direction = rotate(at.quat, jnp.broadcast_to(scene.constant(rays.direction), at.pos.shape))
    seen = s.sensor.visible
    there, own = geoms(model, seen), at.body[:, None] == s.geom.body[seen]
    met = first_met(model, scene.state, there, own, at.pos, direction)
    length = ray_lengths(model, scene.state, there, met, at.pos, direction)[..., None]
    hits = length >= 0
    values = {
        "distance": length,
        "direction": jnp.where(hits, direction, 0),
        "origin": at.pos,
        "point": jnp.where(hits, at.pos + length * direction, 0),
        "depth": jnp.where(hits, length * scene.constant(rays.cosine)[None, :, None], -1.0),
    }
    out = []
    for row, i in enumerate(which):
        wanted = [name for k, name in enumerate(RAY_DATA) if s.sensor.data[i] >> k & 1]
        mine = np.flatnonzero(rays.row == row)
        out.append(jnp.concatenate([values[name][:, mine] for name in wanted], -1).reshape(scene.worlds, -1))
    return jnp.concatenate(out, 1)


def _rays(scene: Scene, which: np.ndarray) -> Rays:
    """The rays of sensors (k,)."""
    s = scene.model.structure
    ahead = np.array([[0.0, 0.0, 1.0]])
    parts = [
        pixels(s.camera, int(s.sensor.target[i])) if s.sensor.kind[i] == CAMERA else (ahead, np.ones(1)) for i in which
    ]
    row = np.repeat(np.arange(len(parts)), [len(cosine) for _, cosine in parts])
    return Rays(row, *(np.concatenate(each) for each in zip(*parts, strict=True)))


def pixels(cameras: Cameras, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Directions to the middles of a camera's pixels, row by row, (pixel, 3), and their cosines to its axis."""
    width, height = cameras.resolution[i]
    down, right = (x.reshape(-1) + 0.5 for x in np.indices((height, width)))
    across = np.stack([right - width / 2, height / 2 - down], -1) / cameras.focal[i]
    cosine = 1 / np.sqrt(1 + (across**2).sum(-1))
    return np.column_stack([across, -np.ones(len(across))]) * cosine[:, None], cosine
