"""Proximal policy optimisation (Schulman et al. 2017), with the details of Andrychowicz et al. 2021.

One iteration is one pure function of one state: act in all worlds, estimate advantages, and improve the policy in
several passes over what was seen. :func:`train` calls it until the steps are used up.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .. import nn, optim
from .. import train as training
from ..distributed import averaged, everywhere, gathered, local, split
from ..envs import Curriculum, Env, EnvState, Episode, auto_adapt, set_difficulty
from ..tree import Tree, pytree
from .loop import Log, episode_scalars, loop
from .moments import Moments
from .numbers import expect_minibatches, expect_numbers
from .policy import Policy
from .returns import finite, gae

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Config:
    steps: int = 1_000_000
    """Environment steps of the whole training, over all worlds."""
    horizon: int = 64
    """Steps that every world acts in one iteration."""
    epochs: int = 10
    """Passes over what an iteration saw."""
    minibatches: int = 32
    """Updates in each pass."""
    learning_rate: float = 3e-4
    """Adam's step at the start; it falls to zero if ``anneal``."""
    anneal: bool = True
    discount: float = 0.99
    """What a value counts one step earlier."""
    lam: float = 0.95
    """Lambda of the advantages."""
    clip: float = 0.2
    """Largest change of a probability that is rewarded."""
    clip_value: bool = True
    """Whether the value's change is bounded as well."""
    value_weight: float = 0.5
    entropy_weight: float = 0.0
    max_grad_norm: float = 0.5
    log_std: float = 0.0
    """Logarithm of the noise at the start, in the actions' units; it is learned."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of both networks."""
    normalize: bool = True
    """Whether observations and rewards are scaled by what was seen. Observations are clipped to 10 in any case."""
    curriculum: bool = False
    """Whether episodes begin easy, and become more difficult as they succeed: ``fphys.envs.auto_adapt``."""


@pytree
class TrainingState(Tree):
    """Everything that the next iteration depends on."""

    learner: training.TrainState
    env: EnvState
    observation: Array  # (world, n)
    moments: Moments  # of observations
    gains: Array  # discounted sum of rewards of each world, (world,)
    gain_moments: Moments
    curriculum: Curriculum


class Seen(NamedTuple):
    """What worlds saw and did, (time, world, ...)."""

    x: Array  # normalised observations, (time, world, n)
    action: Array  # what the policy drew, in the actions' units, before it was clipped to the bounds
    log_prob: Array  # log density of the action
    value: Array  # of the observation
    reward: Array  # 0 where it was not finite
    final: Array  # normalised observations after the step, before any reset
    terminated: Array  # bool, whether the task ended
    done: Array  # bool, whether it ended or its time was over
    episode: Episode
    success: Array | None  # bool, if the task says so


class Batch(NamedTuple):
    """What is learned from, (time, world, ...)."""

    x: Array  # normalised observations, (time, world, n)
    action: Array  # what the policy drew, in the actions' units
    log_prob: Array  # its log density, for the policy at the start of the update
    value: Array  # of the observation, at the start of the update
    advantage: Array  # how much more the action gained than the value promised
    target: Array  # what the value should be


def network(env: Env, config: Any, key: Array) -> tuple[Any, Any, Any]:
    """Module, parameters and other state of the policy and the value, in float32 whatever the environment's type.

    Args:
        config: its ``hidden`` are the widths of both networks.
        key: of the parameters, shape ().
    """
    sizes = env.observation_spec.shape[0], env.action_spec.shape[0]
    module, params, aux = nn.init(lambda rngs: nn.models.ActorCritic(*sizes, hidden=config.hidden, rngs=rngs), key)
    return module, jax.tree.map(lambda x: x.astype(jnp.float32), params), aux


