# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # A humanoid on one leg: LQR, then iLQR
#
# `fphys.linearize` gives the exact derivatives of a step, contact included. That is all that the linear-quadratic regulator
# needs to hold a humanoid of 73 kg on one foot, and, step by step along a motion, all that iLQR needs to let it kick.

# %%
import os

import imageio_ffmpeg
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import mediapy
import numpy as np

import fphys
import fphys.render
from fphys.math import rotate

jax.config.update("jax_enable_x64", True)

full = bool(os.environ.get("FPHYS_FULL"))  # more worlds, a longer motion
model = fphys.load(fphys.asset("humanoid"))
h, nv, nu = float(model.opt.timestep[0]), model.structure.nv, model.structure.nu
stance, swing = model.id("site", "left_foot"), model.id("site", "right_foot")
masses = model.body.mass[..., None] / model.body.mass.sum()
joints = {name: 6 + i for i, name in enumerate(model.names("joint"))}  # places in qpos, whose first 7 are the root


def put(qpos, **angles):
    """qpos with some joints moved by an angle [rad]."""
    return qpos.at[np.array([joints[name] for name in angles])].add(jnp.stack([*map(jnp.asarray, angles.values())]))


def mass_centre(state):  # (world, 3)
    body = fphys.kinematics(model, state).body
    return (masses * (body.pos + rotate(body.quat, jnp.broadcast_to(model.body.ipos, body.pos.shape)))).sum(1)


# %% [markdown]
# ## A pose that can be held
#
# The left foot is flat; hip and ankle bring the centre of mass over it. Newton's method finds both angles.

# %%
lifted = {"right_hip_flexion": 0.6, "right_hip_abduction": 0.25, "right_knee": 1.0, "right_elbow": 0.4, "left_elbow": 0.4}
bent = {"left_hip_flexion": 0.1, "left_knee": 0.2, "left_ankle_dorsiflexion": 0.1}
arms = {"left_shoulder_abduction": 0.3, "right_shoulder_abduction": 0.3}
one = fphys.init(model, 1, qpos=put(model.qpos0[0], **lifted, **bent, **arms))


def leaning(lean):  # sideways, forward [rad]
    qpos = put(one.qpos[0], left_hip_abduction=lean[0], left_ankle_inversion=lean[0])
    return put(qpos, left_hip_flexion=lean[1], left_ankle_dorsiflexion=-lean[1])


@jax.jit
def newton(lean):
    """A better lean, where the mass is off by, and where the foot is."""

    def off(lean):
        state = one.replace(qpos=leaning(lean)[None])
        foot = fphys.kinematics(model, state).site.pos[0, stance]
        gap = (mass_centre(state)[0] - foot)[:2]
        return gap, (gap, foot)

    slope, (gap, foot) = jax.jacrev(off, has_aux=True)(lean)
    return lean - jnp.linalg.solve(slope, gap), gap, foot


lean = jnp.zeros(2)
for _ in range(5):
    before = lean
    lean, gap, foot = newton(before)
qpos = leaning(before).at[2].add(0.02 - foot[2])  # the sole, 2 cm below the foot's middle, on the floor
print(f"centre of mass over the foot to {float(jnp.abs(gap).max()):.0e} m; it leans {before.round(3)} rad")

# %% [markdown]
# How deep does the foot sink in? Inverse dynamics tell: at rest, what the joints cannot supply must come from the floor.
# Six hundred heights are six hundred worlds.

# %%
heights = jnp.linspace(-2e-3, 0.0, 601)
sinking = fphys.init(model, 601, qpos=jnp.tile(qpos, (601, 1)).at[:, 2].add(heights))
forces = jax.jit(fphys.inverse)(model, sinking, jnp.zeros((601, nv)))
best = jnp.abs(forces[:, 2]).argmin()
stand = jax.tree.map(lambda leaf: leaf[best : best + 1], jax.device_get(sinking))  # in NumPy: nothing to compile
gear = model.actuator.gear[0, :, 0]
hold = forces[best, 6:] / gear  # the motors' controls: every joint has one
print(f"{-1e3 * heights[best]:.2f} mm; vertical force left {forces[best, 2]:.1f} of {9.81 * 73:.0f} N")
print(f"largest control {jnp.abs(hold).max():.2f} of 1")

# %% [markdown]
# ## The regulator
#
# It minimises the sum of squares of what a *task* gives, and of the controls: how far the centre of mass is from the middle
# of the foot, and the joints from the pose. The first rows of the mass matrix are the total mass times the Jacobian of the
# centre of mass. Riccati's equation is iterated until it stands still, by doubling.


