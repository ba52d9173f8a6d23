"""Short-horizon actor-critic (Xu et al. 2022): the policy climbs the exact gradient of a short motion.

The value counts what comes after it. Gradients pass through ``env.step``. Contact makes them grow from step to step, so
the cotangent of each world's state is limited at every action. Without a limit, gradients on Ant have norms up to 1e5
and teach nothing. An action whose gradient is not finite gets none, so that a fault of one world costs only what led
to it; if that is so in all worlds, the update is skipped.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from .. import nn, optim
from .. import train as training
from ..bridge import alongside, custom_vjp
from ..distributed import WORLD, averaged, gathered, gradient, split
from ..envs import Env, EnvState
from ..train.step import all_finite
from ..tree import Tree, pytree
from .loop import Log, episode_scalars, loop
from .moments import Moments
from .numbers import expect_minibatches, expect_numbers
from .policy import Policy, log_slope, squashed
from .ppo import log_prob, network
from .returns import finite, td_lambda

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Config:
    steps: int = 1_000_000
    """Environment steps of the whole training, over all worlds."""
    horizon: int = 32
    """Steps through which a gradient passes."""
    learning_rate: float = 2e-3
    """Adam's step for the policy at the start; it falls to a twentieth."""
    critic_rate: float = 2e-3
    """Adam's step for the value at the start."""
    critic_rate_end: float = 1.0
    """Share of it at the end; it falls evenly."""
    betas: tuple[float, float] = (0.7, 0.95)
    """Adam's, for both."""
    discount: float = 0.99
    """What a value counts one step earlier; less than 1 if values are bootstrapped."""
    lam: float = 0.95
    """Lambda of the value's targets."""
    critic_epochs: int = 16
    """Passes of the value over what an iteration saw."""
    critic_minibatches: int = 4
    """Updates in each pass."""
    follow: float = 0.8
    """Share by which the value that the policy sees follows the learned one in an iteration."""
    max_grad_norm: float = 1.0
    limit: float = 100.0
    """Largest norm, at every action, of the derivative of a world's own return by its state and observation."""
    log_std: float = -1.0
    """Logarithm of the noise at the start; it is learned."""
    least_log_std: float = -3.0
    hidden: tuple[int, ...] = (128, 64)
    """Widths of both networks."""
    normalize: bool = True
    """Whether observations are scaled by what was seen so far. They are clipped to 10 in any case."""
    bootstrap: bool = True
    """Whether a value counts what comes after a motion."""
    critics: int = 1
    """Values that are learned. The policy climbs their mean, and their targets use the least of them."""
    temperature: float = 0.0
    """What the normalised entropy of an action counts, in units of the reward. It changes if ``temperature_rate``."""
    temperature_rate: float = 0.0
    """Adam's step for the logarithm of the temperature at the start; it falls as the policy's."""
    wanted_entropy: float = 0.25
    """Normalised entropy that the temperature is learned for."""


@pytree
class TrainingState(Tree):
    """Everything that the next iteration depends on."""

    actor: Any  # parameters of the policy
    opt: Any  # its optimizer's state
    critic: training.TrainState  # parameters of the values, (critic, ...)
    target: Any  # parameters of the values that the policy sees
    temperature: Array  # its logarithm, ()
    cooling: Any  # its optimizer's state
    env: EnvState
    observation: Array  # (world, n)
    moments: Moments
    skipped: Array  # updates of the policy that were not finite, int32; the critic counts its own


class Seen(NamedTuple):
    """What an iteration saw, (time, world, ...)."""

    observation: Array  # as it was seen, (time, world, n)
    x: Array  # normalised observations, (time, world, n)
    reward: Array  # 0 where it was not finite
    soft: Array  # the reward and what the entropy counts
    next_value: Array  # of the state after the step, before any reset: the least of the critics', 0 at an end
    entropy: Array  # normalised
    terminated: Array  # bool, whether the task ended
    done: Array  # bool, whether it ended or its time was over
    total: Array  # returns so far
    length: Array  # steps of the episode so far, int32
    success: Array | None  # None if the task has no successes


