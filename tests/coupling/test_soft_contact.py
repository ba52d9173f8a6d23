"""Bodies and soft solids of finite elements that meet in steps as long as the bodies' own."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import coupling
from fphys.deformables import fem, mesh
from fphys.particles import boundary, mpm
from fphys.testing import check_grads

from .scenes import grid

STEP = 0.01

BALL = """<mujoco><option timestep="0.01" gravity="0 0 -9.81"/><worldbody>
<body name="ball" pos="0.03 0.02 {height}"><freejoint/>
<geom name="ball" type="sphere" size="0.1" density="{density}" friction="{friction}"/></body></worldbody></mujoco>"""

FINGER = """<body name="{name}" pos="{x} 0 0"><joint type="slide" axis="{side} 0 0"/>
<geom name="{name}" type="box" size="0.01 0.04 0.04" mass="0.01" friction="1"/></body>"""

GRIPPER = f"""<mujoco><option timestep="0.01" gravity="0 0 -9.81"/><worldbody>
<body name="hand" pos="0 0 0"><joint name="lift" type="slide" axis="0 0 1"/>
<geom size="0.01" pos="0 0 0.2" mass="0.1" contype="0" conaffinity="0"/>
{FINGER.format(name="left", x=-0.041, side=1)}{FINGER.format(name="right", x=0.041, side=-1)}</body>
</worldbody></mujoco>"""


BOX = """<mujoco><option timestep="0.01" gravity="0 0 0"/><worldbody>
<body name="box" pos="0.03 0.02 0.0995"><freejoint/><geom type="box" size="0.1 0.12 0.1" mass="1" friction="1"/></body>
</worldbody></mujoco>"""


def block(dtype: Any, **given: Any) -> tuple[fem.Params, fem.State]:
    """Rubber 0.4 m wide and 0.2 m high, its top at z = 0, held at its bottom."""
    body = mesh.box((4, 4, 2), (0.4, 0.4, 0.2))
    x = body.vertices - [0.2, 0.2, 0.2]
    held = np.flatnonzero(x[:, 2] < -0.199)
    params = fem.Params(body, fem.NeoHookean(1000.0, 1e5, 0.3), STEP, (0.0, 0.0, -9.81), pinned=held, **given)
    return params, fem.init(params, jnp.asarray(x, dtype)[None])


def on_block(
    density: float, height: float = 0.1, friction: float = 0.3, dtype: Any = jnp.float64, **given: Any
) -> tuple[Any, ...]:
    """A ball above the block: model, its state, medium and matter."""
    model = fphys.load(BALL.format(height=height, density=density, friction=friction), dtype=dtype)
    params, matter = block(dtype, **given)
    return model, fphys.init(model, 1), coupling.FEM(params, ("ball",)), matter


def gripper(**given: Any) -> tuple[Any, ...]:
    """Two fingers of 10 g on a sliding hand, and a soft cube of 0.2 kg between them."""
    model = fphys.load(GRIPPER, dtype=jnp.float64)
    body = mesh.box((3, 3, 3), (0.06, 0.06, 0.06))
    params = fem.Params(body, fem.NeoHookean(1000.0, 2e4, 0.3), STEP, (0.0, 0.0, -9.81), **given)
    matter = fem.init(params, jnp.asarray(body.vertices - 0.03)[None])
    return model, fphys.init(model, 1), coupling.FEM(params, ("left", "right")), matter


def rolled(scene: tuple[Any, ...], steps: int, force: Any = None) -> tuple[Any, Any]:
    """States of body and matter some steps later, and all of the body's positions."""
    model, state, medium, matter = scene

    def advance(now: Any, _: None) -> tuple[Any, Any]:
        state, (matter,) = coupling.step(model, now[0], (medium,), (now[1],), substeps=1, force=force)
        return (state, matter), (state.qpos[0], matter.x[0].mean(0))

    return jax.jit(lambda now: jax.lax.scan(advance, now, length=steps))((state, matter))


WEIGHT = (0.12 + 0.06**3 * 1000) * 9.81
"""Of the gripper and the cube [N]."""


@pytest.mark.parametrize("density", [1000.0, pytest.param(30.0, marks=pytest.mark.slow), 1.0])
def test_balls_of_any_density_come_to_rest(density: float):
    """Down to a thousandth of the solid's, at steps of 10 ms; staggered, the lighter ones are thrown metres high."""
    (state, matter), (place, _) = rolled(on_block(density, 0.105, friction=0.0), 100)
    assert not np.asarray(matter.status).any() and not np.asarray(state.status).any()
    height = np.asarray(place)[:, 2]
    assert height.min() > 0.07 and height.max() < 0.105
    assert np.abs(np.asarray(state.qvel)[0, 2]) < 1e-3


