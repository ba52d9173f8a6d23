"""The derivatives of a step against MuJoCo's centred differences."""

import jax
import mujoco
import numpy as np
import pytest

import fphys
from fphys.testing import check_grads

from ..rigid.mechanisms import INTEGRATORS, case, corpus, put, random_inputs, relative, to_state

REDUCED = {("everything", "euler"), ("small", "rk4"), ("franka", "euler")}
CASES = [
    pytest.param(name, integrator, marks=[] if (name, integrator) in REDUCED else pytest.mark.slow)
    for name in sorted(corpus())
    for integrator in INTEGRATORS
]


def differences(m: mujoco.MjModel, d: mujoco.MjData, a: np.ndarray, b: np.ndarray) -> None:
    """What ``mjd_transitionFD`` computes, for the integrator that it refuses (RK4)."""
    start = mujoco.MjData(m)
    mujoco.mj_copyData(start, m, d)

    def moved(i: int, step: float) -> tuple[np.ndarray, np.ndarray]:
        mujoco.mj_copyData(d, m, start)
        if i < m.nv:
            mujoco.mj_integratePos(m, d.qpos, np.eye(m.nv)[i], step)
        else:
            inputs = np.concatenate([start.qvel, start.act, start.ctrl])
            inputs[i - m.nv] += step
            d.qvel[:], d.act[:], d.ctrl[:] = np.split(inputs, [m.nv, m.nv + m.na])
        mujoco.mj_step(m, d)
        return d.qpos.copy(), np.concatenate([d.qvel, d.act])

    columns = []
    for i in range(2 * m.nv + m.na + m.nu):
        (q0, v0), (q1, v1), dq = moved(i, -1e-6), moved(i, 1e-6), np.zeros(m.nv)
        mujoco.mj_differentiatePos(m, dq, 1.0, q0, q1)
        columns.append(np.concatenate([dq, v1 - v0]) / 2e-6)
    a[:], b[:] = np.split(np.array(columns).T, [2 * m.nv + m.na], axis=1)


@pytest.mark.parametrize(("name", "integrator"), CASES)
def test_linearize_equals_mujocos_differences(name: str, integrator: str):
    """Controls and activations stay off their limits, where MuJoCo's differences are one-sided."""
    model, m = case(name, integrator)
    worlds, size = 5, 2 * m.nv + m.na
    x = random_inputs(m, worlds, seed=4)
    x = x._replace(ctrl=0.7 * (x.ctrl - x.ctrl.mean(0)) + x.ctrl.mean(0), act=0.2 * x.act)
    d = mujoco.MjData(m)
    a, b = np.zeros((worlds, size, size)), np.zeros((worlds, size, m.nu))
    for world in range(worlds):
        put(d, x, world)
        d.xfrc_applied[:], d.qfrc_applied[:] = 0, 0
        if m.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4:
            differences(m, d, a[world], b[world])
        else:
            mujoco.mjd_transitionFD(m, d, 1e-6, True, a[world], b[world], None, None)
    ours = jax.jit(fphys.linearize)(model, to_state(model, x), x.ctrl)
    assert relative(ours[0], a) <= 1e-5
    assert relative(ours[1], b) <= 1e-5


LIMITED = """
<mujoco><option timestep="0.01"/><worldbody><body>
  <joint name="x" type="slide" axis="1 0 0"/><geom size="0.1" mass="1"/>
</body></worldbody><actuator>
  <motor joint="x" ctrlrange="-1 1"/>
  <position joint="x" kp="3" ctrlrange="-1 1"/>
  <general joint="x" dyntype="integrator" ctrlrange="-1 1" gainprm="2"/>
  <muscle joint="x" ctrlrange="0 1" force="10" lengthrange="-1 1"/>
</actuator></mujoco>"""


@pytest.mark.parametrize("end", [0, 1])
def test_a_control_at_its_limit_can_be_moved_inside(end: int):
    """MuJoCo differentiates into the range; with no derivative there, a search that clips could never leave a limit."""
    m = mujoco.MjModel.from_xml_string(LIMITED)
    d = mujoco.MjData(m)
    d.ctrl[:], d.act[:] = m.actuator_ctrlrange[:, end], 0.5
    size = 2 * m.nv + m.na
    a, b = np.zeros((size, size)), np.zeros((size, m.nu))
    mujoco.mj_forward(m, d)
    mujoco.mjd_transitionFD(m, d, 1e-6, True, a, b, None, None)
    model = fphys.load(LIMITED)
    state = fphys.init(model, 1).replace(act=jax.numpy.full((1, m.na), 0.5))
    ours = fphys.linearize(model, state, jax.numpy.asarray(d.ctrl[None]))
    assert (np.abs(b).max(0) > 1e-3).all()
    assert relative(ours[0][0], a) <= 1e-5 and relative(ours[1][0], b) <= 1e-5


def test_differences_of_positions_are_mujocos():
    """Every joint's: what leads from one position to the next, shared by the worlds and not; shapes are refused."""
    model, m = case("everything", "euler")
    rng = np.random.default_rng(5)
    rows = np.stack([m.qpos0, m.qpos0, m.qpos0])
    for row in rows[1:]:
        mujoco.mj_integratePos(m, row, rng.normal(size=m.nv), 1.0)
    qpos = jax.numpy.asarray(rows)
    found = fphys.difference(model, qpos[:1], qpos)
    assert np.abs(found[0]).max() < 1e-15 < np.abs(found[1:]).max() and found.shape == (3, m.nv)
    for base, after, ours in zip(rows[[0, 0, 0]], rows, found, strict=True):
        wanted = np.zeros(m.nv)
        mujoco.mj_differentiatePos(m, wanted, 1.0, base, after)
        np.testing.assert_allclose(ours, wanted, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(fphys.difference(model, jax.numpy.tile(qpos[:1], (3, 1)), qpos), found)
    for base in (qpos[:2], qpos[:1, 1:]):
        with pytest.raises(ValueError, match="base has shape"):
            fphys.difference(model, base, qpos)
    check_grads(lambda a, b: fphys.difference(model, a, b), (qpos[:1], qpos[1:]))
