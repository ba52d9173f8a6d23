"""Worlds over devices: a mesh, and where arrays belong on it."""

import collections
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from ..bridge.spread import axes

T = TypeVar("T")
LossFn = Callable[[Any, Any, Any, Any], tuple[Any, Any, dict[str, Any]]]
WORLD = "world"
"""The mesh axis over which worlds, and examples of a batch, are spread."""
MODEL = "model"
"""The mesh axis over which the weights of a network are split, if there is one."""
FIRST = P(WORLD)
"""The first axis spread over the devices."""


def mesh(devices: Sequence[Any] | None = None, *, model: int = 1) -> Mesh:
    """All devices of all processes, or these, in a row named "world". Enter it by ``with jax.set_mesh(mesh):``.

    Inside, environments and agents spread their worlds over the devices by themselves, and :func:`split`,
    :func:`everywhere` and :func:`gradient` use it.

    Args:
        model: devices among which weights are split by :func:`place`. With more than one the mesh has a second axis,
            "model", of neighbours; worlds and examples are spread over the rest.

    Raises:
        TypeError: ``devices`` is not a sequence of devices, or ``model`` no whole number. ValueError: it is empty, has
            a device twice, or ``model`` does not divide it.
    """
    if devices is not None and not isinstance(devices, (Sequence, np.ndarray)):
        raise TypeError(f"devices is {devices!r}, must be a sequence of devices: jax.devices()[:2] for the first two")
    chosen = jax.devices() if devices is None else list(devices)
    if strange := [x for x in chosen if not isinstance(x, jax.Device)]:
        raise TypeError(f"devices has {strange[0]!r}, must be of devices: jax.devices()[:2] for the first two")
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"devices has one twice: {chosen}")
    if not isinstance(model, int | np.integer):
        raise TypeError(f"model is {model!r}, must be a whole number of devices")
    if not chosen:
        raise ValueError("a mesh needs at least one device: leave devices out for all that JAX finds")
    if model < 1 or len(chosen) % model:
        raise ValueError(f"model is {model}: it must divide the number of devices, {len(chosen)}")
    if model > 1:
        return Mesh(np.array(chosen).reshape(-1, model), (WORLD, MODEL), axis_types=(AxisType.Auto,) * 2)
    return Mesh(np.array(chosen), (WORLD,), axis_types=(AxisType.Auto,))


def split(tree: T, over: Mesh | None = None) -> T:
    """The tree with the first axis of its arrays spread over the devices. Gradients flow through.

    Arrays of leading size 1, which all worlds share, scalars, a model's keyframes and a mesh's vertices go to every
    device, these unless each world has its own. So a state, a
    model with some world axes, controls and a batch of examples are all placed by this one function. Inside ``jit`` it
    is a constraint for the compiler. Without a mesh it returns the tree as it is.

    Args:
        over: the mesh; the one that was set by default.

    Raises:
        ValueError: the first axis of an array does not divide evenly among the devices; two arrays have different
            numbers of worlds; or the mesh has no axis "world" of AxisType.Auto.
    """
    found = _mesh(over)
    if found is None:
        return tree
    expect_worlds(tree, found.shape[WORLD])
    place = lambda spec, part: jax.tree.map(lambda x: _put(x, found, spec), part)  # noqa: E731
    return jax.tree.map(place, specs(tree), tree, is_leaf=lambda x: isinstance(x, P))


def everywhere(tree: T, over: Mesh | None = None) -> T:
    """The tree with a copy of each array on every device, as for the parameters of a network."""
    found = _mesh(over)
    return tree if found is None else jax.tree.map(lambda x: _put(x, found, P()), tree)


