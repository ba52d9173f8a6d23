"""Faults 4, 5, 6 and 17: impossible numbers, and float64 while it is off."""

import jax
import mujoco
import numpy as np
import pytest

import fphys
from fphys.errors import ModelError
from fphys.model import load
from fphys.model.whitelist import LEAVES, numeric_fields

SCENE = """
<mujoco>
  <asset><hfield name="hills" nrow="2" ncol="2" size="1 1 1 .1"/></asset>
  <worldbody>
    <body name="slab" pos="0 0 1"><geom name="slab" type="box" size=".1 .2 .3" contype="0" conaffinity="0"/></body>
    <body name="hand" mocap="true"/>
    <body name="arm" pos="0 0 2">
      <joint name="turn" axis="0 1 0" stiffness="1" damping="1"/><geom name="rod" size=".1" pos="0 0 -1"/>
      <site name="tip" pos="0 0 -1"/>
    </body>
  </worldbody>
  <contact><pair name="touch" geom1="slab" geom2="rod"/></contact>
  <equality><joint name="hold" joint1="turn" active="false"/></equality>
  <tendon><fixed name="rope"><joint joint="turn" coef="2"/></fixed></tendon>
  <actuator><general name="motor" joint="turn" dyntype="filter" dynprm="1"/></actuator>
  <keyframe><key name="home" qpos="1"/></keyframe>
</mujoco>"""
ELEMENTS = {  # MuJoCo's prefix -> the name of the scene's last element
    "body": 'body "arm"',
    "jnt": 'joint "turn"',
    "dof": 'joint "turn"',
    "qpos0": 'joint "turn"',
    "qpos": 'joint "turn"',
    "geom": 'geom "rod"',
    "hfield": 'hfield "hills"',
    "site": 'site "tip"',
    "pair": 'pair "touch"',
    "eq": 'equality "hold"',
    "tendon": 'tendon "rope"',
    "wrap": 'tendon "rope"',
    "actuator": 'actuator "motor"',
    "key": 'key "home"',
}
BODY = '<mujoco><worldbody><body name="brick"><freejoint/>{}</body></worldbody></mujoco>'
URDF = """
<robot name="r"><link name="base"/><link name="brick"><inertial><mass value="{mass}"/>
  <inertia ixx="{x}" iyy="1" izz="{z}" ixy="{xy}" ixz="0" iyz="0"/></inertial></link>
<joint name="j" type="continuous"><parent link="base"/><child link="brick"/></joint></robot>"""


def spoil(m, name: str, value: float) -> None:
    """Write a value into the last element of a field."""
    owner, _, bare = name.rpartition(".")
    owner = getattr(m, owner) if owner else m
    if np.ndim(getattr(owner, bare)) == 0:
        setattr(owner, bare, value)
    else:
        getattr(owner, bare).reshape(-1)[-1] = value


# --- fault 4: NaN and inf


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", sorted(LEAVES.values()))
def test_a_field_that_is_not_finite_is_named_with_its_element(name, value):
    m = mujoco.MjModel.from_xml_string(SCENE)
    load(m)
    spoil(m, name, value)
    with pytest.raises(ModelError) as error:
        load(m)
    owner, _, bare = name.rpartition(".")
    where = {"opt": f"option {bare}", "stat": f"statistic {bare}"}.get(owner) or ELEMENTS[name.split("_")[0]]
    assert where in str(error.value)
    assert f"is {value}" in str(error.value)


def test_every_number_that_mujoco_reads_is_checked():
    names = [
        name
        for name, values in numeric_fields(mujoco.MjModel.from_xml_string(SCENE)).items()
        if values.dtype.kind == "f" and values.size
    ]
    assert len(names) > 100
    for name in names:
        m = mujoco.MjModel.from_xml_string(SCENE)
        spoil(m, name, np.nan)
        with pytest.raises(ModelError, match="must be finite"):
            load(m)


