"""Every type of sensor: readings against MuJoCo's, gradients, transforms, and what is refused."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.model.sensors import SensorType, read_sensors
from fphys.rigid.sensor import RULES
from fphys.testing import check_grads, check_transforms

from ..contact.scenes import SCENE, VARIANTS, scene
from .mechanisms import (
    EVERYTHING,
    SMALL,
    UNCONSTRAINED,
    Case,
    Inputs,
    in_own_units,
    loads,
    put,
    random_inputs,
    relative,
    to_state,
    with_leaves,
)

SMOOTH = """
  <sensor>
    <jointpos joint="bend"/><jointpos joint="reach" cutoff="0.1"/><jointvel joint="hip"/><jointvel joint="lift"/>
    <ballquat joint="socket"/><ballangvel joint="top" cutoff="0.5"/>
    <tendonpos tendon="across"/><tendonvel tendon="across"/><tendonpos tendon="slack"/>
    <actuatorpos actuator="servo"/><actuatorpos actuator="inparent"/><actuatorpos actuator="reel"/>
    <actuatorvel actuator="affine"/><actuatorvel actuator="thrustin"/><actuatorvel actuator="ramp"/>
    <actuatorfrc actuator="servo"/><actuatorfrc actuator="weak"/><actuatorfrc actuator="both"/>
    <jointactuatorfrc joint="bend"/><jointactuatorfrc joint="hip"/><jointactuatorfrc joint="lift"/>
    <tendonactuatorfrc tendon="across"/><tendonactuatorfrc tendon="slack"/>
    <framepos objtype="body" objname="forearm"/>
    <framepos objtype="xbody" objname="leg" reftype="site" refname="palm"/>
    <framequat objtype="geom" objname="block" reftype="body" refname="top"/><framequat objtype="site" objname="tip"/>
    <framexaxis objtype="site" objname="tip" reftype="geom" refname="block"/>
    <frameyaxis objtype="body" objname="pebble"/><framezaxis objtype="xbody" objname="lump"/>
    <framelinvel objtype="body" objname="swing" reftype="xbody" refname="forearm"/>
    <framelinvel objtype="site" objname="tip"/><framelinvel objtype="geom" objname="block" cutoff="0.7"/>
    <frameangvel objtype="geom" objname="block" reftype="site" refname="tip"/>
    <frameangvel objtype="xbody" objname="top"/>
    <framelinacc objtype="site" objname="tip"/><framelinacc objtype="body" objname="pebble"/>
    <framelinacc objtype="xbody" objname="torso"/><framelinacc objtype="geom" objname="block"/>
    <frameangacc objtype="site" objname="tip"/><frameangacc objtype="body" objname="swing"/>
    <accelerometer name="imu" site="tip"/><accelerometer site="fixed"/><accelerometer site="on top"/>
    <velocimeter site="tip"/><gyro name="gyro" site="tip"/><gyro site="palm"/>
    <force site="tip"/><torque site="tip"/><force site="in torso"/><torque site="in torso"/><torque site="on top"/>
    <force site="fixed"/><magnetometer site="tip"/><magnetometer site="fixed"/>
    <subtreecom body="torso"/><subtreecom body="world"/><subtreelinvel body="forearm"/>
    <subtreelinvel body="torso"/><subtreeangmom body="torso"/><subtreeangmom body="world"/>
    <rangefinder site="down"/><rangefinder site="at box"/><rangefinder site="at capsule"/>
    <rangefinder site="at ball"/><rangefinder site="at ellipsoid"/><rangefinder site="at cylinder"/>
    <rangefinder site="nowhere"/><rangefinder site="nowhere" cutoff="0.5"/><rangefinder site="tip" cutoff="3"/>
    <clock/><e_potential/><e_kinetic/>
"""
ROUGH = """
    <insidesite site="zone" objtype="body" objname="pebble"/>
    <insidesite site="round" objtype="site" objname="tip"/><insidesite site="pill" objtype="site" objname="tip"/>
    <insidesite site="egg" objtype="site" objname="tip"/><insidesite site="can" objtype="site" objname="tip"/>
    <touch site="tip"/><jointlimitpos joint="hip"/><jointlimitvel joint="hip"/><jointlimitfrc joint="hip"/>
    <tendonlimitpos tendon="across"/><tendonlimitvel tendon="across"/><tendonlimitfrc tendon="across"/>
