"""Loading: every leaf is MuJoCo's, the structure is its topology, and what is not simulated is refused by name."""

import dataclasses
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from fphys.errors import ModelError, UnsupportedError
from fphys.model import init, load, to_mujoco
from fphys.model.validate import CONSTRAINTS
from fphys.model.whitelist import DEFAULT, IGNORED, LEAVES, READ, is_ignored, numeric_fields

from ..gymnasium_models import gymnasium_models

ASSETS = list(gymnasium_models().values())
SCENE = """
<mujoco>
  <option timestep="0.004" gravity="0 0 -3" integrator="implicitfast"/>
  <asset><hfield name="hill" nrow="2" ncol="2" size="1 1 1 1" elevation="0 1 1 0"/></asset>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1"/>
    <body name="ball" pos="0 0 1"><freejoint name="free"/><geom name="ball" size="0.1"/>
      <site name="tip" pos="0 0 .1"/></body>
    <body name="target" mocap="true" pos="1 2 3" quat="0 1 0 0"/>
    <body name="goal" mocap="true" pos="4 5 6"/>
    <body name="arm" pos="0 0 2">
      <joint name="swing" type="ball"/>
      <geom name="rod" type="box" size=".1 .1 .3" pos="0 0 -.3" contype="0" conaffinity="0"/>
      <body name="hand" pos="0 0 -.6">
        <joint name="slide" type="slide" stiffness="3" damping=".2" springref=".1"/>
        <joint name="turn" axis="0 1 0" armature=".1"/>
        <geom name="palm" size=".05" mass="0.3" condim="1"/>
      </body>
    </body>
  </worldbody>
  <tendon><fixed name="rope" stiffness="5" damping="1">
    <joint joint="slide" coef="2"/><joint joint="turn" coef="-1"/></fixed></tendon>
  <actuator>
    <motor name="push" joint="slide" gear="3" ctrlrange="-1 1"/>
    <position name="hold" joint="turn" kp="4" kv="1" forcerange="-2 2"/>
    <general name="pull" tendon="rope" dyntype="filterexact" dynprm="0.3" actrange="0 1"/>
    <intvelocity name="drive" joint="turn" kp="2" actrange="-1 1"/>
  </actuator>
  <contact><pair name="clap" geom1="ball" geom2="palm"/></contact>
  <equality><connect name="hook" body1="hand" anchor="0 0 0" active="false"/></equality>
  <sensor><jointpos name="encoder" joint="turn"/></sensor>
  <keyframe><key name="home" qpos="0 0 2 1 0 0 0  1 0 0 0  .1 .2" ctrl="1 2 3 4" mpos="1 1 1 2 2 2"/></keyframe>
</mujoco>"""
# One scene in which every feature that MuJoCo has and we have not is asked for.
REFUSED = """
<mujoco>
  <option integrator="implicit" cone="elliptic"><flag override="enable" sleep="enable"/></option>
  <asset><mesh name="hill" vertex="1 0 0 0 1 0 0 0 1 0 0 0"/></asset>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1"/><geom name="hill" type="sdf" mesh="hill"/>
    <body name="a">
      <joint name="hip" range="0 1"/><joint name="knee" axis="1 0 0" frictionloss="1" actuatorfrcrange="-1 1"/>
      <geom name="soft" size=".1" condim="4"/><geom name="can" type="cylinder" size=".1 .1"/>
      <site name="s"/><site name="t" pos="0 0 1"/>
    </body>
    <body name="b" pos="1 0 0" sleep="init">
      <joint name="wheel"/><geom name="fin" type="capsule" size=".1 .2" adhesion="1"/>
    </body>
  </worldbody>
  <contact><pair name="extra" geom1="soft" geom2="fin"/></contact>
  <equality><joint name="mirror" joint1="hip" joint2="wheel"/></equality>
  <tendon>
    <fixed name="belt" armature="1" limited="true" range="0 1" frictionloss="2"><joint joint="hip" coef="1"/></fixed>
  </tendon>
  <actuator>
    <general name="biceps" joint="hip" dyntype="user" actdim="1" gaintype="user"/>
    <adhesion name="sucker" body="b" ctrlrange="0 1"/>
    <intvelocity name="spin" site="s" refsite="t" gear="0 0 0 1 0 0" kp="2" actrange="-1 1"/>
    <motor name="crank" joint="knee"/>
    <general name="long" joint="wheel" biasprm="0 0 0 4" biastype="affine"/>
  </actuator>
</mujoco>"""
URDF = """
<robot name="arm">
  <link name="base"/>
  <link name="upper"><inertial><origin xyz="0 0 .2"/><mass value="2"/>
    <inertia ixx=".1" iyy=".1" izz=".02" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="lower"><inertial><mass value="1"/>
    <inertia ixx=".1" iyy=".1" izz=".02" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="shoulder" type="{base}"><parent link="base"/><child link="upper"/><axis xyz="0 1 0"/>
    <dynamics damping="0.3"/></joint>
  <joint name="elbow" type="{kind}"><parent link="upper"/><child link="lower"/><origin xyz="0 0 .4"/><axis xyz="0 1 0"/>
    <limit lower="-1" upper="1" effort="5" velocity="1"/></joint>
</robot>"""


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def with_leaf(model, path: str, values):
    """The model with one leaf exchanged."""
    group, _, name = path.rpartition(".")
    if not group:
        return dataclasses.replace(model, **{name: values})
    return dataclasses.replace(model, **{group: dataclasses.replace(getattr(model, group), **{name: values})})


