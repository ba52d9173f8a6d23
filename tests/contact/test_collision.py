"""Which contacts exist, and their distance, position and frame: against MuJoCo C, and their gradients."""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.errors import UnsupportedError
from fphys.model import hulls
from fphys.rigid.collide import collision
from fphys.testing import check_transforms

from .collision_scenes import CONVEX, KINDS, kinds, model, of_mujoco, of_ours, parity, poses, square_poses, stone, text

NAMES = ["-".join(kind) for kind in KINDS]
SEARCHES = (("sphere", "mesh"),)
"""Kinds whose contacts MuJoCo finds by a search, to a tolerance, and we by going through the hull."""
SEARCHED = (1e-8, 1e-6, 1e-6)
"""Errors of its distance, position and frame."""
CURVED = (1e-9, 2e-6, 5e-5)
"""The same where MuJoCo follows a curved surface by a polytope, and we solve for the normal."""
contacts = jax.jit(collision.contacts)


def state_of(m: Any, qpos: np.ndarray) -> Any:
    return fphys.init(m, len(qpos), qpos=qpos.astype(m.qpos0.dtype))


@functools.cache
def random_parity(full: bool) -> Any:
    qpos = poses(5000 if full else 1000, seed=0)
    return parity(model(), qpos, contacts(model(), state_of(model(), qpos)))


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_random_poses(kind: Any, full: bool):
    """Both evaluate the same formulas: 1e-9 leaves room for nearly parallel axes, 1e-12 is typical."""
    found = random_parity(full)[kind]
    assert found.contacts > 150
    assert found.miscounted == []
    bar = CURVED if kind in CONVEX else SEARCHED if kind in SEARCHES else 1e-9
    assert (found.errors.max(axis=0) < bar).all()


def test_two_rims_keep_the_normal_that_was_found():
    """Where it is sought again, from the middle of its patch, Newton's method went 27 cm deeper."""
    qpos = poses(5000, seed=0)[4284:4285]
    found = parity(model(), qpos, contacts(model(), state_of(model(), qpos)))["cylinder", "cylinder"]
    assert found.contacts == 1
    assert (found.errors.max(axis=0) < CURVED).all()


def test_hulls_touch_along_the_triangles_of_a_side_that_is_nearly_flat(monkeypatch: pytest.MonkeyPatch):
    """MuJoCo names triangles up to 1e-3 rad apart one side: along its normal these two would lie 2e-5 m off."""
    qpos = poses(5000, seed=0)[[2596, 2524]]
    errors = []
    for slack in (hulls._FLAT, 1.0):
        monkeypatch.setattr(hulls, "_FLAT", slack)
        m = fphys.load(text(False))
        errors.append(parity(m, qpos, contacts(m, state_of(m, qpos)))["mesh", "mesh"].errors[:, 0])
    assert (errors[0] < 1e-11).all() and (errors[1] > 1e-5).all()


@pytest.mark.parametrize("corners", [5, 6, 8, 12])
def test_prisms_on_a_plane_keep_the_corners_that_mujoco_keeps(corners: int):
    """Pressed in and tilted a little: sides of more than four corners, and a vertex 30 um below their plane."""
    angle = 2 * np.pi * np.arange(corners) / corners + 0.1
    rim = np.stack([0.1 * np.cos(angle), 0.13 * np.sin(angle), np.full(corners, 0.05)], -1)
    vertex = np.concatenate([rim, rim * [1, 1, -1], [[0.01, 0.02, -0.05003]]])
    text = " ".join(f"{x:.8f}" for x in vertex.ravel())
    m = fphys.load(
        f'<mujoco><asset><mesh name="prism" vertex="{text}"/></asset><worldbody><geom type="plane" size="5 5 1"/>'
        '<body><freejoint/><geom type="mesh" mesh="prism"/></body></worldbody></mujoco>'
    )
    rng = np.random.default_rng(corners)
    lean = np.concatenate([np.ones((300, 1)), rng.normal(size=(300, 2)) * 0.005, rng.normal(size=(300, 1))], 1)
    low = np.tile([0, 0, 0.0495], (300, 1))
    qpos = np.concatenate([low, lean / np.linalg.norm(lean, axis=1, keepdims=True)], 1)
    ours, theirs = of_ours(m, contacts(m, state_of(m, qpos))), of_mujoco(m.structure.source, qpos)
    counts = {len(b[0, 1].pos) for b in theirs if b}
    assert {4} < counts
    for a, b in zip(ours, theirs, strict=True):
        assert a.keys() == b.keys()
        for pair in a:
            assert len(a[pair].pos) == len(b[pair].pos) and a[pair].errors(b[pair]).max() < 1e-7


