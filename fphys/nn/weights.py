"""Pretrained weights: read files, find them by name, and convert torch's names to ours.

A model class that accepts foreign weights has a static method ``convert(weights)``, which maps a state dict's names to
ours. Our names are attribute paths: ``layer1.0.conv1.kernel``. A classifier has the name of its output layer as
``HEAD``. Nothing is ever downloaded.
"""

import json
import os
import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ..errors import FphysError, MissingDependencyError, install
from .pure import Aux, Params, Structure, split

VARIABLE = "FPHYS_CACHE"
SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
INDEX = ".index.json"
_TYPES = "F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL C64".split()  # safetensors'
Weights = dict[str, np.ndarray]
Rule = tuple[str, str | Callable[[re.Match[str]], str]]
M = TypeVar("M", bound=nnx.Module)


class WeightsError(FphysError, ValueError):
    """Weights do not fit a model, or a file does not hold weights; the message lists the mismatches."""


def read_weights(path: str | os.PathLike[str]) -> Weights:
    """The arrays in a file, by name.

    Args:
        path: ``.safetensors``; or torch's formats ``.pth``, ``.pt`` and ``.bin``, which need torch. Only tensors are
            read from the latter; no code in such a file runs. Or ``.index.json``, which Hugging Face writes beside a
            model in several files: it names them.

    Raises:
        FileNotFoundError: there is no such file. WeightsError: it is damaged, or holds something other than tensors.
        MissingDependencyError: torch is needed and not installed.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file of weights")
    if path.suffix == ".safetensors":
        return read_safetensors(path)
    if path.name.endswith(INDEX):
        return _read_parts(path)
    if path.suffix not in SUFFIXES:
        known = ", ".join((*SUFFIXES, INDEX))
        raise WeightsError(f"{path}: {path.suffix!r} is not a format of weights; known are {known}")
    return _from_torch(path)


def _read_parts(index: Path) -> Weights:
    """The arrays of all files that an index names."""
    try:
        places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        parts = {Path(part) for part in places.values()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as cause:
        raise WeightsError(f"{index}: damaged, or not an index with a weight_map of arrays and files") from cause
    if strange := sorted(str(part) for part in parts if part.name != str(part) or part.suffix not in SUFFIXES):
        raise WeightsError(f"{index}: names {strange[0]}, must name files of weights in its own folder")
    found: Weights = {}
    for part in sorted(parts):
        found |= read_weights(index.parent / part)
    if absent := sorted(places.keys() - found.keys()):
        raise WeightsError(f"{index}: {absent[0]} is not in {places[absent[0]]}: download or write the files again")
    return found


def write_weights(path: str | os.PathLike[str], params: Params, aux: Aux) -> None:
    """Write parameters and statistics as safetensors, under our names. :func:`load_weights` accepts the file.

    Raises:
        WeightsError: the file cannot be written.
    """
    write_safetensors(path, {name: np.ascontiguousarray(leaf) for name, leaf in {**flat(params), **flat(aux)}.items()})


def read_safetensors(path: str | os.PathLike[str]) -> Weights:
    """The arrays of a safetensors file, by name. The file's suffix does not matter, and no code in it runs.

    Raises:
        WeightsError: it is missing, damaged, not safetensors, or holds tensors of a type that NumPy lacks.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            types = {name: file.get_slice(name).get_dtype() for name in file.keys()}
            if strange := [f"{name} is {kind}" for name, kind in types.items() if kind not in _TYPES]:
                raise WeightsError(
                    f"{path}: {len(strange)} tensors are of types that cannot be read: {'; '.join(strange[:5])}; "
                    f"save them as one of {', '.join(_TYPES)}"
                )
            return {name: file.get_tensor(name) for name in types}
    except WeightsError:
        raise
    except (OSError, SafetensorError, ValueError) as cause:
        raise WeightsError(
            f"{path}: cannot be read as safetensors ({cause}): absent, damaged, or in another format (.pt and .bin are "
            "pickles). Download or write it again"
        ) from cause