# %%
@jax.jit
def task(state):
    """Values (world, 26) and their Jacobian (world, 26, nv): offset of the mass, joints, place of the free foot."""
    site = fphys.kinematics(model, state).site.pos
    feet = [fphys.jacobian(model, state, "site", name)[:, :3] for name in ("left_foot", "right_foot")]
    value = jnp.concatenate([(mass_centre(state) - site[:, stance])[:, :2], state.qpos[:, 7:], site[:, swing]], 1)
    mass = fphys.mass_matrix(model, state)[:, :2] / model.body.mass.sum()
    pose = jnp.broadcast_to(jnp.eye(nv)[6:], (len(value), nu, nv))
    return value, jnp.concatenate([mass - feet[0][:, :2], pose, feet[1]], 1)


weights = jnp.concatenate([jnp.full(2, 1000.0), jnp.full(3, 3.0), jnp.full(nu - 9, 0.3), jnp.full(6, 3.0), jnp.zeros(3)])
at_rest, rows = task(stand)
A, B = (matrix[0] for matrix in jax.jit(fphys.linearize)(model, stand, hold[None]))
Q = jnp.zeros((2 * nv, 2 * nv)).at[:nv, :nv].set(rows[0].T @ (weights[:, None] * rows[0]))
R = jnp.eye(nu)


@jax.jit
def riccati(a, g, p):
    """Two steps as one, then four, then eight: the doubling algorithm."""
    solved = jnp.linalg.solve(jnp.eye(2 * nv) + g @ p, jnp.concatenate([a, g], 1))
    to, gain = solved[:, : 2 * nv], solved[:, 2 * nv :]
    return a @ to, g + a @ gain @ a.T, p + a.T @ p @ to


iterate = A, B @ B.T, Q
for _ in range(11):  # 2048 steps
    iterate = riccati(*iterate)
P = iterate[2]
K = jnp.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
growth = [np.sort(np.abs(np.linalg.eigvals(matrix)))[-1] for matrix in (A, A - B @ K)]
print(f"growth of the fastest mode per second: {growth[0] ** (1 / h):.1e}; with feedback {growth[1] ** (1 / h):.3f}")

# %% [markdown]
# Its motors tremble, by a tenth of their strength. Half of the worlds have the regulator, half have only the controls that
# hold the pose.

# %%
worlds, steps = (16, 1000) if full else (2, 500)
start = fphys.init(model, 2 * worlds, qpos=stand.qpos[0])
regulated = jnp.arange(2 * worlds)[:, None] < worlds
noise = jax.random.normal(jax.random.key(0), (steps, 2 * worlds, nu))


def tremble(carry, fresh):
    state, shake = carry
    shake = 0.96 * shake + 0.1 * 0.28 * fresh  # 0.1 in the long run
    off = jnp.concatenate([fphys.difference(model, stand.qpos, state.qpos), state.qvel], 1)
    state = fphys.step(model, state, hold - jnp.where(regulated, off @ K.T, 0.0) + shake)
    return (state, shake), state


@jax.jit
def regulate(start, noise):
    return jax.lax.scan(tremble, (start, jnp.zeros((2 * worlds, nu))), noise)[1]


shaken = regulate(start, noise)
pelvis = shaken.qpos[:, :, 2]
print(f"after {steps * h:.1f} s the pelvis is at {pelvis[-1, :worlds].round(2)} m, without feedback at {pelvis[-1, worlds:].round(2)}")

# %% [markdown]
# ## A kick
#
# iLQR: linearise along the whole motion, all its steps as worlds of one call; solve that linear problem backwards in time;
# try the new controls on the true humanoid, with several step lengths at once; go on from there. The task stays the same,
# but for half a tenth of a second the free foot is to be at a goal. In the end counts what the regulator says that the rest
# will cost, $x^T P x$: there it takes over.

# %%
length, strike = (160, 80) if full else (100, 50)
goal = at_rest[0, -3:] + jnp.array([0.55, 0.0, 0.3])
wish = at_rest.repeat(length, 0).at[:, -3:].set(goal)
weight = jnp.tile(weights, (length, 1)).at[strike - 5 : strike + 5, -3:].set(300.0)
rates = 0.5 ** jnp.arange(6 if full else 3)


def deviation(base, state):
    return jnp.concatenate([fphys.difference(model, base.qpos, state.qpos), state.qvel - base.qvel], 1)


def play(state, plan):
    """Controls u + rate k + K (x' - x), one world a rate; states, controls and costs."""
    rate = rates[:, None]

    def advance(state, now):
        base, u, k, gain = now
        u = u + rate * k - deviation(base, state) @ gain.T
        return fphys.step(model, state, u), (state, u)

    last, (states, us) = jax.lax.scan(advance, jax.tree.map(lambda x: x.repeat(len(rates), 0), state), plan)
    after = jax.tree.map(lambda x, end: jnp.concatenate([x[1:], end[None]]), states, last)
    miss = jax.vmap(task)(after)[0] - wish[:, None]
    rest = deviation(stand, last)
    cost = (weight[:, None] * miss**2).sum((0, 2)) + ((us - hold) ** 2).sum((0, 2)) + ((rest @ P) * rest).sum(1)
    return states, after, us, cost


