"""The video of an experiment: worlds side by side, in real time."""

from collections.abc import Sequence
from typing import Any

import numpy as np

import fphys
from fphys.render import Camera, frames
from fphys.runs import Run

FPS = 15.0  # pictures a second of the video, about
PAUSE = 1.0  # s, the last picture stays


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
