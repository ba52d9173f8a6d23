"""The masses and the joint friction of a robot are found from a recorded motion.

The unknowns are the mass of every moving body, with its inertia in proportion, and the viscous friction of every
joint. Least squares (`fphys.identify.least_squares`) fits them to short windows of the motion, then to long ones, with
derivatives through the simulator. To use your own data: `fphys run identify --recording motion.csv --model robot.xml`.
A recording is a CSV file with the columns time, ctrl*, qpos*, qvel* (`fphys.identify.read`). MuJoCo made the recording
that comes with fphys, with 1 % noise. Its true values are known (NAME.truth.json beside NAME.csv), so the search
begins 50 % off. Without such a file, the search begins at the model's own values.
"""

import dataclasses
import functools
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys.errors import ModelError
from fphys.identify import Estimate, Recording, RecordingError, Step, Windows
from fphys.model.assets import recording as bundled
from fphys.model.structure import JointType
from fphys.runs import Run

from .film import beside

Array = jax.Array
Put = Callable[[fphys.Model, Array], fphys.Model]
"""A model with other parameters, given as (world, P) values."""

BAR = 0.01  # of the true value
LEAST_DAMPING = 1e-3  # N m s/rad, to begin with where the model has none: the search is in logarithms


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0
    """Of which values begin too large and which too small, where the truth is known."""
    recording: str = "double-pendulum"
    """The motion to learn from: a CSV file, or the name of a recording that comes with fphys."""
    model: str = "double-pendulum"
    """The mechanism that moved: an MJCF or URDF file, or the name of a model that comes with fphys."""
    prediction: str | None = None
    """A motion to predict, not learnt from; double-pendulum-2 if the recording is fphys's own double-pendulum."""
    off: float = 0.5
    """How far from the truth the search begins, where the truth is known: 0.5 is 50 % off."""
    windows: tuple[float, ...] = (0.5, 6.0)
    """Lengths of the windows of each stage [s]; one longer than the recording takes it whole."""
    iterations: int = 12
    """Iterations of each stage."""


def main(config: Config, run: Run) -> dict[str, Any]:
    """Find the values; computed in float64."""
    with jax.enable_x64(True):
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    model = mechanism(config.model)
    motion = recorded(config.recording, model)
    truth = known(config.recording, model)
    first = guess(model) if truth is None else off(truth, config)
    reference = first if truth is None else truth
    names = parameter_names(model)

    begun = time.perf_counter()
    history = [first]
    step = dynamics(model, motion)
    for estimate, windows in stages(config, step, motion, run, first):
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

    other = prediction_of(config)
    shown = recorded(other, model) if other else motion
    before, after = predict(dynamics(model, shown), np.stack([first, found]), shown)
    kind = "predicted" if other else "fitted"
    metrics |= {
        f"{kind}_rms": rms(after, shown).tolist(),
        f"{kind}_rms_relative": float((rms(after, shown) / shown.x.std(0)).max()),
        f"{kind}_rms_before": rms(before, shown).tolist(),
    }
    run.save(
        parameters=np.stack(history), names=np.array(names), predicted=after, measured=shown.x, measured_time=shown.time
    )
    run.plot(
        "identify", figure(model, names, np.stack(history) / reference, truth is not None, shown, before, after, kind)
    )
    identified = with_parameters(model, jnp.asarray(found)[None])
    show(run, identified, [trajectory(model, shown, x) for x in (shown.x, before, after)])
    return metrics


def stages(
    config: Any, step: Step, motion: Recording, run: Run, first: np.ndarray
) -> Iterator[tuple[Estimate, Windows]]:
    """The estimate after every iteration, and the windows it is for: from short windows to long ones."""
    parameters = jnp.log(jnp.asarray(first))
    for seconds in config.windows:
        length = min(max(round(seconds / motion.interval), 2), len(motion.time) - 1)
        windows = fphys.identify.windows(*channels(motion), length, scale(motion))
        estimate = fphys.identify.estimate(step, windows, parameters)
        improve = jax.jit(functools.partial(fphys.identify.least_squares, step, windows))
        for _ in run.progress(config.iterations, f"windows of {length * motion.interval:.3g} s"):
            estimate = improve(estimate)
            yield estimate, windows
        parameters = estimate.parameters


def mechanism(source: str) -> fphys.Model:
    """A file's model, or one of ours; constraints that a recording in free motion does not show are left out."""
    model = fphys.load(source, disable=("contact", "limit", "equality", "frictionloss"))
    s = model.structure
    if s.nq != s.nv or s.na:
        raise ModelError(f"{source}: identify takes hinge and slide joints and actuators without activation")
    return model


