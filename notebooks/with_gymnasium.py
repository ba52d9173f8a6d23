# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Trained here, run in Gymnasium
#
# `Hopper-v5` is Gymnasium's task, with its model, observations and rewards. So a policy that was trained in fphys runs in
# Gymnasium, whose physics is MuJoCo's C library. This one comes with fphys. It was trained by
#
# ```sh
# fphys train ppo hopper --num-envs 32 --steps 1000000
# ```

# %%
import gymnasium
import jax
import matplotlib.pyplot as plt
import numpy as np

from fphys import envs, rl

policy, name, _ = rl.load_policy(rl.trained("hopper"))
act = jax.jit(policy)
episodes = 24

# %% [markdown]
# Here, all episodes run side by side:

# %%
env = envs.make(name, num_envs=episodes)
ours, lengths = (np.asarray(x) for x in jax.jit(lambda key: rl.evaluate(env, policy, key))(jax.random.key(0)))

# %% [markdown]
# There, too, with Gymnasium's own vector environment. Starts are random, so the episodes are not the same ones.

# %%
theirs = gymnasium.make_vec(name, num_envs=episodes, vectorization_mode="sync")
observation, _ = theirs.reset(seed=0)
total, running = np.zeros(episodes), np.ones(episodes, bool)
while running.any():
    action = act(observation.astype(np.float32))
    observation, reward, terminated, truncated, _ = theirs.step(np.asarray(action))
    total += np.where(running, reward, 0)
    running &= ~(terminated | truncated)

# %%
figure, axes = plt.subplots(figsize=(5, 2.8), layout="constrained")
edges = np.linspace(min(ours.min(), total.min()), max(ours.max(), total.max()) + 1e-6, 20)
axes.hist([ours, total], edges, label=["fphys", "Gymnasium"])
axes.set(xlabel="return of an episode")
axes.legend(frameon=False)
plt.show()

# %%
error = np.hypot(ours.std(), total.std()) / episodes**0.5
print(f"mean return {ours.mean():.0f} here, {total.mean():.0f} there; standard error of the difference {error:.0f}")
assert abs(ours.mean() - total.mean()) < 3 * error + 1
