# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Train an ant
#
# `AntLocomotion` is a quadruped of 8 kg that is to run along x. PPO teaches it on a laptop: 64 ants side by side, and each
# iteration, from acting to the last update, is one compiled call.

# %%
import imageio_ffmpeg
import jax
import matplotlib.pyplot as plt
import mediapy
import numpy as np

from fphys import envs, rl

env = envs.make("AntLocomotion", num_envs=64)
print(env.observation_spec.shape, env.action_spec.shape, f"{float(env.dt[0]):.2f} s between actions")

# %% [markdown]
# A short training, of 80,000 steps. In `log` is every scalar of every iteration.

# %%
config = rl.ppo.Config(steps=80_000, horizon=64, epochs=4, minibatches=8, hidden=(128, 64), anneal=False)
policy, log = rl.ppo.train(env, config, jax.random.key(0))
print({name: round(float(value[-1]), 2) for name, value in log.items()})

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
left.plot(log["steps"], log["episode_length"])
left.set(xlabel="steps", title="steps before a fall")
right.plot(log["steps"], log["reward"])
right.set(xlabel="steps", title="reward of a step, scaled")
plt.show()

# %% [markdown]
# It stands and begins to move. Four million steps make it run, on the command line:
#
# ```sh
# fphys train ppo ant-locomotion --num-envs 64 --steps 4000000 --epochs 5 --minibatches 16 --hidden 128 64
# ```
#
# A policy that was trained so comes with fphys. `fphys play ant` makes a video of it. Here are its first four seconds:

# %%
runner, name, _ = rl.load_policy(rl.trained("ant"))
pictures = rl.record(env, runner, jax.random.key(1), 100, height=200, width=320)
mediapy.set_ffmpeg(imageio_ffmpeg.get_ffmpeg_exe())  # it came with fphys
mediapy.show_video(pictures, fps=1 / float(env.dt[0]), qp=32)

# %% [markdown]
# Its motion, seen from above and from the side:

# %%
motion = jax.jit(rl.motion, static_argnums=3)(env, runner, jax.random.key(1), 250)
x, y, z = np.moveaxis(np.asarray(motion.qpos[:, 0, :3]), -1, 0)
times = float(env.dt[0]) * np.arange(len(x))
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
left.plot(x, y)
left.set(xlabel="x [m]", ylabel="y [m]", title="its path in ten seconds")
right.plot(times, z)
right.set(xlabel="time [s]", title="height of its trunk [m]")
plt.show()

# %%
speed = (x[-1] - x[0]) / (times[-1] - times[0])
print(f"speed {speed:.2f} m/s")
assert speed > 2
assert log["episode_length"][-1] > log["episode_length"][0]
