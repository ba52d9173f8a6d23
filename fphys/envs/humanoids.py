"""A humanoid runs, or stands up: Gymnasium's Humanoid-v5 and HumanoidStandup-v5.

Y. Tassa, T. Erez and E. Todorov, "Synthesis and stabilization of complex behaviors through online trajectory
optimization", 2012.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp

from ..rigid.last import LastSolve, contact_wrenches, drives, inertial_positions, tree_inertias
from ..tree import pytree, static
from .ant import place
from .env import Env, EnvState, Start
from .planar import within

Array = jax.Array


@pytree
class Person(Env):
    """What both share: the model and what is observed."""

    frame_skip: int = static(default=5)
    ctrl_cost_weight: float = static(default=0.1)
    reset_noise_scale: float = static(default=1e-2)
    exclude_current_positions_from_observation: bool = static(default=True)
    include_cinert_in_observation: bool = static(default=True)
    include_cvel_in_observation: bool = static(default=True)
    include_qfrc_actuator_in_observation: bool = static(default=True)
    include_cfrc_ext_in_observation: bool = static(default=True)

    def start(self, key: Array) -> Start:
        return self.noisy_start(key, self.reset_noise_scale)

    def look(self, last: LastSolve, ctrl: Array) -> dict[str, Array]:
        m = self.model
        bodies, moved, mass = tree_inertias(m, last), drives(m, last, ctrl), m.body.mass[..., None]
        return {
            "centre": (mass * inertial_positions(m, last)).sum(1)[:, :2] / mass.sum(1),
            "cinert": bodies.cinert,
            "cvel": bodies.cvel,
            "qfrc_actuator": moved.qfrc_actuator,
            "cfrc_ext": contact_wrenches(m, last, ctrl),
            "tendon_length": moved.ten_length,
            "tendon_velocity": moved.ten_velocity,
        }

    def observation(self, state: EnvState) -> Array:
        parts = [state.qpos[:, 2 * self.exclude_current_positions_from_observation :], state.qvel]
        for name, skipped in (("cinert", 1), ("cvel", 1), ("qfrc_actuator", 6), ("cfrc_ext", 1)):
            if getattr(self, f"include_{name}_in_observation"):
                parts.append(state.seen[name][:, skipped:].reshape(len(state.qpos), -1))
        return jnp.concatenate(parts, 1)

    def control_cost(self, action: Array) -> Array:
        """The cost of an action (world, nu) [the actuators' units], shape (world,): weight times its sum of squares.

        The action counts as given: MuJoCo clips the actuators' input, not ``data.ctrl``. Gradients flow to it.
        """
        return self.ctrl_cost_weight * (action**2).sum(1)

    def impact(self, state: EnvState, weight: float, bounds: tuple[float, float]) -> Array:
        """``weight`` times the sum of squares of ``cfrc_ext`` [N m, N], clipped to ``bounds``, shape (world,)."""
        return jnp.clip(weight * (state.seen["cfrc_ext"] ** 2).sum((1, 2)), *bounds)

    def readings(self, state: EnvState) -> dict[str, Array]:
        """Lengths [m or rad] and velocities [m/s or rad/s] of the tendons, both of shape (world, tendon)."""
        return {name: state.seen[name] for name in ("tendon_length", "tendon_velocity")}


@pytree
class Humanoid(Person):
    """A humanoid runs: reward is its speed, plus 5 while healthy, minus the costs of control and impact."""

    source: ClassVar[str] = "humanoid.xml"

    forward_reward_weight: float = static(default=1.25)
    contact_cost_weight: float = static(default=5e-7)
    contact_cost_range: tuple[float, float] = static(default=(-float("inf"), 10.0))
    healthy_reward: float = static(default=5.0)
    terminate_when_unhealthy: bool = static(default=True)
    healthy_z_range: tuple[float, float] = static(default=(1.0, 2.0))

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        velocity = (after.seen["centre"] - before.seen["centre"]) / self.dt[:, None]
        forward = self.forward_reward_weight * velocity[:, 0]
        healthy = within(after.qpos[:, 2], self.healthy_z_range)
        survive = jnp.where(healthy, self.healthy_reward, 0.0).astype(forward.dtype)
        ctrl = self.control_cost(action)
        contact = self.impact(after, self.contact_cost_weight, self.contact_cost_range)
        return forward + survive - (ctrl + contact), {
            "reward_survive": survive,
            "reward_forward": forward,
            "reward_ctrl": -ctrl,
            "reward_contact": -contact,
            "x_velocity": velocity[:, 0],
            "y_velocity": velocity[:, 1],
            **place(after),
            **self.readings(after),
        }

    def terminated(self, state: EnvState) -> Array:
        return ~within(state.qpos[:, 2], self.healthy_z_range) & self.terminate_when_unhealthy


@pytree
class HumanoidStandup(Person):
    """A humanoid stands up: reward is its height over the time step, minus the costs of control and impact, plus 1."""

    source: ClassVar[str] = "humanoidstandup.xml"

    uph_cost_weight: float = static(default=1.0)
    impact_cost_weight: float = static(default=0.5e-6)
    impact_cost_range: tuple[float, float] = static(default=(-float("inf"), 10.0))

    def reward(self, before: EnvState, after: EnvState, action: Array) -> tuple[Array, dict[str, Array]]:
        height = after.qpos[:, 2]
        up, ctrl = height / self.model.opt.timestep, self.control_cost(action)
        impact = self.impact(after, self.impact_cost_weight, self.impact_cost_range)
        return up - ctrl - impact + 1, {
            "reward_linup": up,
            "reward_quadctrl": -ctrl,
            "reward_impact": -impact,
            "x_position": after.qpos[:, 0],
            "y_position": after.qpos[:, 1],
            "z_distance_from_origin": height - self.model.qpos0[:, 2],
            **self.readings(after),
        }