@jax.jit
def improve(states, after, us):
    """One iteration, from states before (T, ...), after and controls of a motion."""
    a, b = fphys.linearize(model, states, us)
    value, rows = task(after)
    rows = jnp.pad(rows, ((0, 0), (0, 0), (0, nv)))  # velocities do not count
    slope = (rows.mT @ (weight * (value - wish))[..., None])[..., 0]
    bend = rows.mT @ (weight[..., None] * rows)

    def back(ahead, now):
        a, b, u, slope, bend = now
        slope, bend = ahead[0] + slope, ahead[1] + bend
        hessian = R + b.T @ bend @ b
        solved = jnp.linalg.solve(hessian, jnp.column_stack([u - hold + b.T @ slope, b.T @ bend @ a]))
        k, gain = solved[:, 0], solved[:, 1:]
        slope = (a - b @ gain).T @ slope - gain.T @ (u - hold)
        bend = a.T @ bend @ (a - b @ gain)
        return (slope, (bend + bend.T) / 2), (-k, gain)

    end = deviation(stand, jax.tree.map(lambda x: x[-1:], after))[0]
    _, (k, gains) = jax.lax.scan(back, (P @ end, P), (a, b, us, slope, bend), reverse=True)
    return choose(*play(stand, (jax.tree.map(lambda x: x[:, None], states), us, k, gains)))


def choose(states, after, us, costs):
    best = jnp.where(jnp.isfinite(costs), costs, jnp.inf).argmin()
    return *jax.tree.map(lambda x: x[:, best], (states, after, us)), costs[best]


still = jax.tree.map(lambda x: np.repeat(x, length, 0), stand)
motion, costs = (still, still, jnp.tile(hold, (length, 1))), []
for _ in range(12 if full else 4):
    *motion, cost = improve(*motion)
    costs.append(float(cost))
motion = jax.device_get(motion)
kick = task(jax.tree.map(lambda x: x[strike : strike + 1], motion[1]))[0][0, -3:]  # where the foot is at the strike
print("cost:", *np.round(costs, 1), "| the foot misses by", jnp.linalg.norm(kick - goal).round(3), "m")

# %% [markdown]
# Then the regulator holds again: it goes on from the last state of the kick.

# %%
after = jax.device_get(regulate(jax.tree.map(lambda x: x[-1:].repeat(2 * worlds, 0), motion[1]), 0.0 * noise))
whole = jax.tree.map(lambda x, y: np.concatenate([x, y[:, 0]])[:, None], motion[1], after)  # (T, one world, ...)
moments = [0, strike // 2, strike, length - 1, len(whole.time) - 1]
view = fphys.render.Camera(azimuth=110, elevation=-8, distance=2.3, lookat=(0.2, 0.0, 0.9))
shots = fphys.render.frames(model, jax.tree.map(lambda x: x[np.array(moments)], whole), view, 400, 320)
figure, axes = plt.subplot_mosaic("aab;ccc;ccc", figsize=(11, 8), layout="constrained")
times = h * jnp.arange(1, steps + 1)
axes["a"].plot(times, pelvis[:, :worlds], "C0", times, pelvis[:, worlds:], "C3")
axes["a"].set(xlabel="time [s]", title="pelvis [m] under trembling motors: blue LQR, red without", ylim=(0, 1.1))
axes["b"].semilogy(costs, "o-")
axes["b"].set(xlabel="iteration", title="iLQR: cost of the kick")
axes["c"].imshow(np.concatenate(list(shots), 1))
axes["c"].set_title("the kick, at " + ", ".join(f"{h * (m + 1):.2f}" for m in moments) + " s")
axes["c"].axis("off")
plt.show()

# %% [markdown]
# The same as a film, at a third of its speed:

# %%
mediapy.set_ffmpeg(imageio_ffmpeg.get_ffmpeg_exe())  # it came with fphys
film = fphys.render.frames(model, jax.tree.map(lambda x: x[: 2 * length], whole), view, 320, 256, every=3)
mediapy.show_video(film, fps=1 / (9 * h), qp=32)

# %%
assert float(jnp.abs(pelvis[:, :worlds] - stand.qpos[0, 2]).max()) < 0.05 and float(pelvis[-1, worlds:].max()) < 0.5
assert float(jnp.linalg.norm(kick - goal)) < 0.03 and costs[-1] < 0.2 * costs[0]
assert float(jnp.abs(after.qpos[-1, 0, 7:] - stand.qpos[0, 7:]).max()) < 0.1 and abs(after.qpos[-1, 0, 2] - qpos[2]) < 0.03