def leaf(model, path: str) -> jax.Array:
    for name in path.split("."):
        model = getattr(model, name)
    return model


def field(m, name: str) -> np.ndarray:
    for part in name.split("."):
        m = getattr(m, part)
    return np.asarray(m)


# --- the whitelist


def test_the_whitelist_covers_every_field_of_the_installed_mujoco():
    fields = set(numeric_fields(mujoco.MjModel.from_xml_string(SCENE)))
    known = {name for name in fields if (name in READ) + (name in DEFAULT) + is_ignored(name)}
    assert fields - known == set(), "new in MuJoCo: read it, refuse it or say why it does not matter"
    assert {name for name in fields if (name in READ) + (name in DEFAULT) + is_ignored(name) > 1} == set()
    assert (READ | set(DEFAULT) | IGNORED) - fields == set(), "gone from MuJoCo"


@pytest.mark.parametrize("name", [name for name in DEFAULT if "." not in name and "_" in name])
def test_a_field_that_is_not_its_default_is_refused_by_element(name):
    m = mujoco.MjModel.from_xml_string(SCENE)
    values = getattr(m, name)
    values[-1] = not DEFAULT[name] if values.dtype == bool else DEFAULT[name] + 1
    with pytest.raises(UnsupportedError) as error:
        load(m)
    kind = {"jnt": "joint", "dof": "joint"}.get(name.split("_")[0], name.split("_")[0])
    elements = {"body": "hand", "joint": "turn", "geom": "palm", "tendon": "rope", "actuator": "drive", "pair": "clap"}
    assert f'{kind} "{elements[kind]}": {name.split("_", 1)[1]}' in str(error.value)


def test_everything_refused_is_named_at_once():
    with pytest.raises(UnsupportedError) as error:
        load(REFUSED)
    for expected in (
        'integrator="implicit"',
        'flag override="enable"',
        'body "b": sleep="init"',
        'geom "fin": adhesion',
        'contact of cylinder and sdf: "can" - "hill"',
        'actuator "biceps": dynamics user',
        'actuator "biceps": gain user',
        'actuator "sucker": adhesion beside a joint\'s actuatorfrcrange',
        'actuator "spin": integrated setpoint of a rotation',
        'actuator "long": biasprm',
        'disable=("contact",)',
    ):
        assert expected in str(error.value)


