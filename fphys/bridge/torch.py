"""Gradients between JAX and torch: JAX functions inside torch's autograd, torch functions inside ``jax.grad``.

Both directions copy what crosses, so that in-place operations in torch never change what was saved for a gradient.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.dtypes import canonicalize_dtype, float0

from ..errors import BridgeError, PrecisionError
from .dlpack import empty, import_torch, take_torch, to_torch
from .op import reverse_only, without_derivative
from .torch_func import Program, forward_mode, is_batched, is_dual, program_node, untraced
from .torch_func import pull as _pull

Leaves = list[Any]
_ARRAYS = (jax.Array, np.ndarray, np.generic)


class _Statics:
    """A pytree of arguments without its arrays: their places, and the leaves that are part of the program."""

    def __init__(self, function: str, values: Any, is_array: Callable[[Any], bool]):
        paths, self.tree = jax.tree_util.tree_flatten_with_path(values)
        leaves = [leaf for _, leaf in paths]
        self.names = [_name(path) for path, leaf in paths if is_array(leaf)]
        self.arrays = [leaf for leaf in leaves if is_array(leaf)]
        self.places = tuple(i for i, leaf in enumerate(leaves) if is_array(leaf))
        self.others = tuple((i, type(leaf), leaf) for i, leaf in enumerate(leaves) if not is_array(leaf))
        for i, kind, leaf in self.others:
            if not isinstance(leaf, Hashable):
                raise TypeError(
                    f"{function}: {_name(paths[i][0])} is {kind.__qualname__}, neither an array nor hashable: arrays "
                    "are passed, and what is hashable becomes part of the compiled program"
                )
        self.key = (self.tree, self.places, tuple((i, kind, _told_apart(leaf)) for i, kind, leaf in self.others))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Statics) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def bare(self) -> "_Statics":
        """A copy without the arrays, which would otherwise be kept alive."""
        bare = object.__new__(_Statics)
        bare.__dict__ = self.__dict__ | {"arrays": []}
        return bare

    def fill(self, arrays: Sequence[Any]) -> Any:
        """The pytree with the given arrays in their places."""
        leaves: Leaves = [None] * self.tree.num_leaves
        for i, _, leaf in self.others:
            leaves[i] = leaf
        for i, leaf in zip(self.places, arrays, strict=True):
            leaves[i] = leaf
        return self.tree.unflatten(leaves)


def _told_apart(leaf: Any) -> Any:
    """A leaf, such that 0.0 and -0.0 are not equal and nan is."""
    return repr(leaf) if isinstance(leaf, float | complex) else leaf


def _name(path: Any) -> str:
    """``args[0]['x']``, from the path in ``(args, kwargs)``."""
    return ("args", "kwargs")[path[0].idx] + jax.tree_util.keystr(path[1:])


def _floats(leaves: Sequence[Any]) -> list[int]:
    """The indices of the leaves that have a gradient."""
    return [i for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, np.inexact)]


# JAX inside torch


def _expect_callable(name: str, fn: Any) -> None:
    if not callable(fn):
        raise TypeError(f"{name} wraps a function, got {fn!r}")


def as_torch(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A pure JAX function as a function of torch tensors that ``backward()`` can go through.

    It is compiled once for each set of shapes, dtypes and leaves that are not arrays, and once more for each set of
    tensors that require a gradient. What it saves for the backward pass are JAX arrays, which are immutable:
    ``backward(retain_graph=True)`` may be repeated. If no tensor requires a gradient, and under ``torch.no_grad()``,
    nothing is saved. Like a simulated step, the backward pass cannot be differentiated again: ``create_graph=True``
    raises.

    ``torch.func``'s ``grad``, ``vjp``, ``vmap`` and ``jacrev`` are supported; ``vmap`` is ``jax.vmap`` of the function.
    There the backward pass computes the function once more. Forward mode (``torch.func.jvp``, ``jacfwd``, ``hessian``,
    dual numbers) is refused. Under ``torch.compile`` the function is not traced but called, between compiled parts;
    ``fullgraph=True`` refuses that.

    Args:
        fn: takes and returns pytrees (dicts, tuples, registered dataclasses such as ``fphys.State``) of arrays.
            It may contain a whole simulation, for example ``fphys.rollout`` with contact.

    Returns:
        A function of the same arguments, with torch tensors for the arrays, that returns tensors. Gradients flow to
        every floating-point or complex tensor that requires one, but not through integers and booleans. JAX and NumPy
        arrays are passed as they are and get no gradient. Any other leaf (a number, a string) must be hashable and is
        part of the compiled program, so that another value recompiles it. Tensors are copied on their way in and out;
        results stay where ``fn`` puts them, on the device of its tensors.

    Raises:
        MissingDependencyError: torch is not installed.
        PrecisionError: (when called) a tensor has a dtype that JAX does not have, or is float64 while x64 is off.
        TypeError: ``fn`` is not a function; (when called) a leaf is neither an array nor hashable.
        BridgeError: (when called) it is called from a torch function that JAX itself called (:func:`as_jax`), which
            would deadlock; or in forward mode, or to differentiate a gradient.

    Example:
        >>> sine = as_torch(lambda x: {"sin": jnp.sin(x)})  # doctest: +SKIP
        >>> sine(torch.ones(3, requires_grad=True))["sin"].sum().backward()  # doctest: +SKIP

    Source: https://docs.pytorch.org/docs/stable/notes/extending.html.
    """
    torch = import_torch()
    _expect_callable("as_torch", fn)
    label = f"as_torch({getattr(fn, '__name__', type(fn).__name__)})"

    def is_array(leaf: Any) -> bool:
        return isinstance(leaf, (torch.Tensor, *_ARRAYS))

    @functools.partial(jax.jit, static_argnums=0)
    def value(statics: _Statics, arrays: Leaves) -> Any:
        args, kwargs = statics.fill(arrays)
        return fn(*args, **kwargs)

    @functools.partial(jax.jit, static_argnums=(0, 1))
    def value_and_pullback(statics: _Statics, wanted: tuple[int, ...], arrays: Leaves) -> Any:
        def of(moved: Leaves) -> tuple[Leaves, Any]:
            filled = list(arrays)
            for i, leaf in zip(wanted, moved, strict=True):
                filled[i] = leaf
            out = value(statics, filled)
            leaves = jax.tree.leaves(out)
            return [leaves[i] for i in _floats(leaves)], out

        _, pullback, out = jax.vjp(of, [arrays[i] for i in wanted], has_aux=True)
        return out, pullback

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _in_callback():
            raise BridgeError(
                f"{label}: called by a torch function that JAX itself called back (as_jax). JAX inside its own "
                "callback deadlocks: use the JAX function directly, outside of the torch function"
            )
        statics = _Statics(label, (args, kwargs), is_array)
        tensors = [x for x in statics.arrays if isinstance(x, torch.Tensor)]
        if torch._C._are_functorch_transforms_active():
            moved = [x if isinstance(x, torch.Tensor) else to_torch(jnp.asarray(x)) for x in statics.arrays]
            kinds = [jax.ShapeDtypeStruct(tuple(x.shape), str(x.dtype).removeprefix("torch.")) for x in moved]
            tree = jax.tree.structure(jax.eval_shape(functools.partial(value, statics.bare()), kinds))
            if any(torch._C._functorch.is_functionaltensor(x) for x in moved):
                raise BridgeError(
                    f"{label}: torch.func.functionalize is not supported; the function is pure without it"
                )
            return tree.unflatten(program_node().apply(Program(label, value, statics.bare()), *moved))
        if any(is_dual(x) for x in tensors):
            raise BridgeError(forward_mode(label))
        arrays = [
            take_torch(label, name, x.detach(), copy=True) if isinstance(x, torch.Tensor) else x
            for name, x in zip(statics.names, statics.arrays, strict=True)
        ]
        wanted = tuple(i for i, x in enumerate(statics.arrays) if isinstance(x, torch.Tensor) and x.requires_grad)
        if not wanted or not torch.is_grad_enabled():
            return jax.tree.map(to_torch, value(statics.bare(), arrays))
        out, pullback = value_and_pullback(statics.bare(), wanted, arrays)
        leaves, tree = jax.tree.flatten(out)
        return tree.unflatten(_node().apply(label, leaves, pullback, *(statics.arrays[i] for i in wanted)))

    return untraced(call, f"{label} runs in JAX, not in torch's graph")


