"""Five scenes on several engines, for ``docs/engines.md``.

``python -m tests.scene.engines [native genesis physx]`` writes ``docs/engines.png`` and prints the table. With Genesis
it takes minutes.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fphys
from fphys.scene import MJCF, ActionSpec, Box, Plane, Rigid, Scene, Sphere, compare
from fphys.scene.compare import Comparison
from fphys.scene.scene import BACKENDS

PICTURE = Path(__file__).parents[2] / "docs" / "engines.png"
HOME = (0.0, -0.7854, 0.0, -2.3562, 0.0, 1.5708, 0.7854)
PENDULUM = """<mujoco><worldbody><body name="rod" pos="0 0 1"><joint name="pivot" axis="0 1 0"/>
  <geom type="capsule" fromto="0 0 0 0 0 -.5" size="0.02" mass="1" contype="0" conaffinity="0"/></body></worldbody>
</mujoco>"""


def fall(**given: Any) -> Comparison:
    """A ball falls a metre onto the ground and stays."""
    scene = Scene(timestep=0.002)
    scene.add(Plane())
    scene.add(Sphere(0.1, pos=(0.0, 0.0, 1.1)), name="ball")
    return compare(scene, steps=500, **given)


def pendulum(**given: Any) -> Comparison:
    """A rod swings from the horizontal, without friction, for four seconds."""
    scene = Scene(timestep=0.002)
    scene.add(MJCF(PENDULUM), name="p")
    return compare(scene, steps=2000, positions=(np.pi / 2,), **given)


def slope(**given: Any) -> Comparison:
    """A box of friction 0.5 on a slope of tan 0.6, a little steeper than it can hold."""
    angle = np.arctan(0.6)
    tilted, up = (np.cos(angle / 2), 0.0, np.sin(angle / 2), 0.0), np.array([np.sin(angle), 0.0, np.cos(angle)])
    scene = Scene(timestep=0.002)
    scene.add(Plane(quat=tilted), Rigid(friction=0.5))
    scene.add(Box((0.4, 0.4, 0.2), pos=tuple(0.1 * up), quat=tilted), Rigid(friction=0.5), name="box")
    return compare(scene, steps=500, **given)


def franka(**given: Any) -> Comparison:
    """A Franka follows sines of 0.3 rad about its home by a PD law."""
    scene = Scene(timestep=0.002)
    scene.add(MJCF(fphys.asset("franka")), name="franka")
    t = 0.002 * np.arange(1000)[:, None]
    target = np.array(HOME) + 0.3 * np.sin(2 * np.pi * t * np.linspace(0.5, 1.0, 7))
    return compare(scene, target, positions=HOME, action=ActionSpec("position", kp=1500.0, kd=100.0), **given)


def ant(**given: Any) -> Comparison:
    """An ant falls onto its feet, and all engines turn its legs with the same torques."""
    scene = Scene(timestep=0.002)
    scene.add(MJCF(fphys.asset("ant")), name="ant")
    world = scene.build(1)
    t = 0.002 * np.arange(750)[:, None]
    torque = 3 * np.sin(2 * np.pi * 2 * t + np.arange(len(world.joints)))
    start = [np.mean(world.model.joint.range[0, world.model.id("joint", name)]) for name in world.joints]
    return compare(scene, torque, positions=start, **given)


SCENES: dict[str, Callable[..., Comparison]] = {
    "fall": fall,
    "pendulum": pendulum,
    "slope": slope,
    "franka": franka,
    "ant": ant,
}


def row(name: str, found: Comparison) -> list[str]:
    """Rows of the table: differences from the native engine, and the time of a step."""
    native = found.motions["native"]
    lines = [f"| {name} | native | | | | | {1e3 * native.seconds:.2g} |"]
    for other, motion in found.motions.items():
        if other != "native":
            gaps = found.difference(other)
            cells = [f"{gaps[key]:.2g}" for key in ("positions", "links", "energy", "impulse")]
            lines.append(f"| | {other} | {' | '.join(cells)} | {1e3 * motion.seconds:.2g} |")
    return lines


def main() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    strips = []
    for name, scene in SCENES.items():
        found = scene(backends=tuple(sys.argv[1:]) or BACKENDS)
        print("\n".join(row(name, found)), flush=True)
        for other, why in found.absent.items():
            print(f"<!-- {name}: {other} is absent: {why} -->")
        figure = found.figure()
        figure.suptitle(name, x=0.01, ha="left")
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        strips.append(np.asarray(canvas.buffer_rgba())[..., :3])
    Image.fromarray(np.concatenate(strips)).quantize(64).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
