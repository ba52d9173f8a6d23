"""The video of an experiment: worlds side by side, in real time."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

import fphys
from fphys.render import Camera, Flex, Grains, Surface, frames
from fphys.runs import Run

FPS = 15.0  # pictures a second of the video, about
PAUSE = 1.0  # s, the last picture stays

STAGE = """
<mujoco>
  <statistic extent="2" center="0.3 0 0.3"/>
  <visual><headlight ambient="0.3 0.3 0.3" diffuse="0.2 0.2 0.2"/></visual>
  <asset>
    <texture type="skybox" builtin="gradient" rgb1="0.65 0.73 0.82" rgb2="0.89 0.91 0.94" width="64" height="384"/>
    <texture name="floor" builtin="checker" type="2d" width="64" height="64"
      rgb1="0.66 0.69 0.72" rgb2="0.74 0.77 0.8"/>
    <material name="floor" texture="floor" texrepeat="5 5" texuniform="true" specular="0.1"/>
  </asset>
  <worldbody>
    <light directional="true" pos="-0.6 -0.8 2" dir="0.4 0.4 -1" diffuse="0.6 0.6 0.6" specular="0.1 0.1 0.1"/>
    <geom type="plane" size="0 0 0.1" material="floor"/>
    {props}
  </worldbody>
</mujoco>
"""
"""A lit floor."""


def film(run: Run, model: fphys.Model, states: Any, worlds: int = 1, camera: str | Camera = "overview") -> None:
    """Show the first worlds of ``states`` side by side. The states are stacked on a leading time axis."""
    beside(run, [(model, states, world) for world in range(worlds)], camera)


def beside(run: Run, motions: Sequence[tuple[fphys.Model, Any, int]], camera: str | Camera = "overview") -> None:
    """Show several motions of equal length and time step: (model, states, world) of each."""
    timestep = float(motions[0][0].opt.timestep[0])
    every = max(round(1 / (FPS * timestep)), 1)
    fps = 1 / (every * timestep)

    def draw() -> np.ndarray:
        width = 640 if len(motions) == 1 else 400
        pictures = np.concatenate([frames(m, s, camera, 480, width, w, every) for m, s, w in motions], axis=2)
        return np.concatenate([pictures, np.repeat(pictures[-1:], round(PAUSE * fps), axis=0)])

    run.video(run.name, draw, fps)


def deforming(
    run: Run,
    flexes: Sequence[Flex | Surface | Grains],
    timestep: float,
    props: str = "",
    camera: Camera | None = None,
    height: int = 480,
    width: int = 640,
) -> np.ndarray | None:
    """Show deforming meshes and particles on a floor.

    Args:
        flexes: of world 0, after each step.
        timestep: between their times [s]; one above 1 / 60 s is that of the pictures.
        props: MJCF of what stands on the floor.
        height, width: of the pictures.

    Returns:
        The pictures, uint8 (time, height, width, 3); None where there is no OpenGL.
    """
    every = 1 if timestep > 1 / 60 else max(round(1 / (FPS * timestep)), 1)
    model = fphys.load(stage(props))
    states = jax.tree.map(lambda x: np.repeat(np.asarray(x)[None], len(flexes[0].x), 0), fphys.init(model, 1))
    return among(run, model, states, flexes, 1 / (every * timestep), camera, height, width, every)


def among(
    run: Run,
    model: fphys.Model,
    states: Any,
    flexes: Sequence[Flex | Surface | Grains],
    fps: float,
    camera: Camera | None = None,
    height: int = 480,
    width: int = 640,
    every: int = 1,
) -> np.ndarray | None:
    """Show bodies with the meshes and particles that they push. The first axis of ``states`` is time.

    Args:
        flexes: of world 0, at the same times.
        fps: pictures a second.
        every: how many times there are for each picture.
        height, width: of the pictures.

    Returns:
        The pictures, uint8 (time, height, width, 3); None where there is no OpenGL.
    """
    return compared(run, model, [(states, flexes)], fps, camera, height, width, every)


def compared(
    run: Run,
    model: fphys.Model,
    motions: Sequence[tuple[Any, Sequence[Flex | Surface | Grains]]],
    fps: float,
    camera: Camera | None = None,
    height: int = 480,
    width: int = 640,
    every: int = 1,
) -> np.ndarray | None:
    """As :func:`among`, with several motions side by side: states and flexes of each; ``width`` is of one."""
    shown: list[np.ndarray] = []

    def draw() -> np.ndarray:
        each = [frames(model, states, camera, height, width, every=every, flexes=f) for states, f in motions]
        shown.append(np.concatenate(each, axis=2))
        return np.concatenate([shown[0], np.repeat(shown[0][-1:], round(PAUSE * fps), axis=0)])

    run.video(run.name, draw, fps)
    return shown[0] if shown else None


def moments(steps: int, timestep: float) -> np.ndarray:
    """Numbers of the steps that a film shows, the last one among them; two at least."""
    every = max(round(1 / (FPS * timestep)), 1)
    return np.arange(steps - 1, -1, -min(every, max(steps - 1, 1)))[::-1]


def stage(props: str = "") -> str:
    """MJCF of a lit floor and what stands on it."""
    return STAGE.format(props=props)


def strip(pictures: np.ndarray | None, at: Sequence[float], plots: int = 1) -> tuple[Any, list[Any]]:
    """A matplotlib figure with pictures side by side above plots; without OpenGL there are only the plots.

    Args:
        at: when the pictures are, as fractions of the motion.

    Returns:
        The figure, and the plots' axes.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 5.6), layout="constrained")
    top, bottom = np.ravel(np.array(figure.subfigures(2, 1, height_ratios=(1.2, 1))))
    for place, when in zip(np.ravel(top.subplots(1, len(at))), at, strict=True):
        place.set_axis_off()
        if pictures is not None:
            place.imshow(pictures[round(when * (len(pictures) - 1))])
    axes = list(np.ravel(bottom.subplots(1, plots)))
    for place in axes:
        place.spines[["top", "right"]].set_visible(False)
    return figure, axes
