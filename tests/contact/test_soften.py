"""Gradients before contact: softened contacts, and contacts from distance."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.testing import check_grads

from .mechanism import scene

DROP = """
<mujoco><option timestep="0.002" cone="{cone}"/><worldbody><geom type="plane" size="5 5 1"/>
  <body pos="0 0 0.11"><freejoint/><geom size="0.1" mass="1"/></body></worldbody></mujoco>"""
FORWARD, STEP = jax.jit(fphys.forward), jax.jit(fphys.step)


def falling(cone: str = "pyramidal") -> tuple[Any, Any]:
    """A ball a centimetre above the ground, on its way down."""
    model = fphys.load(DROP.format(cone=cone))
    return model, fphys.init(model, 1, qvel=np.array([0.3, 0, -1.0, 0, 0, 0]))


def slope(step: Any, model: Any, state: Any) -> Any:
    """How the next vertical velocity depends on the height."""

    def velocity(z: Any) -> Any:
        return step(model, state.replace(qpos=state.qpos.at[0, 2].set(z))).qvel[0, 2]

    return jax.jit(jax.value_and_grad(velocity))(state.qpos[0, 2])


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_a_contact_is_felt_before_it_is_there(cone: str):
    model, state = falling(cone)
    exact, none = slope(fphys.step, model, state)
    assert none == 0, "nothing touches: the exact gradient sees free fall"
    soft, felt = slope(fphys.step, fphys.softened(model, 0.02), state)
    assert felt < -1.0 and soft > exact, "the higher, the less it is slowed"
    value, gradient = slope(fphys.contacts_from_distance(0.02), model, state)
    assert value == exact, "forward nothing changes"
    assert gradient == felt


def test_softened_contacts_have_an_exact_gradient():
    """By state, width and parameters, in states with contacts on both sides of the surface."""
    model, state = scene("none", "elliptic", 4, worlds=4)
    rng = np.random.default_rng(0)
    lift = jnp.asarray(rng.uniform(0.0, 0.04, (4, 1)))
    state = state.replace(qpos=state.qpos.at[:, 2:3].add(lift))
    contacts = FORWARD(fphys.softened(model, 0.05), state)[1].contacts
    assert float(contacts.distance.max()) > 0.01 and float(contacts.distance.min()) < 0

    def qacc(width: Any, friction: Any, qpos: Any, qvel: Any) -> Any:
        soft = fphys.softened(model, width).replace({"geom.friction": friction})
        return 1e-2 * fphys.forward(soft, state.replace(qpos=qpos, qvel=qvel), contacts=contacts)[0]

    args = (jnp.full(1, 0.05), model.geom.friction, state.qpos, state.qvel)
    check_grads(jax.jit(qacc), args, tol=1e-5, directions=4)


def test_without_width_nothing_changes():
    model, state = scene("none", "elliptic", 4)
    np.testing.assert_array_equal(STEP(fphys.softened(model, 0.0), state).qvel, STEP(model, state).qvel)


def test_softened_contacts_rest_where_exact_ones_do():
    """The ramp slows what approaches; what lies still is held by the contact itself."""
    model, state = falling()
    rest = [state, state]
    for _ in range(800):
        rest = [STEP(model, rest[0]), STEP(fphys.softened(model, 0.02), rest[1])]
    np.testing.assert_allclose(rest[0].qpos[0, 2], rest[1].qpos[0, 2], atol=1e-4)


def test_the_jump_at_touch_becomes_a_ramp():
    """At 1 m/s the force of an exact contact jumps when it is made; the softened one's grows from nothing."""
    model, state = falling()
    heights = 0.1 + np.linspace(0.025, -0.001, 53)[:, None]
    qpos = np.repeat(np.asarray(state.qpos), len(heights), 0)
    qpos[:, 2:3] = heights
    many = fphys.init(model, len(heights), qpos=qpos, qvel=np.repeat(np.asarray(state.qvel), len(heights), 0))
    exact, soft = (np.asarray(FORWARD(m, many)[0][:, 2]) for m in (model, fphys.softened(model, 0.02)))
    assert np.diff(exact).max() > 50
    assert np.diff(soft).max() < 10
    assert soft[0] == exact[0] == pytest.approx(-9.81)


def test_room_for_softened_contacts_is_reported():
    """The exact contacts fit, those within the width do not: the gradient misses some, and the status says so."""
    ball = '<body pos="{} 0 {}"><freejoint/><geom size="0.1"/></body>'
    balls = ball.format(0, 0.099) + ball.format(1, 0.11)
    model = fphys.load(f'<mujoco><worldbody><geom type="plane" size="5 5 1"/>{balls}</worldbody></mujoco>')
    state = fphys.init(model, 1, max_contacts=1)
    near, far = (jax.jit(fphys.contacts_from_distance(width))(model, state) for width in (1e-3, 0.05))
    assert near.status.tolist() == [0] and far.status.tolist() == [int(fphys.Status.CONTACT_OVERFLOW)]
    np.testing.assert_array_equal(near.qvel, far.qvel)


@pytest.mark.parametrize("width", [-0.1, "wide", True])
def test_widths_are_looked_at_at_once(width: Any):
    model, _ = falling()
    for make in (fphys.contacts_from_distance, lambda width: fphys.softened(model, width)):
        with pytest.raises(ValueError, match="width"):
            make(width)
