"""One training step: gradients of micro-batches in a given precision, and an update, skipped if it is not finite."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from ..tree import Tree, pytree
from . import scale
from .precision import AS_IT_IS, Precision
from .scale import LossScale

if TYPE_CHECKING:
    import optax

Array = jax.Array
LossFn = Callable[[Any, Any, Any, Array], tuple[Array, Any, dict[str, Array]]]
"""``loss_fn(params, aux, batch, key) -> (loss, aux, metrics)``: see :func:`fphys.train.fit`."""


@pytree
class TrainState(Tree):
    """Everything the next step depends on. A checkpoint holds this and the data's position."""

    params: Any
    """The trained parameters."""
    aux: Any
    """State that the model updates without training, for example running batch statistics."""
    opt: Any
    """The optimizer's state."""
    scale: LossScale | None
    """The loss scale, in float16 only."""
    key: Array
    """Random key; step i draws from ``fold_in(key, i)``."""
    step: Array
    """Batches seen, int32, shape ()."""
    skipped: Array
    """Updates skipped because they were not finite, int32, shape ()."""
    skipped_in_a_row: Array
    """How many of the latest updates were skipped in a row, int32, shape ()."""
    last_skipped: Array
    """The step of the last skipped update, -1 if there was none, int32, shape ()."""


def expect_optimizer(optimizer: Any) -> None:
    """Raise a TypeError unless this is an optimizer."""
    if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise TypeError(f"optimizer is {optimizer!r}, must be an optax optimizer such as fphys.optim.adam(1e-3)")


def init(
    params: Any,
    optimizer: "optax.GradientTransformation",
    *,
    aux: Any = None,
    key: Array | None = None,
    precision: Precision = AS_IT_IS,
) -> TrainState:
    """The initial training state. Arrays are copied, so that a jitted step may donate the state's memory.

    Args:
        params: any pytree of floating-point arrays, of any shape.
        optimizer: an optax optimizer.
        aux: any pytree that ``loss_fn`` takes and returns beside the parameters.
        key: for randomness in the loss; ``jax.random.key(0)`` by default.
        precision: the same as for :func:`step`.

    Raises:
        TypeError: ``params`` holds no array, or something other than floating-point arrays (a module; split it first);
            or ``optimizer`` is not an optimizer.
    """
    expect_optimizer(optimizer)
    leaves = jax.tree_util.tree_leaves_with_path(params)
    wrong = [jax.tree_util.keystr(path) or "params" for path, leaf in leaves if not hasattr(leaf, "dtype")]
    if wrong or not leaves:
        what = f"{', '.join(wrong[:3])} in params is not an array" if wrong else "params holds no array"
        raise TypeError(f"{what}: give the parameters as a pytree of arrays (flax: nnx.split(model, nnx.Param, ...))")
    whole = [(jax.tree_util.keystr(p), x.dtype) for p, x in leaves if not jnp.issubdtype(x.dtype, jnp.inexact)]
    if whole:
        raise TypeError(
            f"{whole[0][0] or 'params'} in params is {whole[0][1]}, which has no gradient: cast it, or move it to aux"
        )
    zero = jnp.int32(0)
    return TrainState(
        params=copied(params),
        aux=copied(aux),
        opt=copied(optimizer.init(params)),
        scale=scale.init() if precision.scaled else None,
        key=copied(jax.random.key(0) if key is None else key),
        step=zero,
        skipped=jnp.int32(0),
        skipped_in_a_row=jnp.int32(0),
        last_skipped=jnp.int32(-1),
    )


