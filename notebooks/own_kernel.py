# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Your own Warp kernel
#
# A wave on a string, as a kernel of one's own. `fphys.bridge.warp_op` makes it a JAX operation: `jit`, `grad`, `vmap` and
# `scan` compose with it, and its gradient comes from Warp's adjoint kernel.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import warp as wp

import fphys


@wp.kernel
def wave_kernel(
    height: wp.array2d(dtype=float),
    before: wp.array2d(dtype=float),
    courant: wp.array2d(dtype=float),
    height_out: wp.array2d(dtype=float),
):
    """u'' = c^2 u_xx, by central differences; courant is (c h / dx)^2 of each place."""
    world, i = wp.tid()
    n = height.shape[1]
    if i > 0 and i < n - 1:
        bend = height[world, i - 1] - 2.0 * height[world, i] + height[world, i + 1]
        height_out[world, i] = 2.0 * height[world, i] - before[world, i] + courant[world, i] * bend


# %% [markdown]
# The launch function says which kernels run on which arrays. Arrays are symbols in it: they have shapes, and no values. The
# ends of the string are not written; what no launch writes is zero.


# %%
def wave_launch(launch, height, before, courant, height_out):
    launch(wave_kernel, dim=height.shape, inputs=[height, before, courant], outputs=[height_out])


wave = fphys.bridge.warp_op(wave_launch, outputs=lambda height, before, courant: height)

points, steps, worlds = 200, 300, 3
x = np.linspace(0.0, 1.0, points, dtype=np.float32)
pluck = jnp.asarray(np.exp(-(((x - np.array([[0.3], [0.5], [0.6]])) / 0.05) ** 2)), jnp.float32)  # (world, point)


def motion(courant, start):
    def step(state, _):
        height, before = state
        return (wave(height, before, courant), height), height

    (height, _), heights = jax.lax.scan(step, (start, start), length=steps)
    return height, heights


uniform = jnp.full((worlds, points), 0.25, jnp.float32)
end, heights = jax.jit(motion)(uniform, pluck)
figure, axes = plt.subplots(1, worlds, figsize=(9, 3), layout="constrained", sharey=True)
for world, axis in enumerate(axes):
    axis.pcolormesh(x, np.arange(steps), heights[:, world], cmap="RdBu", vmin=-1, vmax=1)
    axis.set(xlabel="place", title=f"world {world}")
axes[0].set(ylabel="step")
plt.show()

# %% [markdown]
# The same in plain JAX is the oracle: values and gradients agree. `fphys.testing` looks at the transforms, too, with other
# data in every world; that is how fphys's own kernels are tested.


# %%
def plain(height, before, courant):
    bend = height[:, :-2] - 2 * height[:, 1:-1] + height[:, 2:]
    inside = 2 * height[:, 1:-1] - before[:, 1:-1] + courant[:, 1:-1] * bend
    return jnp.pad(inside, ((0, 0), (1, 1)))


args = pluck, jnp.roll(pluck, 1, 1), uniform
weights = jax.random.normal(jax.random.key(0), pluck.shape)
ours = jax.grad(lambda *a: (weights * wave(*a)).sum(), (0, 1, 2))(*args)
theirs = jax.grad(lambda *a: (weights * plain(*a)).sum(), (0, 1, 2))(*args)
worst = max(float(jnp.abs(a - b).max()) for a, b in zip(ours, theirs))
print(f"largest difference of a gradient: {worst:.1e}")
fphys.testing.check_transforms(wave, tuple(np.asarray(a[:, :20]) for a in args), batches=(2,), max_patterns=2, perturb=0.1)

# %% [markdown]
# A gradient through three hundred launches: where is the string heavy? Each world has a slow stretch; from the motion of
# one point, descent on the wave's speed finds where it is.

# %%
truth = uniform.at[:, 120:150].set(0.12)
heard = jax.jit(lambda c: motion(c, pluck)[1][:, :, 60])(truth)  # (step, world), at one place
slope = jax.jit(jax.value_and_grad(lambda c: ((motion(jax.nn.sigmoid(c), pluck)[1][:, :, 60] - heard) ** 2).sum()))

import optax

guess = jnp.full((worlds, points), jnp.log(0.25 / 0.75), jnp.float32)
optimizer = optax.adam(0.03)
memory, history = optimizer.init(guess), []
for _ in range(120):
    value, gradient = slope(guess)
    change, memory = optimizer.update(gradient.mean(0, keepdims=True).repeat(worlds, 0), memory)  # one string, three tries
    guess, history = guess + change, [*history, float(value)]

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
left.semilogy(history)
left.set(xlabel="iteration", title="error of the recorded motion")
right.plot(x, truth[0], x, jax.nn.sigmoid(guess[0]))
right.set(xlabel="place", title="(c h / dx)², true and found")
plt.show()

# %%
found = np.asarray(jax.nn.sigmoid(guess[0]))
print(f"slow stretch {found[120:150].mean():.3f}, elsewhere {found[5:115].mean():.3f}")
assert worst < 1e-6
assert history[-1] < 0.05 * history[0]
assert found[120:150].mean() < 0.8 * found[5:115].mean()
