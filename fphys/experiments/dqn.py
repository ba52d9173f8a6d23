"""A pole is balanced on a cart by deep Q-learning, the cart in plain JAX.

V. Mnih et al., "Human-level control through deep reinforcement learning", 2015; H. van Hasselt et al., "Deep
reinforcement learning with double Q-learning", 2016; Z. Wang et al., "Dueling network architectures for deep
reinforcement learning", 2016. The training ends when a hundred episodes of the greedy policy reach the goal on
average. Another hundred episodes test it. Carts, memory and updates run together in one compiled loop.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fphys import losses, nn, optim, train
from fphys.runs import Run

Array = jax.Array

LONGEST = 500  # steps of an episode


@dataclasses.dataclass(frozen=True)
class Config:
    steps: int = 30_000
    """Updates of the network at most; each cart acts once between two of them."""
    carts: int = 8
    """Carts that act side by side."""
    batch_size: int = 128
    """Transitions of an update."""
    memory: int = 50_000
    """Transitions that are remembered."""
    learning_rate: float = 1e-3
    """Adam's step at the start; it falls to a tenth."""
    discount: float = 0.99
    """What a value counts one step earlier."""
    follow: float = 0.005
    """Share by which the target network follows the network at each update."""
    explore: float = 0.05
    """Share of random actions, after the first tenth of the training."""
    goal: float = 495.0
    """Mean return at which training ends."""
    every: int = 1000
    """Updates between two looks at the greedy policy."""
    seed: int = 0
    """Of the weights, the starts and the actions."""


class Memory(NamedTuple):
    """Transitions, the newest in the place of the oldest."""

    before: Array  # (n, 4)
    action: Array  # (n,)
    after: Array  # (n, 4)
    fallen: Array  # (n,) bool


class Carts(NamedTuple):
    """Where they are."""

    x: Array  # (carts, 4): position [m], speed [m/s], angle [rad], its speed [rad/s]
    time: Array  # (carts,): steps since the start


def move(x: Array, action: Array) -> tuple[Array, Array]:
    """Push to the left (0) or the right (1) for 0.02 s (Barto, Sutton and Anderson 1983); x, and whether the pole fell.

    Shapes (..., 4) and (...,); 10 N, cart of 1 kg, pole of 0.1 kg and 1 m, Euler's rule.
    """
    speed, angle, spin = jnp.moveaxis(x[..., 1:], -1, 0)
    force = jnp.where(action == 1, 10.0, -10.0)
    pull = (force + 0.05 * spin**2 * jnp.sin(angle)) / 1.1
    twist = (9.8 * jnp.sin(angle) - jnp.cos(angle) * pull) / (0.5 * (4 / 3 - 0.1 * jnp.cos(angle) ** 2 / 1.1))
    push = pull - 0.05 * twist * jnp.cos(angle) / 1.1
    change = jnp.stack([speed, push, spin, twist], -1)
    x = x + 0.02 * change
    return x, (jnp.abs(x[..., 0]) > 2.4) | (jnp.abs(x[..., 2]) > jnp.deg2rad(12.0))


def start(key: Array, count: int) -> Carts:
    return Carts(jax.random.uniform(key, (count, 4), minval=-0.05, maxval=0.05), jnp.zeros(count, jnp.int32))


def main(config: Config, run: Run) -> dict[str, Any]:
    """Train and test."""
    keys = jax.random.split(jax.random.key(config.seed), 4)
    module, params, _ = nn.init(lambda rngs: nn.models.QNetwork(4, 2, rngs=rngs), keys[0])
    optimizer = optim.chain(
        optim.clip_by_global_norm(10.0),
        optim.Adam(optim.linear_schedule(config.learning_rate, 0.1 * config.learning_rate, config.steps)),
    )

    def values(params, x):
        return nn.apply(module, params, {}, x)[0]

    def loss_fn(params, target, batch, key):
        """Q(s, a) against γ Q'(s', argmax Q(s', ·)), or -1 where the pole fell; Q' follows Q."""
        best = jnp.argmax(values(params, batch.after), -1)
        ahead = jnp.take_along_axis(values(target, batch.after), best[:, None], 1)[:, 0]
        wanted = jax.lax.stop_gradient(jnp.where(batch.fallen, -1.0, config.discount * ahead))
        found = jnp.take_along_axis(values(params, batch.before), batch.action[:, None], 1)[:, 0]
        return losses.huber_loss(found, wanted), target, {}

    def update(carry, key):
        state, carts, memory = carry
        explore, choose, restart, draw = jax.random.split(key, 4)
        share = jnp.maximum(config.explore, 1 - state.step / (0.1 * config.steps))
        greedy = jnp.argmax(values(state.params, carts.x), -1)
        anything = jax.random.randint(choose, greedy.shape, 0, 2)
        action = jnp.where(jax.random.uniform(explore, greedy.shape) < share, anything, greedy)
        after, fallen = move(carts.x, action)
        place = (state.step * config.carts + jnp.arange(config.carts)) % config.memory
        memory = jax.tree.map(lambda old, new: old.at[place].set(new), memory, Memory(carts.x, action, after, fallen))
        ended = fallen | (carts.time + 1 >= LONGEST)
        fresh = start(restart, config.carts)
        carts = Carts(jnp.where(ended[:, None], fresh.x, after), jnp.where(ended, 0, carts.time + 1))
        seen = jnp.minimum((state.step + 1) * config.carts, config.memory)
        batch = jax.tree.map(lambda kept: kept[jax.random.randint(draw, (config.batch_size,), 0, seen)], memory)
        state, row = train.step(loss_fn, optimizer, state, batch)
        state = state.replace(aux=optim.incremental_update(state.params, state.aux, config.follow))
        return (state, carts, memory), row["loss"]

    @functools.partial(jax.jit, donate_argnums=0)
    def advance(carry, keys):
        carry, found = jax.lax.scan(update, carry, keys)
        return carry, found.mean()

    @jax.jit
    def returns(params, key):
        """Of a hundred episodes with the greedy policy."""

        def act(carry, _):
            x, standing = carry
            x, fallen = move(x, jnp.argmax(values(params, x), -1))
            return (x, standing & ~fallen), standing

        return jax.lax.scan(act, (start(key, 100).x, jnp.ones(100, bool)), None, LONGEST)[1].sum(0)

    nothing = jnp.zeros((config.memory, 4))
    memory = Memory(nothing, jnp.zeros(config.memory, jnp.int32), nothing.copy(), jnp.zeros(config.memory, bool))
    carry = train.init(params, optimizer, aux=params), start(keys[1], config.carts), memory
    best, reached = params, -1.0
    for i in run.progress(config.steps // config.every):
        draws = jax.random.split(jax.random.fold_in(keys[2], i), config.every + 1)
        carry, loss = advance(carry, draws[1:])
        found = float(returns(carry[0].params, draws[0]).mean())
        run.log((i + 1) * config.every, mean_return=found, loss=loss)
        if found > reached:
            best, reached = jax.tree.map(jnp.copy, carry[0].params), found
        if reached >= config.goal:
            break
    tested = returns(best, keys[3])
    run.plot("dqn", lambda axes: (run.curves(axes, "mean_return"), axes.set(ylabel="steps that the pole stands")))
    return {
        "success": reached >= config.goal,
        "mean_return": float(tested.mean()),
        "worst_return": float(tested.min()),
        "updates": int(carry[0].step),
        "episodes": len(tested),
    }
