"""USD files: what is opened, what is composed, what collides, and what is refused."""

import functools
import math
import random
import re
import sys
import warnings
from pathlib import Path

import mujoco
import numpy as np
import pytest

import fphys
from fphys.errors import MissingDependencyError, ModelError, UnsupportedError
from fphys.model.usd_stage import pxr

from .usd_text import BODY, HEAD, SHAPE, body, joint, read, write

pytestmark = pytest.mark.extra("pxr")

BALL = f'def Sphere "ball" ({SHAPE}) {{ double radius = 0.1 }}'


def ball(name: str, at=(0, 0, 0), more: str = "") -> str:
    inner = f"{BALL}\n{more}"
    return body(name, inner, at, 1.0, (0, 0, 0))


def contacts(model) -> set[frozenset[str]]:
    """Pairs of bodies that touch in the first state."""
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    name = [model.body(int(b)).name for b in model.geom_bodyid]
    return {frozenset(name[g] for g in c.geom) for c in data.contact}


def layer(path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD.format(length=1.0, mass=1.0, up="Z") + text.replace(" }", "\n}"))


def test_references_variants_and_instances_are_composed(tmp_path):
    layer(
        tmp_path / "parts" / "wheel.usda", f'def Xform "w" {{\n def Sphere "rim" ({SHAPE}) {{ double radius = 0.2 }} }}'
    )
    text = """def Xform "{0}" (
        prepend apiSchemas = ["PhysicsRigidBodyAPI"]
        variants = {{ string size = "{1}" }}
        prepend variantSets = "size") {{
        double3 xformOp:translate = ({2}, 0, 0)
        uniform token[] xformOpOrder = ["xformOp:translate"]
        def Xform "wheel" (instanceable = true; prepend references = @./parts/wheel.usda@) {{ }}
        variantSet "size" = {{
          "light" (prepend apiSchemas = ["PhysicsMassAPI"]) {{ float physics:mass = 1 }}
          "heavy" (prepend apiSchemas = ["PhysicsMassAPI"]) {{ float physics:mass = 5 }}
        }} }}"""
    model = read(write(tmp_path, text.format("a", "light", 0) + "\n" + text.format("b", "heavy", 1)))
    assert model.body_mass.tolist() == [0, 1, 5]
    assert model.geom_size[:, 0].tolist() == [0.2, 0.2]
    assert [model.geom(i).name for i in range(2)] == ["rim", "wheel/rim"]


@pytest.mark.parametrize("arc", ["references", "payload"])
def test_layers_outside_the_root_are_not_opened(tmp_path, arc):
    layer(tmp_path / "library" / "part.usda", f'def Xform "w" {{\n {BALL} }}')
    (tmp_path / "robot").mkdir()
    text = f'def Xform "a" (prepend apiSchemas = ["PhysicsRigidBodyAPI"]; prepend {arc} = @../library/part.usda@) {{ }}'
    path = write(tmp_path / "robot", text)
    with pytest.raises(ModelError, match=f"outside .*root={str(tmp_path)!r}"):
        fphys.load(path)
    for root in (tmp_path, "auto"):
        assert read(path, root=root).ngeom == 1
    (tmp_path / "library" / "part.usda").unlink()
    (tmp_path / "library" / "part.usda").symlink_to("/etc/hostname")
    with pytest.raises(ModelError, match="outside"):
        fphys.load(path, root=tmp_path)


def test_a_package_is_read(tmp_path):
    path = write(tmp_path, ball("a"))
    assert pxr("UsdUtils").CreateNewUsdzPackage(path, str(tmp_path / "a.usdz"))
    assert read(str(tmp_path / "a.usdz")).body_mass[1] == 1


