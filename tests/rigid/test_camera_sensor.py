"""What cameras and rangefinders report: points on pictures, and rays in all their fields."""

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.model.sensors import SensorType
from fphys.testing import check_grads

FIELDS = "dist dir origin point depth"
SCENE = """
<mujoco><worldbody>
  <geom type="plane" size="5 5 0.1"/>
  <camera name="above" pos="0 0 4"/>
  <body name="head" pos="0 -2 1"><freejoint/><geom size="0.05"/>
    <camera name="eye" xyaxes="1 0 0 0 0.5 1" fovy="50" resolution="7 5" {eye}/>
    <site name="ahead" pos="0 0.1 0" euler="-100 0 0"/><site name="up"/>
    <camera name="chip" xyaxes="1 0 0 0 0.3 1" resolution="64 48" sensorsize="0.004 0.003" focal="0.003 0.0035"/></body>
  <body pos="0 0 0.5"><freejoint/><geom type="box" size="0.3 0.2 0.3"/><site name="mark" pos="0.2 -0.1 0.3"/>
    <geom type="ellipsoid" size="0.2 0.3 0.1" pos="0 0 0.5"/></body>
</worldbody><sensor>{sensors}</sensor></mujoco>"""
SENSORS = f"""
  <camprojection site="mark" camera="eye"/><camprojection site="mark" camera="chip"/>
  <camprojection site="mark" camera="above"/>
  <rangefinder site="ahead" data="{FIELDS}"/><rangefinder site="up" data="{FIELDS}"/><rangefinder site="ahead"/>
  <rangefinder camera="eye" data="{FIELDS}"/><rangefinder camera="eye" data="depth" cutoff="2"/>
  <framepos objtype="camera" objname="eye"/><framequat objtype="camera" objname="chip"/>
  <framelinvel objtype="camera" objname="eye" reftype="camera" refname="above"/>
  <frameangvel objtype="site" objname="mark" reftype="camera" refname="chip"/>"""


def scene(sensors: str = SENSORS, eye: str = "", **options: Any) -> fphys.Model:
    return fphys.load(SCENE.format(sensors=sensors, eye=eye), **options)


def motions(m: mujoco.MjModel, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return m.qpos0 + 0.1 * rng.normal(size=(count, m.nq)), rng.normal(size=(count, m.nv))


def theirs(m: mujoco.MjModel, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    d, out = mujoco.MjData(m), []
    for q, v in zip(qpos, qvel, strict=True):
        d.qpos[:], d.qvel[:] = q, v
        mujoco.mj_forward(m, d)
        out.append(d.sensordata.copy())
    return np.array(out)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-5)])
def test_readings_are_mujocos(dtype: str, tolerance: float):
    model = scene(dtype=dtype)
    m = model.structure.source
    qpos, qvel = (x.astype(dtype) for x in motions(m, 10))
    state = fphys.init(model, 10, qpos=qpos, qvel=qvel)
    expected, found = theirs(m, qpos, qvel), np.asarray(jax.jit(fphys.sensors)(model, state))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=10 * tolerance)
    depth = expected[:, m.sensor_adr[7] : m.sensor_adr[8]]
    assert (depth == -1).any() and (depth == 2).any() and ((depth > 0) & (depth < 2)).any()


def test_gradients_and_transforms():
    model = scene(SENSORS.split("<framepos")[0])
    qpos, _ = motions(model.structure.source, 2)
    state = fphys.init(model, 2, qpos=qpos)
    read = lambda qpos: fphys.sensors(model, state.replace(qpos=qpos))  # noqa: E731
    check_grads(jax.jit(read), (state.qpos,), tol=1e-6, directions=4)
    batch = jnp.stack([state.qpos, state.qpos[::-1]])
    slope = jax.jit(jax.grad(lambda qpos: (read(qpos) ** 2).sum()))
    np.testing.assert_allclose(jax.vmap(slope)(batch), [slope(qpos) for qpos in batch], rtol=1e-12, atol=1e-12)


def test_a_depth_picture_finds_where_the_box_is():
    """By gradient: the depths of pixels tell how far it has moved."""
    model = scene('<rangefinder camera="eye" data="depth"/>')
    start = jnp.asarray(model.structure.source.qpos0)[None]
    state = fphys.init(model, 1)
    hidden = np.asarray(start).copy()
    hidden[0, 7:9] += 0.03, 0.06

    @jax.jit
    def error(shift: Any) -> Any:
        seen, wanted = (fphys.sensors(model, state.replace(qpos=q)) for q in (start.at[0, 7:9].add(shift), hidden))
        both = (seen > 0) & (seen < 3) & (wanted > 0) & (wanted < 3)
        return jnp.where(both, (seen - wanted) ** 2, 0).sum()

    shift = jnp.zeros(2)
    for _ in range(60):
        shift -= 0.1 * jax.grad(error)(shift)
    assert error(jnp.zeros(2)) > 1e-3 and error(shift) < 1e-8


@pytest.mark.parametrize(
    ("sensor", "eye", "reason"),
    [
        ('<rangefinder name="r" site="up" data="dist normal"/>', "", "the normal of what it hits"),
        ('<framepos name="r" objtype="camera" objname="eye"/>', 'mode="track"', "a camera that follows a body"),
        ('<camprojection name="r" site="mark" camera="eye"/>', 'projection="orthographic"', "an orthographic camera"),
        ('<rangefinder name="r" camera="chip" data="dist"/>', "", "a camera with a sensorsize"),
    ],
)
def test_what_is_not_simulated_is_refused_by_name(sensor: str, eye: str, reason: str):
    model = scene(sensor, eye)
    with pytest.raises(fphys.errors.UnsupportedError, match=f'sensor "r", .*{reason}'):
        fphys.sensors(model, fphys.init(model, 1))
    assert SensorType(int(model.structure.sensor.type[0])).name.lower() in sensor
