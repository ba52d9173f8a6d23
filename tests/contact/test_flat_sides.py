"""Flat sides of convex geoms on one another: how many contacts they make, and where, against MuJoCo C."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.rigid.collide import collision

from .collision_scenes import of_mujoco, of_ours

LOWER = {
    "box": 'type="box" size="0.5 0.5 0.1"',
    "cylinder": 'type="cylinder" size="0.5 0.1"',
    "mesh": 'type="mesh" mesh="slab"',
}
UPPER = {
    "cylinder": 'type="cylinder" size="0.1 0.2"',
    "capsule": 'type="capsule" size="0.1 0.2"',
    "box": 'type="box" size="0.1 0.1 0.2"',
    "mesh": 'type="mesh" mesh="brick"',
}
PAIRS = [(a, b) for a in LOWER for b in UPPER if (a, b) not in (("box", "box"), ("box", "capsule"))]
CUBE = " ".join(f"{x} {y} {z}" for x in (-1, 1) for y in (-1, 1) for z in (-1, 1))
DEPTH = 1e-3
contacts = jax.jit(collision.contacts)


@functools.cache
def scene(pair: tuple[str, str], dtype: str | None = None) -> Any:
    """The upper geom moves freely; the lower one's top is at height 0."""
    meshes = (
        f'<mesh name="slab" scale=".5 .5 .1" vertex="{CUBE}"/><mesh name="brick" scale=".1 .1 .2" vertex="{CUBE}"/>'
    )
    return fphys.load(
        f'<mujoco><asset>{meshes}</asset><worldbody><geom {LOWER[pair[0]]} pos="0 0 -0.1" margin="0.003"/>'
        f"<body><freejoint/><geom {UPPER[pair[1]]}/></body></worldbody></mujoco>",
        dtype=dtype,
    )


