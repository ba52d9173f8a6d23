"""What a function consists of, and that it can live without this process."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr

from .errors import ExportError

INLINED = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat2", "checkpoint")


def trace(fn: Callable[..., Any], inputs: tuple[Any, ...]) -> tuple[ClosedJaxpr, Any]:
    """The function's program at inputs of these shapes, and the shapes of its outputs.

    Raises:
        ExportError: it contains a call out of XLA, of Warp for one, which no other runtime has.
    """
    program, shapes = jax.make_jaxpr(fn, return_shape=True)(*inputs)
    foreign = sorted(set(foreign_calls(program.jaxpr)))
    if "fphys_warp" in foreign:
        raise ExportError(
            "the function contains a Warp operation: its kernels are compiled in this process and are not part of "
            "XLA's program, so neither ONNX nor jax.export can hold them. Export the learned part (the policy) alone, "
            "and simulate where fphys is"
        )
    if foreign:
        raise ExportError(f"the function calls out of XLA ({', '.join(foreign)}), to what this process alone has")
    return program, shapes


def foreign_calls(jaxpr: Jaxpr) -> Iterator[str]:
    """What a program calls out of XLA, itself or in the programs within it."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "ffi_call":
            yield str(equation.params["target_name"])
        elif "callback" in equation.primitive.name:
            yield equation.primitive.name
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_program):
            if _is_program(inner):
                yield from foreign_calls(getattr(inner, "jaxpr", inner))


def inner_program(equation: Any) -> ClosedJaxpr | None:
    """The program that an equation merely calls, if it does no more."""
    if equation.primitive.name not in INLINED:
        return None
    program = next(p for p in map(equation.params.get, ("jaxpr", "call_jaxpr", "fun_jaxpr")) if p is not None)
    return program if hasattr(program, "consts") else ClosedJaxpr(program, ())


def _is_program(value: Any) -> bool:
    return isinstance(value, ClosedJaxpr | Jaxpr)
