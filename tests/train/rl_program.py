"""Agents that a test kills and restarts: ``rl_program.py FOLDER ITERATIONS``. PPO acts and learns, and so does SAC."""

import hashlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

from fphys import envs, rl, train


def main(folder: str, iterations: int) -> str:
    env = envs.make("InvertedPendulum-v5", 4, dtype=jnp.float32)
    ppo = rl.ppo.Config(steps=64 * iterations, horizon=16, epochs=2, minibatches=2, hidden=(16,))
    sac = rl.sac.Config(steps=16 * iterations, horizon=4, warmup=64, batch_size=16, capacity=400, hidden=(16,))
    held = hashlib.sha256()
    for name, config in (("ppo", ppo), ("sac", sac)):
        checkpoints = train.Checkpoints(f"{folder}/{name}", every=5)
        policy, _ = getattr(rl, name).train(env, config, jax.random.key(0), checkpoints=checkpoints)
        for leaf in jax.tree.leaves((policy.params, policy.moments)):
            held.update(np.asarray(leaf).tobytes())
    return held.hexdigest()


if __name__ == "__main__":
    print("started", flush=True)
    print(main(sys.argv[1], int(sys.argv[2])))