def init(env: Env, config: Config, key: Array) -> tuple[Any, TrainingState]:
    """The network's structure, and the state before the first iteration.

    Args:
        key: of JAX, shape (); it sets the parameters, the worlds' starts and what is drawn later.

    Returns:
        The module, as :func:`fphys.nn.init` has it, and a state whose arrays have the shapes that its fields say.
    """
    keys = jax.random.split(key, 3)
    module, params, _ = network(env, config, keys[0])
    params = {**params, "log_std": jnp.full_like(params["log_std"], config.log_std)}
    state, observation = split(env.reset(keys[1]))
    curriculum = Curriculum.begin(0.0 if config.curriculum else 1.0)
    if config.curriculum:
        state, observation = env.restart(set_difficulty(state, curriculum.level), jnp.ones(env.num_envs, bool))
    learner = training.init(params, _optimizer(env, config), aux={}, key=keys[2])
    zero = Moments.zero
    gains = split(jnp.zeros(env.num_envs, jnp.float32))
    learner = everywhere(learner)
    moments = Moments.around(observation) if config.normalize else zero(observation.shape[1:])
    return module, TrainingState(learner, state, observation, moments, gains, zero(()), curriculum)


def update(env: Env, config: Config, module: Any, state: TrainingState) -> tuple[TrainingState, dict[str, Array]]:
    """One iteration. Pure; compile it as ``jax.jit(functools.partial(update, env, config, module))``.

    Returns:
        The next state, and scalars: the mean ``episode_return`` and ``episode_length`` of the episodes that ended (NaN
        if none did), their number ``episodes``, the share of them that was a ``success`` if the task says so, the
        ``faults`` so far, ``reward`` per step (scaled if ``normalize``), the ``difficulty`` of the next episodes, and
        means over all updates of ``policy_loss``, ``value_loss``, ``entropy``, ``kl``, ``clipped`` and ``grad_norm``;
        ``skipped`` updates so far.
    """
    acting, learning = keys(state)
    state, seen = _act(env, config, module, state, acting)
    return improve(env, config, module, state, seen, learning)


def keys(state: TrainingState) -> Array:
    """The random keys of the next iteration, (2,): to act, and to learn."""
    return jax.random.split(jax.random.fold_in(state.learner.key, state.learner.step), 2)


def train(env: Env, config: Config, key: Array, **options: Any) -> tuple[Policy, Log]:
    """Train until ``config.steps`` are used up.

    Args:
        options: as for :func:`fphys.rl.loop`: a ``run`` to log to, ``checkpoints`` to resume from.

    Returns:
        The policy, and the log: each scalar of :func:`update` for every iteration.
    """
    expect(env, config)
    module, state = jax.jit(functools.partial(init, env, config))(key)
    iteration = functools.partial(update, env, config, module)
    state, log = loop(iteration, state, env.num_envs * config.horizon, config.steps, **options)
    return policy(env, module, state), log


def policy(env: Env, module: Any, state: TrainingState) -> Policy:
    """The policy of a state."""
    spec = env.action_spec
    return Policy(module, state.learner.params, state.moments, jnp.asarray(spec.low), jnp.asarray(spec.high))


def expect(env: Env, config: Config) -> None:
    """Refuse what cannot work.

    Raises:
        ValueError: a number does not fit, or there is a curriculum for a task without successes. TypeError: a number
            is not whole that must be.
    """
    seen = env.num_envs * config.horizon
    expect_numbers(config)
    if config.curriculum and "success" not in terms(env):
        raise ValueError('curriculum: the task has no "success" among the terms of its reward')
    expect_minibatches("minibatches", config.minibatches, env.num_envs, config.horizon, least=2)  # one has no deviation
    if config.steps < seen:
        raise ValueError(f"steps is {config.steps}, but one iteration takes {seen}: fewer worlds, a shorter horizon")


def terms(env: Env) -> tuple[str, ...]:
    """Names of the terms of the environment's reward."""

    def first() -> dict[str, Array]:
        state, _ = env.reset(jax.random.key(0))
        return env.step(state, jnp.zeros((env.num_envs, *env.action_spec.shape), env.action_spec.dtype))[5].terms

    return tuple(jax.eval_shape(first))


