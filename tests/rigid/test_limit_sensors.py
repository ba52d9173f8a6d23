"""What sensors read of limits: how far beyond, how fast, and the force, against MuJoCo C; and their gradients."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.oracle import strict
from fphys.testing import check_grads

from ..parity.corpus import ROPE, chain

KINDS = ("pos", "vel", "frc")
READ = "".join(f'<jointlimit{kind} joint="{joint}"/>' for kind in KINDS for joint in "abc")
READ += "".join(f'<tendonlimit{kind} tendon="{tendon}"/>' for kind in KINDS for tendon in ("rope", "sum"))
MIDDLE = {"a ball": 'type="ball" range="0 40" limited="true"', "a hinge": 'range="-40 10" margin="3"'}


@functools.cache
def model(middle: str) -> fphys.Model:
    """Every joint and both tendons of an arm are limited; of one joint both sides can be reached at once."""
    tendon = ROPE.format('limited="true" range="0.3 0.65" margin="0.02"', 'limited="true" range="-0.1 0.2"')
    ball = middle == "a ball"
    text = chain(
        tendon=tendon.replace('<joint joint="b" coef="-0.4"/>', "") if ball else tendon,
        joint='limited="auto"',
        a='range="-20 30"',
        b=MIDDLE[middle],
        c='range="-0.03 0.05" margin="0.06"',
        gear="1 2 1" if ball else "3",
    )
    return fphys.load(strict(text.replace("</actuator></mujoco>", f"</actuator><sensor>{READ}</sensor></mujoco>")))


@functools.cache
def states(middle: str, count: int) -> tuple[np.ndarray, ...]:
    """Random positions, velocities and controls, and MuJoCo's readings."""
    m = model(middle).structure.source
    rng, d, rows = np.random.default_rng(0), mujoco.MjData(m), []
    for _ in range(count):
        mujoco.mj_resetData(m, d)
        mujoco.mj_integratePos(m, d.qpos, 0.6 * rng.standard_normal(m.nv), 1)
        d.qvel[:], d.ctrl[:] = rng.standard_normal(m.nv), rng.standard_normal(m.nu)
        mujoco.mj_forward(m, d)
        rows.append((d.qpos.copy(), d.qvel.copy(), d.ctrl.copy(), d.sensordata.copy()))
    return tuple(np.array(x) for x in zip(*rows, strict=True))


def wrong(middle: str, count: int) -> float:
    """The largest error among the readings, relative to the largest of each sensor's."""
    qpos, qvel, ctrl, expected = states(middle, count)
    state = fphys.init(model(middle), count, qpos=qpos, qvel=qvel)
    found = jax.jit(fphys.sensors)(model(middle), state, jnp.asarray(ctrl))
    acts = (expected != 0).mean(0)
    assert (acts > 0.05).sum() >= acts.size - 1, acts
    return float((np.abs(found - expected) / np.maximum(1, np.abs(expected).max(0))).max())


@pytest.mark.parametrize("middle", MIDDLE)
def test_readings_equal_mujocos(middle: str, full: bool):
    assert wrong(middle, 500 if full else 60) < 1e-12


def test_gradients():
    """By state, control and the limits' own parameters, at the limits that are reached."""
    m = model("a ball")
    qpos, qvel, ctrl, _ = (x[:2] for x in states("a ball", 60))

    def read(qpos: Any, qvel: Any, ctrl: Any, bounds: Any, solref: Any, reach: Any) -> Any:
        changed = m.replace({"joint.range": bounds, "joint.solref": solref, "tendon.range": reach})
        return fphys.sensors(changed, fphys.init(m, 2).replace(qpos=qpos, qvel=qvel), ctrl) / 30

    args = (jnp.asarray(qpos), jnp.asarray(qvel), jnp.asarray(ctrl), m.joint.range, m.joint.solref, m.tendon.range)
    check_grads(read, args, tol=1e-6, directions=3)


def test_tendons_have_limits_where_no_joint_has():
    text = chain(tendon=ROPE.format('limited="true" range="0 0.2"', ""))
    sensors = "".join(f'<tendonlimit{kind} tendon="rope"/>' for kind in KINDS)
    m = fphys.load(strict(text.replace("</actuator></mujoco>", f"</actuator><sensor>{sensors}</sensor></mujoco>")))
    assert not m.structure.limit.joint.size
    state = fphys.init(m, 2)
    rng = np.random.default_rng(1)
    state = state.replace(qvel=jnp.asarray(rng.normal(size=state.qvel.shape)))
    expected = np.array([fphys.to_mujoco(m, state, w)[1].sensordata for w in range(2)])
    assert (expected != 0).all()
    read = jax.jit(lambda qvel: fphys.sensors(m, state.replace(qvel=qvel)))
    np.testing.assert_allclose(read(state.qvel), expected, rtol=1e-10)
    check_grads(read, (state.qvel,), tol=1e-6, directions=2)


def test_without_limits_they_read_zero():
    m = fphys.load(model("a hinge").structure.source, disable=("limit",))
    qpos, qvel, ctrl, _ = (x[:2] for x in states("a hinge", 60))
    state = fphys.init(m, 2, qpos=qpos, qvel=qvel)
    assert not np.asarray(fphys.sensors(m, state, jnp.asarray(ctrl))).any()


def test_the_other_side_is_noticed(monkeypatch: pytest.MonkeyPatch):
    """Where both sides of the slide's limit are reached, MuJoCo reads the lower one."""
    upper_first = lambda x: dataclasses.replace(x, joint=x.joint[::-1], side=x.side[::-1])  # noqa: E731
    assert wrong("a hinge", 60) < 1e-12
    m = model("a hinge")
    turned = dataclasses.replace(m.structure, limit=upper_first(m.structure.limit))
    monkeypatch.setitem(globals(), "model", lambda _: dataclasses.replace(m, structure=turned))
    assert wrong("a hinge", 60) > 1e-3
