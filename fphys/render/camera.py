"""Camera placement that keeps the whole motion in view."""

import dataclasses

import numpy as np

MARGIN = 1.15  # factor on the distance at which the motion just fits
FAR = 3.0  # the camera follows a motion longer than this many times the mechanism's own size
FLAT = 0.4  # a motion thinner than this, relative to its other sides, is viewed face on


@dataclasses.dataclass(frozen=True)
class Camera:
    """A free camera. Fields that are None are chosen to suit the motion."""

    azimuth: float | None = None  # Direction of view about z [deg]: 0 looks along +x, 90 along +y.
    elevation: float | None = None  # Angle of the view above the horizon [deg]; negative looks down.
    distance: float | None = None  # Distance to the point looked at [m].
    lookat: tuple[float, float, float] | None = None  # Point looked at [m]; with track, an offset from the motion.
    track: bool | None = None  # Whether to follow the motion; None follows it only if it travels far.


@dataclasses.dataclass(frozen=True)
class View:
    """A camera's path."""

    lookat: np.ndarray  # Point looked at [m], shape (time, 3).
    distance: float  # [m]
    azimuth: float  # [deg]
    elevation: float  # [deg]


def follow(camera: Camera, low: np.ndarray, high: np.ndarray, fovy: float, aspect: float) -> View:
    """The view of a motion that fits the axis-aligned boxes ``low``..``high`` [m], shape (time, 3).

    ``fovy`` is the vertical field of view [deg], ``aspect`` the image's width over its height.
    """
    sizes = np.linalg.norm(high - low, axis=-1)
    travelled = np.linalg.norm(high.max(0) - low.min(0))
    track = camera.track if camera.track is not None else bool(travelled > FAR * sizes.max())
    if track:
        lookat = _smooth((low + high) / 2) + np.asarray(camera.lookat or (0.0, 0.0, 0.0))
    else:
        centre = (low.min(0) + high.max(0)) / 2 if camera.lookat is None else np.asarray(camera.lookat, float)
        lookat = np.broadcast_to(centre, low.shape)

    low, high = (low - lookat).min(0), (high - lookat).max(0)
    azimuth, elevation = _direction(high - low)
    azimuth = azimuth if camera.azimuth is None else camera.azimuth
    elevation = elevation if camera.elevation is None else camera.elevation
    distance = camera.distance or MARGIN * _fitting_distance(low, high, azimuth, elevation, fovy, aspect)
    return View(lookat, distance, azimuth, elevation)


def _direction(size: np.ndarray) -> tuple[float, float]:
    """Azimuth and elevation [deg] that show a box of this size [m] well; flat boxes are seen face on."""
    x, y, z = size
    if y < FLAT * min(x, z):
        return 90.0, -8.0
    if x < FLAT * min(y, z):
        return 180.0, -8.0
    if z < FLAT * min(x, y):
        return 130.0, -45.0
    return 130.0, -20.0


def _fitting_distance(
    low: np.ndarray, high: np.ndarray, azimuth: float, elevation: float, fovy: float, aspect: float
) -> float:
    """Distance [m] from which all corners of a box are in view. Corners are relative to the point looked at."""
    az, el = np.radians((azimuth, elevation))
    forward = np.array([np.cos(el) * np.cos(az), np.cos(el) * np.sin(az), np.sin(el)])
    right = np.array([np.sin(az), -np.cos(az), 0.0])
    up = np.cross(right, forward)
    corners = np.stack(np.meshgrid(*zip(low, high, strict=True), indexing="ij"), -1).reshape(-1, 3)
    slope = np.tan(np.radians(fovy) / 2)
    needed = np.maximum(np.abs(corners @ up), np.abs(corners @ right) / aspect) / slope - corners @ forward
    return float(max(needed.max(), 1e-3))


def _smooth(path: np.ndarray, half: int = 7) -> np.ndarray:
    """Moving average over time of a path, shape (time, 3). A straight path is unchanged."""
    half = min(half, len(path) // 16)
    window = 2 * half + 1
    padded = np.pad(path, ((half, half), (0, 0)), mode="reflect", reflect_type="odd")
    total = np.cumsum(np.pad(padded, ((1, 0), (0, 0))), axis=0)
    return (total[window:] - total[:-window]) / window
