"""Checks of the arguments of public functions: invalid ones are refused on the host, before anything runs."""

import operator
from typing import Any

import jax
import jax.core
import numpy as np

from .model import Model, world_counts
from .state import State

_STACKED = "; a rollout's states have a time axis first: take one time, or jax.vmap over it"

_MAPPED = "; under jax.vmap over worlds, leave the vmap away: every function takes all worlds at once"
_FOLLOWING = ("opt.meaninertia", "invweight0", "tendon.length", "actuator.acc0")
"""Leaves derived from others; an error names one of the others instead."""


def expect_model(model: Any) -> None:
    """Raise TypeError unless this is a model."""
    _expect_type("model", model, Model, "as fphys.load returns it")


def expect(model: Any, state: Any) -> None:
    """Raise TypeError unless these are a model and a state, ValueError unless the state belongs to the model."""
    expect_model(model)
    _expect_type("state", state, State, "as fphys.init returns it")
    s, real = model.structure, model.qpos0.dtype
    for name, axes, size in (
        ("qpos", "nq", (s.nq,)),
        ("qvel", "nv", (s.nv,)),
        ("act", "na", (s.na,)),
        ("time", "", ()),
        ("status", "", ()),
        ("warmstart", "nv", (s.nv,)),
        ("mocap_pos", "nmocap, 3", (s.nmocap, 3)),
        ("mocap_quat", "nmocap, 4", (s.nmocap, 4)),
    ):
        value = getattr(state, name)
        worlds = np.shape(state.qpos)[:1] if name != "qpos" else np.shape(value)[:1] if np.ndim(value) > 1 else (1,)
        why = _STACKED if np.ndim(value) == 2 + len(size) else _MAPPED if np.ndim(value) == len(size) else ""
        expect_array(f"state.{name}", value, (*worlds, *size), axes, why)
    if state.qpos.dtype != real:
        raise TypeError(
            f"the model is {real} and the state is {state.qpos.dtype}: one call runs in one precision; "
            f"load the model with dtype={state.qpos.dtype.name!r} or make the state with fphys.init(model, ...)"
        )
    worlds = state.qpos.shape[0]
    others = {name: count for name, count in world_counts(model).items() if count not in (1, worlds)}
    if others:
        name = min(others, key=lambda name: any(part in name for part in _FOLLOWING))
        raise ValueError(
            f"model.{name} has {others[name]} worlds, the state has {worlds}: a leaf has one row for all worlds, "
            "or one for each"
        )
    if state.qvel.dtype != real:
        raise TypeError(f"state.qvel is {state.qvel.dtype}, the state is {real}: cast it, for nothing is cast silently")


def expect_array(name: str, value: Any, shape: tuple[int, ...], axes: str, why: str = "") -> None:
    """Raise unless the value is an array of this shape; ``axes`` names the axes after the world axis."""
    needs = f"(num_worlds, {axes})" if axes else "(num_worlds,)"
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise TypeError(f"{name} is {_described(value)}, must be an array of shape {needs} = {shape}")
    if tuple(value.shape) != shape:
        raise ValueError(
            f"{name} has shape {tuple(value.shape)}, the model needs {needs} = {shape}: axis 0 is the world axis{why}"
        )


def whole_number(name: str, value: Any) -> int:
    """The value as an int; TypeError if it is not one, or is traced."""
    if isinstance(value, jax.core.Tracer):
        raise TypeError(f"{name} is traced, must be known when the function is compiled: mark it static under jit")
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {_described(value)}, must be a whole number") from None


def _expect_type(name: str, value: Any, kind: type, origin: str) -> None:
    if not isinstance(value, kind):
        swapped = "; the order is (model, state, ...)" if isinstance(value, Model | State) else ""
        raise TypeError(f"{name} is {_described(value)}, must be a fphys.{kind.__name__}, {origin}{swapped}")


def _described(value: Any) -> str:
    if isinstance(value, bool | int | float | str):
        return repr(value)[:80]
    return "None" if value is None else f"of type {type(value).__name__}"
