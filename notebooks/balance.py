# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Balance by LQR, swing up by iLQR
#
# `fphys.linearize` gives the exact derivatives of a step. That is all that the linear-quadratic regulator needs to hold a
# mechanism upright, and, step by step along a motion, all that iLQR needs to get it there.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import fphys
from fphys.experiments import ilqr

jax.config.update("jax_enable_x64", True)

model = fphys.load(fphys.asset("cartpole"))
h = float(model.opt.timestep[0])
upright = fphys.init(model, 1)
A, B = (m[0] for m in fphys.linearize(model, upright, jnp.zeros((1, 1))))
print("x = (cart, angle, their rates); growth of the free motion per step:", np.abs(np.linalg.eigvals(A)).max().round(4))

# %% [markdown]
# The regulator minimises the sum of x'Qx + u'Ru: Riccati's equation, iterated until it stands still.

# %%
Q, R = jnp.diag(jnp.array([1.0, 1.0, 0.1, 0.1])), 0.01 * jnp.eye(1)


def riccati(P, _):
    K = jnp.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
    return Q + A.T @ P @ (A - B @ K), K


P, gains = jax.lax.scan(riccati, Q, length=2000)
K = gains[-1]
print("feedback:", K[0].round(2), "| slowest mode:", np.abs(np.linalg.eigvals(A - B @ K)).max().round(4))


def held(state, steps):
    def advance(s, _):
        s = fphys.step(model, s, -ilqr.vector(s) @ K.T)
        return s, ilqr.vector(s)

    return jax.lax.scan(advance, state, length=steps)


worlds = 21
lean = jnp.linspace(-1.2, 1.2, worlds)  # rad: the law is linear, the pole is not
leaning = fphys.init(model, worlds, qpos=jnp.stack([jnp.zeros(worlds), lean], 1))
_, path = jax.jit(lambda s: held(s, 400))(leaning)
stands = np.abs(np.asarray(path[-1, :, 1])) < 0.05
print(f"it catches the pole from {np.abs(lean[stands]).max():.2f} rad")

# %% [markdown]
# From hanging it cannot. Six guesses are six worlds, and the best of them counts. iLQR linearises along a whole motion, solves that linear problem backwards in time, tries the new
# controls on the true mechanism, and goes on from there.

# %%
steps, tries = 250, 6
hanging = fphys.init(model, tries, qpos=jnp.array([0.0, jnp.pi]))
weights = jnp.tile(jnp.array([0.02, 0.05, 0.001, 0.001]), (steps, 1)).at[-15:].set(jnp.array([10.0, 50.0, 1.0, 5.0]))
cost = ilqr.Cost(weights, jnp.array([1e-3]), jnp.array([10.0]))
plan = ilqr.begin(model, hanging, cost, 0.3 * jax.random.normal(jax.random.key(0), (5, tries, 1)).repeat(steps // 5, 0))
improve = jax.jit(lambda plan: ilqr.improve(model, hanging, cost, plan))
values = [float(plan.value.min())]
for _ in range(80):
    plan = improve(plan)
    values.append(float(plan.value.min()))
    if len(values) > 10 and values[-6] - values[-1] < 1e-4 * values[-1]:
        break
best = plan.x[:, plan.value.argmin()]
print(f"{len(values) - 1} iterations, cost {values[0]:.1f} -> {values[-1]:.2f}; in the end x = {best[-1].round(3)}")

# %% [markdown]
# One takes over from the other: iLQR's controls first, then the regulator.

# %%
swung = fphys.init(model, 1, qpos=best[-1, :2], qvel=best[-1, 2:])
_, after = jax.jit(lambda s: held(s, 200))(swung)
whole = np.concatenate([best, after[:, 0]])
times = h * np.arange(1, len(whole) + 1)
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3), layout="constrained")
left.plot(h * np.arange(1, 401), path[:, stands, 1], lw=0.7)
left.set(xlabel="time [s]", title="LQR: angle [rad]")
middle.semilogy(values)
middle.set(xlabel="iteration", title="iLQR: cost")
right.plot(times, whole[:, 1], label="angle [rad]")
right.plot(times, whole[:, 0], label="cart [m]")
right.axvline(h * steps, color="k", lw=0.5)
right.set(xlabel="time [s]", title="swing up, then hold")
right.legend()
plt.show()

# %%
assert np.abs(lean[stands]).max() > 0.2
assert abs(whole[-1, 1]) < 0.02 and values[-1] < 0.2 * values[0]
