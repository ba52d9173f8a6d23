"""Soft actor-critic with a learned temperature (Haarnoja et al. 2018, arXiv:1812.05905).

The policy maximises rewards plus entropy. It learns from a replay memory, so it needs fewer steps of the environment
than PPO, and more updates. One iteration is one pure function of one state.

Inside the agent actions are in (-1, 1). Densities and entropies are of these, so the target entropy does not depend on
the actuators' units.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from .. import nn, optim
from ..envs import Env
from . import off_policy, ppo
from .loop import Log, loop
from .off_policy import TrainingState, Transition
from .off_policy import expect as expect
from .policy import Policy, log_slope
from .returns import finite

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Config:
    steps: int = 1_000_000
    """Environment steps of the whole training, over all worlds."""
    horizon: int = 64
    """Steps of every world in one iteration, each followed by its updates."""
    updates_per_step: float = 1.0
    """Updates for one step of one world (CleanRL and Stable-Baselines3: 1)."""
    warmup: int = 5_000
    """Steps of random actions before the first update (CleanRL: 5000; Stable-Baselines3: 100)."""
    capacity: int = 1_000_000
    """Transitions that are remembered (both: 1e6)."""
    batch_size: int = 256
    """Transitions of an update (both: 256)."""
    learning_rate: float = 3e-4
    """Adam's step for everything (Stable-Baselines3: 3e-4; CleanRL: 3e-4, and 1e-3 for the values)."""
    discount: float = 0.99
    """What a value counts one step earlier (both: 0.99)."""
    tau: float = 0.005
    """Share by which the target networks follow at each update (both: 0.005)."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of all networks (both: 256, 256)."""
    normalize: bool = True
    """Whether observations are scaled by what was seen (neither does). They are clipped to 10 in any case."""


def init(env: Env, config: Config, key: Array) -> tuple[Any, TrainingState]:
    """The network's structure, and the state before the first iteration.

    Args:
        key: of JAX, shape (); it sets the parameters, the worlds' starts and what is drawn later.

    Returns:
        The module, as :func:`fphys.nn.init` has it, and a state whose arrays have the shapes that its fields say.
    """
    keys = jax.random.split(key)
    (n,), (actions,) = env.observation_spec.shape, env.action_spec.shape
    module, params, _ = nn.init(
        lambda rngs: nn.models.SoftActorCritic(n, actions, hidden=config.hidden, rngs=rngs), keys[0]
    )
    params = jax.tree.map(lambda x: x.astype(jnp.float32), params)
    action, target = jnp.zeros(actions, jnp.float32), {"critics": params["critics"]}
    return module, off_policy.init(env, config, keys[1], params, target, optimizer(config), action)


def update(env: Env, config: Config, module: Any, state: TrainingState) -> tuple[TrainingState, dict[str, Array]]:
    """One iteration. Pure; compile it as ``jax.jit(functools.partial(update, env, config, module))``.

    Returns:
        The next state, and scalars: ``episode_return``, ``episode_length``, ``episodes``, ``success``, ``faults`` and
        ``reward`` as :func:`fphys.rl.ppo.update` has them; means over the updates of ``q_loss``,
        ``policy_loss``, ``temperature``, ``entropy`` and ``grad_norm``, NaN before the first; and the updates
        ``skipped`` so far.
    """
    act, loss_fn = functools.partial(choose, env, config, module), functools.partial(loss, config, module)
    return off_policy.update(env, config, act, loss_fn, optimizer(config), state)


def train(env: Env, config: Config, key: Array, **options: Any) -> tuple[Policy, Log]:
    """Train until ``config.steps`` are used up; arguments and result as for :func:`fphys.rl.ppo.train`.

    Raises:
        ValueError: a number does not fit, or an action is unbounded.
    """
    expect(env, config)
    module, state = jax.jit(functools.partial(init, env, config))(key)
    iteration = functools.partial(update, env, config, module)
    state, log = loop(iteration, state, env.num_envs * config.horizon, config.steps, **options)
    return policy(env, module, state), log


