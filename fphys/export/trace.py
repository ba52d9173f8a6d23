"""A function's program, and whether it can run outside this process."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr

from .errors import ExportError

INLINED = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat2", "checkpoint")


def trace(fn: Callable[..., Any], inputs: tuple[Any, ...]) -> tuple[ClosedJaxpr, Any]:
    """The function's program for inputs of these shapes, and the shapes of its outputs.

    Raises:
        ExportError: it calls out of XLA, for example into Warp, which no other runtime has.
    """
    program, shapes = jax.make_jaxpr(fn, return_shape=True)(*inputs)
    foreign = sorted(set(foreign_calls(program.jaxpr)))
    if "fphys_warp" in foreign:
        raise ExportError(
            "the function contains a Warp operation: its kernels are compiled in this process and are not part of "
            "XLA's program, so neither ONNX nor jax.export can hold them. Export the parts that are learned (the "
            "policy, a value, a dynamics model), and simulate where fphys is installed: fphys.load of the model's "
            "file and export.load_program make the same loop there. A planner (MPC) contains the simulator: take its "
            "weights along (export.save_weights) and build it there"
        )
    if foreign:
        raise ExportError(f"the function calls out of XLA ({', '.join(foreign)}): only this process can run that")
    return program, shapes


def foreign_calls(jaxpr: Jaxpr) -> Iterator[str]:
    """Names of the calls out of XLA that a program makes, including those in inner programs."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "ffi_call":
            yield str(equation.params["target_name"])
        elif "callback" in equation.primitive.name:
            yield equation.primitive.name
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_program):
            if _is_program(inner):
                yield from foreign_calls(getattr(inner, "jaxpr", inner))


def inner_program(equation: Any) -> ClosedJaxpr | None:
    """The inner program, if an equation does nothing but call it; else None."""
    if equation.primitive.name not in INLINED:
        return None
    program = next(p for p in map(equation.params.get, ("jaxpr", "call_jaxpr", "fun_jaxpr")) if p is not None)
    return program if hasattr(program, "consts") else ClosedJaxpr(program, ())


def _is_program(value: Any) -> bool:
    return isinstance(value, ClosedJaxpr | Jaxpr)
