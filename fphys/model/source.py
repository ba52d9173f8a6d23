"""Where a model's leaves stand in a MuJoCo model."""

from typing import Any

import numpy as np

from .whitelist import LEAVES

_HELD = {"dynprm": 3, "gainprm": 9, "biasprm": 9}
"""How many of an actuator's ten parameters a leaf holds."""


def leaf_values(m: Any, path: str) -> np.ndarray:
    """The values of a leaf in a MuJoCo model, with the leaf's leading axis."""
    if path == "opt.softness":  # MuJoCo has none
        return np.zeros(1)
    group, _, name = path.rpartition(".")
    values = read_field(m, LEAVES[path])
    if group == "key":
        mocap = {"mocap_pos": (m.nkey, m.nmocap, 3), "mocap_quat": (m.nkey, m.nmocap, 4)}
        return values.reshape(mocap.get(name, values.shape))
    return held(name, values)[None]


def read_field(m: Any, name: str) -> np.ndarray:
    owner, _, bare = name.rpartition(".")
    return np.asarray(getattr(getattr(m, owner) if owner else m, bare))


def held(name: str, values: np.ndarray) -> np.ndarray:
    """Of an actuator's ten parameters, only those that a leaf holds."""
    return values[..., : _HELD[name]] if name in _HELD and values.ndim == 2 else values