def write_safetensors(path: str | os.PathLike[str], arrays: Weights) -> None:
    """Write contiguous arrays as safetensors.

    Raises:
        WeightsError: the file cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        save_file(arrays, path)
    except (OSError, SafetensorError, ValueError) as cause:  # ValueError: the system cannot encode the file's name
        raise WeightsError(f"{path}: cannot be written: {cause}; choose another folder or name") from cause


def load_weights(
    module: Structure, params: Params, aux: Aux, weights: Mapping[str, Any], strict: bool = True
) -> tuple[Params, Aux]:
    """Replace a model's parameters by given weights: ``params, aux = load_weights(module, params, aux, weights)``.

    Args:
        module, params, aux: from :func:`fphys.nn.init`, or their shapes from ``jax.eval_shape``.
        weights: arrays or torch tensors by name, from :func:`read_weights` or a state dict. Names may be our own for
            every model, torchvision's for ResNet, ViT and VGG, and Hugging Face's for ResNet, ViT, GPT-2, BERT and
            BART. For a layer here that torch has, and a module of your own whose attributes have the same names, they
            may be torch's: layouts follow from what stands there (kernel, scale, embedding, statistics, recurrent
            layers, packed attention).
        strict: whether every parameter must be given. If not, missing ones keep their value. What is given must be in
            the model in any case.

    Returns:
        New ``params`` and ``aux``, in the old dtypes.

    Raises:
        WeightsError: names or shapes do not fit; the first ten are listed.
    """
    return _load(module, params, aux, _by_own_names(module, weights, {**flat(params), **flat(aux)}), strict)


def _load(module: Structure, params: Params, aux: Aux, given: Weights, strict: bool) -> tuple[Params, Aux]:
    """:func:`load_weights` of arrays by our names."""
    own = {**flat(params), **flat(aux)}
    shapes = [
        f"{name} has shape {value.shape}, the model's {own[name].shape}"
        for name, value in given.items()
        if name in own and not _fits(value, own[name])
    ]
    unknown = [f"{name} is not in the model" for name in given.keys() - own.keys()]
    absent = [f"{name} is missing" for name in own.keys() - given.keys() if strict]
    if wrong := [*shapes, *sorted(unknown), *sorted(absent)]:
        rest = f"; and {len(wrong) - 10} more" if len(wrong) > 10 else ""
        raise WeightsError(f"the weights do not fit {module.type.__name__}: {'; '.join(wrong[:10])}{rest}")

    def place(path: Any, leaf: Any) -> Any:
        name = _dotted(path)
        return jnp.asarray(given[name].reshape(leaf.shape), leaf.dtype) if name in given else leaf

    return jax.tree_util.tree_map_with_path(place, params), jax.tree_util.tree_map_with_path(place, aux)


def pretrained(
    model: M,
    name: str,
    which: str | os.PathLike[str] | bool | None,
    default: str = "imagenet",
    new_head: bool = False,
) -> M:
    """Load the weights that the caller asked for into a model.

    Args:
        model: a newly built model.
        name: the architecture's name, such as ``resnet50``.
        which: a file; or a name: ``imagenet`` stands for ``resnet50-imagenet.safetensors`` in the ``weights`` folder of
            ``FPHYS_CACHE``, by default ``~/.cache/fphys``. True takes the default name, None or False loads nothing.
        default: the default name.
        new_head: whether the output layer stays as it was initialised, so that the weights may be those for another
            number of classes. All other parameters must be in the file.

    Raises:
        FileNotFoundError: there is no such file; the message says where to put it. WeightsError: it does not fit.
    """
    if which is None or which is False:
        return model
    weights = read_weights(_find(name, default if which is True else which))
    module, params, aux = split(model)
    given = _by_own_names(module, weights, {**flat(params), **flat(aux)})
    head = {key: leaf for key, leaf in flat(params).items() if key.startswith(getattr(model, "HEAD", "no head"))}
    try:
        params, aux = _load(module, params, aux, given | (head if new_head else {}), strict=True)
    except WeightsError as error:
        if any(key in str(error) for key in head):
            raise WeightsError(f"{error}; new_head=True leaves {', '.join(head)} as initialised") from None
        raise
    nnx.update(model, nnx.merge_state(_state(model, params), _state(model, aux)))
    return model


def translate(weights: Weights, rules: Sequence[Rule]) -> Weights:
    """Rename by regular expressions, applied in order, and convert torch's layouts to ours.

    ``weight`` becomes ``kernel`` with the outputs on the last axis, or ``scale`` if it is a vector. Batch
    normalisation's statistics become ``mean`` and ``var``; its counter is dropped. Other last names stay.
    """
    found = {}
    for name, value in weights.items():
        for pattern, new in rules:
            name = re.sub(pattern, new, name)
        stem, _, leaf = name.rpartition(".")
        if leaf == "weight" and value.ndim > 1:
            leaf, value = "kernel", np.moveaxis(value, (0, 1), (-1, -2))
        elif leaf != "num_batches_tracked":
            leaf = {"weight": "scale", "running_mean": "mean", "running_var": "var"}.get(leaf, leaf)
        if leaf != "num_batches_tracked":
            found[f"{stem}.{leaf}" if stem else leaf] = value
    return found


def without_copies(weights: Weights, name: str, copies: Collection[str]) -> Weights:
    """Drop arrays that repeat another one, as output layers do that share the tokens' embedding.

    Raises:
        WeightsError: one differs, so that the model is another.
    """
    for copy in copies:
        if copy in weights and name in weights and not np.array_equal(weights[copy], weights[name]):
            raise WeightsError(f"{copy} differs from {name}: the file's model does not share them, and this one does")
    return {key: value for key, value in weights.items() if key not in copies}


def _by_own_names(module: Structure, weights: Mapping[str, Any], own: Collection[str]) -> Weights:
    """The arrays by our names, whosever names they have."""
    given = {name: _array(value) for name, value in weights.items()}
    if given.keys() <= set(own):
        return given
    convert = getattr(module.type, "convert", None)
    return convert(given) if convert else _by_structure(module, given, own)


def _by_structure(module: Structure, weights: Weights, own: Collection[str]) -> Weights:
    """torch's names and layouts as ours, by what the model holds at each place; unknown names stay."""
    if any(getattr(node, "type", None) is nnx.ConvTranspose for node in module.graph.nodes):
        raise WeightsError(
            f"{module.type.__name__} has a ConvTranspose, whose kernel torch stores mirrored: load the others with "
            "strict=False, and set it to np.flip(weight, (2, 3)).transpose(2, 3, 0, 1) under its name here"
        )
    parted: Weights = {}
    for name, value in weights.items():
        stem, _, leaf = name.rpartition(".")
        start = f"{stem}." if stem else ""
        if packed := re.fullmatch("in_proj_(weight|bias)", leaf):  # query, key and value in one array
            parts = zip(("query", "key", "value"), np.split(value, 3), strict=True)
            parted |= {f"{start}{part}.{packed[1]}": rows for part, rows in parts}
        elif cell := re.fullmatch(r"(weight|bias)_(ih|hh)_l(\d+)(_reverse)?", leaf):
            part = {"ih": "input", "hh": "hidden"}[cell[2]]
            parted[f"{start}layers.{cell[3]}.{int(bool(cell[4]))}.{part}.{cell[1]}"] = value
        elif leaf != "num_batches_tracked":
            parted[name] = value
    found: Weights = {}
    for name, value in parted.items():
        stem, _, leaf = name.rpartition(".")
        leaves = _LEAVES.get(leaf, (leaf,))
        sequential = re.sub(r"(^|\.)(\d+)(?=\.|$)", r"\1layers.\2", stem)
        stems = (stem, sequential, re.sub(r"(^|\.)out_proj$", r"\1out", stem))
        places = [f"{stem}.{leaf}" if stem else leaf for stem in stems for leaf in leaves]
        place = next((place for place in places if place in own), name)
        is_kernel = place.rpartition(".")[2] == "kernel" and value.ndim > 1
        found[place] = np.moveaxis(value, (0, 1), (-1, -2)) if is_kernel else value
    return found


