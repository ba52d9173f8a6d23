"""Light bodies between two media: all three find one motion."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import coupling
from fphys.coupling import together
from fphys.coupling.exchange import Pose
from fphys.deformables import fem, mesh, pbd
from fphys.errors import StateError
from fphys.particles import boundary, mpm
from fphys.particles.response import Response
from fphys.testing import check_grads

from .scenes import grid, in_pbd, in_sph

FALL = (0.0, 0.0, -9.81)

PLATE = """<body name="{name}" pos="{x} 0 0.0501">{joints}
<geom name="{name}" type="box" size="0.1 0.1 0.05" mass="{mass}" friction="0.4"/></body>"""

SLIDES = "".join(f'<joint type="slide" axis="{axis}"/>' for axis in ("1 0 0", "0 1 0", "0 0 1"))

PAIRS = [("fem", "fem"), ("mpm", "fem"), ("mpm", "pbd"), ("pbd", "fem")]


def bodies(step: float, *plates: dict[str, Any], dtype: Any = jnp.float64) -> Any:
    given = {"name": "plate", "x": 0, "joints": "<freejoint/>"}
    inside = "".join(PLATE.format(**given | plate) for plate in plates)
    option = f'<option timestep="{step}" gravity="0 0 -9.81"/>'
    return fphys.load(f"<mujoco>{option}<worldbody>{inside}</worldbody></mujoco>", dtype=dtype)


def soft(kind: str, step: float, cells: Any, size: Any, middle: Any, held: bool = False) -> tuple[Any, Any]:
    """A block of rubber of a kind, at its bottom held or not: medium and matter."""
    corner = np.asarray(middle) - np.asarray(size) / 2
    if kind == "mpm":
        room = {"cell": 0.05, "shape": (12, 12, 12), "lower": (-0.3, -0.3, -0.25)}
        params = mpm.Params(mpm.NeoHookean(1000.0, 1e5, 0.3), step, FALL, **room)
        x = grid(corner, corner + size, 0.025)
        return coupling.MPM(params, ("plate",)), mpm.init(params, jnp.asarray(x)[None], volume=0.025**3)
    body = mesh.box(cells, size)
    x, pinned = jnp.asarray(body.vertices + corner)[None], np.flatnonzero(held & (body.vertices[:, 2] < 1e-9))
    if kind == "fem":
        params = fem.Params(body, fem.NeoHookean(1000.0, 1e5, 0.3), step, FALL, pinned=pinned)
        return coupling.FEM(params, ("plate",)), fem.init(params, x)
    params = pbd.Params(body, 1000.0, step, stretch=1e-6, gravity=FALL, pinned=pinned, substeps=1)
    return coupling.PBD(params, ("plate",)), pbd.init(params, x)


def between(below: str, above: str, mass: float = 0.02, **plate: Any) -> tuple[Any, ...]:
    """A plate on a block that the ground holds, with a cube of 1 kg on it: model, state, media, matter, substeps."""
    step, substeps = (0.01, 1) if below == above == "fem" else (0.002, 4)
    model = bodies(step, {"mass": mass, **plate})
    thick = 0.2 if below == "mpm" else 0.1
    lower = soft(below, step / substeps, (4, 4, 2), (0.3, 0.3, thick), (0.0, 0.0, -thick / 2), held=True)
    upper = soft(above, step / substeps, (2, 2, 2), (0.1, 0.1, 0.1), (0.01, -0.01, 0.1515))
    return model, fphys.init(model, 1), (lower[0], upper[0]), (lower[1], upper[1]), substeps


@functools.partial(jax.jit, static_argnums=(4, 5))
def rolled(model: Any, state: Any, media: Any, matter: Any, substeps: int, steps: int) -> tuple[Any, Any]:
    """States some steps later, and heights of the plate's middle and of the last medium's lowest point."""

    def advance(now: Any, _: None) -> tuple[Any, Any]:
        state, matter = coupling.step(model, now[0], media, now[1], substeps=substeps)
        return (state, matter), jnp.stack([state.qpos[0, 2], matter[-1].x[0, :, 2].min()])

    return jax.lax.scan(advance, (state, matter), length=steps)


def calm(after: Any) -> bool:
    return not any(np.asarray(s.status).any() for s in (after[0], *after[1]))


@pytest.mark.parametrize(("below", "above"), PAIRS)
def test_a_light_plate_carries_what_lies_on_it(below: str, above: str):
    """Fifty times its weight. One medium after another let the cube through it."""
    after, seen = rolled(*between(below, above), 30)
    assert calm(after)
    plate, bottom = np.asarray(seen).T
    assert plate.min() > 0.04 and plate.max() < 0.06
    assert (bottom - plate).min() > 0.049


def test_each_medium_feels_the_motion_that_the_plate_has():
    """Among colliders of the plate's final velocity the steps are the same; it takes what both give."""
    model, state, media, matter, _ = between("fem", "fem", 0.05, joints=SLIDES)
    state = state.replace(qvel=jnp.asarray([[0.1, 0.0, -0.5]]))
    end, after = coupling.step(model, state, media, matter, substeps=1)
    shape = boundary.box((0.0, 0.0, 0.0501), (0.1, 0.1, 0.05), friction=0.4, velocity=np.asarray(end.qvel[0]))
    taken = np.zeros(3)
    for medium, before, now in zip(media, matter, after, strict=True):
        again = fem.step(medium.params, before, colliders=shape)
        np.testing.assert_allclose(np.asarray(again.x), np.asarray(now.x), atol=1e-10)
        given = 0.01 * np.asarray(fem.reactions(medium.params, before, now, shape))[0, 0, :3]
        assert np.abs(given).max() > 0.01
        taken = taken + given
    free = fphys.step(model, state, jnp.zeros((1, 0)))
    given = 0.05 * np.asarray(end.qvel - free.qvel)[0]  # of 0.04, and 0.005 where it slides by less than Contact.slip
    np.testing.assert_allclose(given, taken, atol=1e-6)


