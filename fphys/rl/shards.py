"""SAC with its worlds and its replay memory in Ray actors.

Each actor acts for ``horizon`` steps in its worlds, remembers them in its own part of the memory, and draws from it;
this process learns from what was drawn, uniformly from all parts together. So only what is learned from travels. The
policy is that of the last iteration during all of these steps, where :mod:`fphys.rl.sac` updates it after each.

An actor that dies takes its part of the memory with it. The one that replaces it goes on with the same worlds, whose
state travels, and an empty memory, which is drawn from in proportion to its items.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..distributed import on_host
from ..distributed.actors import Actors
from ..envs import Env, EnvState
from ..runs import Run
from ..train.checkpoint import Checkpoints
from ..tree import Tree, pytree
from . import off_policy, replay, sac
from .actors import expect as expect_shares
from .actors import rows
from .loop import Log, episode_scalars, loop
from .moments import Moments
from .off_policy import Transition
from .policy import Policy
from .returns import finite

Array = jax.Array


@pytree
class Shard(Tree):
    """An actor's part of the memory."""

    memory: replay.Replay
    iteration: Array  # the last one that it remembers, int32


class Found(NamedTuple):
    """What an actor returns of an iteration."""

    env: EnvState
    observation: Array  # (world, n)
    drawn: Transition  # from its memory, (draw, ...)
    count: Array  # items of its memory
    moments: Moments  # of what its worlds saw now
    steps: tuple[Array, ...]  # reward, done, return, length and success of each, (time, world)


def train(
    env: Env,
    config: sac.Config,
    key: Array,
    number: int,
    *,
    run: Run | None = None,
    checkpoints: Checkpoints | None = None,
    **options: Any,
) -> tuple[Policy, Log]:
    """Train until ``config.steps`` are used up. Resumed, it acts until ``warmup`` transitions are remembered again.

    Args:
        number: how many actors share the worlds and the memory; with 0, this process has both.
        run, checkpoints: as for :func:`fphys.rl.loop`. Memories are not saved.
        options: as for :class:`fphys.distributed.actors.Actors`: ``address``, ``restarts``, ``patience``.

    Raises:
        ValueError: a number does not fit. ProcessError: an actor failed, died too often or hangs; the message names it.
    """
    expect(env, config, number)
    module, state = jax.jit(functools.partial(init, env, config))(key)
    work, keep = functools.partial(act, env, config, module, number), functools.partial(begin, env, config, number)
    with Actors(work, number, keep=keep, **options) as actors:
        iteration = update(env, config, module, actors)
        steps_each = env.num_envs * config.horizon
        state, log = loop(iteration, state, steps_each, config.steps, run=run, checkpoints=checkpoints, compiled=True)
    return sac.policy(env, module, state), log


def expect(env: Env, config: sac.Config, number: int) -> None:
    """Refuse what cannot work.

    Raises:
        ValueError: a number does not fit.
    """
    off_policy.expect(env, config)
    expect_shares(env, number)


def init(env: Env, config: sac.Config, key: Array) -> tuple[Any, off_policy.TrainingState]:
    """The network's structure, and the state before the first iteration, without a memory.

    Args:
        key: as for :func:`fphys.rl.sac.init`, shape ().
    """
    module, state = sac.init(env, config, key)
    return module, state.replace(memory=None)


def begin(env: Env, config: sac.Config, number: int) -> Shard:
    """An actor's memory, as it begins."""
    (n,), (actions,) = env.observation_spec.shape, env.action_spec.shape
    x, action = jnp.zeros(n, jnp.float32), jnp.zeros(actions, jnp.float32)
    like = Transition(x, action, jnp.float32(0), x, jnp.zeros((), bool))
    capacity = max(min(config.capacity, config.steps), env.num_envs) // max(number, 1)
    return Shard(replay.init(like, capacity), jnp.int32(-1))