def place(tree: T, rules: Sequence[tuple[str, tuple[str | None, ...]]], over: Mesh | None = None) -> T:
    """The tree with its weights split as rules say, for networks larger than a device; the rest goes everywhere.

    What follows is XLA's: it splits products along these axes, and adds where a sum goes over one.

    Args:
        rules: a regular expression for the end of an array's path ("blocks.0.up.kernel"), and the mesh axis or None for
            each of its axes, such as ``fphys.nn.transformer.SPLIT``. The first rule that matches holds. An optimizer's
            moments have the paths of their weights, so one call places a whole training state.

    Raises:
        ValueError: an array does not have these axes, or does not divide evenly.
    """
    found = _mesh(over)
    if found is None or MODEL not in found.axis_names:
        return everywhere(tree, over)

    def put(path: Any, x: Any) -> Any:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        spec = next((axes for pattern, axes in rules if re.search(f"(?:{pattern})$", name)), ())
        parts = [found.shape[axis] if axis else 1 for axis in spec]
        if spec and (len(spec) != np.ndim(x) or any(n % k for n, k in zip(np.shape(x), parts, strict=True))):
            raise ValueError(
                f"{name} has shape {np.shape(x)}, which does not divide evenly over {spec} of {parts} devices"
            )
        return _put(x, found, P(*spec))

    return jax.tree_util.tree_map_with_path(put, tree)


