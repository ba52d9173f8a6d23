"""The training loop."""

import dataclasses
import functools
import itertools
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ..bridge.interrupts import Deferred
from ..errors import FphysError
from ..runs import Run
from .checkpoint import Checkpoints
from .compiling import compiler_options
from .precision import AS_IT_IS, Precision
from .step import LossFn, TrainState, expect_optimizer, init, step
from .stop import NEVER, EarlyStop

if TYPE_CHECKING:
    import optax


class TrainingError(FphysError, RuntimeError):
    """Training cannot go on; the text says at which step, and why."""


@dataclasses.dataclass(frozen=True)
class Result:
    """What training left."""

    params: Any
    """The trained parameters."""
    aux: Any
    """What the loss passed on beside them."""
    state: TrainState
    """The whole state; ``state.skipped`` counts updates that were not finite."""
    history: list[dict[str, float]]
    """The logged rows, each with its ``step``, since the start or the resumption."""
    reason: str
    """Why it ended, "steps", "data" (exhausted) or "early stop"."""


def fit(
    loss_fn: LossFn,
    params: Any,
    optimizer: "optax.GradientTransformation",
    data: Iterable[Any],
    *,
    steps: int | None = None,
    aux: Any = None,
    key: jax.Array | None = None,
    precision: Precision = AS_IT_IS,
    accumulate: int = 1,
    clip: float | None = None,
    remat: Callable[..., bool] | None = None,
    evaluate: Callable[[Any, Any], dict[str, Any]] | None = None,
    every: int = 100,
    stop: EarlyStop | None = None,
    checkpoints: Checkpoints | None = None,
    run: Run | None = None,
    patience: int = 100,
) -> Result:
    """Train: one jitted :func:`step` per batch, logged, evaluated, saved, and resumed bit for bit where it was saved.

    Args:
        loss_fn: ``loss_fn(params, aux, batch, key) -> (loss, aux, metrics)``, pure: a scalar, the new ``aux``, and a
            dict of scalars to log. Gradients flow from the loss to ``params`` only.
        params, aux: pytrees of arrays, as of ``fphys.nn.init`` or ``flax.nnx.split``.
        optimizer: of optax.
        data: an iterable of batches, pytrees of arrays of one shape; to resume, its iterator needs ``get_state`` and
            ``set_state``, as those of :func:`fphys.data.loader` and of grain have.
        steps: batches to train on, those before a resumption included; until the data ends by default.
        key: for randomness in the loss.
        precision, accumulate, remat: as for :func:`step`.
        clip: largest global norm of a gradient; longer ones are shortened.
        evaluate: ``evaluate(params, aux) -> dict`` of scalars, called ``every`` steps; jit what it computes.
        every: steps between two rows of the log.
        stop: when to end early.
        checkpoints: where to save, and to resume from if something is there.
        run: whose progress bar, TensorBoard and history to use; see :class:`fphys.runs.Run`.
        patience: skipped updates in a row that end the training with an error (seen when a row is logged).

    Raises:
        TrainingError: ``patience`` updates in a row were not finite. ValueError: no data, data that cannot be
            resumed or whose batches are not those of the checkpoint, or ``steps`` is no number of batches.
        CheckpointError: see :class:`Checkpoints`. TypeError: see :func:`init` and :func:`step`.
        KeyboardInterrupt: on Ctrl-C, after the update that is under way, and after saving it where there are
            ``checkpoints``. A second Ctrl-C does not save.
    """
    import optax

    if not (steps is None or (isinstance(steps, (int, np.integer)) and steps >= 0)):
        raise ValueError(f"steps is {steps!r}, must be a whole number of batches, none below zero")
    if hasattr(data, "__getitem__") and not hasattr(data, "__iter__"):
        kind = type(data).__name__
        raise TypeError(f"data is {kind}, of single records: give fphys.data.loader({kind}, ...)")
    if isinstance(data, dict) or not hasattr(data, "__iter__"):
        raise TypeError(f"data is of type {type(data).__name__}, must be an iterable of batches: [batch], if it is one")
    expect_optimizer(optimizer)
    optimizer = optimizer if clip is None else optax.chain(optax.clip_by_global_norm(clip), optimizer)
    update = functools.partial(step, loss_fn, optimizer, precision=precision, accumulate=accumulate, remat=remat)
    update = jax.jit(update, donate_argnums=0, compiler_options=compiler_options())
    state = init(params, optimizer, aux=aux, key=key, precision=precision)
    stream: Any = iter(data)
    stop, stopping, rows = stop or NEVER, (stop or NEVER).init(), list[dict[str, float]]()
    form, fewer = None, False  # of the batches, and whether the last one had fewer records
    if checkpoints:
        checkpoints.prepare()  # a folder that cannot be written is found now, not when it is to be
        _position(stream)  # an iterator that cannot be resumed is refused now, not when it is saved
        if saved := checkpoints.restore(state):
            state, extra = saved
            stream.set_state(extra["data"] if isinstance(extra["data"], dict) else extra["data"].encode())
            stopping = tuple(extra["stop"]) if extra["rule"] == repr(stop) else stopping
            form = extra.get("form")
    done = start = saved_at = int(state.step)
    watched = 2 if form else 1  # batches: the first after a resumption may be an epoch's last, the next may not
    numbers = range(0) if stop.done(stopping) else itertools.count(start) if steps is None else range(start, steps)

    def save() -> None:
        assert checkpoints
        extra = {"data": _position(stream), "stop": stopping, "rule": repr(stop), "form": form}
        checkpoints.save(done, state, extra)

    with Deferred() as interrupt:
        for i, batch in zip(run.progress(numbers) if run else numbers, stream):
            form, fewer = _expect_form(form, batch, fewer) if i < start + watched else (form, fewer)
            state, metrics = update(state, batch)
            done = i + 1
            if done % every == 0 or done == steps:
                row = jax.device_get(metrics) | (evaluate(state.params, state.aux) if evaluate else {})
                rows.append({"step": done} | {name: _number(name, value) for name, value in row.items()})
                if run:
                    run.log(done, **{name: value for name, value in rows[-1].items() if name != "step"})
                _healthy(state, patience)
                stopping = stop.update(stopping, _metric(rows[-1], stop))
            if checkpoints and (done % checkpoints.every == 0 or (interrupt.asked and done > saved_at)):
                save()
                saved_at = done
            if interrupt.asked:
                raise KeyboardInterrupt
            if stop.done(stopping):
                break
    _healthy(state, patience)
    if done > start and state.skipped_in_a_row >= done - start:
        warnings.warn(f"all {done - start} updates were skipped, nothing is learned: {_WHY}", stacklevel=2)
    if done == 0 and steps != 0:
        raise ValueError("data gave no batch: it is empty, or an iterator that has ended; fphys.data.loader makes one")
    if checkpoints and done > saved_at:
        save()
    reason = "early stop" if stop.done(stopping) else "steps" if steps is not None and done >= steps else "data"
    return Result(state.params, state.aux, state, rows, reason)


