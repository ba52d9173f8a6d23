"""Replaces a function that JAX can differentiate by itself with a faster operation of ours.

``vmap``, forward mode and higher derivatives still go through the plain function.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.custom_batching import custom_vmap
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

Function = Callable[..., tuple[jax.Array, ...]]


def instead(fast: Function, plain: Function) -> Function:
    """``fast(*arrays)``, a tuple of arrays; ``plain``, with the same values, where it is mapped or differentiated."""
    call = custom_vmap(fast)

    @call.def_vmap
    def _(size: int, mapped: Sequence[bool], *args: Any) -> Any:
        outs = jax.vmap(plain, [0 if m else None for m in mapped], axis_size=size)(*args)
        return outs, (True,) * len(outs)

    differentiable = jax.custom_jvp(call)
    differentiable.defjvp(functools.partial(jax.jvp, plain))
    return differentiable


def linear(plain: Function, transpose: Function, residuals: Sequence[Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
    """``plain(*residuals, *inputs)``, linear in the inputs; in reverse mode ``transpose(*residuals, *cotangents)``.

    Like ``jax.custom_derivatives.linear_call``, but it may be mapped, and differentiated by the residuals.
    """
    return tuple(_linear.bind(*residuals, *inputs, plain=plain, transpose=transpose, count=len(residuals)))


def _mapped(args: Any, axes: Any, *, plain: Function, **_: Any) -> Any:
    outs = jax.vmap(plain, list(axes))(*args)
    return outs, (0,) * len(outs)


def _differentiated(primals: Any, tangents: Any, *, plain: Function, **_: Any) -> Any:
    return jax.jvp(plain, tuple(primals), tuple(ad.instantiate_zeros(t) for t in tangents))


def _transposed(cotangents: Any, *args: Any, plain: Function, transpose: Function, count: int) -> Any:
    found = transpose(*args[:count], *(ad.instantiate_zeros(c) for c in cotangents))
    return [None] * count + [g if ad.is_undefined_primal(x) else None for x, g in zip(args[count:], found, strict=True)]


_linear = Primitive("linear")
_linear.multiple_results = True
_linear.def_impl(lambda *args, plain, **_: plain(*args))
_linear.def_abstract_eval(lambda *avals, plain, **_: jax.make_jaxpr(plain)(*avals).out_avals)
mlir.register_lowering(_linear, mlir.lower_fun(lambda *args, plain, **_: plain(*args), multiple_results=True))
batching.primitive_batchers[_linear] = _mapped
ad.primitive_jvps[_linear] = _differentiated
ad.primitive_transposes[_linear] = _transposed
