"""Rays in Genesis, which has them hit the very link that they start from: they start where they have left it."""

import dataclasses
import importlib
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from .sensors import Rays

SKIN = 1e-4
"""How far beyond its own link a ray starts [m]."""


@dataclasses.dataclass(frozen=True)
class Lidar:
    """A device of Genesis whose rays start somewhat ahead of the sensor's."""

    device: Any
    lead: Any  # by how much [m], a tensor (ray,)
    max_range: float  # [m]

    def distances(self) -> Any:
        """From the sensor's own origins [m], a tensor (world, ray)."""
        found = self.device.read().distances
        return (found.reshape(-1, len(self.lead)) + self.lead).clamp(max=self.max_range)


def cast(stage: Any, name: str, link: Any, sensor: Rays, place: dict[str, int]) -> Lidar:
    """Add rays to a stage, on a link or None for the world.

    Raises:
        UnsupportedError: a ray comes back to its own link after it has been outside.
    """
    gs: Any = importlib.import_module("genesis")
    torch = importlib.import_module("torch")
    lead = np.zeros(len(sensor.directions)) if link is None else leads(name, link, sensor)
    pattern = _pattern(np.asarray(sensor.origins) + lead[:, None] * sensor.directions, sensor.directions)
    device = stage.add_sensor(
        gs.sensors.Raycaster(pattern=pattern, max_range=sensor.max_range, return_points=False, **place)
    )
    return Lidar(device, torch.as_tensor(lead, dtype=gs.tc_float, device=gs.device), sensor.max_range)


def leads(name: str, link: Any, sensor: Rays) -> np.ndarray:
    """Where each ray has left its own link for good [m], shape (ray,): 0 where it never meets it."""
    spans = [crossed(*_triangles(geom), sensor) for geom in link.geoms]
    found = np.zeros(len(sensor.directions))
    for ray in range(len(found)):
        reached = SKIN
        for enter, leave in sorted(span[ray].tolist() for span in spans if span[ray, 1] > -SKIN):
            if enter > reached:
                raise UnsupportedError(
                    f"{name!r}: ray {ray} meets its own link {link.name!r} {enter:.3g} m ahead, and Genesis would see "
                    "that: start it beyond, or let it point elsewhere"
                )
            found[ray] = reached = max(reached, leave + SKIN)
    return found


def crossed(corners: np.ndarray, faces: np.ndarray, sensor: Rays) -> np.ndarray:
    """Where rays, taken as whole lines, enter a mesh and leave it (Moeller and Trumbore 1997), shape (ray, 2) [m].

    Both are minus infinity for a line that misses it.
    """
    start, along = np.asarray(sensor.origins)[:, None], np.asarray(sensor.directions)[:, None]
    a, b, c = (corners[faces[:, i]][None] for i in range(3))
    side = np.cross(along, c - a)
    volume = (side * (b - a)).sum(-1)
    grazing = np.abs(volume) < 1e-12
    scale = 1 / np.where(grazing, 1.0, volume)
    u = (side * (start - a)).sum(-1) * scale
    turned = np.cross(start - a, b - a)
    v = (turned * along).sum(-1) * scale
    at = (turned * (c - a)).sum(-1) * scale
    hit = ~grazing & (np.minimum(u, v) >= -1e-9) & (u + v <= 1 + 1e-9)
    first, last = np.where(hit, at, np.inf).min(1), np.where(hit, at, -np.inf).max(1)
    return np.stack([np.where(hit.any(1), first, -np.inf), last], -1)


def _triangles(geom: Any) -> tuple[np.ndarray, np.ndarray]:
    """Corners of a geom in its link's frame, and which of them make its faces."""
    transform = importlib.import_module("genesis.utils.geom").transform_by_trans_quat
    corners = transform(np.asarray(geom.init_verts, float), np.asarray(geom.init_pos), np.asarray(geom.init_quat))
    return np.asarray(corners), np.asarray(geom.init_faces)


def _pattern(starts: Any, directions: Any) -> Any:
    """A pattern of rays of our own."""
    torch = importlib.import_module("torch")
    base: Any = importlib.import_module("genesis.options.sensors.raycaster").RaycastPattern

    class Listed(base):
        def _get_return_shape(self) -> tuple[int, ...]:
            return (len(directions),)

        def compute_ray_dirs(self) -> None:
            self._ray_dirs[:] = torch.as_tensor(directions, dtype=self._ray_dirs.dtype)

        def compute_ray_starts(self) -> None:
            self._ray_starts[:] = torch.as_tensor(starts, dtype=self._ray_starts.dtype)

    return Listed()
