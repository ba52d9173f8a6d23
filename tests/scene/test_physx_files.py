"""The back end of PhysX: what sensors say where a world begins, and what files say of limits and flags."""

import numpy as np
import pytest

from fphys.errors import UnsupportedError
from fphys.scene import IMU, MJCF, ActionSpec, Contact, ObservationSpec, Plane, Rigid, Scene, Sphere

from .test_physx import run
from .things import ARM

pytestmark = pytest.mark.extra("ovphysx", "ovstage")


@pytest.mark.parametrize("worlds", [1, 3])
def test_sensors_at_the_beginning_are_those_of_the_beginning(worlds):
    """A ball that falls, one that lies, and an arm: as natively, and the same at every beginning."""
    scene = Scene(timestep=0.002)
    scene.add(Plane())
    scene.add(Sphere(0.1, pos=(0, 0, 0.5)), Rigid(mass=1.0), name="falls")
    scene.add(Sphere(0.1, pos=(2, 0, 0.1)), Rigid(mass=2.0), name="lies")
    scene.add(MJCF(ARM, pos=(4, 0, 0)), name="arm")
    for body in ("falls", "lies"):
        scene.add_sensor(Contact(body), name=f"{body} touches")
    for body in ("falls", "arm/lower"):
        scene.add_sensor(IMU(body, pos=(0.1, 0, 0)), name=f"{body.replace('/', ' ')} feels")
    spec, native = ObservationSpec("all", ("falls", "lies"), tuple(scene.sensors)), scene.build(1)
    expected = np.array(native.observe(native.init([0.3, -0.4]), spec))[0]
    expected[native.columns(spec).index("lies touches:force.z")] = (
        2 * 9.81
    )  # its contact is no spring, and holds at once
    world = scene.build(worlds, backend="physx")
    for _ in range(3):
        state = world.init([0.3, -0.4])
        found = np.asarray(world.observe(state, spec))
        assert found == pytest.approx(np.tile(expected, (worlds, 1)), abs=0.05)
        moved = np.asarray(world.observe(run(world, state, 400), spec))
        assert moved[:, native.columns(spec).index("falls touches:force.z")] == pytest.approx(9.81, rel=0.01)


def test_both_ends_of_a_files_limit_hold():
    """By torques; a drive has one limit."""
    xml = """<mujoco><worldbody><body><joint name="j" type="slide" actuatorfrcrange="-1 5"/><geom size=".1" mass="2"/>
      </body></worldbody></mujoco>"""
    scene = Scene(timestep=0.002, gravity=(0, 0, 0))
    scene.add(MJCF(xml), name="m")
    world = scene.build(2, backend="physx")
    state = run(world, world.init(), 100, np.array([[-9.0], [9.0]]))
    speed = np.asarray(world.observe(state, ObservationSpec("all")))[:, 1]
    assert speed == pytest.approx(np.array([-1, 5]) / 2 * 0.2, rel=0.01)
    with pytest.raises(UnsupportedError, match="targets of 'm/j', whose force the file limits to -1 to 5: a drive"):
        world.set_action(ActionSpec("position"))
    world.set_action(ActionSpec("position", limit=5.0))


def test_flags_of_a_file_work_or_are_refused():
    body = '<worldbody><body name="b"><joint name="j" type="slide" damping="3" axis="0 0 1"/><geom size=".1"/></body>'
    body += "</worldbody>"
    scene = Scene()
    scene.add(MJCF(f'<mujoco><option><flag gravity="disable"/></option>{body}</mujoco>'), name="m")
    scene.add_sensor(IMU("b"), name="imu")
    world = scene.build(1, backend="physx")
    found = np.asarray(world.observe(run(world, world.init(), 20), ObservationSpec("all", (), ("imu",))))
    assert found == pytest.approx(np.zeros_like(found), abs=1e-5)
    scene = Scene()
    scene.add(MJCF(f'<mujoco><option><flag damper="disable"/></option>{body}</mujoco>'), name="m")
    with pytest.raises(UnsupportedError, match='<flag damper="disable"/>: take what it leaves out'):
        scene.build(1, backend="physx")