"""
"""Readings that have no gradient."""

RAYS = {  # site: where the ray starts, around the target, and which way it goes
    "down": ((0.3, 0.1, 3.0), "180 10 0"),
    "at box": ((6.0, 0.02, 0.01), "0 -90 0"),
    "at ball": ((5.02, 3.0, 0.03), "-90 0 0"),
    "at capsule": ((8.0, 4.03, 1.0), "-90 0 0"),
    "at ellipsoid": ((8.0, 0.05, 3.0), "180 3 0"),
    "at cylinder": ((11.0, 0.02, 3.0), "180 2 0"),
    "nowhere": ((0.0, 0.0, 9.0), "0 0 0"),
}
TARGETS = """
    <body name="wall">
    <geom name="floor" type="plane" size="8 8 1" pos="0 0 -2"/>
    <geom type="box" size="0.3 0.4 0.5" pos="5 0 0" euler="10 5 20" mass="0"/>
    <geom type="sphere" size="0.3" pos="5 0 0" rgba="1 1 1 0" mass="0"/>
    <geom type="sphere" size="0.3" pos="5 4 0" mass="0"/>
    <geom type="capsule" size="0.2 0.5" pos="8 5 1" euler="20 30 0" mass="0"/>
    <geom type="ellipsoid" size="0.2 0.3 0.4" pos="8 0 0" euler="20 30 0" mass="0"/>
    <geom type="cylinder" size="0.2 0.3" pos="11 0 0" euler="20 30 0" mass="0"/>
    </body>
    <site name="zone" type="box" size="1 1 1" pos="0 -2 1"/><site name="round" size="1.5" pos="0 0 1"/>
    <site name="pill" type="capsule" size="0.6 0.6" pos="0.5 0 1"/>
    <site name="egg" type="ellipsoid" size="1 0.8 1.2" pos="0.5 0 1"/>
    <site name="can" type="cylinder" size="0.9 0.6" pos="0.5 0 1" euler="30 20 0"/>
