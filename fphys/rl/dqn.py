"""Deep Q-learning (Mnih et al. 2015) with double Q-learning (van Hasselt et al. 2016) and the Huber loss.

The actions are a grid: ``levels`` values of each control, from one bound to the other. So it is for few controls:
n of them are levels^n actions. The network has a value of the state and advantages of the actions (Wang et al. 2016).
"""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import losses, nn, optim
from ..envs import Env, Spec
from . import off_policy
from .loop import Log, loop
from .off_policy import TrainingState, Transition
from .policy import Greedy

Array = jax.Array

_MOST = 4096  # actions


@dataclasses.dataclass(frozen=True)
class Config:
    steps: int = 500_000
    """Environment steps of the whole training, over all worlds."""
    levels: int = 3
    """Values of each control."""
    horizon: int = 128
    """Steps of every world in one iteration, each followed by its updates."""
    updates_per_step: float = 0.125
    """Updates for one step of one world (CleanRL: 0.1, Stable-Baselines3: 0.25)."""
    warmup: int = 1_000
    """Steps before the first update (CleanRL: 10,000, Stable-Baselines3: 100)."""
    capacity: int = 50_000
    """Transitions that are remembered (CleanRL: 10,000, Stable-Baselines3: 1e6)."""
    batch_size: int = 128
    """Transitions of an update (CleanRL: 128, Stable-Baselines3: 32)."""
    learning_rate: float = 1e-3
    """Adam's step at the start; it falls to a tenth."""
    discount: float = 0.99
    """What a value counts one step earlier."""
    tau: float = 0.005
    """Share by which the target network follows at each update."""
    explore: float = 0.05
    """Share of random actions at the end (both: 0.05)."""
    explore_until: float = 0.1
    """Part of the training in which that share falls from 1 (CleanRL: 0.5, Stable-Baselines3: 0.1)."""
    max_grad_norm: float = 10.0
    """Longer gradients are scaled down (Stable-Baselines3: 10)."""
    hidden: tuple[int, ...] = (128, 128)
    """Widths of the network."""
    normalize: bool = True
    """Whether observations are scaled by what was seen. They are clipped to 10 in any case."""


def init(env: Env, config: Config, key: Array) -> tuple[Any, TrainingState]:
    """The network's structure, and the state before the first iteration.

    Args:
        key: of JAX, shape (); it sets the parameters, the worlds' starts and what is drawn later.

    Returns:
        The module, as :func:`fphys.nn.init` has it, and a state whose arrays have the shapes that its fields say.
    """
    keys = jax.random.split(key)
    (n,), actions = env.observation_spec.shape, len(grid(env.action_spec, config.levels))
    module, params, _ = nn.init(lambda rngs: nn.models.QNetwork(n, actions, hidden=config.hidden, rngs=rngs), keys[0])
    params = jax.tree.map(lambda x: x.astype(jnp.float32), params)
    return module, off_policy.init(env, config, keys[1], params, params, _optimizer(env, config), jnp.int32(0))


def update(env: Env, config: Config, module: Any, state: TrainingState) -> tuple[TrainingState, dict[str, Array]]:
    """One iteration. Pure; compile it as ``jax.jit(functools.partial(update, env, config, module))``.

    Returns:
        The next state, and scalars: ``episode_return``, ``episode_length``, ``episodes``, ``success``, ``faults`` and
        ``reward`` as :func:`fphys.rl.ppo.update` has them; means over the updates of ``loss``, ``value`` and
        ``grad_norm``, NaN before the first; and the updates ``skipped`` so far.
    """
    act, loss_fn = functools.partial(_act, env, config, module), functools.partial(_loss, config, module)
    return off_policy.update(env, config, act, loss_fn, _optimizer(env, config), state)


def train(env: Env, config: Config, key: Array, **options: Any) -> tuple[Greedy, Log]:
    """Train until ``config.steps`` are used up; arguments and log as for :func:`fphys.rl.ppo.train`.

    Raises:
        ValueError: a number does not fit, an action is unbounded, or there are too many.
    """
    expect(env, config)
    module, state = jax.jit(functools.partial(init, env, config))(key)
    iteration = functools.partial(update, env, config, module)
    state, log = loop(iteration, state, env.num_envs * config.horizon, config.steps, **options)
    return policy(env, module, state), log


