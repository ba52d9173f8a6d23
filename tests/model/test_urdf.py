"""URDFs that MuJoCo refuses load, and every physical change is a warning that names it."""

import importlib
import warnings
from typing import Any

import mujoco
import numpy as np
import pytest

from fphys.errors import ModelError
from fphys.model import load
from fphys.model.urdf import LIGHT, WATER

ARM = """<?xml version="1.0"?><!-- <mujoco/> --><robot name="arm"><link name="base"/>
  <link name="upper"><inertial><mass value="2"/>{inertia}</inertial>{more}</link>
  <link name="lower"><inertial><origin xyz="0 0 -0.1"/><mass value="1"/>
    <inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial></link>{links}
  <joint name="j" type="continuous"><parent link="base"/><child link="upper"/><axis xyz="0 1 0"/></joint>
  <joint name="k" type="continuous"><parent link="{parent}"/><child link="lower"/><axis xyz="0 1 0"/>{joint}</joint>
</robot>"""
GOOD = '<inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/>'


def arm(**given: str) -> str:
    return ARM.format(**({"inertia": GOOD, "more": "", "links": "", "parent": "upper", "joint": ""} | given))


def inertia(x: float, y: float, z: float) -> str:
    return f'<inertia ixx="{x}" iyy="{y}" izz="{z}" ixy="0" ixz="0" iyz="0"/>'


def massless() -> str:
    link = '<link name="between"/><joint name="b" type="continuous"><parent link="upper"/><child link="between"/>'
    return arm(links=f'{link}<axis xyz="1 0 0"/></joint>', parent="between")


CASES = {
    "no solid": (arm(inertia=inertia(1, 1, 3)), "no solid has the principal inertia 1 1 3: read as 1.5 1.5 3"),
    "a rod": (arm(inertia=inertia(1, 1, 0)), "no solid has the principal inertia 0 1 1: read as 1e-06 1 1"),
    "no inertia": (arm(inertia=inertia(0, 0, 0)), '"upper": it has no inertia: that of a ball of water'),
    "no mass": (massless(), f'link "between": it moves and has no mass: {LIGHT:g} kg'),
    "no mass given": (
        arm().replace('<mass value="2"/>', "").replace(
            "</link>\n  <link name=\"lower\">",
            '<collision><geometry><sphere radius="0.1"/></geometry></collision></link><link name="lower">',
        ),
        f'link "upper": it has no mass: taken from its shapes, at {WATER:g} kg/m³',
    ),
    "commas": (arm(joint='<origin xyz="0.07, 0, -0.69"/>'), "read as 0.07 0 -0.69"),
    "too many": (arm(joint='<origin xyz="1 2 3" rpy="0 1 0 0"/>'), "read as 0 1 0"),
    "twice": (arm(joint='<axis xyz="0 1 0"/>'), 'joint "k": only the first <axis> counts'),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_mujoco_refuses_is_mended_and_named(case, tmp_path):
    text, named = CASES[case]
    with pytest.raises(ValueError, match="Error"):
        mujoco.MjModel.from_xml_string(text)
    (tmp_path / "arm.urdf").write_text(text)
    for source in (text, tmp_path / "arm.urdf"):
        with pytest.warns(UserWarning, match="it is read with these changes") as caught:
            m = load(source, mend=True).structure.source
        assert named in str(caught[0].message)
        assert str(caught[0].message).count("\n") == 1  # nothing else is changed
        assert m.nv == (3 if case == "no mass" else 2)


@pytest.mark.parametrize("case", ["no solid", "a rod", "no inertia", "no mass", "no mass given"])
def test_bodies_are_mended_only_if_asked(case):
    text, named = CASES[case]
    with pytest.raises(ModelError, match=r"mend=True\) reads it with these changes") as caught:
        load(text)
    assert named in str(caught.value)


def test_values_of_what_is_mended():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m = load(CASES["no inertia"][0], mend=True).structure.source
        radius = (2 / (4 / 3 * np.pi * WATER)) ** (1 / 3)
        np.testing.assert_allclose(m.body("upper").inertia, 0.4 * 2 * radius**2, rtol=1e-12)
        m = load(CASES["no mass given"][0], mend=True).structure.source
        np.testing.assert_allclose(m.body("upper").mass, WATER * 4 / 3 * np.pi * 0.1**3, rtol=1e-12)
        m = load(CASES["no mass"][0], mend=True).structure.source
        assert m.body("between").mass == LIGHT and m.body("upper").mass == 2
        m = load(CASES["no solid"][0], mend=True).structure.source
        np.testing.assert_allclose(np.sort(m.body("upper").inertia), [1.5, 1.5, 3], rtol=2e-6)


def test_a_turned_inertia_keeps_its_axes():
    turned = '<inertia ixx="2" iyy="2" izz="1" ixy="1" ixz="0" iyz="0"/>'  # 3 about (1, 1, 0), 1, 1
    with pytest.warns(UserWarning, match="no solid"):
        m = load(arm(inertia=turned), mend=True).structure.source
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, m.body("upper").iquat)
    axis = turn.reshape(3, 3)[:, m.body("upper").inertia.argmax()]
    np.testing.assert_allclose(np.abs(axis), [np.sqrt(0.5), np.sqrt(0.5), 0], atol=1e-6)


def test_what_mujoco_reads_is_left_alone():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = load(arm()).structure.source
    theirs = mujoco.MjModel.from_xml_string(arm())
    for name in ("body_mass", "body_inertia", "body_ipos", "body_iquat", "jnt_axis", "body_pos"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name))


def test_looks_that_mujoco_cannot_read_are_left_out():
    """They change nothing, so there is no warning."""
    more = '<visual><geometry><capsule radius="0.1" length="1"/></geometry></visual><visual><geometry/></visual>'
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(arm(more=more)).structure.source.nv == 2


def test_what_cannot_be_mended_is_refused_in_mujocos_words():
    with pytest.raises(ModelError, match=r"unrecognized name|not found|unknown|missing|Error"):
        load(arm(parent="nobody"))
    inertial = '<inertial pos="0 0 0" mass="1" diaginertia="1 1 3"/>'
    with pytest.raises(ModelError, match="inertia"):
        load(f"<mujoco><worldbody><body><joint/>{inertial}</body></worldbody></mujoco>")


@pytest.mark.extra("trimesh")
def test_meshes_that_mujoco_cannot_read(tmp_path):
    trimesh: Any = importlib.import_module("trimesh")
    box = trimesh.creation.box((0.2, 0.4, 0.6))
    box.export(tmp_path / "box.glb")
    (tmp_path / "box.stl").write_text(trimesh.exchange.stl.export_stl_ascii(box))
    for file in ("box.glb", "box.stl"):
        (tmp_path / "arm.urdf").write_text(
            arm(more=f'<collision><geometry><mesh filename="{file}"/></geometry></collision>')
        )
        m = load(tmp_path / "arm.urdf").structure.source
        assert m.nmesh == 1 and m.mesh_vertnum[0] == 8
        np.testing.assert_allclose(np.sort(np.ptp(m.mesh_vert, axis=0)), [0.2, 0.4, 0.6], rtol=1e-6)
