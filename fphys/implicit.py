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
from jax.custom_derivatives import SymbolicZero

from .bridge import WarpOp, custom_vjp, flags
from .bridge.op import dense, differentiable_once
from .bridge.spread import alongside
from .worlds import choose

Array = jax.Array

MUCH = 2**17
"""Array size at which reading takes longer than a branch."""

__all__ = ["dense", "flags", "power_gradient", "primal_values", "recomputed"]


def recomputed(
    unused: Callable[..., Any], harmless: Callable[..., Any], settled: Callable[..., Any] = lambda *args: args
) -> Callable[..., Any]:
    """Decorator for ``fn(known, *args) -> (result, known)``: the backward pass calls ``fn`` again, without its solves.

    ``known`` is a tree of what the solves find. The decorated function is called without it; ``fn`` gets None where it
    must solve. Only the arguments and ``known`` are stored.

    A world whose result is not used has no cotangent. An overflow in it would still turn the gradient of shared
    leaves into NaN, because zero times infinity is NaN. So the backward pass replaces that world's arguments.

    Args:
        unused: ``unused(result)``, the worlds whose result is not used, bool, shape (world,); or None, for those that
            have no cotangent.
        harmless: ``harmless(worlds, *args)``, the arguments, replaced in these worlds by values that do not overflow.
        settled: ``settled(*args)``, the arguments of a step that will be differentiated, such as a finer tolerance.
    """

    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        @custom_vjp
        def call(*args: Any) -> Any:
            return fn(None, *args)[0]

        def forward(*primals: Any) -> Any:
            args, wanted = primal_values(primals)
            result, known = fn(None, *settled(*differentiable_once(args, fn.__name__)))
            return result, (unused(result), known, args, wanted)

        def backward(saved: Any, cotangent: Any) -> Any:
            worlds, known, args, wanted = saved
            cotangents = jax.tree.leaves(cotangent)
            used = [i for i, c in enumerate(cotangents) if not isinstance(c, SymbolicZero)]
            if used and worlds is None:
                worlds = _silent([cotangents[i] for i in used if cotangents[i].dtype != jax.dtypes.float0])
            leaves, tree = jax.tree.flatten(harmless(worlds, *args) if used else args)
            chosen = [i for i, wish in enumerate(flags.load(wanted)) if wish]

            def again(*values: Array) -> list[Array]:
                given = dict(zip(chosen, values, strict=True))
                result, _ = fn(known, *tree.unflatten([given.get(i, leaf) for i, leaf in enumerate(leaves)]))
                return alongside([jax.tree.leaves(result)[i] for i in used], cotangents)

            found: list[Any] = [None] * len(leaves)
            if used and chosen:
                _, pull = jax.vjp(again, *(leaves[i] for i in chosen))
                for i, gradient in zip(chosen, pull([cotangents[i] for i in used]), strict=True):
                    found[i] = gradient
            return tree.unflatten(found)

        backward.__name__ = fn.__name__  # which errors show
        call.defvjp(forward, backward, symbolic_zeros=True)
        return functools.wraps(fn)(jax.jit(call))

    return decorate


def _silent(cotangents: list[Array]) -> Array:
    """Worlds whose cotangents are all zero, bool, shape (world,). Checking the first cotangent usually suffices."""

    def silent(some: list[Array]) -> Array:
        return functools.reduce(jnp.add, [jnp.abs(c).reshape(len(c), -1).sum(1) for c in some]) == 0

    if sum(c.size for c in cotangents) < MUCH:
        return silent(cotangents)
    first = silent(cotangents[:1])
    return jax.lax.cond(first.any(), lambda: first & silent(cotangents[1:]), lambda: first)


def power_gradient(
    power: WarpOp, primals: tuple[Any, ...], fixed: tuple[Any, ...], wanted: Sequence[bool], cotangent: Array
) -> tuple[Any, ...]:
    """-dP/d(primals) at fixed accelerations and virtual velocities.

    A world without a cotangent has no gradient, whatever the solve left there: if it overflowed, zero times a
    non-finite value must not reach the gradient of leaves that worlds share.
    """
    silent = (cotangent == 0).reshape(len(cotangent), -1).all(1)
    args = (*primals, *jax.tree.map(lambda x: choose(silent, 0, x) if _is_motion(x) else x, fixed))
    seeds = jax.tree.map(lambda part: -jnp.ones(part.shape, part.dtype), power.outputs(*args))
    mask = [*wanted, *[False] * len(jax.tree.leaves(fixed))]
    return power.vjp(args, seeds, mask)[: len(primals)]


def _is_motion(x: Any) -> bool:
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)


def primal_values(primals: tuple[Any, ...]) -> tuple[Any, list[Array]]:
    """Split the arguments of a ``custom_vjp`` with symbolic zeros into values and flags.

    The flags say which arguments need a gradient, and can be stored.
    """

    def is_primal(x: Any) -> bool:
        return hasattr(x, "perturbed")

    values = jax.tree.map(lambda p: p.value, primals, is_leaf=is_primal)
    return values, flags.save([p.perturbed for p in jax.tree.leaves(primals, is_leaf=is_primal)])
