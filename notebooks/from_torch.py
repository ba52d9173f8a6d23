# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # From torch
#
# Two ways. Keep torch for the network and put the simulation into its graph; or write the network in JAX too, where one
# program holds policy, physics and gradient. The task is the same: a policy that balances a pole on a cart, trained by
# the gradient through the simulation.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import torch

import fphys
from fphys.bridge.torch import as_torch

model = fphys.load(fphys.asset("cartpole"))
worlds, steps, iterations = 64, 30, 20
lean = jnp.linspace(-0.2, 0.2, worlds)
start = fphys.init(model, worlds, qpos=jnp.stack([jnp.zeros(worlds), lean], 1))

# %% [markdown]
# ## torch all around
#
# `as_torch` makes a pure JAX function a node of torch's graph. It is compiled once; tensors go in and come out, and
# `backward` runs through contact, limits and whatever else the model has.

# %%
@as_torch
def step(qpos, qvel, ctrl):
    state = fphys.step(model, start.replace(qpos=qpos, qvel=qvel), ctrl)
    return state.qpos, state.qvel


torch.manual_seed(0)
policy = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
qpos0, qvel0 = (fphys.bridge.dlpack.to_torch(x) for x in (start.qpos, start.qvel))


def rollout_in_torch():
    qpos, qvel, loss = qpos0, qvel0, 0.0
    for _ in range(steps):
        ctrl = 10 * torch.tanh(policy(torch.cat([qpos, qvel], 1)))
        qpos, qvel = step(qpos, qvel, ctrl)
        loss = loss + (qpos[:, 1] ** 2 + 0.1 * qvel[:, 1] ** 2 + 0.01 * qpos[:, 0] ** 2).mean() / steps
    return loss


from_torch = []
for _ in range(iterations):
    optimizer.zero_grad()
    loss = rollout_in_torch()
    loss.backward()
    optimizer.step()
    from_torch.append(loss.item())

# %% [markdown]
# ## JAX all through
#
# | torch | here |
# |---|---|
# | `nn.Module`, its parameters inside | `module, params, aux = fphys.nn.init(...)`: parameters are a pytree that you hold |
# | `model(x)` | `y, aux = fphys.nn.apply(module, params, aux, x)` |
# | `loss.backward()` | `jax.value_and_grad(loss)(params)` |
# | `optimizer.step()` | `changes, memory = optimizer.update(grads, memory, params)` |
# | a Python loop over time | `fphys.scan`: compiled, with a choice of what the way back stores |
# | `torch.no_grad`, `detach` | do not differentiate; `jax.lax.stop_gradient` |

# %%
from fphys import nn, optim


def network(*, rngs):
    return nn.Sequential(nn.Linear(4, 32, rngs=rngs), nn.tanh, nn.Linear(32, 1, rngs=rngs))


module, params, aux = nn.init(network, jax.random.key(0))
adam = optim.Adam(0.02)


def loss_of(params):
    def advance(state, _):
        y, _ = nn.apply(module, params, aux, jnp.concatenate([state.qpos, state.qvel], 1))
        state = fphys.step(model, state, 10 * jnp.tanh(y))
        return state, jnp.mean(state.qpos[:, 1] ** 2 + 0.1 * state.qvel[:, 1] ** 2 + 0.01 * state.qpos[:, 0] ** 2)

    return fphys.scan(advance, start, jnp.arange(steps))[1].mean()


@jax.jit
def improve(params, memory):
    loss, grads = jax.value_and_grad(loss_of)(params)
    changes, memory = adam.update(grads, memory, params)
    return optim.apply_updates(params, changes), memory, loss


memory, in_jax = adam.init(params), []
for _ in range(iterations):
    params, memory, loss = improve(params, memory)
    in_jax.append(float(loss))

# %%
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
axis.semilogy(from_torch, label="torch's loop")
axis.semilogy(in_jax, label="one JAX program")
axis.set(xlabel="iteration", title="cost")
axis.legend()
plt.show()

# %% [markdown]
# Weights cross as well: `fphys.export` writes them for a plain torch module, `fphys.nn.models` reads torch's and Hugging
# Face's. And the other way round, a torch module inside `jax.grad`: `fphys.bridge.torch.as_jax`. Both gradients are the
# same function's:

# %%
weights = [p.detach() for p in policy.parameters()]
w1, b1, w2, b2 = (fphys.bridge.dlpack.from_torch(w) for w in weights)


def same_loss(w1, b1, w2, b2):
    def advance(state, _):
        y = jnp.tanh(jnp.concatenate([state.qpos, state.qvel], 1) @ w1.T + b1[None]) @ w2.T + b2[None]
        state = fphys.step(model, state, 10 * jnp.tanh(y))
        return state, jnp.mean(state.qpos[:, 1] ** 2 + 0.1 * state.qvel[:, 1] ** 2 + 0.01 * state.qpos[:, 0] ** 2)

    return fphys.scan(advance, start, jnp.arange(steps))[1].mean()


optimizer.zero_grad()
rollout_in_torch().backward()
ours = jax.jit(jax.grad(same_loss, argnums=(0, 1, 2, 3)))(w1, b1, w2, b2)
theirs = [fphys.bridge.dlpack.from_torch(p.grad) for p in policy.parameters()]
apart = max(float(jnp.abs(a - b).max() / jnp.abs(b).max()) for a, b in zip(ours, theirs, strict=True))
print(f"the two gradients differ by {apart:.1e} of their largest entry, in float32")

assert from_torch[-1] < 0.3 * from_torch[0] and in_jax[-1] < 0.3 * in_jax[0]
assert apart < 1e-3
