"""PPO whose actors never wait: the learner goes on with what the first of them saw, while all others act.

What an actor saw is older than the policy that learns from it, by an update or more. V-trace (Espeholt et al. 2018)
corrects it: advantages and targets are those of the policy at the start of the update, each step weighed by how much
more probable it is for this policy, at most 1. PPO's own ratio begins at that policy (Hilton et al. 2021, "decoupled").

An iteration learns from one actor's worlds. With one actor it is deterministic: what was seen is then one update old.
What every actor was asked is part of the state, so that a training that goes on asks it again.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import nn
from ..distributed.actors import Actors
from ..envs import Env, EnvState, set_difficulty
from ..runs import Run
from ..train.checkpoint import CheckpointError, Checkpoints
from ..tree import Tree, pytree
from . import ppo
from .actors import act, expect, scaled
from .loop import Log, loop
from .policy import Policy
from .returns import vtrace

Array = jax.Array


@pytree
class TrainingState(Tree):
    """Everything that the next iteration depends on, but for which actor is first."""

    ppo: ppo.TrainingState
    rounds: Array  # how many rollouts of each actor were learned from, int32 (actor,)
    asked: Any  # what each actor was asked with, (actor, ...): parameters, moments, difficulty, and updates made so far


def train(
    env: Env,
    config: ppo.Config,
    key: Array,
    number: int,
    *,
    run: Run | None = None,
    checkpoints: Checkpoints | None = None,
    **options: Any,
) -> tuple[Policy, Log]:
    """Train until ``config.steps`` are used up. Every step of a world is learned from once.

    Args:
        number: how many actors share the worlds; with 0, one works in this process.
        run, checkpoints: as for :func:`fphys.rl.loop`.
        options: as for :class:`fphys.distributed.actors.Actors`: ``address``, ``restarts``, ``patience``.

    Returns:
        As :func:`fphys.rl.ppo.train`; the log has ``lag`` as well, the updates between asking an actor and learning
        from it.

    Raises:
        ValueError: a number does not fit. ProcessError: an actor failed, died too often or hangs; the message names it.
        CheckpointError: the checkpoints are of another number of actors.
    """
    steps_each = share(env, config, number).num_envs * config.horizon
    module, state = jax.jit(functools.partial(init, env, config, number))(key)
    with Actors(functools.partial(act, env, config, module), number, **options) as actors:
        iteration = Iteration(env, config, module, actors)
        try:
            state, log = loop(
                iteration, state, steps_each, config.steps, run=run, checkpoints=checkpoints, compiled=True
            )
        except CheckpointError as cause:
            if "rounds has" not in str(cause):
                raise
            raise CheckpointError(
                f"{checkpoints and checkpoints.folder} has a training with another number of actors, not {number}: an "
                "asynchronous one goes on with as many as it began with"
            ) from cause
    return ppo.policy(env, module, state.ppo), log


def share(env: Env, config: ppo.Config, number: int) -> Env:
    """The environment of one actor's worlds.

    Raises:
        ValueError: a number does not fit.
    """
    expect(env, number)
    own = env.replace(num_envs=env.num_envs // max(number, 1))
    ppo.expect(own, config)
    return own


def init(env: Env, config: ppo.Config, number: int, key: Array) -> tuple[Any, TrainingState]:
    """The network's structure, and the state before the first iteration.

    Args:
        number: how many actors share the worlds; with 0, one works in this process.
        key: as for :func:`fphys.rl.ppo.init`, shape ().
    """
    module, state = ppo.init(env, config, key)
    count = max(number, 1)
    asked = jax.tree.map(lambda x: jnp.repeat(x[None], count, 0), _now(state))
    return module, TrainingState(state, jnp.zeros(count, jnp.int32), asked)


class Iteration:
    """One iteration as a function of the state. It knows which actors are at work, and asks all at its first call."""

    def __init__(self, env: Env, config: ppo.Config, module: Any, actors: Actors):
        self._actors, self._number = actors, max(actors.number, 1)
        own = share(env, config, actors.number)
        self._request = jax.jit(functools.partial(_request, config, own.num_envs), static_argnums=1)
        self._take = jax.jit(functools.partial(_take, own.num_envs), static_argnums=1)
        self._learn = jax.jit(functools.partial(_learn, own, config, module))

    def __call__(self, state: TrainingState) -> tuple[TrainingState, dict[str, Array]]:
        """Wait for one actor, ask it again, and learn from what it gave: the next state, and scalars for the log.

        Raises:
            ProcessError: an actor failed, died too often or hangs.
        """
        if not self._actors.busy:
            for i in range(self._number):
                self._actors.ask(i, *self._request(state, i))
        i, found = self._actors.first()
        lag = state.ppo.learner.step - state.asked[-1][i]
        state = self._take(state, i, *found[:2])
        self._actors.ask(i, *self._request(state, i))  # so that it acts while this process learns
        state, scalars = self._learn(state, jnp.int32(i), found[2])
        return state, scalars | {"lag": lag}


def _now(state: ppo.TrainingState) -> tuple[Any, ...]:
    """What an actor that is asked now is asked with."""
    return state.learner.params, state.moments, state.curriculum.level, state.learner.step


def _request(config: ppo.Config, count: int, state: TrainingState, i: int) -> tuple[Any, Any]:
    """What actor i gets: parameters, scales and a key that it gets once; and its worlds."""
    params, moments, level, _ = jax.tree.map(lambda x: x[i], state.asked)
    key = jax.random.fold_in(state.ppo.learner.key, -1 - jnp.int32(i))  # PPO's own are of 0 and more
    worlds = jax.tree.map(lambda x: x[i * count : (i + 1) * count], (state.ppo.env, state.ppo.observation))
    if config.curriculum:
        worlds = set_difficulty(worlds[0], level), worlds[1]
    return (params, moments, jax.random.fold_in(key, state.rounds[i])), (*worlds, np.int32(i * count))


def _take(count: int, state: TrainingState, i: int, env: EnvState, observation: Array) -> TrainingState:
    """The state with where actor i's worlds now are, from where it is asked again."""
    put = lambda x, new: x.at[i * count : (i + 1) * count].set(new)  # noqa: E731
    worlds = jax.tree.map(put, (state.ppo.env, state.ppo.observation), (env, observation))
    whole = state.ppo.replace(env=worlds[0], observation=worlds[1])
    asked = jax.tree.map(lambda x, new: x.at[i].set(new), state.asked, _now(whole))
    return TrainingState(whole, state.rounds.at[i].add(1), asked)