@pytest.mark.parametrize("value", ["nan", "NaN", "inf", "-inf", "infinity", "1e999", "9" * 400])
@pytest.mark.parametrize(
    ("element", "attribute"),
    [
        ("geom", "mass"),
        ("geom", "density"),
        ("geom", "pos"),
        ("geom", "friction"),
        ("joint", "damping"),
        ("joint", "ref"),
    ],
)
def test_a_number_of_the_text_that_is_not_finite_is_named_with_its_line(tmp_path, element, attribute, value):
    """MuJoCo itself treats mass="nan" as if no mass were given."""
    number = f"0 {value} 0" if attribute in ("pos", "friction") else value
    tag = {"geom": '<geom name="x" size=".1" {}/>', "joint": '<joint name="x" {}/><geom size=".1"/>'}[element]
    path = tmp_path / "model.xml"
    spoiled = tag.format(f'{attribute}="{number}"')
    path.write_text(f"<mujoco><worldbody><body>\n{spoiled}\n</body></worldbody></mujoco>")
    with pytest.raises(ModelError, match=rf'model\.xml:2: {element} "x": {attribute}=.*is not finite'):
        load(path)


def test_a_name_may_be_nan():
    assert load(BODY.format('<geom name="nan" size=".1"/><site name="inf"/>')).names("site") == ("inf",)


# --- faults 5 and 6: mass and inertia


def geom(mass: str) -> str:
    return BODY.format(f'<geom size=".1" mass="{mass}"/>')


def inertial(mass: float, inertia: str) -> str:
    return BODY.format(f'<inertial pos="0 0 0" mass="{mass}" {inertia}/>')


def urdf(mass: float = 1, x: float = 1, z: float = 1, xy: float = 0) -> str:
    return URDF.format(mass=mass, x=x, z=z, xy=xy)


@pytest.mark.parametrize(
    "text",
    [
        BODY.format(""),
        inertial(0, 'diaginertia="1 1 1"'),
        inertial(-1, 'diaginertia="1 1 1"'),
        inertial(1, 'diaginertia="0 1 1"'),
        inertial(1, 'diaginertia="1 1 5"'),
        inertial(1, 'fullinertia="1 1 1 2 0 0"'),
        geom("0"),
        urdf(mass=0),
        urdf(mass=-2),
        urdf(x=0),
        urdf(x=-1),
        urdf(z=5),
        urdf(xy=2),
    ],
)
def test_an_impossible_body_is_refused_by_name(text):
    with pytest.raises(ModelError, match="brick"):
        load(text)


def test_a_geom_of_negative_mass_is_refused_by_name():
    with pytest.raises(ModelError, match="bad"):
        load(BODY.format('<geom name="bad" size=".1" mass="-1"/>'))


@pytest.mark.parametrize(
    ("mass", "inertia", "why"),
    [
        (0, (1, 1, 1), "needs both"),
        (-1, (1, 1, 1), "negative"),
        (1, (0, 1, 1), "needs both"),
        (1, (1, -1, 1), "negative"),
        (1, (1, 1, 5), "triangle inequality"),
        (1, (5, 1, 1), "triangle inequality"),
    ],
)
def test_an_impossible_python_model_is_refused_by_name(mass, inertia, why):
    m = mujoco.MjModel.from_xml_string(inertial(1, 'diaginertia="1 1 1"'))
    load(m)
    m.body_mass[1], m.body_inertia[1] = mass, inertia
    with pytest.raises(ModelError, match=f'body "brick": .*{why}'):
        load(m)


def test_balancing_is_the_files_choice():
    xml = inertial(1, 'diaginertia="1 1 5"').replace("<worldbody>", '<compiler balanceinertia="true"/><worldbody>')
    a, b, c = np.sort(load(xml).body.inertia[0, 1])
    assert a + b >= c


def test_flat_and_thin_bodies_are_physical():
    """Rounding must not refuse A + B = C."""
    for inertia in ("1 1 2", "0.1 0.2 0.3", "1e-9 1 1"):
        load(inertial(1, f'diaginertia="{inertia}"'))
    load(BODY.format('<geom type="box" size="1 1 1e-6"/>'))


