"""Flax NNX modules as pure functions: a module's state goes into :func:`apply` and comes out of it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

Array = jax.Array
Params = dict[Any, Any]
"""The trained parameters: nested dictionaries of arrays, keyed by the module's attribute names."""
Aux = dict[Any, Any]
"""State that changes without training: batch statistics, caches. Empty if there is none."""


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True, repr=False)
class Structure:
    """A module without its arrays: hashable, and a pytree without leaves, so ``jit`` accepts it as an argument."""

    graph: nnx.GraphDef
    streams: tuple[tuple[tuple[Any, ...], tuple[int, ...]], ...]
    """Path and shape of each random stream."""

    @property
    def type(self) -> type[nnx.Module]:
        """The module's class."""
        return self.graph.nodes[0].type  # type: ignore[union-attr]

    def __repr__(self) -> str:
        return f"Structure({self.type.__name__})"


def init(constructor: Callable[..., nnx.Module], key: Array) -> tuple[Structure, Params, Aux]:
    """Build a module and split it into structure, parameters and other state.

    Args:
        constructor: called as ``constructor(rngs=nnx.Rngs(key))``; returns an NNX module. If your class takes more
            arguments, wrap it in ``functools.partial`` or ``lambda rngs: ...``.
        key: a random key for the initial parameters.

    Returns:
        ``module``, ``params``, ``aux``, all pytrees. ``jit``, ``vmap`` (over keys, for an ensemble) and ``eval_shape``
        compose with this function. ``aux`` holds no random keys: :func:`apply` takes a new one.

    Raises:
        TypeError: the constructor does not return a module.
    """
    return split(_module(constructor(rngs=nnx.Rngs(key))))


def split(live: nnx.Module) -> tuple[Structure, Params, Aux]:
    """Split a live NNX module into ``module, params, aux``, as :func:`init` does. The module itself is unchanged."""
    graph, params, streams, aux = nnx.split(live, nnx.Param, nnx.RngState, ...)
    shapes = tuple((path[:-1], leaf.shape) for path, leaf in nnx.to_flat_state(streams) if leaf.type is nnx.RngKey)
    return Structure(graph, shapes), nnx.to_pure_dict(params), nnx.to_pure_dict(aux)


def apply(
    module: Structure,
    params: Params,
    aux: Aux,
    x: Any,
    train: bool = False,
    key: Array | None = None,
    *,
    method: str = "__call__",
    **inputs: Any,
) -> tuple[Any, Aux]:
    """Run a module: ``y, aux = apply(module, params, aux, x)``.

    Args:
        module, params, aux: from :func:`init`, or later ones with the same structure.
        x: the module's input.
        train: whether to train: dropout is active, and batch normalisation uses the batch's statistics and updates its
            own. Static under ``jit``.
        key: a random key for dropout and sampling. The same key gives the same numbers.
        method: the method to call instead of the module itself, for example ``"encode"``.
        inputs: the module's other inputs, by name.

    Returns:
        The module's output, and the new ``aux`` with the old one's structure. Without training, ``aux`` is unchanged
        unless the module itself changes it. What it assigns to a parameter is not returned: keep what changes in
        another ``nn.Variable``. Gradients flow to ``params``, ``x`` and ``inputs``, and to the statistics in ``aux``
        that were used.

    Raises:
        ValueError: the module draws random numbers and there is no key; or it creates a variable that :func:`init` did
            not see.
    """
    counts, streams = _streams(module, jax.random.key(0) if key is None else key)
    live = nnx.merge(module.graph, params, aux, streams)
    live.train() if train else live.eval()
    y = getattr(live, method)(x, **inputs)
    _, _, streams, after = nnx.split(live, nnx.Param, nnx.RngState, ...)
    if key is None and any(_at(streams, path)["count"].get_value() is not count for path, count in counts.items()):
        raise ValueError(
            f"{module.type.__name__} draws random numbers (dropout, sampling) when train={train}, and key is None: "
            "pass key=..., a new one for every step"
        )
    after = nnx.to_pure_dict(after)
    if jax.tree.structure(after) != jax.tree.structure(aux):
        raise ValueError(
            f"{module.type.__name__} changed the structure of aux while it was applied: it held "
            f"{_names(aux)}, and now {_names(after)}. Create every variable in the constructor"
        )
    return y, after


def _module(built: Any) -> nnx.Module:
    if not isinstance(built, nnx.Module):
        raise TypeError(
            f"constructor returned a {type(built).__name__}, must return a fphys.nn.Module (flax.nnx.Module): give a "
            "subclass that takes the keyword rngs, or a function of rngs that returns an instance"
        )
    return built


def _streams(module: Structure, key: Array) -> tuple[dict[tuple[Any, ...], Array], dict[Any, Any]]:
    """The state of all random streams: each has its own key, and a count of zero."""
    counts, state = {}, {}
    for number, (path, shape) in enumerate(module.streams):
        own = jax.random.fold_in(key, number)
        own = jax.random.wrap_key_data(own) if own.dtype == jnp.uint32 else own
        counts[path] = jnp.zeros(shape, jnp.uint32)
        node = state
        for name in path:
            node = node.setdefault(name, {})
        node |= {"key": jax.random.split(own, shape) if shape else own, "count": counts[path]}
    return counts, state


def _at(tree: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        tree = tree[name]
    return tree


def _names(tree: Any) -> str:
    return ", ".join(jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(tree)) or "nothing"