def recorded(source: str, model: fphys.Model) -> Recording:
    """A file's recording, or one of ours."""
    s = model.structure
    return fphys.identify.read(recording_path(source), s.nu, s.nq, s.nv)


def recording_path(source: str) -> Path:
    return Path(source if Path(source).exists() or Path(source).suffix else bundled(source))


def prediction_of(config: Config) -> str | None:
    """The recording to predict."""
    ours = config.prediction is None and config.recording == Config.recording and config.model == Config.model
    return "double-pendulum-2" if ours else config.prediction


def moving(model: fphys.Model) -> np.ndarray:
    """Bodies that have a mass and are not fixed to the world, shape (n,)."""
    return np.flatnonzero((np.asarray(model.body.mass)[0] > 0) & (model.structure.body.weld > 0))


def parameter_names(model: fphys.Model) -> list[str]:
    """What is found, in order: ``mass/BODY`` [kg], then ``damping/JOINT`` [N m s/rad or N s/m]."""
    bodies = [model.names("body")[i] or str(i) for i in moving(model)]
    joints = [name or str(i) for i, name in enumerate(model.names("joint"))]
    return [*(f"mass/{name}" for name in bodies), *(f"damping/{name}" for name in joints)]


def guess(model: fphys.Model) -> np.ndarray:
    """The model's own values, shape (P,)."""
    damping = np.maximum(np.asarray(model.dof.damping[0]), LEAST_DAMPING)
    return np.concatenate([np.asarray(model.body.mass[0])[moving(model)], damping])


def off(truth: np.ndarray, config: Any) -> np.ndarray:
    """The truth, each value too large or too small by ``config.off``."""
    return truth * (1 + config.off * np.random.default_rng(config.seed).choice([-1.0, 1.0], len(truth)))


def known(source: str, model: fphys.Model) -> np.ndarray | None:
    """The true values from NAME.truth.json beside NAME.csv, shape (P,), if it is there."""
    return true_values(source, parameter_names(model), {"mass": "body.mass", "damping": "dof.damping"})


def true_values(source: str, names: Sequence[str], groups: Mapping[str, str]) -> np.ndarray | None:
    """The values of ``names`` (KIND/NAME), shape (P,), from the truth beside a recording, if it is there.

    ``groups`` says under which key of the file each kind is.
    """
    path = recording_path(source).with_suffix(".truth.json")
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as cause:
        raise RecordingError(f"{path}: not JSON: {cause}") from cause
    values = {
        f"{kind}/{name}": value for kind, group in groups.items() for name, value in content.get(group, {}).items()
    }
    missing = [name for name in names if name not in values]
    if missing:
        raise RecordingError(f"{path}: no {', '.join(missing)}; remove the file if the truth is not known")
    return np.array([values[name] for name in names])


def with_parameters(model: fphys.Model, values: Array) -> fphys.Model:
    """The model with masses, inertias and dampings of (world, P) values."""
    bodies = moving(model)
    masses = values[:, : len(bodies)]

    def put(leaf: Array, columns: Array) -> Array:
        return jnp.broadcast_to(leaf, (len(values), *leaf.shape[1:])).at[:, bodies].set(columns)

    inertia = model.body.inertia[:, bodies] * (masses / model.body.mass[:, bodies])[..., None]
    changes = {
        "body.mass": put(model.body.mass, masses),
        "body.inertia": put(model.body.inertia, inertia),
        "dof.damping": values[:, len(bodies) :],
    }
    return model.replace(changes, derived="frozen")  # derived constants serve constraints, and there are none


def dynamics(model: fphys.Model, motion: Recording, put: Put = with_parameters) -> Step:
    """One interval of the recording, as steps of the simulator; parameters are logarithms of what ``put`` takes."""
    timestep, nq = float(model.opt.timestep[0]), model.structure.nq
    count = round(motion.interval / timestep)
    if count < 1 or abs(motion.interval - count * timestep) > 0.01 * timestep:
        raise RecordingError(
            f"rows are {motion.interval:.6g} s apart, the model's time step is {timestep:g} s: "
            f'resample, or set <option timestep="{motion.interval:.6g}"/>, or a whole fraction of it'
        )

    def step(parameters: Array, x: Array, u: Array) -> Array:
        values = put(model, jnp.exp(parameters))
        state = fphys.init(model, len(x), qpos=x[:, :nq], qvel=x[:, nq:])
        state, _ = fphys.scan(lambda s, _: (fphys.step(values, s, u), None), state, jnp.arange(count))
        return jnp.concatenate([state.qpos, state.qvel], 1)

    return step


