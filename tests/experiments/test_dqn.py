"""Deep Q-learning: the cart is Gymnasium's, and the pole stands."""

import numpy as np
import pytest

from fphys.experiments import dqn
from fphys.experiments.dqn import Config

from ..rigid.quick import quick_compilation

__all__ = ["quick_compilation"]


@pytest.mark.extra("gymnasium")
def test_the_cart_moves_as_gymnasiums():
    import gymnasium

    env = gymnasium.make("CartPole-v1").unwrapped
    rng = np.random.default_rng(0)
    for scale in (0.05, 1.0, 3.0):
        x = rng.uniform(-scale, scale, (50, 4)).astype(np.float32)
        actions = rng.integers(0, 2, 50)
        after, fallen = dqn.move(x, np.where(actions == 1, 10.0, -10.0).astype(np.float32))
        for i in range(50):
            env.reset(seed=0)
            env.state = tuple(x[i].astype(float))
            wanted, _, ended, *_ = env.step(int(actions[i]))
            env.steps_beyond_terminated = None
            np.testing.assert_allclose(after[i], wanted, rtol=1e-5, atol=1e-6)
            assert bool(fallen[i]) == ended
    env.close()


def test_the_pole_stands(play, full):
    seeds = 5 if full else 1
    options = {} if full else {"steps": 1500, "every": 300, "goal": 100.0, "memory": 5000, "batch_size": 32}
    found = [play(dqn, Config(seed=seed, **options), video=False)[0] for seed in range(seeds)]
    reached = [metrics["mean_return"] for metrics in found]
    assert sorted(reached)[seeds // 4] > (475 if full else 60), reached  # the fewest of four in five
    assert all(metrics["episodes"] == 100 for metrics in found)
