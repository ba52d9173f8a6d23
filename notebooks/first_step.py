# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # First step
#
# A pole on a cart: load it, let a thousand of them fall at once, look at the motion, and differentiate through it.

# %%
import imageio_ffmpeg
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import mediapy
import numpy as np

import fphys
import fphys.render

model = fphys.load(fphys.asset("cartpole"))
model.names("joint"), model.names("actuator"), model.structure.nq, model.structure.nv

# %% [markdown]
# Every array has the **world axis first**. A thousand poles, each leaning a little differently:

# %%
worlds = 1000
lean = jnp.linspace(-0.3, 0.3, worlds)  # rad
state = fphys.init(model, worlds, qpos=jnp.stack([jnp.zeros(worlds), lean], 1))
steps = 100
states = jax.jit(fphys.rollout)(model, state, jnp.zeros((steps, worlds, 1)))
states.qpos.shape  # (time, world, coordinate): the states after each step, without the first

# %%
times = np.arange(1, steps + 1) * float(model.opt.timestep[0])
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
axis.plot(times, states.qpos[:, ::100, 1])
axis.set(xlabel="time [s]", ylabel="angle of the pole [rad]", title="ten of a thousand worlds, no control")
plt.show()

# %% [markdown]
# A state is frozen and `step` is a pure function, so JAX's transformations apply. Which force on the cart holds the pole
# upright? Ask the gradient: by every control of every world at once.


# %%
def cost(ctrls):
    moved = fphys.rollout(model, state, ctrls)
    return jnp.mean(moved.qpos[:, :, 1] ** 2 + 0.1 * moved.qvel[:, :, 1] ** 2 + 0.1 * moved.qpos[:, :, 0] ** 2)


value, slope = jax.jit(jax.value_and_grad(cost))(jnp.zeros((steps, worlds, 1)))
print(f"cost {value:.3f}; gradient {slope.shape}, largest entry {jnp.abs(slope).max():.1e}")

# %% [markdown]
# Rather than a plan for every world, one law for all of them: the force is linear in the state, and its four gains are
# found by gradient descent through the simulation. `fphys.scan` is `jax.lax.scan` with a strategy for the way back.


# %%
def balanced(gains):
    def advance(s, _):
        ctrl = (s.qpos @ gains[:2] + s.qvel @ gains[2:])[:, None]
        s = fphys.step(model, s, jnp.clip(ctrl, -10.0, 10.0))
        return s, (s.qpos, s.qvel)

    _, (qpos, qvel) = fphys.scan(advance, state, jnp.arange(steps), adjoint=fphys.Checkpoint(every=10))
    return jnp.mean(qpos[:, :, 1] ** 2 + 0.1 * qvel[:, :, 1] ** 2 + 0.1 * qpos[:, :, 0] ** 2), qpos


import optax

optimizer = optax.adam(1.5)
gains = jnp.array([0.0, 1.0, 0.0, 1.0])
memory = optimizer.init(gains)


@jax.jit
def improve(gains, memory):
    (value, _), slope = jax.value_and_grad(balanced, has_aux=True)(gains)
    change, memory = optimizer.update(slope, memory)
    return optax.apply_updates(gains, change), memory, value


history = []
for _ in range(40):
    gains, memory, value = improve(gains, memory)
    history.append(float(value))
print("gains", gains.round(2), "cost", round(history[0], 3), "->", round(history[-1], 3))

# %%
qpos = jax.jit(balanced)(gains)[1]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
left.semilogy(history)
left.set(xlabel="iteration", title="cost")
right.plot(times, qpos[:, ::100, 1])
right.set(xlabel="time [s]", title="angle of the pole under the law that was found [rad]")
plt.show()

# %% [markdown]
# The first world, which leans most, at half its speed:

# %%
mediapy.set_ffmpeg(imageio_ffmpeg.get_ffmpeg_exe())  # it came with fphys
drawn = lambda qpos: fphys.render.frames(model, states.replace(qpos=qpos), height=160, width=320, every=4)
speed = 0.5 / (4 * float(model.opt.timestep[0]))
mediapy.show_videos({"no control": drawn(states.qpos), "the law that was found": drawn(qpos)}, fps=speed, qp=30)

# %% [markdown]
# Worlds that go wrong say so in `state.status`; `fphys.check(state)` raises with the world and the cause. Here all is well,
# and the poles stand:

# %%
final = jax.tree.map(lambda x: x[-1], states)
fphys.check(final)
assert history[-1] < 0.1 * history[0]
assert float(jnp.abs(qpos[-1, :, 1]).max()) < 0.1  # rad
