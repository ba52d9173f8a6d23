"""The friction and the restitution of a contact are found from a recorded slide and bounce.

A puck is thrown, bounces five times and slides to rest. The unknowns are two numbers of every contact that the model
names (`<pair>`). The first is the sliding friction. The second is the second number of its solref: the damping [1/s]
if solref is (-stiffness, -damping), which sets the restitution, otherwise the damping ratio. The stiffness stays as
the model has it. To use your own data: `fphys run identify-contact --recording throw.csv --model scene.xml`.

The method is that of `fphys run identify`. Here the derivatives go through every bounce. MuJoCo made the recording
that comes with fphys, with 1 % noise. Its true values are known, so the search begins 30 % off.
"""

import dataclasses
import functools
import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys.errors import ModelError
from fphys.runs import Run

from . import identify

Array = jax.Array

BAR = 0.02  # of the true value


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0
    """Of which values begin too large and which too small, where the truth is known."""
    recording: str = "puck"
    """The motion to learn from: a CSV file, or the name of a recording that comes with fphys."""
    model: str = "puck"
    """What moved: an MJCF file whose contacts are named pairs, or the name of a model that comes with fphys."""
    prediction: str | None = None
    """A motion to predict, not learnt from; puck-2 if the recording is fphys's own puck."""
    off: float = 0.3
    """How far from the truth the search begins, where the truth is known: 0.3 is 30 % off."""
    windows: tuple[float, ...] = (0.2, 1.0)
    """Lengths of the windows of each stage [s]; one longer than the recording takes it whole."""
    iterations: int = 10
    """Iterations of each stage."""


def main(config: Config, run: Run) -> dict[str, Any]:
    """Find the values; computed in float64."""
    with jax.enable_x64(True):
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    model = scene(config.model)
    motion = identify.recorded(config.recording, model)
    names = parameter_names(model)
    truth = identify.true_values(config.recording, names, {"friction": "pair.friction", "damping": "pair.damping"})
    first = guess(model) if truth is None else identify.off(truth, config)
    reference = first if truth is None else truth
    step = identify.dynamics(model, motion, with_parameters)

    begun = time.perf_counter()
    history = [first]
    for estimate, windows in identify.stages(config, step, motion, run, first):
        history.append(np.exp(np.asarray(estimate.parameters)))
        relative = dict(zip(names, history[-1] / reference, strict=True))
        run.log(len(history) - 1, residual=math.sqrt(estimate.cost / windows.y.size), **relative)
    found = history[-1]
    metrics: dict[str, Any] = {
        "found": dict(zip(names, found.tolist(), strict=True)),
        "began": dict(zip(names, first.tolist(), strict=True)),
    }
    if len(history) > 1:
        deviation = jax.jit(functools.partial(fphys.identify.deviations, step))(windows, estimate)
        metrics["standard_deviation"] = dict(zip(names, np.asarray(deviation).tolist(), strict=True))
    metrics["search_seconds"] = round(time.perf_counter() - begun, 2)
    if truth is not None:
        error = np.abs(found / truth - 1)
        metrics |= {
            "success": bool((error < BAR).all()),
            "error": dict(zip(names, error.tolist(), strict=True)),
            "worst_error": float(error.max()),
        }

    ours = (config.recording, config.model) == (Config.recording, Config.model)
    other = config.prediction or ("puck-2" if ours else None)
    shown = identify.recorded(other, model) if other else motion
    kind = "predicted" if other else "fitted"
    candidates = np.stack([first, found] if truth is None else [first, found, truth])
    paths = identify.predict(identify.dynamics(model, shown, with_parameters), candidates, shown)
    for name, path in zip(("_before", "", "_by_truth"), paths):
        metrics[f"{kind}_rms_relative{name}"] = float((identify.rms(path, shown) / identify.scale(shown)).max())
    before, after = paths[:2]
    run.save(
        parameters=np.stack(history), names=np.array(names), predicted=after, measured=shown.x, measured_time=shown.time
    )
    relative = np.stack(history) / reference
    run.plot(
        "identify-contact", identify.figure(model, names, relative, truth is not None, shown, before, after, kind, BAR)
    )
    identify.show(run, model, [identify.trajectory(model, shown, x) for x in (shown.x, before, after)])
    return metrics


def scene(source: str) -> fphys.Model:
    """A file's model, or one of ours, with contacts whose parameters can be found."""
    model = fphys.load(source)
    s = model.structure
    if s.nq != s.nv or s.na:
        raise ModelError(f"{source}: identify-contact takes hinge and slide joints, and actuators without activation")
    if not parameter_names(model):
        raise ModelError(
            f"{source}: names no contact: list those to identify as <contact><pair geom1=... geom2=...></contact>"
        )
    return model


def parameter_names(model: fphys.Model) -> list[str]:
    """What is found, in order: ``friction/PAIR`` [-], then ``damping/PAIR`` [1/s, or a ratio]."""
    m = model.structure.source
    pairs = [m.pair(i).name or str(i) for i in range(m.npair)]
    return [f"{kind}/{name}" for kind in ("friction", "damping") for name in pairs]


def guess(model: fphys.Model) -> np.ndarray:
    """The model's own values, shape (P,)."""
    return np.abs(np.concatenate([model.pair.friction[0, :, 0], model.pair.solref[0, :, 1]]))


def with_parameters(model: fphys.Model, values: Array) -> fphys.Model:
    """The model with sliding frictions and contact dampings of (world, P) values."""
    count = values.shape[1] // 2

    def worlds(leaf: Array) -> Array:
        return jnp.broadcast_to(leaf, (len(values), *leaf.shape[1:]))

    friction = worlds(model.pair.friction).at[:, :, :2].set(values[:, :count, None])
    damping = jnp.copysign(values[:, count:], model.pair.solref[:, :, 1])
    solref = worlds(model.pair.solref).at[:, :, 1].set(damping)
    return model.replace({"pair.friction": friction, "pair.solref": solref})
