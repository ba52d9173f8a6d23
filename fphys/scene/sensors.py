"""Sensors of a scene: what they measure and where they sit. The back ends read them."""

import dataclasses
import math
from typing import Any

import numpy as np

from .. import units
from ..errors import ModelError

Vector = tuple[float, ...]


def _require_pose(sensor: Any, **sizes: int) -> None:
    """Raise ModelError unless fields are the given number of finite numbers; store them as tuples of floats."""
    for name, size in sizes.items():
        value = np.asarray(getattr(sensor, name), float)
        if value.shape != (size,) or not np.isfinite(value).all():
            raise ModelError(f"{type(sensor).__name__}: {name} is {getattr(sensor, name)}, must be {size} numbers")
        object.__setattr__(sensor, name, tuple(value.tolist()))


@dataclasses.dataclass(frozen=True)
class JointState:
    """Positions [m or rad] and velocities [m/s or rad/s] of joints: first all positions."""

    joints: tuple[str, ...] = ()  # hinges and slides by name; empty: all

    def __post_init__(self) -> None:
        if isinstance(self.joints, str):
            raise TypeError(f"joints is {self.joints!r}, must be a tuple of names: ({self.joints!r},)")


@dataclasses.dataclass(frozen=True)
class IMU:
    """An accelerometer [m/s^2], gravity included, and a gyroscope [rad/s], in the sensor's axes: 3 + 3 numbers.

    It reads as if the control of the last step were held, and matter pushed as in it: an accelerometer measures the
    effect of forces.
    """

    link: str  # body that it is fixed to
    pos: Vector = (0.0, 0.0, 0.0)  # in the link's frame [m]
    quat: Vector = (1.0, 0.0, 0.0, 0.0)  # in the link's frame

    def __post_init__(self) -> None:
        units.settle(self, pos=units.length, quat=())
        _require_pose(self, pos=3, quat=4)
        if not any(self.quat):
            raise ModelError("IMU: quat is zero, must be an orientation (w, x, y, z)")


@dataclasses.dataclass(frozen=True)
class Contact:
    """The sum of the forces [N] of all contacts on a link, those of matter included, in world axes: 3 numbers."""

    link: str  # body that is touched


@dataclasses.dataclass(frozen=True)
class Rays:
    """Distances [m] along rays to the first surface that is not the link's own; ``max_range`` if there is none."""

    directions: Any  # in the link's frame, of any length, (ray, 3)
    link: str | None = None  # None: fixed in the world
    origins: Any = (0.0, 0.0, 0.0)  # in the link's frame [m], (3,) or (ray, 3)
    max_range: float = 20.0  # [m]

    def __post_init__(self) -> None:
        units.settle(self, directions=(), origins=units.length, max_range=units.length)
        directions = np.atleast_2d(np.asarray(self.directions, float))
        if directions.shape[1:] != (3,) or not (np.linalg.norm(directions, axis=-1) > 0).all():
            raise ModelError(f"Rays: directions have shape {directions.shape}, must be (ray, 3), none of them zero")
        origins = np.asarray(self.origins, float)
        if origins.shape not in ((3,), directions.shape):
            raise ModelError(f"Rays: origins have shape {origins.shape}, must be (3,) or {directions.shape}")
        if not self.max_range > 0:
            raise ModelError(f"Rays: max_range is {self.max_range}, must be positive")
        unit = directions / np.linalg.norm(directions, axis=-1, keepdims=True)
        object.__setattr__(self, "directions", tuple(map(tuple, unit.tolist())))
        object.__setattr__(self, "origins", tuple(map(tuple, np.broadcast_to(origins, directions.shape).tolist())))


@dataclasses.dataclass(frozen=True)
class Camera:
    """A pinhole camera: pictures by ``world.render``, depths by ``world.depth``; no part of an observation."""

    pos: Vector  # in the link's frame, or the world's [m]
    lookat: Vector = (0.0, 0.0, 0.0)  # point at the picture's centre, in the same frame [m]
    up: Vector = (0.0, 0.0, 1.0)  # direction that is up in the picture, in the same frame
    link: str | None = None  # None: fixed in the world
    fov: float = 45.0  # vertical field of view, as a number in degrees (MuJoCo's fovy), or a quantity of angle
    width: int = 640  # [pixels]
    height: int = 480  # [pixels]

    def __post_init__(self) -> None:
        units.settle(self, pos=units.length, lookat=units.length, up=(), width=(), height=())
        if isinstance(self.fov, units.Quantity | units.Reading):
            object.__setattr__(self, "fov", math.degrees(units.si(self.fov, units.angle, "Camera.fov")))
        _require_pose(self, pos=3, lookat=3, up=3)
        view = np.subtract(self.lookat, self.pos)
        if not np.linalg.norm(np.cross(view, self.up)) > 1e-9:
            raise ModelError(f"Camera: it looks along {view.tolist()}, which up = {self.up} must not be parallel to")
        if not 0 < self.fov < 180 or min(self.width, self.height) < 1:
            raise ModelError(f"Camera: fov {self.fov}, {self.width} x {self.height}: no such picture")

    @property
    def axes(self) -> np.ndarray:
        """Right, up and backward, as rows, shape (3, 3)."""
        back = np.subtract(self.pos, self.lookat).astype(float)
        back /= np.linalg.norm(back)
        right = np.cross(self.up, back)
        right /= np.linalg.norm(right)
        return np.stack([right, np.cross(back, right), back])

    @property
    def quat(self) -> tuple[float, ...]:
        """The rotation that turns x to the right, y up and z backward, as (w, x, y, z).

        It is an eigenvector (Bar-Itzhack 2000).
        """
        (a, b, c), (d, e, f), (g, h, i) = self.axes.T
        k = [
            [a + e + i, h - f, c - g, d - b],
            [h - f, a - e - i, b + d, c + g],
            [c - g, b + d, e - a - i, f + h],
            [d - b, c + g, f + h, i - a - e],
        ]
        return tuple(np.linalg.eigh(np.array(k))[1][:, -1].tolist())


Sensor = JointState | IMU | Contact | Rays | Camera
