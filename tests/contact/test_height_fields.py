"""Height fields: which prisms a geom touches, where, and the gradients, against MuJoCo C.

At a margin of exactly zero MuJoCo 4.0.0 gives boxes depths that are not those along its own normals (those of a margin
of 1e-12 are, and ours); so the field here has a margin.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.errors import UnsupportedError
from fphys.rigid.collide import collision
from fphys.testing import check_grads, check_transforms

from .collision_scenes import of_mujoco, of_ours, stone

ROWS, COLUMNS = 9, 8
SHAPES = {
    "sphere": 'type="sphere" size="0.15"',
    "capsule": 'type="capsule" size="0.08 0.15"',
    "ellipsoid": 'type="ellipsoid" size="0.1 0.15 0.2"',
    "cylinder": 'type="cylinder" size="0.12 0.1"',
    "box": 'type="box" size="0.1 0.15 0.2"',
    "mesh": 'type="mesh" mesh="rock"',
}
QUICK = ("sphere", "box")
EACH = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in SHAPES]
CURVED = ("ellipsoid", "cylinder")
contacts = jax.jit(collision.contacts)


def field(rows: int = ROWS, columns: int = COLUMNS, size: str = "1 0.8 0.15 0.2") -> str:
    heights = np.random.default_rng(0).uniform(size=rows * columns).round(3)
    text = " ".join(map(str, heights))
    return f'<hfield name="hills" nrow="{rows}" ncol="{columns}" size="{size}" elevation="{text}"/>'


def text(geom: str, margin: float = 0.02, hills: str | None = None) -> str:
    search = 'ccd_tolerance="1e-12" ccd_iterations="500"'
    rock = stone("rock", 3, 24, (0.15, 0.1, 0.2))
    return (
        f"<mujoco><option {search}/>{rock}<asset>{hills or field()}</asset><worldbody>"
        f'<geom type="hfield" hfield="hills" margin="{margin}" euler="10 20 0" pos="0.1 0.2 0.3"/>'
        f'<body><freejoint/><geom {geom} pos="0.01 0.02 -0.03" euler="10 0 30"/></body></worldbody></mujoco>'
    )


@functools.cache
def scene(shape: str, dtype: str | None = None) -> Any:
    return fphys.load(text(SHAPES[shape]), dtype=dtype)


def poses(count: int, seed: int) -> np.ndarray:
    """Over the field and beyond its sides, in it, above it and turned at random."""
    rng = np.random.default_rng(seed)
    qpos = rng.normal(size=(count, 7))
    qpos[:, :3] = qpos[:, :3] * [0.5, 0.4, 0.1] + [0.1, 0.2, 0.5]
    qpos[:, 3:] /= np.linalg.norm(qpos[:, 3:], axis=1, keepdims=True)
    return qpos


def start(m: Any, qpos: np.ndarray) -> Any:
    return fphys.init(m, len(qpos), qpos=qpos.astype(m.qpos0.dtype), max_contacts=50)


def compared(m: Any, qpos: np.ndarray, found: Any) -> tuple[int, int, np.ndarray]:
    """MuJoCo's contacts, worlds in which ours are not as many, and errors of distance, position, frame elsewhere."""
    count, wrong, errors = 0, 0, []
    for a, b in zip(of_ours(m, found), of_mujoco(m.structure.source, qpos), strict=True):
        mine, other = a.get((0, 1)), b.get((0, 1))
        count += 0 if other is None else len(other.pos)
        if (0 if mine is None else len(mine.pos)) != (0 if other is None else len(other.pos)):
            wrong += 1
        elif mine is not None and other is not None:
            errors.append(mine.errors(other))
    return count, wrong, np.array(errors)


@pytest.mark.parametrize("shape", EACH)
def test_random_poses(shape: str, full: bool):
    """Distances to rounding; positions and, of curved geoms, normals as MuJoCo's search leaves them."""
    qpos = poses(2000 if full else 200, seed=1)
    count, wrong, errors = compared(scene(shape), qpos, contacts(scene(shape), start(scene(shape), qpos)))
    assert count > 2 * len(qpos)
    assert wrong == 0
    assert (errors.max(axis=0) < (1e-10, 2e-6, 3e-5 if shape in CURVED else 1e-9)).all()


