"""What ``fphys train`` and ``fphys play`` do."""

import functools
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import distributed, envs
from ..envs.pictures import pictures
from ..errors import ModelError
from ..runs import Run
from ..train.checkpoint import Checkpoints
from . import actors as remote
from . import apg, dqn, ppo, sac, sapo, shac, shards
from .asynchronous import share
from .asynchronous import train as train_asynchronously
from .files import load_policy, save_policy, trained
from .policy import evaluate
from .record import record, seen

AGENTS: dict[str, ModuleType] = {"apg": apg, "dqn": dqn, "ppo": ppo, "sac": sac, "sapo": sapo, "shac": shac}
"""Each has ``Config``, ``expect(env, config)``, and ``train(env, config, key, **options) -> policy, log``."""


def full_name(name: str) -> str:
    """The environment of a short name: "half-cheetah" "HalfCheetah-v5", "walker-walk" "dm_control/walker-walk".

    A name without a version is one of fphys's own, if there is one: "humanoid-standup" is not "HumanoidStandup-v5".
    "module:Class" is a class of the user's, and stays.
    """
    if ":" in name:
        return name

    def key(text: str) -> str:
        return short_name(text).lower().replace("-", "").replace("_", "")

    for wanted in (key(name), key(name + "-v5")):
        found = [known for known in envs.names() if known == name or key(known) == wanted]
        if found:
            return found[0]
    raise ValueError(f"there is no environment {name!r}: `fphys envs` lists them, and module:Class is one of your own")


def short_name(name: str) -> str:
    """A name for files: of "dm_control/walker-walk" "walker-walk", of "module:Class" "Class"."""
    return re.split("[/:]", name)[-1]


def accepted(
    agent: str, name: str, config: Any, num_envs: int = 32, randomize: bool = False, resume: Path | None = None
) -> envs.Env:
    """The environment of a training.

    Raises:
        ValueError: there is none, the agent cannot be trained in it, or ``resume`` has no checkpoints.
    """
    if num_envs < 1:
        raise ValueError(f"--num-envs is {num_envs}: it must be positive")
    env = envs.make(full_name(name), num_envs, randomize=randomize)
    AGENTS[agent].expect(env, config)
    if resume is not None:
        saved(resume)
    return env


def train(
    agent: str,
    name: str,
    env: envs.Env,
    config: Any,
    run: Run,
    *,
    seed: int = 0,
    randomize: bool = False,
    resume: Path | None = None,
    folder: Path | None = None,
    actors: int = 0,
    asynchronous: bool = False,
) -> dict[str, Any]:
    """Train, test the policy on other starts, and write policy, curves and a video into the run's folder.

    Args:
        env: the environment ``name``, as :func:`accepted` returns it.
        resume: a folder that must have checkpoints to go on from. folder: one that may have some, and gets others.
        actors: Ray actors that hold the worlds, for PPO and SAC. asynchronous: whether PPO does not wait for all.
    """
    folder = saved(resume) if resume is not None else folder or run.path / "checkpoints"
    checkpoints = Checkpoints(folder, every=50, keep=2)
    with distributed.group():
        spread = {"sac": shards.train, "ppo": train_asynchronously if asynchronous else remote.train}
        learn = functools.partial(spread[agent], number=actors) if actors else AGENTS[agent].train
        policy, log = learn(env, config, jax.random.key(seed), run=run, checkpoints=checkpoints)
        policy = distributed.on_host(policy)
    if not distributed.is_first():
        return {}
    steps = int(log["steps"][-1])
    if log.keys() == {"steps"}:
        print(f"nothing was left to train: {folder} has {steps} steps; --steps MORE goes on", file=sys.stderr)
    save_policy(run.path / "policy.safetensors", policy, name, {"randomize": True} if randomize else {})
    found = measured(env, policy, seed, 100)
    run.plot("return", lambda axes: (run.curves(axes, "episode_return"), axes.set(ylabel="return")))
    run.video(short_name(name), lambda: record(env, policy, jax.random.key(seed + 1)), fps=round(1 / float(env.dt[0])))
    return found | {"steps": steps}


def expect_actors(agent: str, actors: int, processes: int, asynchronous: bool) -> None:
    """Refuse actors for an agent that has none, or beside processes.

    Raises:
        ValueError: the message says why.
    """
    if actors < 0:
        raise ValueError(f"--actors is {actors}: it must be 0 or more")
    if actors and (agent not in ("ppo", "sac") or processes > 1):
        raise ValueError(
            "--actors are for ppo and sac, and not together with --processes: one process learns from all actors"
        )
    if asynchronous and (agent != "ppo" or not actors):
        raise ValueError("--asynchronous is for ppo with --actors: without actors there is nobody to wait for")