def _optimizer(env: Env, config: Config) -> Any:
    seen = env.num_envs * config.horizon
    updates = config.steps // seen * config.epochs * config.minibatches
    rate = optim.linear_schedule(config.learning_rate, 0.0, updates) if config.anneal else config.learning_rate
    return optim.chain(optim.clip_by_global_norm(config.max_grad_norm), optim.Adam(rate, eps=1e-5))


def play(env: Env, module: Any, params: Any, state: EnvState, x: Array, noise: Array) -> tuple[EnvState, Array, Seen]:
    """One step of all worlds, by the policy of ``x``, normalised observations, and its noise, (world, action)."""
    spec = env.action_spec
    low, high = (jnp.asarray(bound, jnp.float32)[None] for bound in (spec.low, spec.high))
    ((mean, log_std), value), _ = nn.apply(module, params, {}, x)
    action = mean + jnp.exp(log_std) * noise
    real = jnp.clip(action, low, high).astype(spec.dtype)
    state, observation, reward, terminated, truncated, info = env.step(state, real)
    seen = (x, action, log_prob(action, mean, log_std), value, finite(reward), info.final_obs)
    seen = Seen(*seen, terminated, terminated | truncated, info.episode, info.terms.get("success"))
    return state, observation, seen


def _act(env: Env, config: Config, module: Any, state: TrainingState, key: Array) -> tuple[TrainingState, Seen]:
    """Act in all worlds for ``horizon`` steps. Devices meet once in each, for the moments of observations."""
    shape = env.num_envs, *env.action_spec.shape

    def act(state: TrainingState, key: Array) -> tuple[TrainingState, Seen]:
        moments = state.moments
        if config.normalize:
            moments = moments.add(moments.sums(state.observation))
        x, noise = moments.normalize(state.observation), jax.random.normal(key, shape, jnp.float32)
        now, observation, seen = play(env, module, state.learner.params, state.env, x, noise)
        after = state.replace(env=now, observation=observation, moments=moments)
        return after, seen._replace(final=moments.normalize(seen.final))

    state, seen = jax.lax.scan(act, state, jax.random.split(key, config.horizon))
    return _scaled(config, state, seen) if config.normalize else (state, seen)


def _scaled(config: Config, state: TrainingState, seen: Seen) -> tuple[TrainingState, Seen]:
    """Rewards in deviations of the discounted sums up to their step; one message for all steps.

    Sums of the first iteration are about zero. That costs digits only where all rewards of a step are nearly the same,
    and these are clipped.
    """
    gains, each = discounted(config, state.gains, seen.reward, seen.done)
    scale = jax.vmap(state.gain_moments.add)(jnp.cumsum(state.gain_moments.sums(each), 0))
    reward = jnp.clip(seen.reward / scale.deviation(1)[:, None], -10, 10)
    last = jax.tree.map(lambda x: x[-1], scale)
    return state.replace(gains=gains, gain_moments=last), seen._replace(reward=reward)