def gathered(tree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """What all devices saw, on each of them, in one message: for examples to be drawn from.

    Args:
        tree: arrays of shape (time, world, ...) and of one dtype.

    Returns:
        One array, (time x world, n), with the numbers of an example in each row; and a function that makes a tree of
        such rows, whose arrays have their number first.

    Raises:
        ValueError: arrays have different numbers of times or worlds.
    """
    if len(heads := {np.shape(x)[:2] for x in jax.tree.leaves(tree)}) > 1:
        raise ValueError(f"gathered: arrays begin with {sorted(heads)}, must all have the same times and worlds first")
    _, back = ravel_pytree(jax.tree.map(lambda x: jnp.zeros(x.shape[2:], x.dtype), tree))
    rows = everywhere(jax.vmap(jax.vmap(lambda one: ravel_pytree(one)[0]))(tree))
    return rows.reshape(-1, rows.shape[-1]), jax.vmap(back)


def local(fn: Callable[..., Any], worlds: int, axis: int = 0) -> Callable[..., Any]:
    """``fn``, run by each device on its own worlds, so that its branches and gathers ask no other device.

    Args:
        fn: a function of trees; arrays whose ``axis`` has the size ``worlds`` are split there, and so are all its
            results. It must not mix worlds.
    """
    found = _mesh(None) if WORLD in jax.sharding.get_abstract_mesh().axis_names else None
    if found is None or found.shape[WORLD] == 1 or worlds % found.shape[WORLD]:
        return fn

    def call(*args: Any) -> Any:
        cut = P(*[None] * axis, WORLD)
        specs = jax.tree.map(lambda x: cut if np.shape(x)[axis : axis + 1] == (worlds,) else P(), args)
        spread = jax.shard_map(lambda *a: _vary(fn(*a)), mesh=found, in_specs=specs, out_specs=cut)
        return jax.jit(spread, inline=True)(*args)

    return call


def gradient(loss: Callable[..., Any], shared: Any, *args: Any, out_specs: Any = FIRST) -> tuple[Any, Any]:
    """The gradient of a sum over worlds by what they share: each device takes its own worlds', and one all-reduce adds.

    Call it under ``jit``: outside, it is compiled at every call.

    Args:
        loss: ``loss(shared, *args) -> (value, aux)``, a sum over the worlds of ``args``.
        shared: the tree to differentiate by, the same for all worlds.
        args: trees whose arrays have the world axis first, or leading size 1. Time comes after worlds.
        out_specs: where the world axis of ``aux`` is; by default it is the first of all its arrays.

    Returns:
        ``((value, gradient), aux)``.

    Raises:
        ValueError: the worlds do not divide evenly among the devices, two arrays of ``args`` have different numbers of
            worlds, an array of ``aux`` has no worlds, or the mesh has no axis "world".
    """
    found = _mesh(None)

    def own(shared: Any, *args: Any) -> tuple[Any, Any]:
        (value, aux), grads = jax.value_and_grad(loss, has_aux=True)(shared, *args)
        return (value, grads), aux

    if found is None:
        return own(shared, *args)

    def each(shared: Any, *args: Any) -> tuple[Any, Any]:
        shared = jax.tree.map(lambda x: jax.lax.pcast(x, WORLD, to="varying"), shared)
        result, aux = own(shared, *args)
        if out_specs == FIRST:
            _expect_share(aux, worlds // devices)
        return total(result), _vary(aux)

    devices = found.shape[WORLD]
    if (worlds := expect_worlds(args, devices, "args")) % devices:
        raise ValueError(
            f"gradient: no array of args has more than one world, and one does not divide evenly among {devices} "
            f"devices; take a multiple of {devices} worlds, or a mesh of one device: mesh(jax.devices()[:1])"
        )
    spread = jax.shard_map(each, mesh=found, in_specs=(P(), *specs(args)), out_specs=(P(), out_specs))
    return jax.jit(spread, inline=True)(shared, *args)


def _expect_share(aux: Any, worlds: int) -> None:
    for path, x in jax.tree_util.tree_leaves_with_path(aux):
        if np.shape(x)[:1] != (worlds,):
            raise ValueError(
                f"gradient: aux{jax.tree_util.keystr(path)} has shape {np.shape(x)}, must have the {worlds} worlds of "
                "this device first: each device would give its own. Return it for each world and reduce it afterwards, "
                "or say by out_specs where its worlds are"
            )


def averaged(loss_fn: LossFn) -> LossFn:
    """``loss_fn`` of :func:`fphys.train.step`, by each device of its own examples; one all-reduce adds, of one array.

    Under ``jit`` alone, XLA sends each parameter's gradient and each metric as an array of its own, and gloo one after
    the other.

    Args:
        loss_fn: ``loss_fn(params, aux, batch, key) -> (loss, aux, metrics)``. Loss and metrics are means over the
            examples of a batch, and floats; it returns ``aux`` as it is. Each device has a key of its own, made
            of the one given: what is drawn in the loss, as by dropout, depends on the number of devices.

    Returns:
        Such a function, whose gradient flows to the parameters alone. It is of first order. Without a mesh,
        ``loss_fn`` itself.

    Raises:
        ValueError: (by that function) arrays of the batch have different first axes, or one that does not divide evenly
            among the devices; ``aux`` is changed; a metric is no float; or parameters are in float16, whose gradients
            would be rounded to zero before :func:`fphys.train.step` scales the loss.
    """
    found = _mesh(None)
    if found is None or found.shape[WORLD] == 1:
        return loss_fn

    def own(params: Any, aux: Any, batch: Any, key: Any) -> Any:
        key = None if key is None else jax.random.fold_in(key, jax.lax.axis_index(WORLD))

        def scalars(params: Any) -> tuple[Any, Any]:
            loss, after, metrics = loss_fn(params, aux, batch, key)
            if any(a is not b for a, b in zip(*map(jax.tree.leaves, (aux, after)), strict=True)):
                raise ValueError("averaged(loss_fn): the loss changes aux, which each device would do in its own way")
            for name, x in metrics.items():
                if not jnp.issubdtype(jnp.result_type(x), jnp.floating):
                    raise ValueError(
                        f"averaged(loss_fn): the metric {name} is of {jnp.result_type(x)}, must be a float, and a mean "
                        "over examples, which the mean over devices is then, too"
                    )
            return loss, metrics

        return total(jax.value_and_grad(scalars, has_aux=True)(_vary(params)))

    def mean(params: Any, aux: Any, batch: Any, key: Any) -> tuple[Any, Any, dict[str, Any]]:
        if any(jnp.result_type(x) == jnp.float16 for x in jax.tree.leaves(params)):
            raise ValueError("averaged(loss_fn): parameters are in float16: take bfloat16, which needs no scaled loss")
        expect_worlds(batch, found.shape[WORLD], "batch")
        spread = jax.shard_map(own, mesh=found, in_specs=(P(), P(), specs(batch), P()), out_specs=P())
        sums = jax.jit(spread, inline=True)(*jax.lax.stop_gradient((params, aux, batch)), key)
        (loss, metrics), slope = jax.tree.map(lambda x: x / found.shape[WORLD], sums)
        return _sloped(loss, params, slope), aux, metrics

    return mean


@jax.custom_vjp
def _sloped(value: Any, at: Any, slope: Any) -> Any:
    """The value, whose gradient by ``at`` is ``slope``."""
    return value


def _sloped_bwd(slope: Any, cotangent: Any) -> tuple[Any, Any, None]:
    return cotangent, jax.tree.map(lambda x: cotangent.astype(x.dtype) * x, slope), None


_sloped.defvjp(lambda value, at, slope: (value, slope), _sloped_bwd)


def total(tree: T) -> T:
    """Inside ``shard_map``: the sum of each array over the devices, in one all-reduce for each dtype.

    Raises:
        ValueError: this is not inside a ``shard_map`` over the axis "world", or there are random keys.
    """
    if WORLD not in jax.sharding.get_abstract_mesh().manual_axes:
        raise ValueError(
            f"total: outside a shard_map over {WORLD!r} there are no devices to sum over: call it in the function that "
            "jax.shard_map runs; elsewhere x.sum() adds the worlds of all devices"
        )
    leaves, form = jax.tree.flatten(jax.tree.map(jnp.asarray, tree))
    if any(jnp.issubdtype(x.dtype, jax.dtypes.prng_key) for x in leaves):
        raise ValueError("total: random keys have no sum: leave them out of the tree")
    found = list(leaves)
    for dtype in dict.fromkeys(x.dtype for x in leaves):
        mine = [i for i, x in enumerate(leaves) if x.dtype == dtype]
        flat, back = ravel_pytree([leaves[i] for i in mine])
        for i, x in zip(mine, back(jax.lax.psum(_vary(flat), WORLD)), strict=True):
            found[i] = x
    return form.unflatten(found)


def _mesh(over: Mesh | None) -> Any:
    """The mesh to use, or None: none is set, or this is already one device's share of it."""
    found: Any = jax.sharding.get_abstract_mesh() if over is None else over
    if over is None and (WORLD in found.manual_axes or set(found.axis_names) <= set(found.manual_axes)):
        return None
    if WORLD not in found.axis_names:
        raise ValueError(
            f"the mesh has the axes {found.axis_names}, needs one named {WORLD!r}: fphys.distributed.mesh()"
        )
    if found.axis_types[found.axis_names.index(WORLD)] != AxisType.Auto:
        raise ValueError(f"the mesh's axis {WORLD!r} is not of AxisType.Auto: make it by fphys.distributed.mesh()")
    return found


def expect_worlds(tree: Any, devices: int, name: str = "") -> int:
    """The number of worlds of a tree, which every array has that is split.

    Raises:
        ValueError: two arrays have different numbers, or the number does not divide evenly among the devices.
    """
    paths = jax.tree_util.tree_leaves_with_path(tree, is_leaf=_has_no_worlds)
    cut = [(f"{name}{jax.tree_util.keystr(path)}" or "the array", np.shape(x)) for path, x in paths if _is_cut(x)]
    (worlds, _), *_ = collections.Counter(shape[0] for _, shape in cut).most_common(1) or [(1, 0)]
    for leaf, shape in cut:
        if shape[0] != worlds:
            raise ValueError(
                f"{leaf} has shape {shape} beside arrays of {worlds} worlds: only a world axis is split among devices. "
                "What all worlds share: close over it, pass it in `shared`, place it by everywhere(), or give it a "
                "leading axis of 1. Of what has time first, swap the two axes"
            )
        if worlds > 1 and worlds % devices:
            raise ValueError(
                f"{leaf} has shape {shape}: its first axis does not divide evenly among {devices} devices; take a "
                f"multiple of {devices} worlds"
            )
    return worlds


def specs(tree: Any, least: int = 2) -> Any:
    """Where each array of a tree belongs, or each part that has no worlds; a first axis of ``least`` is of worlds."""
    return jax.tree.map(lambda x: FIRST if _is_cut(x, least) else P(), tree, is_leaf=_has_no_worlds)


def _is_cut(x: Any, least: int = 2) -> bool:
    return not _has_no_worlds(x) and np.ndim(x) > 0 and np.shape(x)[0] >= least


def _has_no_worlds(x: Any) -> bool:
    """Whether this part of a tree says that its first axes are not of worlds, as a model's keyframes and meshes do."""
    return getattr(x, "has_no_worlds", False) is True


def _put(x: Any, mesh: Any, spec: P) -> Any:
    if isinstance(x, jax.core.Tracer):
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))
    concrete = mesh if isinstance(mesh, Mesh) else jax.sharding.get_mesh()
    return jax.device_put(x, NamedSharding(concrete, spec))


def _vary(tree: T) -> T:
    """The tree, as one that differs from device to device."""
    return jax.tree.map(lambda x: x if WORLD in axes(x) else jax.lax.pcast(x, WORLD, to="varying"), tree)
