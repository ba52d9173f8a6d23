"""Particles in images: where their surface is, how smooth, that drops stay, and that light and room suffice."""

import numpy as np
import pytest

from fphys.particles import sample
from fphys.render import Camera, Grains, Surface, frames

BLUE = (0.0, 0.0, 1.0)
SPACING = 0.05
DISK = sample.ball((0.0, 0.0, 0.0), 0.5, SPACING)
ABOVE = Camera(azimuth=90, elevation=-90, distance=4.0, lookat=(0.0, 0.0, 1.0), track=False)


def still(ball, times=1, place=(0.0, 0.0, 1.0)):
    return ball[1](np.broadcast_to(place, (times, 1, 3)))


def surface(x, drops=True):
    return Surface(x[None, None], SPACING, BLUE, drops=drops).triangles(x)


def blues(image):
    return (image[..., 2] > 90) & (image[..., 0] < 60) & (image[..., 1] < 60)


def outward(corners, normals, middle):
    """Whether faces run counterclockwise seen from outside, and normals point there."""
    a, b, c = np.moveaxis(corners, 1, 0)
    away = corners.mean(1) - middle
    return (np.cross(b - a, c - a) * away).sum(-1).min() > 0 and (normals.mean(1) * away).sum(-1).min() > 0


def test_the_surface_of_a_ball_is_closed_round_and_smooth():
    corners, normals = surface(DISK, drops=False)
    assert outward(corners, normals, np.zeros(3))
    edges = corners[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2, 3)  # triangles share their corners to the last bit
    paired = {tuple(map(tuple, edge)) for edge in edges}
    assert len(paired) == len(edges) and all((b, a) in paired for a, b in paired)
    radius = np.linalg.norm(corners, axis=-1)
    assert np.abs(radius - 0.5).max() < 0.5 * SPACING and radius.std() < 0.12 * SPACING
    turned = (normals * corners / radius[..., None]).sum(-1)
    assert np.degrees(np.arccos(turned.clip(-1, 1))).mean() < 6


def test_a_flat_face_has_no_bumps():
    corners, normals = surface(sample.box((-0.5, -0.5, -0.3), (0.5, 0.5, 0.0), SPACING))
    top = (np.abs(corners[..., :2]).max((1, 2)) < 0.3) & (corners[..., 2].min(1) > -0.1)
    assert top.any() and corners[top][..., 2].std() < 0.02 * SPACING
    assert np.degrees(np.arccos(normals[top][..., 2].clip(-1, 1))).max() < 3


def test_one_particle_is_a_drop_and_what_is_not_finite_is_left_out():
    for shift in np.random.default_rng(0).uniform(0, SPACING, (5, 3)):  # wherever it is in the density's cells
        there = shift + [1.5, 0.0, 0.0]
        drop = surface(np.concatenate([DISK, [there, [np.nan] * 3]]))[0]
        drop = drop[drop[..., 0].min(1) > 1.0]
        size = np.linalg.norm(drop - there, axis=-1)
        assert len(drop) >= 8 and 0.15 * SPACING < size.min() and size.max() < SPACING
    assert len(surface(np.full((2, 3), np.nan))[0]) == 0


def test_grains_are_crystals_of_one_size():
    x = np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [np.nan] * 3])
    corners, normals = Grains(x[None, None], 0.1).triangles(x)
    assert corners.shape == (16, 3, 3)
    for k in range(2):
        own = corners[8 * k : 8 * k + 8] - x[k]
        np.testing.assert_allclose(np.linalg.norm(own, axis=-1), 0.1, rtol=1e-5)
        assert outward(own, normals[8 * k : 8 * k + 8], np.zeros(3)) and abs(own.mean()) < 1e-6
    one, other = (corners[8 * k, 0] - x[k] for k in range(2))
    assert np.abs(one - other).max() > 0.01  # each lies in a direction of its own
    before = Grains(x[None, None], 0.1).triangles(x)[0]
    np.testing.assert_array_equal(before, corners)  # and keeps it


