"""Trained policies as files: safetensors of a few kilobytes, with a header."""

import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import nn
from ..errors import FphysError
from ..export import load_weights, save_weights
from ..model.assets import trained
from ..nn.weights import read_safetensors
from .moments import Moments
from .policy import Policy

Array = jax.Array
_FORMAT = 1

__all__ = ["load_policy", "save_policy", "trained"]


def save_policy(
    path: str | os.PathLike[str], policy: Policy, env: str = "", options: dict[str, Any] | None = None
) -> Path:
    """Write a policy, the environment's name and its options. The critic is left out.

    Raises:
        ExportError: the file cannot be written.
    """
    layers = policy.params["actor"]["layers"]
    shapes = [np.shape(layers[i]["kernel"]) for i in sorted(layers)]
    sizes = [shapes[0][0], *(shape[1] for shape in shapes)]
    header = {"format": _FORMAT, "env": env, "options": options or {}, "sizes": sizes, "squash": policy.squash}
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    return save_weights(path, {"header": text, **_arrays(policy)})


def load_policy(path: str | os.PathLike[str]) -> tuple[Policy, str, dict[str, Any]]:
    """A policy, the environment's name and its options.

    Raises:
        FphysError: the file is not one of :func:`save_policy`.
    """
    held = read_safetensors(path)
    try:
        header = json.loads(bytes(held["header"]))
        observation, *hidden, actions = header["sizes"]
        known = header["format"] == _FORMAT
    except (ValueError, KeyError) as cause:
        raise FphysError(f"{path} is not a policy of fphys: it has no header") from cause
    if not known:
        raise FphysError(f"{path} has format {header['format']}, this version reads {_FORMAT}")
    make = lambda rngs: nn.models.ActorCritic(observation, actions, hidden=hidden, rngs=rngs)  # noqa: E731
    module, params, _ = nn.init(make, jax.random.key(0))
    params = jax.tree.map(lambda x: x.astype(jnp.float32), params)
    bound = jnp.zeros(actions, held["low"].dtype)
    like = Policy(module, params, Moments.zero((observation,)), bound, bound, header["squash"])
    found = load_weights(path, {"header": held["header"], **_arrays(like)})
    policy = like.replace(
        params=params | found["params"], moments=Moments(**found["moments"]), low=found["low"], high=found["high"]
    )
    return policy, header["env"], header["options"]


def _arrays(policy: Policy) -> dict[str, Any]:
    """What a file holds of a policy."""
    moments = {name: getattr(policy.moments, name) for name in ("count", "mean", "var")}
    actor = {name: policy.params[name] for name in ("actor", "log_std")}
    return {"params": actor, "moments": moments, "low": policy.low, "high": policy.high}
