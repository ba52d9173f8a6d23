"""Several contacts of meshes, boxes and cylinders in any pose: how many, where and how deep, against MuJoCo C."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.rigid.collide import collision

from .collision_scenes import of_mujoco, of_ours, stone

CUBE = " ".join(f"{x} {y} {z}" for x in (-1, 1) for y in (-1, 1) for z in (-1, 1))
EXACT = 1e-8
"""A mesh's corners are rounded to float32, its normals are not."""
SEARCHED = 1e-6
"""What MuJoCo's search for a point of a curved side leaves open, at a tolerance of 1e-12."""
contacts = jax.jit(collision.contacts)


def barrel(sides: int) -> str:
    """A mesh of a bulging barrel: its sides are level with one another by a few degrees, and nearly flat."""
    angle = 2 * np.pi * np.arange(sides) / sides
    rings = [(0.09, -0.12), (0.1, -0.05), (0.1, 0.05), (0.09, 0.12)]
    at = [np.stack([r * np.cos(angle), r * np.sin(angle), np.full(sides, z)], -1) for r, z in rings]
    values = " ".join(f"{x:.5f}" for x in np.concatenate(at).ravel())
    return f'<asset><mesh name="barrel" vertex="{values}"/></asset>'


def mesh(name: str, points: Any) -> str:
    values = " ".join(f"{x:.6f}" for x in np.ravel(points))
    return f'<asset><mesh name="{name}" vertex="{values}"/></asset>'


def plate() -> str:
    """Eight corners of which none is level with the others: MuJoCo merges triangles into one side up to 1e-3 rad."""
    angle = 2 * np.pi * (np.arange(8) + 0.3) / 8
    rim = np.stack([0.4 * np.cos(angle), 0.3 * np.sin(angle)], -1)
    height = 0.04 + 3e-5 * np.cos(2 * angle)
    return mesh("plate", [[*x, z] for x, h in zip(rim, height, strict=True) for z in (h, -0.04)])


ASSETS = (
    f'<asset><mesh name="brick" scale=".15 .1 .2" vertex="{CUBE}"/>'
    f'<mesh name="slab" scale=".3 .3 .05" vertex="{CUBE}"/></asset>'
    + stone("gem", 3, 24, (0.12, 0.15, 0.2))
    + stone("fine", 4, 1500, (0.15, 0.15, 0.15))
    + barrel(40)
    + plate()
)
SHAPES = {name: f'type="mesh" mesh="{name}"' for name in ("brick", "slab", "gem", "fine", "barrel", "plate")} | {
    "box": 'type="box" size="0.12 0.1 0.15"',
    "cylinder": 'type="cylinder" size="0.1 0.15"',
    "capsule": 'type="capsule" size="0.08 0.12"',
}
MESHES = [
    ("brick", "slab"),
    ("box", "gem"),
    ("gem", "brick"),
    ("barrel", "gem"),
    ("fine", "slab"),
    ("barrel", "barrel"),
]
ROUND = [("cylinder", "box"), ("cylinder", "slab"), ("capsule", "gem"), ("cylinder", "cylinder")]


@functools.cache
def scene(pair: tuple[str, str], several: bool = True) -> Any:
    """Two geoms, of which the second moves."""
    flag = "" if several else '<flag multiccd="disable"/>'
    return fphys.load(
        f'<mujoco><option ccd_tolerance="1e-12" ccd_iterations="500">{flag}</option>{ASSETS}<worldbody>'
        f"<geom {SHAPES[pair[0]]}/><body><freejoint/><geom {SHAPES[pair[1]]}/></body></worldbody></mujoco>"
    )


@functools.cache
def poses(pair: tuple[str, str], count: int = 60) -> np.ndarray:
    """The second geom on some side of the first, at quarter turns but for a tilt of a few degrees, 1 mm deep."""
    rng, m = np.random.default_rng(len("".join(pair))), scene(pair).structure.source
    d, found = mujoco.MjData(m), []
    quarters = ([1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0])
    while len(found) < count:
        turn, lean = np.array(quarters[rng.integers(3)], float), rng.normal(size=3)
        angle = rng.choice([1e-3, 0.03, 0.1, 1.0])
        tilt = np.r_[1, angle * lean / np.linalg.norm(lean) / 2]
        mujoco.mju_mulQuat(d.qpos[3:7], tilt / np.linalg.norm(tilt), turn / np.linalg.norm(turn))
        way = np.r_[rng.uniform(-0.1, 0.1, 2), 0.5][rng.permutation(3)]
        d.qpos[:3] = way
        ends = np.zeros(6)
        for _ in range(40):  # nearer, until they touch
            mujoco.mj_kinematics(m, d)
            gap = mujoco.mj_geomDistance(m, d, 0, 1, 9.0, ends)
            if gap < 1e-7:
                break
            d.qpos[:3] -= way / np.linalg.norm(way) * gap
        across = ends[3:] - ends[:3]
        if 0 < gap < 1e-4:
            d.qpos[:3] -= across / np.linalg.norm(across) * 1e-3
            found.append(d.qpos.copy())
    return np.stack(found)


