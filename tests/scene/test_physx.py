"""The back end of PhysX, held against theory and against the native one."""

import gc
import importlib
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.errors import MissingDependencyError, StateError, UnsupportedError
from fphys.scene import (
    IMU,
    MJCF,
    URDF,
    ActionSpec,
    Box,
    Capsule,
    Contact,
    Cylinder,
    JointState,
    Mesh,
    ObservationSpec,
    Plane,
    Rigid,
    Scene,
    Sphere,
    Terrain,
)

from ..memory import resident
from .things import ARM

pytestmark = pytest.mark.extra("ovphysx", "ovstage")
HOME = [0.0, -0.7854, 0.0, -2.3562, 0.0, 1.5708, 0.7854]
WEDGE = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
PENDULUM = """<mujoco><worldbody><body pos="0 0 1"><joint name="pivot" axis="0 1 0"/>
  <geom type="sphere" size="0.01" pos="0 0 -0.5" mass="1" contype="0" conaffinity="0"/></body></worldbody></mujoco>"""


def run(world: Any, state: Any, steps: int, control: Any = None) -> Any:
    for _ in range(steps):
        state = world.step(state, control)
    return state


def seen(world: Any, state: Any, *links: str) -> np.ndarray:
    return np.asarray(world.observe(state, ObservationSpec(links=links)))


def test_a_body_falls_as_gravity_says():
    scene = Scene(timestep=0.002)
    scene.add(Sphere(0.1, pos=(0.0, 0.0, 5.0)), name="ball")
    world = scene.build(3, backend="physx")
    state = run(world, world.init(), 200)
    found = seen(world, state, "ball")
    assert found[:, 2] == pytest.approx(np.full(3, 5 - 0.5 * 9.81 * 0.4**2), abs=0.01 * 0.5 * 9.81 * 0.4**2)
    assert found[:, 9] == pytest.approx(np.full(3, -9.81 * 0.4), rel=1e-3)
    assert np.asarray(world.observe(state, ObservationSpec(links=("ball",)))).dtype == np.float32


def test_a_pendulum_has_its_period():
    """A bob of 0.5 m, whose small swings take 2 pi sqrt((l^2 + 2 r^2 / 5) / (g l))."""
    scene = Scene(timestep=0.002)
    scene.add(MJCF(PENDULUM), name="p")
    world = scene.build(1, backend="physx")
    state, angles = world.init([0.05]), []
    for _ in range(1600):
        state = world.step(state)
        angles.append(float(world.observe(state, ObservationSpec("all"))[0, 0]))
    crossed = np.flatnonzero(np.diff(np.sign(angles)) < 0)
    period = 0.002 * (crossed[-1] - crossed[0]) / (len(crossed) - 1)
    assert period == pytest.approx(2 * np.pi * np.sqrt((0.25 + 0.4 * 1e-4) / (9.81 * 0.5)), rel=0.01)


@pytest.mark.parametrize(("off", "slides"), [(-0.02, False), (0.02, True)])
def test_a_block_slides_where_friction_lets_it(off, slides):
    mu = 0.5
    angle = np.arctan(mu) + off
    tilted = (np.cos(angle / 2), 0.0, np.sin(angle / 2), 0.0)
    scene = Scene(timestep=0.002)
    scene.add(Plane(quat=tilted), Rigid(friction=0.1))
    up = np.array([np.sin(angle), 0, np.cos(angle)]) * 0.1
    scene.add(Box((0.4, 0.4, 0.2), pos=tuple(up), quat=tilted), Rigid(friction=mu), name="block")
    world = scene.build(2, backend="physx")
    found = seen(world, run(world, world.init(), 500), "block")
    assert (np.linalg.norm(found[:, :3] - up, axis=1) > 0.01).tolist() == [slides] * 2


