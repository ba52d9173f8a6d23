"""Losses with torch's names and numbers, the classes on the last axis; optax's others beside them.

Every one takes ``reduction``: ``"mean"`` (the default), ``"sum"``, or ``"none"`` for one value per element. A loss of
your own is a function. Prediction and target have one shape: none is broadcast, for (batch, 1) against (batch,) would
compare all with all.
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
    triplet_margin_loss,
)

from .typing import Array, Float, Int, shaped


@shaped
def mse_loss(prediction: Float[Array, "*shape"], target: Float[Array, "*shape"], reduction: str = "mean") -> jax.Array:
    """(prediction - target)². Gradients flow to both.

    Raises:
        ValueError: the shapes differ, or the reduction is unknown.
    """
    _same("prediction", prediction, "target", target)
    return _reduce(optax.squared_error(prediction, target), reduction)


@shaped
def l1_loss(prediction: Float[Array, "*shape"], target: Float[Array, "*shape"], reduction: str = "mean") -> jax.Array:
    """|prediction - target|. Gradients flow to both; raises as :func:`mse_loss`."""
    _same("prediction", prediction, "target", target)
    return _reduce(jnp.abs(prediction - target), reduction)


@shaped
def huber_loss(
    prediction: Float[Array, "*shape"], target: Float[Array, "*shape"], delta: float = 1.0, reduction: str = "mean"
) -> jax.Array:
    """d² / 2 up to |d| = δ, δ (|d| - δ / 2) beyond (Huber 1964). Gradients flow to both; raises as :func:`mse_loss`."""
    _same("prediction", prediction, "target", target)
    return _reduce(optax.huber_loss(prediction, target, delta=delta), reduction)


@shaped
def smooth_l1_loss(
    prediction: Float[Array, "*shape"], target: Float[Array, "*shape"], beta: float = 1.0, reduction: str = "mean"
) -> jax.Array:
    """:func:`huber_loss` / β, the slope far out being 1 (Girshick 2015)."""
    return huber_loss(prediction, target, beta, reduction) / beta


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
        logits: shape (..., class): the classes on the last axis, where torch has them on axis 1.
        labels: integers, shape (...), or probabilities of the shape of the logits.
        weight: of each class; the mean is then a weighted one.
        ignore_index: a label that counts for nothing.
        label_smoothing: the share of the label that is spread over all classes (Szegedy 2016).
        reduction: "mean", "sum" or "none".

    Returns:
        A number, or shape (...). Gradients flow to the logits, to the weights and to labels that are probabilities.

    Raises:
        ValueError: the shapes do not fit, or a label is out of range. Under ``jit``, where labels cannot be looked at,
            the loss and the gradient of such a row are NaN.
    """
    log_probs = jax.nn.log_softmax(logits)
    if jnp.issubdtype(labels.dtype, jnp.integer):
        return _pick(log_probs, labels, weight, ignore_index, label_smoothing, reduction)
    if labels.shape == logits.shape[:-1] != logits.shape:
        raise ValueError(f"labels are {labels.dtype}, must be integers, or probabilities of shape {logits.shape}")
    _same("logits", logits, "labels", labels)
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
    """-log_probs[label]; arguments and errors as :func:`cross_entropy`'s."""
    return _pick(log_probs, labels, weight, ignore_index, 0.0, reduction)


@shaped
def binary_cross_entropy(
    probability: Float[Array, "*shape"], target: Float[Array, "*shape"], reduction: str = "mean"
) -> jax.Array:
    """-(t log p + (1 - t) log(1 - p)), each logarithm at least -100. From logits, take the next one: it is exact.

    Gradients flow to both, zero where a logarithm is cut off; raises as :func:`mse_loss`.
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
    """-(w t log σ(x) + (1 - t) log(1 - σ(x))); ``pos_weight`` w is a number or of a shape that broadcasts.

    Gradients flow to all three; raises as :func:`mse_loss`.
    """
    _same("logits", logits, "target", target)
    positive = pos_weight * target * jax.nn.log_sigmoid(logits)
    return _reduce(-jnp.add(positive, (1 - target) * jax.nn.log_sigmoid(-logits)), reduction)


@shaped
def kl_div(
    log_probs: Float[Array, "*shape"], target: Float[Array, "*shape"], log_target: bool = False, reduction: str = "mean"
) -> jax.Array:
    """t (log t - log_probs), zero where t is.

    Args:
        log_probs: the prediction's logarithm.
        target: probabilities, or their logarithms where ``log_target``.
        log_target: which of the two.
        reduction: also "batchmean", the sum divided by the size of the first axis: the divergence itself.

    Returns:
        A number, or the shape of the input. Gradients flow to both, to a probability where it is not zero.

    Raises:
        ValueError: the shapes differ, or the reduction is unknown.
    """
    _same("log_probs", log_probs, "target", target)
    if log_target:
        losses = jnp.exp(target) * (target - log_probs)
    else:
        losses = jnp.asarray(xlogy(target, target) - target * log_probs)
    return jnp.sum(losses) / len(losses) if reduction == "batchmean" else _reduce(losses, reduction)


def _pick(log_probs: Any, labels: Any, weight: Any, ignore: int, smoothing: float, reduction: str) -> jax.Array:
    """The negative log-likelihood of integer labels, weighted and smoothed as torch does."""
    classes = log_probs.shape[-1]
    if labels.shape != log_probs.shape[:-1]:
        raise ValueError(
            f"labels have shape {labels.shape}, must have {log_probs.shape[:-1]}: one integer for each row of the "
            f"scores of shape {log_probs.shape}"
        )
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
        even = -jnp.sum(every, -1) * jnp.where(counted, one, 0 * one)
        losses = (1 - smoothing) * losses + smoothing / classes * even
    losses = losses * jnp.where(valid | ~counted, one, jnp.nan * one)  # a product, so that the gradient is NaN, too
    return jnp.sum(losses) / jnp.sum(weights) if reduction == "mean" else _reduce(losses, reduction)


def _row(weight: Any, like: Any) -> jax.Array:
    return jnp.reshape(jnp.asarray(weight), (1,) * (like.ndim - 1) + (-1,))


def _log(p: jax.Array) -> jax.Array:
    """log p, at least -100; guarded at its argument, so that the gradient is finite at zero."""
    positive = p > 0
    return jnp.where(positive, jnp.maximum(jnp.log(jnp.where(positive, p, jnp.ones((), p.dtype))), -100.0), -100.0)


def _same(name: str, one: Any, other_name: str, other: Any) -> None:
    if one.shape != other.shape:
        raise ValueError(
            f"{name} has shape {one.shape} and {other_name} {other.shape}; they must be the same: reshape one of them"
        )


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