def test_it_is_drawn_where_it_is_and_has_room_to_grow(ball):
    few, many = DISK + [0, 0, 2.5], np.concatenate([DISK + [0, 0, 2.5], 0.7 * DISK + [-1.0, 0.0, 2.0]])
    path = np.full((2, 1, len(many), 3), np.nan)
    path[0, 0, : len(few)], path[1, 0] = few, many
    scattered = np.random.default_rng(0).uniform(-1, 1, (2, 1, 500, 3)) + [0, 0, 2.0]
    scattered[0, 0, 1:] = np.nan  # ten times as many triangles at the second time
    flexes = [Surface(path, SPACING, BLUE), Grains(scattered, 0.02, (0.0, 1.0, 0.0))]
    first, second = frames(ball[0], still(ball, 2), ABOVE, 200, 200, flexes=flexes)
    radius = 0.51 * 100 / np.tan(np.radians(45.0) / 2) / np.sqrt(2.5**2 - 0.5**2)  # pixels
    assert blues(first).sum() == pytest.approx(np.pi * radius**2, rel=0.06)
    assert blues(second)[:, :45].any() and not blues(first)[:, :45].any()
    green = [((image[..., 1] > 90) & (image[..., 0] < 60)).sum() for image in (first, second)]
    assert green[0] < 40 and green[1] > 1000


def test_grains_may_come_later_and_may_all_be_gone(ball):
    later = np.full((2, 1, 3, 3), np.nan)
    later[1] = [[0.0, 0.0, 2.0], [0.3, 0.0, 2.0], [0.0, 0.3, 2.0]]
    here = np.broadcast_to([0.0, 0.0, 1.0], (2, 1, 1, 3))
    flexes = [Grains(here, 0.05, (0.0, 1.0, 0.0)), Grains(later, 0.1, BLUE)]
    images = frames(ball[0], still(ball, 2), ABOVE, 100, 100, flexes=flexes)
    assert not blues(images[0]).any() and blues(images[1]).any()
    assert np.isnan(Grains(later[:1], 0.1).path(0)).all()


def shaded(image):
    """Pixels of the floor that are darker than most of it."""
    grey = image.astype(int).max(-1)
    floor = np.ptp(image.astype(int), axis=-1) < 25
    return floor & (grey < np.median(grey[floor]) - 25)


SUN = """
<mujoco>
  <visual><headlight ambient="0.3 0.3 0.3" diffuse="0 0 0"/></visual>
  <worldbody>
    <light directional="true" pos="0 0 5" dir="0.3 0 -1" diffuse="0.6 0.6 0.6"/>
    <geom type="plane" size="500 500 1" rgba="0.5 0.5 0.5 1"/>
    <geom type="box" size="0.2 0.2 0.2" pos="{x} 0 1" rgba="1 0 0 {alpha}"/>
    <body><freejoint/><geom size="0.01" rgba="0 0 0 0" mass="1"/></body>
  </worldbody>
</mujoco>
"""


@pytest.mark.parametrize(("x", "alpha", "shadow"), [(0, 1.0, True), (100, 1.0, True), (0, 0.3, False)])
def test_shadows_are_where_the_camera_looks_and_glass_has_none(ball, x, alpha, shadow):
    from fphys.model.load import load

    model = load(SUN.format(x=x, alpha=alpha))
    view = Camera(azimuth=90, elevation=-60, distance=4.0, lookat=(float(x), 0.0, 0.5), track=False)
    (image,) = frames(model, still(ball, place=(float(x), 0.0, 50.0)), view, 200, 200)
    assert (shaded(image).sum() > 300) == shadow


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"x": np.zeros((1, 4, 3))}, r"x of particles has shape \(1, 4, 3\)"),
        ({"x": np.zeros((1, 1, 4, 2))}, "must be .time, world, particle, 3."),
        ({"x": np.zeros((2, 1, 4, 3))}, "the flexes have 2 times, the states 1"),
        ({"x": np.full((1, 1, 4, 3), np.nan)}, "no first position of the particles in world 0 is finite"),
        ({"spacing": 0.0}, "spacing is 0.0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(ball, change, says):
    given = {"x": np.zeros((1, 1, 4, 3)), "spacing": SPACING} | change
    with pytest.raises(ValueError, match=says):
        frames(ball[0], still(ball), flexes=[Surface(**given)])
    with pytest.raises(ValueError, match="world is 1, the particles have worlds 0 to 0"):
        Grains(np.zeros((1, 1, 4, 3)), 0.1).path(1)
