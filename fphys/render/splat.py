"""Images of particles: discs drawn by NumPy in milliseconds, where mujoco takes seconds. Not differentiable."""

from typing import Any

import numpy as np

from .camera import Camera, follow

PALETTE = np.array(
    [[42, 109, 181], [236, 106, 41], [58, 157, 110], [138, 95, 176], [194, 59, 75], [107, 114, 128]], np.float32
)
FOVY = 45.0  # vertical field of view [deg]
SKY = np.array([[236, 240, 244], [198, 210, 222]], np.float32)  # lower and upper edge of the image


def splat(
    positions: Any,
    radius: float,
    colors: Any = None,
    height: int = 480,
    width: int = 640,
    camera: Camera | None = None,
) -> np.ndarray:
    """Images of moving particles, one per time. One camera sees the whole motion.

    Args:
        positions: [m], shape (time, particle, 2 or 3). Positions that are not finite are not drawn.
        radius: of a particle [m].
        colors: uint8 of shape (particle, 3), or one number per particle, which selects from a palette.
        camera: where the camera is. Planar positions are always seen face on.

    Returns:
        uint8, shape (time, height, width, 3).

    Raises:
        ValueError: positions or colors have another shape, a size is not positive, or no position is finite.
    """
    x = np.asarray(positions, np.float32)
    if x.ndim != 3 or x.shape[2] not in (2, 3) or 0 in x.shape:
        raise ValueError(f"positions have shape {x.shape}, must be (time, particle, 2 or 3)")
    if not (radius > 0 and height > 0 and width > 0):
        raise ValueError(f"radius is {radius}, height {height}, width {width}: all must be positive")
    paint = _colors(colors, x.shape[1])
    if x.shape[2] == 2:  # draw the plane upright, with its y up
        x = np.stack([x[..., 0], np.zeros(x.shape[:2], np.float32), x[..., 1]], -1)
    sound: np.ndarray = np.asarray(np.isfinite(x).all(-1))
    if not sound.any():
        raise ValueError("no position is finite: there is nothing to draw")
    low, high = (f(x[sound], axis=0) for f in (np.min, np.max))
    times = len(x)
    low, high = (np.broadcast_to(v, (times, 3)) for v in (low - radius, high + radius))
    view = follow(camera or Camera(track=False), low, high, FOVY, width / height)
    up = np.linspace(1.0, 0.0, height, dtype=np.float32)[:, None, None]
    empty = np.broadcast_to((1 - up) * SKY[0] + up * SKY[1], (height, width, 3))
    frames = [_draw(x[t][sound[t]], paint[sound[t]], radius, view, view.lookat[t], empty) for t in range(times)]
    return np.stack(frames)


def _draw(x: np.ndarray, paint: np.ndarray, radius: float, view: Any, lookat: np.ndarray, empty: np.ndarray) -> Any:
    """One image. The nearest disc wins each pixel; discs are darker towards the rim."""
    height, width, _ = empty.shape
    azimuth, elevation = np.radians((view.azimuth, view.elevation))
    forward = np.array([np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)])
    right = np.array([np.sin(azimuth), -np.cos(azimuth), 0.0])
    axes = np.stack([right, np.cross(right, forward), forward]).astype(np.float32)
    seen = (x - lookat.astype(np.float32)) @ axes.T
    depth = seen[:, 2] + np.float32(view.distance)
    focus = np.float32(0.5 * height / np.tan(np.radians(FOVY) / 2))
    before = depth > 1e-3
    seen, depth, paint = seen[before], depth[before], paint[before]
    column = 0.5 * width + focus * seen[:, 0] / depth
    row = 0.5 * height - focus * seen[:, 1] / depth
    size = np.maximum(focus * np.float32(radius) / depth, 0.5)
    nearest = np.full(height * width, np.inf, np.float32)
    image = empty.reshape(-1, 3).copy()
    reach = int(np.ceil(size.max(initial=0.5)))
    order = np.argsort(-depth)  # far ones first: the last one written to a pixel stays
    column, row, size, depth, paint = (a[order] for a in (column, row, size, depth, paint))
    for dy in range(-reach, reach + 1):
        for dx in range(-reach, reach + 1):
            i, j = (row + dy).astype(np.int32), (column + dx).astype(np.int32)
            away = ((i + 0.5 - row) ** 2 + (j + 0.5 - column) ** 2) / size**2
            hit = (away <= 1.0) & (i >= 0) & (i < height) & (j >= 0) & (j < width)
            pixel, rank = i[hit] * width + j[hit], depth[hit]
            wins = rank <= nearest[pixel]
            pixel, rank = pixel[wins], rank[wins]
            nearest[pixel] = rank
            image[pixel] = paint[hit][wins] * (1.0 - 0.35 * away[hit][wins])[:, None]
    return image.reshape(height, width, 3).astype(np.uint8)


def _colors(colors: Any, n: int) -> np.ndarray:
    given = np.zeros(n, int) if colors is None else np.asarray(colors)
    if given.shape == (n,):
        return PALETTE[given.astype(int) % len(PALETTE)]
    if given.shape != (n, 3):
        raise ValueError(f"colors have shape {given.shape}, must be ({n}, 3), or ({n},) palette numbers")
    return given.astype(np.float32)
