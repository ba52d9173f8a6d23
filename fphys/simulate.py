"""``fphys simulate``: simulate any model that loads, without writing code."""

import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .errors import MissingDependencyError, ModelError

FPS = 30.0
LAPSE = 12
"""Number of images in the video of an interrupted simulation, few enough to draw within a second."""


@dataclasses.dataclass(frozen=True)
class Summary:
    """Result of a simulation."""

    steps: int  # Steps taken by each world.
    worlds: int
    simulated: float  # Simulated time [s].
    seconds: float  # Wall time of the steps, excluding compilation [s].
    compiling: float  # Wall time of compiling and loading [s].
    energy: tuple[float, float]  # Total energy of world 0 at the start and at the end [J].
    video: Path | None
    interrupted: bool

    def __str__(self) -> str:
        seconds = max(self.seconds, 1e-9)
        rate, speed = self.steps * self.worlds / seconds, self.simulated * self.worlds / seconds
        start, end = self.energy
        all_, first = (" of all worlds", " (world 0)") if self.worlds > 1 else ("", "")
        lines = [
            f"{self.steps} steps of {self.worlds} world{'s' * (self.worlds > 1)}: {self.simulated:.3f} s simulated"
            + (", then interrupted" if self.interrupted else ""),
            f"  wall time  {self.seconds:.3f} s, and {self.compiling:.2f} s to compile and load",
            f"  speed      {rate:,.0f} steps/s{all_}, {speed:,.1f} x real time",
            f"  energy     {start:.6g} J -> {end:.6g} J, changed by {end - start:+.3g} J{first}",
        ]
        lapse = ", a time lapse: the simulation was interrupted" if self.interrupted else ""
        return "\n".join([*lines, f"  video      {self.video}{lapse}"] if self.video else lines)