def both(pair: tuple[str, str], several: bool = True, change: Any = lambda found: found) -> Any:
    """Ours and MuJoCo's contacts in every pose, and MuJoCo's single ones."""
    m, qpos = scene(pair, several), poses(pair)
    state = fphys.init(m, len(qpos), qpos=qpos)
    found = contacts(m, state)
    moved = collision.contacts(m, state, found._replace(feature=change(found.feature)))
    theirs, alone = (of_mujoco(scene(pair, some).structure.source, qpos) for some in (several, False))
    return [tuple(x.get((0, 1)) for x in row) for row in zip(of_ours(m, moved), theirs, alone, strict=True)]


def agrees(a: Any, b: Any, bar: float) -> bool:
    return a is not None and b is not None and len(a.pos) == len(b.pos) and bool(a.errors(b).max() < bar)


@pytest.mark.parametrize("pair", MESHES, ids="-".join)
def test_meshes_and_boxes_make_mujocos_contacts(pair: Any):
    """As many, as deep, at the same places, along the same normals, in every pose but those in which rounding decides
    between parts that touch alike."""
    found = both(pair)
    assert sum(len(b.pos) > 1 for _, b, _ in found) > 5
    assert np.mean([agrees(a, b, EXACT) for a, b, _ in found]) >= 0.95


@pytest.mark.parametrize("pair", ROUND, ids="-".join)
def test_cylinders_and_capsules_make_mujocos_contacts(pair: Any):
    """Where MuJoCo's contacts lie along the normal of its single contact. Where they do not, it takes a line for one
    normal and the depth along another, up to 90 degrees off: ours are within twenty, and as deep. Of the sixteen
    corners of a disc that lies flat, rounding decides which four MuJoCo keeps; ours span as much."""
    found = both(pair)
    along = np.array([float(b.frame[0, :3] @ c.frame[0, :3]) > 1 - 1e-9 for _, b, c in found])
    same = [agrees(a, b, SEARCHED) or (len(a.pos) == len(b.pos) == 4 and span(a) > 0.99 * span(b)) for a, b, _ in found]
    assert np.mean(along) > 0.4 and np.mean(np.array(same)[along]) >= 0.85
    for a, _, c in found:
        assert a.distance.min() < 0.8 * c.distance[0]
        assert (a.frame[:, :3] @ c.frame[0, :3] > 0.94).all()


def span(a: Any) -> float:
    """Twice the area of the largest quadrilateral of four points."""
    x = a.pos
    return max(
        float(np.linalg.norm(np.cross(x[i] - x[k], x[j] - x[l])))
        for i, k, j, l in ((0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 1, 2))
    )


def test_points_over_corners_lie_on_the_chords_of_a_side_that_is_not_flat():
    pair = ("brick", "plate")
    found = contacts(scene(pair), fphys.init(scene(pair), len(poses(pair)), qpos=poses(pair)))
    kind, errors, theirs = kind_of(pair, found), [], [b for _, b, _ in both(pair)]
    for world, i in zip(*np.nonzero(kind >= 8), strict=True):
        b = theirs[world]
        gap = np.abs(b.pos - np.asarray(found.pos)[world, i]).max(1)
        errors.append((gap + np.abs(b.distance - np.asarray(found.distance)[world, i])).min())
    assert len(errors) > 20 and max(errors) < 1e-12


@pytest.mark.parametrize("pair", [MESHES[2], ROUND[1]], ids="-".join)
def test_multiccd_off_leaves_the_deepest(pair: Any):
    for a, b, _ in both(pair, several=False):
        assert len(a.pos) == len(b.pos) == 1 and abs(a.distance[0] - b.distance[0]) < 1e-9


