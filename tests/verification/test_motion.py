"""Motions with a known answer.

Tolerances for free fall, the pendulum and free bodies are those that differentiable engines publish for
their own checks: free fall within max(|g| dt, 1e-3); a pendulum from 0.05 rad over 3.5 periods within 1 % of
its amplitude; energy drift below 0.5 % over 2 s from 1 rad; momentum of a free body within 5e-4.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.testing import check_order

PENDULUM = """
<mujoco><option timestep="{h}" integrator="{integrator}"/><worldbody><body pos="0 0 2">
  <joint axis="0 1 0"/><geom type="sphere" size="0.05" mass="1" pos="0 0 -1"/></body></worldbody></mujoco>"""
TOP = """
<mujoco><option timestep="{h}" gravity="0 0 0" integrator="{integrator}"/><worldbody><body pos="0 0 1">
  <freejoint/><geom type="box" size="0.1 0.2 0.35" mass="2"/></body></worldbody></mujoco>"""


def run(text: str, seconds: float, qpos: Any = None, qvel: Any = None) -> Any:
    """All states of one world."""
    model = fphys.load(text)
    steps = round(seconds / float(model.opt.timestep[0]))
    state = fphys.init(model, 1, qpos, qvel)
    return model, state, jax.jit(fphys.rollout)(model, state, jnp.zeros((steps, 1, 0)))


def test_free_fall():
    _, _, states = run(TOP.format(h=0.001, integrator="Euler").replace("0 0 0", "0 0 -9.81"), 0.5)
    speed = -9.81 * np.asarray(states.time[:, 0])
    assert np.abs(states.qvel[:, 0, 2] - speed).max() <= max(9.81 * 0.001, 1e-3)
    assert np.abs(states.qvel[:, 0, 2] - speed).max() < 1e-9  # velocities are exact, whatever the step
    drop = 1 + 0.5 * -9.81 * np.asarray(states.time[:, 0]) ** 2
    assert np.abs(states.qpos[:, 0, 2] - drop).max() <= 9.81 * 0.001 * 0.5


def test_a_pendulum_keeps_its_period():
    inertia = 1 + 0.4 * 0.05**2
    period = 2 * np.pi * np.sqrt(inertia / 9.81) * (1 + 0.05**2 / 16)
    _, _, states = run(PENDULUM.format(h=0.001, integrator="Euler"), 3.5 * period, qpos=np.array([0.05]))
    expected = 0.05 * np.cos(2 * np.pi / period * np.asarray(states.time[:, 0]))
    assert np.abs(states.qpos[:, 0, 0] - expected).mean() < 0.01 * 0.05


@pytest.mark.parametrize("integrator", ["Euler", "RK4", "implicitfast"])
def test_a_pendulum_keeps_its_energy(integrator: str):
    model, state, states = run(PENDULUM.format(h=0.001, integrator=integrator), 2.0, qpos=np.array([1.0]))
    total = lambda s: sum(fphys.energy(model, s))[0]  # noqa: E731
    start, swing = total(state), 9.81 * (1 - np.cos(1.0))
    drift = max(abs(float(total(jax.tree.map(lambda x, t=t: x[t], states)) - start)) for t in range(0, 2000, 100))
    assert drift < 0.005 * swing


@pytest.mark.parametrize("integrator", ["RK4", "implicitfast"])
def test_a_free_top_keeps_its_momentum(integrator: str):
    """Torque-free precession: angular momentum in the world, and kinetic energy, are kept."""
    qvel = np.array([0.1, 0.2, -0.1, 0.5, 3.0, 0.4])
    model, state, states = run(TOP.format(h=0.001, integrator=integrator), 1.0, qvel=qvel)

    def momentum(s: Any) -> Any:
        """Linear, and angular about the centre of mass, in world axes."""
        force = jnp.einsum("wij,wj->wi", fphys.mass_matrix(model, s), s.qvel)[0]
        turn = fphys.math.rotation(fphys.kinematics(model, s).body.quat[0, 1])
        return jnp.concatenate([force[:3], turn @ force[3:]])

    start, end = momentum(state), momentum(jax.tree.map(lambda x: x[-1], states))
    tolerance = 5e-3 if integrator == "implicitfast" else 5e-4  # implicitfast is of first order
    assert float(jnp.abs(end - start).max() / jnp.abs(start).max()) < tolerance


@pytest.mark.parametrize(("integrator", "order"), [("Euler", 1), ("RK4", 4)])
def test_order_of_convergence(integrator: str, order: int):
    """A tumbling, sliding mechanism with free and ball joints, to its end after 0.4 s."""
    text = """
    <mujoco><option timestep="{h}" integrator="{integrator}"/><default><geom contype="0"/></default>
      <worldbody><body pos="0 0 1">
        <freejoint/><geom type="box" size="0.1 0.2 0.35" mass="2"/>
        <body pos="0.2 0 0.3">
          <joint type="ball" damping="0.1"/><geom type="capsule" size="0.05" fromto="0 0 0 0.3 0 0.1" mass="1"/>
          <body pos="0.3 0 0.1">
            <joint type="slide" axis="1 0 0" stiffness="30" damping="0.5"/><geom size="0.1" mass="0.5"/>
          </body>
        </body>
      </body></worldbody></mujoco>"""
    qvel = np.array([0.1, 0.2, -0.1, 0.5, 1.0, 0.4, 0.7, -1.0, 0.3, 0.2])

    def end(h: float) -> Any:
        _, _, states = run(text.format(h=h, integrator=integrator), 0.4, qvel=qvel)
        return jnp.concatenate([states.qpos[-1, 0], states.qvel[-1, 0]])

    check_order(end, None, [0.04, 0.02, 0.01, 0.005, 0.0025], order, tol=0.3)


def test_a_solve_starts_where_the_last_stage_ended():
    """The fourth stage is at the time of the next step's first, and so its acceleration nearly that step's."""
    model = fphys.load(
        PENDULUM.format(h=0.01, integrator="RK4").replace("<joint ", '<joint limited="true" range="-90 90" ')
    )
    state = fphys.init(model, 1, np.array([1.0]), np.array([2.0]))
    after = fphys.step(model, state)
    before, then = (fphys.forward(model, s)[0] for s in (state, after))
    assert jnp.abs(after.warmstart - then) < 0.01 * jnp.abs(then - before)