def test_every_faulty_body_is_named_at_once():
    bodies = "".join(f'<body name="b{i}"><freejoint/><geom size=".1"/></body>' for i in range(4))
    m = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")
    m.body_mass[[2, 4]] = -1
    with pytest.raises(ModelError) as error:
        load(m, disable=("contact",))
    assert [name in str(error.value) for name in ("b0", "b1", "b2", "b3")] == [False, True, False, True]


@pytest.mark.parametrize("field", ["body_quat", "geom_quat", "jnt_axis"])
def test_a_zero_direction_is_refused(field):
    m = mujoco.MjModel.from_xml_string(SCENE)
    getattr(m, field)[-1] = 0
    with pytest.raises(ModelError, match="unit length"):
        load(m)


@pytest.mark.parametrize("timestep", ["0", "-1"])
def test_a_time_step_that_is_not_positive_is_refused(timestep):
    with pytest.raises(ModelError, match="timestep"):
        load(f'<mujoco><option timestep="{timestep}"/></mujoco>')


@pytest.mark.parametrize(
    ("xml", "named"),
    [
        ('<geom name="brick" size=".1" friction="-0.3"/>', 'geom "brick": friction'),
        ('<geom name="brick" size=".1" friction="1 -0.1 0"/>', 'geom "brick": friction'),
        ('<joint name="brick" frictionloss="-1"/><geom size=".1"/>', 'joint "brick": frictionloss'),
    ],
)
def test_a_negative_friction_is_refused_by_name(xml, named):
    """``replace`` refuses it too. If it is traced, its world is held."""
    text = f"<mujoco><worldbody><body>{xml}</body></worldbody></mujoco>"
    with pytest.raises(ModelError, match=f"{named} is -.*must not be negative"):
        load(text, disable=("frictionloss",))
    model = load(text.replace("-", ""), disable=("frictionloss",))
    path = "geom.friction" if "geom" in named else "dof.frictionloss"
    leaf = model.geom.friction if "geom" in named else model.dof.frictionloss
    if model.structure.nv:
        with pytest.raises(ModelError, match=f"{named} is -.*must not be negative"):
            model.replace({path: leaf - 2.0})
        step = jax.jit(lambda x: fphys.step(model.replace({path: x}), fphys.init(model, 1)).status)
        assert step(leaf).tolist() == [0] and step(leaf - 2.0).tolist() == [int(fphys.Status.BADPARAM)]


FAR = """<mujoco><worldbody><body><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .5 0 0" size=".05"/>
    <body pos="{} 0 0"><geom size=".1"/></body>
    <body pos=".5 0 0"><joint name="tip" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .5 0 0" size=".05"/></body>
    </body></worldbody></mujoco>"""


@pytest.mark.parametrize("distance", [2e9, 5e8, 1e8, -3e10])
def test_an_inertia_lost_to_rounding_is_refused_by_name(distance):
    with pytest.raises(ModelError, match='joint "tip"'):
        load(FAR.format(distance))
    load(FAR.format(1e3))


def test_impossible_constants_are_refused():
    m = mujoco.MjModel.from_xml_string(SCENE)
    m.stat.meaninertia = -5015.0
    with pytest.raises(ModelError, match=r"statistic meaninertia is -5015\.0, must be positive"):
        load(m)
    model = load(SCENE)
    with pytest.raises(ModelError, match=r"statistic meaninertia is .*, must be positive"):
        model.replace({"opt.meaninertia": -model.opt.meaninertia})
    step = jax.jit(lambda x: fphys.step(model.replace({"opt.meaninertia": x}), fphys.init(model, 1)).status)
    assert int(step(-model.opt.meaninertia)[0]) & int(fphys.Status.BADPARAM)


# --- fault 17: float64 with x64 off


def test_float64_with_x64_off_says_how_to_switch_it_on():
    with jax.enable_x64(False), pytest.raises(ModelError, match="jax_enable_x64"):
        load(SCENE, dtype=np.float64)
    with jax.enable_x64(True):
        assert load(SCENE, dtype=np.float64).body.mass.dtype == np.float64
