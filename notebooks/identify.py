# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Identify a system from a recording
#
# A double pendulum was recorded: torques, angles and speeds, with noise. Which masses and dampings explain them? The
# simulation is differentiable, so this is a search along exact gradients.

# %%
import json

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import fphys

jax.config.update("jax_enable_x64", True)

model = fphys.load(fphys.asset("double-pendulum"))
folder = fphys.asset("double-pendulum").rpartition("/")[0] + "/recordings"
told = fphys.identify.read(f"{folder}/double-pendulum.csv", nu=2, nq=2, nv=2)
truth = json.load(open(f"{folder}/double-pendulum.truth.json"))
print(f"{len(told.time)} rows, one every {told.interval * 1e3:.0f} ms;", list(truth))

# %% [markdown]
# Long predictions of a chaotic system have useless gradients. So the recording is cut into windows, each a *world* that starts
# from a recorded state and predicts the next rows: multiple shooting, for which the world axis is made.

# %%
every = max(round(told.interval / float(model.opt.timestep[0])), 1)
model = model.replace({"opt.timestep": jnp.array([told.interval / every])})
rows = 10
starts = np.arange(0, len(told.time) - rows, rows)
state = fphys.init(model, len(starts), qpos=told.qpos[starts], qvel=told.qvel[starts])
ctrl = np.stack([told.ctrl[s : s + rows] for s in starts], 1).repeat(every, 0)  # (step, world, actuator)
wanted = np.stack([told.x[s + 1 : s + rows + 1] for s in starts], 1)  # (row, world, 4)
scale = wanted.std((0, 1))


def changed(log):
    """Masses and dampings stay positive: what is fitted are logarithms of factors. Inertia goes with the mass."""
    factor = jnp.concatenate([jnp.ones(1), jnp.exp(log[:2])])[None]
    changes = {"body.mass": model.body.mass * factor, "body.inertia": model.body.inertia * factor[..., None]}
    return model.replace(changes | {"dof.damping": model.dof.damping * jnp.exp(log[2:])[None]})


def residual(log):
    states = fphys.rollout(changed(log), state, jnp.asarray(ctrl))
    x = jnp.concatenate([states.qpos, states.qvel], -1)[every - 1 :: every]
    return ((x - wanted) / scale).ravel()


# %% [markdown]
# One backward pass gives the gradient by all parameters, four here or a thousand. BFGS makes a curvature of the gradients
# that it meets.

# %%
loss = jax.jit(jax.value_and_grad(lambda log: (residual(log) ** 2).mean()))
log, inverse, history = jnp.zeros(4), 0.3 * np.eye(4), []
value, slope = loss(log)
for _ in range(40):
    direction, length = -inverse @ np.asarray(slope), 1.0
    while True:
        next_value, next_slope = loss(log + length * direction)
        if next_value <= value + 1e-4 * length * direction @ np.asarray(slope) or length < 1e-6:
            break
        length /= 2
    s, y = length * direction, np.asarray(next_slope - slope)
    if s @ y > 1e-14:  # the curvature that was met (Broyden, Fletcher, Goldfarb, Shanno 1970)
        left = np.eye(4) - np.outer(s, y) / (s @ y)
        inverse = left @ inverse @ left.T + np.outer(s, s) / (s @ y)
    done = abs(value - next_value) < 1e-9 * value
    log, value, slope = log + s, next_value, next_slope
    history.append(float(value))
    if done:
        break
found = changed(log)
print(f"{len(history)} iterations, error {history[0]:.2e} -> {history[-1]:.2e}")

# %%
before, after = (jax.jit(residual)(v).reshape(wanted.shape) for v in (jnp.zeros(4), log))
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
left.semilogy(history)
left.set(xlabel="iteration", title="mean squared error")
lead = np.arange(1, rows + 1) * told.interval
right.semilogy(lead, np.sqrt((before**2).mean((1, 2))), label="as the file says")
right.semilogy(lead, np.sqrt((after**2).mean((1, 2))), label="identified")
right.set(xlabel="predicted ahead [s]", title="error, in standard deviations")
right.legend()
plt.show()

# %%
masses, dampings = np.asarray(found.body.mass)[0, 1:], np.asarray(found.dof.damping)[0]
true_masses, true_dampings = (np.array(list(truth[name].values())) for name in ("body.mass", "dof.damping"))
for name, here, there in (("masses [kg]", masses, true_masses), ("dampings [N m s/rad]", dampings, true_dampings)):
    print(f"{name}: found {here.round(4)}, true {there}")
assert history[-1] < 0.2 * float((before**2).mean())
np.testing.assert_allclose(masses, true_masses, rtol=0.05)
np.testing.assert_allclose(dampings, true_dampings, rtol=0.1)
