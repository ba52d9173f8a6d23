"""Weights by name: safetensors, and torch's names and layouts."""

import os
import re
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
_CELL = re.compile(r"\blayers\.(\d+)\.([01])\.(input|hidden)\.(weight|bias)$")
"""An array of ``RNN``, ``GRU`` or ``LSTM``: layer, direction, part, leaf."""


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
    """Convert weights of flax modules into a torch state dict: ``net.load_state_dict(torch_state(module, params))``.

    ``kernel`` becomes ``weight`` with outputs first (dense and convolution). ``scale`` and ``embedding`` become
    ``weight``. ``mean`` and ``var`` become batch normalisation's running statistics, with a batch count of 0. The
    query, key, value and output of attention become dense layers, the heads side by side. ``RNN``, ``GRU`` and ``LSTM``
    get torch's names. Other floating-point arrays, such as a parameter of your own, keep name and shape; other content
    of ``aux`` (random keys) is dropped.

    torch's images have channels first. If an image is flattened before a dense layer, make torch permute it to
    (height, width, channels) first.

    Args:
        trees: the module (of ``fphys.nn.init``, or flax's ``GraphDef``), parameters and, with batch normalisation,
            ``aux``. Without the module, kernels of three or more axes are taken for convolutions or attention: a
            transposed convolution, whose kernel torch mirrors, needs it.
        rename: maps our path ("layers.0.weight") to torch's.

    Raises:
        ValueError: a kernel maps several axes (``nn.LinearGeneral``), for which torch has no layout; or two arrays
            would have one name. MissingDependencyError: torch is not installed.
    """
    try:
        import torch
    except ImportError as cause:
        raise MissingDependencyError(f"torch is not installed: {install('torch')}") from cause

    state, layers = {}, _layers(trees)
    named = {name: np.asarray(leaf) for tree in trees for name, leaf in _named(tree).items()}
    for name, leaf in named.items():
        *module, kind = name.split(".")
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            continue
        value = _as_torch(name, named, layers)
        bfloat16 = value.dtype == jnp.bfloat16  # which NumPy's arrays cannot hand to torch
        tensor = torch.from_numpy(value.astype(np.float32 if bfloat16 else value.dtype).copy(order="C"))
        place = ".".join([*module, _LEAVES.get(kind, kind)])
        state[rename(_CELL.sub(_cell, place))] = tensor.bfloat16() if bfloat16 else tensor
        if kind == "var":
            state[rename(".".join([*module, "num_batches_tracked"]))] = torch.tensor(0)
    return state


def _layers(trees: Any) -> dict[str, Any]:
    """The modules by dotted path, if their structure is among the trees. They hold no arrays."""
    from flax import nnx

    from ..nn import Structure

    graphs = [tree.graph if isinstance(tree, Structure) else tree for tree in trees]
    found = {}
    for graph in graphs:
        if isinstance(graph, nnx.GraphDef):
            module = nnx.graphlib.unflatten(graph, [None] * graph.num_leaves)
            found |= {".".join(map(str, path)): layer for path, layer in nnx.iter_modules(module)}
    return found


def _cell(match: re.Match[str]) -> str:
    """torch's name of an array of a recurrent layer: ``layers.0.1.input.weight`` is ``weight_ih_l0_reverse``."""
    layer, direction, part, leaf = match.groups()
    return f"{leaf}_{'ih' if part == 'input' else 'hh'}_l{layer}{'_reverse' if direction == '1' else ''}"


def _as_torch(name: str, named: dict[str, np.ndarray], layers: dict[str, Any]) -> np.ndarray:
    """An array in torch's layout. Without layers, its neighbours tell attention and general layers."""
    from flax import nnx

    *module, kind = name.split(".")
    value, part, layer = named[name], "".join(module[-1:]), layers.get(".".join(module))
    if part in _HEADS and _is_attention(module[:-1], named, layers):
        if kind != "kernel":
            return value.reshape(-1)
        return (value.reshape(-1, value.shape[-1]) if part == "out" else value.reshape(len(value), -1)).T
    if kind != "kernel":
        return value
    if isinstance(layer, nnx.ConvTranspose):  # (spatial..., in, out) to (in, out, spatial...), which torch mirrors
        if layer.transpose_kernel:
            return np.moveaxis(value, (-1, -2), (0, 1))
        return np.flip(np.moveaxis(value, (-2, -1), (0, 1)), tuple(range(2, value.ndim)))
    general = np.ndim(named.get(".".join([*module, "bias"]), 0)) > 1
    general |= layer is not None and value.ndim > 2 and not isinstance(layer, nnx.Conv)
    if value.ndim not in _LAYOUTS or general:
        raise ValueError(
            f"{name} of shape {value.shape} maps several axes, which no layer of torch does: use nn.Linear, or leave "
            "the module out and convert it yourself"
        )
    return value.transpose(_LAYOUTS[value.ndim])


def _is_attention(module: list[str], named: dict[str, np.ndarray], layers: dict[str, Any]) -> bool:
    """Whether this is attention: a known layer, or kernels and biases of heads."""
    from flax import nnx

    if (layer := layers.get(".".join(module))) is not None:
        return isinstance(layer, nnx.MultiHeadAttention)
    parts = [[np.ndim(named.get(".".join([*module, part, leaf]), 0)) for part in _HEADS] for leaf in ("kernel", "bias")]
    return parts == [[3, 3, 3, 3], [2, 2, 2, 1]]


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
