"""PPO with its worlds in Ray actors: each acts in its share of them, and this process learns from all.

The worlds are those of :mod:`fphys.rl.ppo`, and so are their random numbers, on any number of actors. Their state
travels with the work, so that an actor that dies takes nothing with it, and checkpoints are those of PPO. There is one
difference: observations are scaled by what was seen up to the start of an iteration, for actors do not ask each other
in each step. Without ``normalize`` an iteration is PPO's, to rounding.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..distributed import on_host
from ..distributed.actors import Actors
from ..envs import Env, EnvState
from ..runs import Run
from ..train.checkpoint import Checkpoints
from . import ppo
from .loop import Log, loop
from .moments import Moments
from .policy import Policy

Array = jax.Array


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
    """Train as :func:`fphys.rl.ppo.train` does, with the worlds in ``number`` actors; with 0, here.

    Args:
        number: how many actors; worlds must divide evenly among them.
        run, checkpoints: as for :func:`fphys.rl.loop`.
        options: as for :class:`fphys.distributed.actors.Actors`: ``address``, ``restarts``, ``patience``.

    Raises:
        ValueError: a number does not fit. ProcessError: an actor failed, died too often or hangs; the message names it.
    """
    ppo.expect(env, config)
    expect(env, number)
    module, state = jax.jit(functools.partial(ppo.init, env, config))(key)
    with Actors(functools.partial(act, env, config, module), number, **options) as actors:
        iteration = update(env, config, module, actors)
        steps_each = env.num_envs * config.horizon
        state, log = loop(iteration, state, steps_each, config.steps, run=run, checkpoints=checkpoints, compiled=True)
    return ppo.policy(env, module, state), log


def expect(env: Env, number: int) -> None:
    """Refuse worlds that cannot be shared out.

    Raises:
        ValueError: the message says which number would do.
    """
    if env.num_envs % max(number, 1):
        raise ValueError(f"{env.num_envs} worlds do not divide evenly among {number} actors")
    own = jax.tree.leaves(env.replace(model=dataclasses.replace(env.model, key=None)))  # keyframes have no worlds
    if env.num_envs > 1 < number and any(np.shape(x)[:1] == (env.num_envs,) for x in own):
        raise ValueError("the environment's model or class has arrays of each world, which actors do not share out")


def act(env: Env, config: ppo.Config, module: Any, shared: Any, part: Any) -> tuple[EnvState, Array, ppo.Seen]:
    """What an actor does: ``horizon`` steps of its worlds.

    Args:
        shared: the policy's parameters, the moments of observations, and the iteration's key.
        part: state and observation of these worlds, and the number of the first, int32.

    Returns:
        State and observation at the end, and what was seen; its observations are not normalised.
    """
    params, moments, key = shared
    state, observation, first = part
    every = env.num_envs, *env.action_spec.shape

    def step(carry: tuple[EnvState, Array], key: Array) -> tuple[tuple[EnvState, Array], ppo.Seen]:
        state, observation = carry
        noise = jax.random.normal(key, every, jnp.float32)  # that of all worlds: it belongs to a world
        noise = jax.lax.dynamic_slice_in_dim(noise, first, len(observation))
        state, after, seen = ppo.play(env, module, params, state, moments.normalize(observation), noise)
        return (state, after), seen._replace(x=observation)

    (state, observation), seen = jax.lax.scan(step, (state, observation), jax.random.split(key, config.horizon))
    return state, observation, seen


def update(env: Env, config: ppo.Config, module: Any, actors: Actors) -> Callable[[Any], tuple[Any, dict[str, Array]]]:
    """One iteration as a function of PPO's state, with the results of :func:`fphys.rl.ppo.update`.

    Args:
        actors: of ``functools.partial(act, env, config, module)``.
    """
    count = max(actors.number, 1)
    firsts = np.arange(0, env.num_envs, env.num_envs // count, dtype=np.int32)

    @jax.jit
    def begin(state: ppo.TrainingState) -> tuple[Moments, Array]:
        moments = state.moments.update(state.observation) if config.normalize else state.moments
        return moments, ppo.keys(state)[0]

    @jax.jit
    def learn(state: ppo.TrainingState, moments: Moments, found: Any) -> tuple[ppo.TrainingState, dict[str, Array]]:
        worlds, observations, parts = zip(*found)
        seen = _joined(parts, 1)
        state = state.replace(env=_joined(worlds, 0), observation=_joined(observations, 0), moments=moments)
        state, seen = scaled(config, state, seen, seen.x[1:])
        return ppo.improve(env, config, module, state, seen, ppo.keys(state)[1])

    def iteration(state: ppo.TrainingState) -> tuple[ppo.TrainingState, dict[str, Array]]:
        moments, key = begin(state)
        worlds = on_host((state.env, state.observation))
        parts = [(*rows(worlds, first, env.num_envs // count), first) for first in firsts]
        return learn(state, moments, actors((state.learner.params, moments, key), parts))

    return iteration


def scaled(
    config: ppo.Config, state: ppo.TrainingState, seen: ppo.Seen, new: Array
) -> tuple[ppo.TrainingState, ppo.Seen]:
    """What was seen, scaled by the state's moments; and the state with the moments of all that was seen, each once.

    Args:
        new: those of the observations, (time, world, n), that the moments do not know.
    """
    scales = state.moments
    x, final = scales.normalize(seen.x), scales.normalize(seen.final)
    if not config.normalize:
        return state, seen._replace(x=x, final=final)

    gains, each = ppo.discounted(config, state.gains, seen.reward, seen.done)
    gain_moments = state.gain_moments.update(each.ravel())
    reward = jnp.clip(seen.reward / gain_moments.deviation(2), -10, 10)
    moments = scales.update(new.reshape(-1, new.shape[-1])) if len(new) else scales
    state = state.replace(moments=moments, gains=gains, gain_moments=gain_moments)
    return state, seen._replace(x=x, final=final, reward=reward)


def rows(tree: Any, first: int | np.integer, count: int) -> Any:
    """Some worlds of a tree whose arrays have shape (world, ...)."""
    return jax.tree.map(lambda x: x[first : first + count], tree)


def _joined(trees: Any, axis: int) -> Any:
    return jax.tree.map(lambda *x: jnp.concatenate(x, axis), *trees)