@functools.cache
def _node() -> Any:
    """The node of torch's graph: a class that can be defined only if torch is installed."""
    torch = import_torch()

    class JaxFunction(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, label: str, outs: Leaves, pullback: Any, *wanted: Any) -> Any:
            tensors = [to_torch(y) for y in outs]
            ctx.label, ctx.pullback, ctx.floats = label, pullback, _floats(outs)
            ctx.mark_non_differentiable(*(y for i, y in enumerate(tensors) if i not in ctx.floats))
            return tuple(tensors)

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            if torch._C._are_functorch_transforms_active() or any(map(is_batched, cotangents)):
                raise BridgeError(
                    f"{ctx.label}: its gradient is taken under vmap (jacobian(vectorize=True), is_grads_batched=True), "
                    "but it was called outside: use torch.func.jacrev or torch.func.vmap around the call"
                )
            if torch.is_grad_enabled():
                raise BridgeError(
                    f"{ctx.label}: create_graph=True asks for the gradient of a gradient, which it does not have: take "
                    "it of the JAX function, jax.grad inside of as_torch"
                )
            grads = _pull(ctx.pullback, [take_torch("backward", "gradient", cotangents[i], True) for i in ctx.floats])
            return (
                None,
                None,
                None,
                *(to_torch(g) if n else None for g, n in zip(grads, ctx.needs_input_grad[3:], strict=True)),
            )

    return JaxFunction