def policy(env: Env, module: Any, state: TrainingState) -> Greedy:
    """The policy of a state: the action of the largest value."""
    spec, params = env.action_spec, state.learner.params
    levels = round(params["advantage"]["bias"].shape[0] ** (1 / spec.shape[0]))
    return Greedy(module, params, state.moments, jnp.asarray(grid(spec, levels)))


def expect(env: Env, config: Config) -> None:
    """Refuse what cannot work.

    Raises:
        ValueError: a number does not fit, an action is unbounded, or there are too many. TypeError: a number is not
            whole that must be.
    """
    off_policy.expect(env, config)
    if not config.hidden:
        raise ValueError("hidden is empty: values and advantages share at least one layer, such as hidden=(128,)")
    (controls,) = env.action_spec.shape
    if config.levels < 2 or config.levels**controls > _MOST:
        raise ValueError(
            f"{config.levels} levels of {controls} controls are {config.levels**controls} actions: take at least two "
            f"levels, and at most {_MOST} actions; for more controls there are ppo, sac and shac"
        )


def grid(spec: Spec, levels: int) -> np.ndarray:
    """All actions, shape (levels^n, n): every control takes ``levels`` values, from its lower to its upper bound."""
    controls = [np.linspace(low, high, levels) for low, high in zip(spec.low, spec.high)]
    return np.array(list(itertools.product(*controls)), np.float32)


def target_value(reward: Array, terminated: Array, chosen: Array, ahead: Array, discount: float) -> Array:
    """r + gamma Q'(s', argmax Q(s', .)), and r where the task terminated (van Hasselt et al. 2016, equation 4).

    Args:
        reward, terminated: shape (...). chosen, ahead: Q and Q', the network and the one that follows it, at the next
            state, shape (..., action).

    Returns:
        Shape (...); gradients flow to the reward and Q'.
    """
    best = jnp.argmax(chosen, -1)
    value = jnp.take_along_axis(ahead, best[..., None], -1)[..., 0]
    return reward + discount * jnp.where(terminated, 0, value)


def _act(env: Env, config: Config, module: Any, params: Any, x: Array, key: Array, taken: Array) -> tuple[Array, Array]:
    """The best action, or now and then any."""
    keys, actions = jax.random.split(key), jnp.asarray(grid(env.action_spec, config.levels))
    best = jnp.argmax(nn.apply(module, params, {}, x)[0], -1).astype(jnp.int32)
    share = jnp.maximum(config.explore, 1 - taken.astype(jnp.float32) / (config.explore_until * config.steps))
    share = jnp.where(taken < config.warmup, 1, share)
    anything = jax.random.randint(keys[0], best.shape, 0, len(actions), jnp.int32)
    action = jnp.where(jax.random.uniform(keys[1], best.shape, share.dtype) < share, anything, best)
    return action, actions[action]


def _loss(config: Config, module: Any, params: Any, target: Any, batch: Transition, key: Array) -> Any:
    """The Huber loss between values and their targets; for :func:`fphys.train.step`."""
    values = lambda params, x: nn.apply(module, params, {}, x)[0]  # noqa: E731
    chosen, ahead = values(params, batch.next_observation), values(target, batch.next_observation)
    wanted = target_value(batch.reward, batch.terminated, chosen, ahead, config.discount)
    found = jnp.take_along_axis(values(params, batch.observation), batch.action[:, None], 1)[:, 0]
    loss = losses.huber_loss(found, jax.lax.stop_gradient(wanted))
    return loss, target, {"value": found.mean()}


def _optimizer(env: Env, config: Config) -> Any:
    updates = round(config.steps * config.updates_per_step)
    rate = optim.linear_schedule(config.learning_rate, 0.1 * config.learning_rate, updates)
    return optim.chain(optim.clip_by_global_norm(config.max_grad_norm), optim.Adam(rate))
