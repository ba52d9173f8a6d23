"""Mechanisms in contact: Gymnasium's and our own, unaltered, and small ones, one for each feature.

Every one is set as the oracle of the parity tests: tolerance 0, without warm start and islands, so that MuJoCo's
solution depends on nothing but the state.
"""

import functools
from pathlib import Path
from typing import Any

import fphys
from fphys import oracle
from fphys.oracle import Row, strict

from ..rigid import mechanisms

LOOSE = """
<mujoco><option timestep="0.005" {option}/><default><geom {geom}/></default>
  <worldbody>
    <geom name="floor" type="plane" size="9 9 1" {floor}/>
    <body pos="0 0 0.12"><freejoint/><geom name="ball" size="0.1" mass="1" {ball}/></body>
    <body pos="0.5 0 0.2"><freejoint/><geom name="box" type="box" size="0.1 0.12 0.15" mass="1.3" {box}/></body>
    <body pos="0 0.5 0.2"><freejoint/><geom name="rod" type="capsule" size="0.06 0.12" mass="0.7" {rod}/></body>
  </worldbody><contact>{contact}</contact></mujoco>"""
"""A ball, a box and a capsule, thrown on a plane."""


def loose(**given: str) -> str:
    parts = dict.fromkeys(("option", "geom", "floor", "ball", "box", "rod", "contact"), "")
    return LOOSE.format(**(parts | given))


CHAIN = """
<mujoco><option timestep="0.004" {option}/>
  <default><joint damping="0.05" armature="0.01" {joint}/><geom mass="0.5" {geom}/></default>
  <worldbody>
    <geom type="plane" size="9 9 1"/>
    <site name="post" pos="0.1 0.1 0.7"/>
    <body pos="0 0 0.6">
      <joint name="a" axis="0 1 0" {a}/>
      <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/>
      <body name="middle" pos="0.3 0 0">
        <joint name="b" {b}/>
        <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/><site name="middle" pos="0.2 0 0.03"/>
        <body name="tip" pos="0.3 0 0">
          <joint name="c" axis="1 0 0" type="slide" {c}/>
          <geom size="0.05"/><site name="tip" pos="0.02 0.01 0"/>
        </body>
      </body>
    </body>
    <body pos="0.9 0.6 0.1"><freejoint/><geom size="0.1"/></body>
    <body pos="0.5 0.3 0.11" name="load"><freejoint/><geom type="box" size="0.1 0.1 0.1"/></body>
  </worldbody>
  <tendon>{tendon}</tendon>
  <equality>{equality}</equality>
  <actuator><motor joint="a" gear="5"/><motor joint="{moved}" gear="{gear}"/><motor joint="c" gear="8"/>{actuator}
  </actuator></mujoco>"""
"""An arm of a hinge, a second joint and a slide that swings its tip against the plane, a box and a ball."""


def chain(**given: str) -> str:
    parts = dict.fromkeys(("option", "joint", "geom", "a", "b", "c", "tendon", "equality", "actuator"), "")
    if not given.get("b", "").startswith("type"):
        given["b"] = 'axis="0 1 0" ' + given.get("b", "")
    return CHAIN.format(**(parts | {"moved": "b", "gear": "3"} | given))


ROPE = (
    '<spatial name="rope" {}><site site="post"/><site site="middle"/><site site="tip"/></spatial>'
    '<fixed name="sum" {}><joint joint="a" coef="0.7"/><joint joint="b" coef="-0.4"/></fixed>'
)

PUSHER = """
<mujoco><option timestep="0.004" cone="elliptic"/><worldbody>
  <geom type="plane" size="9 9 1"/>
  <body name="hand" mocap="true" pos="-0.3 0 0.1"><geom type="capsule" size="0.05 0.1"/></body>
  <body pos="0 0 0.1"><freejoint/><geom type="box" size="0.1 0.12 0.1" mass="0.5"/></body>
  <body pos="0.3 0.1 0.08"><freejoint/><geom size="0.08" mass="0.2"/></body>
</worldbody></mujoco>"""