def test_disable_leaves_the_constraints_out_and_names_only_the_rest():
    with pytest.raises(UnsupportedError) as error:
        load(REFUSED, disable=CONSTRAINTS)
    assert 'geom "fin": adhesion' in str(error.value)
    for absent in ("contact of", ": limit", "equality", "frictionloss", "cone", "disable="):
        assert absent not in str(error.value)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_each_constraint_is_disabled_here_or_in_the_file(name):
    body = '<body name="{0}"><joint name="{0}" {1}/><geom size=".1" pos="{2} 0 0"/></body>'
    other = body.format("b", "", 5)
    text = {
        "contact": body.format("a", "", 0) + other,
        "limit": body.format("a", 'range="0 1"', 0),
        "equality": body.format("a", "", 0),
        "frictionloss": body.format("a", 'frictionloss="1"', 0),
    }[name]
    equality = '<equality><joint joint1="a"/></equality>' if name == "equality" else ""
    xml = f"<mujoco><option><flag {{}}/></option><worldbody>{text}</worldbody>{equality}</mujoco>"

    def constraints(model):
        s = model.structure
        return {
            "contact": len(s.geom.pair),
            "limit": s.limit.joint.size,
            "equality": s.equality.type.size,
            "frictionloss": s.friction.dof.size,
        }

    assert {kind for kind, count in constraints(load(xml.format(""))).items() if count} == {name}
    model = load(xml.format(""), disable=(name,))
    assert not any(constraints(model).values())
    assert model.structure.disabled == {name}
    assert model.structure.source.opt.disableflags == int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{name.upper()}"))
    assert load(xml.format(f'{name}="disable"')).structure.disabled == {name}
    assert load(xml.format('constraint="disable"')).structure.disabled >= {"constraint", *CONSTRAINTS}


def test_flags_of_the_file_are_kept():
    names = "gravity spring damper clampctrl actuation eulerdamp refsafe warmstart".split()
    flags = " ".join(f'{name}="disable"' for name in names)
    assert load(f"<mujoco><option><flag {flags}/></option></mujoco>").structure.disabled == set(names)


def test_another_solver_is_read_as_newton_with_one_warning():
    xml = '<mujoco><option solver="{}"/></mujoco>'
    for solver in ("PGS", "CG"):
        with pytest.warns(UserWarning, match="read as Newton") as seen:
            model = load(xml.format(solver))
        assert len(seen) == 1
        assert model.structure.source.opt.solver == mujoco.mjtSolver.mjSOL_NEWTON
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            load(xml.format(solver), disable=CONSTRAINTS)


def test_sleep_is_ignored_with_one_warning():
    xml = """<mujoco><option><flag sleep="enable"/></option><worldbody><body sleep="allowed"><freejoint/>
      <geom size="1"/></body></worldbody></mujoco>"""
    with pytest.warns(UserWarning, match="nothing sleeps here") as seen:
        model = load(xml)
    assert len(seen) == 1
    assert model.structure == load(xml.replace("enable", "disable")).structure
    assert model.structure.source.opt.enableflags == 0
    with pytest.raises(UnsupportedError, match='body 1: sleep="init"'):
        load(xml.replace("allowed", "init"))


# --- leaves and structure


@pytest.mark.parametrize("path", ASSETS, ids=lambda path: path.name)
def test_every_leaf_of_the_corpus_is_mujocos(path):
    model = load(path, disable=CONSTRAINTS)
    m = model.structure.source
    for name, theirs in LEAVES.items():
        ours = leaf(model, name)
        assert ours.dtype == np.float64
        if not name.startswith("key."):
            assert ours.shape[0] == 1
        expected = field(m, theirs)
        if theirs.endswith("prm") and theirs != "wrap_prm":
            expected = expected[..., : ours.shape[-1]]
        np.testing.assert_array_equal(np.asarray(ours).ravel(), expected.ravel(), err_msg=name)
    assert len(model.structure.geom.pair) == 0


def test_the_frames_are_the_bodies_and_joints_in_order():
    s = load(SCENE, disable=("contact",)).structure
    #                      world ball free target goal arm swing hand slide turn
    assert s.frame.parent.tolist() == [0, 0, 1, 0, 0, 0, 5, 6, 7, 8]
    assert s.frame.body.tolist() == [0, 1, 1, 2, 3, 4, 4, 5, 5, 5]
    assert s.frame.joint.tolist() == [-1, -1, 0, -1, -1, -1, 1, -1, 2, 3]
    assert s.body.frame.tolist() == [0, 2, 3, 4, 6, 9]
    assert s.joint.frame.tolist() == [2, 6, 8, 9]
    assert s.dof.frame.tolist() == [2] * 6 + [6] * 3 + [8, 9]


