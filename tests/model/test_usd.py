"""Models from USD files: the same accelerations as those of the same mechanism in MJCF."""

import math

import mujoco
import numpy as np
import pytest

import fphys
import fphys.scene
from fphys.errors import ModelError
from fphys.model.usd_stage import pxr

from .usd_text import BODY, SHAPE, body, joint, read, write

pytestmark = pytest.mark.extra("pxr")


def same(ours, xml: str, bound: float = 1e-6) -> None:
    """Accelerations along random states, relative to the largest, agree with those of the same model in MJCF."""
    theirs = fphys.load(xml).structure.source
    assert [ours.nq, ours.nv, ours.nu] == [theirs.nq, theirs.nv, theirs.nu]
    assert np.abs(ours.qpos0 - theirs.qpos0).max() < bound
    rng = np.random.default_rng(0)
    found = []
    for _ in range(20):
        q = theirs.qpos0.copy()
        mujoco.mj_integratePos(theirs, q, rng.normal(size=theirs.nv), 1)
        v, u = rng.normal(size=theirs.nv), rng.normal(size=theirs.nu)
        accelerations = []
        for m in (ours, theirs):
            d = mujoco.MjData(m)
            d.qpos, d.qvel, d.ctrl = q, v, u
            mujoco.mj_forward(m, d)
            accelerations.append(d.qacc.copy())
        found.append(np.abs(np.subtract(*accelerations)).max() / (1 + np.abs(accelerations[1]).max()))
    assert max(found) < bound


PENDULUM = """<mujoco><compiler autolimits="true"/><worldbody>
  <body name="arm" pos="0.1 0.2 1"><joint name="arm_joint" axis="0 1 0" pos="0 0 0.5" range="-30 60"/>
    <inertial pos="0 0 0.1" mass="1.5" diaginertia="0.1 0.2 0.25"/></body></worldbody>
  <actuator><general name="arm_joint" joint="arm_joint" gainprm="20" biastype="affine" biasprm="0 -20 -2"
    forcerange="-7 7"/></actuator></mujoco>"""


def pendulum(k=1.0, turn=lambda v: v, axis="Y", m=1.0, extra="", kind="force"):
    """A pendulum with limits and a drive; ``k`` units of length are a metre, ``m`` of mass a kilogram."""
    torque = np.pi / 180 * m * k * k
    drive = f"""uniform token physics:axis = "{axis}"
        float physics:lowerLimit = -30
        float physics:upperLimit = 60
        uniform token drive:angular:physics:type = "{kind}"
        float drive:angular:physics:stiffness = {20 * torque}
        float drive:angular:physics:damping = {2 * torque}
        float drive:angular:physics:maxForce = {7 * m * k * k}
        {extra}"""
    at = turn((0.1 * k, 0.2 * k, 1.0 * k))
    inertia = tuple(abs(x) * m * k * k for x in turn((0.1, 0.2, 0.25)))
    arm = body("arm", at=at, mass=1.5 * m, inertia=inertia, com=turn((0, 0, 0.1 * k)))
    pivot = turn((0, 0, 0.5 * k))
    high = tuple(np.add(at, pivot).tolist())
    return arm + joint("Revolute", None, "arm", drive, at0=high, at1=pivot, apis='"PhysicsDriveAPI:angular"')


def test_a_pendulum_with_limits_and_a_drive(tmp_path):
    model = read(write(tmp_path, pendulum()))
    same(model, PENDULUM)
    assert model.joint("arm_joint").name == model.actuator("arm_joint").name == "arm_joint"
    assert np.abs(model.jnt_range - np.radians([-30, 60])).max() < 1e-12
    assert model.opt.integrator == 3  # implicitfast: the drive is damped
    scene = '\ndef PhysicsScene "s" (prepend apiSchemas = ["MjcSceneAPI"]) { }'
    assert read(write(tmp_path, pendulum() + scene)).opt.integrator == 0  # MuJoCo's own default
    target = "float drive:angular:physics:targetPosition = 45"
    assert read(write(tmp_path, pendulum(extra=target))).key("targets").ctrl.tolist() == pytest.approx([math.pi / 4])


def test_centimetres_grams_and_an_upright_y_axis(tmp_path):
    def upright(v):
        return (v[0], v[2], -v[1])

    text = pendulum(
        100.0, upright, "Z", 1000.0, "quatf physics:localRot0 = (0, 1, 0, 0)\nquatf physics:localRot1 = (0, 1, 0, 0)"
    )
    path = write(tmp_path, text, length=0.01, mass=0.001, up="Y")
    same(read(path), PENDULUM)


