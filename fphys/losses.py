"""Losses with torch's names and values, and the classes on the last axis; plus optax's other losses.

Each takes ``reduction``: ``"mean"`` (the default), ``"sum"``, or ``"none"`` for one value per element. You can write
your own loss as a function. Prediction and target must have the same shape. Nothing is broadcast, because (batch, 1)
against (batch,) would compare every element with every other. Both must be floating-point: a difference of two uint8
wraps. Only labels are integers.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jax.scipy.special import xlogy
from optax.losses import (
    cosine_distance,
    ctc_loss,
    dice_loss,
    hinge_loss,
    log_cosh,
    ntxent,
    poly_loss_cross_entropy,
    safe_softmax_cross_entropy,
    sigmoid_binary_cross_entropy,
    sigmoid_focal_loss,
    smooth_labels,
    softmax_cross_entropy,
    softmax_cross_entropy_with_integer_labels,
    squared_error,
)

from .typing import Array, Float, Int, shaped


@shaped
def mse_loss(prediction: Float[Array, "*shape"], target: Float[Array, "*shape"], reduction: str = "mean") -> jax.Array:
    """(prediction - target)². Gradients flow to both.

    Raises:
        ValueError: the shapes differ, or the reduction is unknown. TypeError: one is not floating-point.
    """
    _same("prediction", prediction, "target", target)
    return _reduce(optax.squared_error(_wide(prediction), _wide(target)), reduction).astype(prediction.dtype)


@shaped
def l1_loss(prediction: Float[Array, "*shape"], target: Float[Array, "*shape"], reduction: str = "mean") -> jax.Array:
    """|prediction - target|. Gradients flow to both; zero where they are equal. Raises like :func:`mse_loss`."""
    _same("prediction", prediction, "target", target)
    apart = prediction - target
    return _reduce(jnp.sign(apart) * apart, reduction)


@shaped
def huber_loss(
    prediction: Float[Array, "*shape"], target: Float[Array, "*shape"], delta: float = 1.0, reduction: str = "mean"
) -> jax.Array:
    """d² / 2 up to |d| = δ, δ (|d| - δ / 2) beyond (Huber 1964). Gradients flow to both.

    Raises:
        ValueError: as for :func:`mse_loss`; or δ is not positive.
    """
    _same("prediction", prediction, "target", target)
    _positive("delta", delta)
    return _reduce(_huber(prediction, target, delta), reduction).astype(prediction.dtype)


@shaped
def smooth_l1_loss(
    prediction: Float[Array, "*shape"], target: Float[Array, "*shape"], beta: float = 1.0, reduction: str = "mean"
) -> jax.Array:
    """:func:`huber_loss` / β, so that the slope is 1 far out (Girshick 2015); with β = 0 :func:`l1_loss`.

    Gradients flow to both.

    Raises:
        ValueError: as for :func:`mse_loss`; or β is negative.
    """
    if not isinstance(beta, Tracer) and beta == 0:
        return l1_loss(prediction, target, reduction)
    _same("prediction", prediction, "target", target)
    _positive("beta", beta)
    return _reduce(_huber(prediction, target, beta) / beta, reduction).astype(prediction.dtype)


@shaped
def cross_entropy(
    logits: Float[Array, "*batch classes"],
    labels: "Int[Array, '*batch'] | Float[Array, '*batch classes']",
    weight: Float[Array, " classes"] | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> jax.Array:
    """-log softmax(logits)[label].

    Args:
        logits: shape (..., class). The classes are on the last axis; torch has them on axis 1.
        labels: integers, shape (...), or probabilities with the shape of the logits.
        weight: of each class. With integer labels the mean is then weighted.
        ignore_index: rows with this label do not count, whatever their logits are. If no row counts, the mean is NaN
            and its gradient zero, as in torch.
        label_smoothing: share of the label to spread over all classes (Szegedy 2016).
        reduction: "mean", "sum" or "none".

    Returns:
        A scalar, or shape (...). Gradients flow to the logits, the weights, and labels that are probabilities.

    Raises:
        ValueError: the shapes do not fit, ``label_smoothing`` is not from 0 to 1, or a label is out of range. Under
            ``jit`` labels cannot be inspected; the loss and gradient of a row with such a label are then NaN.
            TypeError: the logits are not floating-point.
    """
    if not isinstance(label_smoothing, Tracer) and not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing is {label_smoothing}, must be from 0 to 1: a share of the label")
    _floating("logits", logits)
    if jnp.issubdtype(labels.dtype, jnp.integer):
        log_probs = jax.nn.log_softmax(_counted(logits, labels, ignore_index))
        return _pick(log_probs, labels, weight, ignore_index, label_smoothing, reduction)
    if labels.shape == logits.shape[:-1] != logits.shape:
        raise ValueError(f"labels are {labels.dtype}, must be integers, or probabilities of shape {logits.shape}")
    _same("logits", logits, "labels", labels)
    log_probs = jax.nn.log_softmax(logits)
    target = (1 - label_smoothing) * labels + label_smoothing / logits.shape[-1]
    losses: jax.Array = -jnp.sum(target * (log_probs if weight is None else log_probs * _row(weight, logits)), -1)
    return _reduce(losses, reduction)


@shaped
def nll_loss(
    log_probs: Float[Array, "*batch classes"],
    labels: Int[Array, "*batch"],
    weight: Float[Array, " classes"] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> jax.Array:
    """-log_probs[label]. Arguments, gradients and errors are those of :func:`cross_entropy`."""
    _floating("log_probs", log_probs)
    return _pick(_counted(log_probs, labels, ignore_index), labels, weight, ignore_index, 0.0, reduction)


@shaped
def binary_cross_entropy(
    probability: Float[Array, "*shape"], target: Float[Array, "*shape"], reduction: str = "mean"
) -> jax.Array:
    """-(t log p + (1 - t) log(1 - p)), each logarithm at least -100.

    If you have logits, use :func:`binary_cross_entropy_with_logits`, which is exact. Gradients flow to both, and are
    zero where a logarithm is cut off. Raises like :func:`mse_loss`.
    """
    _same("probability", probability, "target", target)
    return _reduce(-(target * _log(probability) + (1 - target) * _log(1 - probability)), reduction)


@shaped
def binary_cross_entropy_with_logits(
    logits: Float[Array, "*shape"],
    target: Float[Array, "*shape"],
    pos_weight: jax.typing.ArrayLike = 1.0,
    reduction: str = "mean",
) -> jax.Array:
    """-(w t log σ(x) + (1 - t) log(1 - σ(x))). The weight w, ``pos_weight``, is a number or an array that broadcasts.

    Gradients flow to all three. Raises like :func:`mse_loss`.
    """
    _same("logits", logits, "target", target)
    positive = pos_weight * target * jax.nn.log_sigmoid(logits)
    return _reduce(-jnp.add(positive, (1 - target) * jax.nn.log_sigmoid(-logits)), reduction)


@shaped
def kl_div(
    log_probs: Float[Array, "*shape"], target: Float[Array, "*shape"], log_target: bool = False, reduction: str = "mean"
) -> jax.Array:
    """t (log t - log_probs), and zero where t is zero.

    Args:
        log_probs: log probabilities of the prediction.
        target: probabilities, or log probabilities if ``log_target``.
        log_target: whether ``target`` holds logarithms.
        reduction: may also be "batchmean": the sum divided by the size of the first axis, which is the divergence.

    Returns:
        A scalar, or the shape of the input. Gradients flow to both; to a probability only where it is not zero.

    Raises:
        ValueError: the shapes differ, or the reduction is unknown.
    """
    _same("log_probs", log_probs, "target", target)
    if log_target:
        losses = jnp.exp(target) * (target - log_probs)
    else:
        losses = jnp.asarray(xlogy(target, target) - target * log_probs)
    if reduction == "batchmean":
        return (jnp.sum(_wide(losses)) / len(losses)).astype(losses.dtype)
    return _reduce(losses, reduction)


@shaped
def triplet_margin_loss(
    anchor: Float[Array, "*batch features"],
    positive: Float[Array, "*batch features"],
    negative: Float[Array, "*batch features"],
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> jax.Array:
    """max(d(anchor, positive) - d(anchor, negative) + margin, 0), where d(x, y) is the p-norm of x - y + eps.

    With reduction "none" the result has shape (...). Gradients flow to all three (Schroff 2015).

    Raises:
        ValueError: the shapes differ, or the reduction is unknown.
    """
    _same("positive", positive, "anchor", anchor)
    _same("negative", negative, "anchor", anchor)
    near, far = (jnp.linalg.norm(_wide(anchor) - _wide(other) + eps, p, -1) for other in (positive, negative))
    return _reduce(jax.nn.relu(near - far + margin), reduction).astype(anchor.dtype)


def _huber(prediction: Any, target: Any, delta: float) -> jax.Array:
    """Two branches, each zero where the other counts: optax's sum of both cancels if δ is much larger than |d|."""
    apart = _wide(prediction) - _wide(target)
    size, zero = jnp.sign(apart) * apart, jnp.zeros((), apart.dtype)
    near = size <= delta
    inner, outer = jnp.where(near, apart, zero), jnp.where(near, zero, size - 0.5 * delta)
    return jnp.where(near, 0.5 * inner * inner, delta * outer)