# torch inside JAX


def as_jax(fn: Callable[..., Any], outputs: Callable[..., Any] | None = None) -> "TorchFunction":
    """A torch function or ``nn.Module`` as a function of JAX arrays, under ``jit``, ``grad``, ``scan`` and ``vmap``.

    Compiled code calls back to torch on the host (``jax.pure_callback``) with NumPy copies of the arguments; the
    callback does not use JAX, which could deadlock. One call runs at a time. The backward pass runs ``fn`` once more
    and lets torch differentiate it; only the arguments are stored. ``vmap`` calls ``fn`` once for each element, one
    after another: if ``fn`` takes batches, pass it the batch instead.

    Args:
        fn: a pure torch function of tensors, or a module. Its arguments and results are pytrees. A module runs in the
            mode it is in; buffers are constants, and what ``forward`` writes to them (running statistics) is dropped.
            A function that draws random numbers (dropout in training mode) is refused, because the backward pass
            would draw different ones.
        outputs: ``outputs(*args)`` gives the results, as anything with ``shape`` and ``dtype`` (as in ``warp_op``).
            By default, ``fn`` is called once for each set of shapes, on numbers between 1/2 and 3/2 and integers 0.

    Returns:
        A function with ``params``, a dict from the names of a module's parameters to JAX arrays (empty for a
        function): copies of their present values, which later training in torch does not change. ``f(*args)`` uses
        them, ``f(*args, params=p)`` uses others, so that ``jax.grad`` by ``p`` trains the module. Gradients flow in
        reverse mode to every floating-point argument and parameter, but only once: gradients cannot be differentiated
        again. A parameter without ``requires_grad`` at the time of this call has a gradient of zero. The module is not
        changed: load trained ``params`` back with ``module.load_state_dict``.

    Raises:
        MissingDependencyError: torch is not installed.
        BridgeError: (when called) ``fn`` raised while the shapes of its results were found, draws random numbers, or
            returns something that does not depend on its arguments in a way that torch can differentiate.
        PrecisionError: (when called) a result or parameter has 64 bits, and x64 is off.
        RuntimeError: (when it runs under ``jit``) ``fn`` raised; the text of its error is included.
        TypeError: ``fn`` is not a function, or (when called) it gives something else than tensors.

    Example:
        >>> net = as_jax(torch.nn.Linear(3, 2))  # doctest: +SKIP
        >>> jax.grad(lambda p: net(x, params=p).sum())(net.params)  # doctest: +SKIP

    Source: https://docs.jax.dev/en/latest/external-callbacks.html.
    """
    return TorchFunction(fn, outputs)


