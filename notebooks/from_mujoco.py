# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # From MuJoCo and MJX
#
# The same files, the same names, the same numbers; then what MuJoCo does not have: gradients through contact, by state,
# control and every number of the model, inside `jit`.
#
# | MuJoCo | MJX | fphys |
# |---|---|---|
# | `MjModel.from_xml_path(p)` | `mjx.put_model(m)` | `fphys.load(p)`, or of an `MjModel` |
# | `MjData(m)` | `mjx.make_data(m)` | `fphys.init(model, num_worlds)` |
# | `mj_step(m, d)` | `mjx.step(m, d)` | `fphys.step(model, state, ctrl)` |
# | `mj_forward`, `d.qacc` | `mjx.forward` | `qacc, info = fphys.forward(model, state, ctrl)` |
# | `m.body_mass` | `m.body_mass` | `model.body.mass`, shape (1 or world, body) |
# | `mj_jacSite` | – | `fphys.jacobian(model, state, "site", name)` |
# | `mjd_transitionFD` (differences) | – | `A, B = fphys.linearize(model, state, ctrl)` (exact) |
# | `mujoco.rollout` (threads) | `jax.vmap` | the world axis of every array |

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import mujoco
import numpy as np

import fphys

jax.config.update("jax_enable_x64", True)  # to compare digits; float32 otherwise

theirs = mujoco.MjModel.from_xml_path(str(fphys.asset("quadruped")))
theirs.opt.tolerance = 0.0  # both to convergence
model = fphys.load(theirs)
data = mujoco.MjData(theirs)
mujoco.mj_resetDataKeyframe(theirs, data, 0)  # standing
state = fphys.init(model, num_worlds=1)

# %% [markdown]
# Random actions, one step at a time from the same states, feet on the ground:

# %%
rng = np.random.default_rng(0)
step = jax.jit(fphys.step)
errors, heights = [], []
for _ in range(100):
    ctrl = rng.uniform(*theirs.actuator_ctrlrange.T)
    data.ctrl[:] = ctrl
    here = state.replace(qpos=jnp.asarray(data.qpos)[None], qvel=jnp.asarray(data.qvel)[None])
    mujoco.mj_step(theirs, data)
    after = step(model, here, jnp.asarray(ctrl)[None])
    errors.append(float(np.abs(after.qvel[0] - data.qvel).max()) / max(1.0, np.abs(data.qvel).max()))
    heights.append((data.qpos[2], data.ncon))

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
left.semilogy(np.maximum(errors, 1e-17))
left.set(xlabel="step", title="difference of the next velocities, relative")
right.plot(np.array(heights)[:, 1], color="#ec6a29")
right.set(xlabel="step", title="contacts")
plt.show()
print(f"median {np.median(errors):.1e}, worst {max(errors):.1e}")

# %% [markdown]
# Linearisation: MuJoCo takes differences, one simulation per column; here it is one factorisation and exact.

# %%
A, B = jax.jit(fphys.linearize)(model, here, jnp.asarray(ctrl)[None])
data.qpos[:], data.qvel[:], data.ctrl[:] = here.qpos[0], here.qvel[0], ctrl
mujoco.mj_forward(theirs, data)
n = 2 * theirs.nv + theirs.na
differences = np.zeros((n, n)), np.zeros((n, theirs.nu))
mujoco.mjd_transitionFD(theirs, data, 1e-6, True, *differences, None, None)
apart = max(float(np.abs(x[0] - y).max() / np.abs(y).max()) for x, y in zip((A, B), differences))
print(f"A {A.shape}, B {B.shape}; from MuJoCo's differences {apart:.1e}")

# %% [markdown]
# And by what MuJoCo has no derivative for: how far the robot slides, by the friction under its feet. It stands, and was
# pushed to 1 m/s.

# %%
home = jnp.asarray(theirs.key_qpos[0])
pushed = fphys.init(model, 1, qpos=home).replace(qvel=jnp.zeros((1, theirs.nv)).at[0, 0].set(1.0))


def travelled(friction):
    slippery = model.replace({"geom.friction": friction})
    return fphys.rollout(slippery, pushed, jnp.zeros((10, 1, theirs.nu))).qpos[-1, 0, 0]


by_friction = jax.jit(jax.grad(travelled))(model.geom.friction)[0, :, 0].sum()
along = jnp.zeros_like(model.geom.friction).at[:, :, 0].set(1e-6)  # of the sliding friction of all geoms
distance = jax.jit(travelled)
difference = (distance(model.geom.friction + along) - distance(model.geom.friction - along)) / 2e-6
print(f"{1e3 * distance(model.geom.friction):.2f} mm; by friction {by_friction:.8e} m, differences {difference:.8e} m")

# %% [markdown]
# `fphys.to_mujoco(model, state)` goes back, for rendering or for a feature that is not here.

# %%
ours, world = fphys.to_mujoco(model, after)
assert np.allclose(world.qpos, after.qpos[0])
assert np.median(errors) < 1e-10 and apart < 1e-5
assert by_friction < 0 and abs(by_friction / difference - 1) < 1e-4