def _counted(scores: Any, labels: Any, ignore: int) -> jax.Array:
    """Scores with zeros in the rows that are ignored, so that not even an infinity there reaches a gradient."""
    if labels.shape != scores.shape[:-1]:
        raise ValueError(
            f"labels have shape {labels.shape}, must have {scores.shape[:-1]}: one integer for each row of the "
            f"scores of shape {scores.shape}"
        )
    return jnp.where((_signed(labels) != ignore)[..., None], scores, jnp.zeros((), scores.dtype))


def _signed(labels: Any) -> Any:
    return labels if labels.dtype.itemsize >= 4 else labels.astype(jnp.int32)  # 8 bits do not hold -100 and 256


def _pick(log_probs: Any, labels: Any, weight: Any, ignore: int, smoothing: float, reduction: str) -> jax.Array:
    """The negative log-likelihood of integer labels, weighted and smoothed as torch does."""
    classes, labels = log_probs.shape[-1], _signed(labels)
    counted = labels != ignore
    valid = (labels >= 0) & (labels < classes)
    if not isinstance(labels, Tracer):
        seen = np.asarray(labels)
        wrong = seen[((seen < 0) | (seen >= classes)) & (seen != ignore)]
        if wrong.size:
            raise ValueError(f"labels hold {wrong[0]}, must be from 0 to {classes - 1}, or ignore_index = {ignore}")
    index = jnp.where(valid, labels, 0)
    one = jnp.ones((), log_probs.dtype)
    weights = one if weight is None else jnp.take(jnp.asarray(weight), index)
    weights = jnp.where(counted, weights, 0 * one)
    losses = -weights * jnp.take_along_axis(log_probs, index[..., None], -1)[..., 0]
    if smoothing:
        every = log_probs if weight is None else log_probs * _row(weight, log_probs)
        even = -jnp.mean(every, -1) * jnp.where(counted, one, 0 * one)
        losses = (1 - smoothing) * losses + smoothing * even
    losses = losses * jnp.where(valid | ~counted, one, jnp.nan * one)  # a product, so the gradient is NaN too
    if reduction == "mean":
        total, some = jnp.sum(_wide(weights)), counted.any()
        mean = jnp.sum(_wide(losses)) / jnp.where(some, total, jnp.ones_like(total))
        return jnp.where(some, mean, jnp.full_like(mean, jnp.nan)).astype(losses.dtype)
    return _reduce(losses, reduction)


