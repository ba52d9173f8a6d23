"""Weights by name: safetensors, and torch's names and layouts."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import MissingDependencyError, install
from .errors import ExportError

T = TypeVar("T")

_LEAVES = {"kernel": "weight", "scale": "weight", "embedding": "weight", "mean": "running_mean", "var": "running_var"}
_LAYOUTS = {2: (1, 0), 3: (2, 1, 0), 4: (3, 2, 0, 1), 5: (4, 3, 0, 1, 2)}
"""From (spatial..., in, out) to (out, in, spatial...)."""
_HEADS = ("query", "key", "value", "out")
"""Attention's layers. Their kernels are (in, head, size), and (head, size, out) for the last."""


def save_weights(path: str | os.PathLike[str], tree: Any) -> Path:
    """Write a pytree's arrays as safetensors, named by their paths ("layers.0.kernel").

    Raises:
        ExportError: the file cannot be written. ValueError: two arrays would have one name.
    """
    from ..nn.weights import WeightsError, write_safetensors

    path = Path(path)
    try:
        write_safetensors(path, {name: np.asarray(leaf, order="C") for name, leaf in _named(tree).items()})
    except WeightsError as cause:
        raise ExportError(str(cause)) from cause
    return path


def load_weights(path: str | os.PathLike[str], like: T) -> T:
    """Load a safetensors file into the structure of ``like``. Random keys keep their values. No code in the file runs.

    Raises:
        ExportError: the file is missing, damaged or not safetensors; or names, shapes or dtypes differ.
    """
    from ..nn.weights import WeightsError, read_safetensors

    try:
        found = read_safetensors(path)
    except WeightsError as cause:
        raise ExportError(str(cause)) from cause
    wanted = _named(like)
    faults = [f"{name} is missing" for name in wanted if name not in found]
    faults += [f"{name} is not expected" for name in found if name not in wanted]
    faults += [
        f"{name} is {found[name].dtype}{found[name].shape}, must be {leaf.dtype}{leaf.shape}"
        for name, leaf in wanted.items()
        if name in found and (found[name].shape != leaf.shape or found[name].dtype != leaf.dtype)
    ]
    if faults:
        raise ExportError(f"{path} holds another model's weights: {'; '.join(faults[:5])}")
    return jax.tree_util.tree_map_with_path(lambda p, x: jnp.asarray(found[_name(p)]) if _name(p) in found else x, like)


def torch_state(*trees: Any, rename: Callable[[str], str] = str) -> dict[str, Any]:
    """Convert weights of flax modules into a torch state dict: ``module.load_state_dict(torch_state(params, aux))``.

    ``kernel`` becomes ``weight`` with outputs first (dense and convolution). ``scale`` and ``embedding`` become
    ``weight``. ``mean`` and ``var`` become batch normalisation's running statistics, with a batch count of 0. The
    query, key, value and output of attention become dense layers, the heads side by side. Other floating-point arrays,
    such as a parameter of your own, keep name and shape; other content of ``aux`` (random keys) is dropped.

    torch's images have channels first. If an image is flattened before a dense layer, make torch permute it to
    (height, width, channels) first.

    Args:
        trees: parameters and, with batch normalisation, ``aux``.
        rename: maps our path ("layers.0.weight") to torch's.

    Raises:
        ValueError: a kernel maps several axes (``nn.LinearGeneral``), for which torch has no layout; or two arrays
            would have one name. MissingDependencyError: torch is not installed.
    """
    try:
        import torch
    except ImportError as cause:
        raise MissingDependencyError(f"torch is not installed: {install('torch')}") from cause

    state = {}
    named = {name: np.asarray(leaf) for tree in trees for name, leaf in _named(tree).items()}
    for name, leaf in named.items():
        *module, kind = name.split(".")
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            continue
        value = _as_torch(name, named)
        state[rename(".".join([*module, _LEAVES.get(kind, kind)]))] = torch.from_numpy(value.copy(order="C"))
        if kind == "var":
            state[rename(".".join([*module, "num_batches_tracked"]))] = torch.tensor(0)
    return state


def _as_torch(name: str, named: dict[str, np.ndarray]) -> np.ndarray:
    """An array in torch's layout. Its neighbours tell attention and general layers from a convolution in one axis."""
    *module, kind = name.split(".")
    value, part = named[name], "".join(module[-1:])
    heads = [named.get(".".join([*module[:-1], each, "kernel"]), 0) for each in _HEADS]
    if part in _HEADS and all(np.ndim(kernel) == 3 for kernel in heads):
        if kind != "kernel":
            return value.reshape(-1)
        return (value.reshape(-1, value.shape[-1]) if part == "out" else value.reshape(len(value), -1)).T
    if kind != "kernel":
        return value
    if value.ndim not in _LAYOUTS or np.ndim(named.get(".".join([*module, "bias"]), 0)) > 1:
        raise ValueError(
            f"{name} of shape {value.shape} maps several axes, which no layer of torch does: use nn.Linear, or leave "
            "the module out and convert it yourself"
        )
    return value.transpose(_LAYOUTS[value.ndim])


def _named(tree: Any) -> dict[str, Any]:
    """Arrays by path, excluding random keys. Raises ValueError if two have one name."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    held = [(path, leaf) for path, leaf in leaves if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)]
    paths: dict[str, Any] = {}
    for path, _ in held:
        if (first := paths.setdefault(_name(path), path)) is not path:
            one, other = map(jax.tree_util.keystr, (first, path))
            raise ValueError(f"{one} and {other} would both be named {_name(path)}: rename one, without a dot")
    return {_name(path): leaf for path, leaf in held}


def _name(path: Any) -> str:
    """A leaf's dotted path, without the suffix that flax's variables add."""
    return jax.tree_util.keystr(path, simple=True, separator=".").removesuffix(".value") or "value"
