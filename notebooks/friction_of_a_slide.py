# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # System identification: the friction of a slide
#
# A puck was thrown. It bounced five times, slid, and came to rest; its place and speed were recorded with 1 % noise. How much
# friction is between it and the floor, how much does it bounce, and how sure are these two numbers? The derivatives go through
# every bounce.

# %%
import functools
import json

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import fphys
from fphys import identify

jax.config.update("jax_enable_x64", True)

model = fphys.load("puck")
folder = fphys.asset("puck").rpartition("/")[0] + "/recordings"
motion, other = (identify.read(f"{folder}/{name}.csv", nu=0, nq=2, nv=2) for name in ("puck", "puck-2"))
substeps = round(motion.interval / float(model.opt.timestep[0]))
print(f"{len(motion.time)} rows, one every {1e3 * motion.interval:.0f} ms, {substeps} steps each")

# %% [markdown]
# ## The unknowns
#
# The model names its contact (`<pair name="puck-floor">`). Two of that pair's numbers are sought: the sliding friction, and the
# damping of the contact, `solref`'s second number, which says how high the puck bounces. Both stay positive, so their
# logarithms are sought. What `fphys.identify` needs is one function: the state at the next row, from the state at a row.

# %%
names = ("friction", "damping [1/s]")


def changed(values):
    """The model with the frictions and dampings of each world, values (world, 2)."""
    worlds = lambda leaf: jnp.broadcast_to(leaf, (len(values), *leaf.shape[1:]))
    friction = worlds(model.pair.friction).at[:, 0, :2].set(values[:, :1])
    solref = worlds(model.pair.solref).at[:, 0, 1].set(-values[:, 1])
    return model.replace({"pair.friction": friction, "pair.solref": solref})


def next_row(parameters, x, u):
    state = fphys.init(model, len(x), qpos=x[:, :2], qvel=x[:, 2:])
    state = fphys.step(changed(jnp.exp(parameters)), state, substeps=substeps)
    return jnp.concatenate([state.qpos, state.qvel], 1)


# %% [markdown]
# ## The search
#
# The recording is cut into windows. Each begins at a state that is itself unknown, near the recorded one (multiple
# shooting). Windows of 0.2 s hold one bounce at most, so the first guess may be poor. Windows of 1 s then use what only a
# longer motion shows. The search is Levenberg's and Marquardt's.

# %%
guess = np.array([0.24 * 1.3, 45.0 * 0.7])  # 30 % off
parameters, found = jnp.log(jnp.asarray(guess)), [guess]
for seconds in (0.2, 1.0):
    rows = round(seconds / motion.interval)
    windows = identify.windows(motion.ctrl, motion.x, rows, jnp.asarray(motion.x.std(0)))
    estimate = identify.estimate(next_row, windows, parameters)
    improve = jax.jit(functools.partial(identify.least_squares, next_row, windows))
    for _ in range(6):
        estimate = improve(estimate)
        found.append(np.exp(estimate.parameters))
    parameters = estimate.parameters
found = np.array(found)

# %% [markdown]
# ## How sure?
#
# The curvature at the minimum and what is left of the residual give standard deviations. They belong to logarithms, so they
# are parts of the value. The true numbers are known here, because MuJoCo made the recording.

# %%
sure = np.asarray(jax.jit(functools.partial(identify.deviations, next_row))(windows, estimate))
told = json.load(open(f"{folder}/puck.truth.json"))
truth = np.array([told["pair.friction"]["puck-floor"], told["pair.damping"]["puck-floor"]])
for name, value, part, true in zip(names, found[-1], sure, truth, strict=True):
    print(f"{name}: {value:.4f} ± {value * part:.4f}, true {true}")

# %% [markdown]
# ## Does it predict?
#
# Another throw, not learnt from, is simulated for its two seconds from its first recorded row.

# %%
values = jnp.log(jnp.asarray(np.stack([found[0], found[-1]])))
u = jnp.zeros((len(other.time) - 1, 2, 0))  # nothing pushes the puck
first = jnp.asarray(other.x[:1]).repeat(2, 0)
before, after = np.moveaxis(jax.jit(functools.partial(identify.simulate, next_row))(values, first, u), 1, 0)
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3), layout="constrained")
left.plot(found / truth, "o-", label=names)
left.axhline(1.0, color="k", lw=0.5)
left.set(xlabel="iteration", title="found / true")
left.legend(frameon=False)
middle.plot(other.x[:, 0], other.x[:, 1], "0.7", lw=4, label="recorded")
middle.plot(before[:, 0], before[:, 1], "C1--", label="first guess")
middle.plot(after[:, 0], after[:, 1], "C0", label="found")
middle.set(xlabel="x [m]", ylabel="z [m]", title="a throw that was not learnt from")
middle.legend(frameon=False)
right.plot(other.time, other.x[:, 2], "0.7", lw=4)
right.plot(other.time, before[:, 2], "C1--", other.time, after[:, 2], "C0")
right.set(xlabel="time [s]", title="its speed along x [m/s]")
plt.show()
spread = other.x.std(0)
off = [float((np.sqrt(((x - other.x) ** 2).mean(0)) / spread).max()) for x in (before, after)]
print(f"root mean square error of the worst channel, in spreads: {off[0]:.2f} before, {off[1]:.2f} after")

# %% [markdown]
# ## To try
#
# 1. Begin with windows of 1 s. From how far off does the search still find the truth?
# 2. Cut the recording after its first bounce. Which of the two numbers is still sure?
# 3. Take the mass of the puck as a third unknown. What do its deviation and the physics of sliding say about it?
# 4. Your own throw: `fphys run identify-contact --recording throw.csv --model scene.xml`.

# %%
np.testing.assert_allclose(found[-1], truth, rtol=0.02)
assert (sure < 0.02).all() and off[1] < 0.15 < off[0]
