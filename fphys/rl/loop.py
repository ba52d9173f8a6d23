"""The outer loop of every training: iterations, logs, progress, checkpoints."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..runs import Run
from ..train.checkpoint import Checkpoints
from ..train.fit import TrainingError
from ..train.step import copied

Array = jax.Array
Log = dict[str, np.ndarray]
"""Each scalar of an iteration over all iterations, and ``steps``, the environment steps taken so far."""


PAUSE = 30.0
"""Seconds after which the state is saved anyway."""
PATIENCE = 10
"""Iterations without any update before training is given up."""
OF_EPISODES = ("episode_return", "episode_length", "success")
"""Scalars that an iteration has no value for if no episode has ended."""


def loop(
    iteration: Callable[[Any], tuple[Any, dict[str, Any]]],
    state: Any,
    steps_each: int,
    steps: int,
    *,
    run: Run | None = None,
    checkpoints: Checkpoints | None = None,
    compiled: bool = False,
) -> tuple[Any, Log]:
    """Call a pure ``iteration(state) -> state, scalars`` until ``steps`` environment steps are taken.

    Args:
        steps_each: environment steps of one iteration.
        run: gets every scalar, and a progress bar with return and steps per second.
        checkpoints: where the state is saved, every so many iterations, every half a minute and at the end, and from
            where training goes on if it was stopped: to the same bits.
        compiled: whether the iteration is called as it is, because it compiles its parts itself.

    Returns:
        The last state, and the log of the iterations of this call: ``steps`` alone, those of the checkpoint, if the
        training that it is from was finished.

    Raises:
        TrainingError: ten iterations taught nothing: their updates were skipped, because they were not finite, or
            each of their steps ended in a fault.
    """
    count, first = steps // steps_each, 0
    if not compiled:
        iteration = jax.jit(iteration, donate_argnums=0)
    state = copied(state)  # its memory is reused
    if checkpoints is not None:
        checkpoints.prepare()
        if (found := checkpoints.restore(state)) is not None:
            state, extra = found
            first = int(extra["iteration"])
    rows: list[dict[str, Any]] = []
    over, began = range(first, count), time.perf_counter()
    shown: dict[str, float] = {}
    last_saved = time.monotonic()
    for i in over if run is None else run.progress(over, "train"):
        state, scalars = iteration(state)
        row = {name: float(value) for name, value in scalars.items()} | {"steps": float((i + 1) * steps_each)}
        rows.append(row)
        if run is not None:
            speed = (i + 1 - first) * steps_each / (time.perf_counter() - began)
            shown |= {name: value for name, value in row.items() if np.isfinite(value) or name not in OF_EPISODES}
            run.log((i + 1) * steps_each, **first_shown(shown | {"steps_per_second": speed}))
        if reason := _in_vain(rows[-PATIENCE - 1 :]):
            raise TrainingError(
                f"{reason}: look for NaN in the task's rewards and observations (value_loss is "
                f"{row.get('value_loss')}) and in the learning rate, or learn more slowly"
            )
        late = time.monotonic() - last_saved > PAUSE or i + 1 == count
        if checkpoints is not None and (late or (i + 1) % checkpoints.every == 0):
            checkpoints.save(i + 1, state, {"iteration": i + 1})
            last_saved = time.monotonic()
    if not rows:
        return state, {"steps": np.array([float(first * steps_each)])}
    names = rows[0]
    return state, {name: np.array([row[name] for row in rows]) for name in names}


def _in_vain(rows: list[dict[str, Any]]) -> str:
    """Why these iterations taught nothing: each skipped as many updates, so it made none, or had a fault in every step.

    Empty if they did, or are too few to tell.
    """
    skipped, faults, steps = (np.diff([row.get(name, 0) for row in rows]) for name in ("skipped", "faults", "steps"))
    if len(skipped) < PATIENCE:
        return ""
    if skipped[0] > 0 and (skipped == skipped[0]).all():
        return f"the updates of the last {PATIENCE} iterations were skipped, for they were not finite"
    return f"every step of the last {PATIENCE} iterations ended in a fault" if (faults >= steps).all() else ""


def episode_scalars(
    reward: Array, done: Array, total: Array, length: Array, faults: Array, success: Array | None = None
) -> dict[str, Array]:
    """What every training reports of the steps of an iteration.

    Args:
        reward, done: of each step, shape (time, world). total, length: of the episode so far, of that shape.
        faults: of each world so far, shape (world,).
        success: of each step, bool (time, world), if the task says so.

    Returns:
        The mean ``episode_return`` and ``episode_length`` of the episodes that ended (NaN if none did), their number
        ``episodes``, the share of them that ended in ``success``, the number of ``faults``, and ``reward`` per step;
        each of shape (). A return that is not finite is left out of the mean.
    """
    mean = lambda v, of: jnp.where(of, v.astype(jnp.float32), 0).sum() / of.sum(dtype=jnp.float32)  # noqa: E731
    share = {} if success is None else {"success": mean(success, done)}
    return share | {
        "episode_return": mean(total, done & jnp.isfinite(total)),
        "episode_length": mean(length, done),
        "episodes": done.sum(dtype=jnp.float32),
        "faults": faults.sum(dtype=jnp.float32),
        "reward": reward.mean(),
    }


def first_shown(scalars: dict[str, float]) -> dict[str, float]:
    """The scalars, with those first that a progress bar shows."""
    names = [name for name in ("episode_return", "success", "episode_length", "steps_per_second") if name in scalars]
    return {name: scalars[name] for name in [*names, *scalars]}
