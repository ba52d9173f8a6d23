import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fphys.render.camera import Camera, follow

metres = st.floats(-3, 3)
sizes = st.floats(0.01, 4)


@given(
    centre=st.tuples(metres, metres, metres),
    size=st.tuples(sizes, sizes, sizes),
    azimuth=st.floats(-180, 180),
    elevation=st.floats(-85, 85),
    aspect=st.floats(0.5, 2),
)
def test_every_corner_is_inside_the_field_of_view(centre, size, azimuth, elevation, aspect):
    low, high = (np.array([centre]) + sign * np.array([size]) / 2 for sign in (-1, 1))
    view = follow(Camera(azimuth=azimuth, elevation=elevation), low, high, fovy=45.0, aspect=aspect)
    az, el = np.radians(azimuth), np.radians(elevation)
    forward = np.array([np.cos(el) * np.cos(az), np.cos(el) * np.sin(az), np.sin(el)])
    right = np.array([np.sin(az), -np.cos(az), 0])
    up = np.cross(right, forward)
    eye = view.lookat[0] - view.distance * forward
    slope = np.tan(np.radians(45) / 2)
    for corner in np.array(np.meshgrid(*zip(low[0], high[0], strict=True))).reshape(3, -1).T - eye:
        depth = corner @ forward
        assert depth > 0
        assert abs(corner @ up) < depth * slope
        assert abs(corner @ right) < depth * slope * aspect


def box(centres):
    centres = np.asarray(centres, float)
    return centres - 0.5, centres + 0.5


def test_a_short_motion_is_seen_from_a_fixed_point():
    view = follow(Camera(), *box(np.linspace([0, 0, 0], [1, 0, 0], 20)), 45.0, 4 / 3)
    np.testing.assert_allclose(view.lookat, np.tile([0.5, 0, 0], (20, 1)))


def test_a_long_motion_is_followed():
    path = np.linspace([0, 0, 0], [50, 0, 0], 100)
    view = follow(Camera(), *box(path), 45.0, 4 / 3)
    np.testing.assert_allclose(view.lookat[10:-10], path[10:-10], atol=1e-9)
    assert view.distance < 10


@pytest.mark.parametrize(("size", "azimuth"), [((2, 0.1, 1), 90), ((0.1, 2, 1), 180), ((1, 1, 1), 130)])
def test_a_planar_motion_is_looked_at_face_on(size, azimuth):
    half = np.array([size]) / 2
    assert follow(Camera(), -half, half, 45.0, 4 / 3).azimuth == azimuth


def test_what_is_asked_for_is_kept():
    camera = Camera(azimuth=12.0, elevation=-34.0, distance=5.0, lookat=(1.0, 2.0, 3.0))
    view = follow(camera, *box([[0, 0, 0]]), 45.0, 1.0)
    assert (view.azimuth, view.elevation, view.distance) == (12.0, -34.0, 5.0)
    np.testing.assert_array_equal(view.lookat, [[1, 2, 3]])