STACK = """
<mujoco><option timestep="0.004"/><worldbody><geom type="plane" size="9 9 1"/>
  {}</worldbody></mujoco>"""

LYING = """
<mujoco><option timestep="0.004"/><worldbody>
  <geom type="box" size="0.4 0.3 0.1" euler="4 3 0"/><geom type="plane" size="9 9 1" pos="0 0 -1"/>
  <body pos="0 0 0.16"><freejoint/><geom type="capsule" size="0.05 0.12" euler="90 20 0" mass="0.4"/></body>
  <body pos="0.2 0 0.25"><freejoint/><geom type="capsule" size="0.05 0.12" euler="0 70 0" mass="0.4"/></body>
</worldbody></mujoco>"""

SHAPES = """
<mujoco><option timestep="0.004"/>
  <asset><mesh name="rock" vertex="0.1 0 0 -0.1 0.02 0 0 0.12 0.01 0.01 -0.11 0 0 0 0.09 0.02 0.01 -0.12 0.06 0.06 0.05"
  /></asset>
  <worldbody><geom type="plane" size="9 9 1"/>
  <body pos="0 0 0.2"><freejoint/><geom type="{}" {} mass="0.4" conaffinity="0"/></body>
  <body pos="0.5 0 0.2"><freejoint/><geom size="0.1" mass="0.4" conaffinity="0"/></body>
</worldbody></mujoco>"""

ON_A_BLOCK = """
<mujoco><option timestep="0.004">{}</option>
  <asset><mesh name="block" scale="0.3 0.3 0.1" vertex="1 1 1 1 1 -1 1 -1 1 1 -1 -1 -1 1 1 -1 1 -1 -1 -1 1 -1 -1 -1"/>
    <mesh name="wedge" scale="0.1 0.1 0.1" vertex="1 1 -.8 1 -1 -.9 -1 1 -.7 -1 -1 -1 .7 .6 1 -.5 .1 .9"/></asset>
  <worldbody><geom type="plane" size="9 9 1" pos="0 0 -1"/><geom type="{}" {} euler="3 -2 0"/>
  <body pos="-0.15 0.02 0.25"><freejoint/><geom type="{}" {} euler="25 40 0" mass="0.4"/></body>
  <body pos="0.15 -0.01 0.27"><freejoint/><geom type="{}" {} euler="-20 65 0" mass="0.3"/></body>
</worldbody></mujoco>"""
"""Two shapes that fall on a third, which stands still and is a little tilted."""


def on_a_block(*shapes: str) -> tuple[str, str]:
    """With one contact for each pair, and with all that flat sides make."""
    return tuple(ON_A_BLOCK.format(flag, *shapes) for flag in ('<flag multiccd="disable"/>', ""))


HILLS = """
<mujoco><option timestep="0.004" cone="elliptic"/><asset><hfield name="hills" nrow="6" ncol="7" size="0.6 0.5 0.06 0.1"
  elevation="3 1 0 2 4 1 0 2 0 1 3 1 0 2 4 2 0 0 1 3 2 1 0 2 1 0 2 4 0 3 1 0 2 1 0 2 1 0 3 4 2 1"/></asset>
  <worldbody><geom type="hfield" hfield="hills" margin="0.001"/><geom type="plane" size="9 9 1" pos="0 0 -1"/>
  <body pos="-0.2 0.1 0.3"><freejoint/><geom size="0.08" mass="0.4"/></body>
  <body pos="0.2 -0.1 0.3"><freejoint/><geom type="capsule" size="0.05 0.1" euler="20 70 0" mass="0.3"/></body>
  </worldbody></mujoco>"""
"""A ball and a capsule that roll over the ground and off it."""

MUSCLE = chain(
    tendon=ROPE.format("", ""),
    actuator='<muscle tendon="rope" lengthrange="0.5 0.8" force="60"/>'
    '<muscle joint="a" lengthrange="-1 2" force="20"/>',
)

