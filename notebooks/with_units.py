# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Units
#
# A torque and an energy are both N m, degrees and radians are both numbers, and a simulation does not mind either. Units
# that are checked while JAX traces, and gone when the program runs, do.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import fphys
from fphys import units

arm, weight = units.length("12 in"), units.mass("2 lb")
weight_force = weight * units.acceleration("9.81 m/s^2")
print(weight_force, "|", units.torque(arm * weight_force), "|", units.torque(arm * weight_force).to("lbf in"))

# %% [markdown]
# A length times a force might be a torque or an energy: it has no kind until it is named. Vectors know better. What does not
# fit is refused with what was expected:

# %%
lever = units.length(jnp.array([0.3, 0.0, 0.0]))
push = units.force(jnp.array([0.0, 0.0, -9.0]))
print(units.cross(lever, push).kind.name, "|", units.dot(push, lever).kind.name, "|", (push / weight).kind.name)
refused = 0
for wrong in (
    lambda: units.cross(lever, push) + units.dot(push, lever),
    lambda: arm * weight_force + units.energy(1.0),
    lambda: units.angle("30 deg") + 0.5,
    lambda: units.angular_velocity("3 Hz"),
):
    try:
        wrong()
    except units.UnitError as error:
        refused += 1
        print(error)

# %% [markdown]
# A pendulum. Its model, its state and its torques take quantities, and refuse a force for a torque, or a reading in degrees.

# %%
model = fphys.load(fphys.asset("double-pendulum"))
model = model.replace({"opt.timestep": units.duration("5 ms"), "opt.gravity": units.acceleration([0.0, 0.0, -9.81])})
state = fphys.init(model, 1, qpos=units.angle([60.0, 0.0], "deg"))
for wrong in (units.force(jnp.ones((1, 2))), units.torque(jnp.ones((1, 2))).to("lbf in")):
    try:
        fphys.step(model, state, wrong)
    except units.UnitError as error:
        refused += 1
        print(error)

# %% [markdown]
# Nothing of it is left under `jit`: the program is the same, letter for letter.

# %%
step = lambda state, torque: fphys.step(model, state, torque).qpos
with_units = jax.make_jaxpr(step)(state, units.torque(jnp.ones((1, 2))))
without = jax.make_jaxpr(step)(state, jnp.ones((1, 2)))
print("the same program:", str(with_units) == str(without))

# %% [markdown]
# Gradients have units, too: of an energy by an angle, a torque. `units.grad` gives it; `jax.grad` would call it an angle. Here
# the torque that gravity exerts on the pendulum is the slope of its potential energy.


# %%
def potential(angle):
    posed = state.replace(qpos=angle.value)
    return units.energy(fphys.energy(model, posed)[0][0])


angle = units.angle(state.qpos)
holding = jax.jit(units.grad(potential))(angle)
print(holding.kind.name, holding.to("N m"))
assert jnp.allclose(holding.value, fphys.bias(model, state), rtol=1e-4, atol=1e-5)

# %%
angles = units.angle(jnp.linspace(-180, 180, 73), "deg")
poses = units.angle(jnp.stack([angles.value, jnp.zeros(73)], 1)[:, None])
levels = jax.vmap(lambda q: potential(units.angle(q)))(poses.value)
slopes = jax.vmap(units.grad(potential))(poses)
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
axis.plot(angles.to("deg").value, levels.value, label="energy [J]")
axis.plot(angles.to("deg").value, slopes.value[:, 0, 0], label="torque [N m]")
axis.set(xlabel="angle of the shoulder [deg]")
axis.legend()
plt.show()

# %% [markdown]
# Bounds raise where the numbers are known. Under `jit` they flag: the world whose torque is beyond them stands still, and says
# so, and the other goes on.

# %%
two = fphys.init(model, 2, qpos=units.angle([60.0, 0.0], "deg"))
limited = jax.jit(lambda s, torque: fphys.step(model, s, torque.within("-3 N m", "3 N m")))
after = limited(two, units.torque(jnp.array([[1.0, 0.0], [50.0, 0.0]])))
try:
    fphys.check(after)
except fphys.errors.StateError as error:
    print(error)

# %%
assert refused == 6 and str(with_units) == str(without)
assert holding.kind == units.torque and slopes.kind == units.torque
assert np.asarray(after.status).tolist() == [0, int(fphys.Status.BADCTRL)]