def solids(folder: Path) -> Scene:
    (folder / "wedge.obj").write_text(WEDGE)
    scene = Scene(timestep=0.002)
    scene.add(Plane(), Rigid(friction=0.1), name="ground")
    mass = Rigid(mass=(4.0, 10.0), friction=(0.2, 0.9))
    scene.add(Box((0.2, 0.2, 0.2), pos=(1.0, 0.0, 0.3)), mass, name="box")
    scene.add(Sphere(0.15, pos=(4.0, 0.0, 0.2)), name="ball")
    scene.add(Cylinder(0.1, 0.3, pos=(4.0, 2.0, 0.2)), name="can")
    scene.add(Capsule(0.1, 0.2, pos=(2.0, 2.0, 0.3)), name="pill")
    scene.add(Mesh(str(folder / "wedge.obj"), 0.4, pos=(4.0, 4.0, 0.02)), name="wedge")
    scene.add(Box((0.3, 0.3, 0.3), pos=(0.0, -4.0, 0.15), fixed=True), name="post")
    scene.add(Sphere(0.1, pos=(0.0, -4.0, 0.42)), name="on post")
    scene.add(Terrain(np.full((5, 5), 0.3), 1.0, pos=(10.0, 10.0, 0.0)), name="hills")
    scene.add(Sphere(0.2, pos=(12.1, 12.2, 0.52)), name="walker")
    scene.add_sensor(IMU("box", pos=(0.05, 0.0, 0.0)), name="imu")
    scene.add_sensor(Contact("box"), name="touch")
    return scene


def test_things_rest_where_they_should(tmp_path):
    """Heights to a millimetre after 1,000 steps; what the sensors then say; and friction of each world."""
    world = solids(tmp_path).build(2, backend="physx")
    state = run(world, world.init(), 1000)
    world.check(state)
    names = ("box", "ball", "can", "pill", "wedge", "on post", "walker")
    found = seen(world, state, *names).reshape(2, len(names), 13)
    assert found[:, :, 2] == pytest.approx(np.tile([0.1, 0.15, 0.15, 0.2, 0.0, 0.4, 0.5], (2, 1)), abs=1e-3)
    felt = np.asarray(world.observe(state, ObservationSpec(sensors=("imu", "touch"))))
    assert felt[:, :6] == pytest.approx(np.tile([0, 0, 9.81, 0, 0, 0], (2, 1)), abs=0.05)
    assert felt[:, 8] == pytest.approx(9.81 * np.array([4.0, 10.0]), rel=0.01)
    box = next(group for group in world.groups if group.name == "box")
    box.write("LINK_VELOCITY", np.tile(np.array([1.0, 0, 0, 0, 0, 0], np.float32), (2, 1)))
    slid = seen(world, run(world, state, 600), "box")[:, 0] - found[:, 0, 0]
    assert slid == pytest.approx(1 / (2 * 9.81 * np.array([0.2, 0.9])), rel=0.05, abs=0.01)


def moved(scene: Scene, start: Any, steps: int, control: Any, links: tuple[str, ...] = ()) -> list[np.ndarray]:
    """Positions of joints after some steps, or all columns of links, in PhysX and natively."""
    found = []
    for backend in ("physx", "native"):
        world = scene.build(2, backend=backend)
        state, step = world.init(start), world.step if backend == "physx" else jax.jit(world.step)
        for _ in range(steps):
            state = step(state, control)
        spec = ObservationSpec("all", links)
        seen = np.asarray(world.observe(state, spec))
        found.append(seen[:, 2 * len(world.joints) :].copy() if links else seen[:, : len(world.joints)])
    return found


def test_mechanisms_move_as_the_native_back_end_has_it():
    """A double pendulum on a tilted mount, and a floating chain whose bodies have a slide and two hinges each."""
    chain = """<mujoco><worldbody><body name="a" pos="0 0 3"><freejoint/><geom type="box" size=".1 .2 .1" contype="0"
      conaffinity="0"/><body name="b" pos="0 .3 0" euler="10 20 30"><joint name="s" type="slide" axis="1 0 1"/>
      <joint name="h" axis="1 0 0" pos="0 .1 0" damping=".2" ref="30"/><joint name="k" axis="0 0 1" armature=".05"/>
      <geom type="capsule" size=".05 .2" contype="0" conaffinity="0"/><body name="w" pos="0 0 .3"><geom size=".1"
      contype="0" conaffinity="0"/></body></body></body></worldbody></mujoco>"""
    scene = Scene(timestep=0.001)
    scene.add(MJCF(ARM, pos=(0.0, 0.0, 1.0), quat=(0.9, 0.2, 0.3, 0.1)), name="arm")
    scene.add(MJCF(chain), name="chain")
    world = scene.build(1)
    start = [0.6, 0.4, 0.02, 0.7, -0.3]
    control = np.tile([1.0, -0.5, 3.0, 0.4, -0.6], (2, 1))
    assert world.joints == ("arm/shoulder", "arm/elbow", "chain/s", "chain/h", "chain/k")
    physx, native = moved(scene, start, 300, control)
    assert np.abs(native - np.array(start)).min(0).min() > 0.05
    assert physx == pytest.approx(native, abs=0.01 * np.abs(native - np.array(start)).max())
    links = ("arm/lower", "arm/tip", "chain/a", "chain/b", "chain/w")  # in the world, and their velocities
    physx, native = moved(scene, start, 300, control, links)
    assert np.abs(native.reshape(2, 5, 13)[0, :, 7:10]).max(1).min() > 0.3
    for found in (physx, native):  # q and -q are one orientation
        turned = found.reshape(2, 5, 13)[:, :, 3:7]
        turned *= np.sign(turned[:, :, :1])
    assert physx == pytest.approx(native, abs=0.03)