ADHESION = chain(
    geom='margin="0.02" gap="0.01"',
    actuator='<adhesion body="tip" ctrlrange="0 2" gain="20"/><adhesion body="load" ctrlrange="0 1" gain="30"/>'
    '<general body="load" dyntype="filter" dynprm="0.05" ctrlrange="0 1" gainprm="10"/>',
)
"""Where tip and load touch one another, three adhesions share their contact."""


def stack(option: str = "") -> str:
    boxes = "".join(
        f'<body pos="{0.01 * i} 0 {0.1 + 0.199 * i}" euler="0 0 {15 * i}"><freejoint/>'
        f'<geom type="box" size="0.1 0.1 0.1" mass="{1 - 0.2 * i}"/></body>'
        for i in range(3)
    )
    return STACK.format(boxes).replace('timestep="0.004"', f'timestep="0.004" {option}')


def uncubed(text: str) -> str:
    """With a box of three lengths: where they are equal, an ellipsoid's drag has a kink in them."""
    return text.replace('size="0.1 0.1 0.1"', 'size="0.1 0.11 0.09"')


FEATURES: dict[str, str] = {
    **{
        f"{cone} cone, condim {condim}": loose(option=f'cone="{cone}"', geom=f'condim="{condim}"')
        for cone in ("pyramidal", "elliptic")
        for condim in (1, 3, 4, 6)
    },
    "rolling on a slope, condim 6": loose(
        option='cone="elliptic"', floor='euler="6 8 0"', geom='condim="6" friction="0.8 0.01 0.002"'
    ),
    "impratio": loose(option='cone="elliptic" impratio="10"'),
    "impratio of pyramids": loose(option='impratio="4"'),
    "margin and gap": loose(floor='margin="0.02" gap="0.008"', ball='margin="0.03"'),
    "solref, direct": loose(floor='solref="-2000 -40"', ball='solref="-3000 -80"'),
    "solref, both forms": loose(floor='solref="-2000 -40"', box='solref="0.03 0.7"'),
    "solimp": loose(floor='solimp="0.5 0.98 0.01 0.3 3"', ball='solimp="0.2 0.9 0.03 0.7 1"'),
    "priority and solmix": loose(
        floor='friction="0.3 0.01 0.001" solmix="2" solref="0.03 0.8"',
        ball='priority="2" friction="0.9 0.1 0.1" condim="6" solref="0.015 1.2"',
        box='solmix="0.5" solimp="0.7 0.99 0.002 0.5 2"',
    ),
    "named pair": loose(
        option='cone="elliptic"',
        contact='<pair geom1="ball" geom2="floor" condim="4" friction="0.6 0.3 0.02 0.01 0.01" solref="0.03 1"'
        ' margin="0.004" gap="0.001" solreffriction="0.05 1"/><pair geom1="rod" geom2="box" condim="1"/>',
    ),
    "excluded bodies and groups": loose(floor='contype="2" conaffinity="1"', ball='conaffinity="2" contype="0"'),
    "refsafe off": loose(geom='solref="0.008 1"').replace(
        "<default>", '<option><flag refsafe="disable"/></option><default>', 1
    ),
    "RK4 in contact": loose(option='integrator="RK4"'),
    "implicitfast in contact": chain(option='integrator="implicitfast" cone="elliptic"'),
    "limits of hinges": chain(joint='limited="auto"', a='range="-20 30"', b='range="-40 10" margin="3"'),
    "limit of a slide": chain(c='range="-0.03 0.05" margin="0.01"'),
    "limit of a ball joint": chain(b='type="ball" range="0 40" limited="true"', gear="1 2 1"),
    "limit of a fixed tendon": chain(tendon=ROPE.format("", 'limited="true" range="-0.1 0.2"')),
    "limit of a spatial tendon": chain(tendon=ROPE.format('limited="true" range="0.3 0.65" margin="0.02"', "")),
    "dry friction of joints": chain(joint='frictionloss="0.8"'),
    "dry friction of tendons": chain(tendon=ROPE.format('frictionloss="2"', 'frictionloss="1"')),
    "connect": chain(equality='<connect body1="tip" body2="load" anchor="0.05 0.02 0.01"/>'),
    "weld": chain(equality='<weld body1="tip" body2="load" torquescale="0.7" solref="0.03 0.8"/>'),
    "joint equality": chain(equality='<joint joint1="a" joint2="b" polycoef="0.1 0.7 0.3 0.2 0.1"/>'),
    "tendon equality": chain(
        tendon=ROPE.format("", ""), equality='<tendon tendon1="sum" tendon2="rope" polycoef="-0.4 0.5 0.2 0 0"/>'
    ),
    "armature of tendons": chain(
        option='cone="elliptic"',
        tendon=ROPE.format('armature="0.4" limited="true" range="0.3 0.65"', 'armature="0.3"')
        + '<spatial armature="0.2"><site site="tip"/><site site="load"/></spatial>',
    ).replace('name="load"><freejoint/>', 'name="load"><freejoint/><site name="load" pos="0.1 0 0.1"/>'),
    "armature of tendons, implicitfast": chain(
        option='integrator="implicitfast"', tendon=ROPE.format('armature="0.4" damping="0.3"', 'armature="0.3"')
    ),
    "no slip": chain(
        option='noslip_iterations="6"', joint='frictionloss="0.8"', tendon=ROPE.format('frictionloss="2"', "")
    ),
    "no slip, elliptic": loose(option='cone="elliptic" noslip_iterations="6"', ball='condim="4"'),
    "drag on ellipsoids": uncubed(
        chain(option='density="200" viscosity="1" wind="1 0.5 0"', geom='fluidshape="ellipsoid"')
    ),
    "drag on ellipsoids, implicitfast": uncubed(
        chain(
            option='integrator="implicitfast" density="200" viscosity="1"',
            geom='fluidshape="ellipsoid" fluidcoef="0.7 0.2 1.2 0.6 0.8"',
        )
    ),
    "gravity that actuators carry": chain(
        a='actuatorgravcomp="true" actuatorfrcrange="-4 4"', b='actuatorgravcomp="true"'
    ).replace('<body name="middle"', '<body name="middle" gravcomp="0.9"'),
    "muscle in contact": MUSCLE,
    "adhesion": ADHESION,
    "pushed by a mocap body": PUSHER,
    "stack of boxes": stack(),
    "stack of boxes, elliptic": stack('cone="elliptic"'),
    "capsules on a box": LYING,
    "cylinder on a plane": SHAPES.format("cylinder", 'size="0.1 0.12"'),
    "ellipsoid on a plane": SHAPES.format("ellipsoid", 'size="0.1 0.12 0.08"'),
    "mesh on a plane": SHAPES.format("mesh", 'mesh="rock"'),
    "height field": HILLS,
}
"""One small mechanism for each feature; the table of ``docs/features.md`` has its rows from here."""

