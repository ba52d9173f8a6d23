"""What agents with a replay memory share: act once in all worlds, remember it, and learn from what is remembered.

Observations are remembered as they were seen and normalised when they are drawn, by what is known then. Time limits do
not end anything: the value of the state after a truncated step counts (Pardo et al. 2018).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import optim
from .. import train as training
from ..envs import Env, EnvState
from ..train.step import LossFn
from ..tree import Tree, pytree
from . import replay
from .loop import episode_scalars
from .moments import Moments
from .numbers import expect_numbers
from .returns import finite

Array = jax.Array
Act = Callable[[Any, Array, Array, Array], tuple[Array, Array]]
"""``act(params, x, key, taken) -> action, control``: from observations (world, n), and how many steps all worlds have
taken together, to the action as it is remembered and as the environment gets it (world, action)."""


class Transition(NamedTuple):
    """One step of one world. In a batch, every array has one more axis, the first."""

    observation: Array  # (n,)
    action: Array  # as the agent's values take it
    reward: Array  # ()
    next_observation: Array  # (n,), before any reset
    terminated: Array  # bool, (); False at a time limit


@pytree
class TrainingState(Tree):
    """Everything that the next iteration depends on."""

    learner: training.TrainState  # ``aux`` has the target networks: parts of the parameters, by name
    env: EnvState
    observation: Array  # (world, n)
    moments: Moments  # of observations
    memory: replay.Replay  # of transitions
    key: Array  # of actions and draws
    rounds: Array  # steps that each world has taken, int32


def init(env: Env, config: Any, key: Array, params: Any, target: Any, optimizer: Any, action: Array) -> TrainingState:
    """The state before the first iteration. ``action`` has the shape and type of one remembered action."""
    keys = jax.random.split(key, 3)
    state, observation = env.reset(keys[0])
    learner = training.init(params, optimizer, aux=target, key=keys[1])
    x = jnp.zeros(observation.shape[1:], jnp.float32)
    like = Transition(x, action, jnp.float32(0), x, jnp.zeros((), bool))
    memory, moments = replay.init(like, min(config.capacity, config.steps)), Moments.zero(x.shape)
    if config.normalize:
        moments = moments.update(observation)
    return TrainingState(learner, state, observation, moments, memory, keys[2], jnp.int32(0))


def update(
    env: Env, config: Any, act: Act, loss_fn: LossFn, optimizer: Any, state: TrainingState
) -> tuple[TrainingState, dict[str, Array]]:
    """One iteration, ``config.horizon`` rounds. In each, every world takes a step, and the updates for it follow.

    Returns:
        The next state, and scalars: those of episodes, as :func:`fphys.rl.ppo.update` has them; of the updates, the
        mean ``loss``, ``grad_norm`` and metrics of ``loss_fn`` (NaN during the warm-up), and ``skipped`` so far.
    """
    updates = round(env.num_envs * config.updates_per_step)
    learn = functools.partial(_learn, config, loss_fn, optimizer, updates)

    def one_round(state: TrainingState, _: None) -> tuple[TrainingState, Any]:
        keys = jax.random.split(jax.random.fold_in(state.key, state.rounds), 2)
        taken = state.rounds * env.num_envs
        state, seen = _step(env, config, act, state, keys[0], taken)
        shapes = jax.eval_shape(learn, state, keys[1])[1]
        nothing = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), shapes)
        idle = lambda state, _: (state.learner, nothing)  # noqa: E731
        learner, row = jax.lax.cond(taken >= config.warmup, learn, idle, state, keys[1])
        return state.replace(learner=learner, rounds=state.rounds + 1), (seen, row)

    state, ((reward, done, total, length, success), rows) = jax.lax.scan(one_round, state, None, config.horizon)
    scalars = {name: jnp.nanmean(values) for name, values in rows.items()}
    scalars |= episode_scalars(reward, done, total, length, state.env.faults, success)
    return state, scalars | {"skipped": state.learner.skipped}


def expect(env: Env, config: Any) -> None:
    """Refuse what cannot work.

    Raises:
        ValueError: a number does not fit, or an action is unbounded. TypeError: a number is not whole that must be.
    """
    expect_numbers(config)
    updates = env.num_envs * config.updates_per_step
    if round(updates) < 1 or abs(updates - round(updates)) > 1e-6:
        raise ValueError(
            f"{env.num_envs} worlds x updates_per_step = {config.updates_per_step} are {updates:g} updates after each "
            f"step of all worlds, which must be a whole number: updates_per_step = {max(1, round(updates))} / "
            f"{env.num_envs}, for example"
        )
    if config.steps < env.num_envs * config.horizon:
        raise ValueError(
            f"steps is {config.steps}, but one iteration takes {env.num_envs * config.horizon}: fewer worlds, a "
            "shorter horizon"
        )
    if config.warmup >= config.steps:
        raise ValueError(
            f"warmup is {config.warmup}, but steps only {config.steps}: nothing would be learned; lower the one or "
            "raise the other"
        )
    if config.capacity < env.num_envs:
        raise ValueError(f"capacity is {config.capacity}, must hold a step of all {env.num_envs} worlds")
    spec = env.action_spec
    if not (np.isfinite(spec.low).all() and np.isfinite(spec.high).all()):
        raise ValueError("an action has no bounds, which this agent needs: give the actuators a ctrlrange")


def _step(env: Env, config: Any, act: Act, state: TrainingState, key: Array, taken: Array) -> tuple[TrainingState, Any]:
    """Act once in all worlds, and remember it."""
    x = state.moments.normalize(state.observation)
    action, control = act(state.learner.params, x, key, taken)
    now, observation, reward, terminated, truncated, info = env.step(state.env, control.astype(env.action_spec.dtype))
    seen = Transition(finite(state.observation), action, finite(reward), finite(info.final_obs), terminated)
    moments = state.moments
    if config.normalize:
        moments = moments.add(moments.sums(observation))
    after = state.replace(env=now, observation=observation, moments=moments, memory=state.memory.add(seen))
    done, success = terminated | truncated, info.terms.get("success")
    return after, (seen.reward, done, info.episode.total, info.episode.length, success)


def _learn(
    config: Any, loss_fn: LossFn, optimizer: Any, updates: int, state: TrainingState, key: Array
) -> tuple[training.TrainState, dict[str, Array]]:
    """Several updates, each from a batch of its own; the target networks follow each."""

    def one_update(learner: training.TrainState, key: Array) -> tuple[training.TrainState, dict[str, Array]]:
        batch = state.memory.sample(key, config.batch_size)
        return improve(config, loss_fn, optimizer, state.moments, learner, batch)

    learner, rows = jax.lax.scan(one_update, state.learner, jax.random.split(key, updates))
    return learner, jax.tree.map(jnp.mean, rows)


def improve(
    config: Any, loss_fn: LossFn, optimizer: Any, moments: Moments, learner: training.TrainState, batch: Transition
) -> tuple[training.TrainState, dict[str, Array]]:
    """One update from a batch of transitions as they were seen; the target networks follow.

    Args:
        config: its ``tau`` is the share by which they follow.
        moments: of observations, by which those of the batch are scaled.
        batch: its arrays have shape (example, ...).

    Returns:
        The learner after it, and scalars, each of shape ().
    """
    batch = batch._replace(
        observation=moments.normalize(batch.observation), next_observation=moments.normalize(batch.next_observation)
    )
    learner, row = training.step(loss_fn, optimizer, learner, batch)
    followed = {name: learner.params[name] for name in learner.aux}
    target = optim.incremental_update(followed, learner.aux, config.tau)
    return learner.replace(aux=target), {name: value for name, value in row.items() if name != "skipped"}