def test_springs_friction_and_limits():
    """Springs rest where both pull; a joint with dry friction stays; a limit holds."""
    xml = """<mujoco><option gravity="0 0 0"/><worldbody>
      <body><joint name="sprung" type="slide" stiffness="50" springref=".2" damping="5"/><geom size=".1" mass="1"
       contype="0" conaffinity="0"/></body>
      <body pos="0 1 0"><joint name="stuck" type="slide" frictionloss="2"/><geom size=".1" mass="1" contype="0"
       conaffinity="0"/></body>
      <body pos="0 2 0"><joint name="stopped" type="slide" limited="true" range="-.1 .3" damping="5"/><geom size=".1"
       mass="1" contype="0" conaffinity="0"/></body></worldbody></mujoco>"""
    scene = Scene(gravity=(0, 0, 0), timestep=0.002)
    scene.add(MJCF(xml), name="m")
    world = scene.build(1, backend="physx", action=ActionSpec("position", ("sprung",), kp=150.0, kd=20.0))
    found = world.observe(run(world, world.init(), 1500), ObservationSpec("all"))[0, :3]
    assert np.asarray(found) == pytest.approx([0.2, 0.0, 0.0], abs=1e-3)
    found = world.observe(run(world, world.init(), 1500, [[0.6]]), ObservationSpec("all"))[0, 0]
    assert float(found) == pytest.approx((50 * 0.2 + 150 * 0.6) / 200, abs=1e-3)
    world.set_action(ActionSpec("torque", ("stuck", "stopped")))
    found = world.observe(run(world, world.init(), 1500, [[1.5, 9.0]]), ObservationSpec("all"))[0, :3]
    assert np.asarray(found) == pytest.approx([0.2, 0.0, 0.3], abs=2e-3)
    state = run(world, world.init(), 500, [[2.5, 0.0]])
    assert float(world.observe(state, ObservationSpec("all"))[0, 1]) == pytest.approx(0.5 * 0.5, rel=0.02)
    with pytest.raises(UnsupportedError, match=r"'m/sprung' has a spring, and its targets a limit of 3"):
        world.set_action(ActionSpec("position", ("sprung",), limit=3.0))


@pytest.mark.parametrize(("mode", "error"), [("torque", 0.03), ("position", 0.03), ("velocity", 0.2)])
def test_an_action_tracks_its_target(mode, error):
    scene = Scene(timestep=0.002)
    scene.add(MJCF(ARM), name="arm")
    world = scene.build(2, backend="physx", action=ActionSpec(mode, kp=400.0, kd=40.0, limit=np.inf))
    state, target = world.init(), np.tile(np.array([[0.4, -0.8]], np.float32), (2, 1))
    for _ in range(500):
        control = target
        now = np.asarray(world.observe(state, ObservationSpec("all")))
        if mode == "torque":
            control = 400.0 * (target - now[:, :2]) - np.array([[20.0, 4.0]], np.float32) * now[:, 2:]
        state = world.step(state, control)
    now = np.asarray(world.observe(state, ObservationSpec("all")))
    assert np.abs((now[:, 2:] if mode == "velocity" else now[:, :2]) - target).max() < error
    if mode != "torque":
        now = run(world, state, 1)
        fell = np.asarray(world.observe(run(world, now, 300), ObservationSpec("all")))
        assert np.abs(fell[:, 0] - 0.4).min() > 0.3, "without a control, nothing holds the arm"