def test_the_order_of_media_does_not_matter():
    model, state, media, matter, substeps = between("mpm", "fem")
    one, _ = rolled(model, state, media, matter, substeps, 30)
    two, _ = rolled(model, state, media[::-1], matter[::-1], substeps, 30)
    np.testing.assert_allclose(np.asarray(one[0].qpos), np.asarray(two[0].qpos), atol=1e-8)
    np.testing.assert_allclose(np.asarray(one[1][1].x), np.asarray(two[1][0].x), atol=1e-8)


def test_media_of_different_bodies_are_as_alone():
    """A plate on each of two blocks."""
    model = bodies(0.01, {"mass": 0.05}, {"mass": 0.05, "name": "other", "x": 1})
    one, first = soft("fem", 0.01, (4, 4, 2), (0.3, 0.3, 0.1), (0.0, 0.0, -0.05), held=True)
    two, second = soft("fem", 0.01, (3, 3, 2), (0.3, 0.3, 0.1), (1.0, 0.0, -0.05), held=True)
    two, state = two.replace(geoms=("other",)), fphys.init(model, 1)
    both, _ = rolled(model, state, (one, two), (first, second), 1, 3)
    left, _ = rolled(model, state, (one,), (first,), 1, 3)
    right, _ = rolled(model, state, (two,), (second,), 1, 3)
    np.testing.assert_allclose(np.asarray(both[0].qpos)[:, :7], np.asarray(left[0].qpos)[:, :7], atol=1e-10)
    np.testing.assert_allclose(np.asarray(both[0].qpos)[:, 7:], np.asarray(right[0].qpos)[:, 7:], atol=1e-10)
    np.testing.assert_allclose(np.asarray(both[1][1].x), np.asarray(right[1][0].x), atol=1e-10)