def _row(weight: Any, like: Any) -> jax.Array:
    return jnp.reshape(jnp.asarray(weight), (1,) * (like.ndim - 1) + (-1,))


def _log(p: jax.Array) -> jax.Array:
    """log p, at least -100. The argument is guarded, so that the gradient is finite at zero."""
    positive = p > 0
    return jnp.where(positive, jnp.maximum(jnp.log(jnp.where(positive, p, jnp.ones((), p.dtype))), -100.0), -100.0)


def _same(name: str, one: Any, other_name: str, other: Any) -> None:
    _floating(name, one)
    _floating(other_name, other)
    if one.shape != other.shape:
        raise ValueError(
            f"{name} has shape {one.shape} and {other_name} {other.shape}; they must be the same: reshape one of them"
        )


def _floating(name: str, values: Any) -> None:
    if not jnp.issubdtype(values.dtype, jnp.inexact):
        raise TypeError(f"{name} is {values.dtype}, must be floating-point: {name}.astype(jnp.float32)")


def _positive(name: str, value: Any) -> None:
    if not isinstance(value, Tracer) and not value > 0:
        raise ValueError(f"{name} is {value}, must be positive: the error from which the loss grows as a straight line")


def _wide(values: Any) -> jax.Array:
    """At least float32: a square of 256, or the sum of many losses, is infinite in float16."""
    return jnp.asarray(values) if values.dtype.itemsize >= 4 else values.astype(jnp.float32)


def _reduce(losses: jax.Array, reduction: str) -> jax.Array:
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f'reduction is {reduction!r}, must be "mean", "sum" or "none"')
    return losses if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()


__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_distance",
    "cross_entropy",
    "ctc_loss",
    "dice_loss",
    "hinge_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "log_cosh",
    "mse_loss",
    "nll_loss",
    "ntxent",
    "poly_loss_cross_entropy",
    "safe_softmax_cross_entropy",
    "sigmoid_binary_cross_entropy",
    "sigmoid_focal_loss",
    "smooth_l1_loss",
    "smooth_labels",
    "softmax_cross_entropy",
    "softmax_cross_entropy_with_integer_labels",
    "squared_error",
    "triplet_margin_loss",
]