_OPTION = 'timestep="0.004" cone="elliptic"'
CONVEX = {
    "cylinder and capsule on a cylinder": on_a_block(
        "cylinder", 'size="0.35 0.1"', "cylinder", 'size="0.08 0.1"', "capsule", 'size="0.06 0.1"'
    ),
    "cylinder and ellipsoid on a box": on_a_block(
        "box", 'size="0.3 0.3 0.1"', "cylinder", 'size="0.08 0.1"', "ellipsoid", 'size="0.12 0.08 0.1"'
    ),
    "mesh and capsule on a mesh": on_a_block(
        "mesh", 'mesh="block"', "mesh", 'mesh="wedge"', "capsule", 'size="0.06 0.1"'
    ),
    "box and ellipsoid on an ellipsoid": on_a_block(
        "ellipsoid", 'size="0.4 0.3 0.1"', "box", 'size="0.08 0.1 0.06"', "ellipsoid", 'size="0.12 0.08 0.1"'
    ),
}
"""Pairs that MuJoCo searches: no closer than its search is, which has tests of its own."""

BOX = f"""
<mujoco><option {_OPTION}/><worldbody><geom type="plane" size="9 9 1" friction="0.5 0.01 0.001"/>
  <body pos="0 0 0.0993"><freejoint/><geom type="box" size="0.12 0.1 0.1" mass="1.2"/></body></worldbody></mujoco>"""