def test_contacts_come_in_mujocos_order():
    m, qpos = scene("sphere"), poses(40, seed=1)
    for a, b in zip(of_ours(m, contacts(m, start(m, qpos))), of_mujoco(m.structure.source, qpos), strict=True):
        assert a.keys() == b.keys()
        for pair in a:
            np.testing.assert_allclose(a[pair].distance, b[pair].distance, atol=1e-10)


@functools.cache
def differentiated(shape: str) -> Any:
    """Geometry at a frozen contact set as a function of pose, the geoms' poses and sizes, and the field."""
    m, qpos = scene(shape), poses(40, seed=2)
    state = start(m, qpos)
    found = contacts(m, state)

    def geometry(qpos: Any, size: Any, pos: Any, quat: Any, extent: Any, heights: Any) -> Any:
        geom = dataclasses.replace(m.geom, size=size, pos=pos, quat=quat)
        hfield = dataclasses.replace(m.hfield, size=extent, data=heights)
        c = collision.contacts(dataclasses.replace(m, geom=geom, hfield=hfield), state.replace(qpos=qpos), found)
        return c.distance, c.pos, c.frame

    args = (state.qpos, m.geom.size, m.geom.pos, m.geom.quat, m.hfield.size, m.hfield.data)
    return geometry, args, np.asarray(found.pair) >= 0


@pytest.mark.parametrize("shape", EACH)
def test_gradients(shape: str):
    """Of distance, position and frame, by pose, size and every height, at a frozen contact set."""
    geometry, args, there = differentiated(shape)
    rng, run = np.random.default_rng(11), jax.jit(geometry)
    outs, pull = run(*args), jax.jit(lambda seeds: jax.vjp(geometry, *args)[1](seeds))
    assert there.sum() > 60
    for i, a in enumerate(args):
        way = jnp.asarray(rng.normal(size=a.shape))
        sides = [run(*[x + h * way if j == i else x for j, x in enumerate(args)]) for h in (1e-6, -1e-6)]
        for o, out in enumerate(outs):
            weight = rng.normal(size=out.shape) * there.reshape(there.shape + (1,) * (out.ndim - 2))
            seeds = tuple(jnp.asarray(weight) if k == o else jnp.zeros_like(x) for k, x in enumerate(outs))
            slope = (np.asarray(sides[0][o]) - np.asarray(sides[1][o])) / 2e-6 * weight
            scale = max(np.abs(slope).sum(), 1e-3)
            assert abs(float((pull(seeds)[i] * way).sum()) - slope.sum()) < 1e-6 * scale, (i, o)


def test_the_gradient_of_a_step_by_the_heights():
    """A ball that lies in a hollow is pushed by the ground that rises under it."""
    m, qpos = scene("sphere"), poses(60, seed=2)
    state = start(m, qpos)
    touching = np.asarray(contacts(m, state).distance).min(1) < -1e-3
    state = start(m, qpos[touching][:2])
    ctrl = jnp.zeros((2, 0))

    def after(heights: Any) -> Any:
        return fphys.step(m.replace({"hfield.data": heights}), state, ctrl).qvel

    check_grads(after, (m.hfield.data,))
    slope = jax.jit(jax.grad(lambda x: after(x)[:, 2].sum()))(m.hfield.data)
    assert float(jnp.abs(slope).max()) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("shape", list(SHAPES))
def test_float32_finds_the_same_contacts(shape: str):
    """As deep in every world; in how many prisms is a matter of rounding where several touch alike."""
    qpos = poses(300, seed=3)
    double = contacts(scene(shape), start(scene(shape), qpos))
    m = scene(shape, "float32")
    single = contacts(m, start(m, qpos))
    assert np.isfinite(single.distance).all() and np.isfinite(single.frame).all()
    deepest = [np.where(np.asarray(c.pair) < 0, 0.02, np.asarray(c.distance, float)).min(1) for c in (double, single)]
    np.testing.assert_allclose(deepest[1], deepest[0], atol=2e-5)
    assert np.mean((np.asarray(double.pair) >= 0).sum(1) == (np.asarray(single.pair) >= 0).sum(1)) > 0.97


