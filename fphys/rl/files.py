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
from .policy import Greedy, Policy

Array = jax.Array
_FORMAT = 1
_NETWORKS = {
    "ActorCritic": ("actor", "log_std"),
    "SoftActorCritic": ("actor",),
    "QNetwork": ("trunk", "value", "advantage"),
}
"""The networks of policies, and the parts of their parameters that act. A file without a name has the first."""

__all__ = ["load_policy", "save_policy", "trained"]


def save_policy(
    path: str | os.PathLike[str], policy: Policy | Greedy, env: str = "", options: dict[str, Any] | None = None
) -> Path:
    """Write a policy, the environment's name and its options. What only trains is left out.

    Raises:
        ExportError: the file cannot be written.
    """
    network = policy.module.type.__name__
    layers = policy.params[_NETWORKS[network][0]]["layers"]
    shapes = [np.shape(layers[i]["kernel"]) for i in sorted(layers)]
    hidden = [width for _, width in (shapes if isinstance(policy, Greedy) else shapes[:-1])]
    outputs = len(policy.actions if isinstance(policy, Greedy) else policy.low)
    header = {"format": _FORMAT, "env": env, "options": options or {}, "network": network}
    header |= {"sizes": [shapes[0][0], *hidden, outputs], "squash": getattr(policy, "squash", False)}
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    return save_weights(path, {"header": text, **_arrays(policy)})


def load_policy(path: str | os.PathLike[str]) -> tuple[Policy | Greedy, str, dict[str, Any]]:
    """A policy, the environment's name and its options.

    Raises:
        FphysError: the file is not one of :func:`save_policy`.
    """
    held = read_safetensors(path)
    try:
        header = json.loads(bytes(held["header"]))
        observation, *hidden, outputs = header["sizes"]
        network = header.get("network", "ActorCritic")
        known = header["format"] == _FORMAT and network in _NETWORKS
    except (ValueError, KeyError) as cause:
        raise FphysError(f"{path} is not a policy of fphys: it has no header") from cause
    if not known:
        raise FphysError(
            f"{path} has format {header['format']} and network {network}, this version reads {_FORMAT} and "
            f"{', '.join(_NETWORKS)}"
        )
    build = getattr(nn.models, network)
    module, params, _ = nn.init(lambda rngs: build(observation, outputs, hidden=hidden, rngs=rngs), jax.random.key(0))
    kind = next((x.dtype for name, x in held.items() if name.startswith("params.")), jnp.float32)
    params, moments = jax.tree.map(lambda x: x.astype(kind), params), Moments.zero((observation,))
    if network == "QNetwork":
        like = Greedy(module, params, moments, jnp.asarray(held["actions"]))
    else:
        bound = jnp.zeros(outputs, held["low"].dtype)
        like = Policy(module, params, moments, bound, bound, header["squash"])
    found = load_weights(path, {"header": held["header"], **_arrays(like)})
    found |= {"params": params | found["params"], "moments": Moments(**found["moments"])}
    return like.replace(**{k: v for k, v in found.items() if k != "header"}), header["env"], header["options"]


def _arrays(policy: Policy | Greedy) -> dict[str, Any]:
    """What a file holds of a policy."""
    params = {name: policy.params[name] for name in _NETWORKS[policy.module.type.__name__]}
    moments = {name: getattr(policy.moments, name) for name in ("count", "mean", "var")}
    own = ("actions",) if isinstance(policy, Greedy) else ("low", "high")
    return {"params": params, "moments": moments, **{name: getattr(policy, name) for name in own}}
