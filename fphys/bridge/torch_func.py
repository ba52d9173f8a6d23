"""JAX functions under ``torch.func`` and ``torch.compile``: what :func:`fphys.bridge.torch.as_torch` does there.

Under a transform, a call and its backward pass are the same node, of two programs. ``vmap`` maps the program by
``jax.vmap``, so that the transforms compose.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..errors import BridgeError
from .dlpack import import_torch, take_torch, to_torch

Leaves = list[Any]


@functools.cache
def program_node() -> Any:
    """The node under ``torch.func``: like that of ``backward()``, but each pass is one call of the same node."""
    torch = import_torch()

    class JaxProgram(torch.autograd.Function):
        @staticmethod
        def forward(program: Any, *tensors: Any) -> Any:
            arrays = [take_torch(program.label, "argument", x.detach(), copy=True) for x in tensors]
            return tuple(map(to_torch, program(arrays)))

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.program, ctx.given, ctx.returned = inputs[0], _moving(inputs[1:]), _moving(output)
            ctx.save_for_backward(*inputs[1:])
            ctx.mark_non_differentiable(*(y for i, y in enumerate(output) if i not in ctx.returned))

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            pulled = _Pull(ctx.program.label, ctx.program, ctx.given, ctx.returned)
            found = iter(JaxProgram.apply(pulled, *ctx.saved_tensors, *(cotangents[i] for i in ctx.returned)))
            return None, *(next(found) if i in ctx.given else None for i in range(len(ctx.saved_tensors)))

        @staticmethod
        def vmap(info: Any, in_dims: Any, program: Any, *tensors: Any) -> Any:
            outs = JaxProgram.apply(_Mapped(program.label, program, in_dims[1:], info.batch_size), *tensors)
            return outs, (0,) * len(outs)

        @staticmethod
        def jvp(ctx: Any, *_: Any) -> Any:
            raise BridgeError(forward_mode(ctx.program.label))

    return JaxProgram


@dataclasses.dataclass(frozen=True)
class Program:
    """A function of a list of arrays that returns a list of arrays; equal if it is the same program."""

    label: str
    value: Callable[..., Any]
    statics: Any

    def __call__(self, arrays: Leaves) -> Leaves:
        return jax.tree.leaves(self.value(self.statics, arrays))


@dataclasses.dataclass(frozen=True)
class _Mapped:
    """A program under ``vmap``; the results are mapped along their first axis."""

    label: str
    program: Callable[[Leaves], Leaves]
    axes: tuple[int | None, ...]
    size: int

    def __call__(self, arrays: Leaves) -> Leaves:
        return _run(self, arrays)

    def traced(self, arrays: Leaves) -> Leaves:
        return jax.vmap(self.program, in_axes=(list(self.axes),), axis_size=self.size)(arrays)


@dataclasses.dataclass(frozen=True)
class _Pull:
    """From a program's arguments and cotangents to its gradients."""

    label: str
    program: Callable[[Leaves], Leaves]
    given: tuple[int, ...]
    returned: tuple[int, ...]

    def __call__(self, arrays: Leaves) -> Leaves:
        return _run(self, arrays)

    def traced(self, arrays: Leaves) -> Leaves:
        inputs, cotangents = arrays[: len(arrays) - len(self.returned)], arrays[len(arrays) - len(self.returned) :]

        def of(moved: Leaves) -> Leaves:
            filled = list(inputs)
            for i, leaf in zip(self.given, moved, strict=True):
                filled[i] = leaf
            outs = self.program(filled)
            return [outs[i] for i in self.returned]

        return pull(jax.vjp(of, [inputs[i] for i in self.given])[1], cotangents)


@functools.partial(jax.jit, static_argnums=0)
def _run(program: Any, arrays: Leaves) -> Leaves:
    return program.traced(arrays)


def _moving(tensors: Sequence[Any]) -> tuple[int, ...]:
    """The indices of the tensors that have a gradient."""
    return tuple(i for i, x in enumerate(tensors) if x.is_floating_point() or x.is_complex())


def is_batched(tensor: Any) -> bool:
    """Whether it is a tensor of the older vmap, which ``torch.autograd`` uses."""
    return tensor is not None and import_torch()._C._functorch.is_legacy_batchedtensor(tensor)


def is_dual(tensor: Any) -> bool:
    forward_ad = import_torch().autograd.forward_ad
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None


def forward_mode(label: str) -> str:
    return (
        f"{label}: forward mode (torch.func.jvp, jacfwd, hessian, dual numbers) is not defined: use torch.func.jacrev "
        "or vjp, or jax.jvp of the JAX function if it has one"
    )


@jax.jit
def pull(pullback: Any, cotangents: Leaves) -> Leaves:
    """torch's gradient with respect to a complex number is the conjugate of JAX's."""
    return [jnp.conj(grad) for grad in pullback([jnp.conj(c) for c in cotangents])[0]]


def untraced(fn: Callable[..., Any], reason: str) -> Callable[..., Any]:
    """Let torch.compile call the function, and neither trace it nor what it calls.

    This is what ``torch.compiler.disable`` does; but that imports the compiler, which takes three seconds.
    """
    from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

    set_code_exec_strategy(fn.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))
    vars(fn).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=reason)
    return fn
