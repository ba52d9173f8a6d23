"""Operations on several devices: a partitioning rule over the world axis under ``jit``, and the types of ``shard_map``.

Worlds do not interact, so each device runs its own worlds and nothing is exchanged. Only the gradient of an input that
all worlds share is a sum over devices: one all-reduce.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.experimental.custom_partitioning import ArrayMapping, SdyShardingRule, custom_partitioning
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from ..errors import BridgeError
from . import private

Function = Callable[..., tuple[jax.Array, ...]]
F = TypeVar("F", bound=Callable[..., Any])
WORLD = "w"
"""The factor of the world axis in a sharding rule."""


def over_worlds(run: Function) -> Function:
    """``run``, split over devices along the world axis wherever XLA finds its arrays split.

    Args:
        run: takes arrays of shape (world, ...), or (1, ...) if all worlds share them, of any number of worlds. Its
            results have the shape (world, ...), or (1, ...) if they are sums over worlds.
    """

    def call(*xs: jax.Array) -> tuple[jax.Array, ...]:
        worlds = max(x.shape[0] for x in xs)
        if worlds == 1 or jax.device_count() == 1 or _inside_shard_map():
            return run(*xs)

        def partition(mesh: Any, args: Any, results: Any) -> Any:
            axes = next((a for a in map(_first_axes, (*args, *results)) if a), ())
            if worlds % math.prod(mesh.shape[a] for a in axes):
                axes = ()  # the devices' shares would differ
            placed = functools.partial(_placed, mesh, axes, worlds)

            def local(*xs: jax.Array) -> tuple[jax.Array, ...]:
                outs = list(run(*xs))
                summed = [i for i, r in enumerate(results) if r.shape[0] == 1]
                if axes and summed:
                    for i, total in zip(summed, jax.lax.psum([outs[i] for i in summed], axes), strict=True):
                        outs[i] = total
                return tuple(outs)

            return mesh, local, tuple(map(placed, results)), tuple(map(placed, args))

        split = custom_partitioning(lambda *xs: run(*xs))
        split.def_partition(partition, sharding_rule=functools.partial(_rule, worlds, len(xs)))
        return split(*xs)

    return call


def by_devices(fn: F) -> F:
    """``fn``, also in a mesh of ``AxisType.Explicit``, as JAX makes them by default: inside, its axes are Auto.

    Args:
        fn: takes and returns trees of arrays (world, ...). Results are spread as the world axis of the arguments.
    """

    @functools.wraps(fn)
    def call(*args: Any, **options: Any) -> Any:
        mesh = jax.sharding.get_abstract_mesh()
        if AxisType.Explicit not in mesh.axis_types:
            return fn(*args, **options)
        leaves, tree = jax.tree.flatten((args, options))
        where = [i for i, x in enumerate(leaves) if isinstance(x, jax.Array)]
        axes = next((a for i in where if (a := _first_axes(jax.typeof(leaves[i])))), ())
        if not axes:
            return fn(*args, **options)

        def placed(*arrays: jax.Array) -> Any:
            for i, x in zip(where, arrays, strict=True):
                leaves[i] = x
            args, options = jax.tree.unflatten(tree, leaves)
            return fn(*args, **options)

        found = jax.sharding.auto_axes(placed, out_sharding=P(axes))(*(leaves[i] for i in where))
        return jax.tree.map(_empty_too, found)

    return call  # type: ignore[return-value]


def _empty_too(x: jax.Array) -> jax.Array:
    """An array that lies where its sharding says: an empty one alone does not, when JAX (0.10) moves it eagerly."""
    if x.size or isinstance(x, jax.core.Tracer) or not isinstance(x.sharding, NamedSharding):
        return x
    return jax.device_put(np.zeros(x.shape, x.dtype), x.sharding)


def _rule(worlds: int, count: int, _: Any, *types: Any) -> SdyShardingRule:
    """The world axis goes from arguments to results; every other axis stays whole."""
    arrays = [[a for part in types for a in part]][0]
    names = [[f"a{i}d{k}" for k in range(len(a.shape))] for i, a in enumerate(arrays)]
    whole = [n for a, row in zip(arrays, names, strict=True) for k, n in enumerate(row) if k or a.shape[0] != worlds]
    rows = [
        ArrayMapping(*(WORLD if not k and a.shape[0] == worlds else n for k, n in enumerate(row)))
        for a, row in zip(arrays, names, strict=True)
    ]
    return SdyShardingRule(tuple(rows[:count]), tuple(rows[count:]), need_replication_factors=tuple(whole))


def _first_axes(array: Any) -> tuple[str, ...]:
    """The mesh axes over which the first axis of an array is split."""
    spec = array.sharding.spec[:1] if isinstance(array.sharding, NamedSharding) else ()
    first = spec[0] if spec else None
    return () if first is None else (first,) if isinstance(first, str) else tuple(first)


def _placed(mesh: Any, axes: tuple[str, ...], worlds: int, array: Any) -> NamedSharding:
    return NamedSharding(mesh, P(axes) if axes and array.shape[0] == worlds else P())


def _inside_shard_map() -> bool:
    mesh = jax.sharding.get_abstract_mesh()
    return bool(mesh.axis_names) and set(mesh.manual_axes) == set(mesh.axis_names)


def alike(tree: Any) -> tuple[Any, Any]:
    """The tree with all arrays varying over the same axes of a ``shard_map``, and that type; gradients are summed.

    ``shard_map`` tells arrays that differ from device to device from those that do not. An operation takes only one
    kind, and the gradient of an array that all devices share is the sum over them, which JAX adds here.

    Raises:
        BridgeError: this is a ``shard_map`` outside ``jit``, where JAX knows no ``custom_vjp`` with symbolic zeros.
    """
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return tree, None
    leaves, form = jax.tree.flatten(tree)
    if any(map(private.is_eager_in_shard_map, leaves)):
        raise BridgeError("fphys runs in jax.shard_map under jit only: call jax.jit(jax.shard_map(...))")
    leaves = [jnp.asarray(x) if isinstance(x, np.ndarray) and x.dtype != jax.dtypes.float0 else x for x in leaves]
    varying = [axes(x) for x in leaves]
    every = frozenset[str]().union(*varying)
    if not every:
        return tree, None
    leaves = [
        jax.lax.pcast(x, tuple(sorted(every - own)), to="varying") if isinstance(x, jax.Array) and every - own else x
        for x, own in zip(leaves, varying, strict=True)
    ]
    kind = next(jax.typeof(x).manual_axis_type for x in leaves if axes(x))
    return form.unflatten(leaves), kind


def alongside(tree: Any, other: Any) -> Any:
    """The tree, varying over the axes of a ``shard_map`` over which anything in the other tree varies."""
    return alike((tree, other))[0][0]


class custom_vjp(jax.custom_vjp):
    """``jax.custom_vjp`` for functions whose arguments some worlds share: inside ``shard_map`` all become alike."""

    def __init__(self, fun: Callable[..., Any], **options: Any):
        @functools.wraps(fun)
        def uniform(*args: Any) -> Any:
            return alongside(fun(*args), args)

        super().__init__(uniform, **options)

    def __call__(self, *args: Any) -> Any:
        fixed = self.nondiff_argnums
        given, _ = alike([arg for i, arg in enumerate(args) if i not in fixed])
        rest = iter(given)
        return super().__call__(*(arg if i in fixed else next(rest) for i, arg in enumerate(args)))

    def defvjp(self, fwd: Any, bwd: Any, **options: Any) -> None:
        """Set the forward and the backward rule, as ``jax.custom_vjp.defvjp`` does."""

        @functools.wraps(fwd)
        def forward(*args: Any) -> Any:
            out, saved = fwd(*args)
            return alongside(out, jax.tree.map(_value, args, is_leaf=_is_primal)), saved

        @functools.wraps(bwd)
        def backward(*args: Any) -> Any:
            return alongside(bwd(*args), args[len(self.nondiff_argnums) :])

        super().defvjp(forward, backward, **options)


def _is_primal(x: Any) -> bool:
    return hasattr(x, "perturbed")


def _value(x: Any) -> Any:
    return x.value if _is_primal(x) else x


def typed(like: Any, kind: Any) -> Any:
    """Shape and dtype of a result that varies as :func:`alike` says."""
    if kind is None:
        return like
    sharding = NamedSharding(jax.sharding.get_abstract_mesh(), P())  # type: ignore[arg-type]
    return jax.ShapeDtypeStruct(like.shape, like.dtype, sharding=sharding, manual_axis_type=kind)


def axes(x: Any) -> frozenset[str]:
    """The axes of a ``shard_map`` over which an array varies."""
    return jax.typeof(x).manual_axis_type.varying if isinstance(x, jax.Array) else frozenset()


def sum_like(grad: jax.Array, x: jax.Array) -> jax.Array:
    """A gradient, summed over the axes of a ``shard_map`` over which its array does not vary."""
    extra = tuple(sorted(axes(grad) - axes(x))) if jax.sharding.get_abstract_mesh().manual_axes else ()
    return jax.lax.psum(grad, extra) if extra else grad
