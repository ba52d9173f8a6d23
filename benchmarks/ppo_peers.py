"""Wall time of PPO on Hopper-v5 beside others: ``python benchmarks/ppo_peers.py --cleanrl SCRIPT --json FILE``.

All train the same networks (64, 64) with CleanRL's hyperparameters: 2,048 steps an iteration, 32 minibatches, ten
epochs. Stable-Baselines3, with its defaults, and CleanRL's script take these steps in one environment, fphys in 32
worlds of 64 steps. Each is a process of its own, timed from its start to its end, one after the other. A peer's time is
that of a short training and a longer one, extended along the line through both; fphys is timed over all steps.
"""

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SB3 = """
import sys, stable_baselines3 as sb3
sb3.PPO("MlpPolicy", "Hopper-v5", device="cpu").learn(int(sys.argv[1]))
"""
FPHYS = """
import sys, jax
from fphys import envs, rl
rl.ppo.train(envs.make("Hopper-v5", 32), rl.ppo.Config(steps=int(sys.argv[1])), jax.random.key(0))
"""


def seconds(command: list[str], folder: str) -> float:
    """Wall time of a process."""
    begun = time.perf_counter()
    subprocess.run(command, cwd=folder, env=os.environ | {"JAX_PLATFORMS": "cpu"}, check=True, capture_output=True)
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000, help="of the whole training")
    parser.add_argument("--short", type=int, nargs=2, default=(8_192, 40_960), help="steps of a peer's two trainings")
    parser.add_argument("--cleanrl", type=Path, help="CleanRL's ppo_continuous_action.py")
    parser.add_argument("--json", type=Path, help="file to write to")
    given = parser.parse_args()
    peers = {"stable-baselines3": [sys.executable, "-c", SB3, "{}"]}
    if given.cleanrl:
        script = str(given.cleanrl.resolve())
        peers["cleanrl"] = [sys.executable, script, "--env-id", "Hopper-v5", "--no-cuda", "--total-timesteps", "{}"]
    found, (few, many) = {}, given.short
    with tempfile.TemporaryDirectory() as folder:
        for name, command in peers.items():
            first, last = (seconds([*command[:-1], str(steps)], folder) for steps in (few, many))
            found[name] = last + (given.steps - many) * (last - first) / (many - few)
            print(f"{name:<20}{found[name]:8.0f} s for {given.steps:,} steps ({many:,} took {last:.0f} s)", flush=True)
        found["fphys"] = seconds([sys.executable, "-c", FPHYS, str(given.steps)], folder)
    print(f"{'fphys':<20}{found['fphys']:8.0f} s")
    for name in peers:
        print(f"{name} takes {found[name] / found['fphys']:.1f} times as long")
    if given.json:
        versions = {
            name: importlib.metadata.version(name) for name in ("gymnasium", "mujoco", "stable-baselines3", "jax")
        }
        content = {"steps": given.steps, "seconds": found, "versions": versions, "cores": os.cpu_count()}
        given.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
