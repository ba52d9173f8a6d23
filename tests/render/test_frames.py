import copy

import jax
import numpy as np
import pytest

from fphys import render
from fphys.errors import ModelError

SIZE = {"height": 120, "width": 160}


def red(image):
    """Which pixels show the ball."""
    image = image.astype(int)
    return (image[..., 0] > 60) & (image[..., 0] > 2 * image[..., 1])


def test_the_ball_is_where_perspective_puts_it(ball):
    model, states = ball
    place = np.array([0.7, 0.0, 1.4])
    (image,) = render.frames(model, states(place[None, None]), "front", height=480, width=640)
    rows, columns = np.nonzero(red(image))
    focal = 240 / np.tan(np.radians(45) / 2)  # pixels; the camera stands 4 m away at (0, -4, 1)
    assert columns.mean() == pytest.approx(320 + focal * place[0] / 4, abs=1.5)
    assert rows.mean() == pytest.approx(240 - focal * (place[2] - 1) / 4, abs=1.5)
    assert np.ptp(rows) == pytest.approx(2 * 0.2 * focal / 4, abs=3)


@pytest.mark.parametrize("direction", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)])
@pytest.mark.parametrize("length", [1.0, 30.0])
def test_the_whole_motion_is_in_the_picture(ball, direction, length):
    model, states = ball
    path = np.array([0, 0, 1.0]) + np.linspace(0, length, 7)[:, None, None] * np.asarray(direction, float)
    for image in render.frames(model, states(path), **SIZE):
        mask = red(image)
        border = np.concatenate([mask[0], mask[-1], mask[:, 0], mask[:, -1]])
        assert mask.sum() > 20
        assert not border.any()


def test_each_world_is_drawn_with_its_own_state_and_leaves(ball):
    model, states = ball
    path = np.array([[[0.0, 0, 1], [0.8, 0, 1.0]]])
    size = np.repeat(np.asarray(model.geom.size), 2, axis=0)
    size[1, -1, 0] = 0.4
    randomised = model.replace(geom=model.geom.replace(size=jax.numpy.asarray(size)))
    first, second = (red(render.frames(randomised, states(path), "front", world=w, **SIZE)[0]) for w in (0, 1))
    assert np.nonzero(second)[1].mean() > np.nonzero(first)[1].mean() + 20
    assert second.sum() == pytest.approx(4 * first.sum(), rel=0.15)


def test_every_takes_each_kth_state(ball):
    model, states = ball
    path = np.array([0, 0, 1.0]) + np.linspace(0, 1, 7)[:, None, None] * np.array([1.0, 0, 0])
    all_frames = render.frames(model, states(path), "front", **SIZE)
    some = render.frames(model, states(path), "front", every=3, **SIZE)
    assert all_frames.dtype == np.uint8
    assert all_frames.shape == (7, 120, 160, 3)
    np.testing.assert_array_equal(some, all_frames[::3])


def test_a_state_that_is_not_finite_shows_the_last_finite_one(ball):
    model, states = ball
    path = np.array([[[0.0, 0, 1]], [[0.3, 0, 1]], [[np.nan, 0, 1]], [[np.inf, 0, 1]]])
    images = render.frames(model, states(path), **SIZE)
    np.testing.assert_array_equal(images[2], images[1])
    np.testing.assert_array_equal(images[3], images[1])
    assert (images[1] != images[0]).any()


def test_the_model_is_not_changed(ball):
    model, states = ball
    before = copy.deepcopy(model.structure.source.vis.headlight.ambient), model.structure.source.vis.global_.offwidth
    render.frames(model, states(np.ones((1, 1, 3))), height=700, width=900)
    after = model.structure.source.vis.headlight.ambient, model.structure.source.vis.global_.offwidth
    np.testing.assert_array_equal(before[0], after[0])
    assert before[1] == after[1]


def test_a_model_without_sky_gets_one(ball):
    model, states = ball
    (image,) = render.frames(model, states(np.ones((1, 1, 3))), "front", **SIZE)
    assert image[0].min() > 100


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"camera": "nowhere"}, ModelError, "nowhere.*front"),
        ({"camera": 1}, ModelError, "no camera 1"),
        ({"world": 1}, ValueError, "worlds 0 to 0"),
        ({"every": 0}, ValueError, "every is 0"),
        ({"every": 1.5}, TypeError, "every is 1.5, must be a whole number"),
        ({"world": 0.0}, TypeError, "world is 0.0, must be a whole number"),
        ({"height": 0}, ValueError, "at least 1"),
    ],
)
def test_errors_say_what_is_wrong(ball, options, error, text):
    model, states = ball
    with pytest.raises(error, match=text):
        render.frames(model, states(np.ones((1, 1, 3))), **options)


def test_states_without_time_are_refused(ball):
    model, states = ball
    with pytest.raises(ValueError, match=r"\(1, 7\).*time, world, nq"):
        render.frames(model, jax.tree.map(lambda x: x[0], states(np.ones((1, 1, 3)))))


def test_nothing_finite_to_draw_is_refused(ball):
    model, states = ball
    with pytest.raises(ValueError, match="world 0 is not finite"):
        render.frames(model, states(np.full((1, 1, 3), np.nan)))
