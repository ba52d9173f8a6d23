"""Warp launches as a JAX operation that works under ``jit``, ``grad``, ``vmap``, ``scan`` and ``checkpoint``."""

import functools
import operator
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero

from ..errors import BridgeError, FphysError, PrecisionError
from . import ffi, flags, fork, private, spread
from .ordered import ordered
from .plan import plan_backward, plan_forward
from .plans import PlanNumber
from .record import Buffer, Recorder
from .start import run_where_called

run_where_called()
fork.guard()

Avals = tuple[jax.ShapeDtypeStruct, ...]
F = TypeVar("F", bound=Callable[..., Any])

MOST_TRACES = 64
"""How many sets of arguments an operation keeps the traced function for."""
MOST_RECORDS = 8
"""How many sets of shapes an operation keeps the record for. Programs that JAX has traced do not need it."""

REVERSE_ONLY = (
    "is differentiable once and in reverse mode only: jax.grad, jax.vjp or jax.jacrev, and fphys.linearize for the "
    "derivatives of a step; not by jax.jvp, jax.jacfwd or jax.hessian, and a gradient has no gradient"
)


PACKAGE = str(Path(__file__).parents[1])


def _explain(file: str, function: str) -> str | None:
    """What forward mode through an operation of this package raises, where no decorator is in between (``jit``)."""
    return f"{function} {REVERSE_ONLY} (it is a custom_vjp function)" if file.startswith(PACKAGE) else None


private.explain_forward_mode(_explain)


