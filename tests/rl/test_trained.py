"""The policies that come with fphys still do what they were trained for, at full size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys import envs, rl

BARS = {
    "ant": (3900.0, 0.9),
    "hand": (235.0, 0.85),
    "hopper": (2800.0, 0.0),  # its task has no successes
    "hover": (440.0, 0.97),
    "pour": (92.0, 0.7),
    "reach": (42.0, 0.97),
}
"""Mean return of an episode, and the share of successes: what 32 worlds had, less two of their mean's deviations."""


@pytest.mark.slow
@pytest.mark.parametrize("name", BARS)
def test_a_policy_does_its_task(name: str):
    policy, task, options = rl.load_policy(rl.trained(name))
    env = envs.make(task, 32, dtype=jnp.float32, **options)

    def act(now, _):
        state, observation, reward, terminated, truncated, info = env.step(now[0], policy(now[1]))
        success = info.terms.get("success", jnp.zeros(32, bool))
        return (state, observation), (success, terminated | truncated, reward)

    start = env.reset(jax.random.key(1))
    met, done, reward = jax.jit(lambda s: jax.lax.scan(act, s, None, env.max_episode_steps))(start)[1]
    met, done, reward = (np.asarray(a) for a in (met, done, reward))
    last = done.argmax(0)
    assert done.any(0).all()
    total = (reward * (np.arange(len(done))[:, None] <= last)).sum(0)
    wanted, share = BARS[name]
    assert total.mean() > wanted and met[last, np.arange(32)].mean() >= share