def test_the_solid_feels_the_motion_that_the_body_has():
    """A ball of 3 % of the solid's density that spins: among colliders of its final twist the step is the same."""
    model, state, medium, matter = on_block(30.0, 0.097)
    state = state.replace(qvel=jnp.asarray([[0.3, 0.1, -0.5, 1.0, 2.0, 0.5]]))
    end, (after,) = coupling.step(model, state, (medium,), (matter,), substeps=1)
    turn, spin = np.asarray(end.qvel[0, :3]), np.asarray(end.qvel[0, 3:])  # at first the ball's axes are the world's
    shape = boundary.sphere(state.qpos[0, :3], 0.1, friction=0.3, velocity=turn, spin=spin)
    again = fem.step(medium.params, matter, colliders=shape)
    assert not np.asarray(after.status).any()
    np.testing.assert_allclose(np.asarray(again.x), np.asarray(after.x), atol=1e-11)
    free = fphys.step(model, state, jnp.zeros((1, 0)))
    assert np.abs(np.asarray(free.qvel - end.qvel)).max() > 0.3  # it is in contact
    wrench = fem.reactions(medium.params, matter, after, shape)
    given = np.asarray(end.qvel - free.qvel)[0, :3] * float(model.body.mass[0, 1])
    np.testing.assert_allclose(given, STEP * np.asarray(wrench)[0, 0, :3], atol=1e-9)  # of 0.05


@pytest.mark.parametrize("pairs", [0, 50])
def test_light_fingers_hold_a_soft_cube(pairs: int):
    """Fingers of 10 g press a cube of 0.2 kg with 3 N each, and carry it by friction; also one that may meet itself."""
    force = jnp.asarray([[WEIGHT, 3.0, 3.0]])
    (state, matter), (_, middle) = rolled(gripper(contact=fem.Contact(pairs=pairs)), 30, force)
    assert not np.asarray(matter.status).any() and not np.asarray(state.status).any()
    middle = np.asarray(middle)
    assert np.abs(middle[-1] - [0, 0, -0.001]).max() < 3e-4
    assert np.abs(middle[-1] - middle[-10]).max() < 2e-5  # friction creeps where its speed is below fem.Contact.slip
    assert np.abs(np.asarray(state.qvel)).max() < 1e-3


def test_fingers_that_press_too_little_let_it_slide():
    """With half of the force that holds it, m g / (2 mu), a cube falls at half of g: Coulomb's law."""
    weight = 0.06**3 * 1000 * 9.81
    force = jnp.asarray([[WEIGHT - weight / 2, weight / 4, weight / 4]])  # the hand stays
    (_, matter), (hand, middle) = rolled(gripper(), 12, force)
    assert not np.asarray(matter.status).any()
    speed = np.diff(np.asarray(middle)[:, 2]) / STEP
    np.testing.assert_allclose((speed[-1] - speed[0]) / (len(speed) - 1) / STEP, -9.81 / 2, rtol=0.02)
    assert np.abs(np.diff(np.asarray(hand)[:, 0]) / STEP).max() < 0.1


PLATE = """<mujoco><option timestep="{step}" gravity="0 0 -9.81"/><worldbody>{floor}<body name="plate">{joint}
<geom name="plate" type="box" size="0.1 0.1 0.01" mass="0.01"/></body></worldbody>{rest}</mujoco>"""

SLIDE = '<joint name="up" type="slide" axis="0 0 1" {}/>'

HELD = {
    "limit": {"joint": SLIDE.format('range="0 1" limited="true"')},
    "equality": {"joint": SLIDE.format(""), "rest": '<equality><joint joint1="up" polycoef="0 0 0 0 0"/></equality>'},
    "weld": {"joint": "<freejoint/>", "rest": '<equality><weld body1="plate"/></equality>'},
    "floor": {"joint": "<freejoint/>", "floor": '<geom type="plane" size="1 1 1" pos="0 0 -0.01"/>'},
}