SLOPE = f"""
<mujoco><option {_OPTION}/><worldbody>
  <geom type="plane" size="9 9 1" euler="15 5 0" friction="0.6 0.02 0.003" condim="6"/>
  <body pos="0 0 0.103"><freejoint/><geom size="0.1" mass="0.8"/></body></worldbody></mujoco>"""


def franka_pushing() -> str:
    """A fist on the flange, a box beside it, on a plane under both; the arm's own bodies touch nothing."""
    text = Path(fphys.asset("franka")).read_text()
    home = "1.5707963267948966 0.7853981633974483"
    assert home in text and '<site name="end_effector"' in text
    text = text.replace(
        '<site name="end_effector"', '<geom size="0.04" pos="0 0 0.107" contype="1"/><site name="end_effector"'
    )
    x, z = 0.5545, 0.5195
    still = (
        f'<geom type="plane" size="9 9 1" pos="0 0 {z - 0.05}" contype="2" conaffinity="0" friction="0.5 0.01 0.001"/>'
    )
    box = (
        f'<body pos="{x + 0.099} 0.01 {z + 0.0097}"><freejoint/>'
        '<geom type="box" size="0.06 0.08 0.06" mass="0.4" contype="0" conaffinity="3" condim="4"/></body>'
    )
    text = text.replace("</worldbody>", f"{still}{box}</worldbody>")
    return text.replace(home, f"{home} {x + 0.099} 0.01 {z + 0.0097} 1 0 0 0")


def hand_grasping() -> str:
    """A ball above the palm, which looks up; the fingers close."""
    text = Path(fphys.asset("hand")).read_text()
    ball = '<geom type="sphere" size="0.032" mass="0.06" contype="1" conaffinity="1"/>'
    ball = f'<body pos="0.33 -0.01 0.36"><freejoint/>{ball}</body>'
    return text.replace("</worldbody>", f"{ball}</worldbody>")


SCENES = {
    "box on a plane": BOX,
    "ball on a slope": SLOPE,
    "franka pushing a box": franka_pushing(),
    "hand grasping a ball": hand_grasping(),
}
"""Mechanisms that the gradients' tests need besides the files; the last two are assets with something inserted."""


@functools.cache
def sources() -> dict[str, Any]:
    """Name -> file or text of every mechanism."""
    files = {k: v for k, v in mechanisms.corpus().items() if not isinstance(v, str)}
    raised = {}
    if "gymnasium-point" in files:
        point, floor = files["gymnasium-point"].read_text(), 'name="floor" pos="0 0 0"'
        assert floor in point
        raised["gymnasium-point, floor raised"] = point.replace(floor, 'name="floor" pos="0 0 0.001"')
    return files | raised | SCENES | FEATURES


@functools.cache
def case(name: str, dtype: str = "float64") -> fphys.Model:
    """A mechanism under the oracle's settings. Where MuJoCo searches for contacts, to a tolerance that can still be
    tightened by a tenth: from 1e-14 on rounding ends its search, some 1e-6 off."""
    m = strict(searched().get(name) or sources()[name])
    if name in searched():
        m.opt.ccd_tolerance = 1e-12
    return fphys.load(m, dtype=dtype)


def searched() -> dict[str, str]:
    """Name -> text of the mechanisms of ``CONVEX``."""
    kinds = ("one contact", "flat sides")
    return {f"{name}, {kind}": text for name, texts in CONVEX.items() for kind, text in zip(kinds, texts, strict=True)}


def supported(name: str) -> bool:
    """Whether nothing in a mechanism is refused."""
    try:
        case(name)
    except fphys.errors.UnsupportedError:
        return False
    return True


@functools.cache
def states(name: str, count: int, seed: int = 0) -> list[Row]:
    """States along MuJoCo's trajectories of a mechanism: ``oracle.states``."""
    return oracle.states(case(name).structure.source, count, seed)