def reverse_only(fn: F, name: str = "") -> F:
    """Decorator: forward mode raises a TypeError that says what to use instead, and names this function.

    If the differentiated function was jitted, the error names the operation inside it.
    """
    label = name or f"fphys.{getattr(fn, '__name__', '')}"

    @functools.wraps(fn)
    def named(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except TypeError as error:
            if "custom_vjp function" not in str(error):
                raise
            raise TypeError(f"{label} {REVERSE_ONLY}") from error

    return named  # type: ignore[return-value]


def warp_op(
    fn: Callable[..., None],
    outputs: Callable[..., Any],
    *,
    differentiable: bool = True,
    zeroed: bool | tuple[int, ...] = True,
    known: tuple[int, ...] = (),
    name: str | None = None,
) -> "WarpOp":
    """Wrap a function that launches Warp kernels as a pure JAX operation.

    Args:
        fn: ``fn(launch, *inputs, *outputs)``, or ``fn(launch, *inputs, outputs)`` if the outputs are a named tuple, a
            dictionary or another tree. It is called on symbolic arrays, once per set of shapes, and calls
            ``launch(kernel, dim=..., inputs=[...], outputs=[...])`` as it would call ``wp.launch``.
            Where threads of a world add to the same numbers in C++, it says ``adds=True``.
            ``launch.scratch(shape, dtype)`` declares scratch memory, NumPy arrays serve as constants, and inputs may be
            any pytree of arrays. ``launch.worlds`` is the number of worlds, and ``launch.platform``, "cpu" or "cuda",
            is the platform that it records for.
        outputs: ``outputs(*inputs)`` gives the output, a tuple of outputs, or a tree of them, as anything with
            ``shape`` and ``dtype``. The operation returns what has the same form.
        differentiable: whether reverse mode is defined. It replays the launches and runs their
            adjoints in reverse order, with respect to every floating-point input that needs a gradient.
        zeroed: fill all outputs with zeros first, or those with these indices among the leaves. Switch it off if the
            kernels write every element. What ``launch.clears`` names is left as it is.
        known: outputs, by their indices among the leaves, that the adjoint reads: they are stored for the backward
            pass, which then need not replay the launches that write them.
        name: for error messages; the function's name by default.

    Every array has the world axis first. An input of leading size 1 is shared by all worlds: inside
    the kernel it is indexed like any other, and its gradient is summed over the worlds. ``vmap``
    folds the mapped axis into the world axis. Forward mode is not defined.

    Warp's adjoint is correct if each array element is written once: an element that is read and then
    overwritten in the same kernel gets a wrong gradient, without an error. A kernel must also stay inside
    its own world: if every world reads ``x[0, i]``, it reads another batch's value under ``vmap``.
    ``fphys.testing.check_grads`` and ``check_transforms`` find both.

    Example:
        >>> relu = warp_op(lambda launch, x, y: launch(relu_kernel, dim=x.shape, inputs=[x], outputs=[y]),
        ...                outputs=lambda x: x)  # doctest: +SKIP

    Raises:
        BridgeError: when called, before anything is launched: a launch does not fit its arrays or overwrites one, or
            the function itself raised.
        TypeError: inputs mix float32 and float64, or have another floating type.
        ValueError: the world axes differ.
    """
    name = name or fn.__name__
    return WarpOp(fn, outputs, differentiable=differentiable, zeroed=zeroed, known=known, name=name)


class WarpOp:
    """A wrapped function; see :func:`warp_op`."""

    def __init__(
        self,
        fn: Callable[..., None],
        outputs: Callable[..., Any],
        *,
        differentiable: bool,
        zeroed: bool | tuple[int, ...],
        known: tuple[int, ...],
        name: str,
    ):
        self.fn, self.outputs, self.name = fn, outputs, name
        self.differentiable, self.zeroed, self.known = differentiable, zeroed, known
        traced, recorded = functools.lru_cache(MOST_TRACES), functools.lru_cache(MOST_RECORDS)
        self.operation, self.adjoint = traced(self._operation), traced(self._adjoint)
        self.recorded = recorded(self._record)
        self.forward_plan, self.backward_plan = recorded(self._forward_plan), recorded(self._backward_plan)

    def __call__(self, *args: Any) -> Any:
        """Run the operation on arrays with the world axis first; gradients and errors as :func:`warp_op` says."""
        leaves, tree, used, form = self._prepare(args)
        given, _ = spread.alike([leaves[i] for i in used])
        outs = self.operation(tree, used)(*given)
        return outs[0] if len(outs) == 1 and _is_list(form) else form.unflatten(outs)

    def vjp(self, args: Sequence[Any], cotangents: Any, wanted: Sequence[bool] | None = None) -> tuple[Any, ...]:
        """Gradients with respect to ``args`` at given output cotangents, without the primal result.

        Args:
            args: the operation's arguments.
            cotangents: a tree like the outputs, or one array per leaf.
            wanted: for each leaf of ``args``, whether its gradient is needed (all by default). Leaves
                that are not wanted, unused or of integer type get None.

        Returns:
            A tree like ``args``, with None where there is no gradient.
        """
        leaves, tree, used, _ = self._prepare(args)
        wanted = [True] * len(leaves) if wanted is None else list(wanted)
        select = tuple(wanted[i] and leaves[i].dtype.kind == "f" for i in used)
        grads: list[Any] = [None] * len(leaves)
        if any(select):
            xs = [leaves[i] for i in used]
            known = self._known(self.operation(tree, used)(*xs) if self.known else ())
            given, _ = spread.alike([*xs, *known, *jax.tree.leaves(cotangents)])
            found = self.adjoint(tree, used, select)(*given)
            for i, grad in zip([i for i, s in zip(used, select, strict=True) if s], found, strict=True):
                grads[i] = spread.sum_like(grad, leaves[i])
        return jax.tree.unflatten(tree, grads)

    def _known(self, outs: Sequence[jax.Array]) -> list[jax.Array]:
        """What the adjoint is given of the outputs."""
        return [outs[i] for i in self.known]

    def _prepare(self, args: Sequence[Any]) -> tuple[list[jax.Array], Any, tuple[int, ...], Any]:
        """Flatten the arguments and find, from a record, which leaves the launches use, and the form of the outputs."""
        leaves, tree = jax.tree.flatten(tuple(args))
        leaves = [jnp.asarray(leaf) for leaf in leaves]
        avals = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
        records = [self.recorded(tree, None, avals, platform) for platform in _platforms()]
        return leaves, tree, tuple(sorted({i for *_, used in records for i in used})), records[0][0].form

    def _record(
        self, tree: Any, used: tuple[int, ...] | None, avals: Avals, platform: str
    ) -> tuple[Recorder, list[Buffer], list[Buffer], tuple[int, ...]]:
        """Run the function on symbolic arrays. ``avals`` are all leaves, or those in ``used``."""
        count = tree.num_leaves
        numbers = tuple(range(count)) if used is None else used
        paths = [
            jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_flatten_with_path(tree.unflatten([0] * count))[0]
        ]
        given = {
            i: Buffer(f"input {paths[i]}", "input", tuple(a.shape), np.dtype(a.dtype))
            for i, a in zip(numbers, avals, strict=True)
        }
        args = tree.unflatten([given.get(i) for i in range(count)])
        worlds, probe = 1, Recorder(self.name, 1, self.differentiable, platform)
        try:
            shapes = self.outputs(*args)
            leaves, form = jax.tree.flatten(shapes)
            outs = [Buffer(f"output {i}", "output", tuple(s.shape), np.dtype(s.dtype)) for i, s in enumerate(leaves)]
            worlds = max(o.shape[0] if o.shape else 0 for o in outs)
            if used is not None and worlds == 1:  # folded by vmap: the worlds may come from any input
                worlds = max(b.shape[0] for b in given.values())
            for out in outs:
                if not out.shape or out.shape[0] not in (1, worlds) or worlds < 1:
                    raise BridgeError(f"{self.name}: {out} must have the world axis first, of at least one world")
                out.shape = (worlds, *out.shape[1:])
            for buffer in given.values():
                buffer.present(worlds)
            probe = Recorder(self.name, worlds, self.differentiable, platform, form)
            named = form.unflatten(outs)
            self.fn(probe, *args, *(named if _is_list(form) else (named,)))
        except FphysError:
            raise
        except Exception as error:
            raise BridgeError(
                f"{self.name}: {type(error).__name__}: {error}\n{traceback.format_exc(limit=-2)}"
            ) from error
        if not probe.launches:
            raise BridgeError(f"{self.name} launched nothing: call the `launch` given as first argument, not wp.launch")
        bound = numbers if used is not None else tuple(i for i in numbers if given[i] in probe.used)
        self._check([given[i] for i in bound], worlds)
        zeroed = (b for i, b in enumerate(outs) if self.zeroed is True or i in (self.zeroed or ()))
        probe.zeroed.extend(b for b in zeroed if b not in probe.cleared)
        return probe, [given[i] for i in bound], outs, bound

    def _check(self, inputs: list[Buffer], worlds: int) -> None:
        precisions = {b.dtype.name: b for b in inputs if b.dtype.kind == "f"}
        if len(precisions) > 1:
            listed = " and ".join(f"{b.name} is {d}" for d, b in precisions.items())
            raise PrecisionError(f"{self.name}: {listed}: one call runs in one precision, cast one of them")
        for buffer in inputs:
            if not buffer.shape or buffer.shape[0] != worlds:
                raise ValueError(
                    f"{self.name}: {buffer.name} has shape {buffer.shape}: axis 0 is the world axis and must have size "
                    f"{worlds}, or 1 for a value that all worlds share"
                )

    def _forward_plan(
        self, tree: Any, used: tuple[int, ...], avals: Avals, platform: str
    ) -> tuple[PlanNumber, tuple[Any, ...], int]:
        record, inputs, outputs, _ = self.recorded(tree, used, avals, platform)
        plan, scratch = plan_forward(record, inputs, outputs)
        return _finish(plan, platform), tuple(jax.ShapeDtypeStruct(b.shape, b.dtype) for b in outputs), scratch

    def _backward_plan(
        self, tree: Any, used: tuple[int, ...], select: tuple[bool, ...], avals: Avals, platform: str
    ) -> tuple[PlanNumber, tuple[Any, ...], int]:
        record, inputs, outputs, _ = self.recorded(tree, used, avals, platform)
        wanted = [b for b, s in zip(inputs, select, strict=True) if s]
        plan, scratch = plan_backward(record, inputs, outputs, wanted, [outputs[i] for i in self.known])
        rows = [plan.blocks if b.shared else record.worlds for b in wanted]
        shapes = tuple(jax.ShapeDtypeStruct((r, *b.shape[1:]), b.dtype) for r, b in zip(rows, wanted, strict=True))
        return _finish(plan, platform), shapes, scratch

    def _operation(self, tree: Any, used: tuple[int, ...]) -> Callable[..., tuple[jax.Array, ...]]:
        """The differentiable operation on the used leaves."""

        def run(platform: str, *xs: jax.Array) -> tuple[jax.Array, ...]:
            numbers: list[PlanNumber] = []

            def local(*xs: jax.Array) -> tuple[jax.Array, ...]:
                return _call(*self.forward_plan(tree, used, _avals(xs), platform), xs, numbers)

            return without_derivative(self.name, spread.over_worlds(local))(*xs)

        forward = custom_vmap(_where_lowered(run))

        @forward.def_vmap
        def _(size: int, mapped: Sequence[bool], *xs: jax.Array) -> Any:
            folded, worlds = _fold(size, mapped, xs)
            outs = forward(*folded)
            return tuple(o.reshape(size, worlds, *o.shape[1:]) for o in outs), (True,) * len(outs)

        if not self.differentiable:
            return forward

        operation = jax.custom_vjp(forward)

        def save(*primals: Any) -> Any:
            xs = tuple(p.value for p in primals)
            select = tuple(bool(p.perturbed) and p.value.dtype.kind == "f" for p in primals)
            outs = forward(*xs)
            return outs, ([_flat(x) for x in (*xs, *self._known(outs))], flags.save(select))

        def pull(saved: Any, cotangents: Any) -> Any:
            xs, select = tuple(flat.reshape(like.shape[1:]) for flat, like in saved[0]), flags.load(saved[1])
            cotangents = [dense(c) for c in cotangents]
            if not any(select):
                return (None,) * len(select)
            given, _ = spread.alike([*xs, *cotangents])
            grads = iter(self.adjoint(tree, used, select)(*given))
            return tuple(next(grads) if s else None for s in select)

        pull.__name__ = self.name  # which errors show
        operation.defvjp(save, pull, symbolic_zeros=True)
        return reverse_only(operation, self.name)

    def _adjoint(
        self, tree: Any, used: tuple[int, ...], select: tuple[bool, ...]
    ) -> Callable[..., tuple[jax.Array, ...]]:
        """The adjoint operation: inputs, known outputs and cotangents to the gradients of the selected inputs."""
        n = len(used)

        def run(platform: str, *xs: jax.Array) -> tuple[jax.Array, ...]:
            numbers: list[PlanNumber] = []

            def local(*xs: jax.Array) -> tuple[jax.Array, ...]:
                shapes = [x.shape for x, s in zip(xs[:n], select, strict=True) if s]
                if ordered(platform):
                    worlds = max(x.shape[0] for x in xs)
                    given = zip(xs[:n], select, strict=True)
                    xs = (*(jnp.broadcast_to(x, (worlds, *x.shape[1:])) if s else x for x, s in given), *xs[n:])
                grads = _call(*self.backward_plan(tree, used, select, _avals(xs[:n]), platform), xs, numbers)
                return tuple(g if g.shape == s else sum_rows(g) for g, s in zip(grads, shapes, strict=True))

            return without_derivative(self.name, spread.over_worlds(local))(*xs)

        backward = custom_vmap(_where_lowered(run))

        @backward.def_vmap
        def _(size: int, mapped: Sequence[bool], *xs: jax.Array) -> Any:
            xs = tuple(x if m else jnp.broadcast_to(x, (size, *x.shape)) for x, m in zip(xs, mapped, strict=True))
            folded, _ = _fold(size, (True,) * len(xs), xs)
            shapes = [x.shape for x, s in zip(xs[:n], select, strict=True) if s]
            grads = (g.reshape(size, g.shape[0] // size, *g.shape[1:]) for g in backward(*folded))
            grads = tuple(
                g if g.shape == s else g.sum(axis=1, keepdims=True) for g, s in zip(grads, shapes, strict=True)
            )
            return grads, (True,) * len(grads)

        return backward


def sum_rows(a: jax.Array) -> jax.Array:
    """The sum of an array of shape (rows, ...) over its first axis, which is kept: (1, ...). Gradients flow to it.

    A few rows are added as whole arrays: XLA's reduction along the first axis adds one number at a time on a CPU.
    """
    if a.shape[0] > 32:
        return a.sum(axis=0, keepdims=True)
    return functools.reduce(operator.add, jnp.split(a, a.shape[0]))


def _is_list(form: Any) -> bool:
    """Whether outputs are a plain tuple or list: a function gets them one by one."""
    node = form.node_data()
    return node is not None and node[0] in (tuple, list)


def _flat(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """An array to store, flattened because a scan would store inner axes row by row; and an array with its shape."""
    return x.reshape(x.shape[0], -1), jnp.zeros((0, *x.shape), bool)


def dense(cotangent: Any) -> jax.Array:
    """A cotangent as an array; it may be a symbolic zero."""
    if isinstance(cotangent, SymbolicZero):
        aval: Any = cotangent.aval
        return jnp.zeros(aval.shape, aval.dtype)
    return cotangent


def _avals(xs: Sequence[jax.Array]) -> Avals:
    return tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in xs)


def _platforms() -> tuple[str, ...]:
    """The platforms to record operations for: the CPU, and CUDA where it is JAX's default."""
    return ("cpu",) if jax.default_backend() == "cpu" else ("cpu", "cuda")


def by_platform(cpu: Callable[..., Any], cuda: Callable[..., Any]) -> Callable[..., Any]:
    """The function of arrays that is ``cpu`` or ``cuda``, whichever the program is lowered for."""
    ways = {"cpu": cpu, "cuda": cuda}

    @functools.partial(jax.jit, inline=True)  # outside jit, too, it compiles once
    def several(*xs: jax.Array) -> Any:
        return jax.lax.platform_dependent(*xs, **{name: ways[name] for name in _platforms()})

    return lambda *xs: several(*xs) if len(_platforms()) > 1 else ways[_platforms()[0]](*xs)


def _where_lowered(run: Callable[..., Any]) -> Callable[..., Any]:
    """``run(platform, *xs)`` as a function of ``xs``, for the platform that the program is lowered for."""
    return by_platform(functools.partial(run, "cpu"), functools.partial(run, "cuda"))


def _finish(plan: Any, platform: str) -> PlanNumber:
    plans = ffi.plans()
    number = plans.register(plan)
    if platform == "cpu" and _platforms() == ("cpu",):
        plans.prepare(int(number))
    return number


def _call(
    number: PlanNumber, outputs: tuple[Any, ...], scratch: int, xs: Sequence[jax.Array], numbers: list[PlanNumber]
) -> tuple[jax.Array, ...]:
    """One XLA call. Scratch is one more output, so XLA owns it and may reuse it after the call.

    ``numbers`` gets the plan's. A trace holds it, and so it lives until XLA has split the program over devices.
    """
    numbers.append(number)
    xs, kind = spread.alike(xs)
    results = tuple(spread.typed(r, kind) for r in (*outputs, jax.ShapeDtypeStruct((scratch,), jnp.uint8)))
    return tuple(jax.ffi.ffi_call(ffi.TARGET, results)(*xs, plan=number))[: len(outputs)]


def differentiable_once(values: Any, name: str) -> Any:
    """The values, for a forward rule: they raise, and say why, if the gradient is differentiated again."""
    return without_derivative(name, lambda x: x)(values)


def without_derivative(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a derivative that raises. First derivatives do not get here: custom_vjp handles them."""
    call = jax.custom_jvp(fn)

    @call.defjvp
    def _(*_: Any) -> Any:
        raise TypeError(f"{name} {REVERSE_ONLY}. An operation made with differentiable=False has none at all")

    return call


def worldwise(fn: F) -> F:
    """Decorator of an operation from worlds to worlds: it also takes arrays that lie in a mesh with explicit axes.

    Its arguments and results are trees of arrays with the world axis first. Inside, the mesh's axes are automatic, and
    results are spread as the world axis of the arguments. Forward mode raises, as for :func:`reverse_only`.
    """
    return spread.by_devices(reverse_only(fn))


def _fold(size: int, mapped: Sequence[bool], xs: Sequence[jax.Array]) -> tuple[list[jax.Array], int]:
    """Fold a mapped axis into the world axis; arrays that all worlds share and that are not mapped stay shared."""
    worlds = max(x.shape[int(m)] for x, m in zip(xs, mapped, strict=True))
    folded = []
    for x, m in zip(xs, mapped, strict=True):
        shared = x.shape[int(m)] == 1 and worlds > 1
        if m or not shared:
            if worlds > 1 or m or x.shape[0] > 1:
                rest = x.shape[1 + int(m) :]
                x = jnp.broadcast_to(x if m else x[None], (size, worlds, *rest)).reshape(size * worlds, *rest)
        folded.append(x)
    return folded, worlds