@pytest.mark.parametrize(("pair", "depth"), [(("brick", "slab"), 0.25), (("cylinder", "box"), 0.2)])
def test_one_geom_in_the_middle_of_another_has_a_contact(pair: Any, depth: float):
    """Several normals are alike: one is chosen, and it is least deep; all is finite, derivatives too."""
    m = scene(pair)
    state = fphys.init(m, 1, qpos=np.array([[0, 0, 0, 1.0, 0, 0, 0]]))
    found = contacts(m, state)
    there = np.asarray(found.pair[0]) >= 0
    assert there.any() and abs(np.asarray(found.distance[0])[there].min() + depth) < 1e-7
    np.testing.assert_allclose(np.linalg.norm(np.asarray(found.frame[0])[there], axis=-1), 1.0, atol=1e-12)
    after = jax.jit(jax.grad(lambda qpos: (fphys.step(m, state.replace(qpos=qpos)).qvel ** 2).sum()))(state.qpos)
    assert np.isfinite(after).all()


def kind_of(pair: tuple[str, str], found: Any) -> np.ndarray:
    """The kind of each contact's feature, as in ``kernels/rigid/collide/overlap.py``."""
    h, (a, b) = scene(pair).structure.hull, scene(pair).structure.geom.pair[0]
    own = {"box": (26, 26), "cylinder": (7, 32), "capsule": (3, 4)}
    sizes = [own.get(pair[g], (h.parts[g], h.names[g])) for g in (a, b)]
    patches = 4096 if "cylinder" in pair else 2
    beyond = np.asarray(found.feature) - sizes[0][0] * sizes[1][0] * patches
    kind = np.where(beyond < 0, 0, beyond // (sizes[0][1] * sizes[1][1]) + 1)
    return np.where(np.asarray(found.pair) < 0, -1, kind)


@functools.cache
def differentiated(pair: tuple[str, str]) -> Any:
    m = scene(pair)
    state = fphys.init(m, len(poses(pair)), qpos=poses(pair))
    found = contacts(m, state)

    def geometry(qpos: Any, size: Any, pos: Any) -> Any:
        geom = dataclasses.replace(m.geom, size=size, pos=pos)
        c = collision.contacts(dataclasses.replace(m, geom=geom), state.replace(qpos=qpos), found)
        return c.distance, c.pos, c.frame

    return geometry, (state.qpos, m.geom.size, m.geom.pos), kind_of(pair, found)


GRADIENTS = [("gem", "brick"), ("barrel", "gem"), ("cylinder", "slab"), ("capsule", "gem"), ("brick", "plate")]


@pytest.mark.parametrize("pair", GRADIENTS, ids="-".join)
def test_gradients(pair: Any):
    """Of every kind of point by itself, its distance and place, by pose and size, at a frozen contact set."""
    geometry, args, kind = differentiated(pair)
    rng = np.random.default_rng(5)
    run = jax.jit(geometry)
    outs, pull = run(*args), jax.jit(lambda seeds: jax.vjp(geometry, *args)[1](seeds))
    for i, a in enumerate(args):
        way = jnp.asarray(rng.normal(size=a.shape))
        sides = [run(*[x + h * way if j == i else x for j, x in enumerate(args)]) for h in (1e-6, -1e-6)]
        for k in set(kind.ravel()) - {-1}:
            seeds = [rng.normal(size=o.shape) * (kind == k).reshape(kind.shape + (1,) * (o.ndim - 2)) for o in outs]
            rates = [(np.asarray(p) - np.asarray(q)) / 2e-6 * w for p, q, w in zip(*sides, seeds, strict=True)]
            scale = max(sum(np.abs(r).sum() for r in rates), 1e-3)
            slope = float((pull(tuple(map(jnp.asarray, seeds)))[i] * way).sum())
            assert abs(slope - sum(r.sum() for r in rates)) < 1e-6 * scale, (k, i)


def test_every_kind_of_point_has_been_differentiated():
    kinds = set(np.concatenate([differentiated(pair)[2].ravel() for pair in GRADIENTS]).tolist())
    assert kinds >= set(range(8)) and max(kinds) > 8


@pytest.mark.parametrize("broken", ["a corner", "a kind"])
def test_faults_are_noticed(broken: str):
    """A corner mistaken for the next one, or the crossing of a side for a corner, does not pass."""
    pair = ("gem", "brick")
    kind, names = differentiated(pair)[2], scene(pair).structure.hull.names
    step, which = (1, kind > 0) if broken == "a corner" else (-int(names.prod()), np.isin(kind, (2, 5, 7)))
    found = both(pair, change=lambda feature: jnp.where(jnp.asarray(which), feature + step, feature))
    several = [agrees(a, b, EXACT) for a, b, _ in found if len(b.pos) > 1]
    assert np.mean(several) < 0.8