def test_a_limit_of_the_force_holds():
    """A target that a slide of 2 kg is driven to by at most 3 N."""
    xml = """<mujoco><worldbody><body><joint name="s" type="slide"/><geom size=".1" mass="2" contype="0"
      conaffinity="0"/></body></worldbody></mujoco>"""
    scene = Scene(timestep=0.002, gravity=(0, 0, 0))
    scene.add(MJCF(xml), name="m")
    for mode, target in (("position", 9.0), ("velocity", 90.0), ("torque", 90.0)):
        world = scene.build(
            1, backend="physx", action=ActionSpec(mode, kp=1e4, kd=1e2 * (mode == "velocity"), limit=3.0)
        )
        state = run(world, world.init(), 200, [[target]])
        assert float(world.observe(state, ObservationSpec("all"))[0, 1]) == pytest.approx(1.5 * 0.4, rel=0.01), mode


def test_a_jitted_policy_drives_a_franka():
    scene = Scene(timestep=0.002)
    scene.add(MJCF(fphys.asset("franka")), name="franka")
    scene.add(URDF(fphys.asset("arm-urdf"), pos=(0.0, 6.0, 0.0)), name="lift")
    joints = tuple(f"franka/joint{i}" for i in range(1, 8))
    world = scene.build(16, backend="physx", action=ActionSpec("position", joints, kp=1500.0, kd=100.0))
    spec = ObservationSpec(joints, ("end_effector",))

    @jax.jit
    def policy(observation: Any, t: Any) -> Any:
        goal = jnp.array(HOME, jnp.float32) + jnp.float32(0.2) * jnp.sin(2 * t) * jnp.where(
            t < 0.6, jnp.float32(1), jnp.float32(0)
        )
        return goal[None] + jnp.float32(0.05) * jnp.tanh(goal[None] - observation[:, :7])

    state = world.init([*HOME, *[0.0] * (len(world.joints) - 7)])
    for i in range(600):
        state = world.step(state, policy(world.observe(state, spec), jnp.float32(0.002 * i)))
    found = np.asarray(world.observe(state, spec))
    assert np.abs(found[:, :7] - np.array(HOME)).max() < 0.03
    native = scene.build(1)
    at_home = native.observe(
        native.init([*HOME, *[0.0] * (len(world.joints) - 7)]), ObservationSpec((), ("end_effector",))
    )
    assert found[0, 14:17] == pytest.approx(np.asarray(at_home)[0, :3], abs=0.02)


def test_the_humanoid_keeps_all_its_hinges():
    """21 hinges, up to three between two bodies; 0.3 s in the air under constant torques, without its contacts."""
    text = Path(fphys.asset("humanoid")).read_text().replace("contype=", "user=").replace('conaffinity="', 'group="')
    text = text.replace("<geom ", '<geom contype="0" conaffinity="0" ')
    scene = Scene(timestep=0.002)
    scene.add(MJCF(text, pos=(0.0, 0.0, 3.0)), name="h")
    world = scene.build(1)
    middle = np.asarray(world.model.joint.range)[0].mean(-1)[1:]
    control = np.random.default_rng(0).normal(size=(2, 21)) * 3
    physx, native = moved(scene, middle, 150, control)
    assert np.abs(native - middle).max() > 0.3 and np.abs(physx - native).max() < 0.01


def test_a_joint_that_begins_beyond_its_limits_begins_at_them():
    """PhysX would throw it back within a step: the Franka's fourth joint is out of range at zero."""
    scene = Scene(timestep=0.002)
    scene.add(MJCF(fphys.asset("franka")), name="franka")
    world = scene.build(1, backend="physx")
    with pytest.warns(UserWarning, match=r"PhysX: franka/joint4: init positions are beyond the limits"):
        state = world.init()
    found = np.asarray(world.observe(run(world, state, 5), ObservationSpec("all")))
    assert found[0, 3] == pytest.approx(-0.0698, abs=1e-3) and np.abs(found[0, 7:]).max() < 1.0


def alone() -> Scene:
    scene = Scene()
    scene.add(MJCF(ARM), name="arm")
    scene.add_sensor(JointState(("elbow",)), name="encoder")
    return scene


