# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Robot control: draw a circle
#
# A Franka arm is to draw a circle of 24 cm in two seconds. Three laws try it, each by what it knows of the arm: only its
# joints' angles, its weight, or its whole dynamics. Each law also tries it with 1.5 kg in the hand, of which none of them
# knows. The six arms are six *worlds* of one call.

# %%
import imageio_ffmpeg
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import mediapy
import numpy as np

import fphys
import fphys.render

jax.config.update("jax_enable_x64", True)

model = fphys.load("franka")
h, steps, nv = float(model.opt.timestep[0]), 1000, model.structure.nv
home = fphys.init(model, 1, qpos=model.key.qpos[model.id("key", "home")])
hand = model.id("site", "end_effector")


def tip(qpos):  # (world, nq) -> (world, 3)
    return fphys.kinematics(model, fphys.init(model, len(qpos)).replace(qpos=qpos)).site.pos[:, hand]


# %% [markdown]
# ## The path of the joints
#
# The circle stands upright in front of the arm. The arm begins at rest, so the angle along the circle grows smoothly. Seven
# joints for three coordinates: of all motions of the joints that follow the circle, the Jacobian's pseudo-inverse takes the
# smallest. Each step also corrects what the step before missed.

# %%
phase = np.linspace(0.0, 1.0, steps + 1)
angle = 2 * np.pi * (10 * phase**3 - 15 * phase**4 + 6 * phase**5)  # at rest at both ends
around = np.stack([0 * angle, np.sin(angle), np.cos(angle) - 1], -1)
circle = np.asarray(tip(home.qpos))[0] + 0.12 * around  # (steps + 1, 3)


@jax.jit
def inverse_kinematics(circle):
    def follow(qpos, goal):
        J = fphys.jacobian(model, home.replace(qpos=qpos), "site", "end_effector")[0, :3]
        change = J.T @ jnp.linalg.solve(J @ J.T + 1e-6 * jnp.eye(3), goal - tip(qpos)[0])
        return qpos + change[None], qpos[0] + change

    return jax.lax.scan(follow, home.qpos, circle)[1]


q = inverse_kinematics(jnp.asarray(circle))
v = jnp.gradient(q, h, axis=0)
a = jnp.gradient(v, h, axis=0)
missed = float(jnp.abs(tip(q) - circle).max())
print(f"the path of the joints misses the circle by {1e6 * missed:.0f} µm; fastest joint {float(jnp.abs(v).max()):.1f} rad/s")

# %% [markdown]
# ## Three laws
#
# - *PD* pulls each joint to its place, as a spring and a damper do.
# - *With weight* adds `fphys.bias`: what gravity and the motion ask for now.
# - *Computed torque* asks `fphys.inverse` which torques give the accelerations that are wanted. The errors of the joints then
#   obey e'' + kd e' + kp e = 0, the same for a heavy shoulder as for a light wrist.

# %%
laws = ["PD", "with weight", "computed torque"]
held = np.array([0.0, 1.5])  # kg in the hand
worlds = len(laws) * len(held)
law = np.repeat(np.arange(len(laws)), len(held))[:, None]
strength = jnp.asarray(model.actuator.ctrlrange[0, :, 1])
share = np.where(strength > 50, 1.0, 0.05)[None]  # of the stiffness: wrists are weaker
loaded = model.replace({"body.mass": model.body.mass.repeat(worlds, 0).at[:, -1].add(np.tile(held, len(laws)))})


def torques(state, now):
    """Of all three laws in all worlds; each world takes its own."""
    q, v, a = (x[None] for x in now)
    pull = share * (400.0 * (q - state.qpos) + 40.0 * (v - state.qvel))  # N m
    bias = fphys.bias(model, state)  # of the arm that the law knows: nothing is held
    wanted = a + 100.0 * (q - state.qpos) + 20.0 * (v - state.qvel)
    computed = fphys.inverse(model, state, wanted)
    return jnp.where(law == 0, pull, jnp.where(law == 1, pull + bias, computed))


@jax.jit
def drawn():
    def advance(state, now):
        state = fphys.step(loaded, state, torques(state, now))
        return state, state

    start = fphys.init(loaded, worlds, qpos=q[0])
    return fphys.scan(advance, start, (q[:-1], v[:-1], a[:-1]))[1]


