"""Scenes that several tests use."""

import fphys
from fphys.scene import IMU, MJCF, Box, Camera, Contact, JointState, Plane, Rays, Rigid, Scene, Surface

ARM = """<mujoco>
  <worldbody>
    <body name="upper" pos="0 0 1.2">
      <joint name="shoulder" axis="0 1 0" damping="0.05"/>
      <geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.03" density="800" contype="0" conaffinity="0"/>
      <body name="lower" pos="0.4 0 0">
        <joint name="elbow" axis="0 1 0" damping="0.05"/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.025" density="800" contype="0" conaffinity="0"/>
        <site name="tip" pos="0.3 0 0" euler="0 30 0"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="shoulder" ctrlrange="-1 1" forcerange="-40 40" gear="2"/></actuator>
</mujoco>"""
"""Two links, in a plane."""


def alone() -> fphys.Scene:
    """The arm and nothing else."""
    scene = Scene()
    scene.add(MJCF(ARM), name="arm")
    return scene


def box_and_arm(timestep: float = 0.002) -> fphys.Scene:
    """A box above the ground, an arm, and a sensor of each kind."""
    scene = Scene(timestep=timestep)
    scene.add(Plane(), name="ground")
    scene.add(Box((0.2, 0.2, 0.2), pos=(1.0, 0.0, 0.12)), Rigid(friction=0.7), Surface((0.9, 0.1, 0.1)), name="box")
    scene.add(MJCF(ARM), name="arm")
    scene.add_sensor(JointState(("elbow",)), name="encoder")
    scene.add_sensor(IMU("arm/lower", pos=(0.1, 0.02, 0.0), quat=(0.9, 0.1, 0.3, 0.2)), name="imu")
    scene.add_sensor(Contact("box"), name="touch")
    scene.add_sensor(Rays(((1, 0, 0), (0.3, 0.1, -1), (0, 0, 1)), "lower", origins=(0.1, 0.0, 0.05)), name="lidar")
    scene.add_sensor(Camera((2.2, -1.0, 0.8), (1.0, 0.0, 0.1)), name="camera")
    return scene
