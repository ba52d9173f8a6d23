"""A kernel that reads its neighbours: right under every transform here, silently wrong under Warp's own vmap.

Warp's ``vmap_method="broadcast_all"`` adds the mapped axis in front of the arrays and launches as before.
The kernel's first axis is then another one, and it reads across the elements of the batch. Our own rule
therefore folds a mapped axis into the world axis.
"""

import jax
import jax.numpy as jnp
import numpy as np
import warp as wp

from fphys.bridge import warp_op
from fphys.testing import check_grads, check_transforms

f64 = wp.float64


@wp.kernel
def neighbours(m: wp.array2d(dtype=f64), x: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    """A ring of lanes in every world."""
    world, i = wp.tid()
    y_out[world, i] = m[world, 0] * x[world, (i + 1) % x.shape[1]]


@wp.kernel
def ring(x: wp.array(dtype=wp.float32), y_out: wp.array(dtype=wp.float32)):
    """A ring without worlds: it gathers across the first axis."""
    i = wp.tid()
    y_out[i] = x[(i + 1) % x.shape[0]]


def launch_neighbours(launch, m, x, y):
    launch(neighbours, dim=x.shape, inputs=[m, x], outputs=[y])


gathered = warp_op(launch_neighbours, outputs=lambda m, x: x)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def test_value():
    m, x = normal(3, 1), normal(3, 5, seed=1)
    np.testing.assert_array_equal(gathered(m, x), m * np.roll(x, -1, axis=1))


def test_a_gather_means_the_same_under_every_transform():
    check_transforms(gathered, (normal(3, 1), normal(3, 5, seed=1)))


def test_a_shared_parameter_under_every_transform():
    check_transforms(gathered, (normal(1, 1), normal(3, 5, seed=1)))


def test_gradient():
    assert check_grads(gathered, (normal(1, 1), normal(3, 5, seed=1)), elementwise=True) < 1e-7


def test_warps_own_vmap_is_silently_wrong():
    theirs = wp.jax_kernel(ring, num_outputs=1, vmap_method="broadcast_all")
    x = normal(3, 5).astype(np.float32)
    np.testing.assert_array_equal(theirs(x[0])[0], np.roll(x[0], -1))  # one ring at a time: right
    batch = np.asarray(jax.vmap(lambda x: theirs(x)[0])(x))
    assert batch.shape == x.shape and np.isfinite(batch).all()  # nothing shows that it went wrong
    assert not np.array_equal(batch, np.roll(x, -1, axis=1))
    ours = jax.vmap(lambda x: gathered(jnp.ones((1, 1)), x[None])[0])(x.astype(np.float64))
    np.testing.assert_array_equal(ours, np.roll(x, -1, axis=1))