CARTPOLE = """<mujoco><worldbody><body name="cart" pos="0 0 0.5">
  <joint name="cart_joint" type="slide" axis="1 0 0" limited="true" range="-2 1e10" solreflimit="0.02 1"/>
  <geom type="box" size="0.2 0.1 0.05" density="500" contype="0"/>
  <body name="pole" pos="0 0 0"><joint name="pole_joint" axis="0 1 0" ref="{ref}"/>
    <geom type="capsule" pos="0 0 0.5" size="0.05 0.4" mass="0.3" contype="0"/></body></body></worldbody>
  <actuator><velocity name="cart_joint" joint="cart_joint" kv="3"/></actuator></mujoco>"""


def cartpole(angle=0.0) -> str:
    half = float(np.radians(angle)) / 2
    cart = f"""def Cube "box" ({SHAPE[:-1]}, "PhysicsMassAPI"]) {{
        float physics:density = 500
        double size = 2
        float3 xformOp:scale = (0.2, 0.1, 0.05)
        uniform token[] xformOpOrder = ["xformOp:scale"] }}"""
    pole = f"""def Capsule "rod" ({SHAPE}) {{
        double radius = 0.05
        double height = 0.8
        double3 xformOp:translate = (0, 0, 0.5)
        uniform token[] xformOpOrder = ["xformOp:translate"] }}"""
    drive = """uniform token physics:axis = "X"
        float physics:lowerLimit = -2
        float drive:linear:physics:damping = 3"""
    bodies = body("cart", cart, at=(0, 0, 0.5), mass=0, inertia=(0, 0, 0), com=("-inf",) * 3)
    bodies += body("pole", pole, (0, 0, 0.5), 0.3, (0, 0, 0), ("-inf",) * 3, (math.cos(half), 0, math.sin(half), 0))
    return (bodies + joint("Prismatic", None, "cart", drive, at0=(0, 0, 0.5), apis='"PhysicsDriveAPI:linear"')).replace(
        "'", ""
    ) + joint("Revolute", "cart", "pole", 'uniform token physics:axis = "Y"')


def test_a_cart_with_a_pole_and_masses_of_colliders(tmp_path):
    same(read(write(tmp_path, cartpole())), CARTPOLE.format(ref=0))


def test_the_pose_of_the_file_is_the_first_state(tmp_path):
    same(
        read(write(tmp_path, cartpole(40))),
        CARTPOLE.format(ref=40).replace('name="pole" ', 'name="pole" euler="0 40 0" '),
    )


FLOATING = """<mujoco><worldbody><geom type="plane" size="0 0 1" friction="0.7 0.005 0.0001"/>
  <body name="torso" pos="0 0 0.4"><freejoint name="torso"/>
    <geom type="sphere" size="0.2" mass="3" friction="0.7 0.005 0.0001"/>
    <body name="leg" pos="0.25 0 0"><joint name="leg_joint" type="ball" pos="-0.05 0 0"/>
      <geom type="cylinder" size="0.04 0.15" euler="0 90 0" pos="0.15 0 0" friction="0.7 0.005 0.0001"/></body>
    <body name="tail" pos="-0.2 0 0"><inertial pos="0 0 0" mass="0.1" diaginertia="1e-3 1e-3 1e-3"/></body>
  </body></worldbody></mujoco>"""