def test_the_structure_of_actuators_tendons_and_mocap_bodies():
    model = load(SCENE, disable=("contact",))
    s = model.structure
    assert s.tendon.adr.tolist() == [0, 2]
    assert s.tendon.object.tolist() == [2, 3]
    assert s.actuator.transmission.tolist() == [0, 0, 3, 0]
    assert s.actuator.target.tolist() == [2, 3, 0, 3]
    assert s.actuator.dynamics.tolist() == [0, 0, 3, 1]
    assert s.actuator.act.tolist() == [-1, -1, 0, 1]
    assert s.actuator.ctrllimited.tolist() == [True, False, False, False]
    assert s.actuator.forcelimited.tolist() == [False, True, False, False]
    assert s.actuator.actlimited.tolist() == [False, False, True, True]
    assert s.body.mocap.tolist() == [-1, -1, 0, 1, -1, -1]
    assert s.integrator == 3
    np.testing.assert_array_equal(model.key.mocap_pos, [[[1, 1, 1], [2, 2, 2]]])
    np.testing.assert_array_equal(model.actuator.biasprm[0, 1, :3], [0, -4, -1])


def test_structures_of_two_loads_are_equal_and_hash_alike():
    a, b = (load(SCENE, disable=("contact",)).structure for _ in range(2))
    assert a == b
    assert hash(a) == hash(b)
    assert a != load(SCENE.replace('name="free"', 'name="loose"'), disable=("contact",)).structure


def test_names_and_ids():
    model = load(SCENE, disable=("contact",))
    assert model.id("body", "hand") == 5
    assert model.names("joint") == ("free", "swing", "slide", "turn")
    assert model.names("sensor") == ("encoder",)
    with pytest.raises(ModelError, match="no body 'hend': did you mean 'hand'"):
        model.id("body", "hend")
    with pytest.raises(ModelError, match="kind is 'link'"):
        model.names("link")


def test_a_model_is_loaded_from_text_path_spec_and_model(tmp_path):
    path = tmp_path / "scene.xml"
    path.write_text(SCENE)
    compiled, spec = mujoco.MjModel.from_xml_string(SCENE), mujoco.MjSpec.from_string(SCENE)
    models = [load(s, disable=("contact",)) for s in (SCENE, path, str(path), compiled, spec)]
    for other in models[1:]:
        assert other.structure == models[0].structure
        jax.tree.map(np.testing.assert_array_equal, models[0], other.replace(structure=models[0].structure))
    assert compiled.opt.disableflags == 0, "the caller's model must not change"
    compiled.body_mass[1] = 7
    assert models[3].body.mass[0, 1] != 7


def test_a_urdf_is_loaded():
    model = load(URDF.format(base="continuous", kind="continuous"))
    assert model.names("joint") == ("shoulder", "elbow")
    np.testing.assert_allclose(model.body.mass, [[0, 2, 1]])
    np.testing.assert_allclose(model.dof.damping, [[0.3, 0]])
    limited = load(URDF.format(base="continuous", kind="revolute"))
    assert limited.structure.limit.joint.tolist() == [1, 1]
    assert load(URDF.format(base="floating", kind="continuous")).structure.nq == 8


def test_float32_is_asked_for_or_follows_x64():
    assert load(SCENE, disable=("contact",), dtype=jnp.float32).body.mass.dtype == jnp.float32
    with jax.enable_x64(False):
        assert load(SCENE, disable=("contact",)).body.mass.dtype == jnp.float32
    with pytest.raises(ModelError, match="float16"):
        load(SCENE, dtype="float16")


def test_importing_does_not_import_mujoco():
    code = "import sys, fphys.model; assert 'mujoco' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- contacts