def init(env: Env, config: Config, key: Array) -> tuple[Any, TrainingState]:
    """The network's structure, and the state before the first iteration.

    Args:
        key: of JAX, shape (); it sets the parameters, the worlds' starts and what is drawn later.

    Returns:
        The module, as :func:`fphys.nn.init` has it, and a state whose arrays have the shapes that its fields say.
    """
    keys = jax.random.split(key, 4)
    module, params, _ = network(env, config, keys[0])
    actor = {"actor": params["actor"], "log_std": jnp.full_like(params["log_std"], config.log_std)}
    state, observation = split(env.reset(keys[1]))
    each = [network(env, config, key)[1]["critic"] for key in jax.random.split(keys[3], config.critics)]
    critic = jax.tree.map(lambda *x: jnp.stack(x), *each)
    learner = training.init(critic, _critic_optimizer(env, config), aux={}, key=keys[2])
    moments = Moments.around(observation) if config.normalize else Moments.zero(observation.shape[1:])
    opt = _actor_optimizer(env, config).init(actor)
    target = jax.tree.map(jnp.copy, critic)
    temperature = jnp.log(jnp.float32(max(config.temperature, 1e-8)))
    cooling = _temperature_optimizer(env, config).init(temperature)
    return module, TrainingState(
        actor, opt, learner, target, temperature, cooling, state, observation, moments, jnp.int32(0)
    )


def update(env: Env, config: Config, module: Any, state: TrainingState) -> tuple[TrainingState, dict[str, Array]]:
    """One iteration: a step of the policy along its exact gradient, then the value's fit. Pure.

    Returns:
        The next state, and scalars: ``episode_return``, ``episode_length``, ``episodes``, ``success``, ``faults`` and
        ``reward`` as :func:`fphys.rl.ppo.update` has them; ``value_loss``, ``grad_norm`` (before clipping),
        ``noise``, ``temperature``, ``entropy`` (normalised), and ``skipped`` updates of policy and value so far.
    """
    keys = jax.random.split(jax.random.fold_in(state.critic.key, state.critic.step), 2)
    objective, start = functools.partial(_objective, env, config, module, state), _start(env, config, state, keys[0])
    parts = (P(WORLD), P(WORLD), P(None, WORLD))
    (_, grads), (now, observation, seen) = gradient(objective, state.actor, *start, out_specs=parts)
    grads = jax.tree.map(lambda g: g / seen.reward.size, grads)  # a mean over worlds and steps
    actor, opt, norm, fine = _climb(env, config, state, grads)
    temperature, cooling = _cool(env, config, state, seen.entropy.mean())
    critic, value_loss = _fit(env, config, module, state, seen, keys[1])
    target = optim.incremental_update(critic.params, state.target, config.follow)
    moments = state.moments
    if config.normalize:
        sums = moments.sums(seen.observation.swapaxes(0, 1))  # of each world over time; over worlds, one message
        moments = moments.add(sums.sum(0))
    state = TrainingState(
        actor, opt, critic, target, temperature, cooling, now, observation, moments, state.skipped + (1 - fine)
    )
    return state, episode_scalars(seen.reward, seen.done, seen.total, seen.length, now.faults, seen.success) | {
        "value_loss": value_loss,
        "grad_norm": norm,
        "noise": jnp.exp(actor["log_std"]).mean(),
        "temperature": jnp.exp(temperature),
        "entropy": seen.entropy.mean(),
        "skipped": state.skipped + critic.skipped,
    }


def train(env: Env, config: Config, key: Array, **options: Any) -> tuple[Policy, Log]:
    """Train until ``config.steps`` are used up; arguments and result as for :func:`fphys.rl.ppo.train`.

    Raises:
        ValueError: a number does not fit.
    """
    expect(env, config)
    seen = env.num_envs * config.horizon
    module, state = jax.jit(functools.partial(init, env, config))(key)
    state, log = loop(functools.partial(update, env, config, module), state, seen, config.steps, **options)
    return policy(env, module, state), log


def expect(env: Env, config: Config) -> None:
    """Refuse what cannot work.

    Raises:
        ValueError: a number does not fit. TypeError: a number is not whole that must be.
    """
    expect_numbers(config)
    seen = env.num_envs * config.horizon
    expect_minibatches("critic_minibatches", config.critic_minibatches, env.num_envs, config.horizon)
    if config.steps < seen:
        raise ValueError(f"steps is {config.steps}, but one iteration takes {seen}: fewer worlds, a shorter horizon")
    if config.bootstrap and config.discount == 1:
        raise ValueError("discount is 1, must be below 1 if values are bootstrapped: they would be endless sums")


def policy(env: Env, module: Any, state: TrainingState) -> Policy:
    """The policy of a state."""
    spec = env.action_spec
    params = {**state.actor, "critic": jax.tree.map(lambda x: x[0], state.critic.params)}
    return Policy(module, params, state.moments, jnp.asarray(spec.low), jnp.asarray(spec.high), squash=True)


@functools.partial(custom_vjp, nondiff_argnums=(0,))
def limited(limit: float, tree: Any) -> Any:
    """The tree itself, whose cotangent is scaled down in each world to a norm of ``limit``, and to 0 if not finite."""
    return tree


