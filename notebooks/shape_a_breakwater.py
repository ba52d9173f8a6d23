# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Fluid design: shape a breakwater
#
# A column of water is let go and rushes along a tank, at whose far end it must not arrive. There is stone for a mound of a
# given size. Where should it lie, and how steep should it be? The walls of an SPH tank are particles, so their places have
# gradients as those of the water do, and the mound is a few numbers that move them.

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

spacing, length, depth = 1 / 30, 1.4, 0.4  # m, m of the tank, m of the water
params = sph.Params(
    spacing=spacing,
    timestep=7e-4,
    sound_speed=25.0,
    gravity=jnp.array([0.0, -9.81]),
    viscosity=1.0,
    artificial=0.1,
    repulsion=1.0,
)


def grid(x0, x1, y0, y1):
    x, y = np.arange(x0 + spacing / 2, x1 - 1e-9, spacing), np.arange(y0 + spacing / 2, y1 - 1e-9, spacing)
    return np.stack(np.meshgrid(x, y, indexing="ij"), -1).reshape(-1, 2)


thick = 4 * spacing
water, bed = grid(0.0, 0.4, 0.0, depth), grid(-thick, length + thick, -2 * thick, 0.0)
sides = np.concatenate([grid(-thick, 0.0, 0.0, 0.6), grid(length, length + thick, 0.0, 0.6)])
positions = np.concatenate([water, bed, sides]).astype(np.float32)[None]
kind = np.repeat([sph.FLUID, sph.WALL], [len(water), len(bed) + len(sides)])
n, floor = len(water), slice(len(water), len(water) + len(bed))
at_rest = np.where(kind == sph.FLUID, 1000.0 * 9.81 * np.maximum(depth - positions[..., 1], 0.0), 0.0)
start = sph.init(params, positions, material=kind, pressure=at_rest.astype(np.float32), max_neighbors=60)
steps = 1000
print(f"{n} particles of water, {kind.sum()} of walls; {steps * params.timestep:.2f} s")

# %% [markdown]
# ## The design
#
# The mound is a bell curve: its middle, and its width, by which its height follows from the given area of 0.05 m². Tangents
# hyperbolic keep it in the tank, away from the water, and at least 9 cm wide. Each column of the bed's particles is
# lifted to the curve.

# %%
AREA = 0.05  # m²


def mound(design):
    """Middle and width [m] of the mound."""
    return 0.8 + 0.2 * jnp.tanh(design[0]), 0.14 + 0.05 * jnp.tanh(design[1])


def lift(design, x):
    middle, width = mound(design)
    return AREA / (width * np.sqrt(2 * np.pi)) * jnp.exp(-0.5 * ((x - middle) / width) ** 2)


def flood(design):
    place = start.x.at[0, floor, 1].add(lift(design, start.x[0, floor, 0]))

    def advance(state, _):
        state = sph.step(params, state)
        return state, state.x[0, :n]

    return fphys.scan(advance, start.replace(x=place), jnp.arange(steps), adjoint=fphys.Checkpoint(every=30))


def arrived(design):
    """How much of the water is beyond 1.0 m, as a mean over the last quarter of the time: 0 to 1."""
    _, path = flood(design)
    return jax.nn.sigmoid((path[-steps // 4 :: 5, :, 0] - 1.0) / 0.06).mean()


# %% [markdown]
# ## The search
#
# The flow breaks over the mound, so single splashes make the goal rough. A mean over many particles and moments is smooth
# enough for Adam.

# %%
slope = jax.jit(jax.value_and_grad(arrived))
design, history = jnp.array([0.5, 0.8]), []
first, optimizer = design, optax.adam(0.25)
memory = optimizer.init(design)
for _ in range(12):
    value, gradient = slope(design)
    history.append((float(value), design))
    change, memory = optimizer.update(gradient, memory)
    design = design + change
least, design = min(history, key=lambda pair: pair[0])
middle, width = (float(number) for number in mound(design))
print(f"{100 * history[0][0]:.1f} % of the water arrived, now {100 * least:.1f} %: a mound at {middle:.2f} m, {width:.2f} m wide")

# %%
figure, axes = plt.subplots(2, 2, figsize=(11, 4.5), layout="constrained", sharex=True, sharey=True)
for row, (what, name) in zip(axes, ((first, "first guess"), (design, "found")), strict=True):
    final, path = jax.jit(flood)(what)
    sph.check(params, final)
    for axis, moment in zip(row, (350, steps - 1), strict=True):
        axis.scatter(*final.x[0, n:].T, s=3, c="0.6")
        axis.scatter(*path[moment].T, s=3, c="C0")
        axis.axvline(1.0, color="C3", lw=0.7)
        axis.set(aspect="equal", xlim=(0, length), ylim=(-0.05, 0.5))
        axis.set_title(f"{name}, {moment * params.timestep:.2f} s", fontsize=9)
plt.show()

# %% [markdown]
# The flood over the mound that was found, at half its speed:

# %%
mediapy.set_ffmpeg(imageio_ffmpeg.get_ffmpeg_exe())  # it came with fphys
bank = np.broadcast_to(final.x[0, n:], (steps // 20, len(kind) - n, 2))
film = fphys.render.splat(np.concatenate([path[::20], bank], 1), spacing / 2, np.where(kind == sph.FLUID, 0, 5), 200, 400)
mediapy.show_video(film, fps=1 / (40 * params.timestep), qp=30)

# %% [markdown]
# ## Is the gradient true?
#
# Over the whole flood, a difference of two runs has the roughness of single splashes in it. Over the first 400 steps, before the water
# breaks, both agree. The goal here is how far the water has come.

# %%
def reach(design):
    place = start.x.at[0, floor, 1].add(lift(design, start.x[0, floor, 0]))
    state = start.replace(x=place)
    return fphys.scan(lambda s, _: (sph.step(params, s), None), state, jnp.arange(400), adjoint=fphys.Checkpoint(every=20))[0].x[0, :n, 0].mean()


ahead, back = (float(jax.jit(reach)(first + jnp.array([s, 0.0]))) for s in (0.03, -0.03))
by_middle = float(jax.jit(jax.grad(reach))(first)[0])
print(f"gradient {by_middle:.5f}, difference {(ahead - back) / 0.06:.5f}")

# %% [markdown]
# ## To try
#
# 1. Give the mound half of the stone. Does it still want to lie in the same place?
# 2. Two mounds of half the area each: four numbers. Are they better than one?
# 3. Ask for least force on the far wall instead (`sph.forces`). Is it the same mound?
# 4. Halve the spacing (eight times the time). Does the design that was found stay good?

# %%
assert least < 0.5 * history[0][0]
assert abs(by_middle - (ahead - back) / 0.06) < 0.05 * abs(by_middle) + 1e-5
