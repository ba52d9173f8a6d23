"""Optimizers and schedules: optax's, plus torch's four with torch's arguments and numbers.

``optimizer = Adam(1e-3)``, ``state = optimizer.init(params)``,
``updates, state = optimizer.update(grads, state, params)``,
``params = apply_updates(params, updates)``. Capitalised names are torch's, with torch's defaults; lower-case names are
optax's. A learning rate is a number or a schedule. A schedule is a function of the number of updates so far.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax import (
    GradientTransformation,
    MultiSteps,
    adabelief,
    adadelta,
    adafactor,
    adagrad,
    adam,
    adamax,
    adamw,
    add_decayed_weights,
    apply_if_finite,
    apply_updates,
    chain,
    clip,
    constant_schedule,
    cosine_decay_schedule,
    cosine_onecycle_schedule,
    ema,
    exponential_decay,
    incremental_update,
    inject_hyperparams,
    join_schedules,
    lamb,
    lars,
    lbfgs,
    linear_schedule,
    lion,
    lookahead,
    masked,
    multi_transform,
    nadam,
    piecewise_constant_schedule,
    polynomial_schedule,
    radam,
    rmsprop,
    scale_by_learning_rate,
    set_to_zero,
    sgd,
    sgdr_schedule,
    warmup_cosine_decay_schedule,
    warmup_exponential_decay_schedule,
    yogi,
)

Schedule = Callable[[Any], Any]
Rate = float | jax.Array | Schedule


def SGD(
    lr: Rate, momentum: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False
) -> optax.GradientTransformationExtraArgs:
    """b' = μ b + g + λ p, p' = p - lr b'; with Nesterov momentum p' = p - lr (g + λ p + μ b') (Sutskever 2013).

    Raises:
        ValueError: a number is not finite or is negative, or ``nesterov`` is True without momentum.
    """
    _numbers(lr=lr, momentum=momentum, weight_decay=weight_decay)
    if nesterov and not _acts(momentum):
        raise ValueError("nesterov is True but momentum is 0: give a momentum, for example 0.9")
    return optax.chain(_decay(weight_decay), optax.sgd(lr, momentum if _acts(momentum) else None, nesterov))


def Adam(
    lr: Rate = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0
) -> optax.GradientTransformationExtraArgs:
    """Adam (Kingma and Ba 2015). Weight decay is added to the gradient.

    Raises:
        ValueError: a number is not finite or is negative, or a beta is not below 1.
    """
    _numbers(lr=lr, eps=eps, weight_decay=weight_decay)
    _betas(betas)
    return optax.chain(_decay(weight_decay), optax.adam(lr, *betas, eps))


def AdamW(
    lr: Rate = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 1e-2
) -> optax.GradientTransformationExtraArgs:
    """Adam with decoupled weight decay, p' = p - lr (adam + λ p) (Loshchilov and Hutter 2019).

    Raises:
        ValueError: a number is not finite or is negative, or a beta is not below 1.
    """
    _numbers(lr=lr, eps=eps, weight_decay=weight_decay)
    _betas(betas)
    return optax.adamw(lr, *betas, eps, weight_decay=weight_decay)


def RMSprop(
    lr: Rate = 1e-2,
    alpha: float = 0.99,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    centered: bool = False,
) -> optax.GradientTransformationExtraArgs:
    """v' = α v + (1 - α) g², b' = μ b + g / (√v' + ε), p' = p - lr b' (Hinton 2012; centred: Graves 2013).

    Raises:
        ValueError: a number is not finite or is negative.
    """
    _numbers(lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum)
    scale = optax.scale_by_stddev if centered else optax.scale_by_rms
    return optax.chain(
        _decay(weight_decay),
        scale(alpha, eps, eps_in_sqrt=False),
        optax.trace(momentum) if _acts(momentum) else optax.identity(),
        optax.scale_by_learning_rate(lr),
    )


def global_norm(tree: Any) -> jax.Array:
    """The 2-norm of all numbers of a pytree together, shape (), in float32 or wider.

    It is not finite only if a number is not, or if its type does not hold it.
    """
    scale, norm = _scaled_norm(tree)
    return norm / scale


def clip_by_global_norm(max_norm: float | jax.Array) -> optax.GradientTransformation:
    """Scale updates, arrays of any shape, to the norm ``max_norm`` if :func:`global_norm` is larger (Pascanu 2013).

    Raises:
        ValueError: ``max_norm`` is negative or NaN.
    """
    if isinstance(max_norm, (int, float, np.number)) and not max_norm >= 0:
        raise ValueError(f"max_norm is {max_norm}, must not be negative: the largest norm of the updates")

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        scale, norm = _scaled_norm(updates)

        def shortened(x: jax.Array) -> jax.Array:
            wide = _wide(x)
            short = wide * scale.astype(wide.dtype) / norm.astype(wide.dtype) * max_norm
            return jnp.where(norm / scale < max_norm, x, short.astype(x.dtype))

        return jax.tree.map(shortened, updates), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def StepLR(lr: float, step_size: int, gamma: float = 0.1) -> Schedule:
    """lr γ^floor(n / step_size).

    Raises:
        ValueError: ``step_size`` is below one, or another number is not finite or is negative.
    """
    if step_size < 1:
        raise ValueError(f"step_size is {step_size}, must be the number of updates from step to step, 1 or more")
    _numbers(lr=lr, gamma=gamma)
    return lambda n: lr * _power(gamma, jnp.floor_divide(n, step_size).astype(jnp.int32))


def ExponentialLR(lr: float, gamma: float) -> Schedule:
    """lr γⁿ. Raises like :func:`StepLR`."""
    return StepLR(lr, 1, gamma)


def CosineAnnealingLR(lr: float, T_max: int, eta_min: float = 0.0) -> Schedule:
    """eta_min + (lr - eta_min) (1 + cos(π n / T_max)) / 2, and eta_min from T_max on (Loshchilov and Hutter 2017).

    Raises:
        ValueError: ``T_max`` is below one, or another number is not finite or is negative.
    """
    if not T_max >= 1:
        raise ValueError(f"T_max is {T_max}, must be the number of updates, 1 or more")
    _numbers(lr=lr, eta_min=eta_min)
    fall = optax.cosine_decay_schedule(lr - eta_min, T_max)
    return lambda n: eta_min + fall(n)


def warmup(schedule: Rate, steps: int, start: float = 0.0) -> Schedule:
    """Rise linearly from ``start`` to the start of the schedule (or constant rate) in ``steps``, then follow it.

    ``start`` and the values of schedules are learning rates, scalars.

    Raises:
        ValueError: ``steps`` is negative.
    """
    if steps < 0:
        raise ValueError(f"steps is {steps}, must be the number of warm-up updates, 0 or more")
    after = schedule if callable(schedule) else optax.constant_schedule(schedule)
    return optax.join_schedules([optax.linear_schedule(start, after(0), steps), after], [steps])


def ReduceLROnPlateau(
    factor: float = 0.1, patience: int = 10, threshold: float = 1e-4, cooldown: int = 0, every: int = 1
) -> optax.GradientTransformationExtraArgs:
    """Scale updates by ``factor`` each time that the loss has not fallen for more than ``patience`` times.

    The update of the loss that decides is scaled, too; torch's scheduler, which follows its optimizer, scales the next.
    It follows an optimizer: ``chain(Adam(1e-3), ReduceLROnPlateau(every=100))``. Its ``update`` takes the loss as
    ``value=``, which :func:`fphys.train.step` and ``fit`` pass.

    Args:
        factor: what the rate is multiplied by.
        patience: how many times without a smaller loss are accepted.
        threshold: a loss is smaller if it is below the best by this share of it.
        cooldown: how many times are not counted after a reduction.
        every: updates per time; the loss is their mean. Give the updates per epoch to count epochs, as torch does.

    Raises:
        ValueError: ``every`` is below one, or another number is not finite or is negative.
    """
    from optax.contrib import reduce_on_plateau

    if every < 1:
        raise ValueError(f"every is {every}, must be 1 or more: updates per time")
    _numbers(factor=factor, patience=patience, threshold=threshold, cooldown=cooldown)
    least = 0.0 if threshold else float(np.finfo(np.float32).tiny)  # optax refuses two zeros
    return reduce_on_plateau(factor, patience + 1, threshold, least, cooldown=cooldown, accumulation_size=every)


def _power(gamma: Any, n: jax.Array) -> jax.Array:
    """γⁿ as a product of γ^(2^k), which the host computes: float32's own power is wrong by 1 % where n is 10⁶."""
    with np.errstate(over="ignore", under="ignore"):
        squares = gamma if isinstance(gamma, jax.Array) else np.float64(gamma)
        squares = jnp.asarray(squares ** (2.0 ** np.arange(31)), float)
    k = np.arange(31, dtype=np.int32).reshape(-1, *[1] * n.ndim)
    return jnp.where(n[None] >> k & 1, squares.reshape(k.shape), 1.0).prod(0)


def _scaled_norm(tree: Any) -> tuple[jax.Array, jax.Array]:
    """A power of two, so that products are exact, that brings the largest number near one; and the 2-norm then."""
    tree = jax.tree.map(_wide, tree)
    sizes = (jnp.abs(x).max(initial=0) for x in jax.tree.leaves(tree))
    largest = jnp.asarray(functools.reduce(jnp.maximum, sizes, 0.0))
    largest, kind = jax.lax.stop_gradient(largest), jnp.finfo(largest.dtype)
    exponent = jnp.where(jnp.isfinite(largest), 1 - jnp.frexp(largest)[1], 0)
    scale = jnp.ldexp(jnp.ones_like(largest), jnp.clip(exponent, kind.minexp, -kind.minexp))
    return scale, optax.tree.norm(jax.tree.map(lambda x: x * scale.astype(x.dtype), tree))


def _wide(x: jax.Array) -> jax.Array:
    """At least 32 bits: in float16 the square of 256 is infinite."""
    return x.astype(jnp.float32) if x.dtype.itemsize < 4 else x


def _decay(weight_decay: float) -> optax.GradientTransformation:
    return optax.add_decayed_weights(weight_decay) if _acts(weight_decay) else optax.identity()


def _acts(number: Any) -> bool:
    """Whether a number is not zero. An array, as ``inject_hyperparams`` gives, may change from update to update."""
    return isinstance(number, jax.Array) or bool(number)


def _numbers(**numbers: Any) -> None:
    for name, value in numbers.items():
        if isinstance(value, (int, float, np.number)) and not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} is {value}, must be finite and not negative")


def _betas(betas: tuple[float, float]) -> None:
    if not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"betas are {betas}, must be at least 0 and below 1")


__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "CosineAnnealingLR",
    "ExponentialLR",
    "GradientTransformation",
    "MultiSteps",
    "RMSprop",
    "Rate",
    "ReduceLROnPlateau",
    "Schedule",
    "StepLR",
    "adabelief",
    "adadelta",
    "adafactor",
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "add_decayed_weights",
    "apply_if_finite",
    "apply_updates",
    "chain",
    "clip",
    "clip_by_global_norm",
    "constant_schedule",
    "cosine_decay_schedule",
    "cosine_onecycle_schedule",
    "ema",
    "exponential_decay",
    "global_norm",
    "incremental_update",
    "inject_hyperparams",
    "join_schedules",
    "lamb",
    "lars",
    "lbfgs",
    "linear_schedule",
    "lion",
    "lookahead",
    "masked",
    "multi_transform",
    "nadam",
    "piecewise_constant_schedule",
    "polynomial_schedule",
    "radam",
    "rmsprop",
    "scale_by_learning_rate",
    "set_to_zero",
    "sgd",
    "sgdr_schedule",
    "warmup",
    "warmup_cosine_decay_schedule",
    "warmup_exponential_decay_schedule",
    "yogi",
]