"""


def text(sensors: str) -> str:
    """The mechanism of every joint and actuator, with targets for rays, sites, and sensors."""
    rays = "".join(f'<site name="{n}" pos="{x} {y} {z}" euler="{turn}"/>' for n, ((x, y, z), turn) in RAYS.items())
    xml = EVERYTHING.replace("<worldbody>", f"<worldbody>{TARGETS}{rays}", 1)
    xml = xml.replace('gravity="', 'magnetic="0.1 -0.5 0.2" gravity="', 1)
    xml = xml.replace('<geom type="box" size="0.1 0.05 0.08"', '<geom name="block" type="box" size="0.1 0.05 0.08"')
    xml = xml.replace(
        '<body name="shoulder"', '<site name="in torso" pos="0.1 0 0" euler="0 20 5"/><body name="shoulder"'
    )
    xml = xml.replace(
        '<joint name="top" type="ball"', '<site name="on top" pos="0 0.1 0.2"/><joint name="top" type="ball"'
    )
    for limited in ('joint name="hip"', 'fixed name="across"'):
        xml = xml.replace(f"<{limited}", f'<{limited} limited="true" range="-0.1 0.1"')
    xml = xml.replace('<joint name="bend"', '<joint name="bend" actuatorfrcrange="-0.5 0.5"')
    return xml.replace("</mujoco>", f"{sensors}</sensor></mujoco>")


@functools.cache
def measured(sensors: str = SMOOTH + ROUGH, dtype: str = "float64") -> Case:
    model = fphys.load(text(sensors), disable=UNCONSTRAINED, dtype=dtype)
    return Case(model, model.structure.source)


def theirs(m: mujoco.MjModel, x: Any) -> np.ndarray:
    d, rows = mujoco.MjData(m), []
    for world in range(len(x.qpos)):
        put(d, x, world)
        d.time = 0.25
        mujoco.mj_forward(m, d)
        rows.append(d.sensordata.copy())
    return np.array(rows)


def ours(model: fphys.Model, x: Any) -> jax.Array:
    state = to_state(model, x)
    state = state.replace(time=jnp.full_like(state.time, 0.25))
    return jax.jit(fphys.sensors)(model, state, *loads(model, x))


def errors_of_sensors(model: fphys.Model, found: Any, expected: Any) -> dict[str, float]:
    s, out = model.structure.sensor, {}
    for i, (kind, start, size) in enumerate(zip(s.type, s.adr, s.dim, strict=True)):
        part = slice(start, start + size)
        out[f"{i} {SensorType(int(kind)).name}"] = relative(np.asarray(found)[:, part], expected[:, part])
    return out


def test_every_reading_equals_mujocos():
    model, m = measured()
    x = random_inputs(m, 30, seed=1)
    expected, found = theirs(m, x), ours(model, x)
    assert found.shape == expected.shape == (30, m.nsensordata)
    errors = errors_of_sensors(model, found, expected)
    assert max(errors.values()) <= 1e-9, {name: e for name, e in errors.items() if e > 1e-9}


def test_every_type_of_sensor_is_covered():
    m = measured().source
    elsewhere = {SensorType[name] for name in ("CONTACT", "DISTANCE", "NORMAL", "FROMTO", "CAMPROJECTION")}
    assert {SensorType(int(kind)) for kind in m.sensor_type} == set(RULES) - elsewhere
    refused = {kind for kind in SensorType if kind not in RULES}
    assert {kind.name for kind in refused} == {"TACTILE", "PLUGIN", "USER"}
    assert len(SensorType) == sum(name.startswith("mjSENS_") for name in dir(mujoco.mjtSensor))
    readings = theirs(m, random_inputs(m, 8, seed=1))
    start = {int(m.sensor_objid[i]): m.sensor_adr[i] for i in np.flatnonzero(m.sensor_type == SensorType.RANGEFINDER)}
    hits = {name for name in RAYS if readings[0, start[m.site(name).id]] > 0}
    assert hits == set(RAYS) - {"nowhere"}
    inside = readings[:, m.sensor_adr[m.sensor_type == SensorType.INSIDESITE]]
    assert 0 < inside.mean() < 1


def test_float32_readings_equal_mujocos():
    model, _ = measured(dtype="float32")
    m = measured().source
    x = Inputs(*(value.astype(np.float32) for value in random_inputs(m, 10, seed=1)))
    expected, found = theirs(m, x), np.asarray(ours(model, x))
    assert found.dtype == np.float32
    rough = np.isin(np.repeat(m.sensor_type, m.sensor_dim), [SensorType.INSIDESITE])
    assert relative(found[None, :, ~rough], expected[None, :, ~rough]) <= 1e-4


@pytest.mark.parametrize("name", ["quadruped", "humanoid"])
def test_the_assets_can_be_read(name: str):
    model = fphys.load(fphys.asset(name), disable=UNCONSTRAINED)
    m = model.structure.source
    x = random_inputs(m, 4, seed=2)
    assert relative(ours(model, x), theirs(m, x)) <= 1e-9


# --- contact ----------------------------------------------------------------------------------------------------------


def touching() -> Case:
    """The ball, the box and the arm of the contact tests, each touching the plane, with sensors."""
    xml = SCENE.format(**VARIANTS["euler"])
    xml = xml.replace('<geom name="ball"', '<site name="ball" size="0.11"/><geom name="ball"')
    xml = xml.replace('<geom name="box"', '<site name="box" type="box" size="0.11 0.13 0.05" pos="0 0 -0.12"/>'
                      '<site name="under" type="box" size="1 1 0.02" pos="0 0 -0.4"/>'
                      '<site name="over" type="box" size="1 1 0.02" pos="0 0 0.4"/><geom name="box"')  # fmt: skip
    xml = xml.replace('<geom name="tip"', '<site name="tip" size="0.06" pos="0.4 0 0"/><geom name="tip"')
    xml = xml.replace('<joint name="a"', '<site name="shoulder" euler="10 20 30"/><joint name="a"')
    sites = "".join(
        f'<touch site="{site}"/><accelerometer site="{site}"/>' for site in ("ball", "box", "under", "over", "tip")
    )
    sites += '<force site="shoulder"/><torque site="shoulder"/><force site="tip"/>'
    model = fphys.load(xml.replace("</mujoco>", f"<sensor>{sites}</sensor></mujoco>"))
    return Case(model, model.structure.source)


def test_readings_under_contact():
    """Touch sees the contacts in its volume, forces at a joint carry the contact's, an IMU at rest reads gravity."""
    model, m = touching()
    start = scene("euler")
    state = start.state.replace(qpos=start.state.qpos.at[:, 9].add(-0.07))  # the box, onto the plane
    found = np.asarray(jax.jit(fphys.sensors)(model, state, start.ctrl))
    d, expected = mujoco.MjData(m), []
    for qpos, qvel, ctrl in zip(state.qpos, state.qvel, start.ctrl, strict=True):
        d.qpos[:], d.qvel[:], d.ctrl[:] = qpos, qvel, ctrl
        mujoco.mj_forward(m, d)
        expected.append(d.sensordata.copy())
    expected = np.array(expected)
    touch = m.sensor_adr[m.sensor_type == SensorType.TOUCH]
    assert (expected[:, touch] > 0).any(0).tolist() == [True, True, True, False, True]
    errors = errors_of_sensors(model, found, expected)
    assert max(errors.values()) <= 1e-9, errors


