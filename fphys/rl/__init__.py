"""Agents that learn in :mod:`fphys.envs`: pure functions, whole iterations compiled.

::

    env = fphys.envs.make("Hopper-v5", num_envs=32)
    policy, log = fphys.rl.ppo.train(env, fphys.rl.ppo.Config(steps=1_000_000), jax.random.key(0))
    returns, lengths = fphys.rl.evaluate(env, policy, jax.random.key(1))
"""

from . import apg, dqn, ppo, sac, sapo, shac
from .files import load_policy, save_policy, trained
from .loop import Log, loop
from .moments import Moments
from .policy import Greedy, Policy, evaluate
from .record import motion, record
from .replay import Replay
from .returns import gae, td_lambda

__all__ = [
    "Greedy",
    "Log",
    "Moments",
    "Policy",
    "Replay",
    "apg",
    "dqn",
    "evaluate",
    "gae",
    "load_policy",
    "loop",
    "motion",
    "ppo",
    "record",
    "sac",
    "sapo",
    "save_policy",
    "shac",
    "td_lambda",
    "trained",
]