def channels(motion: Recording) -> tuple[Array, Array]:
    """Controls (rows, nu) and measured states (rows, nq + nv)."""
    return jnp.asarray(motion.ctrl), jnp.asarray(motion.x)


def scale(motion: Recording) -> Array:
    """The spread of each channel, which its noise is taken to be proportional to, shape (nq + nv,)."""
    spread = motion.x.std(0)
    return jnp.asarray(np.where(spread > 0, spread, 1.0))


def predict(step: Step, values: np.ndarray, motion: Recording) -> np.ndarray:
    """The whole motion from its first row as measured, with each row of values (n, P): shape (n, rows, nq + nv)."""
    u, y = channels(motion)
    simulate = functools.partial(fphys.identify.simulate, step)
    start, u = jnp.repeat(y[:1], len(values), axis=0), jnp.repeat(u[:-1, None], len(values), axis=1)
    return np.moveaxis(jax.jit(simulate)(jnp.log(jnp.asarray(values)), start, u), 1, 0)


def rms(x: np.ndarray, motion: Recording) -> np.ndarray:
    """Root mean square difference from the recording of each channel, shape (nq + nv,)."""
    return np.sqrt(((x - motion.x) ** 2).mean(0))


def trajectory(model: fphys.Model, motion: Recording, x: np.ndarray) -> fphys.State:
    """The states of one world that moves as x (rows, nq + nv), one for each of the model's time steps."""
    rows = np.repeat(np.arange(len(x)), round(motion.interval / float(model.opt.timestep[0])))
    state, nq = fphys.init(model, 1), model.structure.nq
    states = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], len(rows), axis=0), state)
    return states.replace(qpos=x[rows][:, None, :nq], qvel=x[rows][:, None, nq:])


def show(run: Run, model: fphys.Model, motions: Sequence[fphys.State]) -> None:
    """Film the motions side by side, and save them as worlds."""
    states = jax.tree.map(lambda *leaves: np.concatenate(leaves, 1), *motions)
    run.motion(float(model.opt.timestep[0]) * np.arange(len(states.qpos)), model, states)
    beside(run, [(model, each, 0) for each in motions])


def figure(
    model: fphys.Model,
    names: list[str],
    relative: np.ndarray,
    truth_known: bool,
    motion: Recording,
    before: np.ndarray,
    after: np.ndarray,
    kind: str,
    bar: float = BAR,
) -> Any:
    """Parameters by iteration, and the motion of the first two coordinates."""
    from matplotlib.figure import Figure

    page = Figure(figsize=(10.0, 4.8), layout="constrained")
    grid = page.add_gridspec(2, 2, width_ratios=(1.0, 1.35))
    left = page.add_subplot(grid[:, 0])
    colors = ["#2a6db5", "#ec6a29", "#3a9d6e", "#8a5fb0", "#c23b4b", "#6b7280"]
    for j, name in enumerate(names):
        left.plot(relative[:, j], color=colors[j % 6], marker="o", markersize=3, linewidth=1.3, label=name)
    if truth_known:
        left.axhspan(1 - bar, 1 + bar, color="#3a9d6e", alpha=0.25, linewidth=0)
    left.set(ylabel=f"found / {'true' if truth_known else 'begun with'} [-]", xlabel="iteration")
    left.legend(frameon=False, fontsize=9)
    panels, unit = [left], ["m" if joint == JointType.SLIDE else "rad" for joint in model.structure.joint.type]
    for j in range(min(motion.qpos.shape[1], 2)):
        axes = page.add_subplot(grid[j, 1], sharex=panels[1] if j else None)
        axes.plot(motion.time, motion.x[:, j], color="#6b7280", linewidth=4.0, alpha=0.45, label="recorded")
        axes.plot(motion.time, before[:, j], color="#ec6a29", linewidth=1.0, linestyle="--", label="begun with")
        axes.plot(motion.time, after[:, j], color="#2a6db5", linewidth=1.4, label=kind)
        axes.set(ylabel=f"qpos{j} [{unit[j]}]", xlim=(motion.time[0], motion.time[-1]))
        low, high = motion.x[:, j].min(), motion.x[:, j].max()
        axes.set_ylim(low - 0.35 * (high - low), high + 0.35 * (high - low))
        panels.append(axes)
    panels[1].set_title("the motion that was " + ("not learnt from" if kind == "predicted" else "learnt from"))
    panels[1].legend(frameon=False, fontsize=9, ncols=3, loc="upper right")
    panels[-1].set_xlabel("time [s]")
    for axes in panels:
        axes.grid(True, alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    return page