def test_transforms_and_fields_of_their_own():
    """Each world's heights are its own where they have a world axis."""
    m, qpos = scene("sphere"), jnp.asarray(poses(3, seed=4))

    def geometry(qpos: Any) -> Any:
        c = collision.contacts(m, fphys.init(m, qpos.shape[0], qpos=qpos))
        return c.distance, c.pos, c.frame

    check_transforms(geometry, (qpos,), batches=(3,), max_patterns=2)
    heights = jnp.stack([m.hfield.data[0], m.hfield.data[0] * 0.5])
    own = m.replace({"hfield.data": heights})
    both = contacts(own, start(own, np.asarray(qpos[:1]).repeat(2, 0)))
    for w in range(2):
        one = m.replace({"hfield.data": heights[w]})
        alone = contacts(one, start(one, np.asarray(qpos[:1])))
        for x, y in zip(both, alone, strict=True):
            np.testing.assert_array_equal(x[w], y[0])


def test_changed_heights_go_back_to_mujoco():
    m, qpos = scene("sphere"), poses(30, seed=5)
    scale = jnp.array([[[1, 1, 1.5, 1]]])
    m = m.replace({"hfield.data": m.hfield.data * 1.7 + 0.2, "hfield.size": m.hfield.size * scale})
    found, most = contacts(m, start(m, qpos)), 0
    for w in range(len(qpos)):
        _, d = fphys.to_mujoco(m, start(m, qpos), w)
        mine = np.asarray(found.distance[w])[np.asarray(found.pair[w]) >= 0]
        np.testing.assert_allclose(mine, d.contact.dist, atol=1e-7)  # MuJoCo holds heights in float32
        most = max(most, len(mine))
    assert most > 5


def test_bad_and_far_poses_touch_nothing():
    m = scene("sphere")
    qpos = poses(4, seed=1)
    qpos[2, :3], qpos[3, 2] = 1e30, -1e30
    alone, state = contacts(m, start(m, qpos[:1])), start(m, qpos)
    found = contacts(m, state.replace(qpos=state.qpos.at[1, 0].set(jnp.nan)))
    np.testing.assert_array_equal(found.pair[0], alone.pair[0])
    assert (np.asarray(found.pair[1:]) < 0).all()


def test_what_does_not_fit_is_dropped_and_said():
    m = scene("box")
    qpos = poses(40, seed=1)
    full, few = (contacts(m, start(m, qpos).replace(max_contacts=n)) for n in (50, 4))
    assert (np.asarray(full.pair) >= 0).sum(1).max() > 4
    for x, y in zip(full, few, strict=True):
        np.testing.assert_array_equal(x[:, :4], y)
    state = fphys.init(m, 1, qpos=qpos[(np.asarray(full.pair) >= 0).sum(1) > 4][:1], max_contacts=4)
    with pytest.raises(fphys.errors.StateError, match="max_contacts"):
        fphys.check(fphys.step(m, state, jnp.zeros((1, 0))))
    assert fphys.init(m, 1).max_contacts == 16


def test_fields_too_fine_are_refused():
    with pytest.raises(UnsupportedError, match=r"prisms.*parts.*cut the height field"):
        fphys.load(text(SHAPES["cylinder"], hills='<hfield name="hills" nrow="400" ncol="400" size="1 1 1 1"/>'))


def test_faults_are_noticed():
    """A neighbour's prism, and the other half of a cell, do not pass the comparison."""
    m, qpos = scene("sphere"), poses(60, seed=1)
    state = start(m, qpos)
    found = contacts(m, state)
    for shift in (1, 2):
        moved = collision.contacts(m, state, found._replace(feature=found.feature + shift * 20 * 2))
        assert np.median(compared(m, qpos, moved)[2][:, :2].max(1)) > 1e-3
