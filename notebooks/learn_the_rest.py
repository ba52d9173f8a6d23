# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Machine learning: learn only what physics leaves out
#
# The equations of a mechanism are known; the friction of its bearings is not. A network inside the simulation learns the
# missing torque from recorded motions, by the gradient through the simulation. Beside it, a network of the same size learns
# the whole motion, without physics. Which of them still predicts after three seconds?

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import fphys
from fphys import nn, optim

model = fphys.load("double-pendulum").replace({"dof.damping": 0.0})
h = float(model.opt.timestep[0])


def truth(state):
    """What nobody knows: dry friction in both joints, and a magnet that pulls the shoulder. [N m], shape (world, 2)"""
    friction = -jnp.array([[0.25, 0.08]]) * jnp.tanh(1.5 * state.qvel)
    return friction.at[:, 0].add(-0.6 * jnp.sin(2.0 * state.qpos[:, 0]))


# %% [markdown]
# ## The recordings
#
# A hundred and twenty-eight short motions of the true mechanism, which hangs and is pushed, each a world: 0.2 s of angles and
# speeds.

# %%
def starts(key, worlds):
    place, speed = jax.random.split(key)
    qpos = jnp.array([[jnp.pi, 0.0]]) + jax.random.uniform(place, (worlds, 2), minval=-1.0, maxval=1.0)
    return fphys.init(model, worlds, qpos=qpos, qvel=2.0 * jax.random.normal(speed, (worlds, 2)))


def numbers(state):  # (world, 4)
    return jnp.concatenate([state.qpos, state.qvel], 1)


def moved(start, torque, steps):
    """Angles and speeds after each step, (steps, world, 4), under a torque that depends on the state."""

    def advance(state, _):
        state = fphys.step(model, state, force=torque(state))
        return state, numbers(state)

    return fphys.scan(advance, start, jnp.arange(steps))[1]


begin = starts(jax.random.key(0), 128)
recorded = jax.jit(lambda s: moved(s, truth, 20))(begin)
scale = recorded.std((0, 1))

# %% [markdown]
# ## Two networks
#
# Both see sines and cosines of the angles, and the speeds. One gives torques [N m], which the simulation takes. The other
# gives accelerations; nothing else moves its pendulum.

# %%
def network(*, rngs):
    return nn.Sequential(
        nn.Linear(6, 48, rngs=rngs), nn.tanh, nn.Linear(48, 48, rngs=rngs), nn.tanh, nn.Linear(48, 2, rngs=rngs)
    )


module, params, aux = nn.init(network, jax.random.key(1))


def output(params, x):
    seen = jnp.concatenate([jnp.sin(x[:, :2]), jnp.cos(x[:, :2]), 0.5 * x[:, 2:]], 1)
    return nn.apply(module, params, aux, seen)[0]


def with_physics(params, start, steps):
    return moved(start, lambda state: output(params, numbers(state)), steps)


def without(params, start, steps):
    def advance(x, _):
        speed = x[:, 2:] + h * 20.0 * output(params, x)
        x = jnp.concatenate([x[:, :2] + h * speed, speed], 1)
        return x, x

    return fphys.scan(advance, numbers(start), jnp.arange(steps))[1]


# %%
def trained(predict, iterations=400):
    optimizer = optim.Adam(optim.CosineAnnealingLR(1e-2, iterations))

    @jax.jit
    def improve(params, memory):
        loss = lambda p: (((predict(p, begin, 20) - recorded) / scale) ** 2).mean()
        value, grads = jax.value_and_grad(loss)(params)
        changes, memory = optimizer.update(grads, memory, params)
        return optim.apply_updates(params, changes), memory, value

    found, memory, values = params, optimizer.init(params), []
    for _ in range(iterations):
        found, memory, value = improve(found, memory)
        values.append(float(value))
    return found, values


rest, with_values = trained(with_physics)
whole, without_values = trained(without)
print(f"error of the recordings: {with_values[-1]:.1e} with physics, {without_values[-1]:.1e} without")

# %% [markdown]
# ## Three seconds, from starts that were not seen
#
# The recordings last 0.2 s. A prediction that is fifteen times as long tells who learnt the mechanism, and who learnt
# the recordings.

# %%
fresh, steps = starts(jax.random.key(7), 64), 300
real = jax.jit(lambda s: moved(s, truth, steps))(fresh)
plain = jax.jit(lambda s: moved(s, lambda state: 0.0 * state.qvel, steps))(fresh)
grey = jax.jit(lambda s: with_physics(rest, s, steps))(fresh)
black = jax.jit(lambda s: without(whole, s, steps))(fresh)
off = {name: np.asarray(jnp.abs(x - real)[..., :2].mean((1, 2))) for name, x in (
    ("physics alone", plain), ("network alone", black), ("physics and network", grey))}
for name, error in off.items():
    print(f"{name:>19}: angles off by {error[99]:.3f} rad after 1 s, {error[-1]:.3f} after 3 s")

# %%
times = h * np.arange(1, steps + 1)
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.2), layout="constrained")
left.semilogy(with_values, "C0", without_values, "C1")
left.set(xlabel="iteration", title="error of the recordings")
for (name, error), color in zip(off.items(), ("0.6", "C1", "C0"), strict=True):
    middle.semilogy(times, error, color, label=name)
middle.set(xlabel="time [s]", title="angles off by [rad]")
middle.legend(frameon=False, fontsize=8)
speed = jnp.linspace(-4.0, 4.0, 81)
sweep = fphys.init(model, 81, qpos=jnp.tile(jnp.array([[jnp.pi, 0.0]]), (81, 1)))
sweep = sweep.replace(qvel=jnp.stack([speed, jnp.zeros(81)], 1))
right.plot(speed, truth(sweep)[:, 0], "k--", label="true")
right.plot(speed, output(rest, numbers(sweep))[:, 0], "C0", label="learnt")
right.set(xlabel="speed of the shoulder [rad/s]", title="torque in the shoulder [N m]")
right.legend(frameon=False, fontsize=8)
plt.show()

# %% [markdown]
# ## To try
#
# 1. Halve the recordings, and halve them again. Which network needs them more?
# 2. Record motions without speed above 1 rad/s. Where does the learnt friction go wrong?
# 3. Let the network see the speeds only. The magnet is then out of its reach: what does it do instead?
# 4. Add noise to the recordings. Longer windows help: how long, before the motion's chaos undoes it?

# %%
assert off["physics and network"].mean() < 0.5 * min(off["physics alone"].mean(), off["network alone"].mean())
assert with_values[-1] < without_values[-1]