def test_a_floating_articulation_on_a_floor(tmp_path):
    bound = 'prepend apiSchemas = ["PhysicsCollisionAPI", "MaterialBindingAPI"]'
    rubber = "rel material:binding:physics = </w/rubber>"
    torso = f'def Sphere "ball" ({bound}) {{ double radius = 0.2\n {rubber} }}'
    leg = f"""def Cylinder "rod" ({bound}) {{
        uniform token axis = "X"
        double radius = 0.04
        double height = 0.3
        {rubber}
        double3 xformOp:translate = (0.15, 0, 0)
        uniform token[] xformOpOrder = ["xformOp:translate"] }}"""
    text = f"""def Plane "floor" ({bound}) {{ {rubber} }}
      def Material "rubber" (prepend apiSchemas = ["PhysicsMaterialAPI"]) {{
        float physics:dynamicFriction = 0.7
        float physics:staticFriction = 0.7 }}
      def Sphere "looks" {{ double radius = 5 }}
      def Xform "tail" ({BODY}) {{ float physics:mass = 0.1
        float3 physics:diagonalInertia = (0.001, 0.001, 0.001)
        double3 xformOp:translate = (-0.2, 0, 0.4)
        uniform token[] xformOpOrder = ["xformOp:translate"] }}"""
    text += body("torso", torso, (0, 0, 0.4), 3.0, (0, 0, 0)).replace(
        'RigidBodyAPI"', 'RigidBodyAPI", "PhysicsArticulationRootAPI"'
    )
    text += body("leg", leg, (0.25, 0, 0.4), 0, (0, 0, 0)).replace("point3f physics:centerOfMass = (0, 0, 0)", "")
    text += joint("Spherical", "torso", "leg", at0=(0.2, 0, 0), at1=(-0.05, 0, 0))
    text += joint("Fixed", "torso", "tail", at0=(-0.2, 0, 0))
    model = read(write(tmp_path, text))
    same(model, FLOATING)
    assert model.jnt_type.tolist() == [0, 1] and model.ngeom == 3


SIX = """<mujoco><worldbody><body name="base"><inertial pos="0 0 0" mass="1" diaginertia="0.1 0.2 0.25"/>
  <body name="end" pos="0 0 1">{}<inertial pos="0.1 0 0" mass="2" diaginertia="0.1 0.2 0.25"/></body></body></worldbody>
  <actuator><general name="end_joint:rotZ" joint="rotZ" gainprm="5" biastype="affine" biasprm="0 -5 0"/></actuator>
</mujoco>"""
SLIDE = '<joint name="transY" type="slide" axis="0 {} 0" range="-0.5 0.5"/>'
HINGE = '<joint name="rotX" axis="{} 0 0"/>', '<joint name="rotZ" axis="0 0 {}" pos="0 0 0"/>'


@pytest.mark.parametrize("turned", [False, True])
def test_a_joint_of_six_degrees(tmp_path, turned):
    locked = "".join(
        f"float limit:{t}:physics:low = 1\nfloat limit:{t}:physics:high = -1\n" for t in ("transX", "transZ", "rotY")
    )
    inner = f"""{locked}float limit:transY:physics:low = -0.5
        float limit:transY:physics:high = 0.5
        float drive:rotZ:physics:stiffness = {5 * np.pi / 180}"""
    apis = (
        ", ".join(f'"PhysicsLimitAPI:{t}"' for t in ("transX", "transY", "transZ", "rotY")) + ', "PhysicsDriveAPI:rotZ"'
    )
    text = body("base") + body("end", at=(0, 0, 1), mass=2, com=(0.1, 0, 0)) + joint("Fixed", None, "base")
    if turned:
        text += joint("", "end", "base", inner, at1=(0, 0, 1), apis=apis).replace('"base_joint"', '"end_joint"')
        order = HINGE[1].format(-1) + HINGE[0].format(-1) + SLIDE.format(-1)
    else:
        text += joint("", "base", "end", inner, at0=(0, 0, 1), apis=apis)
        order = SLIDE.format(1) + HINGE[0].format(1) + HINGE[1].format(1)
    model = read(write(tmp_path, text))
    same(model, SIX.format(order))
    names = [model.joint(i).name for i in range(3)]
    assert names == [f"end_joint:{t}" for t in (("rotZ", "rotX", "transY") if turned else ("transY", "rotX", "rotZ"))]


