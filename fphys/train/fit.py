"""The training loop."""

import dataclasses
import functools
import itertools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge.interrupts import Deferred
from ..distributed import everywhere, joined
from ..errors import FphysError
from ..loggers import Logger
from ..runs import Run
from .checkpoint import Checkpoints
from .compiling import compiler_options
from .precision import AS_IT_IS, Precision
from .step import LossFn, TrainState, expect_optimizer, init, step
from .stop import NEVER, EarlyStop

if TYPE_CHECKING:
    import optax


class TrainingError(FphysError, RuntimeError):
    """Training cannot continue; the message says at which step, and why."""


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of training."""

    params: Any
    """The trained parameters."""
    aux: Any
    """The final auxiliary state, as the loss returned it."""
    state: TrainState
    """The full training state; ``state.skipped`` counts updates that were not finite."""
    history: list[dict[str, float]]
    """The logged rows, each with its ``step``, since the start or the resumption."""
    reason: str
    """Why training ended: "steps", "data" (exhausted) or "early stop"."""


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
    loggers: Sequence[Logger] = (),
    patience: int = 100,
    place: Callable[[Any], Any] = everywhere,
) -> Result:
    """Train, with one jitted :func:`step` per batch; log, evaluate, save, and resume bit for bit from a checkpoint.

    Args:
        loss_fn: ``loss_fn(params, aux, batch, key) -> (loss, aux, metrics)``, pure: a scalar, the new ``aux``, and a
            dict of scalars to log. Gradients flow from the loss to ``params`` only.
        params, aux: pytrees of arrays, for example from ``fphys.nn.init`` or ``flax.nnx.split``.
        optimizer: an optax optimizer.
        data: an iterable of batches, pytrees of arrays with constant shapes. Inside ``jax.set_mesh`` they are spread,
            and each process gives its own rows, as many as the others (:func:`fphys.distributed.shard`). To resume, its
            iterator needs ``get_state`` and ``set_state``, as iterators of :func:`fphys.data.loader` and of grain have;
            with another number of processes, the rows of all together must be as many as before.
        steps: how many batches to train on, including those before a resumption; by default until the data ends.
        key: for randomness in the loss.
        precision, accumulate, remat: as for :func:`step`.
        clip: largest global norm of a gradient, positive; longer ones are scaled down.
        evaluate: ``evaluate(params, aux) -> dict`` of scalars, called for every row. Jit what it computes.
        every: steps between two rows of the log. The last step has one, too.
        stop: when to stop early. A last row that is not at a multiple of ``every`` does not count.
        checkpoints: where to save, and to resume from if a checkpoint is there.
        run: whose progress bar, loggers and history to use; see :class:`fphys.runs.Run`.
        loggers: take each logged row, too (:mod:`fphys.loggers`); with no ``run`` they need none. They are not closed.
        patience: this many skipped updates in a row raise an error (checked when a row is logged).
        place: where the training state belongs inside ``jax.set_mesh``: on every device, or with its weights split
            (:func:`fphys.distributed.place`).

    Raises:
        TrainingError: ``patience`` updates in a row were not finite. ValueError: there is no data; the data cannot be
            resumed, its batches differ from the checkpoint's, or processes have different numbers of rows; or ``steps``
            is not a number of batches, ``clip`` is not positive, or ``every`` or ``patience`` is below one; or a metric
            is named "step" or is no scalar.
        CheckpointError: see :class:`Checkpoints`. TypeError: see :func:`init` and :func:`step`; or ``evaluate`` returns
            no dict.
        KeyboardInterrupt: on Ctrl-C, after the current update, and after saving it if there are ``checkpoints``. A
            second Ctrl-C does not save.
    """
    import optax

    from ..optim import clip_by_global_norm

    if not (steps is None or (isinstance(steps, (int, np.integer)) and steps >= 0)):
        raise ValueError(f"steps is {steps!r}, must be a whole number of batches, zero or more")
    if every < 1 or patience < 1:
        raise ValueError(f"every={every} and patience={patience} must be at least 1")
    if clip is not None and not clip > 0:
        raise ValueError(f"clip is {clip}, must be positive: the largest norm of a gradient, or None for any")
    if hasattr(data, "__getitem__") and not hasattr(data, "__iter__"):
        kind = type(data).__name__
        raise TypeError(f"data is {kind}, which gives single records: use fphys.data.loader({kind}, ...)")
    if isinstance(data, dict) or not hasattr(data, "__iter__"):
        raise TypeError(f"data is of type {type(data).__name__}, must be an iterable of batches: [batch] for one batch")
    expect_optimizer(optimizer)
    optimizer = optimizer if clip is None else optax.chain(clip_by_global_norm(clip), optimizer)
    update = functools.partial(step, loss_fn, optimizer, precision=precision, accumulate=accumulate, remat=remat)
    update = jax.jit(update, donate_argnums=0, compiler_options=compiler_options())
    state = place(init(params, optimizer, aux=aux, key=key, precision=precision))
    stream: Any = iter(data)
    stop, stopping, rows = stop or NEVER, (stop or NEVER).init(), list[dict[str, float]]()
    batch: Any = None
    metrics: Any = None
    form, fewer = None, False  # of the batches, and whether the last one had fewer records than a full one
    if checkpoints:
        checkpoints.prepare()  # fails now if the folder cannot be written, not at the first save
        _position(stream)  # fails now if the iterator cannot be resumed, not at the first save
        if saved := checkpoints.restore(state):
            state, extra = saved
            stream.set_state(extra["data"] if isinstance(extra["data"], dict) else extra["data"].encode())
            stopping = tuple(extra["stop"]) if extra["rule"] == repr(stop) else stopping
            form = extra.get("form")
    done = start = saved_at = int(state.step)
    watched = 2 if form else 1  # batches to check; after a resumption the first may be the last of an epoch
    numbers = range(0) if stop.done(stopping) else itertools.count(start) if steps is None else range(start, steps)

    def save() -> None:
        assert checkpoints
        extra = {"data": _position(stream), "stop": stopping, "rule": repr(stop), "form": form}
        checkpoints.save(done, state, extra)

    def log() -> None:
        nonlocal stopping
        row = jax.device_get(metrics) | (_expect_scores(evaluate(state.params, state.aux)) if evaluate else {})
        if "step" in row:
            raise ValueError("a metric is named step, which is the number of the row's step: rename it")
        values = {name: _number(name, value) for name, value in row.items()}
        rows.append({"step": done} | values)
        if run:
            run.log(done, **values)
        for logger in loggers:
            logger.log(done, values)
        _healthy(state, patience, loss_fn, batch)
        waited = stop.update(stopping, _metric(rows[-1], stop))
        stopping = waited if done % every == 0 else stopping  # so that many short calls wait as long as one

    with Deferred() as interrupt:
        for i, batch in zip(run.progress(numbers) if run else numbers, stream):
            whole = joined(batch)
            form, fewer = _expect_form(form, batch, whole, fewer) if i < start + watched else (form, fewer)
            state, metrics = update(state, whole)
            done = i + 1
            if done % every == 0 or done == steps:
                log()
            if checkpoints and (done % checkpoints.every == 0 or (interrupt.asked and done > saved_at)):
                save()
                saved_at = done
            if interrupt.asked:
                raise KeyboardInterrupt
            if stop.done(stopping):
                break
        if done > (rows[-1]["step"] if rows else start):
            log()  # the data has ended
    _healthy(state, patience, loss_fn, batch)
    if done > start and state.skipped_in_a_row >= done - start:
        why = _why(loss_fn, state, batch)
        warnings.warn(f"all {done - start} updates were skipped, nothing is learned: {why}", stacklevel=2)
    if done == 0 and steps != 0:
        raise ValueError("data gave no batch: it is empty, or an exhausted iterator; fphys.data.loader makes a new one")
    if checkpoints and done > saved_at:
        save()
    if interrupt.asked:
        raise KeyboardInterrupt
    reason = "early stop" if stop.done(stopping) else "steps" if steps is not None and done >= steps else "data"
    return Result(state.params, state.aux, state, rows, reason)


def _why(loss_fn: LossFn, state: TrainState, batch: Any) -> str:
    """Why the update by this batch was skipped: the loss is asked again outside ``jit``, where it sees the labels."""
    try:
        if batch is not None:
            loss_fn(state.params, state.aux, jax.tree.map(jnp.asarray, batch), state.key)
    except ValueError as error:
        return str(error)
    except (TypeError, RuntimeError):
        pass  # too little memory, or arrays of other processes: no reason to hide that updates were skipped
    return (
        "loss, gradient or update is not finite. Look for a learning rate that is too large, labels out of range, or "
        "NaN in the data"
    )


def _position(stream: Any) -> Any:
    """The position of a grain iterator, in a form that JSON can hold."""
    try:
        position = stream.get_state()
    except AttributeError:
        raise ValueError(
            f"checkpoints need data that can be resumed: the iterator ({type(stream).__name__}) has no get_state and "
            "set_state; use fphys.data.loader"
        ) from None
    return position.decode() if isinstance(position, bytes) else position


def _expect_form(form: list[Any] | None, batch: Any, whole: Any, fewer: bool) -> tuple[list[Any], bool]:
    """Path, dtype and shape of each array of a full batch of all processes, and whether this one has fewer records.

    Raises ValueError if the checkpoint's batches differ. Only the last batch of an epoch may have fewer records, so two
    such batches in a row, or a batch with more records, are errors too.
    """
    shapes = map(np.shape, jax.tree.leaves(whole))
    leaves = zip(jax.tree_util.tree_leaves_with_path(batch), shapes, strict=True)
    found = [
        [jax.tree_util.keystr(path), str(x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype), list(shape)]
        for (path, x), shape in leaves
    ]
    one = lambda form: [[path, dtype, shape[1:]] for path, dtype, shape in form]  # noqa: E731
    if not form or form == found:
        return found, False
    if one(form) != one(found) or fewer or any(b[2][:1] > a[2][:1] for a, b in zip(form, found, strict=True)):
        raise ValueError(f"the checkpoint has batches of {form}, the data gives {found}: resume with the same data")
    return form, True


def _expect_scores(found: Any) -> dict[str, Any]:
    if not isinstance(found, Mapping):
        raise TypeError(f"evaluate returned {type(found).__name__}, must return a dict of scalars to log")
    return dict(found)


def _number(name: str, value: Any) -> float:
    if np.size(value) != 1:
        raise ValueError(f"{name} has shape {np.shape(value)}, must be a scalar to be logged: take its mean, say")
    return float(np.reshape(value, ()))


def _healthy(state: TrainState, patience: int, loss_fn: LossFn, batch: Any) -> None:
    if (count := int(state.skipped_in_a_row)) >= patience:
        raise TrainingError(
            f"the last {count} updates were skipped, up to step {int(state.last_skipped)}: "
            f"{_why(loss_fn, state, batch)}; patience= sets how many are allowed"
        )


def _metric(row: dict[str, float], stop: EarlyStop) -> float:
    if stop.metric not in row:
        raise ValueError(f"EarlyStop(metric={stop.metric!r}): must be one of the logged metrics, {', '.join(row)}")
    return row[stop.metric]
