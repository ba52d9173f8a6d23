"""One mechanism that holds every constraint besides contacts of many kinds, and its variants."""

import functools
from typing import Any, NamedTuple

import mujoco
import numpy as np

import fphys

XML = """
<mujoco>
  <option tolerance="0" ls_iterations="200" cone="{cone}" impratio="{impratio}"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1" friction="0.7 0.1 0.05" condim="1" contype="1" conaffinity="1"/>
    <body name="ball" pos="0 0 0.1"><freejoint/>
      <geom name="ball" size="0.1" mass="1" condim="{condim}" contype="1"/></body>
    <body name="box" pos="0.5 0 0.14"><freejoint/>
      <geom name="box" type="box" size="0.1 0.12 0.15" mass="1.3" condim="{condim}" contype="1"/></body>
    <body name="upper" pos="0 1 1">
      <joint name="hinge" axis="0 1 0" range="-20 30" frictionloss="300" damping="0.1"/>
      <geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.03" mass="1"/>
      <body name="lower" pos="0.4 0 0">
        <joint name="ball" type="ball" range="0 40" limited="true" frictionloss="0.05"/>
        <geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.03" mass="0.5"/>
        <body name="hand" pos="0.4 0 0">
          <joint name="slide" type="slide" axis="1 0 0" range="-0.01 0.1" margin="0.02"/>
          <geom size="0.04" mass="0.2"/><site name="tip" pos="0.02 0.01 0" quat="0.9 0.1 0.2 0.3"/>
        </body>
      </body>
    </body>
    <body name="load" pos="0.9 1 1"><freejoint/>
      <geom size="0.05" mass="0.3"/><site name="end" pos="0 0.01 0.02"/></body>
    <body pos="0 2 1"><joint name="left" axis="0 1 0"/><geom size="0.05" mass="0.3" pos="0.2 0 0"/></body>
    <body pos="0 2.5 1"><joint name="right" axis="0 1 0"/><geom size="0.05" mass="0.3" pos="0.2 0 0"/></body>
  </worldbody>
  <contact>{pair}</contact>
  <tendon>
    <fixed name="rope" limited="true" range="-0.01 0.01" frictionloss="2">
      <joint joint="left" coef="0.5"/><joint joint="right" coef="-0.3"/></fixed>
    <fixed name="wire" armature="0.3"><joint joint="hinge" coef="0.5"/><joint joint="slide" coef="-0.3"/></fixed>
  </tendon>
  <equality>{equality}</equality>
</mujoco>"""

EQUALITIES = {
    "none": "",
    "connect": '<connect body1="hand" body2="load" anchor="0.05 0.02 0.01"/>',
    "weld": '<weld body1="hand" body2="load" torquescale="0.7" relpose="0.1 0 0 0.9 0.1 0 0" solref="0.03 0.8"/>',
    "sites": '<weld site1="tip" site2="end"/><connect site1="end" site2="tip"/>',
    "to the world": '<weld body1="load"/>',
    "joints": '<joint joint1="left" joint2="right" polycoef="0.1 0.7 0.3 0.2 0.1"/>'
    '<joint joint1="slide" polycoef="0.02 1 0 0 0"/>',
    "tendons": '<tendon tendon1="rope" tendon2="wire" polycoef="0.01 0.5 0.2 0 0"/>'
    '<tendon tendon1="wire" polycoef="0.03 0 0 0 0"/>',
}
PAIR = (
    '<pair geom1="ball" geom2="floor" condim="4" friction="0.6 0.4 0.02 0.01 0.01" solref="0.03 1" margin="0.004"'
    ' solreffriction="0.05 1" gap="0.001"/>'
)


class Scene(NamedTuple):
    model: Any
    state: Any


@functools.cache
def scene(
    equality: str = "none", cone: str = "pyramidal", condim: int = 3, pair: bool = False, worlds: int = 8
) -> Scene:
    """States in which limits, contacts and friction act, each world a little differently."""
    given = {"cone": cone, "impratio": 3 if cone == "elliptic" else 1, "condim": condim, "pair": PAIR if pair else ""}
    model = fphys.load(XML.format(equality=EQUALITIES[equality], **given))
    source, rng = model.structure.source, np.random.default_rng(0)
    qpos = np.stack([source.qpos0] * worlds)
    for w in range(worlds):
        shift = 0.05 * rng.normal(size=source.nv)
        shift[0], shift[2] = 4 * shift[0], rng.uniform(-0.02, 0.005)
        shift[12:18] *= 5
        mujoco.mj_integratePos(source, qpos[w], shift, 1.0)
    return Scene(model, fphys.init(model, worlds, qpos=qpos, qvel=0.5 * rng.normal(size=(worlds, source.nv))))


def data(given: Scene, world: int) -> Any:
    """MuJoCo's data in the state of one world, ``mj_forward`` done, without warm start."""
    source = given.model.structure.source
    d = mujoco.MjData(source)
    d.qpos[:], d.qvel[:] = given.state.qpos[world], given.state.qvel[world]
    mujoco.mj_forward(source, d)
    return d
