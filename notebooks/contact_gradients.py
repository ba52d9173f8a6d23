# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Gradients through a robot, and what contact does to them
#
# The gradient of a step is exact for the step that was taken, contact included. First an arm in the air, where that is all
# there is to say; then a ball and a floor, where it is not.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import fphys

jax.config.update("jax_enable_x64", True)  # differences need digits

arm = fphys.load(fphys.asset("double-pendulum"))
state = fphys.init(arm, 1, qpos=np.array([0.4, -0.3]))


def tip(ctrls, mass):
    heavier = arm.replace({"body.mass": mass})
    states = fphys.rollout(heavier, state, ctrls)
    last = jax.tree.map(lambda x: x[-1], states)
    return fphys.kinematics(heavier, last).body.pos[0, -1, 2]


ctrls = 0.5 * jnp.ones((100, 1, 2))
by_ctrl, by_mass = jax.jit(jax.grad(tip, (0, 1)))(ctrls, arm.body.mass)
h = 1e-5
one = jnp.zeros_like(ctrls).at[30, 0, 1].set(h)
difference = (jax.jit(tip)(ctrls + one, arm.body.mass) - jax.jit(tip)(ctrls - one, arm.body.mass)) / (2 * h)
print(f"by the torque at step 30: gradient {by_ctrl[30, 0, 1]:.9f}, difference {difference:.9f}")
print("by the masses:", by_mass[0])

# %%
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
axis.plot(np.arange(100) * float(arm.opt.timestep[0]), by_ctrl[:, 0])
axis.set(xlabel="time [s]", title="how much a torque then lifts the tip in the end [m / N m]")
axis.legend(["shoulder", "elbow"])
plt.show()

# %% [markdown]
# ## A ball that bounces
#
# It falls, touches the floor, and goes on; where is it 0.46 s later, for other heights of release? Between two
# contact sets the gradient is exact. But a ball that is released a little higher also lands a little later, and within a
# step contact is made or it is not: the time of impact moves in whole steps, and no derivative sees that.

# %%
floor = fphys.load("""
  <mujoco>
    <option timestep="0.002"/>
    <worldbody>
      <geom type="plane" size="2 2 1"/>
      <body pos="0 0 0">
        <joint name="lift" type="slide" axis="0 0 1"/>
        <geom type="sphere" size="0.1" mass="1" solref="-4000 -3"/>
      </body>
    </worldbody>
  </mujoco>""")
steps = 230


def landed(height):
    start = fphys.init(floor, height.shape[0]).replace(qpos=height[:, None])
    return fphys.rollout(floor, start, jnp.zeros((steps, height.shape[0], 0))).qpos[-1, :, 0]


def total(height):
    end = landed(height)
    return end.sum(), end


heights = jnp.linspace(0.4, 1.6, 200)
slopes, ends = jax.jit(jax.grad(total, has_aux=True))(heights)
measured = np.gradient(np.asarray(ends), np.asarray(heights))
smooth = np.convolve(measured, np.ones(11) / 11, mode="valid")
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
left.plot(heights, ends)
left.set(xlabel="released at [m]", title="height after 0.46 s [m]")
right.plot(heights, slopes, lw=0.8, label="gradient")
right.plot(heights[5:-5], smooth, label="difference, over 6 cm")
right.set(xlabel="released at [m]", title="slope [-]")
right.legend()
plt.show()

# %% [markdown]
# Before the fall reaches the floor (the right end) and while the ball lies on it both agree. Where it has bounced they
# differ: the gradient leaves out that the impact comes later. That is a property of time stepping with contact, and not of one simulator; smaller time steps do
# not mend it.
#
# ## What touches nothing has no gradient
#
# The second effect is harsher. How far does a puck go that is to be hit by another? As long as they miss, pushing harder
# changes nothing, and descent does not move. `fphys.contacts_from_distance` gives the gradient of contacts that fade in over a
# distance, with the exact result.

# %%
table = fphys.load("""
  <mujoco>
    <option timestep="0.005" gravity="0 0 0"/>
    <worldbody>
      <body name="striker"><joint type="slide" axis="1 0 0" damping="0.8"/><geom size="0.1" mass="1"/></body>
      <body name="puck" pos="0.6 0 0"><joint type="slide" axis="1 0 0" damping="0.3"/><geom size="0.1" mass="1"/></body>
    </worldbody>
  </mujoco>""")
felt = fphys.contacts_from_distance(0.3)


def miss(speed, step):
    start = fphys.init(table, 1)
    start = start.replace(qvel=jnp.stack([speed, 0.0])[None])
    final, _ = jax.lax.scan(lambda s, _: (step(table, s), None), start, length=240)
    return (final.qpos[0, 1] - 0.5) ** 2  # the puck is to move by half a metre


history = {}
for name, step in (("exact", fphys.step), ("from distance", felt)):
    slope, speed = jax.jit(jax.value_and_grad(lambda v: miss(v, step))), jnp.array(0.25)
    history[name] = []
    for _ in range(30):
        value, gradient = slope(speed)
        speed = speed - jnp.clip(0.8 * gradient, -0.1, 0.1)
        history[name].append(float(value) ** 0.5)
    print(f"{name}: speed {float(speed):.3f} m/s, the puck misses by {history[name][-1] * 1000:.1f} mm")

# %%
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
for name, values in history.items():
    axis.semilogy(values, label=name)
axis.set(xlabel="iteration", title="distance of the puck from its target [m]")
axis.legend()
plt.show()

# %%
falling = np.asarray(heights) > 0.15 + 0.5 * 9.81 * 0.46**2  # still in the air in the end
assert falling.any() and np.allclose(slopes[falling], 1.0)
assert abs(by_ctrl[30, 0, 1] - difference) < 1e-6 * abs(difference)
assert history["exact"][-1] == 0.5 and history["from distance"][-1] < 0.05