def _learn(
    env: Env, config: ppo.Config, module: Any, state: TrainingState, i: Array, seen: ppo.Seen
) -> tuple[TrainingState, dict[str, Array]]:
    """Learn from what actor i saw."""
    whole, rows = state.ppo, i * env.num_envs + jnp.arange(env.num_envs, dtype=jnp.int32)
    mine, seen = scaled(config, whole.replace(gains=whole.gains[rows]), seen, seen.x)
    mine, scalars = ppo.improve(env, config, module, mine, seen, ppo.keys(whole)[1], stale)
    return state.replace(ppo=mine.replace(gains=whole.gains.at[rows].set(mine.gains))), scalars


def stale(config: ppo.Config, module: Any, params: Any, seen: ppo.Seen) -> ppo.Batch:
    """What is learned from what an older policy did: advantages, targets and probabilities of this one."""
    ((mean, log_std), value), _ = nn.apply(module, params, {}, seen.x)
    log_prob = ppo.log_prob(seen.action, mean, log_std)
    next_value = nn.apply(module, params, {}, seen.final)[0][1]
    outcome = seen.reward, value, next_value, seen.terminated, seen.done
    advantage, target = vtrace(*outcome, log_prob - seen.log_prob, config.discount, config.lam)
    return ppo.Batch(seen.x, seen.action, log_prob, value, advantage, target)
