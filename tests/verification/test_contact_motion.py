"""Contact against mechanics: friction, rolling, rebound and rest, each beside its closed form.

MuJoCo's contact is a spring and damper with a cone, regularised: a contact that sticks creeps, with a velocity in
proportion to its load, and a body at rest sinks in. Tolerances say how much of each there may be.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys

G = 9.81
SLIDER = """
<mujoco><option timestep="{h}" cone="{cone}" impratio="{impratio}" tolerance="1e-12"/><worldbody>
  <geom type="plane" size="99 99 1" euler="{tilt} 0 0" friction="{mu} 0 0" condim="3"/>
  <body euler="{tilt} 0 0"><freejoint/><geom type="box" size="0.2 0.2 0.01" pos="0 0 0.01" mass="2"
    friction="{mu} 0 0"/></body></worldbody></mujoco>"""


def slider(mu: float, tilt: float = 0.0, h: float = 0.001, cone: str = "elliptic", impratio: float = 1.0) -> Any:
    return fphys.load(SLIDER.format(mu=mu, tilt=tilt, h=h, cone=cone, impratio=impratio))


def roll(model: Any, seconds: float, qvel: Any = None, qpos: Any = None) -> Any:
    """All states of one world, or of as many as velocities are given for."""
    worlds = 1 if qvel is None else len(np.atleast_2d(qvel))
    state = fphys.init(model, worlds, qpos=qpos, qvel=None if qvel is None else np.atleast_2d(qvel))
    steps = round(seconds / float(model.opt.timestep[0]))
    states = jax.jit(fphys.rollout)(model, state, jnp.zeros((steps, worlds, 0)))
    fphys.check(jax.tree.map(lambda x: x[-1], states))
    return jax.tree.map(np.asarray, states)


def settled(model: Any) -> np.ndarray:
    """Where the bodies lie after a second."""
    return roll(model, 1.0).qpos[-1]


@pytest.mark.parametrize(("cone", "tolerance"), [("elliptic", 0.01), ("pyramidal", 0.01)])
def test_a_sliding_block_stops_where_coulomb_says(cone: str, tolerance: float):
    """d = v^2 / (2 mu g), along an axis of the pyramid; the block's stop takes a few time constants of the contact."""
    mu, speeds = 0.4, np.array([0.5, 1.0, 1.5])
    model = slider(mu, cone=cone)
    start = np.repeat(settled(model), 3, 0)
    qvel = np.zeros((3, 6))
    qvel[:, 0] = speeds
    states = roll(model, 0.6, qvel, start)
    distance = states.qpos[-1, :, 0] - start[:, 0]
    np.testing.assert_allclose(distance, speeds**2 / (2 * mu * G), rtol=tolerance)


def test_an_elliptic_cone_stops_alike_in_every_direction():
    """A pyramid has corners: along its diagonal its friction is less by up to a root of two."""
    angle = np.deg2rad([0.0, 30.0, 45.0, 77.0])
    qvel = np.zeros((4, 6))
    qvel[:, :2] = np.stack([np.cos(angle), np.sin(angle)], 1)
    distance = {}
    for cone in ("elliptic", "pyramidal"):
        model = slider(0.4, cone=cone)
        start = np.repeat(settled(model), 4, 0)
        distance[cone] = np.linalg.norm((roll(model, 0.5, qvel, start).qpos[-1] - start)[:, :2], axis=1)
    np.testing.assert_allclose(distance["elliptic"], 1 / (2 * 0.4 * G), rtol=0.01)
    assert np.ptp(distance["pyramidal"]) > 0.1 * distance["pyramidal"].min()


def test_a_block_on_a_slope_sticks_below_atan_mu_and_slides_above():
    """Above: a = g (sin - mu cos). Below: it creeps, impratio times slower than by default."""
    mu = 0.5
    critical = np.rad2deg(np.arctan(mu))
    for tilt, slides in ((critical - 1.0, False), (critical + 1.0, True), (critical + 10.0, True)):
        model = slider(mu, tilt, impratio=100.0)
        states = roll(model, 1.0)
        down = np.linalg.norm(states.qvel[:, 0, :3], axis=1)
        angle = np.deg2rad(tilt)
        expected = G * (np.sin(angle) - mu * np.cos(angle))
        if slides:
            np.testing.assert_allclose((down[-1] - down[499]) / 0.5, expected, atol=3e-3 * G)
        else:
            assert down[-1] < 0.01 and down[-1] < down[499] * 1.01, "it must not speed up"


BALL = """
<mujoco><option timestep="0.001" cone="elliptic" tolerance="1e-12"/><worldbody>
  <geom type="plane" size="99 99 1" euler="{tilt} 0 0" friction="{mu} 0 0"/>
  <body pos="0 {y} {z}"><freejoint/><geom size="0.1" mass="1" friction="{mu} 0 0"/></body></worldbody></mujoco>"""


def test_a_ball_rolls_down_a_slope_at_five_sevenths():
    """a = (5/7) g sin without slipping, as long as tan < (7/2) mu."""
    tilt = np.deg2rad(20)
    model = fphys.load(BALL.format(tilt=20, mu=0.5, y=-0.1 * np.sin(tilt), z=0.1 * np.cos(tilt)))
    states = roll(model, 1.0)
    speed, spin = np.linalg.norm(states.qvel[:, 0, :3], axis=1), np.linalg.norm(states.qvel[:, 0, 3:], axis=1)
    for moved in (speed, 0.1 * spin):
        np.testing.assert_allclose((moved[-1] - moved[499]) / 0.5, 5 / 7 * G * np.sin(tilt), rtol=5e-3)


