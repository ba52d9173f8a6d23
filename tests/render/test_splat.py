"""Particles as a picture: where discs fall, which one is in front, and how long it takes."""

import time

import numpy as np
import pytest

from fphys.render import Camera, splat

RED, BLUE = (255, 0, 0), (0, 0, 255)


def reds(image: np.ndarray) -> np.ndarray:
    return (image[..., 0] > 120) & (image[..., 1] < 30) & (image[..., 2] < 30)


def test_discs_lie_where_the_particles_are():
    """Two particles of a plane: left and low, right and high, of the size that perspective gives them."""
    x = np.array([[[0.0, 0.0], [1.0, 1.0]]])
    (image,) = splat(x, 0.1, np.array([RED, BLUE], np.uint8), 200, 200)
    row, column = (np.mean(a) for a in np.nonzero(reds(image)))
    blue = (image[..., 2] > 120) & (image[..., 0] < 30)
    other_row, other_column = (np.mean(a) for a in np.nonzero(blue))
    assert row > 140 and column < 60 and other_row < 60 and other_column > 140
    assert reds(image).sum() == pytest.approx(np.pi * (0.1 * (row - other_row)) ** 2, rel=0.2)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_nearer_disc_is_in_front(order: tuple[int, int]):
    x = np.array([[0.0, -1.0, 0.0], [0.0, 1.0, 0.0]])[list(order)]
    colors = np.array([RED, BLUE], np.uint8)[list(order)]
    (image,) = splat(x[None], 0.3, colors, 100, 100, Camera(azimuth=90, elevation=0, track=False))
    assert reds(image)[50, 50]


def test_particles_that_are_not_finite_are_left_out():
    x = np.zeros((2, 3, 3))
    x[:, 1] = 1.0
    x[1, 2] = np.nan
    frames = splat(x, 0.1)
    assert frames.shape == (2, 480, 640, 3) and frames.dtype == np.uint8


@pytest.mark.parametrize("shape", [(3, 4), (1, 0, 3), (1, 5, 4)])
def test_another_shape_is_refused(shape: tuple[int, ...]):
    with pytest.raises(ValueError, match="positions have shape"):
        splat(np.zeros(shape), 0.1)


def test_a_hundred_thousand_in_less_than_a_second():
    x = np.random.default_rng(0).uniform(size=(1, 100_000, 3))
    used = []
    for _ in range(3):
        begun = time.process_time()
        splat(x, 0.004)
        used.append(time.process_time() - begun)
    assert min(used) < 1.0


@pytest.mark.parametrize(("change", "says"), [({"radius": 0.0}, "radius is 0.0"), ({"height": 0}, "height 0")])
def test_sizes_are_positive(change, says):
    with pytest.raises(ValueError, match=says):
        splat(**({"positions": np.zeros((1, 2, 3)), "radius": 0.1} | change))


def test_nothing_to_see_is_said():
    with pytest.raises(ValueError, match="no position is finite"):
        splat(np.full((1, 2, 3), np.nan), 0.1)
