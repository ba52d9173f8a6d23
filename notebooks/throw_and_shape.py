# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Throw and shape: the material point method
#
# A soft ball is thrown at a wall. How must it be thrown to come back to the thrower, and how stiff must it be to be as flat as
# wanted when it hits? Both are gradients through the simulation, by velocity and by material.

# %%
import imageio_ffmpeg
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import mediapy
import numpy as np

import fphys
import fphys.render
from fphys.particles import mpm

cell, radius, steps, h = 1 / 20, 0.12, 300, 1e-3
line = np.arange(-radius, radius + 1e-9, cell / 2)
disk = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
disk = disk[(disk**2).sum(1) <= radius**2].astype(np.float32)
positions = jnp.asarray(disk + [0.45, 0.5])[None]


def params(young):
    return mpm.Params(
        material=mpm.NeoHookean(density=1000.0, young=young, poisson=0.3),
        timestep=h,
        gravity=(0.0, -9.81),
        walls=mpm.Walls("separate"),
        cell=cell,
        shape=(20, 20),
    )


def thrown(young, velocity):
    """States of the particles at each step, thrown with a velocity [m/s]."""
    p = params(young)
    state = mpm.init(p, positions, jnp.broadcast_to(velocity, positions.shape))

    def advance(s, _):
        s = mpm.step(p, s)
        return s, s.x

    return fphys.scan(advance, state, jnp.arange(steps), adjoint=fphys.Checkpoint(every=20))


# %% [markdown]
# First the throw: after 0.3 s the ball shall be at (0.3, 0.3), by way of the wall on the right. Descent on two numbers.

# %%
target = jnp.array([0.3, 0.3])


@jax.jit
@jax.value_and_grad
def miss(velocity):
    final, _ = thrown(4e4, velocity)
    return ((final.x[0].mean(0) - target) ** 2).sum()


velocity, history = jnp.array([3.5, 1.0]), []
for _ in range(15):
    value, slope = miss(velocity)
    velocity = velocity - 6.0 * slope
    history.append(float(value) ** 0.5)
print(f"thrown with {velocity.round(2)} m/s it misses by {history[-1] * 1000:.1f} mm")

# %%
final, path = jax.jit(thrown)(4e4, velocity)
mpm.check(params(4e4), final)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for k in (*range(0, steps, 60), steps - 1):
    left.scatter(*path[k, 0].T, s=2, label=f"{k * h:.2f} s")
left.plot(*target, "k+", ms=12)
left.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", title="the throw that comes back")
left.legend(fontsize=7, loc="upper left")
right.semilogy(history)
right.set(xlabel="iteration", title="distance from the target [m]")
plt.show()

# %% [markdown]
# The throw, ten times as slow:

# %%
mediapy.set_ffmpeg(imageio_ffmpeg.get_ffmpeg_exe())  # it came with fphys
film = fphys.render.splat(path[::5, 0], cell / 4, height=240, width=240)
mediapy.show_video(film, fps=1 / (50 * h), qp=30)

# %% [markdown]
# Then the material: at its flattest the ball shall be 70 % as wide as before. The gradient is by the logarithm of Young's
# modulus; the width is the spread of the particles along the throw.

# %%
throw = jnp.array([4.0, 0.0])


@jax.jit
@jax.value_and_grad
def flatness(log_young):
    _, path = thrown(jnp.exp(log_young), throw)
    width = jnp.std(path[:, 0, :, 0], axis=1) / jnp.std(positions[0, :, 0])
    return -jax.nn.logsumexp(-200.0 * width) / 200.0  # the least, smoothly


log_young, found = jnp.log(6e4), []
for _ in range(8):
    value, slope = flatness(log_young)
    log_young = log_young - jnp.clip((value - 0.7) / slope, -0.5, 0.5)  # Newton's method on one equation
    found.append((float(value), float(jnp.exp(log_young))))
value, _ = flatness(log_young)
print(f"E = {found[-1][1]:.0f} Pa makes it {float(value):.3f} as wide")

# %%
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
for young, name in ((6e4, "first guess"), (found[-1][1], "found")):
    _, path = jax.jit(thrown)(young, throw)
    axis.plot(np.arange(steps) * h, jnp.std(path[:, 0, :, 0], axis=1) / jnp.std(positions[0, :, 0]), label=name)
axis.axhline(0.7, color="k", lw=0.5)
axis.set(xlabel="time [s]", title="width of the ball, as a part of that at rest")
axis.legend()
plt.show()

# %%
assert history[-1] < 0.01  # m
assert abs(float(value) - 0.7) < 0.01
