# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # From Genesis
#
# One scene on two engines. A policy is trained through ours, which is differentiable, and then drives the same scene in
# Genesis: jitted, between steps that nobody traces.
#
# | Genesis | fphys |
# |---|---|
# | `gs.init()`, `gs.Scene(sim_options=...)` | `fphys.Scene(timestep=..., gravity=...)`, no global state |
# | `scene.add_entity(gs.morphs.Box(...), material=...)` | `scene.add(Box(...), Rigid(...))` |
# | `scene.build(n_envs=16)` | `scene.build(16, backend="native")`, or `"genesis"` |
# | `scene.step()`, in place | `state = world.step(state, control)` |
# | `robot.control_dofs_position(target)`, `set_dofs_kp` | `ActionSpec("position", kp=..., kd=...)` |
# | `robot.get_dofs_position()`, `link.get_pos()`, sensors | `world.observe(state, ObservationSpec(...))`, one array |
# | `scene.reset()` | `world.init()` |
# | `loss.backward()` through rigid bodies and MPM, once a rollout | `jax.grad`, `jit`, `vmap`; SPH too |
# | its own rollout inside `jax.grad` | `fphys.bridge.genesis.as_jax(scene, run)` |

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import fphys
from fphys.scene import MJCF, ActionSpec, ObservationSpec, Plane, Scene

ARM = """<mujoco><worldbody><body name="upper" pos="0 0 1">
  <joint name="shoulder" axis="0 1 0" damping=".05"/>
  <geom type="capsule" fromto="0 0 0 .4 0 0" size=".03" density="800" contype="0" conaffinity="0"/>
  <body name="lower" pos=".4 0 0">
    <joint name="elbow" axis="0 1 0" damping=".05"/>
    <geom type="capsule" fromto="0 0 0 .3 0 0" size=".025" density="800" contype="0" conaffinity="0"/>
    <site name="tip" pos=".3 0 0"/>
  </body>
</body></worldbody></mujoco>"""

WORLDS, STEPS = 16, 150
scene = Scene(timestep=0.004)
scene.add(Plane())
scene.add(MJCF(ARM), name="arm")
action = ActionSpec("position", kp=60.0, kd=6.0)
seen = ObservationSpec("all", links=("tip",))
native = scene.build(WORLDS, action=action)
print(native.columns(seen)[:7])

# %% [markdown]
# Every world has a point of its own that the tip must reach, in front of the arm, and gravity pulls. The policy is a
# small network from the goal to the joints' targets; its gradient goes through the simulation.

# %%
points = np.random.default_rng(0)
angle, reach = points.uniform(-0.9, 0.9, WORLDS), points.uniform(0.4, 0.62, WORLDS)
goals = jnp.asarray(np.stack([reach * np.cos(angle), 1 - reach * np.sin(angle)], -1), jnp.float32)
draw = jax.random.split(jax.random.key(0))
policy = {
    "in": 2.0 * jax.random.normal(draw[0], (2, 32)),
    "bias": jnp.zeros(32),
    "out": 0.1 * jax.random.normal(draw[1], (32, 2)),
    "middle": jnp.array([-0.6, 1.2]),
}


def targets(policy, goals):
    hidden = jnp.tanh((goals - jnp.array([0.45, 1.0])) @ policy["in"] + policy["bias"])
    return hidden @ policy["out"] + policy["middle"]


def distances(observation):
    return jnp.linalg.norm(observation[:, [4, 6]] - goals, axis=1)


def loss(policy):
    control = targets(policy, goals)
    final, _ = fphys.scan(lambda state, _: (native.step(state, control), None), native.init(), jnp.zeros(STEPS))
    return jnp.mean(distances(native.observe(final, seen)) ** 2)


optimizer = optax.adam(optax.cosine_decay_schedule(2e-2, 200))
moments = optimizer.init(policy)


@jax.jit
def update(policy, moments):
    value, gradient = jax.value_and_grad(loss)(policy)
    change, moments = optimizer.update(gradient, moments)
    return optax.apply_updates(policy, change), moments, value


losses = []
for _ in range(200):
    policy, moments, value = update(policy, moments)
    losses.append(float(value))
print(f"distance {losses[0] ** 0.5:.3f} m before, {losses[-1] ** 0.5:.3f} m after")

# %% [markdown]
# The same scene, built by Genesis. A state is a ticket there: a step uses it up, and an old one raises. Observations
# are copies, so that nothing changes under JAX at the next step.

# %%
world = scene.build(WORLDS, backend="genesis", action=action)
drive = jax.jit(lambda observation: targets(policy, goals))
ours, theirs = native.init(), world.init()
move, look = jax.jit(native.step), jax.jit(lambda state: native.observe(state, seen))
paths = []
for _ in range(STEPS):
    ours = move(ours, drive(look(ours)))
    theirs = world.step(theirs, drive(world.observe(theirs, seen)))
    paths.append([np.asarray(look(ours)), np.asarray(world.observe(theirs, seen))])
paths = np.array(paths)
native.check(ours), world.check(theirs)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
left.semilogy(np.sqrt(losses))
left.set(xlabel="update", title="distance from the goals [m]")
for k in range(0, WORLDS, 4):
    right.plot(*paths[:, 0, k, [4, 6]].T, color="#1769aa", label="fphys" if k == 0 else None)
    right.plot(*paths[:, 1, k, [4, 6]].T, "--", color="#ec6a29", label="Genesis" if k == 0 else None)
    right.plot(*goals[k], "k+")
right.set(xlabel="x [m]", title="paths of the tip", aspect="equal")
right.legend(frameon=False)
plt.show()

# %% [markdown]
# What was trained here holds there:

# %%
apart = np.abs(paths[:, 0, :, 4:7] - paths[:, 1, :, 4:7]).max()
missed = float(jnp.sqrt(jnp.mean(distances(jnp.asarray(paths[-1, 1])) ** 2)))
print(f"tips at most {1e3 * apart:.2f} mm apart; in Genesis, goals missed by {1e3 * missed:.0f} mm")
assert losses[-1] < losses[0] / 25
assert missed < 0.05 and apart < 5e-3