def test_masses_are_those_of_usd(tmp_path):
    Gf, Usd, UsdPhysics = map(pxr, ("Gf", "Usd", "UsdPhysics"))

    text = f"""def Xform "b" ({BODY}) {{
        float physics:density = 300
        def Cube "one" ({SHAPE}) {{ double size = 0.4 }}
        def Sphere "two" ({SHAPE[:-1]}, "PhysicsMassAPI"]) {{ double radius = 0.3
          float physics:mass = 2
          double3 xformOp:translate = (1, 0.5, 0)
          uniform token[] xformOpOrder = ["xformOp:translate"] }}
        def Cube "three" ({SHAPE[:-1]}, "MaterialBindingAPI"]) {{ double size = 0.2
          rel material:binding:physics = </w/lead>
          double3 xformOp:translate = (0, 0, 2)
          uniform token[] xformOpOrder = ["xformOp:translate"] }} }}
      def Material "lead" (prepend apiSchemas = ["PhysicsMaterialAPI"]) {{ float physics:density = 5000 }}"""
    path = write(tmp_path, text)
    model = read(path)
    stage = Usd.Stage.Open(path)

    def of(prim):
        found = UsdPhysics.RigidBodyAPI.MassInformation()
        size = {"one": 0.4, "three": 0.2}.get(prim.GetName())
        found.volume = size**3 if size else 4 / 3 * np.pi * 0.3**3
        found.inertia = Gf.Matrix3f(found.volume * (size**2 / 6 if size else 0.4 * 0.3**2))
        found.centerOfMass = Gf.Vec3f(0)
        at = {"one": (0, 0, 0), "two": (1, 0.5, 0), "three": (0, 0, 2)}[prim.GetName()]
        found.localPos, found.localRot = Gf.Vec3f(*at), Gf.Quatf(1)
        return found

    mass, inertia, com, _ = UsdPhysics.RigidBodyAPI(stage.GetPrimAtPath("/w/b")).ComputeMassProperties(of)
    assert model.body_mass[1] == pytest.approx(mass, rel=1e-6)
    assert model.body_ipos[1] == pytest.approx(tuple(com), abs=1e-6)
    assert sorted(model.body_inertia[1]) == pytest.approx(sorted(inertia), rel=1e-5)


def test_a_scene_takes_usd_files(tmp_path):
    scene = fphys.scene.Scene()
    scene.add(fphys.scene.USD(write(tmp_path, pendulum()), pos=(0, 0, 2)), name="left")
    scene.add(fphys.scene.USD(write(tmp_path, cartpole(), "cart.usda"), pos=(3, 0, 0)), name="right")
    world = scene.build(1)
    assert world.joints == ("left/arm_joint", "right/cart_joint", "right/pole_joint")
    assert world.model.structure.source.body("left/arm").pos.tolist() == [0.1, 0.2, 3]
    scene.add(fphys.scene.USD(write(tmp_path, pendulum()), fixed=True))
    with pytest.raises(ModelError, match="fixed=True has no meaning for USD"):
        scene.build(1)


@pytest.mark.parametrize("first", ["base", "end"])
def test_coordinates_are_zero_where_the_frames_of_a_joint_coincide(tmp_path, first):
    """Slides and hinges along and about three axes: the first state is the file's, at zero the frames coincide."""
    quat, at = (0.8, 0.36, -0.48, 0.0), (0.3, -0.2, 1.4)
    tokens = [f"{kind}{axis}" for kind in ("trans", "rot") for axis in "XYZ"]
    inner = "".join(f"float limit:{t}:physics:low = -90\nfloat limit:{t}:physics:high = 90\n" for t in tokens)
    inner += "quatf physics:localRot0 = (0.5, -0.5, 0.5, 0.5)"
    text = body("base") + joint("Fixed", None, "base") + body("end", at=at, quat=quat)
    pair = ("base", "end") if first == "base" else ("end", "base")
    model = read(write(tmp_path, text + joint("", *pair, inner, at0=(0, 0, 1)).replace(f"{pair[1]}_joint", "six")))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    assert np.abs(data.body("end").xpos - at).max() < 1e-9
    assert np.abs(data.body("end").xquat * np.sign(data.body("end").xquat[0]) - quat).max() < 1e-9
    data.qpos[:] = 0
    mujoco.mj_forward(model, data)
    one, two = (data.body(name) for name in pair)
    frame = np.zeros(9)
    mujoco.mju_quat2Mat(frame, np.array((0.5, -0.5, 0.5, 0.5)))
    turned = one.xmat.reshape(3, 3)
    assert np.abs(turned @ frame.reshape(3, 3) - two.xmat.reshape(3, 3)).max() < 1e-9
    assert np.abs(one.xpos + turned @ [0, 0, 1] - two.xpos).max() < 1e-9


def test_a_joint_is_locked_where_its_limits_coincide(tmp_path):
    """At the limit, not at zero; if the lower one is above, the joint is locked at zero."""
    limits = 'uniform token physics:axis = "Y"\nfloat physics:lowerLimit = {}\nfloat physics:upperLimit = {}'
    quat = (math.cos(math.radians(15)), 0.0, math.sin(math.radians(15)), 0.0)
    for low, high, wanted in ((30, 30, quat), (0, 0, (1, 0, 0, 0)), (30, -30, (1, 0, 0, 0))):
        text = body("a") + body("b", quat=wanted) + joint("Fixed", None, "a")
        model = read(write(tmp_path, text + joint("Revolute", "a", "b", limits.format(low, high))))
        assert model.nv == 0 and model.body_quat[2] == pytest.approx(np.array(wanted), abs=1e-7)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("free", ["", "rotX rotZ", "transY", "transX transZ rotY", "transY rotX rotZ"])
