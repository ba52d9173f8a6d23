"""What sensors read of limits and connections beside a no-slip pass, against MuJoCo C."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import fphys
from fphys import oracle
from fphys.testing import check_grads

from ..contact.test_noslip import SCENE

BESIDE = """<equality><connect body1="fore" body2="world" anchor="0.1 0 0" solref="0.1 1"/></equality>
  <sensor><jointlimitfrc joint="b"/><tendonlimitfrc tendon="t"/><force site="wrist"/><torque site="wrist"/></sensor>"""


def test_sensors_of_limits_and_connections_beside_it():
    """The pass leaves their forces as the solver found them, but not the accelerations that these follow from."""
    text = SCENE.format(cone="elliptic", condim=3, most=5, integrator="Euler")
    text = text.replace("<actuator>", f"{BESIDE}<actuator>").replace('frictionloss="0.2"', 'frictionloss="30"')
    text = text.replace('<joint name="b"', '<site name="wrist"/><joint name="b" range="-10 5"')
    text = text.replace('<fixed frictionloss="0.1"', '<fixed name="t" range="-0.15 0.15" frictionloss="0.1"')
    m = oracle.strict(text.replace('<body pos="0.4 0 -0.3">', '<body name="fore" pos="0.4 0 -0.3">'))
    model, d, rng = fphys.load(m), mujoco.MjData(m), np.random.default_rng(0)
    qpos, qvel, expected, others = [], [], [], []
    for _ in range(12):
        mujoco.mj_resetData(m, d)
        mujoco.mj_integratePos(m, d.qpos, 0.2 * rng.standard_normal(m.nv), 1)
        d.qvel[:] = 0.01 * rng.standard_normal(m.nv)
        for most, found in ((5, expected), (0, others)):
            m.opt.noslip_iterations = most
            mujoco.mj_forward(m, d)
            found.append(d.sensordata.copy())
        qpos.append(d.qpos.copy())
        qvel.append(d.qvel.copy())
    state = fphys.init(model, 12, qpos=np.array(qpos), qvel=np.array(qvel))
    ctrl, expected = jnp.zeros((12, m.nu)), np.array(expected)
    assert (np.abs(expected[:, :2]).max(0) > 1).all()
    assert np.abs(expected[:, 2:] - np.array(others)[:, 2:]).max() > 1, "the pass changes nothing here"
    readings = jax.jit(lambda *at: fphys.sensors(model, state.replace(qpos=at[0], qvel=at[1]), ctrl))
    size = np.abs(expected).max()
    assert np.abs(readings(state.qpos, state.qvel) - expected).max() < 1e-9 * size
    check_grads(lambda qvel: readings(state.qpos, qvel) / size, (state.qvel,), tol=1e-6, directions=2)
