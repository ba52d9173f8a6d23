"""One rule for the gradient of every solve.

Let a solve r(a; x) = 0, and let P(a, l; x) = l . r be its *power* along a trial direction l. For a
cotangent of a, solve (dr/da)^T l = cotangent; the cotangent of x is then -dP/dx at fixed a and l. The
power is straight-line code, differentiated by its adjoint launches; the solver is not differentiated.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from .bridge import WarpOp, flags
from .bridge.op import dense

Array = jax.Array

__all__ = ["dense", "flags", "power_gradient", "primal_values", "recomputed", "solved"]

_SOLVED = "solved"


def solved(values: Any) -> Any:
    """Mark what a solve found: this, and the arguments, are all that :func:`recomputed` keeps for the backward pass."""
    return jax.tree.map(lambda x: checkpoint_name(x, _SOLVED), values)


def recomputed(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the backward pass runs ``fn`` again, all but its solves."""
    policy = jax.checkpoint_policies.save_only_these_names(_SOLVED)
    return functools.wraps(fn)(jax.checkpoint(fn, policy=policy, prevent_cse=False))


def power_gradient(
    power: WarpOp, primals: tuple[Any, ...], fixed: tuple[Any, ...], wanted: Sequence[bool], cotangent: Array
) -> tuple[Any, ...]:
    """-dP/d(primals) at fixed accelerations and virtual velocities.

    A world without a cotangent has no gradient, whatever the solve left there: where it overflowed, zero times
    what is not finite must not reach the gradient of what worlds share.
    """
    silent = (cotangent == 0).all(1, keepdims=True)
    args = (*primals, *(jnp.where(silent, 0, x) if _is_motion(x) else x for x in fixed))
    parts = power.outputs(*args)
    seeds = [-jnp.ones(p.shape, p.dtype) for p in (parts if isinstance(parts, tuple) else (parts,))]
    mask = [*wanted, *[False] * len(jax.tree.leaves(fixed))]
    return power.vjp(args, seeds, mask)[: len(primals)]


def _is_motion(x: Any) -> bool:
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)


def primal_values(primals: tuple[Any, ...]) -> tuple[Any, list[Array]]:
    """The values that a ``custom_vjp`` with symbolic zeros is given, and which of them need a gradient, to be saved."""

    def is_primal(x: Any) -> bool:
        return hasattr(x, "perturbed")

    values = jax.tree.map(lambda p: p.value, primals, is_leaf=is_primal)
    return values, flags.save([p.perturbed for p in jax.tree.leaves(primals, is_leaf=is_primal)])
