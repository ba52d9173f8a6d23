"""A curriculum at full size: it makes a task of a rare reward learnable."""

import functools

import jax
import jax.numpy as jnp
import pytest

import fphys
from fphys import envs
from fphys.rl import ppo
from fphys.tree import pytree


@pytree
class Touch(envs.FrankaReach):
    """A reward at the target alone."""

    def reward(self, before, after, action):
        _, terms = super().reward(before, after, action)
        return jnp.where(terms["distance"] < self.tolerance, 1.0, 0.0).astype(action.dtype), terms


@pytest.mark.slow
@pytest.mark.parametrize("curriculum", [True, False])
def test_a_rare_reward_is_learned_with_a_curriculum_alone(curriculum: bool):
    """After 0.3 million steps, where most episodes at full difficulty succeed with it, and none do without."""
    worlds, updates = 64, 75
    arm = Touch(fphys.load(fphys.asset(Touch.source), dtype=jnp.float32), num_envs=worlds)
    config = ppo.Config(steps=2 * updates * worlds * 64, curriculum=curriculum)
    module, state = ppo.init(arm, config, jax.random.key(0))
    update = functools.partial(ppo.update, arm, config, module)
    state, _ = jax.jit(lambda s: jax.lax.scan(lambda s, _: (update(s)[0], None), s, None, updates))(state)
    arm = arm.replace(num_envs=100)
    policy = ppo.policy(arm, module, state)

    def act(now, _):
        state, observation, _, _, _, info = arm.step(now[0], policy(now[1]))
        return (state, observation), info.terms["success"]

    met = jax.jit(lambda: jax.lax.scan(act, arm.reset(jax.random.key(9)), None, arm.max_episode_steps)[1].any(0))()
    assert met.mean() >= 0.4 if curriculum else met.mean() <= 0.05