@pytest.mark.parametrize("filterparent", ["enable", "disable"])
def test_the_pairs_are_those_that_mujoco_collides(filterparent):
    """Every geom overlaps every other, so that MuJoCo's contacts are the pairs that its filter lets through."""
    ball = '<geom name="{}" size="1" {}/>'
    xml = f"""
    <mujoco><option><flag filterparent="{filterparent}"/></option><worldbody>
      <geom name="floor" type="plane" size="1 1 1"/>{ball.format("fixed", 'pos="0 0 .1"')}
      <body name="m" mocap="true">{ball.format("m", "")}</body>
      <body mocap="true">{ball.format("m2", 'pos="0 0 .1"')}</body>
      <body name="a"><freejoint/>{ball.format("a1", 'pos="0 0 .2"')}{ball.format("a2", 'pos="0 0 .3"')}
        <body name="welded">{ball.format("w", 'pos="0 0 .4"')}
          <body name="child"><joint/>{ball.format("c", 'pos="0 0 .5"')}
            <body name="grandchild"><joint/>{ball.format("g", 'pos="0 0 .6" contype="2" conaffinity="1"')}</body></body>
        </body>
      </body>
      <body name="x"><joint/>{ball.format("x", 'pos="0 .1 .7"')}</body>
      <body name="y"><joint/>{ball.format("y", 'pos="0 .2 .8" contype="0" conaffinity="2"')}</body>
      <body name="z"><joint/><geom name="z" type="box" size="1 1 1"/></body>
    </worldbody><contact><exclude body1="x" body2="z"/></contact></mujoco>"""
    m = mujoco.MjModel.from_xml_string(xml)
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    from fphys.model.pairs import candidates

    ours = candidates(m, frozenset({"filterparent"} if filterparent == "disable" else ()))
    assert {tuple(pair) for pair in ours.tolist()} == {tuple(pair) for pair in d.contact.geom.tolist()}
    assert len(ours) == len({tuple(pair) for pair in ours.tolist()})
    assert (m.geom_type[ours[:, 0]] <= m.geom_type[ours[:, 1]]).all()


DROP = """
<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1" {floor}/>
  <body name="ball" pos="0 0 .099"><freejoint/><geom name="ball" size=".1" condim="1"/></body>
  <body name="box" pos="1 0 .099"><freejoint/>
    <geom name="box" type="box" size=".1 .1 .1" contype="2" conaffinity="1"/></body>
</worldbody><contact><exclude body1="ball" body2="box"/></contact></mujoco>"""


@pytest.mark.parametrize(
    ("floor", "rows"),
    [('condim="1"', 1 + 4 * 4), ('condim="3"', 4 + 4 * 4), ('condim="1" priority="1"', 1 + 4), ("", 4 + 4 * 4)],
)
def test_default_capacities_hold_what_the_pairs_can_make(floor, rows):
    model = load(DROP.format(floor=floor))
    state = init(model, 2)
    assert (state.max_contacts, state.max_constraints) == (5, rows)
    _, d = to_mujoco(model, state)
    assert (d.ncon, d.nefc) == (5, rows), "both rest on the floor: every contact is there"


# --- to MuJoCo and back


def test_an_unchanged_model_goes_back_bit_for_bit():
    model = load(SCENE, disable=("contact",))
    m, d = to_mujoco(model, init(model, 2), 1)
    for name, values in numeric_fields(model.structure.source).items():
        np.testing.assert_array_equal(field(m, name), values, err_msg=name)
    assert m is not model.structure.source
    np.testing.assert_array_equal(d.qpos, m.qpos0)


@pytest.mark.parametrize("path", [p for p in LEAVES if not p.startswith("key.")])
def test_every_leaf_of_a_world_is_written_back(path):
    model = load(SCENE, disable=("contact",))
    before = {name: values.copy() for name, values in numeric_fields(model.structure.source).items()}
    values = leaf(model, path)
    if values.size == 0:
        pytest.fail(f"the scene has no {path}")
    turned = jnp.array([0.6, 0.0, 0.8, 0.0])
    other = jnp.broadcast_to(turned, values.shape) if path.endswith("quat") else values * 1.5 + 0.25
    if path in ("body.ipos", "body.iquat", "joint.axis", "joint.pos"):
        # The ball is a simple body, whose diagonal mass matrix these would make full.
        with pytest.raises(UnsupportedError, match='body "ball"'):
            to_mujoco(with_leaf(model, path, jnp.concatenate([values, other])), init(model, 2), 1)
        other = other.at[:, :2].set(values[:, :2]) if path.startswith("body") else other.at[:, :1].set(values[:, :1])
        if path.startswith("joint"):
            return
    changed = with_leaf(model, path, jnp.concatenate([values, other]))
    m, _ = to_mujoco(changed, init(model, 2), 1)
    np.testing.assert_array_equal(
        np.ravel(field(m, LEAVES[path])[..., : other.shape[-1]] if "prm" in path else field(m, LEAVES[path])),
        np.ravel(other),
    )
    for name, values in numeric_fields(model.structure.source).items():
        np.testing.assert_array_equal(values, before[name], err_msg=name)


