# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Soft matter: four balls, and a beam that knows where to be stiff
#
# Graphics asks for matter that looks right, design for matter that does right. Both are here: jelly, snow, sand and water
# fall on a floor, drawn as what they are; then a beam gets a stiffness for each of its particles, found by the gradient
# through its motion.

# %%
import dataclasses

import imageio_ffmpeg
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import mediapy
import numpy as np
import optax

import fphys
from fphys.experiments.film import stage
from fphys.particles import mpm, sample
from fphys.render import Camera, Grains, Surface, frames

# %% [markdown]
# ## Four balls
#
# A material is a stress law and, for snow and sand, a rule by which it yields. All four share one grid, so they could also
# mix.

# %%
cell = 0.04
materials = {
    "jelly": mpm.Corotated(density=1000.0, young=3e4, poisson=0.35),
    "snow": mpm.Snow(density=400.0, young=4e4),
    "sand": mpm.Sand(density=1600.0, young=1e5, poisson=0.3),
    "water": mpm.Liquid(density=1000.0, bulk=5e4),
}
params = mpm.Params(
    material=tuple(materials.values()),
    timestep=5e-4,
    gravity=(0.0, 0.0, -9.81),
    walls=mpm.Walls("separate", friction=0.4),
    cell=cell,
    shape=(44, 18, 16),
)
ball = sample.ball((0.0, 0.0, 0.0), 0.13, cell / 2)
middles = [(0.25 + 0.42 * k, 0.36, 0.28) for k in range(len(materials))]
x = np.concatenate([ball + middle for middle in middles]).astype(np.float32)
kind = np.repeat(np.arange(len(materials)), len(ball))
state = mpm.init(params, x[None], np.broadcast_to(np.float32([0, 0, -2.5]), x.shape)[None], material=kind)
print(f"{len(x)} particles")


@jax.jit
def fall(state):
    def advance(state, _):
        state = jax.lax.fori_loop(0, 20, lambda _, s: mpm.step(params, s), state)
        return state, state.x

    return jax.lax.scan(advance, state, None, length=50)


final, path = fall(state)  # half a second, a picture every ten milliseconds
mpm.check(params, final)

# %%
path = np.concatenate([x[None, None], path])
spacing = cell / 2
parts = {name: path[:, :, kind == k] for k, name in enumerate(materials)}
shapes = [
    Surface(parts["jelly"], spacing, (0.90, 0.26, 0.30), drops=False),
    Surface(parts["snow"], spacing, (0.93, 0.95, 0.98), shine=0.1),
    Grains(parts["sand"], spacing / 2),
    Surface(parts["water"], spacing, (0.16, 0.43, 0.71)),
]
moments = np.arange(0, len(path), 2)
chosen = [dataclasses.replace(shape, x=shape.x[moments]) for shape in shapes]
floor = fphys.load(stage())
still = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], len(moments), 0), fphys.init(floor, 1))
view = Camera(azimuth=90, elevation=-20, distance=1.15, lookat=(0.88, 0.36, 0.1), track=False)
pictures = frames(floor, still, view, 260, 800, flexes=chosen)
mediapy.set_ffmpeg(imageio_ffmpeg.get_ffmpeg_exe())  # it came with fphys
mediapy.show_video(pictures, fps=12.5, qp=32)  # at a quarter of its speed
width = {name: float(np.ptp(each[-1, 0, :, 0])) for name, each in parts.items()}
print("width in the end [m]:", {name: round(value, 2) for name, value in width.items()})

# %% [markdown]
# ## Where should a beam be stiff?
#
# A beam of jelly is held at its left end and sags under its weight. Stiff matter is dear: the mean logarithm of Young's modulus
# is given. Where does it help most? Every particle has a stiffness of its own, and one gradient gives the answer for all of them.

# %%
grid, mean = 0.05, np.log(1e5)  # m; of Young's modulus [Pa]
beam = sample.box((0.0, 0.3), (0.6, 0.5), grid / 2).astype(np.float32)
held, end = jnp.asarray(beam[:, 0] < 0.1), beam[:, 0] > 0.55


def scene(log_young):
    free = jnp.tanh(log_young)  # at most e times as stiff or as soft ...
    young = jnp.exp(mean + free - free.mean())  # ... and what is added in one place is taken from the others
    material = mpm.Corotated(density=300.0, young=young[None], poisson=0.3)
    return mpm.Params(material=material, timestep=4e-4, gravity=(0.0, -9.81), cell=grid, shape=(16, 12))


def bent(log_young):
    """The beam after 0.2 s, near the lowest place of its swing, and the height of its end by then [m]."""
    params = scene(log_young)
    start = mpm.init(params, beam[None])

    def advance(state, _):
        state = mpm.step(params, state)
        return state.replace(v=jnp.where(held[:, None], 0.0, state.v)), state.x[0, end, 1].mean()

    return fphys.scan(advance, start, jnp.arange(500), adjoint=fphys.Checkpoint(every=22))


def sag(log_young):
    _, height = bent(log_young)
    return 0.4 - jnp.mean(height[-125:])  # of the end, over the last 0.05 s [m]


slope = jax.jit(jax.value_and_grad(sag))
log_young, history = jnp.zeros(len(beam)), []
optimizer = optax.adam(0.15)
memory = optimizer.init(log_young)
for _ in range(15):
    value, gradient = slope(log_young)
    change, memory = optimizer.update(gradient, memory)
    log_young, history = log_young + change, [*history, float(value)]
print(f"{len(beam)} stiffnesses; the end sags {100 * history[0]:.1f} cm, then {100 * history[-1]:.1f} cm")

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 3), layout="constrained", sharex=True, sharey=True)
for axis, logs, title in zip(axes, (0 * log_young, log_young), ("the same everywhere", "found by the gradient"), strict=True):
    last, _ = jax.jit(bent)(logs)
    color = np.asarray(scene(logs).material.young)[0] / 1e3
    drawn = axis.scatter(*np.asarray(last.x[0]).T, c=color, s=14, cmap="viridis", vmin=20, vmax=300)
    axis.set(aspect="equal", title=title, xlabel="x [m]")
axes[0].set_ylabel("y [m]")
figure.colorbar(drawn, label="Young's modulus [kPa]")
plt.show()

# %% [markdown]
# The stiff matter is where the beam bends most, near the wall, and in its skin rather than its middle: that is how bones and
# bamboo are built.
#
# ## To try
#
# 1. Let the jelly of the first scene be ten times as soft. When does `mpm.check` object, and what does it say?
# 2. Drop the four balls on a sphere: `mpm.step(params, state, colliders=boundary.sphere(...))`.
# 3. Hold the beam at both ends, with `sag` measured in its middle. Where is it stiff now?
# 4. The larger siblings: `fphys run jelly` and `fphys run soft-arm`.

# %%
assert min(width["water"], width["sand"]) > 1.5 * width["jelly"]
assert history[-1] < 0.7 * history[0]
young = np.asarray(scene(log_young).material.young)[0]
assert young[(beam[:, 0] > 0.1) & (beam[:, 0] < 0.3)].mean() > 1.2 * young[beam[:, 0] > 0.4].mean()