def simulate(
    source: str,
    steps: int,
    out: Path | None = None,
    worlds: int = 1,
    ctrl: Literal["zero", "random", "keyframe"] = "zero",
    disable: Sequence[str] = (),
    keyframe: str | None = None,
    camera: str | None = None,
    seed: int = 0,
) -> Summary:
    """Simulate a model, given by its path or an asset's name, and record a video of its first world.

    ``ctrl`` holds the actuators at zero, at the keyframe's control, or at random values, drawn again for each
    image of the video, uniformly from the actuators' ranges.
    """
    import jax

    import fphys
    from fphys.bridge import interruptible

    if steps < 1 or worlds < 1:
        raise ModelError(f"{steps} steps of {worlds} worlds: both must be at least 1")
    if out is not None and out.suffix != ".mp4":
        raise ModelError(f"--out {out}: a video's name must end in .mp4")
    model = fphys.load(source, disable=disable)
    if camera is not None and camera not in model.structure.names["camera"]:
        raise ModelError(f"no camera {camera!r}; the model has {list(model.structure.names['camera']) or 'none'}")
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)  # so that an error appears now, not after the steps
    timestep = float(model.opt.timestep[0])
    every = min(max(round(1 / (FPS * timestep)), 1), steps)  # steps per image

    @jax.jit
    def advance(state: Any, control: Any) -> Any:
        ctrls = jax.numpy.broadcast_to(control, (every, *control.shape))
        return jax.tree.map(lambda x: x[-1], fphys.rollout(model, state, ctrls))

    step = jax.jit(lambda state, control: fphys.step(model, state, control))
    state = start = _initial(model, worlds, keyframe)
    controls = _controls(model, worlds, ctrl, keyframe, seed)
    begun = time.perf_counter()
    jax.block_until_ready([advance(state, controls(0)), step(state, controls(0)) if steps % every else None])
    compiling = time.perf_counter() - begun

    film, done, interrupted, energy = [_first_world(state)], 0, False, _energy(model)
    at_start = float(energy(start))
    begun = time.perf_counter()
    try:
        with _bar(steps) as bar, interruptible():
            while done < steps:
                block = every if steps - done >= every else 1
                state = jax.block_until_ready((advance if block == every else step)(state, controls(done // every)))
                done += block
                bar.update(block)
                if done % every == 0:
                    film.append(_first_world(state))
    except KeyboardInterrupt:
        interrupted = True
    seconds = time.perf_counter() - begun

    if interrupted:
        film = [film[i] for i in np.unique(np.linspace(0, len(film) - 1, LAPSE).round().astype(int))]
    summary = Summary(
        steps=done,
        worlds=worlds,
        simulated=done * timestep,
        seconds=seconds,
        compiling=compiling,
        energy=(at_start, float(energy(state))),
        video=_film(model, film, out, camera, LAPSE / 2.0 if interrupted else 1 / (every * timestep)) if out else None,
        interrupted=interrupted,
    )
    print(summary, flush=True)
    fphys.check(state)
    if done and np.array_equal(start.qpos, state.qpos) and ctrl != "random":
        keys = "".join(f", or --keyframe {name}" for name in _keys(model)[:1] if name != keyframe)
        print(f"  nothing moved: it is in equilibrium; try --ctrl random{keys}", flush=True)
    return summary


def _initial(model: Any, worlds: int, keyframe: str | None) -> Any:
    """The state at a keyframe, or at the model's reference position."""
    import jax.numpy as jnp

    import fphys

    state = fphys.init(model, worlds)
    if keyframe is None:
        return state
    key = _key(model, keyframe)
    names = ("qpos", "qvel", "act", "mocap_pos", "mocap_quat")
    start = {name: jnp.broadcast_to(getattr(model.key, name)[key], getattr(state, name).shape) for name in names}
    return dataclasses.replace(state, **start)


def _key(model: Any, keyframe: str | None) -> int:
    """The number of a keyframe, given by its name or number."""
    names = _keys(model)
    if keyframe in names:
        return names.index(keyframe)
    if keyframe in (numbers := [str(i) for i in range(len(names))]):
        return numbers.index(keyframe)
    raise ModelError(f"no keyframe {keyframe!r}; the model has {names or 'none'}")


def _keys(model: Any) -> list[str]:
    """The names of the model's keyframes, or their numbers where they have none."""
    return [name or str(i) for i, name in enumerate(model.structure.names["key"])]


def _controls(model: Any, worlds: int, kind: str, keyframe: str | None, seed: int) -> Any:
    """The control held during one image, as a function of the image's number: shape (world, nu)."""
    import jax.numpy as jnp

    shape, dtype = (worlds, model.structure.nu), model.qpos0.dtype
    if kind == "random":
        limits = np.asarray(model.actuator.ctrlrange[0])
        limited = model.structure.actuator.ctrllimited[:, None]
        low, high = np.where(limited, limits, [-1.0, 1.0]).T
        return lambda k: jnp.asarray(np.random.default_rng((seed, k)).uniform(low, high, shape), dtype)
    if kind == "keyframe":
        if keyframe is None:
            raise ModelError("--ctrl keyframe needs --keyframe NAME")
        constant = jnp.broadcast_to(model.key.ctrl[_key(model, keyframe)], shape)
    else:
        constant = jnp.zeros(shape, dtype)
    return lambda k: constant


def _energy(model: Any) -> Any:
    """Total energy of world 0 [J], as a function of the state."""
    import jax

    import fphys

    return jax.jit(lambda state: sum(part[0] for part in fphys.energy(model, state)))


def _first_world(state: Any) -> Any:
    import jax

    return jax.tree.map(lambda x: np.asarray(x[:1]), state)


def _film(model: Any, states: list[Any], out: Path, camera: str | None, fps: float) -> Path | None:
    import jax

    from .render import frames, write_video

    try:
        return write_video(out, frames(model, jax.tree.map(lambda *x: np.stack(x), *states), camera), fps)
    except MissingDependencyError as cause:
        print(f"no video: {cause}", file=sys.stderr)
    except KeyboardInterrupt:  # a second Ctrl-C: the simulation is over, and its summary is still printed
        print("no video: interrupted", file=sys.stderr)
    return None


def _bar(steps: int) -> Any:
    import tqdm

    return tqdm.tqdm(total=steps, desc="simulate", unit="step", unit_scale=True, dynamic_ncols=True)