@pytest.mark.parametrize(
    ("path", "index", "value", "old", "new"),
    [
        ("body.mass", (0, 1), 9.0, 'name="ball" size="0.1"', 'name="ball" size="0.1" mass="9"'),
        ("geom.pos", (0, 2), (0, 0, -0.5), 'pos="0 0 -.3" contype', 'pos="0 0 -.5" contype'),
        ("site.pos", (0, 0), (0.3, 0, 0.1), 'pos="0 0 .1"', 'pos=".3 0 .1"'),
        ("body.pos", (0, 5), (0.1, 0, -0.6), 'pos="0 0 -.6"', 'pos=".1 0 -.6"'),
        ("dof.armature", (0, 10), 0.7, 'armature=".1"', 'armature=".7"'),
        ("opt.timestep", (0,), 0.01, 'timestep="0.004"', 'timestep="0.01"'),
        ("tendon.coef", (0, 0), 3.0, 'coef="2"', 'coef="3"'),
        ("body.gravcomp", (0, 1), 1.0, 'body name="ball"', 'body name="ball" gravcomp="1"'),
    ],
)
def test_a_changed_leaf_acts_as_the_same_change_in_the_file(path, index, value, old, new):
    """Inertias are given, so that the change of one leaf is one change of the file."""
    text = SCENE.replace("<worldbody>", '<compiler inertiafromgeom="auto"/><worldbody>')
    for body, size in (("ball", 0.1), ("arm", 0.2), ("hand", 0.05)):
        inertial = f'<inertial pos="0 0 0" mass="2" diaginertia="{size} {size} {size}"/>'
        start = text.index(">", text.index(f'<body name="{body}"')) + 1
        text = text[:start] + inertial + text[start:]
    if path == "body.mass":
        old, new = 'mass="2" diaginertia="0.1', 'mass="9.0" diaginertia="0.1'
    assert text.count(old) == 1
    model, expected = load(text, disable=("contact",)), load(text.replace(old, new), disable=("contact",))
    changed = with_leaf(model, path, leaf(model, path).at[index].set(jnp.array(value)))
    for name in ("body.invweight0", "dof.invweight0", "opt.meaninertia", "tendon.lengthspring"):  # they follow
        changed = with_leaf(changed, name, leaf(expected, name))
    rng = np.random.default_rng(0)
    start = init(model, 1)
    state = start.replace(qpos=start.qpos + 0.1 * rng.normal(size=(1, 13)), qvel=rng.normal(size=(1, 11)))
    (_, ours), (_, theirs) = to_mujoco(changed, state), to_mujoco(expected, state)
    for name in ("qacc", "qfrc_passive", "qfrc_bias", "xipos", "geom_xpos", "site_xpos", "ten_length"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-12, atol=1e-12, err_msg=name)


def test_larger_geoms_touch_in_mujoco_too():
    """The bounds of MuJoCo's search for contacts follow the sizes."""
    model = load(DROP.format(floor=""))
    state = init(model, 1)
    state = state.replace(qpos=state.qpos + jnp.array([[0, 0, 0.5, 0, 0, 0, 0] * 2]))
    assert to_mujoco(model, state)[1].ncon == 0
    _, d = to_mujoco(with_leaf(model, "geom.size", model.geom.size * 8), state)
    assert d.ncon == 5


def test_the_state_of_the_world_is_written():
    rng = np.random.default_rng(1)
    model = load(SCENE, disable=("contact",))
    state = init(model, 3, qvel=rng.normal(size=(3, 11)))
    state = state.replace(
        act=jnp.array(rng.uniform(size=(3, 2))), time=jnp.arange(3.0), warmstart=jnp.array(rng.normal(size=(3, 11)))
    )
    _, d = to_mujoco(model, state, 2)
    for name in ("qpos", "qvel", "act", "time", "mocap_pos", "mocap_quat"):
        np.testing.assert_array_equal(getattr(d, name), getattr(state, name)[2], err_msg=name)
    np.testing.assert_array_equal(d.qacc_warmstart, state.warmstart[2])
    assert np.abs(d.qacc).max() > 0, "mj_forward was called"
    with pytest.raises(ValueError, match="world is 3, the state has 3"):
        to_mujoco(model, state, 3)


# --- init, reset, check