class TorchFunction:
    """A torch function that JAX calls; see :func:`as_jax`."""

    def __init__(self, fn: Callable[..., Any], outputs: Callable[..., Any] | None, *, strict: bool = False):
        torch = import_torch()
        _expect_callable("as_jax", fn)
        self.fn, self.outputs = fn, outputs
        self.strict = strict  # every result depends on some argument, and every argument affects some result
        self.label = f"as_jax({getattr(fn, '__name__', type(fn).__name__)})"
        self.module = fn if isinstance(fn, torch.nn.Module) else None
        named = dict(self.module.named_parameters()) if self.module else {}
        self.device = next((p.device for p in named.values()), torch.device("cpu"))
        self.params = {name: _jax(self.label, name, p.detach()) for name, p in named.items()}
        self.frozen = {name for name, p in named.items() if not p.requires_grad}
        self._results = functools.cache(self._learn)

    def __call__(self, *args: Any, params: dict[str, Any] | None = None) -> Any:
        """What the function gives, as JAX arrays; gradients and further errors as :func:`as_jax` says.

        Args:
            args: pytrees of arrays; what is no array is static.
            params: parameters of the module by name; by default ``self.params``.

        Raises:
            BridgeError: ``params`` has other names than the module.
        """
        params = self.params if params is None else params
        if missing := sorted(self.params.keys() ^ params.keys()):
            raise BridgeError(f"{self.label}: params has not the module's parameters: {', '.join(missing)} differ")
        params = {name: jax.lax.stop_gradient(p) if name in self.frozen else p for name, p in params.items()}
        statics = _Statics(self.label, (args, params), lambda leaf: isinstance(leaf, _ARRAYS))
        arrays = [jnp.asarray(x) for x in statics.arrays]
        bare = statics.bare()
        results, tree = self._results(bare, tuple((x.shape, x.dtype) for x in arrays))
        return tree.unflatten(_once(_Call(self, bare, results), arrays))

    def _learn(self, statics: _Statics, kinds: tuple[Any, ...]) -> tuple[tuple[jax.ShapeDtypeStruct, ...], Any]:
        """Shapes and dtypes of the results, and their tree."""
        if self.outputs:
            args, _ = statics.fill([jax.ShapeDtypeStruct(*kind) for kind in kinds])
            leaves, tree = jax.tree.flatten(self.outputs(*args))
            return tuple(jax.ShapeDtypeStruct(y.shape, y.dtype) for y in leaves), tree
        rng = np.random.default_rng(0)
        try:
            with _one_at_a_time():
                out = self.run(statics, [self.tensor(_probe(rng, *kind)) for kind in kinds])
        except BridgeError:
            raise
        except Exception as cause:
            raise BridgeError(
                f"{self.label}: raised {type(cause).__name__}: {cause}, when it was called once on arbitrary numbers "
                "to learn the shapes of its results; as_jax(fn, outputs=...) gives them instead"
            ) from cause
        leaves, tree = jax.tree.flatten(out)
        found = [_jax_kind(self.label, f"result {i}", y) for i, y in enumerate(leaves)]
        return tuple(found), tree

    def tensor(self, x: Any) -> Any:
        """A separate tensor with the values of a NumPy or JAX array, on the device of the module's parameters."""
        torch = import_torch()
        own = empty(x.shape, x.dtype)
        own[...] = x
        if own.dtype.isbuiltin != 1:  # bfloat16 and the like, which torch knows but its from_numpy does not
            tensor = torch.from_numpy(own.view(f"u{own.itemsize}")).view(getattr(torch, own.dtype.name))
        else:
            tensor = torch.from_numpy(own)
        return tensor.to(self.device)

    def run(self, statics: _Statics, tensors: Leaves) -> Any:
        """Call torch, and check that it drew no random numbers.

        Args:
            statics: arguments and parameters without their arrays.
            tensors: these arrays, in order.

        Raises:
            BridgeError: it drew some.
        """
        torch = import_torch()
        state = torch.cuda.get_rng_state if self.device.type == "cuda" else torch.get_rng_state
        args, params = statics.fill(tensors)
        before = state()
        if self.module is None:
            out = self.fn(*args)
        else:
            buffers = {name: b.clone() for name, b in self.module.named_buffers()}
            out = torch.func.functional_call(self.module, {**buffers, **params}, args)
        if not torch.equal(before, state()):
            raise BridgeError(
                f"{self.label}: draws random numbers, which a pure function does not and of which the backward pass "
                "would draw others: module.eval() switches dropout off; pass noise as an argument"
            )
        return out