ACTUATED = """
<mujoco><option><flag actuation="disable"/></option><worldbody><site name="post" pos="-0.1 0 0.1"/>
  <body><joint name="turn" axis="0 1 0"/><geom size="0.1" pos="0.2 0 0"/><site name="tip" pos="0.1 0 0.05"/></body>
  </worldbody>
  <tendon><spatial name="rope"><site site="post"/><site site="tip"/></spatial></tendon>
  <actuator><motor name="motor" joint="turn" gear="2"/><motor name="winch" tendon="rope" gear="3"/></actuator>
  <sensor><actuatorpos actuator="motor"/><actuatorpos actuator="winch"/><tendonvel tendon="rope"/>
    <actuatorvel actuator="motor"/><actuatorvel actuator="winch"/><actuatorfrc actuator="motor"/>
    <jointactuatorfrc joint="turn"/><tendonactuatorfrc tendon="rope"/></sensor></mujoco>"""


def test_readings_where_actuation_is_disabled():
    """MuJoCo computes lengths of actuators then, and neither velocities nor forces."""
    model = fphys.load(ACTUATED)
    m = model.structure.source
    d = mujoco.MjData(m)
    d.qpos[:], d.qvel[:], d.ctrl[:] = 0.1, 0.3, 1
    mujoco.mj_forward(m, d)
    state = fphys.init(model, 1, qpos=d.qpos[None], qvel=d.qvel[None])
    assert d.sensordata[:3].all() and not d.sensordata[3:].any()
    np.testing.assert_allclose(fphys.sensors(model, state, d.ctrl[None])[0], d.sensordata, rtol=1e-12)


@pytest.mark.parametrize("limited", [True, False])
def test_without_contacts_touch_reads_nothing(limited: bool):
    """Whether there is another constraint or not."""
    text = f"""
<mujoco><option><flag contact="disable"/></option><worldbody><geom type="plane" size="1 1 1"/>
  <body pos="0 0 0.09"><joint type="slide" axis="0 0 1" range="0.1 1" limited="{str(limited).lower()}"/>
    <geom size="0.1"/><site name="skin" size="0.2"/></body></worldbody>
  <sensor><touch site="skin"/><contact site="skin" data="found force"/><accelerometer site="skin"/></sensor></mujoco>"""
    model = fphys.load(text)
    state = fphys.init(model, 2)
    expected = fphys.to_mujoco(model, state)[1].sensordata
    assert not expected[:5].any() and (expected[-1] > 1) == limited
    np.testing.assert_allclose(fphys.sensors(model, state), [expected] * 2, atol=1e-9)


