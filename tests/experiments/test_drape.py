import dataclasses

import numpy as np

from fphys.experiments import drape
from fphys.experiments.drape import Config

SMALL = Config(cells=14, duration=1.2)


def test_the_cloth_stays_on_the_ball_and_nothing_is_inside(play, full):
    config = Config() if full else SMALL
    metrics, result = play(drape, config)
    assert metrics["success"] and metrics["final_speed"] < drape.SLOW
    x = result["x"][:, 0]
    assert (np.linalg.norm(x - [0, 0, drape.RADIUS], axis=-1) > drape.RADIUS).all() and (x[..., 2] > 0).all()
    assert 0 < metrics["triangle_gap"] < metrics["vertex_gap"] < drape.THICKNESS + 1e-6
    assert x[-1, :, 2].min() < drape.RADIUS / 2  # it hangs down


def test_without_friction_it_slides_off(play):
    metrics, _ = play(drape, dataclasses.replace(SMALL, friction=0.0))
    assert not metrics["success"] and metrics["height"] < 1.5 * drape.RADIUS


def test_a_triangle_inside_the_ball_is_noticed():
    """Its corners are outside; the nearest point of another is on an edge."""
    flat = np.array([[-1, -1, 0.31], [1, -1, 0.31], [0, 1, 0.31]])
    side = np.array([[0.16, -1, 0.15], [0.16, 1, 0.15], [1, 0, 0.15]])
    for triangle, least in ((flat, 0.01), (flat - [0, 0, 0.03], -0.02), (side, 0.01), (flat - [0, 0, 0.32], -0.01)):
        assert np.isclose(drape.nearest(triangle[None, None]), min(least, triangle[:, 2].min()))
