"""Scenes of the contact slice: a tilted plane, a sphere, a box and an arm whose tip touches."""

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import mujoco
import numpy as np

import fphys

SCENE = """
<mujoco>
  <option timestep="0.004" integrator="{integrator}" tolerance="0" impratio="{impratio}" ls_iterations="200"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1" friction="0.7 0.1 0.1" euler="3 5 0" pos="0 0 -0.02"
          solref="0.03 0.9" solimp="0.8 0.97 0.02 0.4 2.5" margin="0.01" gap="0.003"/>
    <body pos="0 0 0.1"><freejoint/><geom name="ball" type="sphere" size="0.1" mass="1" friction="0.5"
          solmix="2" conaffinity="0"/></body>
    <body pos="0.5 0 0.25"><freejoint/><geom name="box" type="box" size="0.1 0.12 0.15"
          mass="1.3" conaffinity="0"/></body>
    <body pos="-0.5 0 0.5">
      <joint name="a" axis="0 1 0" damping="0.3" armature="0.02"/>
      <geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.03" mass="1" contype="0" conaffinity="0"/>
      <body pos="0.4 0 0">
        <joint name="b" axis="0 1 0" damping="0.1"/>
        <geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.02" mass="0.5" contype="0" conaffinity="0"/>
        <geom name="tip" type="sphere" pos="0.4 0 0" size="0.05" mass="0.3" condim="{condim}" priority="{priority}"
              solref="{solref}" conaffinity="0"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="a" gear="2"/><motor joint="b"/></actuator>
</mujoco>"""

VARIANTS = {
    "euler": {"integrator": "Euler", "impratio": 1, "condim": 3, "priority": 0, "solref": "0.02 1"},
    "rk4-frictionless-tip": {"integrator": "RK4", "impratio": 3, "condim": 1, "priority": 1, "solref": "0.02 1"},
    "implicitfast-direct-solref": {
        "integrator": "implicitfast",
        "impratio": 1,
        "condim": 3,
        "priority": 1,
        "solref": "-900 -60",
    },
}


class Scene(NamedTuple):
    model: Any
    state: Any
    ctrl: Any


@functools.cache
def scene(variant: str, worlds: int = 8, seed: int = 0) -> Scene:
    """States in which all three bodies touch the plane, each a little differently."""
    model = fphys.load(SCENE.format(**VARIANTS[variant]))
    source, rng = model.structure.source, np.random.default_rng(seed)
    qpos = np.stack([source.qpos0] * worlds)
    for w in range(worlds):
        turn = np.zeros(source.nv)
        turn[9:12] = rng.normal(size=3) * (0.05 if w % 2 else 0.5)
        mujoco.mj_integratePos(source, qpos[w], turn, 1.0)
        qpos[w, 2] = 0.08 + rng.uniform(-0.02, 0.005)
        qpos[w, 9] = 0.12 + (0.0 if w % 2 else 0.05)
        qpos[w, 14:] = 0.6 + rng.uniform(-0.02, 0.02), 0.55
    state = fphys.init(model, worlds, qpos=qpos, qvel=rng.normal(size=(worlds, source.nv)) * 0.5)
    return Scene(model, state, jnp.asarray(rng.uniform(-1, 1, (worlds, source.nu))))


def data(scene: Scene, world: int) -> Any:
    """MuJoCo's data in the state of one world, without warm start, so that it starts where ours does."""
    d = mujoco.MjData(scene.model.structure.source)
    d.qpos[:], d.qvel[:], d.ctrl[:] = scene.state.qpos[world], scene.state.qvel[world], scene.ctrl[world]
    return d
