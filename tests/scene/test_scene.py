"""The description: what is refused, and by which words."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys import units
from fphys.errors import ModelError, UnsupportedError
from fphys.particles.materials import Corotated
from fphys.scene import (
    IMU,
    MJCF,
    MPM,
    SPH,
    URDF,
    ActionSpec,
    Box,
    Camera,
    Capsule,
    Contact,
    Cylinder,
    Domain,
    Mesh,
    ObservationSpec,
    Plane,
    Rays,
    Rigid,
    Scene,
    Sphere,
    Surface,
    Terrain,
)

from .things import ARM, alone, box_and_arm

OPTION = '<mujoco><option impratio="{}"/></mujoco>'
ROOF = "v -1 0 0\nv 1 0 0\nv -1 1 0\nv 1 1 0\nv 0 0 1\nv 0 1 1\nf 1 3 6\nf 1 6 5\nf 2 5 6\nf 2 6 4\n"
WEDGE = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: Box((1, 2)), "three edges"),
        (lambda: Box(1.0), "size is 1.0, must be three edges"),
        (lambda: IMU("box", pos=(1, 2)), "IMU: pos is"),
        (lambda: IMU("box", quat=(0, 0, 0, 0)), "IMU: quat is zero"),
        (lambda: Camera((0, 1)), "Camera: pos is"),
        (lambda: ActionSpec("position", kp=-100.0), "kp is -100.0, must be zero or more"),
        (lambda: ActionSpec(kd=(1.0, np.nan)), "kd is .*, must be zero or more"),
        (lambda: ActionSpec(limit=units.torque(-1.0)), "limit is .*, must be zero or more"),
        (lambda: MPM(1000.0), "law is float"),
        (lambda: Box((1, 2, 0)), "positive, in metres"),
        (lambda: Sphere(np.nan), "positive, in metres"),
        (lambda: Sphere(1.0, pos=(1, 2)), "pos is"),
        (lambda: Sphere(1.0, quat=(0, 0, 0, 0)), "quat is zero"),
        (lambda: Mesh("nothing.obj"), "there is no file"),
        (lambda: Mesh("nothing.ply"), "must end in"),
        (lambda: Terrain(np.zeros(3), 1.0), "must be \\(nx, ny\\)"),
        (lambda: Rigid(density=1.0, mass=1.0), "one of the two"),
        (lambda: Rigid(mass=-1.0), "mass is -1.0"),
        (lambda: Rigid(friction=(0.1, -0.1)), r"friction is \(0.1, -0.1\), must be not negative"),
        (lambda: Rigid(pushed="no"), "pushed is .no., must be True or False"),
        (lambda: Sphere(1.0, fixed="no"), "Sphere: fixed is .no., must be True or False"),
        (lambda: Surface((2, 0, 0)), "0 to 1"),
        (lambda: Rays((0, 0, 0)), "none of them zero"),
        (lambda: Rays((0, 0, 1), origins=((0, 0),)), "origins have shape"),
        (lambda: Camera((0, 0, 1)), "parallel"),
        (lambda: Camera((1, 0, 1), fov=200.0), "no such picture"),
        (lambda: ActionSpec("jump"), "must be one of torque"),
        (lambda: ActionSpec(joints="elbow"), 'must be "all"'),
        (lambda: ObservationSpec(links="tip"), "tuple of names"),
        (lambda: Scene(timestep=0.0), "timestep is 0.0"),
        (lambda: Scene(gravity=(0, 0)), "gravity is"),
        (lambda: Scene().build(0), "num_worlds is 0"),
        (lambda: Scene().build(1, backend="bullet"), "must be one of native, genesis, physx"),
        (lambda: Scene().add(ARM), "morph is str"),
        (lambda: Scene().add(Plane(), name="a/b"), "slash"),
        (lambda: Scene().add(Plane(), material=Surface()), "material is Surface"),
        (lambda: Scene().add(MJCF(ARM), Rigid(mass=1.0)), "says its mass"),
        (lambda: Scene().add(MJCF(ARM), surface=Surface()), "says its surface"),
        (lambda: Scene().add_sensor(Plane()), "sensor is Plane"),
    ],
)
def test_what_cannot_be_is_refused(make, fault):
    with pytest.raises(ModelError, match=fault):
        make()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda s: s.add(Plane(), name="box"), "'box' is taken"),
        (lambda s: s.add_sensor(IMU("elbw")), "no link 'elbw'"),
        (lambda s: s.add_sensor(Contact("tip")), "no link 'tip': 'arm/tip' is a site of 'arm/lower'"),
        (lambda s: s.add_sensor(IMU("tip")), "no link 'tip': 'arm/tip' is a site of 'arm/lower'; .* by pos="),
        (lambda s: s.add(Sphere(0.1), Rigid(mass=(1.0, 2.0, 3.0))), "num_worlds is 2"),
        (lambda s: [s.add(MJCF(OPTION.format(i))) for i in "32"], "impratio is 3.0 in 'mjcf'"),
        (lambda s: s.add(MJCF(ARM, fixed=True)), "free joint"),
        (lambda s: s.add(MJCF("<mujoco><worldbody><geom/></worldbody></mujoco>")), "size 0 must be positive"),
    ],
)  # fmt: skip
def test_what_is_found_when_built(change, fault):
    scene = box_and_arm()

    def build() -> None:
        change(scene)
        scene.build(2)

    with pytest.raises(ModelError, match=fault):
        build()


def test_names_are_resolved():
    scene = box_and_arm()
    scene.add(MJCF(ARM, pos=(0, 2, 0)), name="other")
    scene.sensors.clear()
    world = scene.build(2)
    assert world.joints == ("arm/shoulder", "arm/elbow", "other/shoulder", "other/elbow")
    with pytest.raises(ModelError, match="may be 'arm/tip' or 'other/tip'"):
        world.columns(ObservationSpec(links=("tip",)))
    with pytest.raises(ModelError, match="did you mean 'arm/tip'"):
        world.columns(ObservationSpec(links=("arm/tap",)))
    with pytest.raises(ModelError, match="3 numbers, there are 1 joints"):
        scene.build(1, action=ActionSpec(joints=("arm/elbow",), kp=(1.0, 2.0, 3.0)))
    state = world.init()
    for control in (np.zeros((2, 3)), np.zeros((1, 4))):
        with pytest.raises(ValueError, match=r"needs \(num_worlds, joints\) = \(2, 4\)"):
            world.step(state, control)
    with pytest.raises(ValueError, match="positions have shape"):
        world.init(np.zeros(3))
    with pytest.raises(ValueError, match=r"world.kp has shape \(3,\), needs \(joints,\) = \(4,\)"):
        world.replace(kp=jnp.ones(3))
    with pytest.raises(TypeError, match=r"world\.kd is float16"):
        world.replace(kd=jnp.ones(4, jnp.float16))
    assert world.replace(kp=3.0).kp.tolist() == [3.0] * 4
    three = world.replace(num_worlds=3).init()
    for call in (world.step, lambda state: world.observe(state, ObservationSpec("all"))):
        with pytest.raises(ValueError, match=r"state has 3 worlds, this world has 2: make one with world.init\(\)"):
            call(three)


def test_a_camera_is_no_number():
    world = box_and_arm().build(1)
    spec = ObservationSpec(sensors=("camera",))
    for call in (lambda: world.observe(world.init(), spec), lambda: world.columns(spec)):
        with pytest.raises(ModelError, match=r"call world.render\(state, 'camera'\)"):
            call()
    with pytest.raises(ModelError, match="no camera 'imu'"):
        world.render(world.init(), "imu")


def test_what_a_back_end_lacks_is_named_at_once():
    scene = box_and_arm()
    scene.add(Sphere(0.1), Rigid(friction=0.0), name="ice")
    scene.add(Sphere(0.1), Rigid(pushed=False), name="ball")
    with pytest.raises(
        UnsupportedError, match=r"'genesis' cannot simulate this scene:\n  'ice', Rigid(.|\n)*'ball', Rigid"
    ):
        scene.build(1, backend="genesis")


def test_a_terrain_has_its_heights():
    """Rays of MuJoCo meet it where it was said to be, and nothing of it moves."""
    heights = np.random.default_rng(0).uniform(-0.2, 0.3, (4, 3))
    scene = Scene()
    scene.add(Terrain(heights, 0.5, pos=(1.0, 2.0, 0.1)), name="hills")
    scene.add(Sphere(0.1, pos=(1.6, 2.4, 0.8)))
    world = scene.build(1)
    m, d = fphys.to_mujoco(world.model, world.init().rigid)
    assert m.nv == 6
    down, geom = np.array([0.0, 0.0, -1.0]), np.zeros(1, np.int32)
    for i, j in ((0, 0), (1, 2), (3, 1), (2, 0)):
        inward = np.clip([i, j], 1e-6, np.array(heights.shape) - 1 - 1e-6) * 0.5
        start = np.array([1.0 + inward[0], 2.0 + inward[1], 5.0])
        found = mujoco.mj_ray(m, d, start, down, None, 1, -1, geom, None)
        assert 5.0 - found == pytest.approx(0.1 + heights[i, j], abs=1e-4)


def test_rays_see_terrains_and_meshes(tmp_path):
    """Heights of hills, and a wedge from its hollow side: as triangles, not as the hull that it collides as."""
    heights = np.random.default_rng(0).uniform(-0.2, 0.3, (4, 3))
    (tmp_path / "roof.obj").write_text(ROOF)
    scene = Scene(gravity=(0.0, 0.0, 0.0))
    scene.add(Terrain(heights, 0.5, pos=(1.0, 2.0, 0.1)), name="hills")
    scene.add(Mesh(tmp_path / "roof.obj", pos=(0.0, 0.0, 4.0)), name="roof")
    corners = [(i, j) for i in range(4) for j in range(3)]
    above = tuple((1.0 + 0.5 * i, 2.0 + 0.5 * j, 2.0) for i, j in corners)
    scene.add_sensor(Rays(((0, 0, -1),) * 12, origins=above), name="scan")
    scene.add_sensor(Rays(((0, 0, 1), (0, 0, 1)), origins=((0.0, 0.5, 2.0), (0.4, 0.5, 2.0))), name="up")
    world = scene.build(1)
    found = np.asarray(world.observe(world.init(), ObservationSpec(sensors=("scan", "up"))))[0]
    assert 2.0 - found[:12] == pytest.approx([0.1 + heights[at] for at in corners], abs=1e-6)
    assert found[12:] == pytest.approx([3.0, 2.6], abs=1e-6)


def test_every_shape_stands_where_it_should(tmp_path):
    """Masses and poses of all morphs that the native back end has, and a free base of URDF."""
    (tmp_path / "wedge.obj").write_text(WEDGE)
    scene = Scene(gravity=(0, 0, 0))
    scene.add(Plane(pos=(0, 0, -1)))
    scene.add(Box((1, 2, 3)), Rigid(density=10.0))
    scene.add(Sphere(0.5, pos=(3, 0, 0)), Rigid(density=10.0))
    scene.add(Capsule(0.5, 1.0, pos=(6, 0, 0)), Rigid(mass=7.0))
    scene.add(Cylinder(0.5, 2.0, pos=(9, 0, 0), fixed=True))
    scene.add(Mesh(tmp_path / "wedge.obj", 0.6, pos=(12, 0, 0)), Rigid(density=1e4))
    scene.add(URDF(fphys.asset("arm-urdf"), pos=(0, 5, 0), fixed=False), name="arm")
    world = scene.build(1)
    mass = dict(zip(world.model.names("body"), np.asarray(world.model.body.mass[0]), strict=True))
    assert mass["box"] == pytest.approx(60.0) and mass["sphere"] == pytest.approx(10 * np.pi / 6)
    assert mass["capsule"] == 7.0 and mass["mesh"] == pytest.approx(1e4 * 0.216 / 6, rel=1e-6)
    assert world.model.structure.nv == 6 * 5 + len(world.joints)
    state = world.step(world.init(), None)
    where = world.observe(state, ObservationSpec(links=("sphere", "cylinder", "arm/base"))).reshape(3, 13)
    assert np.allclose(where[:, :3], [(3, 0, 0), (9, 0, 0), (0, 5, 0)], atol=1e-6)


CM = units.parse("1 cm")


def test_an_edge_may_be_a_quantity_of_its_own():
    assert Box((20 * CM, units.parse("1 ft"), 0.5)) == Box((0.2, 0.3048, 0.5))


def test_sensors_take_quantities():
    one, up = CM * np.array([1.0, 2.0, 3.0]), (0.01, 0.02, 0.03)
    assert IMU("box", pos=one) == IMU("box", pos=up)
    rays = Rays(np.eye(3), origins=one, max_range=units.length("3 m"))
    assert rays == Rays(np.eye(3), origins=(CM, 2 * CM, 3 * CM), max_range=3.0) == Rays(np.eye(3), None, up, 3.0)
    camera = Camera(one, lookat=(1 * CM, CM, 0.0), fov=units.angle("60 deg"))
    assert camera.fov == pytest.approx(60.0, rel=1e-15)
    assert camera == Camera(up, (0.01, 0.01, 0.0), fov=camera.fov)


def test_positions_and_gains_take_quantities():
    given = alone().build(2, action=ActionSpec("position", kp=(units.angular_stiffness(5.0), 3.0)))
    assert given.kp.tolist() == [5.0, 3.0]
    assert given.replace(kp=units.angular_stiffness("2 N m/rad")).kp.tolist() == [2.0, 2.0]
    for positions in (units.angle([30.0, -60.0], "deg"), [units.angle("30 deg"), units.angle("-60 deg")]):
        np.testing.assert_allclose(given.init(positions).rigid.qpos, np.deg2rad([[30.0, -60.0]] * 2), rtol=1e-15)


def test_a_law_takes_quantities():
    law = MPM(Corotated(units.density("1 g/cm^3"), units.pressure("20 kPa"), 0.3)).law
    assert law.numbers() == pytest.approx([1000.0, 20000.0, 0.3], rel=1e-15)


def test_quantities_are_taken_where_their_kind_fits():
    given = Scene(timestep=units.parse("2 ms"), gravity=units.parse("9.81 m/s^2") * np.array([0.0, 0.0, -1.0]))
    given.add(
        Box(CM * np.array([20.0, 20.0, 20.0]), pos=CM * np.array([0.0, 0.0, 50.0])), Rigid(mass=units.parse("2 kg"))
    )
    plain = Scene()
    plain.add(Box((0.2, 0.2, 0.2), pos=(0.0, 0.0, 0.5)), Rigid(mass=2.0))
    one, other = (scene.build(1).model for scene in (given, plain))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Scene(timestep=CM), "timestep is a length .*must be a duration"),
        (lambda: Scene(gravity=units.parse("9.81 m/s")), "gravity is a velocity"),
        (lambda: Scene(max_force=units.energy(3.0)), "max_force is an energy .*must be a force .* or a torque"),
        (lambda: Sphere(units.parse("30 deg")), "Sphere.radius is an angle"),
        (lambda: Box((1, 1, 1), pos=units.parse("1 kg") * np.ones(3)), "Box.pos is a mass"),
        (lambda: Box((CM, CM, units.parse("30 deg"))), "Box.size is an angle"),
        (lambda: Rigid(mass=CM), "Rigid.mass is a length"),
        (lambda: Rigid(friction=CM), "Rigid.friction is a length, must be a bare array"),
        (lambda: Surface(CM * np.ones(3)), "Surface.color is a length"),
        (lambda: Sphere(1.0, quat=CM * np.ones(4)), "Sphere.quat is a length"),
        (lambda: SPH(CM), "SPH.sound_speed is a length"),
        (lambda: MPM(Corotated(1000.0, CM, 0.3)), "Corotated.young is a length"),
        (lambda: Domain((0, 0, 0), (1, 1, 1), units.angle(0.1)), "Domain.spacing is an angle"),
        (lambda: IMU("box", pos=units.angle(np.ones(3))), "IMU.pos is an angle"),
        (lambda: Rays(CM * np.eye(3)), "Rays.directions is a length, must be a bare array"),
        (lambda: Rays((0, 0, 1), origins=units.force(np.ones(3))), "Rays.origins is a force"),
        (lambda: Rays((0, 0, 1), max_range=units.duration(1.0)), "Rays.max_range is a duration"),
        (lambda: Camera(units.force(np.ones(3))), "Camera.pos is a force"),
        (lambda: Camera((1, 0, 1), up=CM * np.ones(3)), "Camera.up is a length"),
        (lambda: Camera((1, 0, 1), fov=CM), "Camera.fov is a length"),
        (lambda: Camera((1, 0, 1), width=CM), "Camera.width is a length"),
        (lambda: ActionSpec(kp=CM), "ActionSpec.kp is a length"),
        (lambda: alone().build(1).init(CM * np.ones(2)), "positions is a length .*must be an angle"),
        (lambda: alone().build(1).replace(kp=units.parse("5 N/m")), "kp is a stiffness .*must be an angular stiffness"),
        (lambda: alone().build(1, action=ActionSpec(kp=units.parse("5 N/m"))), "ActionSpec.kp is a stiffness"),
        (lambda: alone().build(1, action=ActionSpec(limit=units.parse("5 N"))), "ActionSpec.limit is a force"),
    ],
)
def test_a_wrong_kind_is_refused_by_name(make, text):
    with pytest.raises(units.UnitError, match=text):
        make()


def test_controls_are_torques_targets_or_speeds():
    torques = alone().build(1)
    step = jax.jit(torques.step)
    pushed = step(torques.init(), units.torque(jnp.array([[0.3, 0.1]])))
    np.testing.assert_array_equal(pushed.rigid.qvel, step(torques.init(), jnp.array([[0.3, 0.1]])).rigid.qvel)
    with pytest.raises(units.UnitError, match=r"control is a force .*must be a torque"):
        torques.step(torques.init(), units.force(jnp.ones((1, 2))))
    servo = alone().build(1, action=ActionSpec("position", kp=units.angular_stiffness(5.0), kd=1.0))
    assert servo.kp.tolist() == [5.0, 5.0]
    servo.step(servo.init(), units.parse("10 deg") * jnp.ones((1, 2)))
    with pytest.raises(units.UnitError, match=r"control is a torque .*must be an angle"):
        servo.step(servo.init(), units.torque(jnp.ones((1, 2))))


def test_excessive_forces_are_refused_or_hold_their_world():
    scene = alone()
    scene.max_force = 50.0
    world = scene.build(2)
    too_much = jnp.array([[1.0, 0.0], [51.0, 0.0]])
    with pytest.raises(ValueError, match=r"51 .*\(1, 0\) is outside"):
        world.step(world.init(), too_much)
    after = jax.jit(world.step)(world.init(), too_much)
    assert after.rigid.status.tolist() == [0, fphys.Status.BADCTRL]
    assert np.isfinite(after.rigid.qvel).all() and np.abs(after.rigid.qvel[0]).max() > 0
    with pytest.raises(ModelError, match="max_force is 0"):
        Scene(max_force=0.0)
