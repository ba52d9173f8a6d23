"""A least-squares problem, shared by the tests of training."""

import jax.numpy as jnp
import numpy as np


def loss_fn(params, aux, batch, key):
    error = batch["x"] @ params["w"] + params["b"][None] - batch["y"]
    return (error**2).mean(), aux, {"bias": params["b"].sum()}


def start():
    return {"w": jnp.zeros((3, 1), jnp.float32), "b": jnp.zeros((1,), jnp.float32)}


def batches(count, size=12, seed=0, poison=()):
    """Batches of y = x w + 1/2. In the batches numbered in ``poison``, x holds a NaN."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(count):
        x = rng.standard_normal((size, 3)).astype(np.float32)
        y = x @ np.float32([[1.0], [-2.0], [3.0]]) + np.float32(0.5)
        if i in poison:
            x[size // 2, 1] = np.nan
        found.append({"x": x, "y": y})
    return found