def policy(env: Env, module: Any, state: TrainingState) -> Policy:
    """The policy of a state."""
    spec = env.action_spec
    return Policy(
        module, state.learner.params, state.moments, jnp.asarray(spec.low), jnp.asarray(spec.high), squash=True
    )


def log_prob(x: Array, mean: Array, log_std: Array) -> Array:
    """Log density of tanh(x), x from a diagonal Gaussian; shape (...), from arrays (..., action).

    Gradients flow to all. It is log N(x) - sum log(1 - tanh(x)^2) (Haarnoja et al. 2018, appendix C), without
    cancellation for large x.
    """
    return ppo.log_prob(x, mean, log_std) - log_slope(x).sum(-1)


def _sample(module: Any, params: Any, x: Array, key: Array) -> tuple[Array, Array]:
    """An action before tanh, and its log density after it. Gradients flow to the policy's parameters."""
    (mean, log_std), _ = nn.apply(module, params, {}, x)[0]
    action = mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape, mean.dtype)
    return action, log_prob(action, mean, log_std)


def choose(
    env: Env, config: Config, module: Any, params: Any, x: Array, key: Array, taken: Array
) -> tuple[Array, Array]:
    """An action of the policy, or any during the warm-up. One that is not finite is a fault, and remembered as 0.

    Args:
        x: normalised observations, shape (world, n).
        taken: how many steps all worlds have taken together, int32, shape ().

    Returns:
        The action from -1 to 1, as it is remembered; and scaled to the bounds, as the environment gets it. Each has
        shape (world, action).
    """
    keys, spec = jax.random.split(key), env.action_spec
    chosen, _ = _sample(module, params, x, keys[0])
    anything = jax.random.uniform(keys[1], chosen.shape, chosen.dtype, -1, 1)
    action = jnp.where(taken < config.warmup, anything, jnp.tanh(chosen))
    low, high = (jnp.asarray(bound, jnp.float32)[None] for bound in (spec.low, spec.high))
    return finite(action), (low + high) / 2 + action * (high - low) / 2


def loss(config: Config, module: Any, params: Any, target: Any, batch: Transition, key: Array) -> Any:
    """The sum of three losses, each of which reaches its own parameters; for :func:`fphys.train.step`.

    Values: (Q(s, a) - r - gamma (min Q'(s', a') - alpha log pi(a'|s')))^2 / 2; nothing follows a terminated step.
    Policy: alpha log pi(a|s) - min Q(s, a). Temperature: -alpha (log pi(a|s) - dim A) (equations 5, 7 and 18).
    """
    keys, fixed = jax.random.split(key), jax.lax.stop_gradient(params)
    temperature = jnp.exp(params["log_temperature"])
    value = lambda params, x, action: nn.apply(module, params, {}, x, method="values", action=action)[0]  # noqa: E731

    x, later = batch.observation, batch.next_observation
    action, log = _sample(module, fixed, later, keys[0])
    ahead = value(fixed | target, later, jnp.tanh(action)).min(-1) - jnp.exp(fixed["log_temperature"]) * log
    wanted = batch.reward + config.discount * jnp.where(batch.terminated, 0, ahead)
    q_loss = 0.5 * ((value(params, x, batch.action) - wanted[:, None]) ** 2).sum(-1).mean()

    action, log = _sample(module, params, x, keys[1])
    best = value(fixed, x, jnp.tanh(action)).min(-1)
    policy_loss = (jnp.exp(fixed["log_temperature"]) * log - best).mean()

    missing = jax.lax.stop_gradient(log.mean()) - action.shape[-1]  # entropy, of its target -dim A
    loss = q_loss + policy_loss - temperature * missing
    return (
        loss,
        target,
        {"q_loss": q_loss, "policy_loss": policy_loss, "temperature": temperature, "entropy": -log.mean()},
    )


def optimizer(config: Config) -> Any:
    """Adam for the policy, the values and the temperature, as :func:`fphys.train.init` takes it."""
    return optim.Adam(config.learning_rate)