def discounted(config: Config, gains: Array, reward: Array, done: Array) -> tuple[Array, Array]:
    """The discounted sum of rewards of each world after each step, (time, world); and what goes on after the last one.

    Args:
        gains: the sums before, (world,). reward, done: of each step, (time, world).
    """

    def gain(gains: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        reward, done = step
        gains = config.discount * gains + reward
        return jnp.where(done, 0, gains), gains

    return jax.lax.scan(gain, gains, (reward, done))


def fresh(config: Config, module: Any, params: Any, seen: Seen) -> Batch:
    """What is learned from what the policy itself did."""
    next_value = nn.apply(module, params, {}, seen.final)[0][1]
    outcome = seen.reward, seen.value, next_value, seen.terminated, seen.done
    advantage, target = gae(*outcome, config.discount, config.lam)
    return Batch(seen.x, seen.action, seen.log_prob, seen.value, advantage, target)


def improve(
    env: Env,
    config: Config,
    module: Any,
    state: TrainingState,
    seen: Seen,
    key: Array,
    learned: Callable[[Config, Any, Any, Seen], Batch] = fresh,
) -> tuple[TrainingState, dict[str, Array]]:
    """The second half of :func:`update`: advantages and targets of what was seen, and several passes over it.

    Args:
        learned: ``learned(config, module, params, seen)``, advantages and targets.
    """
    if config.curriculum and seen.success is not None:
        curriculum = auto_adapt(state.curriculum, seen.success, seen.done)
        state = state.replace(curriculum=curriculum, env=set_difficulty(state.env, curriculum.level))
    total, length, _ = seen.episode
    metrics = episode_scalars(seen.reward, seen.done, total, length, state.env.faults, seen.success)
    own = functools.partial(learned, config, module, state.learner.params)
    batch = local(own, env.num_envs, axis=1)(seen)
    learner, losses = _improve(env, config, module, state.learner, batch, key)
    return state.replace(learner=learner), metrics | {"difficulty": state.curriculum.level} | losses


def _improve(
    env: Env, config: Config, module: Any, learner: training.TrainState, batch: Batch, key: Array
) -> tuple[training.TrainState, dict[str, Array]]:
    """Several passes over the batch in random minibatches. Devices meet once for each."""
    seen, unpack = gathered(batch)
    advantages = unpack(seen).advantage
    loss_fn = averaged(functools.partial(_loss, config, module))
    step = functools.partial(training.step, loss_fn, _optimizer(env, config))

    def one(learner: training.TrainState, drawn: tuple[Array, Array]) -> tuple[training.TrainState, dict[str, Array]]:
        rows, advantage = drawn
        return step(learner, split(unpack(seen[rows])._replace(advantage=advantage)))

    def one_pass(learner: training.TrainState, key: Array) -> tuple[training.TrainState, dict[str, Array]]:
        order = everywhere(jax.random.permutation(key, len(seen)).reshape(config.minibatches, -1))
        drawn = everywhere(standard(advantages[order]))  # whole on each device, so that their means are no messages
        return jax.lax.scan(one, learner, (order, drawn))

    learner, rows = jax.lax.scan(one_pass, learner, jax.random.split(key, config.epochs))
    names = ("policy_loss", "value_loss", "entropy", "kl", "clipped", "grad_norm")
    return learner, {name: rows[name].mean() for name in names} | {"skipped": learner.skipped}


def _loss(config: Config, module: Any, params: Any, aux: Any, batch: Batch, key: Array) -> Any:
    """The clipped surrogate, plus the value's and minus the policy's entropy; for :func:`fphys.train.step`.

    A mean over examples, whose advantages are already those of :func:`standard`.
    """
    ((mean, log_std), value), _ = nn.apply(module, params, {}, batch.x)
    change = log_prob(batch.action, mean, log_std) - batch.log_prob
    ratio = jnp.exp(change)
    policy_loss = clipped_surrogate(ratio, batch.advantage, config.clip)
    error = (value - batch.target) ** 2
    if config.clip_value:
        near = batch.value + jnp.clip(value - batch.value, -config.clip, config.clip)
        error = jnp.maximum(error, (near - batch.target) ** 2)
    value_loss = 0.5 * error.mean()
    entropy = (log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1).mean()
    loss = policy_loss + config.value_weight * value_loss - config.entropy_weight * entropy
    return (
        loss,
        aux,
        {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "kl": (ratio - 1 - change).mean(),
            "clipped": (jnp.abs(ratio - 1) > config.clip).mean(dtype=jnp.float32),
        },
    )


def standard(advantage: Array) -> Array:
    """Advantages of minibatches, (minibatch, example), each less its mean and in units of its deviation."""
    mean, deviation = advantage.mean(1, keepdims=True), advantage.std(1, keepdims=True)
    return (advantage - mean) / (deviation + 1e-8)


def clipped_surrogate(ratio: Array, advantage: Array, clip: float) -> Array:
    """-mean(min(ratio A, clip(ratio, 1 - c, 1 + c) A)) (Schulman et al. 2017, equation 7). Gradients flow to both."""
    return -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage).mean()


def log_prob(action: Array, mean: Array, log_std: Array) -> Array:
    """Log density of a diagonal Gaussian, shape (...), from arrays (..., action)."""
    z = (action - mean) * jnp.exp(-log_std)
    return (-0.5 * z**2 - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)
