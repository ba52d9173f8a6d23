"""iLQR: Riccati's solution where the problem is linear, what it keeps of a nonlinear one, and what it refuses."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.control import Cost, ilqr, plan
from fphys.errors import ModelError

CART = """
<mujoco>
  <option timestep="0.02"/>
  <worldbody><body><joint name="x" type="slide" axis="1 0 0" damping="0.5" stiffness="3"/>
    <geom size="0.1" mass="1.5"/></body></worldbody>
  <actuator><motor joint="x" gear="2"/></actuator>
</mujoco>"""
STEPS, LIMIT = 60, 1e7  # the limit is so wide that tanh is straight to 1e-11
rng = np.random.default_rng(0)
WEIGHTS, EFFORT = rng.uniform(0.5, 2.0, (STEPS, 2)), 1e-3  # per squared control
TARGET = np.stack([np.linspace(0.0, 1.0, STEPS), np.full(STEPS, 0.1)], 1)
START = np.array([[-0.5, 0.3], [0.2, -1.0], [1.0, 2.0]])  # position [m] and velocity [m/s] of three worlds

search = jax.jit(ilqr, static_argnums=4)


def riccati(mass, x):
    """Controls and cost of the discrete finite-horizon LQR that tracks TARGET, for a cart of damping 0.5, spring 3."""
    h = 0.02
    rate = np.array([-3.0, -0.5]) / (mass + 0.5 * h)  # implicit in the damping
    a = np.array([[1.0, h], [0.0, 1.0]]) + np.outer([h * h, h], rate)
    b = np.array([h * h, h]) * 2.0 / (mass + 0.5 * h)
    a, b = np.block([[a, np.zeros((2, 1))], [np.zeros((1, 2)), np.ones((1, 1))]]), np.append(b, 0.0)[:, None]
    value, gains = np.zeros((3, 3)), []
    for w, goal in zip(WEIGHTS[::-1], TARGET[::-1]):
        off = np.column_stack([np.eye(2), -goal])
        ahead = value + off.T @ np.diag(w) @ off
        gains.append(np.linalg.solve(EFFORT + b.T @ ahead @ b, b.T @ ahead @ a))
        value = a.T @ ahead @ (a - b @ gains[-1])
    x, controls = np.append(x, 1.0), []
    cost = x @ value @ x
    for gain in gains[::-1]:
        controls.append(-gain @ x)
        x = a @ x + b @ controls[-1]
    return np.array(controls), cost


def cart(mass=(1.5,), start=START):
    model = fphys.load(CART)
    masses = np.outer(mass, [0.0, 1.0])
    model = model.replace({"body.mass": masses.astype(model.qpos0.dtype)})
    state = fphys.init(model, len(start), qpos=start[:, :1], qvel=start[:, 1:])
    real = state.qpos.dtype
    cost = Cost(
        jnp.asarray(WEIGHTS, real),
        jnp.full(1, EFFORT * LIMIT**2, real),
        jnp.full(1, LIMIT, real),
        jnp.asarray(TARGET, real),
    )
    return model, state, cost, jnp.zeros((STEPS, len(start), 1), real)


def test_a_linear_problem_has_riccatis_solution():
    model, state, cost, ctrl = cart()
    first = plan(model, state, cost, ctrl)
    found = search(model, state, cost, first, 30)
    for world, x in enumerate(START):
        controls, value = riccati(1.5, x)
        np.testing.assert_allclose(found.ctrl[:, world], controls, atol=1e-8)
        np.testing.assert_allclose(found.value[world], value, rtol=1e-10)
    assert (first.value > 1.1 * found.value).all()
    states = fphys.rollout(model, state, found.ctrl)
    np.testing.assert_allclose(found.x, jnp.concatenate([states.qpos, states.qvel], -1), atol=1e-12)


def test_worlds_may_have_their_own_models():
    mass = (1.0, 1.5, 4.0)
    model, state, cost, ctrl = cart(mass)
    found = search(model, state, cost, plan(model, state, cost, ctrl), 30)
    for world, x in enumerate(START):
        np.testing.assert_allclose(found.ctrl[:, world], riccati(mass[world], x)[0], atol=1e-8)


def test_single_precision(x32):
    model, state, cost, ctrl = cart()
    found = search(model, state, cost, plan(model, state, cost, ctrl), 30)
    assert found.ctrl.dtype == jnp.float32
    np.testing.assert_allclose(found.value, [riccati(1.5, x)[1] for x in START], rtol=1e-5)


@functools.cache
def pendulum(worlds=2):
    """A double pendulum that hangs, whose motors are too weak to lift it at once."""
    model = fphys.load(fphys.asset("double-pendulum"))
    state = fphys.init(model, worlds, qpos=[np.pi, 0.1])
    weights = jnp.broadcast_to(jnp.array([1.0, 1.0, 0.1, 0.1]), (40, 4))
    cost = Cost(weights, jnp.full(2, 1e-2), model.actuator.ctrlrange[0, :, 1])
    return model, state, cost, 0.5 * jnp.asarray(np.random.default_rng(1).standard_normal((40, worlds, 2)))


def test_no_iteration_makes_a_plan_worse_and_limits_hold():
    model, state, cost, ctrl = pendulum()
    plans = [plan(model, state, cost, ctrl)]
    for _ in range(8):
        plans.append(search(model, state, cost, plans[-1], 1))
    values = np.array([p.value for p in plans])
    assert (np.diff(values, axis=0) <= 0).all() and (values[-1] < 0.9 * values[0]).all()
    assert (jnp.abs(plans[-1].ctrl) <= cost.limit[None, None]).all()
    together = search(model, state, cost, plans[0], 8)
    np.testing.assert_allclose(together.value, values[-1], rtol=1e-9)


def test_at_the_optimum_the_gradient_is_zero():
    model, state, cost, ctrl = pendulum()
    first = plan(model, state, cost, ctrl)
    found = search(model, state, cost, first, 40)
    slope = jax.jit(jax.grad(lambda ctrl: plan(model, state, cost, ctrl).value.sum()))
    assert jnp.linalg.norm(slope(found.ctrl)) < 1e-4 * jnp.linalg.norm(slope(first.ctrl))


def test_a_world_that_fails_does_not_touch_the_others():
    model, state, cost, ctrl = pendulum(3)
    found = search(model, state, cost, plan(model, state, cost, ctrl), 3)
    broken = state.replace(qvel=state.qvel.at[1].set(1e11))  # too fast: the world is held where it is
    beside = search(model, broken, cost, plan(model, broken, cost, ctrl), 3)
    assert jnp.isinf(beside.value[1])
    np.testing.assert_allclose(beside.value[jnp.array([0, 2])], found.value[jnp.array([0, 2])], rtol=1e-12)


def test_a_search_has_no_gradient():
    model, state, cost, ctrl = pendulum()
    first = plan(model, state, cost, ctrl)
    with pytest.raises(Exception, match="ifferentia"):
        jax.grad(lambda state: ilqr(model, state, cost, first).value.sum(), allow_int=True)(state)


@pytest.mark.parametrize(
    ("field", "change", "says"),
    [
        ("state", lambda w: w[:, :3], r"cost\.state has shape \(40, 3\), the model needs \(T, nq \+ nv\) = \(40, 4\)"),
        ("control", lambda r: r[:1], r"cost\.control has shape \(1,\), the model needs \(nu,\) = \(2,\)"),
        ("limit", lambda u: u * 0, r"cost\.limit is .*every limit must be positive"),
        ("target", lambda t: jnp.zeros(4), r"cost\.target has shape \(4,\)"),
    ],
)
def test_costs_that_cannot_be_are_refused(field, change, says):
    model, state, cost, ctrl = pendulum()
    first, bad = plan(model, state, cost, ctrl), cost._replace(**{field: change(getattr(cost, field))})
    for act in (lambda: plan(model, state, bad, ctrl), lambda: ilqr(model, state, bad, first)):
        with pytest.raises(ValueError, match=says):
            act()


def test_other_arguments_that_cannot_be_are_refused():
    model, state, cost, ctrl = pendulum()
    first = plan(model, state, cost, ctrl)
    with pytest.raises(ValueError, match=r"ctrl has shape \(39, 2, 2\), needs \(T, num_worlds, nu\) = \(40, 2, 2\)"):
        plan(model, state, cost, ctrl[1:])
    with pytest.raises(ValueError, match=r"plan\.x has shape \(40, 2, 4\).*= \(39, 2, 4\)"):
        ilqr(model, state, cost._replace(state=cost.state[1:]), first)
    with pytest.raises(TypeError, match=r"cost\.control is float32"):
        plan(model, state, cost._replace(control=cost.control.astype(jnp.float32)), ctrl)
    with pytest.raises(TypeError, match=r"make one with fphys\.control\.plan"):
        ilqr(model, state, cost, ctrl)
    with pytest.raises(ValueError, match="iterations is -1"):
        ilqr(model, state, cost, first, -1)
    with pytest.raises(TypeError, match="iterations is traced"):
        jax.jit(ilqr)(model, state, cost, first, 2)
    ant = fphys.load(fphys.asset("ant"))
    with pytest.raises(ModelError, match="hinge and slide joints"):
        plan(ant, fphys.init(ant, 1), cost, ctrl)
