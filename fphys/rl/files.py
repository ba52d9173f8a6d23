"""Trained policies as files: one ``.npz`` of a few kilobytes, never pickled."""

import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import nn
from ..errors import FphysError
from .moments import Moments
from .policy import Policy

Array = jax.Array
_FORMAT = 1


def save_policy(
    path: str | os.PathLike[str], policy: Policy, env: str = "", options: dict[str, Any] | None = None
) -> Path:
    """Write a policy, the environment's name and its options. The critic is left out; weights are kept in float32."""
    weights = jax.tree_util.tree_leaves_with_path(
        {"actor": policy.params["actor"], "log_std": policy.params["log_std"]}
    )
    arrays = {f"params{jax.tree_util.keystr(name)}": np.asarray(value) for name, value in weights}
    layers = [np.shape(policy.params["actor"]["layers"][i]["kernel"]) for i in sorted(policy.params["actor"]["layers"])]
    sizes = [layers[0][0], *(shape[1] for shape in layers)]
    header = {"format": _FORMAT, "env": env, "options": options or {}, "sizes": sizes, "squash": policy.squash}
    moments = {"mean": policy.moments.mean, "var": policy.moments.var, "count": policy.moments.count}
    arrays |= {f"moments.{name}": np.asarray(value) for name, value in moments.items()}
    arrays |= {"header": np.array(json.dumps(header)), "low": np.asarray(policy.low), "high": np.asarray(policy.high)}
    path = Path(path)
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return path


def _name(path: Any) -> str:
    return f"params{jax.tree_util.keystr(path)}"


def load_policy(path: str | os.PathLike[str]) -> tuple[Policy, str, dict[str, Any]]:
    """A policy, the environment's name and its options.

    Raises:
        FphysError: the file is not one of :func:`save_policy`.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            held = dict(file)
        header = json.loads(str(held["header"]))
        observation, *hidden, actions = header["sizes"]
        wrong = header["format"] != _FORMAT
    except (OSError, ValueError, KeyError) as cause:
        raise FphysError(f"{path} is not a policy of fphys: {cause}") from cause
    if wrong:
        raise FphysError(f"{path} has format {header['format']}, this version reads {_FORMAT}")
    make = lambda rngs: nn.models.ActorCritic(observation, actions, hidden=hidden, rngs=rngs)  # noqa: E731
    module, params, _ = nn.init(make, jax.random.key(0))

    def kept(name: Any, value: Array) -> Array:
        return jnp.asarray(held.get(_name(name), np.asarray(value)), jnp.float32)

    params = jax.tree_util.tree_map_with_path(kept, params)
    moments = Moments(*(jnp.asarray(held[f"moments.{name}"], jnp.float32) for name in ("count", "mean", "var")))
    policy = Policy(module, params, moments, jnp.asarray(held["low"]), jnp.asarray(held["high"]), header["squash"])
    return policy, header["env"], header["options"]