def test_gradients_flow_through_contact_forces():
    """Into touch, force and torque: by velocities, controls and friction, in states that stay in contact."""
    model, _ = touching()
    start = scene("euler")
    state = jax.tree.map(lambda x: x[:2], start.state)

    def readings(qvel: Any, ctrl: Any, friction: Any) -> Any:
        changed = model.replace({"geom.friction": friction})
        return 1e-2 * fphys.sensors(changed, state.replace(qvel=qvel), ctrl)

    check_grads(jax.jit(readings), (state.qvel, start.ctrl[:2], model.geom.friction), tol=1e-5, directions=3)


# --- gradients and transforms -----------------------------------------------------------------------------------------

FEW = """
  <sensor>
    <accelerometer name="imu" site="tip"/><framelinvel name="speed" objtype="site" objname="tip"/>
    <tendonvel name="stretch" tendon="line"/><actuatorfrc actuator="servo"/>
    <jointactuatorfrc name="push" joint="hinge"/>
    <force site="tip"/><subtreeangmom body="trunk"/><rangefinder name="range" site="eye"/><e_kinetic/>
"""


def few() -> Case:
    xml = SMALL.replace('<body pos="0 0 1"', '<body name="trunk" pos="0 0 1"')
    xml = xml.replace('<position joint="slide"', '<position name="servo" joint="slide"')
    xml = xml.replace("<worldbody>", '<worldbody><site name="eye" pos="0 3 1" euler="90 0 0"/>')
    model = fphys.load(xml.replace("</mujoco>", f"{FEW}</sensor></mujoco>"), disable=UNCONSTRAINED)
    return Case(model, model.structure.source)


def test_gradient_by_every_leaf(full: bool):
    model, m = measured(SMOOTH) if full else few()
    x = random_inputs(m, 2, seed=6, size=0.3)

    def on_sphere(model: Any, *rest: Any) -> Any:
        axis = model.joint.axis / jnp.linalg.norm(model.joint.axis, axis=-1, keepdims=True)
        return fphys.sensors(with_leaves(model, {"joint.axis": axis}), *rest)

    args = (model, to_state(model, x), *loads(model, x))
    check_grads(*in_own_units(on_sphere, args), tol=1e-6, directions=16 if full else 2)


@pytest.mark.slow
def test_readings_mean_the_same_under_every_transform():
    """Those that between them use every operation of the sensors' own."""
    model, m = few()
    x = random_inputs(m, 3, seed=10)
    rng = np.random.default_rng(11)
    leaves = {"body.mass": np.asarray(model.body.mass) * rng.uniform(0.8, 1.2, (3, m.nbody))}
    state = to_state(model, x)

    def read(leaves: Any, qpos: Any, qvel: Any, ctrl: Any) -> Any:
        worlds = max(qpos.shape[0], leaves["body.mass"].shape[0])
        start = fphys.init(model, worlds).replace(qpos=qpos, qvel=qvel, act=jnp.full((worlds, m.na), 0.1))
        return fphys.sensors(with_leaves(model, leaves), start, ctrl, names=["imu", "stretch", "push"])

    args = (leaves, state.qpos, state.qvel, 0.3 * x.ctrl)
    check_transforms(read, args, rtol=1e-10, batches=(2,), max_patterns=1)


def test_readings_under_vmap_of_grad():
    """What the full sizes check in every pattern: mapped states, shared masses; and a world alone."""
    model, m = few()
    x = random_inputs(m, 4, seed=12)
    states = jax.tree.map(lambda v: v.reshape(2, 2, *v.shape[1:]), to_state(model, x))
    ctrl = jnp.asarray(x.ctrl).reshape(2, 2, m.nu)

    def loss(mass: Any, state: fphys.State, ctrl: Any) -> Any:
        readings = fphys.sensors(with_leaves(model, {"body.mass": mass}), state, ctrl)
        return (readings * jnp.cos(jnp.arange(readings.size, dtype=float)).reshape(readings.shape)).sum()

    gradient = jax.value_and_grad(loss, (0, 1, 2), allow_int=True)
    mapped = jax.jit(jax.vmap(gradient, in_axes=(None, 0, 0)))(model.body.mass, states, ctrl)
    single = jax.jit(gradient)
    for b in range(2):
        one = single(model.body.mass, jax.tree.map(lambda v, b=b: v[b], states), ctrl[b])
        for together, alone in zip(jax.tree.leaves(mapped), jax.tree.leaves(one), strict=True):
            if alone.dtype == float:
                np.testing.assert_allclose(together[b], alone, rtol=1e-10, atol=1e-12)