def test_a_sliding_ball_starts_to_roll_at_five_sevenths_of_its_speed():
    """Friction does not enter the final speed, (5/7) v, only when it is reached: t = 2 v / (7 mu g)."""
    model = fphys.load(BALL.format(tilt=0, mu=0.2, y=0, z=0.0999))
    states = roll(model, 0.6, np.array([1.0, 0, 0, 0, 0, 0]), settled(model))
    np.testing.assert_allclose(states.qvel[-1, 0, 0], 5 / 7, rtol=5e-3)
    np.testing.assert_allclose(states.qvel[-1, 0, 4] * 0.1, 5 / 7, rtol=5e-3)
    slip = states.qvel[:, 0, 0] - 0.1 * states.qvel[:, 0, 4]
    first = float(states.time[np.argmax(slip < 0.02), 0])
    np.testing.assert_allclose(first, 2 / (7 * 0.2 * G), rtol=0.03)


@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.7])
def test_a_rebound_is_that_of_a_damped_spring(ratio: float):
    """A direct solref (-k, -b) and a constant impedance make a contact x'' = -b x' - k x while it pushes; without
    gravity the speed of the rebound follows from its damping ratio alone."""
    k, d = 4e4, 0.95
    given = f'solimp="{d} {d} 0.001 0.5 2" solref="{-k} {-2 * ratio * np.sqrt(k)}" condim="1"'
    model = fphys.load(f"""
    <mujoco><option timestep="1e-5" gravity="0 0 0" tolerance="1e-12"/><worldbody>
      <geom type="plane" size="9 9 1" {given}/>
      <body pos="0 0 0.1"><freejoint/><geom size="0.1" mass="1" {given}/></body></worldbody></mujoco>""")
    states = roll(model, 0.03, np.array([0, 0, -1.0, 0, 0, 0]))
    root = np.sqrt(1 - ratio**2)
    phase = np.arctan2(2 * ratio * root, 2 * ratio**2 - 1)  # at which x'' = 0 again: it lets go
    rebound = np.exp(-ratio * phase / root) * np.sin(phase) / (2 * ratio * root)
    np.testing.assert_allclose(states.qvel[-1, 0, 2], rebound, rtol=2e-3)


def test_a_dropped_box_is_at_rest_within_a_thousand_steps():
    """On its face, sunk in by no more than the width of its impedance, its weight carried."""
    model = fphys.load(fphys.asset("ball"))
    states = roll(model, 1000 * float(model.opt.timestep[0]))
    last = jax.tree.map(lambda x: jnp.asarray(x[-1]), states)
    assert np.abs(last.qvel).max() < 1e-3
    assert 0.05 < float(last.qpos[0, 9]) < 0.0601, "the box lies on its largest face"
    force = fphys.forward(model, last)[1].force
    weight = float(model.body.mass[0, 1:].sum()) * G
    np.testing.assert_allclose(force[0, :, 0].sum(), weight, rtol=1e-3)


def test_two_bodies_keep_their_momentum_in_a_collision():
    """Without gravity and ground, whatever the contact does: linear and angular, to rounding of the steps."""
    text = """
    <mujoco><option timestep="0.001" gravity="0 0 0" integrator="{}"/><worldbody>
      <body pos="0 0 0"><freejoint/><geom type="box" size="0.1 0.12 0.15" mass="1.3"/></body>
      <body pos="0.3 0.05 0.02"><freejoint/><geom type="capsule" size="0.06 0.12" mass="0.7"/></body>
    </worldbody></mujoco>"""
    model = fphys.load(text.format("RK4"))
    states = roll(model, 0.4, np.array([0.5, 0, 0, 0.3, 1.0, -0.5, -0.5, 0.1, 0, 0, 0.5, 2.0]))

    def momentum(t: int) -> np.ndarray:
        s = jax.tree.map(lambda x: jnp.asarray(x[t]), states)
        matrix, turn = fphys.mass_matrix(model, s)[0], fphys.math.rotation(fphys.kinematics(model, s).body.quat[0])
        p, total = matrix @ s.qvel[0], np.zeros(6)
        for i in range(2):
            linear, angular = p[6 * i : 6 * i + 3], turn[1 + i] @ p[6 * i + 3 : 6 * i + 6]
            total += np.concatenate([linear, angular + np.cross(s.qpos[0, 7 * i : 7 * i + 3], linear)])
        return total

    speeds = states.qvel[:, 0, [0, 6]]
    assert np.abs(np.diff(speeds, axis=0)).max() > 1e-3, "they must meet"
    assert np.abs(momentum(-1) - momentum(0)).max() < 5e-4 * np.abs(momentum(0)).max()


def test_a_hinge_stops_at_its_limit_and_dry_friction_holds_a_load():
    """A pendulum with dry friction stays where gravity's torque is less than the friction loss, and falls where not;
    what falls comes to rest at its limit."""
    text = """
    <mujoco><option timestep="0.001"/><worldbody><body pos="0 0 2">
      <joint axis="0 1 0" frictionloss="2" damping="1" limited="true" range="-180 30"/>
      <geom size="0.05" mass="1" pos="0 0 -1" contype="0" conaffinity="0"/></body></worldbody></mujoco>"""
    model = fphys.load(text)
    angle = np.array([[-0.15], [0.15], [-1.0]])  # torque m g l sin: 1.47, 1.47 and 8.3 N m
    states = roll(model, 3.0, np.zeros((3, 1)), angle)
    assert np.abs(states.qpos[-1, :2] - angle[:2]).max() < 0.01
    assert np.abs(G * np.sin(states.qpos[-1, 2, 0])) <= 2.02, "it stops within the friction's reach"
    pushed = roll(model, 2.0, np.array([8.0]), np.array([[0.0]]))
    assert np.deg2rad(29.0) < pushed.qpos[:, 0, 0].max() < np.deg2rad(33.0), "the limit gives way by a few degrees"