def _limited_bwd(limit: float, _: None, cotangent: Any) -> tuple[Any]:
    real = lambda x: jnp.issubdtype(x.dtype, jnp.floating)  # noqa: E731  (integers and keys have none)
    parts = [x for x in jax.tree.leaves(cotangent) if real(x)]
    square = functools.reduce(jnp.add, [(x.astype(jnp.float32) ** 2).reshape(len(x), -1).sum(1) for x in parts])
    norm = jnp.sqrt(square)
    scale = jnp.where(jnp.isfinite(norm), jnp.minimum(1, limit / jnp.maximum(norm, 1e-12)), 0)

    def scaled(x: Any) -> Any:
        if not real(x):
            return x
        share = scale.astype(x.dtype).reshape(-1, *[1] * (x.ndim - 1))
        return jnp.where(share > 0, x * share, 0)

    return (jax.tree.map(scaled, cotangent),)


limited.defvjp(lambda limit, tree: (tree, None), _limited_bwd)


@custom_vjp
def sound(x: Array) -> Array:
    """The array itself, (world, n), whose cotangent is 0 in worlds where it is not finite, unless it is so in none."""
    return x


def _sound_bwd(_: None, cotangent: Array) -> tuple[Array]:
    fine = jnp.isfinite(cotangent).all(1, keepdims=True)
    return (jnp.where(fine | ~fine.any(), cotangent, 0),)


sound.defvjp(lambda x: (x, None), _sound_bwd)


def _start(env: Env, config: Config, state: TrainingState, key: Array) -> tuple[EnvState, Array, Array]:
    """State, observation and the noise of all actions, (world, time, n): drawn here for the worlds of all devices."""
    shape = (env.num_envs, *env.action_spec.shape)
    noise = jax.vmap(lambda key: jax.random.normal(key, shape, jnp.float32))(jax.random.split(key, config.horizon))
    return state.env, state.observation, noise.swapaxes(0, 1)


def _objective(
    env: Env,
    config: Config,
    module: Any,
    before: TrainingState,
    actor: Any,
    state: EnvState,
    observation: Array,
    noise: Array,
) -> Any:
    """-sum of what short motions gain: discounted rewards, and the value where a motion is cut or truncated."""
    spec, weight_of_entropy = env.action_spec, jnp.exp(before.temperature)
    low, high = jnp.asarray(spec.low, jnp.float32), jnp.asarray(spec.high, jnp.float32)
    nothing = lambda x: jnp.zeros((1, len(x)), jnp.float32)  # noqa: E731
    values = functools.partial(_values, config, module, actor, before.target) if config.bootstrap else nothing
    some = {**actor, "critic": jax.tree.map(lambda x: x[0], before.target)}

    def act(carry: Any, noise: Array) -> Any:
        state, observation, weight = carry
        kept: Any = limited(config.limit, (state, observation))
        state, observation = kept
        saw, x = observation, before.moments.normalize(observation)
        (mean, log_std), _ = nn.apply(module, some, {}, x)[0]
        raw = mean + jnp.exp(log_std) * noise
        entropy = normalised_entropy(raw, mean, log_std, low, high)
        action = sound(squashed(raw, low, high)).astype(spec.dtype)
        state, observation, reward, terminated, truncated, info = env.step(state, action)
        reward, done = finite(reward), terminated | truncated
        soft = reward + weight_of_entropy * entropy
        ahead = jnp.where(terminated[None], 0, values(before.moments.normalize(info.final_obs)))
        gain = weight * (soft + jnp.where(done, config.discount * ahead.mean(0), 0))
        weight = jnp.where(done, 1, config.discount * weight)
        total, length = info.episode.total.astype(jnp.float32), info.episode.length.astype(jnp.float32)
        return (state, observation, weight), (
            gain,
            Seen(
                saw, x, reward, soft, ahead.min(0), entropy, terminated, done, total, length, info.terms.get("success")
            ),
        )

    start = (state, observation, alongside(jnp.ones(len(observation), jnp.float32), observation))
    (state, observation, weight), (gain, seen) = jax.lax.scan(act, start, noise.swapaxes(0, 1))
    gain = gain.sum() + (weight * values(before.moments.normalize(observation)).mean(0)).sum()
    return -gain, jax.lax.stop_gradient((state, observation, seen))


def _values(config: Config, module: Any, actor: Any, critics: Any, x: Array) -> Array:
    """Every critic's value, shape (critic, ...). The networks give the mean reward ahead, (1 - discount) value."""
    means = jax.vmap(lambda critic: nn.apply(module, {**actor, "critic": critic}, {}, x)[0][1])(critics)
    return means / _unit(config)


