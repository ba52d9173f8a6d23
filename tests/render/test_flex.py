"""Deforming meshes in images: where they are, what hides them, how smooth they are, and what is refused."""

import jax
import numpy as np
import pytest

from fphys.deformables import mesh
from fphys.render import Camera, Flex, frames, sight

BLUE = (0.0, 0.0, 1.0)
ABOVE = Camera(azimuth=90, elevation=-90, distance=4.0, lookat=(0.0, 0.0, 1.0), track=False)


def still(model, times=1):
    """States of the ball at rest, 1 m above the floor."""
    _, states = model
    return states(np.broadcast_to([0.0, 0.0, 1.0], (times, 1, 3)))


def sheet(height, size=2.0, cells=8):
    """A square sheet about the z axis, positions (1, 1, vertex, 3)."""
    body = mesh.cloth((cells, cells), (size, size))
    return body.elements, (body.vertices + [-size / 2, -size / 2, height])[None, None]


def blues(image):
    return (image[..., 2] > 90) & (image[..., 0] < 60) & (image[..., 1] < 60)


def reds(image):
    return (image[..., 0] > 90) & (image[..., 1] < 60) & (image[..., 2] < 60)


@pytest.mark.parametrize(("height", "hidden"), [(1.5, True), (0.5, False)])
def test_a_sheet_covers_its_part_of_the_image_and_what_is_behind_it(ball, height, hidden):
    elements, x = sheet(height)
    (image,) = frames(ball[0], still(ball), ABOVE, 200, 200, flexes=[Flex(elements, x, BLUE)])
    covered = blues(image)
    edge = 2.0 * 100 / np.tan(np.radians(45.0) / 2) / (5.0 - height)  # pixels
    assert covered.sum() + reds(image).sum() == pytest.approx(min(edge, 200) ** 2, rel=0.05)
    assert reds(image).any() != hidden


def test_it_moves(ball):
    elements, x = sheet(1.5, size=0.5)
    path = np.concatenate([x, x + [0.8, 0.0, 0.0]])
    first, last = frames(ball[0], still(ball, 2), ABOVE, 200, 200, flexes=[Flex(elements, path, BLUE)])
    left, right = (np.nonzero(blues(image))[1].mean() for image in (first, last))
    assert left == pytest.approx(100, abs=2) and right == pytest.approx(100 + 0.8 * 241.4 / 3.5, abs=2)


def test_a_curved_sheet_has_no_facets(ball):
    """Neighbouring pixels of a half pipe of eight strips differ by little, where its normals turn by 22 degrees."""
    elements, x = sheet(1.0, size=2.0)
    x = x.copy()
    angle = np.pi / 2 * x[..., 0]
    x[..., 0], x[..., 2] = np.sin(angle), 1.5 + np.cos(angle)
    (image,) = frames(ball[0], still(ball), ABOVE, 200, 200, flexes=[Flex(elements, x, BLUE)])
    row = image[100, :, 2].astype(int)[blues(image)[100]]
    assert np.ptp(row) > 40 and np.abs(np.diff(row)).max() <= 8


def test_ropes_and_solids_and_what_is_in_a_plane(ball):
    bodies = mesh.rope(4, 1.0), mesh.box((2, 2, 2), (0.4, 0.4, 0.4)), mesh.box((2, 2), (0.4, 0.4))
    for body in bodies:
        x = body.vertices + np.array([-0.3, 0.0, 2.0])[: body.dim]
        flex = Flex(body.elements, x[None, None], BLUE, radius=0.05)
        (image,) = frames(ball[0], still(ball), Camera(azimuth=90, elevation=-30), 120, 160, flexes=[flex])
        assert blues(image).sum() > 20


def test_a_cameras_image_and_depth_have_it(ball):
    elements, x = sheet(1.0, size=1.0)
    state = jax.tree.map(lambda a: a[0], still(ball))
    shifted = x @ np.array([[1, 0, 0], [0, 0, 1], [0, 1, 0]]) + [0, -3, 1]  # upright, in front of the camera
    image, depth = sight(ball[0], state, "front", 100, 100, flexes=[Flex(elements, shifted, BLUE)])
    assert blues(image)[50, 50]
    assert depth[50, 50] == pytest.approx(2.0, abs=0.02)


def test_a_place_that_is_not_finite_is_not_drawn(ball):
    elements, x = sheet(1.5, size=0.5)
    lost = np.concatenate([x, np.full_like(x, np.nan)])
    first, last = frames(ball[0], still(ball, 2), ABOVE, 100, 100, flexes=[Flex(elements, lost, BLUE)])
    np.testing.assert_array_equal(first, last)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"x": np.zeros((1, 4, 3))}, r"x has shape \(1, 4, 3\)"),
        ({"elements": [[0, 1, 9]]}, "elements have shape .*4 vertices"),
        ({"x": np.zeros((2, 1, 4, 3))}, "the flexes have 2 times, the states 1"),
        ({"x": np.full((1, 1, 4, 3), np.nan)}, "not finite"),
    ],
)
def test_what_cannot_be_drawn_is_refused(ball, change, says):
    given = {"elements": [[0, 1, 2], [1, 2, 3]], "x": np.arange(12.0).reshape(1, 1, 4, 3)} | change
    with pytest.raises(ValueError, match=says):
        frames(ball[0], still(ball), flexes=[Flex(**given)])
    with pytest.raises(ValueError, match="world is 1, the flex has worlds 0 to 0"):
        Flex([[0, 1]], np.zeros((1, 1, 2, 3))).path(1)
