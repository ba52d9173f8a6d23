"""Which four points of a polygon of contacts stay: prisms on many corners, flat on one another, against MuJoCo C."""

import functools
from typing import Any

import jax
import numpy as np

import fphys
from fphys.rigid.collide import collision

from .collision_scenes import of_mujoco, of_ours

contacts = jax.jit(collision.contacts)


def prism(name: str, seed: int, sides: int) -> str:
    """A mesh of an upright prism on an irregular polygon, whose corners are on an ellipse."""
    angle = np.sort(np.random.default_rng(seed).uniform(0, 2 * np.pi, sides))
    ring = np.stack([0.2 * np.cos(angle), 0.13 * np.sin(angle)], -1)
    at = np.concatenate([np.c_[ring, np.full(sides, z)] for z in (-0.05, 0.05)])
    return f'<mesh name="{name}" vertex="{" ".join(f"{x:.5f}" for x in at.ravel())}"/>'


@functools.cache
def scene() -> fphys.Model:
    return fphys.load(
        f"""<mujoco><option ccd_tolerance="1e-12" ccd_iterations="500"/>
        <asset>{prism("low", 1, 14)}{prism("high", 2, 17)}</asset><worldbody><geom type="mesh" mesh="low"/>
        <body><freejoint/><geom type="mesh" mesh="high"/></body></worldbody></mujoco>"""
    )


def test_the_four_points_of_a_polygon_are_mujocos():
    """The polygons have up to twelve corners; 1e-8: a mesh's corners are rounded to float32, its normals are not.

    A pose counts as the same if its four points are. Rounding decides where two areas are equal: one in fifty.
    """
    rng, count = np.random.default_rng(0), 200
    m = scene()
    lift = 0.1 - 2e-3 + m.structure.source.geom_pos[0, 2] - m.structure.source.geom_pos[1, 2]
    turn, lean = rng.uniform(0, np.pi, count), rng.normal(size=(count, 2)) * 5e-3
    quat = np.c_[np.cos(turn), lean, np.sin(turn)]
    qpos = np.c_[rng.uniform(-0.1, 0.1, (count, 2)), np.full(count, lift), quat]
    qpos[:, 3:] /= np.linalg.norm(qpos[:, 3:], axis=1, keepdims=True)
    found = of_ours(m, contacts(m, fphys.init(m, count, qpos=qpos)))
    theirs = of_mujoco(m.structure.source, qpos)
    pairs: list[Any] = [(a.get((0, 1)), b.get((0, 1))) for a, b in zip(found, theirs, strict=True)]
    pairs = [(a, b) for a, b in pairs if b is not None and len(b.pos) == 4]
    assert len(pairs) > 0.8 * count
    assert np.mean([a is not None and len(a.pos) == 4 and a.errors(b).max() < 1e-8 for a, b in pairs]) >= 0.98


def test_a_side_that_lacks_a_vertex_of_its_triangles_loads():
    """Of a disc so flat that MuJoCo merges most of it into two sides."""
    at = np.random.default_rng(0).normal(size=(400, 3))
    at = at / np.linalg.norm(at, axis=1, keepdims=True) * [0.03, 0.04, 5e-5]
    vertex = " ".join(f"{x:.9f}" for x in at.ravel())
    model = fphys.load(f"""<mujoco><asset><mesh name="disc" vertex="{vertex}"/></asset><worldbody>
      <geom type="plane" size="1 1 1"/><body><freejoint/><geom type="mesh" mesh="disc"/></body></worldbody></mujoco>""")
    assert model.structure.hull.vert.shape == (400, 3)