@pytest.mark.parametrize(
    ("below", "above"), [pair if pair in PAIRS[::2] else pytest.param(*pair, marks=pytest.mark.slow) for pair in PAIRS]
)
def test_gradients(below: str, above: str, full: bool):
    """By the plate's mass and motion, the block's stiffness and the cube's velocity; finite elements end at 1e-9."""
    model, state, media, matter, substeps = between(below, above, 0.05)

    def run(mass: Any, qvel: Any, young: Any, v: Any) -> Any:
        of, params = model.replace({"body.mass": mass}), media[0].params
        if below == "pbd":
            params = params.replace(stretch=1e-6 * young[0])
        else:
            params = params.replace(material=params.material.replace(young=1e5 * young))
        now = state.replace(qvel=qvel), (media[0].replace(params=params), media[1])
        after, _ = rolled(of, *now, (matter[0], matter[1].replace(v=v)), substeps, 2)
        return after[0].qpos, after[0].qvel, *(m.x for m in after[1])

    qvel = jnp.asarray([[0.1, 0.0, -0.3, 0.3, 0.2, 0.1]])
    args = model.body.mass, qvel, jnp.ones(1), matter[1].v + np.array([[[0.05, 0.0, -0.3]]])
    tol = 5e-5 if "fem" in (below, above) else 1e-5
    check_grads(jax.jit(run), args, tol=tol, directions=4 if full else 1, steps=(1e-3, 1e-4, 1e-5))


@pytest.mark.parametrize("kind", ["mpm", "pbd"])
def test_tangents(kind: str):
    """A plate that slides, sinks and turns: the slope of what it takes is the derivative, friction included."""
    model, state, media, matter, _ = between(kind, "fem")
    twist = jnp.asarray([[[0.3, 0.1, -0.5, 0.2, 0.1, 0.3]]])
    kin = fphys.kinematics(model, state)
    pose = Pose(kin.body.pos[:, 1:], jnp.asarray([[[1.0, 0.0, 0.0, 0.0]]]), twist)

    @jax.jit
    def taken(twist: Any) -> Any:
        response = Response(pose.pos, twist, jnp.zeros((1, 6, 6)))
        _, took, along = media[0].exchange(model, matter[0], pose, response, (1,), None)
        return took, along((0,))[1]

    impulse, slope = taken(twist)
    ahead = [[taken(twist.at[0, 0, i].add(h))[0] for h in (1e-6, -1e-6)] for i in range(6)]
    exact = np.stack([np.asarray(b - a)[0, 0] / 2e-6 for a, b in ahead], 1)
    assert np.abs(np.asarray(impulse)).max() > 0.01
    tol = {"mpm": 1e-9, "pbd": 2e-4}[kind]  # XPBD's plate turns within the step, which bends its tangent
    np.testing.assert_allclose(np.asarray(slope)[0], exact, atol=tol * np.abs(exact).max())


def test_tangents_of_what_hardly_slides():
    """In float32, where the fourth power of the slide's speed is zero: gradients stay finite."""
    params = mpm.Params(mpm.NeoHookean(1000.0, 1e5, 0.3), 5e-4, cell=0.05, shape=(12, 12, 12))
    x = jnp.asarray(grid((0.2, 0.2, 0.1), (0.4, 0.4, 0.3), 0.025), jnp.float32)[None]
    matter = mpm.init(params, x, jnp.broadcast_to(jnp.asarray([1e-11, 0.0, 1e-13], jnp.float32), x.shape))
    shape = boundary.box((0.3, 0.3, 0.36), (0.1, 0.1, 0.06), friction=0.3)
    pos, mobility = jnp.asarray([[[0.3, 0.3, 0.36]]], jnp.float32), jnp.eye(6, dtype=jnp.float32)[None]

    @jax.jit
    @jax.grad
    def slope(twist: Any) -> Any:
        return mpm.exchange(params, matter, (shape,), Response(pos, twist, mobility, (0,)))[1][..., 2].sum()

    found = np.asarray(slope(jnp.zeros((1, 1, 6), jnp.float32)))
    assert np.isfinite(found).all() and found.any()


