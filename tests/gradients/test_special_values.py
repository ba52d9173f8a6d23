"""Gradients at special values that files often have: equal impedances, gears of zero, muscles and joints at rest."""

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.testing import check_grads

SPHERE = """<mujoco><worldbody><geom type="plane" size="1 1 1" solimp="{0}"/>
<body pos="0 0 0.098"><freejoint/><geom size=".1" solimp="{0}" mass="1"/></body></worldbody></mujoco>"""
SITE = """<mujoco><worldbody><site name="base" euler="5 0 0"/><body pos="0 0 0.1"><freejoint/>
<geom type="box" size=".1 .2 .3" mass="1"/><site name="tip" euler="{}"/></body></worldbody>
<actuator><position site="tip" refsite="base" gear="1 0 0 0 0 0" kp="3"/></actuator></mujoco>"""
MUSCLE = """<mujoco><worldbody><body><joint name="j" axis="0 1 0"/><geom pos="0.2 0 0" size=".1"/></body></worldbody>
<actuator><muscle joint="j" lengthrange="-1 1"/></actuator></mujoco>"""
BALL = """<mujoco><worldbody><body><joint type="ball" limited="true" range="0 0.5" margin="0.6"/>
<geom type="box" size=".1 .2 .3" pos=".1 0 0"/></body></worldbody></mujoco>"""


@pytest.mark.parametrize("impedance", ["0.9 0.9 0.01", "0.95 0.95 0.001"])
def test_impedances_that_are_equal(impedance):
    """d(r) goes from one to the other: where they are equal, each still has its own share of the gradient."""
    model = fphys.load(SPHERE.format(impedance))
    state = fphys.init(model, 1)

    def pushed(solimp: Any) -> Any:
        return fphys.forward(model.replace({"geom.solimp": solimp}), state)[0]

    check_grads(pushed, (model.geom.solimp,), tol=1e-5)


@pytest.mark.parametrize("euler", ["20 30 0", "5 0 180"])
def test_a_gear_of_zero(euler):
    """An actuator between sites that only pulls would turn, too, if its gear were changed."""
    model = fphys.load(SITE.format(euler))
    state, ctrl = fphys.init(model, 1), jnp.full((1, 1), 0.5)

    def driven(gear: Any, qpos: Any) -> Any:
        return fphys.forward(model.replace({"actuator.gear": gear}), state.replace(qpos=qpos), ctrl)[0]

    check_grads(lambda gear: driven(gear, state.qpos), (model.actuator.gear,), tol=1e-6)
    assert jnp.isfinite(jax.grad(lambda q: driven(model.actuator.gear, q).sum())(state.qpos)).all()


def test_a_muscle_at_rest():
    """Its slope is that of pulling: it cannot do less."""
    model = fphys.load(MUSCLE)
    state = fphys.init(model, 1)
    after = lambda u: fphys.step(model, state, u.reshape(1, 1)).act[0, 0]  # noqa: E731
    assert jax.grad(after)(jnp.array(0.0)) == pytest.approx(
        float(after(jnp.array(1e-6)) - after(jnp.array(0.0))) / 1e-6
    )


def test_a_ball_joint_at_its_reference():
    """No direction leads out of it: the limit acts about the x axis, as MuJoCo's, and the gradient stays finite."""
    model = fphys.load(BALL)
    state, source = fphys.init(model, 1), mujoco.MjModel.from_xml_string(BALL)
    data = mujoco.MjData(source)
    mujoco.mj_forward(source, data)
    np.testing.assert_allclose(fphys.forward(model, state)[0][0], data.qacc, rtol=1e-10)
    slope = jax.grad(lambda q: fphys.step(model, state.replace(qpos=q)).qvel.sum())(state.qpos)
    assert jnp.abs(slope).max() < 1e3