def test_it_cannot_be_mistaken_for_pure():
    world = alone().build(2, backend="physx")
    state = world.init()
    later = world.step(state)
    control = np.zeros((2, 2), np.float32)
    for call, error, words in (
        (lambda: world.step(state), StateError, "PhysX has one state"),
        (lambda: world.observe(state, ObservationSpec("all")), StateError, "this state is number"),
        (lambda: world.step(None), TypeError, "state is NoneType"),
        (
            lambda: jax.jit(lambda u: world.step(later, u))(control),
            TypeError,
            "control is traced: PhysX is neither pure",
        ),
        (lambda: jax.jit(world.step)(later), TypeError, None),
        (lambda: world.step(later, control[:1]), ValueError, r"control has shape \(1, 2\)"),
        (lambda: world.step(later, jnp.asarray(control, jnp.float16)), TypeError, "control is float16, PhysX runs in"),
        (lambda: world.init(np.zeros(3)), ValueError, r"positions have shape \(3,\)"),
        (lambda: alone().build(1, backend="physx", dtype=np.float32), UnsupportedError, "PhysX runs in float32"),
    ):
        with pytest.raises(error, match=words):
            call()
    later = world.step(later, control.astype(np.float64))  # NumPy's numbers are cast, as natively
    world.check(later)
    world.set_action(ActionSpec("position"))
    control[1] = np.nan
    with pytest.raises(StateError, match=r"a control was not finite in worlds \[1\]"):
        world.check(world.step(later, control))
    world.close()
    world.close()
    for call in (world.init, lambda: world.step(later)):
        with pytest.raises(StateError, match="this world is closed"):
            call()


def test_worlds_that_leave_their_place_are_reported():
    scene = Scene()
    scene.add(Sphere(0.1), name="ball")
    world = scene.build(2, backend="physx")
    with pytest.raises(StateError, match="'ball' is more than 5 m from where it began in worlds"):
        world.check(run(world, world.init(), 600))


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        ('<geom type="ellipsoid" size=".1 .1 .2"/>', "PhysX has no ellipsoid"),
        ('<geom size=".1" condim="6"/>', "condim 6, friction against turning"),
        ('<geom size=".1" margin=".01"/>', "margin or gap"),
        ('<joint type="ball" stiffness="3"/><geom size=".1"/>', "a ball with a limit or a spring"),
        ('<freejoint/><geom size=".1"/></body><body mocap="true"><geom size=".1"/>', "mocap bodies"),
        ('<freejoint/><geom size=".1"/></body><body gravcomp="1"><freejoint/><geom size=".1"/>', "gravcomp"),
    ],
)
def test_what_physx_lacks_is_refused_by_name(inside, words):
    scene = Scene()
    scene.add(MJCF(f'<mujoco><worldbody><body name="b">{inside}</body></worldbody></mujoco>'), name="m")
    with pytest.raises(UnsupportedError, match=rf"'physx' cannot simulate this scene:\n(.|\n)*{words}"):
        scene.build(1, backend="physx")


def test_equalities_planes_and_still_sensors_are_refused():
    scene = Scene()
    bodies = '<body name="{0}"><freejoint/><geom size=".1"/></body>'
    pair = bodies.format("a") + bodies.format("b")
    xml = f'<mujoco><worldbody>{pair}</worldbody><equality><weld body1="a" body2="b"/></equality></mujoco>'
    scene.add(MJCF(xml), name="m")
    scene.add(Box((1.0, 1.0, 1.0), fixed=True), name="post")
    scene.add_sensor(Contact("post"), name="touch")
    with pytest.raises(
        UnsupportedError, match=r"1 equality constraints\n *'touch', Contact on 'post': it does not move"
    ):
        scene.build(1, backend="physx")
    cornered = Scene()
    for turned in ((1.0, 0, 0, 0), (1.0, 1, 0, 0), (1.0, 0, 1, 0)):
        cornered.add(Plane(quat=turned))
    cornered.add(Sphere(0.1, pos=(1.0, -1.0, 1.0)))
    with pytest.raises(UnsupportedError, match="the planes of this scene leave no room"):
        cornered.build(2, backend="physx")
    cornered.build(1, backend="physx").close()