# --- names and faults -------------------------------------------------------------------------------------------------


def test_sensors_are_read_by_name():
    model, m = few()
    x = random_inputs(m, 2)
    state, (ctrl, *_) = to_state(model, x), loads(model, x)
    every = jax.jit(fphys.sensors)(model, state, ctrl)
    assert every.shape == (2, m.nsensordata)
    assert model.sensor_slice("speed") == slice(3, 6)
    read = jax.jit(functools.partial(fphys.sensors, names=["range", "imu", "range"]))
    some = read(model, state, ctrl)
    columns = [model.sensor_slice(name) for name in ("range", "imu", "range")]
    np.testing.assert_allclose(some, jnp.concatenate([every[:, c] for c in columns], 1), rtol=1e-12)
    with pytest.raises(fphys.errors.ModelError, match=r"no sensor 'rnage': did you mean 'range'"):
        fphys.sensors(model, state, ctrl, names=["rnage"])
    with pytest.raises(ValueError, match=r"ctrl has shape \(2, 1\)"):
        fphys.sensors(model, state, jnp.zeros((2, 1)))


def test_a_model_without_sensors_reads_nothing():
    model = fphys.load("<mujoco><worldbody><body><joint/><geom size='1'/></body></worldbody></mujoco>")
    assert fphys.sensors(model, fphys.init(model, 3)).shape == (3, 0)


LACKING = """
<mujoco>
  <worldbody>
    <body name="ball"><freejoint/><geom name="ball" size="0.1"/><site name="s"/><camera name="eye" mode="track"/></body>
    <body name="box" pos="1 0 0"><joint name="turn"/><geom name="box" size="0.1"/></body>
  </worldbody>
  <sensor>
    <gyro name="gyro" site="s"/>
    <camprojection name="projected" site="s" camera="eye"/>
    <framepos name="camera" objtype="camera" objname="eye"/>
    <user name="own" dim="2"/>
    <gyro name="late" site="s" delay="0.1" nsample="3"/>
    <rangefinder name="where" site="s" data="normal"/>
  </sensor>
</mujoco>"""


def test_sensors_that_are_not_simulated_are_refused_when_read():
    model = fphys.load(LACKING, disable=("contact",))
    state = fphys.init(model, 1)
    with pytest.raises(fphys.errors.UnsupportedError) as refusal:
        fphys.sensors(model, state)
    for name in ("projected", "camera", "own", "late", "where"):
        assert f'"{name}"' in str(refusal.value)
    assert '"gyro"' not in str(refusal.value)
    assert fphys.sensors(model, state, names=["gyro"]).shape == (1, 3)


def test_sensors_of_constraints_are_simulated():
    m = measured().source
    assert not any(read_sensors(m).missing)


def test_a_faulty_world_spoils_no_other():
    model, m = few()
    x = random_inputs(m, 3)
    state, (ctrl, *_) = to_state(model, x), loads(model, x)
    broken = state.replace(qpos=state.qpos.at[1].set(jnp.nan))

    @jax.jit
    def read(qpos: Any) -> Any:
        readings, pull = jax.vjp(lambda q: fphys.sensors(model, state.replace(qpos=q), ctrl), qpos)
        return readings, *pull(jnp.ones_like(readings))

    (sound, _), (spoilt, gradient) = read(state.qpos), read(broken.qpos)
    np.testing.assert_array_equal(np.asarray(sound)[[0, 2]], np.asarray(spoilt)[[0, 2]])
    assert np.isfinite(spoilt).all()
    assert np.isfinite(gradient).all()
    assert not gradient[1].any()