def act(
    env: Env, config: sac.Config, module: Any, number: int, shared: Any, part: Any, kept: Shard
) -> tuple[Found, Shard]:
    """What an actor does.

    Args:
        shared: the parameters, the moments of observations, the iteration's key, its number, and the steps that all
            worlds have taken.
        part: state and observation of these worlds, and the number of the actor, int32.
        kept: its memory. If it remembers this iteration already, nothing is added twice.
    """
    params, moments, key, iteration, taken = shared
    state, observation, own = part
    keys = jax.random.split(jax.random.fold_in(key, own), 2)
    new = len(observation) * config.horizon
    again, memory = kept.iteration == iteration, kept.memory
    count = jnp.where(again, memory.count, jnp.minimum(memory.count + new, memory.capacity))
    memory = memory.replace(place=jnp.where(again, memory.place - new, memory.place) % memory.capacity)

    def step(carry: Any, key: Array) -> Any:
        state, observation, memory, taken = carry
        x = moments.normalize(observation)
        action, control = sac.choose(env, config, module, params, x, key, taken)
        state, after, reward, terminated, truncated, info = env.step(state, control.astype(env.action_spec.dtype))
        seen = Transition(finite(observation), action, finite(reward), finite(info.final_obs), terminated)
        outcome = seen.reward, terminated | truncated, info.episode.total, info.episode.length
        carry = state, after, memory.add(seen), taken + env.num_envs
        return carry, (after, outcome, info.terms.get("success"))

    start = state, observation, memory, taken
    (state, observation, memory, _), (saw, outcome, success) = jax.lax.scan(
        step, start, jax.random.split(keys[0], config.horizon)
    )
    memory = memory.replace(count=count)
    drawn = memory.sample(keys[1], -(-updates(env, config) * config.batch_size // max(number, 1)))
    seen = Moments.zero(saw.shape[2:]).update(saw.reshape(-1, saw.shape[-1]))
    return Found(state, observation, drawn, count, seen, (*outcome, success)), Shard(memory, iteration)


def updates(env: Env, config: sac.Config) -> int:
    """Updates of an iteration."""
    return round(env.num_envs * config.updates_per_step) * config.horizon


def update(env: Env, config: sac.Config, module: Any, actors: Actors) -> Callable[[Any], tuple[Any, dict[str, Array]]]:
    """One iteration as a function of the state, with the results of :func:`fphys.rl.sac.update`.

    Args:
        actors: of :func:`act` and :func:`begin`.
    """
    number = max(actors.number, 1)
    share, rounds = env.num_envs // number, config.horizon
    loss_fn, optimizer = functools.partial(sac.loss, config, module), sac.optimizer(config)
    one_update = functools.partial(off_policy.improve, config, loss_fn, optimizer)

    @jax.jit
    def gathered(state: Any, found: Any) -> tuple[Any, dict[str, Array]]:
        joined = lambda axis, *x: jnp.concatenate(x, axis)  # noqa: E731
        worlds = jax.tree.map(functools.partial(joined, 0), *[(each.env, each.observation) for each in found])
        moments = state.moments
        for each in found if config.normalize else ():
            moments = moments.merge(each.moments)
        state = state.replace(env=worlds[0], observation=worlds[1], moments=moments, rounds=state.rounds + rounds)
        reward, done, total, length, success = jax.tree.map(
            functools.partial(joined, 1), *[each.steps for each in found]
        )
        return state, episode_scalars(reward, done, total, length, state.env.faults, success)

    @jax.jit
    def learn(state: Any, drawn: list[Transition], counts: Array) -> tuple[Any, dict[str, Array]]:
        key = jax.random.fold_in(state.key, state.rounds)
        batches = mixed(key, drawn, counts, updates(env, config), config.batch_size)
        learner, each = jax.lax.scan(functools.partial(one_update, state.moments), state.learner, batches)
        return state.replace(learner=learner), jax.tree.map(jnp.mean, each)

    def iteration(state: Any) -> tuple[Any, dict[str, Array]]:
        key, taken = jax.random.fold_in(state.key, -1 - state.rounds), state.rounds * env.num_envs
        shared = state.learner.params, state.moments, key, state.rounds // rounds, taken
        worlds = on_host((state.env, state.observation))
        parts = [(*rows(worlds, i * share, share), np.int32(i)) for i in range(number)]
        found = actors(shared, parts)
        state, scalars = gathered(state, found)
        drawn, counts = [each.drawn for each in found], jnp.stack([jnp.asarray(each.count) for each in found])
        if int(counts.sum()) >= config.warmup:
            state, row = learn(state, drawn, counts)
        else:
            row = {name: jnp.float32(jnp.nan) for name in jax.eval_shape(learn, state, drawn, counts)[1]}
        return state, row | scalars | {"skipped": state.learner.skipped}

    return iteration


def mixed(key: Array, drawn: list[Transition], counts: Array, updates: int, size: int) -> Transition:
    """Batches drawn uniformly from all memories together, (update, example, ...).

    Each example comes from a memory with a probability that is its share of all items, and is the next of what was
    drawn there; if those are used up, it begins again with the first.
    """
    one = jax.random.categorical(key, jnp.log(counts.astype(jnp.float32)), shape=(updates * size,))
    turn = jnp.cumsum(one[:, None] == jnp.arange(len(drawn))[None], 0, dtype=jnp.int32) - 1
    place = jnp.take_along_axis(turn, one[:, None], 1)[:, 0]
    pick = lambda *x: jnp.stack(x)[one, place % len(x[0])].reshape(updates, size, *x[0].shape[1:])  # noqa: E731
    return jax.tree.map(pick, *drawn)
