"""Accuracy, precision, recall and F1, all jittable. Ratios with an empty denominator are zero.

For several batches, add up their confusion matrices: :func:`precision`, :func:`recall` and :func:`f1` also accept one.
None of these functions has a gradient.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .typing import Array, Int, Num, shaped


@shaped
def accuracy(predictions: Num[Array, "..."], labels: Int[Array, "*batch"], top_k: int = 1) -> jax.Array:
    """The fraction of labels that were predicted.

    Args:
        predictions: classes with the shape of the labels, or scores, shape (..., class). A row of scores that holds NaN
            counts as wrong.
        labels: classes, shape (...).
        top_k: how many of the highest scores count as predictions.

    Returns:
        A scalar from 0 to 1.

    Raises:
        ValueError: the shapes do not fit.
        TypeError: the labels are not integers, for example one-hot.
    """
    if not (jnp.issubdtype(labels.dtype, jnp.integer) or labels.dtype == bool):
        raise TypeError(
            f"labels are {labels.dtype} of shape {labels.shape}, must be integer classes: for probabilities or "
            "one-hot labels use labels.argmax(-1)"
        )
    if predictions.shape == labels.shape:
        return jnp.mean(predictions == labels)
    if predictions.shape[:-1] != labels.shape:
        raise ValueError(
            f"predictions have shape {predictions.shape}, must have the labels' shape {labels.shape}, or one more axis "
            "with a score for each class"
        )
    best = jax.lax.top_k(predictions, top_k)[1]
    scored = ~jnp.isnan(predictions).any(-1)
    wanted = _wide(labels)
    return jnp.mean(jnp.any(best.astype(wanted.dtype) == wanted[..., None], -1) & scored)


@shaped
def confusion_matrix(predictions: Int[Array, "*batch"], labels: Int[Array, "*batch"], num_classes: int) -> jax.Array:
    """How often each class (row) was predicted as each class (column), shape (class, class), int32.

    Raises:
        ValueError: the shapes differ, or a class is out of range. Under ``jit`` classes cannot be inspected; those out
            of range are then not counted.
    """
    if predictions.shape != labels.shape:
        raise ValueError(f"predictions have shape {predictions.shape} and labels {labels.shape}: they must be the same")
    for name, values in (("predictions", predictions), ("labels", labels)):
        seen = np.zeros(0) if isinstance(values, Tracer) else np.asarray(values)
        if (wrong := seen[(seen < 0) | (seen >= num_classes)]).size:
            raise ValueError(f"{name} hold {wrong[0]}, must be from 0 to {num_classes - 1}")
    predictions, labels = _wide(predictions), _wide(labels)
    inside = (predictions >= 0) & (labels >= 0)  # a negative index would count from the end
    rows = jnp.where(inside, labels, num_classes)
    return jnp.zeros((num_classes, num_classes), jnp.int32).at[rows, predictions].add(1, mode="drop")


def precision(predictions: Any, labels: Any = None, num_classes: int | None = None, average: str | None = "macro"):
    """Of the cases predicted as a class, the fraction that belongs to it.

    Args:
        predictions: integer classes; or only a confusion matrix.
        labels: integer classes, of the same shape.
        num_classes: the number of classes. All of them count, even those that do not occur.
        average: "macro": the mean over the classes; "weighted": weighted by how often each class occurs; "micro": over
            all cases at once; None: one number per class.

    Returns:
        A scalar, or shape (class,).

    Raises:
        ValueError: as for :func:`confusion_matrix`; or the average is unknown.
    """
    counts = _counts(predictions, labels, num_classes)
    return _average(counts, jnp.diagonal(counts), counts.sum(0), average)


def recall(predictions: Any, labels: Any = None, num_classes: int | None = None, average: str | None = "macro"):
    """Of the cases that belong to a class, the fraction predicted as it. Arguments are those of :func:`precision`."""
    counts = _counts(predictions, labels, num_classes)
    return _average(counts, jnp.diagonal(counts), counts.sum(1), average)


def f1(predictions: Any, labels: Any = None, num_classes: int | None = None, average: str | None = "macro"):
    """The harmonic mean of precision and recall, 2 TP / (2 TP + FP + FN). Arguments are those of :func:`precision`."""
    counts = _counts(predictions, labels, num_classes)
    return _average(counts, 2 * jnp.diagonal(counts), counts.sum(0) + counts.sum(1), average)


def _wide(classes: Any) -> jax.Array:
    """Classes in 32 bits at least: 8 do not hold 300, the other's class or their number."""
    return jnp.asarray(classes if classes.dtype.itemsize >= 4 else classes.astype(jnp.int32))


def _counts(predictions: Any, labels: Any, num_classes: int | None) -> jax.Array:
    if labels is None:
        return predictions
    if num_classes is None:
        raise ValueError("num_classes is None, must be the number of classes: shapes must be known under jit")
    return confusion_matrix(predictions, labels, num_classes)


def _average(counts: jax.Array, hits: jax.Array, of: jax.Array, average: str | None) -> jax.Array:
    if average not in ("macro", "micro", "weighted", None):
        raise ValueError(f'average is {average!r}, must be "macro", "micro", "weighted" or None')
    if average == "micro":
        return _ratio(hits.sum(), of.sum())
    each = _ratio(hits, of)
    if average == "weighted":
        return jnp.sum(each * _ratio(counts.sum(1), counts.sum()))
    return each if average is None else each.mean()


def _ratio(part: jax.Array, whole: jax.Array) -> jax.Array:
    """part / whole, zero if whole is zero."""
    return jnp.where(whole > 0, part.astype(float) / jnp.maximum(whole, 1).astype(float), 0.0)
