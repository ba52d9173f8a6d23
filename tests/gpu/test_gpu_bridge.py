"""Warp operations on a CUDA device: the values, gradients and transforms that the CPU gives.

``pytest -m gpu`` runs these; without a CUDA device they are skipped.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp

import fphys
from fphys.testing import check_grads, check_transforms

pytestmark = pytest.mark.gpu

WORLDS, PARTICLES = 64, 5


@wp.kernel
def spring_forces(
    # In:
    x: wp.array2d(dtype=wp.float64),
    stiffness: wp.array2d(dtype=wp.float64),
    # Out:
    force_out: wp.array2d(dtype=wp.float64),
):
    """A ring of stiffening springs: it gathers from the next particle of the same world."""
    world, i = wp.tid()
    n = x.shape[1]
    stretch = x[world, (i + 1) % n] - x[world, i]
    force_out[world, i] = stiffness[world, 0] * stretch * stretch * stretch


def launch_forces(launch, x, stiffness, force):
    launch(spring_forces, dim=x.shape, inputs=[x, stiffness], outputs=[force])


forces = fphys.bridge.warp_op(launch_forces, outputs=lambda x, stiffness: x)


def expected(x, stiffness):
    return stiffness * (jnp.roll(x, -1, axis=1) - x) ** 3


@pytest.fixture
def args():
    rng = np.random.default_rng(0)
    return rng.standard_normal((WORLDS, PARTICLES)), 1.0 + rng.random((1, 1))


def close(value, wanted, tol=1e-13):
    value, wanted = np.asarray(value), np.asarray(wanted)
    assert value.shape == wanted.shape
    assert np.max(np.abs(value - wanted), initial=0.0) <= tol * max(1.0, np.max(np.abs(wanted), initial=0.0))


def on(device, tree):
    return jax.device_put(tree, device)


def test_value_and_gradient_equal_the_cpus(gpu, cpu, on_gpu, args):
    def loss(x, stiffness):
        return jnp.sum(jnp.sin(forces(x, stiffness)))

    run = jax.jit(lambda x, k: (forces(x, k), jax.grad(loss, argnums=(0, 1))(x, k)))
    with on_gpu():
        there = run(*on(gpu, args))
    here = run(*on(cpu, args))
    assert jax.tree.leaves(there)[0].devices() == {gpu}
    jax.tree.map(close, there, here)
    close(there[0], expected(*args))


def test_transforms(gpu, on_gpu, args):
    x, stiffness = args
    with on_gpu(), jax.default_device(gpu):
        check_transforms(forces, (x[:3], stiffness))
        check_grads(forces, (x[:3], stiffness))


def test_a_long_scan_replays_what_it_recorded(gpu, on_gpu, args):
    """XLA may capture the launches in a graph and replay it with other buffers: every step must see its own."""
    x, stiffness = on(gpu, args)
    steps = 200

    def step(x, _):
        x = x + 1e-2 * forces(x, stiffness)
        return x, x

    @jax.jit
    def roll(x):
        return jax.lax.scan(step, x, None, length=steps)[1]

    with on_gpu():
        path, again, wanted = np.asarray(roll(x)), np.asarray(roll(x)), np.asarray(args[0])
    for t in range(steps):
        wanted = wanted + 1e-2 * np.asarray(expected(wanted, args[1]))
        close(path[t], wanted, 1e-10)
    close(again, path, 0.0)  # once more, from the cache


def test_shared_gradient_is_summed_over_many_worlds(gpu, on_gpu):
    rng = np.random.default_rng(1)
    x, stiffness = on(gpu, (rng.standard_normal((4096, PARTICLES)), np.ones((1, 1))))
    weights = rng.standard_normal(x.shape)
    with on_gpu():
        grad = jax.jit(jax.grad(lambda k: jnp.sum(weights * forces(x, k))))(stiffness)
    close(grad, np.sum(weights * np.asarray(expected(np.asarray(x), 1.0))).reshape(1, 1), 1e-11)
