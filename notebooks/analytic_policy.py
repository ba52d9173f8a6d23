# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # A policy by analytic gradients
#
# No value function, no sampled returns: the simulation is differentiable, so a policy's gradient is `jax.grad` of its cost.
# A small network balances a pole on a cart, from 64 starts at once.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import fphys
from fphys import nn

model = fphys.load(fphys.asset("cartpole"))
worlds, steps = 64, 100
layers = lambda rngs: nn.Sequential(nn.Linear(5, 32, rngs=rngs), nn.tanh, nn.Linear(32, 1, rngs=rngs))
module, params, aux = nn.init(layers, jax.random.key(0))


def start(key):
    spread = jnp.array([0.5, 0.4])  # m, rad
    return fphys.init(model, worlds, qpos=spread * jax.random.uniform(key, (worlds, 2), minval=-1.0))


def observed(state):
    x, angle = state.qpos[:, :1], state.qpos[:, 1:]
    return jnp.concatenate([x, jnp.sin(angle), jnp.cos(angle), state.qvel], 1)


def cost(params, key):
    def advance(state, _):
        force = 10.0 * jnp.tanh(nn.apply(module, params, aux, observed(state))[0])
        state = fphys.step(model, state, force)
        return state, (state.qpos**2).sum(1) + 0.05 * (state.qvel**2).sum(1)

    final, costs = fphys.scan(advance, start(key), jnp.arange(steps), adjoint=fphys.Checkpoint(every=10))
    return costs.mean(), final


# %% [markdown]
# Training is a gradient step of optax on fresh starts, thirty lines with the network and the rollout above:

# %%
rounds = 60
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(2e-2, rounds)))


@jax.jit
def update(params, memory, key):
    (value, _), slope = jax.value_and_grad(cost, has_aux=True)(params, key)
    change, memory = optimizer.update(slope, memory, params)
    return optax.apply_updates(params, change), memory, value


memory, history = optimizer.init(params), []
for key in jax.random.split(jax.random.key(1), rounds):
    params, memory, value = update(params, memory, key)
    history.append(float(value))
print(f"cost {history[0]:.3f} -> {history[-1]:.3f}")

# %% [markdown]
# Starts that it has not seen, twice as long as it was trained for:


# %%
def played(params, state):
    def advance(state, _):
        state = fphys.step(model, state, 10.0 * jnp.tanh(nn.apply(module, params, aux, observed(state))[0]))
        return state, state.qpos

    return jax.lax.scan(advance, state, length=2 * steps)


final, path = jax.jit(played)(params, start(jax.random.key(99)))
fphys.check(final)
times = np.arange(2 * steps) * float(model.opt.timestep[0])
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
left.semilogy(history)
left.set(xlabel="round", title="cost")
middle.plot(times, path[:, ::4, 1], lw=0.7)
middle.set(xlabel="time [s]", title="angle [rad]")
right.plot(times, path[:, ::4, 0], lw=0.7)
right.set(xlabel="time [s]", title="cart [m]")
plt.show()

# %%
upright = np.abs(np.asarray(final.qpos[:, 1])) < 0.05
print(f"{upright.mean():.0%} of the poles stand; the farthest cart is {np.abs(final.qpos[:, 0]).max():.2f} m off")
assert history[-1] < 0.5 * history[0]
assert upright.mean() > 0.95