_LEAVES = {"weight": ("kernel", "scale", "embedding"), "running_mean": ("mean",), "running_var": ("var",)}


def flat(tree: Any) -> dict[str, Any]:
    """The leaves of nested dictionaries, by dotted path."""
    return {_dotted(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _dotted(path: Any) -> str:
    return ".".join(str(part.key) for part in path)


def _array(value: Any) -> np.ndarray:
    if hasattr(value, "detach"):  # a torch tensor, without importing torch
        value = value.detach().cpu()
        value = value.float() if value.dtype.is_floating_point and value.dtype.itemsize < 4 else value
    return np.asarray(value)


def _fits(value: np.ndarray, leaf: Any) -> bool:
    """Whether the shapes are equal, or equal in size with axes merged or split, as attention heads are."""
    return value.shape == leaf.shape or (value.ndim != leaf.ndim and value.size == leaf.size)


def _state(model: nnx.Module, tree: Any) -> nnx.State:
    """A nested dictionary as the state of the model's variables of these names."""
    names = flat(tree)
    state = nnx.filter_state(nnx.state(model), lambda path, _: ".".join(map(str, path)) in names)
    nnx.replace_by_pure_dict(state, tree)
    return state


def _find(name: str, which: str | os.PathLike[str]) -> Path:
    path = Path(which)
    if path.suffix in SUFFIXES or path.name.endswith(INDEX):
        return path
    folder = Path(os.environ.get(VARIABLE) or Path.home() / ".cache" / "fphys") / "weights"
    for suffix in SUFFIXES:
        if (path := folder / f"{name}-{which}{suffix}").is_file():
            return path
    raise FileNotFoundError(
        f"the weights {str(which)!r} of {name} are not in {folder}: save the state dict of torchvision's or Hugging "
        f"Face's {name} there as {name}-{which}.safetensors (or .pth with torch installed); or pass a file's path; or "
        f"set {VARIABLE} to another folder"
    )


def _from_torch(path: Path) -> Weights:
    try:
        import torch
    except ImportError as cause:
        raise MissingDependencyError(
            f"{path}: torch reads this format and is not installed: {install('torch')}, or convert the file to "
            "safetensors elsewhere"
        ) from cause

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # it warns that it may fail to read an odd pickle
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as cause:  # a file that is no pickle may mean anything: KeyError, AttributeError, struct.error
        raise WeightsError(f"{path}: damaged, or it holds more than tensors, which could run code: refused") from cause
    if not isinstance(content, dict) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise WeightsError(f"{path}: not a state dict: must be a dictionary of tensors by name, model.state_dict()")
    return {name: _array(value) for name, value in content.items()}
