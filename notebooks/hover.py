# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # SHAC beside PPO, and what randomisation is for
#
# `QuadrotorHover` is a quadrotor of 27 g that is to fly to a point and stay there. PPO tries actions and repeats what went
# well. SHAC follows the exact gradient of the reward through 24 steps of the simulation.

# %%
import imageio_ffmpeg
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import mediapy
import numpy as np

from fphys import envs, rl


def distances(policy, env, key):
    """Distance from the point [m] over time, shape (step, world)."""

    def act(carry, _):
        state, observation = carry
        state, observation, *_ = env.step(state, policy(observation))
        return (state, observation), jnp.linalg.norm(state.qpos[:, :3] - state.goal, axis=1)

    return jax.lax.scan(act, env.reset(key), None, 240)[1]


test = envs.make("QuadrotorHover", num_envs=256, dtype=jnp.float32)
measure = jax.jit(distances)
times = 1 / 50 * np.arange(240)

# %% [markdown]
# SHAC makes one update in each iteration, so it wants many short iterations of few worlds. PPO makes 32 updates in each, and
# wants many worlds.

# %%
few = envs.make("QuadrotorHover", num_envs=16, dtype=jnp.float32)
config = rl.shac.Config(steps=60_000, horizon=24, learning_rate=3e-3, critic_epochs=4, discount=0.98, log_std=-2.5)
by_gradient, _ = rl.shac.train(few, config, jax.random.key(0))

many = envs.make("QuadrotorHover", num_envs=128, dtype=jnp.float32)
config = rl.ppo.Config(
    steps=60_000, horizon=24, epochs=4, minibatches=8, learning_rate=1e-3, discount=0.98, log_std=-1.0, hidden=(128, 64)
)
by_trial, _ = rl.ppo.train(many, config, jax.random.key(0))

# %%
found = {"SHAC": measure(by_gradient, test, jax.random.key(1)), "PPO": measure(by_trial, test, jax.random.key(1))}
for name, distance in found.items():
    plt.semilogy(times, np.median(distance, 1), label=name)
plt.axhline(0.05, color="grey", linewidth=0.8, linestyle=":")
plt.xlabel("time [s]")
plt.ylabel("median distance [m]")
plt.title("after 60,000 steps of training")
plt.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Another quadrotor than the one in training
#
# The policy above has met one mass, and no wind. The policy `hover` that comes with fphys was trained with
# `randomize=True`: in every episode other masses and inertias, and wind.

# %%
robust, _, _ = rl.load_policy(rl.trained("hover"))
mediapy.set_ffmpeg(imageio_ffmpeg.get_ffmpeg_exe())  # it came with fphys
mediapy.show_video(rl.record(test, robust, jax.random.key(3), 100, height=200, width=320), fps=50, qp=32)

# %%
factors = np.array([0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3])


@jax.jit
def shares(policy, factor):
    """The share of worlds that end within 5 cm, if all masses are ``factor`` times the nominal."""
    heavier = test.replace(model=test.model.replace(body=test.model.body.replace(mass=factor * test.model.body.mass)))
    return (distances(policy, heavier, jax.random.key(2))[-1] < 0.05).mean(dtype=jnp.float32)


success = {
    name: [float(shares(policy, jnp.float32(factor))) for factor in factors]
    for name, policy in (("SHAC, one mass", by_gradient), ("hover, randomised", robust))
}
for name, values in success.items():
    plt.plot(factors, values, "o-", label=name)
plt.xlabel("mass / nominal mass")
plt.ylabel("share within 5 cm")
plt.legend(frameon=False)
plt.show()

# %%
assert np.median(found["SHAC"][-1]) < 0.05 < np.median(found["PPO"][-1])
assert min(success["hover, randomised"]) > 0.95 > success["SHAC, one mass"][0]