def test_geoms_touch_only_what_their_file_says():
    """A ball of bit 2 falls through what has bit 1; an excluded pair falls through one another."""
    xml = """<mujoco><worldbody><geom name="floor" type="box" size="2 2 .1" pos="0 0 -.1" contype="1" conaffinity="1"/>
      <body name="a" pos="0 0 .3"><freejoint/><geom size=".1" contype="1" conaffinity="1"/></body>
      <body name="b" pos="1 0 .3"><freejoint/><geom size=".1" contype="2" conaffinity="2"/></body>
      <body name="c" pos="0 0 .6"><freejoint/><geom size=".1" contype="1" conaffinity="1"/></body></worldbody>
      <contact><exclude body1="a" body2="c"/></contact></mujoco>"""
    scene = Scene(timestep=0.002)
    scene.add(MJCF(xml), name="m")
    world = scene.build(2, backend="physx")
    found = seen(world, run(world, world.init(), 300), "m/a", "m/b", "m/c").reshape(2, 3, 13)[:, :, 2]
    assert found[:, [0, 2]] == pytest.approx(np.full((2, 2), 0.1), abs=1e-3)
    assert (found[:, 1] < -0.5).all()


def test_it_is_refused_without_its_package_or_in_another_version(monkeypatch):
    for version, words in (("9.9", "written for ovphysx 0.7.0.74035321, not for 9.9"), (None, "needs ovphysx 0.7.0")):
        with monkeypatch.context() as patch:
            patch.setattr(importlib.import_module("ovphysx"), "__version__", version)
            if version is None:
                patch.setitem(sys.modules, "ovphysx", None)
            with pytest.raises(MissingDependencyError, match=words):
                alone().build(1, backend="physx")


@pytest.mark.usefixtures("old_objects_stay")
def test_two_engines_of_it_run_beside_the_native_one_and_close_without_leaving_memory():
    first, second, native = alone().build(1, backend="physx"), alone().build(2, backend="physx"), alone().build(1)
    a, b, n = first.init([0.5, 0.1]), second.init([0.5, 0.1]), native.init(jnp.array([0.5, 0.1]))
    step, spec = jax.jit(native.step), ObservationSpec("all")
    for _ in range(100):
        a, b, n = first.step(a), second.step(b), step(n)
    found = [np.asarray(w.observe(s, spec))[0] for w, s in ((first, a), (second, b), (native, n))]
    assert found[0] == pytest.approx(found[1], abs=1e-4) and found[0] == pytest.approx(found[2], abs=0.02)
    used = []
    for k in range(60):
        world = alone().build(4, backend="physx")
        run(world, world.init(), 2)
        world.close()
        if k % 10 == 9:
            gc.collect()
            used.append(resident())
    assert used[-1] - used[1] < 8e6, used


def test_it_prints_nothing(tmp_path, environment):
    program = tmp_path / "quiet.py"
    program.write_text(
        "from fphys.scene import *\ns = Scene()\ns.add(Plane())\ns.add(Box((1, 1, 1), pos=(0, 0, 0.5)))\n"
        "if __name__ == '__main__':\n    w = s.build(3, backend='physx')\n    w.step(w.init())\n"
    )
    child = subprocess.run([sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=300)
    assert (child.returncode, child.stdout, child.stderr) == (0, "", "")


@pytest.mark.slow
def test_a_wrapped_step_costs_what_a_step_costs():
    scene = Scene(timestep=0.002)
    scene.add(MJCF(fphys.asset("franka")), name="franka")
    world = scene.build(64, backend="physx", action=ActionSpec("position", kp=1500.0, kd=100.0))
    state, control = world.init(HOME), jnp.tile(jnp.array(HOME, jnp.float32), (64, 1))
    state = world.step(state, control)
    target = np.array(control)
    times: dict[str, list[float]] = {"raw": [], "wrapped": []}
    bound = world.groups[0]._bind("DOF_POSITION_TARGET")
    for i in range(1000):
        name = ("raw", "wrapped")[i % 2]
        start = time.perf_counter()
        if name == "raw":
            bound.write(target)
            world.engine.step_sync(0.002)
        else:
            state = world.step(state, control)
        times[name].append(time.perf_counter() - start)
    assert np.median(times["wrapped"]) <= 1.10 * np.median(times["raw"])


def test_no_warning_of_the_engine_is_passed_on():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        world = alone().build(1, backend="physx")
        world.step(world.init())
        del world
        gc.collect()