def expect_shares(env: envs.Env, config: Any, actors: int, asynchronous: bool) -> None:
    """Refuse worlds, or an iteration of them, that the actors cannot share.

    Raises:
        ValueError: the message says which number would do.
    """
    if asynchronous:
        share(env, config, actors)
    elif actors:
        remote.expect(env, actors)


def expect_spread(agent: str, num_envs: int, processes: int) -> None:
    """Refuse an agent, or a number of worlds, that several processes cannot share.

    Raises:
        ValueError: the message says which can.
    """
    able = ("apg", "ppo", "sapo", "shac")
    if agent not in able:
        raise ValueError(f"--processes: {agent} keeps its replay in one process; these do not: {', '.join(able)}")
    if processes < 1 or num_envs % processes:
        raise ValueError(f"--num-envs {num_envs} does not divide evenly among {processes} processes")


def saved(resume: Path) -> Path:
    """The folder of checkpoints of a run, from its folder or that of its checkpoints.

    Raises:
        ValueError: there are none.
    """
    folder = resume / "checkpoints" if (resume / "checkpoints").is_dir() else resume
    if not folder.is_dir() or not Checkpoints(folder).steps:
        raise ValueError(f"{resume} has no checkpoints: --resume takes the folder of a run that was stopped")
    return folder


def measured(env: envs.Env, policy: Callable[..., Any], seed: int, episodes: int) -> dict[str, float]:
    """Means over episodes from starts that training has not seen; those whose return is not finite are only counted."""
    many = env.replace(num_envs=episodes)
    key = jax.random.fold_in(jax.random.key(seed), jnp.int32(-1))  # training splits its key: that gives 0, 1, ...
    returns, lengths = map(np.asarray, jax.jit(functools.partial(evaluate, many, policy))(key))
    fine = np.isfinite(returns)
    mean = lambda x: float(x[fine].mean()) if fine.any() else math.nan  # noqa: E731
    found = {"mean_return": mean(returns), "deviation_of_returns": mean((returns - mean(returns)) ** 2) ** 0.5}
    return found | {"mean_length": mean(lengths), "lost_episodes": int((~fine).sum())}


def play(what: str, run: Run, steps: int | None = None, seed: int = 0, video: bool = True) -> dict[str, Any]:
    """Film a policy: a run's folder, a policy's file, or the name of one that comes with fphys.

    Returns:
        What was measured of it. The motion is in the run's folder, for :func:`fphys.view.view`.

    Raises:
        ValueError: there is no such policy, or its environment observes something else.
    """
    policy, env, name = prepared(what)
    moved, points = jax.jit(lambda key: seen(env, policy, key, steps))(jax.random.key(seed))
    when = float(env.dt[0]) * np.arange(1, len(moved.qpos) + 1)
    x = np.concatenate([np.asarray(x) for x in points.values()], 2) if points else None
    run.motion(when, env.model, moved, x=x, radius=None if x is None else env.grain)
    if video:
        run.video(short_name(name), lambda: pictures(env, moved, points), fps=round(1 / float(env.dt[0])))
    return {"env": name, **measured(env, policy, seed, 10)}


def prepared(what: str, num_envs: int = 1) -> tuple[Any, envs.Env, str]:
    """A policy, the environment that it acts in, and the environment's name.

    Raises:
        ValueError: there is no such policy, or its environment observes something else.
    """
    policy, name, options = load_policy(policy_file(what))
    env = envs.make(name, num_envs, **options)
    (knows,), (sees,) = policy.moments.mean.shape, env.observation_spec.shape
    if knows != sees:
        raise ValueError(
            f"{what} is a policy for {knows} observations, and {name} has {sees}: it was trained with other options "
            "or another version of the class"
        )
    return policy, env, name


def policy_file(what: str) -> Path:
    """The file of a policy: a path, a run's folder, or the name of one that comes with fphys.

    Raises:
        ValueError: there is none.
    """
    path = Path(what)
    if path.is_dir() and (path / "policy.safetensors").is_file():
        return path / "policy.safetensors"
    if path.is_file():
        return path
    try:
        return Path(trained(what))
    except ModelError as cause:
        raise ValueError(f"{what} is no run with a policy.safetensors and no file, and {cause}") from None
