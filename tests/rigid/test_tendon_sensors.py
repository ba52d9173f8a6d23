"""What force and torque sensors read where spatial tendons pull at bodies, against MuJoCo C."""

import functools
from typing import Any

import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.testing import check_grads

XML = """<mujoco><option><flag contact="disable"/></option><worldbody>
<site name="wall" pos="0.3 0.2 1"/><site name="side" pos="-0.5 0.1 0.4"/>
<geom name="post" type="{post}" pos="-0.2 0.1 0.25" size="0.05 0.2"/>
<body><joint name="j" axis="0 1 0" stiffness="2"/><geom type="box" size=".1 .1 .1" mass="1"/>
<site name="near" pos="0.1 0.05 0"/><site name="base" pos="-0.03 0.02 0.1" euler="10 20 30"/>
<body pos="0.3 0 0"><joint name="k" axis="1 0 0"/><geom type="box" size=".1 .1 .1" mass="1"/>
<site name="far" pos="0.1 0.05 0.2" euler="0 40 0"/></body></body></worldbody>
<tendon><spatial name="t" {tendon}><site site="wall"/><site site="near"/>{pulley}<site site="far"/></spatial>
<spatial name="u"><site site="side"/><geom geom="post"/><site site="far"/></spatial></tendon>{more}
<sensor><force site="base"/><torque site="base"/><force site="far"/><torque site="far"/></sensor></mujoco>"""
TIED = '<equality><tendon tendon1="{}" polycoef="0.1 0.5 0.2 0 0"/></equality>'
CASES: dict[str, dict[str, str]] = {
    "spring": {"tendon": 'stiffness="10" springlength="0.2"'},
    "damper": {"tendon": 'damping="3"', "pulley": '<pulley divisor="2"/><site site="near"/>'},
    "limit": {"tendon": 'range="0 0.5" limited="true"'},
    "friction": {"tendon": 'frictionloss="0.5"'},
    "armature": {"tendon": 'armature="0.5"'},
    "motor": {"more": '<actuator><motor tendon="u" gear="2"/></actuator>'},
    "motor round a sphere": {"more": '<actuator><motor tendon="u" gear="2"/></actuator>', "post": "sphere"},
    "tied to the other": {"more": TIED.format('t" tendon2="u')},
    "held at its length": {"more": TIED.format("u")},
    "soft": {
        "tendon": 'stiffness="10" springlength="0.2" damping="3" frictionloss="0.5" armature="0.5"',
        "more": '<actuator><position tendon="t" kp="3"/></actuator>',
    },
    "all": {
        "tendon": 'stiffness="10" springlength="0.2" damping="3" frictionloss="0.5" armature="0.5" range="0 0.5"',
        "more": '<actuator><position tendon="t" kp="3"/></actuator>' + TIED.format('t" tendon2="u'),
    },
}


@functools.cache
def model(name: str) -> fphys.Model:
    return fphys.load(XML.format(**({"tendon": "", "pulley": "", "more": "", "post": "cylinder"} | CASES[name])))


def start(name: str) -> tuple[fphys.State, Any]:
    m = model(name)
    state = fphys.init(m, 1)
    velocity = jnp.array([[1.0, 0.5]])
    return state.replace(qpos=state.qpos + 0.2, qvel=velocity), jnp.ones((1, m.structure.nu))


@pytest.mark.parametrize("name", CASES)
def test_readings_are_mujocos(name):
    """All that acts on a tendon pulls at the bodies of its sites, and of the geom that it wraps around."""
    (state, ctrl), source = start(name), model(name).structure.source
    data = mujoco.MjData(source)
    data.qpos[:], data.qvel[:], data.ctrl[:] = state.qpos[0], state.qvel[0], ctrl[0]
    mujoco.mj_forward(source, data)
    assert np.abs(data.cfrc_ext).max() > 1e-3
    scale = np.abs(data.sensordata).max()
    np.testing.assert_allclose(fphys.sensors(model(name), state, ctrl)[0], data.sensordata, rtol=0, atol=1e-9 * scale)


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("soft", ["stiffness", "damping", "armature", "frictionloss"]),
        ("limit", ["range"]),
        ("tied to the other", ["length0"]),
    ],
)
def test_gradients(name: str, names: list[str]):
    """By the state, the control, and the numbers of tendons, sites and equalities."""
    m, (state, ctrl) = model(name), start(name)
    paths = [*(f"tendon.{n}" for n in names), "site.pos", *(["equality.data"] if "tied" in name else [])]

    def read(qpos: Any, qvel: Any, ctrl: Any, leaves: Any) -> Any:
        return fphys.sensors(m.replace(leaves, derived="frozen"), state.replace(qpos=qpos, qvel=qvel), ctrl)

    leaves = {path: functools.reduce(getattr, path.split("."), m) for path in paths}
    check_grads(read, (state.qpos, state.qvel, ctrl, leaves), tol=1e-5)