class _Call:
    """What a callback calls: hashable, and equal if the function is identical and the static arguments are equal."""

    def __init__(self, function: TorchFunction, statics: _Statics, results: tuple[jax.ShapeDtypeStruct, ...]):
        self.function, self.statics, self.results = function, statics, results

    def value(self, *arrays: Any) -> list[np.ndarray]:
        torch = import_torch()
        with _one_at_a_time(), torch.no_grad():
            out = jax.tree.leaves(self.function.run(self.statics, [self.function.tensor(x) for x in arrays]))
            return [self._checked(i, y) for i, y in enumerate(out)]

    def gradient(self, arrays: Leaves, cotangents: Leaves) -> list[np.ndarray]:
        torch = import_torch()
        with _one_at_a_time(), torch.enable_grad():
            inputs = [self.function.tensor(x) for x in arrays]
            moved = [inputs[i].requires_grad_() for i in _floats(arrays)]
            outs = jax.tree.leaves(self.function.run(self.statics, inputs))
            floats = [outs[i] for i in _floats(self.results)]
            pairs = [(y, self.function.tensor(c).conj()) for y, c in zip(floats, cotangents, strict=True)]
            live = [(y, c) for y, c in pairs if y.requires_grad]
            cut = [c for y, c in pairs if not y.requires_grad]
            if not live or any(self.function.strict or c.any() for c in cut):
                raise BridgeError(
                    f"{self.function.label}: its results are cut off from its arguments (detach, no_grad, NumPy "
                    "inside): torch has no gradient to give, and zero would be wrong"
                )
            outs, given = zip(*live, strict=True)
            found = torch.autograd.grad(outs, moved, given, allow_unused=True)
            lost = [i for i, g in zip(_floats(arrays), found, strict=True) if g is None]
            if self.function.strict and lost:
                raise BridgeError(
                    f"{self.function.label}: argument {lost[0]} does not reach the results by a way that is "
                    "differentiated, and zero would be wrong"
                )
            return [_numpy(torch.zeros_like(x) if g is None else g.conj()) for x, g in zip(moved, found, strict=True)]

    def _checked(self, i: int, tensor: Any) -> np.ndarray:
        y, wanted = _numpy(tensor), self.results[i]
        if y.shape != wanted.shape or y.dtype != wanted.dtype:
            raise BridgeError(
                f"{self.function.label}: result {i} is {y.dtype}{list(y.shape)}, expected was {wanted.dtype}"
                f"{list(wanted.shape)}: shapes and dtypes must follow from those of the arguments alone"
            )
        return y

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Call) and self.function is other.function and self.statics == other.statics

    def __hash__(self) -> int:
        return hash((id(self.function), self.statics))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _foreign(call: _Call, arrays: Leaves) -> Leaves:
    return jax.pure_callback(call.value, list(call.results), *arrays, vmap_method="sequential")


def _foreign_forward(call: _Call, arrays: Leaves) -> tuple[Leaves, Leaves]:
    return _foreign(call, arrays), arrays


def _foreign_backward(call: _Call, arrays: Leaves, cotangents: Leaves) -> tuple[Leaves]:
    floats = _floats(arrays)
    kinds = [jax.ShapeDtypeStruct(arrays[i].shape, arrays[i].dtype) for i in floats]
    given = [cotangents[i] for i in _floats(call.results)]
    grads: Leaves = [np.zeros(x.shape, float0) for x in arrays]
    if floats and given:
        found = without_derivative(
            call.function.label,
            lambda *both: jax.pure_callback(call.gradient, kinds, *both, vmap_method="sequential"),
        )(arrays, given)
        for i, grad in zip(floats, found, strict=True):
            grads[i] = grad
    return (grads,)


_foreign_backward.__name__ = "as_jax"  # which errors show
_foreign.defvjp(_foreign_forward, _foreign_backward)


def _once(call: _Call, arrays: Leaves) -> Leaves:
    return reverse_only(_foreign, call.function.label)(call, arrays)


_running = threading.local()
_lock = threading.RLock()


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Inside a callback: modules swap their parameters in place during a call, so threads take turns."""
    with _lock:
        _running.depth = getattr(_running, "depth", 0) + 1
        try:
            yield
        finally:
            _running.depth -= 1


def _in_callback() -> bool:
    return getattr(_running, "depth", 0) > 0


def _probe(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Numbers that most functions accept: between 1/2 and 3/2; integers 0, which index anything."""
    size = rng.uniform(0.5, 1.5, shape) if jnp.issubdtype(dtype, np.inexact) else np.zeros(shape)
    return np.asarray(size).astype(dtype)


def _numpy(tensor: Any) -> np.ndarray:
    """A NumPy array of a tensor's numbers."""
    torch = import_torch()
    tensor = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    if (dtype := jnp.dtype(str(tensor.dtype).removeprefix("torch."))).isbuiltin != 1:
        return tensor.view(getattr(torch, f"uint{8 * dtype.itemsize}")).numpy().view(dtype)
    return tensor.numpy()


def _jax_kind(label: str, name: str, tensor: Any) -> jax.ShapeDtypeStruct:
    torch = import_torch()
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{label}: {name} is {type(tensor).__qualname__}, wanted is torch.Tensor")
    dtype = jnp.dtype(str(tensor.dtype).removeprefix("torch."))
    if (kept := canonicalize_dtype(dtype)) != dtype:
        raise PrecisionError(
            f"{label}: {name} is {dtype}, and JAX without x64 would make it {kept}: "
            f'jax.config.update("jax_enable_x64", True), or let torch cast it to {kept}'
        )
    return jax.ShapeDtypeStruct(tuple(tensor.shape), dtype)


def _jax(label: str, name: str, tensor: Any) -> jax.Array:
    _jax_kind(label, name, tensor)
    return jnp.array(_numpy(tensor))
