"""A training run that a test kills and restarts: ``program.py FOLDER STEPS [PRECISION]``.

It uses everything that a checkpoint must hold: shuffled data, noise from the key, momentum, a changing loss scale,
statistics in ``aux``, and an early stop in progress.
"""

import hashlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fphys import data, train


def loss_fn(params, aux, batch, key):
    noise = 0.1 * jax.random.normal(key, batch["x"].shape, batch["x"].dtype)
    hidden = jnp.tanh((batch["x"] + noise) @ params["in"])
    mean = hidden.mean(0).astype(jnp.float32)
    loss = ((hidden - aux["mean"].astype(hidden.dtype)) @ params["out"] - batch["y"]) ** 2
    return loss.mean(), {"mean": 0.9 * aux["mean"] + 0.1 * mean}, {"spread": hidden.std()}


def digest(tree) -> str:
    content = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]
    return hashlib.sha256(b"".join(content)).hexdigest()


def main(folder: str, steps: int) -> train.Result:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((203, 16)).astype(np.float32)
    source = data.Arrays(x=x, y=np.sin(x[:, :1]))
    keys = jax.random.split(jax.random.key(1))
    shapes = {"in": (16, 32), "out": (32, 1)}
    params = {name: 0.2 * jax.random.normal(key, shape) for key, (name, shape) in zip(keys, shapes.items())}
    return train.fit(
        loss_fn,
        params,
        optax.adam(optax.cosine_decay_schedule(1e-2, steps)),
        data.loader(source, 16, seed=3),
        steps=steps,
        aux={"mean": jnp.zeros(32)},
        key=jax.random.key(2),
        precision=train.FLOAT16,
        clip=1.0,
        every=5,
        stop=train.EarlyStop(patience=10_000),
        checkpoints=train.Checkpoints(folder, every=5),
    )


if __name__ == "__main__":
    print("started", flush=True)
    result = main(sys.argv[1], int(sys.argv[2]))
    print(digest((result.params, result.aux, result.state.opt, result.state.scale)), result.reason)