def test_explicit_media_come_first():
    """A ball in water and on a cloth, which feels it as the water's forces leave it, whatever the order."""
    model, state, (water,), (fluid,), substeps, _ = in_sph()
    _, _, (cloth,), (sheet,), _, _ = in_pbd()
    sheet = sheet.replace(x=sheet.x + np.array([[[0.0, 0.0, -0.108]]]))
    one = coupling.step(model, state, (water, cloth), (fluid, sheet), substeps=substeps)
    two = coupling.step(model, state, (cloth, water), (sheet, fluid), substeps=substeps)
    np.testing.assert_array_equal(np.asarray(one[0].qvel), np.asarray(two[0].qvel))
    np.testing.assert_array_equal(np.asarray(one[1][1].x), np.asarray(two[1][0].x))
    far = sheet.replace(x=sheet.x + 10.0)  # a second cloth, so that both cloths take turns
    three = coupling.step(model, state, (cloth, water, cloth), (sheet, fluid, far), substeps=substeps)
    np.testing.assert_allclose(np.asarray(three[0].qvel), np.asarray(one[0].qvel), atol=1e-9)
    np.testing.assert_allclose(np.asarray(three[1][0].x), np.asarray(one[1][1].x), atol=1e-9)
    dry, _ = coupling.step(model, state, (cloth,), (sheet,), substeps=substeps)
    wet, _ = coupling.step(model, state, (water,), (fluid,), substeps=substeps)
    assert all(np.abs(np.asarray(one[0].qvel - some.qvel)).max() > 1e-3 for some in (dry, wet))


def test_worlds_do_not_touch():
    """A plate that is not finite, and one that takes more turns: the other world keeps its bits."""
    model, state, media, matter, substeps = between("mpm", "pbd")
    wide = lambda tree: jax.tree.map(lambda a: jnp.repeat(a, 3, 0), tree)  # noqa: E731
    start = wide(state)
    fast = np.array([1.0, 0.5, -2.0, 3.0, 2.0, 1.0])
    spoilt = start.replace(qvel=start.qvel.at[1, 2].set(jnp.nan).at[2].set(fast))
    (good, other), _ = rolled(model, start, media, wide(matter), substeps, 12)
    (bad, some), _ = rolled(model, spoilt, media, wide(matter), substeps, 12)
    np.testing.assert_array_equal(np.asarray(bad.qpos[0]), np.asarray(good.qpos[0]))
    np.testing.assert_array_equal(np.asarray(some[1].x[0]), np.asarray(other[1].x[0]))
    assert np.asarray(bad.status)[1] and not np.asarray(bad.status)[[0, 2]].any()


def test_in_single_precision():
    """A plate of a fifth of the cube's mass; lighter ones feel how the depth of contact is rounded."""
    model, state, media, matter, substeps = between("mpm", "pbd", 0.2)
    cast = lambda a: a.astype(np.float32) if getattr(a, "dtype", None) == np.float64 else a  # noqa: E731
    small = functools.partial(jax.tree.map, cast)
    after, seen = rolled(small(model), small(state), small(media), small(matter), substeps, 30)
    _, exact = rolled(model, state, media, matter, substeps, 30)
    assert calm(after) and after[0].qpos.dtype == np.float32
    np.testing.assert_allclose(np.asarray(seen), np.asarray(exact), atol=2e-4)


def test_media_that_do_not_agree_say_so(monkeypatch: pytest.MonkeyPatch):
    """After one turn of each."""
    monkeypatch.setattr(together, "ROUNDS", 1)
    model, state, media, matter, _ = between("fem", "fem", 0.03, joints=SLIDES)
    media = (media[0], media[1].replace(params=media[1].params.replace(iterations=49)))  # compiled for this test alone
    _, after = coupling.step(model, state, media, matter, substeps=1)
    assert [int(m.status[0]) for m in after] == [int(fphys.Status.UNCONVERGED)] * 2
    with pytest.raises(StateError, match="media that push the same bodies"):
        fem.check(media[1].params, after[1])
