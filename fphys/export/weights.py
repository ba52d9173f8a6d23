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


def save_weights(path: str | os.PathLike[str], tree: Any) -> Path:
    """Write a pytree's arrays as safetensors, named by their paths ("layers.0.kernel").

    Raises:
        ExportError: the file cannot be written.
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
    ``weight``. ``mean`` and ``var`` become batch normalisation's running statistics, with a batch count of 0. Other
    content of ``aux`` (random keys) is dropped.

    torch's images have channels first. If an image is flattened before a dense layer, make torch permute it to
    (height, width, channels) first.

    Args:
        trees: parameters and, with batch normalisation, ``aux``.
        rename: maps our path ("layers.0.weight") to torch's.

    Raises:
        MissingDependencyError: torch is not installed.
    """
    try:
        import torch
    except ImportError as cause:
        raise MissingDependencyError(f"torch is not installed: {install('torch')}") from cause

    state = {}
    for name, leaf in (item for tree in trees for item in _named(tree).items()):
        *module, kind = name.split(".")
        if kind not in _LEAVES and kind != "bias":
            continue
        value = np.asarray(leaf)
        value = value.transpose(_LAYOUTS[value.ndim]) if kind == "kernel" else value
        state[rename(".".join([*module, _LEAVES.get(kind, kind)]))] = torch.from_numpy(value.copy(order="C"))
        if kind == "var":
            state[rename(".".join([*module, "num_batches_tracked"]))] = torch.tensor(0)
    return state


def _named(tree: Any) -> dict[str, Any]:
    """Arrays by path, excluding random keys."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {_name(path): leaf for path, leaf in leaves if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)}


def _name(path: Any) -> str:
    """A leaf's dotted path, without the suffix that flax's variables add."""
    return jax.tree_util.keystr(path, simple=True, separator=".").removesuffix(".value") or "value"