_WHY = (
    "loss, gradient or update is not finite. Look for a learning rate that is too large, labels out of range, or NaN "
    "in the data"
)


def _position(stream: Any) -> Any:
    """Where an iterator of grain stands, as JSON holds it."""
    try:
        position = stream.get_state()
    except AttributeError:
        raise ValueError(
            f"checkpoints need data that can be resumed: the iterator ({type(stream).__name__}) has no get_state and "
            "set_state; fphys.data.loader makes one that has"
        ) from None
    return position.decode() if isinstance(position, bytes) else position


def _expect_form(form: list[Any] | None, batch: Any, fewer: bool) -> tuple[list[Any], bool]:
    """Path, type and shape of each array of a full batch, and whether this one has fewer records.

    Raises ValueError where a checkpoint's were others, or had fewer records, or more than two in a row: an epoch's last
    batch may have fewer.
    """
    leaves = jax.tree_util.tree_leaves_with_path(batch)
    found = [[jax.tree_util.keystr(path), str(np.asarray(x).dtype), list(np.shape(x))] for path, x in leaves]
    one = lambda form: [[path, dtype, shape[1:]] for path, dtype, shape in form]  # noqa: E731
    if not form or form == found:
        return found, False
    if one(form) != one(found) or fewer or any(b[2][:1] > a[2][:1] for a, b in zip(form, found, strict=True)):
        raise ValueError(f"the checkpoint is of batches of {form}, the data gives {found}: resume with the same")
    return form, True


def _number(name: str, value: Any) -> float:
    if np.size(value) != 1:
        raise ValueError(f"{name} has shape {np.shape(value)}: what is logged is a number; take its mean, say")
    return float(value)


def _healthy(state: TrainState, patience: int) -> None:
    if (count := int(state.skipped_in_a_row)) >= patience:
        raise TrainingError(
            f"the last {count} updates were skipped, up to step {int(state.last_skipped)}: {_WHY}; "
            "patience= sets how many are borne"
        )


def _metric(row: dict[str, float], stop: EarlyStop) -> float:
    if stop.metric not in row:
        raise ValueError(f"EarlyStop(metric={stop.metric!r}): what is logged is {', '.join(row)}")
    return row[stop.metric]