def _unit(config: Config) -> float:
    """Of the networks: the value of a reward of 1 in every step is 1 / unit."""
    return 1 - config.discount if config.bootstrap else 1.0


def normalised_entropy(raw: Array, mean: Array, log_std: Array, low: Array, high: Array) -> Array:
    """(h + n) / 2 n with h = -log density of an action scaled to +-1, of n numbers (Xing et al. 2025).

    Args:
        raw: what the Gaussian gave, before ``tanh`` where there are bounds; shape (..., n).

    Returns:
        One sample of the entropy, shape (...). Gradients flow to raw, mean and log_std.
    """
    bounded = jnp.isfinite(low) & jnp.isfinite(high)
    slope = jnp.where(bounded.reshape(*[1] * (raw.ndim - 1), -1), log_slope(raw), 0)
    n = raw.shape[-1]
    return (slope.sum(-1) - log_prob(raw, mean, log_std) + n) / (2 * n)


def _cool(env: Env, config: Config, state: TrainingState, entropy: Array) -> tuple[Array, Any]:
    """The temperature falls where there is more entropy than wanted, and rises where there is less."""
    import optax

    slope = finite(jnp.exp(state.temperature) * (entropy - config.wanted_entropy))
    with jax.numpy_dtype_promotion("standard"):
        change, cooling = _temperature_optimizer(env, config).update(slope, state.cooling, state.temperature)
    return optax.apply_updates(state.temperature, change), cooling  # type: ignore[return-value]


def _climb(env: Env, config: Config, state: TrainingState, grads: Any) -> tuple[Any, Any, Array, Array]:
    """A step of the policy, unless the gradient is not finite: parameters, optimizer, norm, whether it was taken."""
    import optax

    with jax.numpy_dtype_promotion("standard"):
        updates, opt = _actor_optimizer(env, config).update(grads, state.opt, state.actor)
    actor = optax.apply_updates(state.actor, updates)
    actor["log_std"] = jnp.maximum(actor["log_std"], config.least_log_std)  # type: ignore[index]
    fine = all_finite(grads)
    choose = lambda new, old: jnp.where(fine, new, old)  # noqa: E731
    actor, opt = jax.tree.map(choose, actor, state.actor), jax.tree.map(choose, opt, state.opt)
    return actor, opt, optim.global_norm(grads), fine.astype(jnp.int32)


def _fit(
    env: Env, config: Config, module: Any, state: TrainingState, seen: Seen, key: Array
) -> tuple[training.TrainState, Array]:
    """Fit the value to TD(lambda) targets of the value that the policy saw."""
    target = td_lambda(seen.soft, seen.next_value, seen.terminated, seen.done, config.discount, config.lam)
    examples, unpack = gathered((seen.x, target))

    def loss_fn(params: Any, aux: Any, batch: Any, key: Array) -> Any:
        error = _values(config, module, state.actor, params, batch[0]) - batch[1][None]
        return ((_unit(config) * error) ** 2).mean(1).sum(), aux, {}

    step = functools.partial(training.step, averaged(loss_fn), _critic_optimizer(env, config))

    def one_pass(learner: training.TrainState, key: Array) -> Any:
        order = jax.random.permutation(key, len(examples)).reshape(config.critic_minibatches, -1)
        return jax.lax.scan(lambda s, rows: step(s, split(unpack(examples[rows]))), learner, order)

    critic, rows = jax.lax.scan(one_pass, state.critic, jax.random.split(key, config.critic_epochs))
    return critic, rows["loss"].mean()


def _actor_optimizer(env: Env, config: Config) -> Any:
    rate = _falling(env, config, config.learning_rate)
    return optim.chain(optim.clip_by_global_norm(config.max_grad_norm), optim.Adam(rate, betas=config.betas))


def _critic_optimizer(env: Env, config: Config) -> Any:
    updates = config.critic_epochs * config.critic_minibatches
    rate = _falling(env, config, config.critic_rate, config.critic_rate_end, updates)
    return optim.chain(optim.clip_by_global_norm(config.max_grad_norm), optim.Adam(rate, betas=config.betas))


def _temperature_optimizer(env: Env, config: Config) -> Any:
    return optim.Adam(_falling(env, config, config.temperature_rate))


def _falling(env: Env, config: Config, rate: float, end: float = 0.05, updates: int = 1) -> Any:
    """A rate that falls to a share of it over the training, of so many updates in an iteration."""
    iterations = config.steps // (env.num_envs * config.horizon)
    return optim.linear_schedule(rate, end * rate, iterations * updates)