def resting(stands: bool, tilt: float, count: int, reach: float = 0.3) -> np.ndarray:
    """Poses pressed a millimetre in, turned about the vertical at random and tilted by about ``tilt``."""
    rng = np.random.default_rng([int(stands), count])
    yaw, axis = rng.uniform(0, 2 * np.pi, count), rng.normal(size=(count, 3)) * tilt / 2
    turn = np.stack([np.cos(yaw / 2), np.zeros(count), np.zeros(count), np.sin(yaw / 2)], -1)
    lean = np.concatenate([np.ones((count, 1)), axis], -1)
    down = np.array([1.0, 0, 0, 0]) if stands else np.array([1, 1, 0, 0]) / np.sqrt(2)
    quat = product(product(lean, turn), down[None])
    place = np.concatenate([rng.uniform(-reach, reach, (count, 2)), np.full((count, 1), 0.2 if stands else 0.1)], -1)
    return np.concatenate([place - [0, 0, DEPTH], quat / np.linalg.norm(quat, axis=1, keepdims=True)], -1)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of quaternions."""
    w = a[:, :1] * b[:, :1] - (a[:, 1:] * b[:, 1:]).sum(1, keepdims=True)
    return np.concatenate([w, a[:, :1] * b[:, 1:] + b[:, :1] * a[:, 1:] + np.cross(a[:, 1:], b[:, 1:])], 1)


def poses(pair: tuple[str, str], tilts: tuple[float, ...] = (0.0, 1e-4, 1e-3, 1e-2)) -> np.ndarray:
    ways = (False,) if pair[1] == "capsule" or pair == ("cylinder", "cylinder") else (False, True)
    ways = (True,) if pair == ("cylinder", "cylinder") else ways  # see test_a_cylinder_lies_on_another
    return np.concatenate([resting(stands, tilt, 20) for stands in ways for tilt in tilts])


def both(pair: tuple[str, str], qpos: np.ndarray) -> Any:
    m = scene(pair)
    key = tuple(m.structure.geom.pair[0].tolist())
    found = contacts(m, fphys.init(m, len(qpos), qpos=qpos))
    ours, theirs = of_ours(m, found), of_mujoco(m.structure.source, qpos)
    return [(a[key], b[key]) for a, b in zip(ours, theirs, strict=True)]


def area(points: np.ndarray) -> float:
    """Of the triangles that points span, the largest."""
    x = points[:, None, None] - points[None, :, None], points[:, None, None] - points[None, None]
    return float(np.linalg.norm(np.cross(*np.broadcast_arrays(*x)), axis=-1).max())


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_as_many_contacts_with_the_same_normal_on_the_same_plane(pair: Any):
    """Where MuJoCo keeps four of more corners, ours may be others; they span no less, on the same planes."""
    found = both(pair, poses(pair))
    assert [len(a.pos) for a, _ in found] == [len(b.pos) for _, b in found]
    assert max(len(a.pos) for a, _ in found) >= (2 if pair[1] == "capsule" else 4)
    exact = []
    for a, b in found:
        np.testing.assert_allclose(a.frame[0], b.frame[0], atol=1e-6)
        if len(b.pos) == 4:
            assert area(a.pos) > 0.7 * area(b.pos)
        slope = np.linalg.lstsq(np.c_[b.pos, np.ones(len(b.pos))], b.distance, rcond=1e-9)[0]
        if len(b.pos) >= 3 and np.linalg.matrix_rank(b.pos - b.pos[0], tol=1e-3) == 2:
            np.testing.assert_allclose(np.c_[a.pos, np.ones(len(a.pos))] @ slope, a.distance, atol=2e-6)
        exact.append(a.errors(b)[:2].max() < 2e-5)
    assert pair[1] == "cylinder" or np.mean(exact) > 0.6


def test_a_cylinder_lies_on_another():
    """At both ends of its side, whichever geom comes first. MuJoCo 4.0.0 finds them only if the first one lies."""
    qpos = resting(False, 1e-3, 20)
    found = both(("cylinder", "cylinder"), qpos)
    assert {len(a.pos) for a, _ in found} == {2}
    for a, b in found:
        assert np.abs(a.distance - b.distance[0]).min() < 2e-5
        assert np.abs(np.abs(a.frame[:, 2]) - 1).max() < 1e-12


@pytest.mark.parametrize("depth", [2e-3, 1.2e-2, 3e-2])
def test_the_deepest_corner_is_among_them(depth: float):
    """A blunt pyramid on its tip: sides of its base are as level as can be, and not where it is deepest."""
    base = "1 1 -.85 -1 1 -.85 1 -1 -.8 -1 -1 -.8"
    m = fphys.load(
        f'<mujoco><asset><mesh name="tip" scale=".1 .1 .1" vertex="0 0 -1 0 0 1 {base}"/></asset><worldbody>'
        f'<geom {LOWER["box"]} pos="0 0 -0.1"/>'
        '<body><freejoint/><geom type="mesh" mesh="tip"/></body></worldbody></mujoco>'
    )
    qpos = resting(True, 1e-3, 40)
    qpos[:, 2] = 0.1 - depth
    key = tuple(m.structure.geom.pair[0].tolist())
    ours, theirs = of_ours(m, contacts(m, fphys.init(m, 40, qpos=qpos))), of_mujoco(m.structure.source, qpos)
    for a, b in zip(ours, theirs, strict=True):
        assert abs(a[key].distance.min() - b[key].distance.min()) < 1e-9 and a[key].distance.min() < 1e-3 - depth


def test_a_side_that_is_cut_off_at_its_only_point_touches_there_twice():
    """A capsule that leans outwards over an edge: as in MuJoCo."""
    lean = np.linspace(0.02, 0.06, 10)
    turn = np.stack([np.cos(np.pi / 4 + lean / 2), np.zeros(10), np.sin(np.pi / 4 + lean / 2), np.zeros(10)], -1)
    height = 0.1 / np.cos(lean) - DEPTH + 0.05 * np.tan(lean)
    place = np.stack([np.full(10, 0.45), np.linspace(-0.2, 0.2, 10), height], -1)
    for a, b in both(("mesh", "capsule"), np.concatenate([place, turn], 1)):
        assert len(a.pos) == len(b.pos) == 2
        assert np.ptp(a.pos, axis=0).max() < 1e-12 and np.ptp(b.pos, axis=0).max() < 1e-12
        assert np.abs(a.pos - b.pos).max() < 1e-4


@functools.cache
def differentiated(pair: tuple[str, str]) -> Any:
    m = scene(pair)
    qpos = poses(pair, (2e-2,))
    qpos[:, :2] *= 1.6  # over the rim of the lower geom, too
    state = fphys.init(m, len(qpos), qpos=qpos)
    found = contacts(m, state)

    def geometry(qpos: Any, size: Any) -> Any:
        c = collision.contacts(
            dataclasses.replace(m, geom=dataclasses.replace(m.geom, size=size)), state.replace(qpos=qpos), found
        )
        return c.distance, c.pos, c.frame

    return geometry, (state.qpos, m.geom.size), np.asarray(found.pair) >= 0


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_gradients(pair: Any):
    """Of every point of the overlap, its distance and frame, by pose and size, at a frozen contact set."""
    geometry, args, there = differentiated(pair)
    rng = np.random.default_rng(11)
    run = jax.jit(geometry)
    outs, pull = run(*args), jax.jit(lambda seeds: jax.vjp(geometry, *args)[1](seeds))
    assert there.sum() > 20
    for i, a in enumerate(args):
        way = jnp.asarray(rng.normal(size=a.shape))
        sides = [run(*[x + h * way if j == i else x for j, x in enumerate(args)]) for h in (1e-6, -1e-6)]
        for o, out in enumerate(outs):
            weight = rng.normal(size=out.shape) * there.reshape(there.shape + (1,) * (out.ndim - 2))
            seeds = tuple(jnp.asarray(weight) if k == o else jnp.zeros_like(x) for k, x in enumerate(outs))
            slope = (np.asarray(sides[0][o]) - np.asarray(sides[1][o])) / 2e-6 * weight
            scale = max(np.abs(slope).sum(), 1e-3)
            assert abs(float((pull(seeds)[i] * way).sum()) - slope.sum()) < 1e-6 * scale, (o, i)


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_float32_finds_as_many(pair: Any):
    """Where the deepest point is not a matter of rounding."""
    qpos = poses(pair, (1e-3, 1e-2))
    double = contacts(scene(pair), fphys.init(scene(pair), len(qpos), qpos=qpos))
    m = scene(pair, "float32")
    single = contacts(m, fphys.init(m, len(qpos), qpos=qpos.astype("float32")))
    counts = [(np.asarray(c.pair) >= 0).sum(1) for c in (double, single)]
    assert np.isfinite(single.frame).all() and np.isfinite(single.distance).all()
    assert np.mean(counts[0] == counts[1]) > 0.95
    if pair[1] == "cylinder":
        return  # which four of a disc's sixteen corners span most is
    deepest = [np.where(np.asarray(c.pair) < 0, 1, np.asarray(c.distance)).min(1) for c in (double, single)]
    assert np.quantile(np.abs(deepest[0] - deepest[1]), 0.9) < 2e-6


def test_faults_are_noticed():
    """A corner mistaken for the next one does not pass the comparison above."""
    pair = ("mesh", "box")
    m, qpos = scene(pair), poses(pair)
    state = fphys.init(m, len(qpos), qpos=qpos)
    found = contacts(m, state)
    moved = collision.contacts(m, state, found._replace(feature=found.feature + 2 * 5))
    key = tuple(m.structure.geom.pair[0].tolist())
    theirs = of_mujoco(m.structure.source, qpos)
    errors = [a[key].errors(b[key])[:2].max() for a, b in zip(of_ours(m, moved), theirs, strict=True)]
    assert np.median(errors) > 1e-3
