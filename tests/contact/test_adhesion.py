"""Adhesion actuators against MuJoCo C: accelerations where bodies stick, gradients, and what is refused."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.oracle import strict
from fphys.rigid.solve import constraint
from fphys.testing import check_grads

STUCK = """
<mujoco><option timestep="0.004" cone="{cone}"/><default><geom margin="0.01" gap="0.02" condim="{condim}"/></default>
  <worldbody>
    <geom type="plane" size="9 9 1"/>
    <body name="under" pos="0 0 0.1"><freejoint/><geom type="box" size="0.1 0.12 0.1" mass="1"/></body>
    <body name="over" pos="0.02 0 0.295"><freejoint/><geom type="box" size="0.1 0.1 0.1" mass="0.7"/></body>
    <body name="ball" pos="0.4 0 0.1"><freejoint/><geom size="0.1" mass="0.5" condim="1"/></body>
  </worldbody>
  <actuator>
    <adhesion body="under" ctrlrange="0 2" gain="20"/><adhesion body="over" ctrlrange="0 2" gain="15"/>
    <general body="ball" dyntype="filter" dynprm="0.05" ctrlrange="0 1" gainprm="30" gear="0.5"/>
  </actuator></mujoco>"""
"""A box on a box on the ground, and a ball, all of which stick; contacts in the gap pull but do not push."""


@functools.cache
def model(cone: str, condim: int) -> fphys.Model:
    return fphys.load(strict(STUCK.format(cone=cone, condim=condim)))


@functools.cache
def states(cone: str, condim: int, count: int) -> tuple[np.ndarray, ...]:
    """Random states near rest, controls, and MuJoCo's accelerations and next velocities."""
    m = model(cone, condim).structure.source
    rng, d, rows = np.random.default_rng(0), mujoco.MjData(m), []
    gaps = 0
    for _ in range(count):
        mujoco.mj_resetData(m, d)
        mujoco.mj_integratePos(m, d.qpos, 0.02 * rng.standard_normal(m.nv), 1)
        d.qvel[:], d.ctrl[:], d.act[:] = 0.2 * rng.standard_normal(m.nv), rng.uniform(-0.1, 2, m.nu), rng.uniform()
        start = d.qpos.copy(), d.qvel.copy(), d.act.copy(), d.ctrl.copy()
        mujoco.mj_forward(m, d)
        gaps += (d.contact.exclude == 1).sum()
        qacc = d.qacc.copy()
        mujoco.mj_step(m, d)
        rows.append((*start, qacc, d.qvel.copy()))
    assert gaps > count
    return tuple(np.array(x) for x in zip(*rows, strict=True))


@jax.jit
def both(model: fphys.Model, state: fphys.State, ctrl: Any) -> Any:
    return fphys.forward(model, state, ctrl)[0], fphys.step(model, state, ctrl).qvel


def wrong(cone: str, condim: int, count: int) -> float:
    """The largest error of accelerations and next velocities, relative to each state's largest."""
    qpos, qvel, act, ctrl, *expected = states(cone, condim, count)
    m = model(cone, condim)
    state = fphys.init(m, count, qpos=qpos, qvel=qvel).replace(act=jnp.asarray(act))
    found = both(m, state, jnp.asarray(ctrl))
    errors = [np.abs(a - b).max(1) / np.maximum(1, np.abs(b).max(1)) for a, b in zip(found, expected, strict=True)]
    return float(np.max(errors))


@pytest.mark.parametrize(("cone", "condim"), [("elliptic", 3), ("pyramidal", 4)])
def test_accelerations_equal_mujocos(cone: str, condim: int, full: bool):
    assert wrong(cone, condim, 500 if full else 40) < 1e-9


def test_gradients():
    """By state, control, gain and the geoms' places."""
    m = model("elliptic", 3)
    qpos, qvel, act, ctrl, *_ = (x[:2] for x in states("elliptic", 3, 40))

    def moved(qvel: Any, act: Any, ctrl: Any, gain: Any, place: Any) -> Any:
        changed = m.replace({"actuator.gainprm": gain, "geom.pos": place})
        state = fphys.init(m, 2, qpos=qpos).replace(qvel=qvel, act=act)
        return fphys.step(changed, state, ctrl).qvel

    args = (*map(jnp.asarray, (qvel, act, np.clip(ctrl, 0.1, 0.9))), m.actuator.gainprm, m.geom.pos)
    check_grads(jax.jit(moved), args, tol=1e-5, directions=3)


@pytest.mark.usefixtures("fresh_traces")
def test_pulls_without_their_virtual_power_are_noticed(monkeypatch: pytest.MonkeyPatch):
    power = constraint._power_op

    class Mutant:
        outputs = staticmethod(power.outputs)

        def vjp(self, args: Any, seeds: Any, wanted: Any) -> Any:
            return power.vjp(args, seeds._replace(adhesion=jnp.zeros_like(seeds.adhesion)), wanted)

    monkeypatch.setattr(constraint, "_power_op", Mutant())
    with pytest.raises(AssertionError):
        test_gradients()


REFUSED = {
    '<adhesion body="b" ctrlrange="0 1"/>': "adhesion beside a joint's actuatorfrcrange",
    '<general body="b" biastype="affine" biasprm="0 0 -1"/>': "adhesion with a gain or bias by velocity",
}


@pytest.mark.parametrize("actuator", REFUSED)
def test_what_is_refused_is_named(actuator: str):
    joint = '<joint actuatorfrcrange="-1 1"/>' if "adhesion" in actuator else "<joint/>"
    body = f'<worldbody><body name="b">{joint}<geom size="0.1"/></body></worldbody>'
    with pytest.raises(fphys.errors.UnsupportedError, match=REFUSED[actuator]):
        fphys.load(f"<mujoco>{body}<actuator>{actuator}</actuator></mujoco>")