def step(
    loss_fn: LossFn,
    optimizer: "optax.GradientTransformation",
    state: TrainState,
    batch: Any,
    *,
    precision: Precision = AS_IT_IS,
    accumulate: int = 1,
    remat: Callable[..., bool] | None = None,
) -> tuple[TrainState, dict[str, Array]]:
    """One update of the parameters, pure. Jit it: ``jax.jit(partial(step, loss_fn, optimizer), donate_argnums=0)``.

    If the loss, the gradient, the update or the optimizer's new state is not finite, the update is skipped: parameters,
    ``aux`` and the optimizer's state stay as they were. The state counts skipped updates and records the last one.

    Args:
        loss_fn: as for :func:`fphys.train.fit`.
        batch: a pytree of arrays with the examples on the first axis.
        precision: the precision of the loss.
        accumulate: how many micro-batches to split the batch into, processed one after the other to save memory. The
            gradient is their mean. It equals the whole batch's gradient if the loss is a mean over examples. Loss and
            metrics are means as well, those that count too. Sums are taken in at least float32.
        remat: one of ``jax.checkpoint_policies``: what the forward pass saves for the backward pass, which computes
            the rest again. By default it saves all it needs. For single layers use ``flax.nnx.remat`` in the model.

    Returns:
        The next state, and scalars: ``loss``, ``grad_norm`` (global 2-norm, unscaled), ``skipped``, ``loss_scale`` if
        there is one, and the metrics of ``loss_fn`` that have other names.

    Raises (when traced):
        ValueError: the batch does not split into ``accumulate`` equal parts. TypeError: ``loss_fn`` returns another
            structure, or an ``aux`` whose type the one it was given cannot hold (floats for integers, say); or the
            optimizer needs more than gradients, parameters and the loss, as ``lbfgs`` and ``lookahead`` do.
    """
    import optax

    from ..optim import global_norm

    key = jax.random.fold_in(state.key, state.step)
    grads, loss, aux, metrics = _accumulated(loss_fn, state, batch, key, precision, accumulate, remat)
    with jax.numpy_dtype_promotion("standard"):  # optax raises floats to an int32 count
        update = optax.with_extra_args_support(optimizer).update  # the loss is for optim.ReduceLROnPlateau
        try:
            updates, opt = update(grads, state.opt, state.params, value=loss)
        except (TypeError, AttributeError) as cause:
            raise TypeError(
                f"the optimizer cannot make an update of gradients, parameters and the loss ({cause}): one that needs "
                "more, as lbfgs and lookahead do, needs a loop of your own"
            ) from cause
    finite = all_finite((loss, grads, updates, jax.tree.map(_once_finite, opt, state.opt)))

    def kept(new: Any, old: Any) -> Any:
        return jax.tree.map(lambda n, o: jnp.where(finite, n, o), new, old)

    missed = 1 - finite.astype(jnp.int32)
    after = state.replace(
        params=kept(optax.apply_updates(state.params, updates), state.params),
        aux=kept(aux, state.aux),
        opt=kept(opt, state.opt),
        scale=state.scale and state.scale.update(finite),
        step=state.step + 1,
        skipped=state.skipped + missed,
        skipped_in_a_row=jnp.where(finite, 0, state.skipped_in_a_row + 1),
        last_skipped=jnp.where(finite, state.last_skipped, state.step),
    )
    own = {"loss": loss, "grad_norm": global_norm(grads), "skipped": after.skipped}
    return after, metrics | own | ({"loss_scale": after.scale.value} if after.scale else {})


