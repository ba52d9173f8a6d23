"""What ``fphys train`` and ``fphys play`` do."""

import functools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np

from .. import envs
from ..model.assets import asset
from ..runs import Run
from ..train.checkpoint import Checkpoints
from . import dqn, ppo, sac, shac
from .files import load_policy, save_policy
from .policy import evaluate
from .record import record

AGENTS: dict[str, ModuleType] = {"ppo": ppo, "sac": sac, "shac": shac, "dqn": dqn}
"""Each has a ``Config`` and ``train(env, config, key, run=..., checkpoints=...) -> policy, log``."""


def full_name(name: str) -> str:
    """The environment of a short name: "half-cheetah" "HalfCheetah-v5", "walker-walk" "dm_control/walker-walk"."""

    def short(text: str) -> str:
        return text.lower().rpartition("/")[2].removesuffix("-v5").replace("-", "").replace("_", "")

    found = [known for known in envs.names() if known == name or short(known) == short(name)]
    if not found:
        raise ValueError(f"there is no environment {name!r}: `fphys envs` lists them")
    return found[0]


def train(
    agent: str, name: str, num_envs: int, seed: int, config: Any, run: Run, resume: Path | None
) -> dict[str, Any]:
    """Train, test the policy on other starts, and write policy, curves and a video into the run's folder."""
    name = full_name(name)
    env = envs.make(name, num_envs)
    checkpoints = Checkpoints(resume or run.path / "checkpoints", every=50, keep=2)
    policy, log = AGENTS[agent].train(env, config, jax.random.key(seed), run=run, checkpoints=checkpoints)
    save_policy(run.path / "policy.safetensors", policy, name)
    returns, lengths = measured(env, policy, seed, 100)
    run.plot("return", lambda axes: (run.curves(axes, "episode_return"), axes.set(ylabel="return")))
    run.video(
        name.rpartition("/")[2], lambda: record(env, policy, jax.random.key(seed + 1)), fps=round(1 / float(env.dt[0]))
    )
    return {
        "mean_return": float(returns.mean()),
        "deviation_of_returns": float(returns.std()),
        "mean_length": float(lengths.mean()),
        "steps": int(log["steps"][-1]) if len(log["steps"]) else 0,
    }


def measured(env: envs.Env, policy: Callable[..., Any], seed: int, episodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns and lengths of episodes, from starts that training has not seen."""
    many = env.replace(num_envs=episodes)
    found = jax.jit(functools.partial(evaluate, many, policy))(jax.random.fold_in(jax.random.key(seed), 1))
    return np.asarray(found[0]), np.asarray(found[1])


def play(what: str, run: Run, steps: int | None, seed: int) -> dict[str, Any]:
    """Film a policy: a run's folder, a policy's file, or the name of one that comes with fphys."""
    policy, name, options = load_policy(policy_file(what))
    env = envs.make(name, 1, **options)
    run.video(
        name.rpartition("/")[2],
        lambda: record(env, policy, jax.random.key(seed), steps),
        fps=round(1 / float(env.dt[0])),
    )
    returns, lengths = measured(env, policy, seed, 10)
    return {"env": name, "mean_return": float(returns.mean()), "mean_length": float(lengths.mean())}


def policy_file(what: str) -> Path:
    """The file of a policy.

    Raises:
        ValueError: there is none.
    """
    path = Path(what)
    if path.is_dir() and (path / "policy.safetensors").is_file():
        return path / "policy.safetensors"
    if path.is_file():
        return path
    folder = Path(asset("ant")).parent / "policies"
    known = sorted(file.stem for file in folder.glob("*.safetensors"))
    if what not in known:
        raise ValueError(
            f"{what} is no run with a policy.safetensors, no file, and no policy of fphys: {', '.join(known)}"
        )
    return folder / f"{what}.safetensors"