def test_a_normal_that_could_be_any_has_no_derivative():
    """The centre of a round ellipsoid on a capsule's axis: the derivative was 1e10, of a shared size as well."""
    geoms = ('type="capsule" size=".05 .1"', 'type="ellipsoid" size=".1 .1 .1"')
    bodies = "".join(f"<body><freejoint/><geom {geom}/></body>" for geom in geoms)
    m = fphys.load(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")
    qpos = jnp.array([[0, 0, 0, 1, 0, 0, 0, 0, 0, 0.1, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0, 0, 0.14, 0, 0, 1, 0, 0, 0.0]])

    def total(qpos: Any, size: Any) -> Any:
        state = fphys.init(m, 2).replace(qpos=qpos, qvel=jnp.full((2, 12), 0.1))
        return (fphys.step(m.replace({"geom.size": size}), state).qvel @ jnp.arange(1.0, 13)).sum()

    by_qpos, by_size = jax.jit(jax.grad(total, (0, 1)))(qpos, m.geom.size)
    assert 0 < float(jnp.abs(by_qpos[0]).max()) < 1e4 and 0 < float(jnp.abs(by_size).max()) < 1e3


@functools.cache
def square_parity() -> Any:
    qpos = square_poses()
    return parity(model(True), qpos, contacts(model(True), state_of(model(True), qpos)))


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_parallel_aligned_coincident_and_contained(kind: Any):
    """Counts and distances. Positions may differ where MuJoCo's own choice hangs on a rounding error."""
    found = square_parity()[kind]
    assert found.contacts >= (35 if kind in CONVEX else 40)
    assert found.miscounted == []
    # MuJoCo's cylinder rounds its tilt of 2e-8; on one axis with another it is 3e-5 off the sum of the radii
    assert found.errors[:, 0].max() < (5e-5 if kind in CONVEX else 1e-8)


def test_square_poses_give_finite_frames_and_gradients():
    m = model(True)
    state = state_of(m, square_poses())
    found = contacts(m, state)

    def total(qpos: Any, size: Any) -> Any:
        changed = dataclasses.replace(m, geom=dataclasses.replace(m.geom, size=size))
        c = collision.contacts(changed, state.replace(qpos=qpos), found)
        return c.distance.sum() + c.pos.sum() + c.frame.sum()

    assert all(np.isfinite(x).all() for x in jax.jit(jax.grad(total, (0, 1)))(state.qpos, m.geom.size))
    frame = np.asarray(found.frame)[np.asarray(found.pair) >= 0]
    np.testing.assert_allclose(frame @ frame.swapaxes(1, 2), np.broadcast_to(np.eye(3), frame.shape), atol=1e-12)
    np.testing.assert_allclose(np.linalg.det(frame), 1, atol=1e-12)


@functools.cache
def differentiated() -> Any:
    """Geometry at a frozen contact set, its pullback, directions, differences along them, every contact's kind."""
    m = model()
    state = state_of(m, poses(100, seed=1))
    found = contacts(m, state)

    def geometry(qpos: Any, size: Any, pos: Any, quat: Any) -> Any:
        geom = dataclasses.replace(m.geom, size=size, pos=pos, quat=quat)
        c = collision.contacts(dataclasses.replace(m, geom=geom), state.replace(qpos=qpos), found)
        return c.distance, c.pos, c.frame

    args = (state.qpos, m.geom.size, m.geom.pos, m.geom.quat)
    kind = np.where(np.asarray(found.pair) < 0, -1, kinds(m)[np.asarray(found.pair)])
    pull = jax.jit(lambda seeds: jax.vjp(geometry, *args)[1](seeds))
    run, rng, moved = jax.jit(geometry), np.random.default_rng(5), []  # not the seed that made the poses
    ways = [jnp.asarray(rng.normal(size=a.shape)) for a in args]
    for i, way in enumerate(ways):
        sides = [run(*[a + h * way if j == i else a for j, a in enumerate(args)]) for h in (1e-6, -1e-6)]
        moved.append([(np.asarray(a) - np.asarray(b)) / 2e-6 for a, b in zip(*sides, strict=True)])
    return run(*args), pull, ways, moved, kind


@pytest.mark.parametrize("kind", range(len(KINDS)), ids=NAMES)
def test_gradients(kind: int):
    """Of distance, position and frame, tangents included, by pose and size, feature by feature frozen."""
    outs, pull, ways, moved, of = differentiated()
    rng = np.random.default_rng([5, kind])
    own = of == kind
    assert own.sum() > 15
    for o, out in enumerate(outs):
        weight = rng.normal(size=out.shape) * own.reshape(own.shape + (1,) * (out.ndim - 2))
        seeds = tuple(jnp.asarray(weight) if i == o else jnp.zeros_like(x) for i, x in enumerate(outs))
        for i, (grad, way) in enumerate(zip(pull(seeds), ways, strict=True)):
            expected = float((weight * moved[i][o]).sum())
            scale = max(abs(expected), float(np.abs(weight * moved[i][o]).max()), 1e-3)
            assert abs(float((grad * way).sum()) - expected) < 1e-6 * scale, (o, i)


@pytest.mark.parametrize("centred", [False, True], ids=["askew", "square"])
def test_float32_finds_the_same_contacts(centred: bool):
    qpos = square_poses() if centred else poses(500, seed=2)
    double = contacts(model(centred), state_of(model(centred), qpos))
    single = contacts(model(centred, "float32"), state_of(model(centred, "float32"), qpos))
    deepest = []
    for c in (double, single):
        pair, distance = np.asarray(c.pair), np.asarray(c.distance, np.float64)
        assert np.isfinite(distance).all() and np.isfinite(c.frame).all()
        deep = np.zeros((len(pair), len(KINDS)))
        np.minimum.at(deep, (np.arange(len(pair))[:, None], np.maximum(pair, 0)), np.where(pair < 0, 0, distance))
        deepest.append(deep)
    searched = np.array([kind in CONVEX for kind in KINDS])  # to 1e-5 of the size, in float32
    np.testing.assert_allclose(deepest[1][:, ~searched], deepest[0][:, ~searched], atol=2e-6)
    np.testing.assert_allclose(deepest[1][:, searched], deepest[0][:, searched], atol=2e-5)


def test_what_does_not_fit_is_dropped_in_order():
    m = model()
    state = state_of(m, poses(50, seed=3))
    full = contacts(m, state)
    few = contacts(m, state.replace(max_contacts=5))
    again = contacts(m, state.replace(max_contacts=5))
    assert (np.asarray(full.pair) >= 0).sum(1).max() > 5
    for x, y, z in zip(full, few, again, strict=True):
        np.testing.assert_array_equal(x[:, :5], y)
        np.testing.assert_array_equal(y, z)


def test_a_can_meets_a_hull_of_thousands_of_parts():
    """Its 12,000 pairs of parts and their normals fit an integer, and it touches where it does in MuJoCo."""
    fine = stone("fine", 1, 3000, (0.1, 0.12, 0.1))
    m = fphys.load(
        f'<mujoco><option ccd_tolerance="1e-12" ccd_iterations="500"><flag multiccd="disable"/></option>{fine}'
        '<worldbody><geom type="mesh" mesh="fine"/>'
        '<body><freejoint/><geom type="cylinder" size=".03 .05"/></body></worldbody></mujoco>'
    )
    assert m.structure.hull.parts.max() > 12000
    rng = np.random.default_rng(3)
    way = rng.normal(size=(20, 3))
    way /= np.linalg.norm(way, axis=1, keepdims=True)
    turn = rng.normal(size=(20, 4))
    qpos = np.concatenate([way * 0.13, turn / np.linalg.norm(turn, axis=1, keepdims=True)], 1)
    ours, theirs = of_ours(m, contacts(m, state_of(m, qpos))), of_mujoco(m.structure.source, qpos)
    assert sum(map(bool, theirs)) > 10
    for a, b in zip(ours, theirs, strict=True):
        assert a.keys() == b.keys()
        for pair in a:
            assert (a[pair].errors(b[pair]) < CURVED).all()


def test_hulls_too_fine_are_refused():
    """No integer would name all pairs of their parts."""
    fine = stone("fine", 1, 3000, (0.1, 0.1, 0.1))
    geom = '<geom name="{}" type="mesh" mesh="fine"/>'
    geoms = f"{geom.format('one')}<body><freejoint/>{geom.format('two')}</body>"
    with pytest.raises(UnsupportedError, match=r'"one".*"two".*maxhullvert'):
        fphys.load(f"<mujoco>{fine}<worldbody>{geoms}</worldbody></mujoco>")


def test_a_corner_of_slivers_alone_meets_the_face_that_it_is_nearest_to(monkeypatch: pytest.MonkeyPatch):
    """Triangles without an area have no normal and are left out: here all at the first corner."""
    normals_of = hulls._normals

    def without(vert: Any, corner: Any, corners: Any) -> Any:
        thin = np.add.reduceat(corners == 0, corner[:-1]) > 0 if len(corner) > 1 else np.zeros(0, bool)
        return np.where(thin[:, None], np.nan, normals_of(vert, corner, corners))

    body = '<body><freejoint/><geom type="mesh" mesh="gem"/></body><geom type="plane" size="1 1 1"/>'
    xml = f"<mujoco>{stone('gem', 2, 20, (0.1, 0.1, 0.1))}<worldbody>{body}</worldbody></mujoco>"
    whole = fphys.load(xml).structure.hull
    monkeypatch.setattr(hulls, "_normals", without)
    h = fphys.load(xml).structure.hull
    of = [set(h.faces[a:b].tolist()) for a, b in itertools.pairwise(h.meeting)]
    assert len(of) == len(whole.vert) and all(of), "a corner without a face"
    assert h.parts.max() < whole.parts.max() and len(of[0]) == 1
    around = {int(v) for v in h.neighbour[h.edge[0] : h.edge[1]]}
    (nearest,) = of[0]
    assert around & {int(v) for v in h.corners[h.corner[nearest] : h.corner[nearest + 1]]}, "a face far away"


def test_transforms():
    m = model()

    def geometry(qpos: Any) -> Any:
        c = collision.contacts(m, fphys.init(m, qpos.shape[0], qpos=qpos))
        return c.distance, c.pos, c.frame

    check_transforms(geometry, (jnp.asarray(poses(3, seed=4)),), batches=(3,), max_patterns=2)


@pytest.mark.parametrize(("boxes", "contacts"), [(2, 2 * 4 + 8), (10, 10 * 4 + 10 * 28)])
def test_the_default_capacity_grows_with_the_geoms_not_with_their_pairs(boxes: int, contacts: int):
    """Every box has its four contacts with the plane, and those with its fellows, or 28 if that is less."""
    body = '<body pos="0 0 {}"><freejoint/><geom type="box" size=".1 .1 .1"/></body>'
    stack = "".join(body.format(0.1999 * i) for i in range(boxes))
    m = fphys.load(f'<mujoco><worldbody><geom type="plane" size="1 1 1" pos="0 0 -.1"/>{stack}</worldbody></mujoco>')
    state = fphys.init(m, 1)
    assert (state.max_contacts, state.max_constraints) == (contacts, 4 * contacts)
    assert (np.asarray(collision.contacts(m, state).pair) >= 0).sum() >= 4 * (boxes - 1)


@pytest.mark.parametrize("side", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_block_of_boxes_has_room_for_its_contacts(side: int):
    """Boxes that overlap by half a millimetre with all of their neighbours: 6 faces, 12 edges, 8 corners."""
    body = '<body pos="{} {} {}"><freejoint/><geom type="box" size=".05 .05 .05" mass="1"/></body>'
    at = [0.0995 * (i + 0.5) for i in range(side)]
    block = "".join(body.format(x, y, z) for x in at for y in at for z in at)
    text = f'<mujoco><worldbody><geom type="plane" size="1 1 1"/>{block}</worldbody></mujoco>'
    m, oracle = fphys.load(text), mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(oracle)
    mujoco.mj_forward(oracle, data)
    state = fphys.init(m, 1)
    assert (np.asarray(contacts(m, state).pair) >= 0).sum() == data.ncon > 6 * side**3
    fphys.check(jax.jit(fphys.step)(m, state))


@pytest.mark.parametrize("broken", ["a face's sign", "a clamped end", "the tangents"])
def test_faults_are_noticed(broken: str):
    """What the comparison above rests on: contacts changed on purpose do not pass it."""
    qpos = poses(200, seed=5)
    found = contacts(model(), state_of(model(), qpos))
    pair, feature, distance, pos, frame = (np.array(x) for x in found)
    if broken == "the tangents":
        frame = frame[:, :, [0, 2, 1]]
    else:
        kind = KINDS.index(("box", "box") if broken == "a face's sign" else ("capsule", "capsule"))
        own = (pair >= 0) & (kinds(model())[pair] == kind)
        feature = np.where(own, feature ^ (1 if broken == "a clamped end" else 0), feature)
        feature = np.where(
            own & (feature < 2048) & (broken == "a face's sign"), (feature + 6) % 12 + feature // 12 * 12, feature
        )
        moved = collision.contacts(model(), state_of(model(), qpos), found._replace(feature=jnp.asarray(feature)))
        distance, pos, frame = (np.asarray(x) for x in moved[2:])
    result = parity(model(), qpos, (pair, feature, distance, pos, frame))
    assert max(found.errors.max() for found in result.values()) > 1e-3