def on_plate(held: str, medium: str) -> tuple[Any, ...]:
    """A soft cube of 0.2 kg on a plate of 10 g that something holds, and how many substeps it takes."""
    model = fphys.load(PLATE.format(**{"step": STEP, "floor": "", "rest": ""} | HELD[held]), dtype=jnp.float64)
    if medium == "fem":
        body = mesh.box((2, 2, 2), (0.06, 0.06, 0.06))
        soft = fem.Params(body, fem.NeoHookean(1000.0, 2e4, 0.3), STEP, (0.0, 0.0, -9.81))
        matter = fem.init(soft, jnp.asarray(body.vertices - [0.03, 0.03, -0.0105])[None])
        return model, fphys.init(model, 1), coupling.FEM(soft, ("plate",)), matter, 1
    params = mpm.Params(
        mpm.NeoHookean(1000.0, 2e4, 0.3),
        STEP / 20,
        (0.0, 0.0, -9.81),
        cell=0.02,
        shape=(12, 12, 12),
        lower=(-0.12, -0.12, -0.08),
    )
    x = grid((-0.03, -0.03, 0.01), (0.03, 0.03, 0.07), 0.01)
    return model, fphys.init(model, 1), coupling.MPM(params, ("plate",)), mpm.init(params, jnp.asarray(x)[None]), 20


@pytest.mark.parametrize(("held", "medium"), [*((held, "fem") for held in HELD), ("limit", "mpm")])
def test_a_light_body_that_is_held_carries(held: str, medium: str):
    """Twenty times its weight, by what holds it, as soft as MuJoCo has it; alone it would fall away below the cube."""
    model, state, soft, matter, substeps = on_plate(held, medium)

    def advance(now: Any, _: None) -> tuple[Any, Any]:
        state, (cube,) = coupling.step(model, now[0], (soft,), (now[1],), substeps=substeps)
        return (state, cube), (cube.x[0, :, 2].min(), fphys.kinematics(model, state).body.pos[0, 1, 2])

    (state, matter), seen = jax.jit(lambda now: jax.lax.scan(advance, now, length=40))((state, matter))
    bottom, plate = np.asarray(seen)
    assert not np.asarray(matter.status).any() and not np.asarray(state.status).any()
    assert plate.min() > -0.006 and bottom.min() > 0.004
    gap = 0.0115 if medium == "fem" else 0.0215  # particles are half a cell and half a spacing away
    assert 0.01 < np.abs(bottom - plate)[-5:].max() < gap


def test_gradients_where_a_limit_holds_the_body():
    """By its mass, and by the cube's density and stiffness: what its limit lets it yield depends on the mass, too."""
    model, state, soft, matter, _ = on_plate("limit", "fem")

    def run(mass: Any, density: Any, young: Any) -> Any:
        params = soft.params.replace(material=fem.NeoHookean(1000.0 * density, 2e4 * young, 0.3))
        heavy = model.replace({"body.mass": 10 * mass * model.body.mass})
        (end, cube), _ = rolled((heavy, state, soft.replace(params=params), matter), 8)
        return end.qpos, cube.x

    args = jnp.ones((1, 1)), jnp.ones(1), jnp.ones(1)
    check_grads(jax.jit(run), args, tol=1e-6, steps=(1e-4, 1e-5, 1e-3))


def test_an_unfinished_solve_says_how_far_it_was():
    """A box that turns by 4 rad in a step: its twist is not found, but a step among colliders of the last one is."""
    model = fphys.load(BOX, dtype=jnp.float64)
    body = mesh.box((4, 4, 2), (0.4, 0.4, 0.2))
    params = fem.Params(body, fem.NeoHookean(1000.0, 1e5, 0.3), STEP)
    matter = fem.init(params, jnp.asarray(body.vertices - [0.2, 0.2, 0.2])[None])
    state = fphys.init(model, 1).replace(qvel=jnp.asarray([[0.0, 0.0, -0.5, 0.0, 0.0, 400.0]]))
    _, (after,) = coupling.step(model, state, (coupling.FEM(params, (0,)),), (matter,), substeps=1)
    assert np.asarray(after.status) == int(fphys.Status.UNCONVERGED) and float(after.residual[0]) > 1e-6


def test_in_single_precision():
    given = on_block(10.0, 0.1, dtype=jnp.float32)
    (state, matter), (place, _) = rolled(given, 50)
    assert not np.asarray(matter.status).any()
    _, (exact, _) = rolled(on_block(10.0, 0.1), 50)
    np.testing.assert_allclose(np.asarray(place)[:10], np.asarray(exact)[:10], atol=1e-4)
    assert state.qpos.dtype == np.float32