def all_finite(tree: Any) -> Array:
    """Whether every number of every floating-point leaf is finite; bool, shape ()."""
    found = [jnp.isfinite(x).all() for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return jnp.stack(found).all()


def copied(tree: Any) -> Any:
    """A copy of the tree in its own memory."""
    return jax.tree.map(lambda x: x.copy() if isinstance(x, jax.Array) else jnp.array(x), tree)


def _accumulated(
    loss_fn: LossFn, state: TrainState, batch: Any, key: Array, precision: Precision, parts: int, remat: Any
) -> tuple[Any, Array, Any, dict[str, Array]]:
    """Mean gradient, loss and metrics over the parts of a batch; ``aux`` goes from part to part."""

    def gradient(aux: Any, batch: Any, key: Array) -> tuple[Any, tuple[Array, Any, dict[str, Array]]]:
        def scaled(params: Any) -> tuple[Array, tuple[Array, Any, dict[str, Array]]]:
            own = jax.tree.map(lambda x: x, aux)  # flax's variables can change only in the trace that made them
            loss, new, metrics = _checked(loss_fn(precision.cast(params), own, precision.cast(batch), key))
            loss = loss.astype(jnp.float32) if loss.dtype.itemsize < 4 else loss
            new = _alike(new, aux)
            return loss * _factor(state, loss), (loss, new, metrics)

        grads, rest = jax.grad(jax.checkpoint(scaled, policy=remat) if remat else scaled, has_aux=True)(state.params)
        return jax.tree.map(lambda g: g / _factor(state, g), grads), rest

    if parts == 1:
        grads, (loss, aux, metrics) = gradient(state.aux, batch, key)
        return grads, loss, aux, metrics

    def part(aux: Any, inputs: Any) -> tuple[Any, Any]:
        grads, (loss, aux, metrics) = gradient(aux, *inputs)
        return aux, (grads, loss, metrics)

    def add(carry: Any, inputs: Any) -> tuple[Any, None]:
        aux, total = carry
        aux, found = part(aux, inputs)
        return (aux, jax.tree.map(lambda x, y: x + _wide(y), total, found)), None

    inputs = (_cut(batch, parts), jax.random.split(key, parts))
    aux, found = part(state.aux, jax.tree.map(lambda x: x[0], inputs))
    rest = jax.tree.map(lambda x: x[1:], inputs)
    (aux, total), _ = jax.lax.scan(add, (aux, jax.tree.map(_wide, found)), rest)
    grads, loss, metrics = jax.tree.map(lambda x, y: _mean(x, parts, y.dtype), total, found)
    return grads, loss, aux, metrics


def _wide(x: Array) -> Array:
    """What sums are taken in: floating-point, at least 32 bits."""
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        return x.astype(float)
    return x.astype(jnp.float32) if x.dtype.itemsize < 4 else x


def _mean(total: Array, parts: int, dtype: Any) -> Array:
    """The mean in its own type; that of integers and truths is floating-point."""
    mean = total / jnp.asarray(parts, total.dtype)
    return mean.astype(dtype) if jnp.issubdtype(dtype, jnp.inexact) else mean


def _factor(state: TrainState, like: Array) -> Array:
    return jnp.ones((), like.dtype) if state.scale is None else state.scale.value.astype(like.dtype)


def _checked(result: Any) -> tuple[Array, Any, dict[str, Array]]:
    if not (isinstance(result, tuple) and len(result) == 3 and isinstance(result[2], dict)):
        given = f"a tuple of {len(result)}" if isinstance(result, tuple) else type(result).__name__
        raise TypeError(
            f"loss_fn returned {given}, must return (loss, aux, metrics): a scalar, the new aux (None if it was given "
            "None) and a dict of scalars to log ({} for none)"
        )
    if jnp.shape(result[0]) != ():
        raise TypeError(
            f"loss_fn returned a loss of shape {jnp.shape(result[0])}, must be a scalar: take the mean, for example"
        )
    return jnp.asarray(result[0]), result[1], {name: jnp.asarray(value) for name, value in result[2].items()}


_TYPES = jnp.bool_, jnp.integer, jnp.floating, jnp.complexfloating


def _alike(new: Any, old: Any) -> Any:
    """The new aux in the old one's types, as micro-batches and a jitted step need it: mixed precision changes them."""
    if jax.tree.structure(new) != jax.tree.structure(old):
        raise TypeError(
            f"loss_fn returned an aux of another structure ({jax.tree.structure(new)}) than it was given "
            f"({jax.tree.structure(old)}): return aux itself if it does not change"
        )

    def cast(path: Any, new: Any, old: Array) -> Array:
        new = jnp.asarray(new)
        if new.dtype == old.dtype:
            return new
        given, kept = (next((i for i, t in enumerate(_TYPES) if jnp.issubdtype(x.dtype, t)), -1) for x in (new, old))
        if given > kept:
            name = jax.tree_util.keystr(path) or "aux"
            raise TypeError(
                f"{name} is {new.dtype} in the aux that loss_fn returned, but {old.dtype} in the one it was given, "
                f"which would cut it off: begin with {name} in {new.dtype}, or return it in {old.dtype}"
            )
        return new.astype(old.dtype)

    return jax.tree_util.tree_map_with_path(cast, new, old)


def _once_finite(new: Any, old: Any) -> Any:
    """The new numbers where the old ones were finite, else zero: ``ReduceLROnPlateau`` begins with infinity."""
    return jnp.where(jnp.isfinite(old), new, 0) if jnp.issubdtype(old.dtype, jnp.inexact) else new


def _cut(batch: Any, parts: int) -> Any:
    sizes = {x.shape[0] if x.ndim else 0 for x in map(jnp.asarray, jax.tree.leaves(batch))}
    if parts < 1 or any(size % parts or not size for size in sizes):
        raise ValueError(
            f"accumulate={parts} does not divide the batch, whose arrays have {sorted(sizes)} examples on the first "
            "axis: they must divide evenly"
        )
    return jax.tree.map(lambda x: jnp.reshape(x, (parts, x.shape[0] // parts, *x.shape[1:])), batch)
