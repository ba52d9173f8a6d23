"""Contact sensors: readings against MuJoCo's, their gradients, and what is read without a contact."""

import copy
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.testing import check_grads

THINGS = {
    "geoms": 'geom1="ball" geom2="floor"',
    "the other way": 'geom1="floor" geom2="ball"',
    "geom and body": 'geom1="pill" body2="high"',
    "body": 'body1="low"',
    "what touches a body": 'body2="high"',
    "subtrees": 'subtree1="low" subtree2="high"',
    "a subtree with itself": 'subtree1="base" subtree2="base"',
    "site": 'site="zone"',
    "site and body": 'site="zone" body2="base"',
    "all": "",
}
ALL = "found force torque dist pos normal tangent"


def text(cone: str, sensors: str) -> str:
    """A ball, a pill that hangs from it and touches it by another ball, and a box, on a floor and on each other."""
    return f"""
<mujoco><option cone="{cone}" timestep="0.002" tolerance="1e-14" iterations="200" ccd_tolerance="1e-12"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1" friction="0.8 0.02 0.01" condim="4"/>
    <site name="zone" type="ellipsoid" size="0.7 0.5 0.2" pos="0.2 0 0"/>
    <body name="base" pos="0 0 0.25"><freejoint/><geom name="ball" size="0.25"/>
      <body name="low" pos="0.6 0 0"><joint type="ball" damping="0.2"/>
        <geom name="pill" type="capsule" size="0.15 0.2" euler="0 90 0" condim="6"/>
        <body pos="-0.27 0 0.1"><joint stiffness="20" damping="1"/><geom size="0.1"/></body></body></body>
    <body name="high" pos="0.5 0.1 0.5"><freejoint/><geom name="box" type="box" size="0.3 0.2 0.1"/></body>
  </worldbody>
  <sensor>{sensors}</sensor>
</mujoco>"""


def states(m: mujoco.MjModel, count: int) -> list[mujoco.MjData]:
    """Along a fall."""
    rng, d, found = np.random.default_rng(0), mujoco.MjData(m), []
    d.qvel[:] = 0.5 * rng.standard_normal(m.nv)
    for k in range(400):
        mujoco.mj_step(m, d)
        if k % (400 // count) == 0:
            found.append(copy.copy(d))
            mujoco.mj_forward(m, found[-1])
    return found


def read(model: fphys.Model, found: list[mujoco.MjData]) -> np.ndarray:
    state = fphys.init(model, len(found))
    rows = {name: jnp.asarray(np.array([getattr(d, name) for d in found])) for name in ("qpos", "qvel")}
    return np.asarray(jax.jit(fphys.sensors)(model, state.replace(**rows)))


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
@pytest.mark.parametrize("reduction", ["mindist", "maxforce", "netforce"])
def test_readings_are_mujocos(cone: str, reduction: str):
    number = 1 if reduction == "netforce" else 2
    sensors = "".join(f'<contact {of} data="{ALL}" reduce="{reduction}" num="{number}"/>' for of in THINGS.values())
    model = fphys.load(text(cone, sensors))
    found = states(model.structure.source, 40)
    ours, theirs = read(model, found), np.array([d.sensordata for d in found])
    s = model.structure.sensor
    counts = np.stack([theirs[:, s.adr[i]] for i in range(len(THINGS))], 1)
    assert (counts.max(0) > 0).all() and (counts.min(0) == 0).any()
    assert len(np.unique(counts)) > 4
    scale = np.maximum(1.0, np.abs(theirs).max(0))
    np.testing.assert_allclose(
        ours / scale, theirs / scale, rtol=0, atol=1e-6
    )  # where MuJoCo ends its search for forces


def test_fields_and_slots_in_any_number():
    """The first contacts in the order of the model; as many slots as there are asked for; fields in MuJoCo's order."""
    chosen = ["found", "dist pos", "force normal", "found torque tangent"]
    sensors = "".join(f'<contact {THINGS["geoms"]} data="{data}"/>' for data in chosen)
    sensors += '<contact data="found pos" num="30"/>'
    model = fphys.load(text("pyramidal", sensors))
    found = states(model.structure.source, 10)
    ours, theirs = read(model, found), np.array([d.sensordata for d in found])
    few = model.structure.sensor.adr[-1]
    scale = np.maximum(1.0, np.abs(theirs).max(0))
    np.testing.assert_allclose((ours / scale)[:, :few], (theirs / scale)[:, :few], rtol=0, atol=1e-6)
    a, b = (np.sort(x[:, few:].reshape(len(found), 30, 4).round(7), axis=1) for x in (ours, theirs))
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_without_contacts_they_read_nothing():
    sensors = f'<contact data="{ALL}" num="3"/><contact data="{ALL}" reduce="netforce"/>'
    model = fphys.load(text("pyramidal", sensors), disable=("contact",))
    d = mujoco.MjData(model.structure.source)
    model.structure.source.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    mujoco.mj_forward(model.structure.source, d)
    np.testing.assert_array_equal(np.asarray(fphys.sensors(model, fphys.init(model, 1)))[0], d.sensordata)


def test_gradients():
    """Of forces, distances, points and frames of two contacts, by the state, within one contact set."""
    parts = itertools.product(["geoms", "site", "body"], ["maxforce", "netforce"])
    data = {"maxforce": "force torque dist pos normal tangent", "netforce": "force torque pos"}
    sensors = "".join(f'<contact {THINGS[of]} data="{data[how]}" reduce="{how}"/>' for of, how in parts)
    model = fphys.load(text("elliptic", sensors))
    found = states(model.structure.source, 40)[30:32]
    state = fphys.init(model, 2)
    qpos, qvel = (jnp.asarray(np.array([getattr(d, name) for d in found])) for name in ("qpos", "qvel"))

    def readings(qvel: Any, friction: Any) -> Any:
        changed = model.replace(geom=model.geom.replace(friction=friction))
        return fphys.sensors(changed, state.replace(qpos=qpos, qvel=qvel))

    assert (np.abs(np.asarray(readings(qvel, model.geom.friction))).max(0) > 0).mean() > 0.7
    check_grads(jax.jit(readings), (qvel, model.geom.friction), tol=1e-5, directions=3)
