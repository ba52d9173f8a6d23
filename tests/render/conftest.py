import ctypes.util

import numpy as np
import pytest

from fphys.model.load import load
from fphys.model.state import State
from fphys.render.canvas import PACKAGES

BALL = """
<mujoco>
  <option gravity="0 0 0"/>
  <worldbody>
    <camera name="front" pos="0 -4 1" xyaxes="1 0 0 0 0 1" fovy="45"/>
    <geom name="floor" type="plane" size="50 50 1" rgba="0.5 0.5 0.5 1"/>
    <body name="ball" pos="0 0 1">
      <freejoint/>
      <geom name="ball" type="sphere" size="0.2" rgba="1 0 0 1" mass="1"/>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.fixture(autouse=True)
def opengl():
    """Whether OpenGL is there is asked of the system, not of the code under test."""
    if ctypes.util.find_library("EGL") is None:
        pytest.skip(f"needs OpenGL: apt-get install {PACKAGES}")


@pytest.fixture(scope="session")
def ball():
    """A red ball that moves freely, and a function that makes states from its positions, shape (time, world, 3)."""
    model = load(BALL, disable=("contact",))

    def states(positions):
        time, worlds, _ = positions.shape
        upright = np.broadcast_to([1.0, 0.0, 0.0, 0.0], (time, worlds, 4))
        zeros = np.zeros((time, worlds))
        return State(
            qpos=np.concatenate([positions, upright], -1),
            qvel=np.zeros((time, worlds, 6)),
            act=np.zeros((time, worlds, 0)),
            time=zeros,
            status=zeros.astype(np.uint32),
            mocap_pos=np.zeros((time, worlds, 0, 3)),
            mocap_quat=np.zeros((time, worlds, 0, 4)),
            warmstart=np.zeros((time, worlds, 6)),
        )

    return model, states