states = drawn()
path = jax.jit(jax.vmap(tip))(states.qpos)  # (steps, world, 3)
error = 1e3 * np.sqrt(((path - circle[1:, None]) ** 2).sum(-1).mean(0)).reshape(len(laws), len(held))
for name, (free, full) in zip(laws, error, strict=True):
    print(f"{name:>15}: {free:6.2f} mm off, {full:6.2f} mm with {held[1]} kg")

# %%
view = fphys.render.Camera(azimuth=150, elevation=-10, distance=1.35, lookat=(0.25, 0.0, 0.42))
shots = fphys.render.frames(model, jax.tree.map(lambda x: np.asarray(x)[249::250], states), view, 300, 260, world=5)
figure, axes = plt.subplot_mosaic("abc;ddd", figsize=(10, 7), layout="constrained")
for key, name, k in zip("abc", laws, range(0, worlds, 2), strict=True):
    axes[key].plot(*circle[:, 1:].T, "k", lw=0.7)
    axes[key].plot(*path[:, k, 1:].T, "C0", label="nothing held")
    axes[key].plot(*path[:, k + 1, 1:].T, "C3", label=f"{held[1]} kg held")
    axes[key].set(aspect="equal", title=name, xlabel="y [m]", ylabel="z [m]", ylim=(0.29, 0.61))
axes["a"].legend(frameon=False, fontsize=8)
axes["d"].imshow(np.concatenate(list(shots), 1))
axes["d"].set_title("computed torque with 1.5 kg, every half second")
axes["d"].axis("off")
plt.show()

# %%
mediapy.set_ffmpeg(imageio_ffmpeg.get_ffmpeg_exe())  # it came with fphys
film = fphys.render.frames(model, states, view, 240, 240, world=5, every=20)
mediapy.show_video(film, fps=1 / (20 * h), qp=32)

# %% [markdown]
# ## What is in the hand?
#
# With an empty hand, the computed torque is the best law; with a full one, 120 times worse. What it does not know pushes it aside, and
# it holds the light wrists softly. But the motion tells what is in the hand: the gradient of the distance between the motion that
# a model predicts and the one that was measured, by the mass in its hand, goes through all steps. One number is sought,
# so a few steps of Newton's method on the gradient (a secant) find it.

# %%
measured = states.qpos[:250, 5]


def replayed(mass):
    """The first half second under the computed torque, with a mass in the hand that the law does not know."""
    heavier = model.replace({"body.mass": model.body.mass.at[0, -1].add(mass)})

    def advance(state, now):
        q, v, a = (x[None] for x in now)
        wanted = a + 100.0 * (q - state.qpos) + 20.0 * (v - state.qvel)
        state = fphys.step(heavier, state, fphys.inverse(model, state, wanted))
        return state, state.qpos[0]

    start = fphys.init(model, 1, qpos=q[0])
    return fphys.scan(advance, start, (q[:250], v[:250], a[:250]), adjoint=fphys.Checkpoint(every=16))[1]


slope = jax.jit(jax.value_and_grad(lambda mass: 1e6 * ((replayed(mass) - measured) ** 2).mean()))
guesses = [0.0, 0.5]
slopes = [slope(guess)[1] for guess in guesses]
for _ in range(5):
    bend = (slopes[-1] - slopes[-2]) / (guesses[-1] - guesses[-2])
    guesses.append(float(guesses[-1] - slopes[-1] / bend))
    slopes.append(slope(guesses[-1])[1])
    if abs(guesses[-1] - guesses[-2]) < 1e-6:
        break
print("held, guess by guess:", *np.round(guesses, 4), "kg")

# %% [markdown]
# ## To try
#
# 1. Give `torques` the model with the mass that was found. How far off is the computed torque now?
# 2. Draw the circle in one second. Which joint reaches its limit first? (`model.actuator.ctrlrange`)
# 3. Add noise of 0.01 rad/s to `state.qvel` in `torques`. Which law suffers most, and why?
# 4. The weights of the guide's iLQR plan the torques without a path of the joints: `fphys.control.ilqr`.

# %%
assert missed < 1e-5
assert error[2, 0] < 1.0 < error[1, 0] < error[0, 0] and error[2, 1] > error[2, 0]
assert abs(guesses[-1] - held[1]) < 0.01
