# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Steer a fluid: smoothed particles
#
# A tank of water, and a push that changes in time. Which push makes the water slosh to the right side, as calm as can be at
# a given moment? The gradient goes through every neighbour of every particle and every step.

# %%
import imageio_ffmpeg
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import mediapy
import numpy as np
import optax

import fphys
import fphys.render
from fphys.particles import sph

STEP = 1.4e-3  # s
spacing, width, height = 0.05, 1.0, 0.3  # m
params = sph.Params(
    spacing=spacing, timestep=STEP, sound_speed=20.0, gravity=jnp.array([0.0, -9.81]), viscosity=2.0, artificial=0.1
)


def grid(x0, x1, y0, y1):
    x, y = np.arange(x0 + spacing / 2, x1, spacing), np.arange(y0 + spacing / 2, y1, spacing)
    return np.stack(np.meshgrid(x, y, indexing="ij"), -1).reshape(-1, 2)


depth = 3 * spacing
water = grid(0.0, width, 0.0, height)
walls = np.concatenate(
    [
        grid(-depth, width + depth, -depth, 0.0),
        grid(-depth, 0.0, 0.0, 2.5 * height),
        grid(width, width + depth, 0.0, 2.5 * height),
    ]
)
positions = np.concatenate([water, walls]).astype(np.float32)[None]
kind = np.repeat([sph.FLUID, sph.WALL], [len(water), len(walls)])
at_rest = 1000.0 * 9.81 * np.maximum(height - positions[..., 1], 0.0).astype(np.float32)
state = sph.init(params, positions, material=kind, pressure=at_rest)
fluid = jnp.asarray(kind == sph.FLUID)
mass = 1000.0 * spacing**2
steps, knots = 200, 6
print(f"{len(water)} particles of water, {len(walls)} of walls; {steps * STEP:.1f} s")


# %% [markdown]
# The push is a horizontal acceleration, a smooth curve through a few knots: those are what is looked for.


# %%
def pushes(knot):
    times = jnp.linspace(0.0, knots - 1.0, steps)
    return jnp.interp(times, jnp.arange(float(knots)), knot)


def sloshed(knot):
    def advance(s, push):
        force = jnp.where(fluid[:, None], jnp.stack([push * mass, 0.0 * push]), 0.0)
        s = sph.step(params, s, force[None])
        return s, s.x

    return fphys.scan(advance, state, pushes(knot), adjoint=fphys.Checkpoint(every=20))


def goal(knot):
    final, _ = sloshed(knot)
    x, v = final.x[0, : len(water)], final.v[0, : len(water)]
    centre, speed = x[:, 0].mean(), (v**2).sum(1).mean()
    return 100.0 * (centre - 0.55) ** 2 + 0.1 * speed + 1e-4 * (knot**2).mean(), (centre, speed)


slope = jax.jit(jax.value_and_grad(goal, has_aux=True))
knot, optimizer, history = jnp.zeros(knots), optax.adam(0.5), []
memory = optimizer.init(knot)
for _ in range(16):
    (value, (centre, speed)), gradient = slope(knot)
    change, memory = optimizer.update(gradient, memory)
    knot, history = knot + change, [*history, float(value)]
print(f"centre of the water at {centre:.3f} m, root mean square speed {speed**0.5:.3f} m/s")

# %%
final, path = jax.jit(sloshed)(knot)
sph.check(params, final)
figure, axes = plt.subplots(1, 3, figsize=(11, 3), layout="constrained")
axes[0].semilogy(history)
axes[0].set(xlabel="iteration", title="goal")
axes[1].plot(np.arange(steps) * STEP, pushes(knot))
axes[1].set(xlabel="time [s]", title="push found [m/s²]")
axes[2].scatter(*positions[0, len(water) :].T, s=6, c="gray")
axes[2].scatter(*path[-1, 0, : len(water)].T, s=6)
axes[2].set(aspect="equal", title="the water in the end")
plt.show()

# %% [markdown]
# Its motion, at a fifth of its speed:

# %%
mediapy.set_ffmpeg(imageio_ffmpeg.get_ffmpeg_exe())  # it came with fphys
film = fphys.render.splat(path[::4, 0], spacing / 2, 5 * kind, height=160, width=320)
mediapy.show_video(film, fps=1 / (20 * STEP), qp=30)

# %% [markdown]
# Is the gradient true? Against a centred difference along one direction, in float32 as simulated:

# %%
direction = jnp.ones(knots)
only = lambda knot: goal(knot)[0]
ahead, back = (float(jax.jit(only)(knot * 0.5 + s * 0.05 * direction)) for s in (1, -1))
along = float(jax.jit(jax.grad(only))(knot * 0.5) @ direction)
print(f"gradient {along:.4f}, difference {(ahead - back) / 0.1:.4f}")

# %%
assert abs(along - (ahead - back) / 0.1) < 0.02 * abs(along)
assert abs(float(centre) - 0.55) < 0.02 and history[-1] < 0.3 * history[0]