@pytest.mark.parametrize(("mass", "bound"), [(0.01, 4e-3), (0.001, 2e-2)])
def test_light_bodies_in_single_precision(mass: float, bound: float):
    """Balls of 10 and 1 g fall on elements of a kilogramme: their velocities are those of float64, and stay so.

    Twice what rounding makes; 65 and 210 mm/s where the iteration ends as soon as the solid is balanced.
    """
    density = mass / (4 / 3 * np.pi * 0.1**3)
    fallen = {}
    for dtype in (jnp.float32, jnp.float64):
        (_, matter), (place, _) = rolled(on_block(density, 0.15, dtype=dtype), 80)
        assert not np.asarray(matter.status).any()
        fallen[dtype] = np.diff(np.asarray(place, np.float64)[:, :3], axis=0) / STEP
    wrong = np.abs(fallen[jnp.float32] - fallen[jnp.float64]).max(1)
    assert wrong.max() < bound and wrong[-20:].max() < 1e-3


def test_a_disk_rests_on_a_strip():
    """In the plane, where a medium of two coordinates meets a body of six."""
    xml = BALL.format(height=0.0, density=20.0, friction=0.3).replace('pos="0.03 0.02 0.0"', 'pos="0.03 0.105 0"')
    model = fphys.load(xml.replace("0 0 -9.81", "0 -9.81 0"), dtype=jnp.float64)
    body = mesh.box((8, 4), (0.4, 0.2))
    x = body.vertices - [0.2, 0.2]
    params = fem.Params(
        body,
        fem.NeoHookean(1000.0, 1e5, 0.3),
        STEP,
        (0.0, -9.81),
        pinned=np.flatnonzero(x[:, 1] < -0.199),
        stiffness_damping=0.02,
    )
    scene = model, fphys.init(model, 1), coupling.FEM(params, (0,)), fem.init(params, jnp.asarray(x)[None])
    (state, matter), (place, _) = rolled(scene, 60)
    assert not np.asarray(matter.status).any()
    height = np.asarray(place)[:, 1]
    assert height.min() > 0.08 and height.max() < 0.106
    np.testing.assert_allclose(np.asarray(state.qpos)[0, 2], 0.0, atol=1e-9)


def test_gradients_of_light_bodies(full: bool):
    """By both sides' numbers, through steps in contact in which staggered bodies would be thrown away."""
    model, state, medium, matter = on_block(10.0, 0.097)

    def run(mass: Any, friction: Any, qvel: Any, v: Any, young: Any) -> Any:
        of = model.replace({"body.mass": mass, "geom.friction": model.geom.friction * friction})
        params = medium.params.replace(material=fem.NeoHookean(1000.0, 1e5 * young, 0.3))
        scene = of, state.replace(qvel=qvel), medium.replace(params=params), matter.replace(v=v)
        (body, rubber), _ = rolled(scene, 3)
        return body.qpos, body.qvel, rubber.x

    qvel = jnp.asarray([[0.3, 0.1, -0.5, 1.0, 2.0, 0.5]])
    args = model.body.mass, jnp.ones((1, 1, 1)), qvel, matter.v, jnp.ones(1)
    check_grads(jax.jit(run), args, tol=1e-5, directions=8 if full else 1, steps=(1e-3, 1e-4, 1e-5))


def test_worlds_do_not_touch():
    """A world whose ball is not finite, and one far from contact: the others keep their bits."""
    model, state, medium, matter = on_block(30.0, 0.1)
    wide = lambda tree, n: jax.tree.map(lambda a: jnp.repeat(a, n, 0), tree)  # noqa: E731
    step = jax.jit(lambda s, m: coupling.step(model, s, (medium,), (m,), substeps=1))
    spoilt = wide(state, 3)
    spoilt = spoilt.replace(qvel=spoilt.qvel.at[1, 2].set(jnp.nan), qpos=spoilt.qpos.at[2, 2].set(1.0))
    good = wide(state, 3)
    for _ in range(3):
        spoilt, (rubber,) = step(spoilt, wide(matter, 3))
        good, (other,) = step(good, wide(matter, 3))
    np.testing.assert_array_equal(np.asarray(rubber.x[0]), np.asarray(other.x[0]))
    np.testing.assert_array_equal(np.asarray(spoilt.qpos[0]), np.asarray(good.qpos[0]))
    assert np.asarray(spoilt.status)[1] and not np.asarray(spoilt.status)[[0, 2]].any()