def test_groups_and_filtered_pairs_do_not_touch(tmp_path):
    def group(name, member, *off):
        targets = ", ".join(f"</w/{x}>" for x in off)
        return f"""def PhysicsCollisionGroup "{name}" (prepend apiSchemas = ["CollectionAPI:colliders"]) {{
            rel collection:colliders:includes = </w/{member}>
            rel physics:filteredGroups = [{targets}] }}"""

    balls = "".join(ball(name, (i / 20, 0, 0)) for i, name in enumerate("abc"))
    every = {frozenset(pair) for pair in ("ab", "bc", "ac")}
    assert contacts(read(write(tmp_path, balls))) == every
    grouped = balls + group("one", "a", "two") + group("two", "b")
    assert contacts(read(write(tmp_path, grouped))) == every - {frozenset("ab")}
    pair = 'prepend apiSchemas = ["PhysicsRigidBodyAPI", "PhysicsMassAPI", "PhysicsFilteredPairsAPI"]'
    filtered = ball("d", more="rel physics:filteredPairs = </w/b>").replace(BODY, pair)
    assert contacts(read(write(tmp_path, balls + filtered))) == every | {frozenset("ad"), frozenset("cd")}


def test_a_mesh_collides_as_its_hull_and_is_scaled(tmp_path):
    corners = [(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]
    mesh = f"""def Mesh "hull" (prepend apiSchemas = ["PhysicsCollisionAPI", "PhysicsMeshCollisionAPI"]) {{
        uniform token physics:approximation = "convexHull"
        point3f[] points = {corners}
        int[] faceVertexCounts = [4]
        int[] faceVertexIndices = [0, 1, 3, 2]
        float3 xformOp:scale = (0.1, 0.2, 0.3)
        uniform token[] xformOpOrder = ["xformOp:scale"] }}"""
    text = f'def Xform "a" (prepend apiSchemas = ["PhysicsRigidBodyAPI"]) {{ {mesh} }}'.replace("{ def", "{\ndef")
    model = read(write(tmp_path, text))
    assert model.body_mass[1] == pytest.approx(1000 * 0.2 * 0.4 * 0.6, rel=1e-6)
    with pytest.warns(UserWarning, match="</w/a/hull>: a mesh with approximation 'none' collides as its convex hull"):
        fphys.load(write(tmp_path, text.replace('uniform token physics:approximation = "convexHull"', "")))


def test_what_is_read_otherwise_is_named_in_one_warning(tmp_path):
    more = "float physxRigidBody:linearDamping = 0.1\nvector3f physics:velocity = (1, 0, 0)"
    text = ball("a", more=more) + joint("Revolute", None, "a", "float physics:breakForce = 10")
    with pytest.warns(UserWarning, match="read with these changes") as found:
        fphys.load(write(tmp_path, text))
    message = str(found[0].message)
    assert len(found) == 1
    for named in (
        "</w/a>: physxRigidBody:linearDamping is not",
        "</w/a>: its physics:velocity",
        "</w/a_joint>: its physics:br",
    ):
        assert named in message


def test_what_is_not_read_is_named_whatever_other_prims_have(tmp_path):
    apis, drive = '"PhysicsDriveAPI:rotX"', "float drive:rotX:physics:stiffness = 50\nfloat limit:rotX:physics:low = -5"
    lost = ball("a") + joint("Spherical", None, "a", drive, apis=apis)
    other = ball("b", (3, 0, 0)) + joint("", None, "b", drive, at0=(3, 0, 0), apis=apis)
    for text in (lost, lost + other):
        with pytest.warns(UserWarning, match="</w/a_joint>: drive:rotX:physics:stiffness is not read") as found:
            fphys.load(write(tmp_path, text))
        assert "</w/a_joint>: limit:rotX:physics:low is not read" in str(found[0].message)


def test_what_is_off_or_unused_need_not_be_read(tmp_path):
    off = f"""def Xform "off" ({BODY}) {{ bool physics:rigidBodyEnabled = 0
          float physics:mass = 2
          vector3f physics:velocity = (1, 0, 0) }}
      def Sphere "ghost" ({SHAPE}) {{ bool physics:collisionEnabled = 0
          float newton:contactMargin = 0.1 }}
      def Material "unused" (prepend apiSchemas = ["PhysicsMaterialAPI"]) {{ float physics:dynamicFriction = 1 }}"""
    no_joint = joint("Revolute", None, "a", "bool physics:jointEnabled = 0\nfloat physics:upperLimit = 3")
    assert read(write(tmp_path, ball("a") + off + no_joint)).nbody == 2


@pytest.mark.parametrize("kind", ["Capsule", "Cylinder"])
def test_what_is_round_and_scaled_unevenly_is_named(tmp_path, kind):
    text = (
        ball("a")
        + f"""def {kind} "rod" ({SHAPE}) {{
        float3 xformOp:scale = (1, 3, 2)
        uniform token[] xformOpOrder = ["xformOp:scale"] }}"""
    )
    with pytest.warns(UserWarning, match=r"</w/rod>: it is scaled unevenly across its axis"):
        fphys.load(write(tmp_path, text))
    read(write(tmp_path, text.replace("(1, 3, 2)", "(3, 3, 2)")))


def test_mujocos_and_newtons_schemas(tmp_path):
    inner = """double mjc:armature = 0.3
        float newton:damping = 0.1
        double mjc:springref = 90
        double mjc:stiffness = 4"""
    text = f"""{ball("a")}
        {joint("Revolute", None, "a", inner)}
        def MjcActuator "motor" {{
          rel mjc:target = </w/a_joint>
          double[] mjc:gear = [3]
          double mjc:ctrlRange:min = -2
          double mjc:ctrlRange:max = 2 }}
        def Xform "tip" (prepend apiSchemas = ["MjcSiteAPI"]) {{ }}
        def PhysicsScene "scene" {{
          int newton:timeStepsPerSecond = 100
          token mjc:option:integrator = "implicitfast"
          bool mjc:flag:contact = 0
          float physics:gravityMagnitude = 3.7 }}"""
    model = read(write(tmp_path, text))
    assert model.dof_armature[0] == 0.3 and model.jnt_stiffness[0] == 4
    assert model.dof_damping.ravel()[0] == pytest.approx(18 / math.pi)
    assert model.qpos_spring[0] == pytest.approx(math.pi / 2)
    assert model.actuator_gear[0, 0] == 3 and model.actuator_ctrlrange[0].tolist() == [-2, 2]
    assert model.opt.timestep == 0.01 and model.opt.integrator == 3 and model.opt.disableflags == 16
    assert model.opt.gravity.tolist() == [0, 0, -3.7] and model.site("tip").id == 0
    text = text.replace("int newton:timeStepsPerSecond = 100", "").replace('"scene" {', '"scene" (NEWTON) {')
    model = read(write(tmp_path, text.replace("NEWTON", 'prepend apiSchemas = ["NewtonSceneAPI"]')))
    assert model.opt.timestep == 0.001  # Newton's default


def test_masses_by_mujocos_compiler(tmp_path):
    """``inertiaFromGeom`` leaves the bodies' own masses aside, ``setTotalMass`` scales all of them."""
    one = f"""def Xform "a" ({BODY}) {{ float physics:mass = 5
          def Sphere "s" ({SHAPE}) {{ double radius = 0.1 }} }}"""
    two = one.replace('"a"', '"b"').replace("0.1", "0.2")
    scene = 'def PhysicsScene "scene" {{ token mjc:compiler:inertiaFromGeom = "{}"{} }}'
    volume = 4 / 3 * math.pi * 0.1**3

    def masses(*words):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the bodies' own masses are not read
            return fphys.load(write(tmp_path, one + two + scene.format(*words))).structure.source.body_mass[1:]

    np.testing.assert_allclose(masses("auto", ""), 5)
    np.testing.assert_allclose(masses("true", ""), [1000 * volume, 8000 * volume])
    np.testing.assert_allclose(masses("true", "\n double mjc:compiler:setTotalMass = 9"), [1, 8])


SLIDES = ball("a") + ball("b") + joint("Prismatic", None, "a") + joint("Prismatic", "a", "b")
TWO = ball("a") + ball("b") + joint("Fixed", None, "a") + joint("Revolute", "a", "b")
FAULTS = {
    "malformed": ('def Xform "a" {{{', "model.usda:4:"),
    "cyclic": ('def Xform "a" (prepend references = @./model.usda@</w/a>) { }', "Cycle detected"),
    "missing": ('def Xform "a" (prepend references = @./no.usda@) { }', "no.usda"),
    "other resource": ('def Xform "a" (prepend references = @http://a.org/b.usda@) { }', "only USD files"),
    "loop": (SLIDES + joint("Prismatic", None, "b").replace("b_joint", "loop"), "</w/loop>: it closes a loop"),
    "twice": (TWO + joint("Prismatic", "b", "a").replace("a_joint", "twice"), "</w/twice>: it holds the bodies that"),
    "no mass": ('def Xform "a" (prepend apiSchemas = ["PhysicsRigidBodyAPI"]) { }', "</w/a>: it moves and has no mass"),
    "no such body": (ball("a") + joint("Fixed", "b", "a"), "</w/a_joint>: physics:body0 names /w/b"),
    "itself": (ball("a") + joint("Revolute", "a", "a"), "</w/a_joint>: it connects a body with itself"),
    "nothing": ("", "neither rigid bodies nor colliders"),
    "not a number": (ball("a").replace("mass = 1.0", "mass = nan"), "</w/a>: physics:mass is not a number"),
}
MANY = """def PointInstancer "many" {
    point3f[] positions = [(1, 0, 0), (2, 0, 0)]
    int[] protoIndices = [0, 0]
    rel prototypes = </w/many/ball>
    %s }"""
UNSUPPORTED = {
    "point instancer": (MANY % BALL, "</w/many>: a point instancer of bodies or colliders"),
    "cone": (f'def Cone "c" ({SHAPE}) {{ }}', "</w/c>: a collider of type Cone"),
    "distance": (ball("a") + joint("Distance", None, "a"), "</w/a_joint>: a joint of type PhysicsDistanceJoint"),
    "actuator": (ball("a") + '\ndef NewtonActuator "t" { }', "</w/t>: NewtonActuator"),
    "acceleration": (
        ball("a")
        + joint(
            "Revolute", None, "a", 'token drive:angular:physics:type = "acceleration"', apis='"PhysicsDriveAPI:angular"'
        ),
        "</w/a_joint>: a drive",
    ),
}


@pytest.mark.parametrize("name", [*FAULTS, *UNSUPPORTED])
def test_faults_name_the_prim(tmp_path, name):
    text, message = (FAULTS | UNSUPPORTED)[name]
    with pytest.raises(UnsupportedError if name in UNSUPPORTED else ModelError, match=message) as caught:
        fphys.load(write(tmp_path, text))
    assert str(caught.value).startswith(str(tmp_path))


def test_a_point_instancer_of_looks_is_left_out(tmp_path):
    model = read(write(tmp_path, ball("a") + MANY % 'def Sphere "ball" { }'))
    assert model.nbody == 2 and model.ngeom == 1


def test_a_huge_stage_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fphys.model.usd_stage.MAX_PRIMS", 20)
    with pytest.raises(ModelError, match="more than 20 prims"):
        fphys.load(write(tmp_path, "\n".join(f'def Xform "x{i}" {{ }}' for i in range(30))))
    layer(tmp_path / "ten.usda", 'def Xform "w" {\n' + "\n".join(f'def Xform "x{i}" {{ }}' for i in range(10)) + "\n}")
    many = "\n".join(f'def Xform "a{i}" (prepend references = @./ten.usda@) {{ }}' for i in range(4))
    with pytest.raises(ModelError, match="more than 20 prims"):
        fphys.load(write(tmp_path, many))


def test_references_that_multiply_are_refused_before_they_are_composed(tmp_path):
    for k in range(9):
        inner = "\n".join(f'def "x{i}" (prepend references = @./bomb{k}.usda@) {{ }}' for i in range(10))
        layer(tmp_path / f"bomb{k + 1}.usda", f'def Xform "w" {{\n{inner}\n}}')
    layer(tmp_path / "bomb0.usda", 'def Xform "w" { }')
    with pytest.raises(ModelError, match="composed of more than"):
        fphys.load(str(tmp_path / "bomb9.usda"))


def test_a_file_that_has_changed_is_read_again(tmp_path):
    path = write(tmp_path, ball("a"))
    held = pxr("Usd").Stage.Open(path)
    assert read(path).body_mass[1] == 1
    write(tmp_path, ball("a").replace("mass = 1.0", "mass = 2"))
    assert read(path).body_mass[1] == 2
    held.GetRootLayer().comment = "a change in memory, which is kept"
    assert read(path).body_mass[1] == 2 and held.GetRootLayer().comment


@pytest.mark.parametrize("pair", ["{}", "[]", "()"])
def test_deep_brackets_are_refused_before_usd_sees_them(tmp_path, pair):
    """usd-core 26.11 exhausts the stack at 100,000 prims in one another, and the process ends."""
    opened = 'def "a" {\n' if pair == "{}" else pair[0]
    (tmp_path / "deep.usda").write_text("#usda 1.0\n" + opened * 100_000 + pair[1] * 100_000)
    with pytest.raises(ModelError, match="brackets are nested more than 10000 deep"):
        fphys.load(str(tmp_path / "deep.usda"))
    (tmp_path / "deep.usda").write_text("#usda 1.0\n" + 'def "a" {\n' * 600 + "}\n" * 600)
    with pytest.raises(ModelError, match="prims are nested more than 490 deep"):
        fphys.load(str(tmp_path / "deep.usda"))


def test_usd_core_is_asked_for(tmp_path, monkeypatch):
    path = write(tmp_path, ball("a"))
    for name in [name for name in sys.modules if re.match(r"pxr(\.|$)", name)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pxr", None)
    with pytest.raises(MissingDependencyError, match=r"usd-core is not installed.*\[usd\]"):
        fphys.load(path)


def test_joints_beside_the_tree_couple_its_bodies(tmp_path):
    beside, y = "uniform bool physics:excludeFromArticulation = true", 'uniform token physics:axis = "Y"'
    text = ball("a") + ball("b", (1, 0, 0))
    text += joint("Revolute", None, "a", y) + joint("Revolute", "a", "b", y, at0=(1, 0, 0))
    weld = joint("Fixed", None, "b", beside, at0=(1, 0, 0)).replace("b_joint", "weld")
    soft = f"{beside}\ndouble[] mjc:solref = [0.01, 2]"
    pin = joint("Spherical", None, "b", soft, at0=(1, 0, 0)).replace("b_joint", "pin")
    model = read(write(tmp_path, text + weld + pin))
    assert model.eq_type.tolist() == [1, 0] and model.eq_solref[1].tolist() == [0.01, 2]
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    assert data.nefc == 9 and abs(data.efc_pos).max() < 1e-12


def test_loops_are_closed_by_constraints(tmp_path):
    """A parallelogram of three bars swings as one pendulum: its uprights turn alike, its crossbar does not turn."""
    y = 'uniform token physics:axis = "Y"'
    text = ball("a", (0, 0, -0.5)) + ball("b", (0.5, 0, -1)) + ball("c", (1, 0, -0.5))
    text += joint("Revolute", None, "a", y, at1=(0, 0, 0.5)) + joint(
        "Revolute", "a", "b", y, (0, 0, -0.5), (-0.5, 0, 0)
    )
    text += joint("Revolute", "b", "c", y, (0.5, 0, 0), (0, 0, -0.5))
    last = functools.partial(joint, "Revolute", None, "c", y, (1, 0, 0), (0, 0, 0.5))
    with pytest.warns(UserWarning, match="</w/last>: it closes a loop of joints"):
        model = fphys.load(write(tmp_path, text + last().replace("c_joint", "last"))).structure.source
    assert model.nv == 3 and model.neq == 2 and model.eq(0).name == "last-" and model.nexclude == 2  # beside the world
    data = mujoco.MjData(model)
    data.qvel[:] = 1, -1, 1
    mujoco.mj_step(model, data, 200)
    # Uprights of 1 kg: m/4 and the ball's own inertia each; the bar's m. Weights by their arms: m/2, m and m/2.
    inertia, gravity = 2 * 0.25 + 2 * 0.004 + 1, 9.81 * (0.5 + 1 + 0.5)
    angle = np.sqrt(inertia / gravity) * np.sin(np.sqrt(gravity / inertia) * data.time)
    assert data.qpos == pytest.approx([angle, -angle, angle], abs=0.01)
    with pytest.warns(UserWarning, match="</w/c_joint>: it closes a loop"):  # what drives stays in the tree
        model = fphys.load(
            write(tmp_path, text + last('"PhysicsDriveAPI:angular"').replace("c_joint", "last"))
        ).structure.source
    assert model.nu == 1 and model.nexclude == 2


def test_a_mimic_joint_follows_the_other_one(tmp_path):
    follow = """rel newton:mimicJoint = </w/a_joint>
        float newton:mimicCoef0 = 90
        float newton:mimicCoef1 = -2"""
    text = ball("a") + joint("Revolute", None, "a") + ball("b") + joint("Revolute", None, "b", follow)
    model = read(write(tmp_path, text))
    assert model.eq_data[0, :5] == pytest.approx([math.pi / 2, -2, 0, 0, 0])
    assert model.eq_obj1id[0] == model.joint("b_joint").id and model.eq_obj2id[0] == model.joint("a_joint").id


def test_tendons_of_mujocos_schema(tmp_path):
    text = f"""{ball("a")}
        {joint("Prismatic", None, "a")}
        {ball("b")}
        {joint("Prismatic", None, "b")}
        def Xform "eye" (prepend apiSchemas = ["MjcSiteAPI"]) {{
          double3 xformOp:translate = (0, 0, 3)
          uniform token[] xformOpOrder = ["xformOp:translate"] }}
        def MjcTendon "fixed" {{
          token mjc:type = "fixed"
          rel mjc:path = [</w/a_joint>, </w/b_joint>]
          double[] mjc:path:coef = [1, -2]
          double mjc:stiffness = 5 }}
        def MjcTendon "led" {{ rel mjc:path = [</w/eye>, </w/tip>] }}
        def Xform "tip" (prepend apiSchemas = ["MjcSiteAPI"]) {{ }}
        def MjcActuator "pull" {{ rel mjc:target = </w/fixed> }}"""
    model = read(write(tmp_path, text))
    assert model.wrap_prm[:2].tolist() == [1, -2] and model.tendon_stiffness.ravel()[0] == 5
    assert model.tendon_length0.tolist() == [0, 3]
    assert model.actuator_trntype.tolist() == [3] and model.actuator("pull").id == 0


def test_articulations_without_self_collisions(tmp_path):
    apart = "uniform bool newton:selfCollisionEnabled = 0"
    root = BODY.replace('MassAPI"', 'MassAPI", "PhysicsArticulationRootAPI"')
    text = ball("a", more=apart).replace(BODY, root) + ball("b") + ball("c") + ball("d")
    text += joint("Revolute", "a", "b") + joint("Revolute", "b", "c")
    pairs = contacts(read(write(tmp_path, text)))
    assert pairs == {frozenset("ad"), frozenset("bd"), frozenset("cd")}
    pairs = contacts(read(write(tmp_path, text.replace(apart, ""))))
    assert frozenset("ac") in pairs and frozenset("ab") not in pairs


TOUCH = "bool physics:collisionEnabled = 1"
MUJOCOS = 'def PhysicsScene "scene" (prepend apiSchemas = ["MjcSceneAPI"]) { }'


@pytest.mark.parametrize("base", ["held", "kinematic", "static"])
def test_a_joint_keeps_its_bodies_apart(tmp_path, base):
    """Also from one that stands, which MuJoCo's own filter does not."""
    more = "bool physics:kinematicEnabled = 1" if base == "kinematic" else ""
    held = ball("a", more=more).replace(BODY, "" if base == "static" else BODY)
    held += joint("Fixed", None, "a") if base == "held" else ""
    text = held + ball("b", (0.1, 0, 0.05)) + f'def Plane "floor" ({SHAPE}) {{ }}'
    for end in ("a", "a/ball"):
        hinge = functools.partial(joint, "Revolute", end, "b", at1=(-0.1, 0, -0.05))
        model = read(write(tmp_path, text + hinge()))
        assert model.nv == 1 and contacts(model) == {frozenset(("b", "world"))}
        assert len(contacts(read(write(tmp_path, text + hinge(TOUCH))))) == 2
        by_its_rule = contacts(read(write(tmp_path, text + hinge() + MUJOCOS)))
        assert len(by_its_rule) == (1 if base == "kinematic" else 2)


def test_a_joint_to_all_that_stands_keeps_nothing_apart(tmp_path):
    """A prim with rigid bodies below is a part of the world, as mujoco-usd-converter writes it."""
    text = ball("a") + f'def Plane "floor" ({SHAPE}) {{ }}' + joint("Revolute", None, "a", "rel physics:body0 = </w>")
    assert contacts(read(write(tmp_path, text))) == {frozenset(("a", "world"))}


def test_only_a_joint_keeps_bodies_apart(tmp_path):
    """Not the fixing of one of them to a third one, except in a file of MuJoCo's: its filter leaves out both."""
    rough = (
        """def Material "rough" (prepend apiSchemas = ["PhysicsMaterialAPI"]) { float physics:dynamicFriction = 2 }"""
    )
    base = ball("a").replace(SHAPE, SHAPE.replace("]", ', "MaterialBindingAPI"]'))
    base = base.replace("radius = 0.1", "radius = 0.1\nrel material:binding:physics = </w/rough>") + rough
    base += ball("b", (0.1, 0, 0)) + ball("c", (0, 0.1, 0)) + joint("Fixed", "a", "b", at0=(0.1, 0, 0))
    turns = functools.partial(joint, "Revolute", "b", "c", at0=(-0.1, 0.1, 0))
    model = read(write(tmp_path, base + turns()))
    assert contacts(model) == {frozenset("ac")}
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    assert data.contact[0].friction[0] == 2 and data.contact[0].dim == 3  # as of geoms that are no pair
    assert contacts(read(write(tmp_path, base + turns(TOUCH)))) == {frozenset("ac"), frozenset("bc")}
    base += MUJOCOS
    assert contacts(read(write(tmp_path, base + turns()))) == set()
    assert contacts(read(write(tmp_path, base + turns(TOUCH)))) == {frozenset("bc")}


def test_kinematic_bodies_and_inertias_of_newtons_schema(tmp_path):
    full = "double[] newton:inertia = [0.3, 0.2, 0.2, 0.01, 0, 0]"
    text = ball("a", more="bool physics:kinematicEnabled = 1") + ball("b", (1, 0, 0), full)
    model = read(write(tmp_path, text))
    assert model.body_mocapid.tolist() == [-1, 0, -1] and model.nv == 6
    root = math.hypot(0.05, 0.01)
    assert model.body_inertia[2].tolist() == pytest.approx([0.25 + root, 0.2, 0.25 - root])


MUTATIONS = ("nan", "inf", "-1", "0", "[]", "(0, 0, 0)", '"x"', "</w/none>", "1e300")


def test_a_mutated_file_loads_or_raises_a_model_error(tmp_path):
    rng = random.Random(0)
    text = ball("a", (0, 0, 1)) + ball("b") + joint("Revolute", "a", "b", "float physics:upperLimit = 3")
    lines = Path(write(tmp_path, text)).read_text().split("\n")
    numbers = [i for i, line in enumerate(lines) if " = " in line and "apiSchemas" not in line]
    refused = 0
    for _ in range(60):
        changed, i = list(lines), rng.choice(numbers)
        changed[i] = f"{lines[i].split('=')[0]}= {rng.choice(MUTATIONS)}"
        (tmp_path / "mutant.usda").write_text("\n".join(changed))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fphys.load(str(tmp_path / "mutant.usda"))
        except ModelError:
            refused += 1
    assert refused > 30
