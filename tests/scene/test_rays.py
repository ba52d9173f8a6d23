"""Rays on a link in Genesis start beyond that link: what is known of it without Genesis."""

import types

import numpy as np
import pytest

from fphys.errors import UnsupportedError
from fphys.scene import Rays
from fphys.scene.genesis_rays import SKIN, crossed, leads

CORNERS = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) / 2.0
FACES = np.array([(0, 1, 3), (0, 3, 2), (4, 6, 7), (4, 7, 5), (0, 4, 5), (0, 5, 1), (2, 3, 7), (2, 7, 6), (0, 2, 6),
                  (0, 6, 4), (1, 5, 7), (1, 7, 3)])  # fmt: skip


def link(monkeypatch, *spans) -> types.SimpleNamespace:
    """A link of geoms that a ray along x crosses from and to the given places."""
    made = [(CORNERS * [b - a, 1, 1] + [(a + b) / 2, 0, 0], FACES) for a, b in spans]
    monkeypatch.setattr("fphys.scene.genesis_rays._triangles", lambda geom: geom)
    return types.SimpleNamespace(name="arm", geoms=made)


def test_a_line_crosses_a_cube():
    """Through faces, their diagonals and edges, from inside and outside, and past it."""
    rng = np.random.default_rng(0)
    origins = rng.uniform(-0.45, 0.45, (200, 3))
    directions = rng.standard_normal((200, 3))
    directions[:3], origins[:3] = np.eye(3), 0.0
    rays = Rays(directions, origins=origins)
    unit = np.array(rays.directions)
    with np.errstate(divide="ignore", invalid="ignore"):
        leave = np.min((0.5 * np.sign(unit) - origins) / unit, where=unit != 0, initial=np.inf, axis=1)
        enter = np.max((-0.5 * np.sign(unit) - origins) / unit, where=unit != 0, initial=-np.inf, axis=1)
    assert np.allclose(crossed(CORNERS, FACES, rays), np.stack([enter, leave], 1), atol=1e-12)
    assert (crossed(CORNERS, FACES, Rays(((1, 0, 0),), origins=(0, 0.6, 0))) == -np.inf).all()


@pytest.mark.parametrize(
    ("spans", "lead"),
    [
        ([(-1, 0.3)], 0.3 + SKIN),
        ([(-1, 0.3), (0.2, 0.8)], 0.8 + SKIN),
        ([(-2, -0.5)], 0.0),
        ([(-1, 0.0)], SKIN),
        ([], 0.0),
    ],
)
def test_a_ray_begins_where_it_has_left_its_link(monkeypatch, spans, lead):
    assert leads("lidar", link(monkeypatch, *spans), Rays((1, 0, 0))) == pytest.approx([lead], abs=1e-12)


@pytest.mark.parametrize("spans", [[(0.2, 0.4)], [(-1, 0.1), (0.2, 0.4)]])
def test_a_ray_that_comes_back_is_refused(monkeypatch, spans):
    with pytest.raises(UnsupportedError, match=r"'lidar': ray 0 meets its own link 'arm' 0\.2 m ahead"):
        leads("lidar", link(monkeypatch, *spans), Rays((1, 0, 0)))