def test_locked_coordinates_of_a_joint_of_six_degrees(tmp_path, free, turned):
    """Slides along x, y and z, then turns about them, of which some are locked: at 3 m, and at 110 degrees."""
    here = dict.fromkeys(("transX", "transY", "transZ"), 3.0) | dict.fromkeys(("rotX", "rotY", "rotZ"), 110.0)
    limits = {token: (at, at) for token, at in here.items()}
    here |= dict.fromkeys(free.split(), 20.0)
    limits |= dict.fromkeys(free.split(), (-90, 90))
    inner = "".join(
        f"float limit:{token}:physics:low = {low}\nfloat limit:{token}:physics:high = {high}\n"
        for token, (low, high) in limits.items()
    )
    moved, quat, out = np.array([here[f"trans{axis}"] for axis in "XYZ"]), np.array([1.0, 0, 0, 0]), np.zeros(4)
    for axis, unit in zip("XYZ", np.eye(3), strict=True):
        half = math.radians(here[f"rot{axis}"]) / 2
        mujoco.mju_mulQuat(out, quat, np.array([math.cos(half), *(math.sin(half) * unit)]))
        quat = out.copy()
    text = body("a") + body("b", at=tuple(moved.tolist()), quat=tuple(quat.tolist()))
    if turned:
        held = f"quatf physics:localRot0 = {tuple(quat.tolist())}"
        text += joint("Fixed", None, "b", held, at0=tuple(moved.tolist()))
    else:
        text += joint("Fixed", None, "a")
    model = read(write(tmp_path, text + joint("", "a", "b", inner).replace("b_joint", "six")))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    assert model.nv == len(free.split())
    assert np.abs(data.body("b").xpos - data.body("a").xpos - moved).max() < 1e-5
    assert abs(data.body("b").xquat @ quat) == pytest.approx(1, abs=1e-9)
    assert abs(data.body("a").xquat[0]) == pytest.approx(1, abs=1e-9)
    assert {token: data.joint(f"six:{token}").qpos[0] for token in free.split()} == pytest.approx(
        {token: 20.0 if "trans" in token else math.radians(20) for token in free.split()}, abs=1e-5
    )


def test_a_body_without_mass_may_carry_one_that_has(tmp_path):
    """A link of a robot's wrist that has only joints; what it carries is fixed to it, and has the mass."""
    bare = body("wrist").replace("float physics:mass = 1.0", "float physics:mass = 0")
    bare = bare.replace("float3 physics:diagonalInertia = (0.1, 0.2, 0.25)", "")
    text = body("tool", at=(0, 0, 0.3), mass=2.0, com=(0, 0.1, 0))
    held = joint("Fixed", "wrist", "tool", at0=(0, 0, 0.3))
    turn = joint("Revolute", None, "wrist", 'uniform token physics:axis = "Y"')
    ours = read(write(tmp_path, bare + text + turn + held))
    xml = """<mujoco><worldbody><body name="wrist"><joint name="wrist_joint" axis="0 1 0"/>
      <body name="tool" pos="0 0 .3"><inertial pos="0 .1 0" mass="2" diaginertia=".1 .2 .25"/></body></body></worldbody>
      </mujoco>"""
    same(ours, xml)
    with pytest.raises(ModelError, match=r"</w/wrist>: it moves and has no mass"):
        fphys.load(write(tmp_path, bare + joint("Revolute", None, "wrist"), "bare.usda"))


def test_a_rotation_is_read_to_the_digits_of_its_file(tmp_path):
    """In single precision: the nearest quaternion, to 6e-8 a component, not what a product of matrices leaves of it."""
    quat = tuple(float(x) for x in np.float32([0.98877108, 0.0, 0.14943813, 0.0]))
    ours = read(write(tmp_path, body("arm", quat=quat).replace("quatd", "quatf")))
    assert ours.body_quat[1] == pytest.approx(np.array([0.98877108, 0.0, 0.14943813, 0.0]), abs=6e-8)
