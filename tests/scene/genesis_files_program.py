"""What files say of joints, planes, weights and meshes, and what sensors say, natively and in Genesis, as JSON.

Run by ``test_genesis_files.py``: Genesis keeps state in the process.
"""

import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import trimesh

from fphys.scene import IMU, MJCF, ActionSpec, Contact, Mesh, ObservationSpec, Plane, Rays, Rigid, Scene, Sphere

ROD = '<geom type="capsule" size=".03" fromto="0 0 0 .3 0 0" contype="0" conaffinity="0"/>'
ARM = f"""<mujoco><compiler angle="radian"/><worldbody>
  <body name="l"><joint name="j" axis="0 1 0" ref="0.5" damping=".1" range="-2 1.2" stiffness="2" springref="0.5"/>{ROD}
  <body name="s" pos=".3 0 0"><joint name="slide" type="slide" ref="0.2" axis="0 1 0" damping="1"
  actuatorfrcrange="-1 5"/>{ROD}</body></body></worldbody></mujoco>"""
HELD = f'<mujoco><worldbody><body gravcomp=".75"><joint name="j" axis="0 1 0"/>{ROD}<body pos=".3 0 0" gravcomp=".75">'
HELD += f'<joint name="k" axis="0 1 0"/>{ROD}</body></body></worldbody></mujoco>'
FLOOR = '<mujoco><worldbody><geom type="plane" size="1 1 .1"/><body name="b" pos="6 0 1"><freejoint/>'
FLOOR += '<geom type="box" size=".1 .1 .1"/></body></worldbody></mujoco>'
STONE = '<mujoco><asset><mesh name="p" file="prism.obj"/></asset><worldbody><body><freejoint/>'
STONE += '<geom type="mesh" mesh="p"/></body></worldbody></mujoco>'
OUTLINE = [(0, 0), (1, 0), (1, 0.2), (0.2, 0.2), (0.2, 1), (0, 1)]
"""Of an L, whose hull is nearly twice as large."""
FELT = ObservationSpec("all", ("l", "s"), ("imu", "touch", "rays", "falls"))


def prism(path: Path) -> None:
    caps = [(0, 1, 2), (0, 2, 3), (0, 3, 4), (0, 4, 5)]
    faces = [tri[::-1] for tri in caps] + [tuple(i + 6 for i in tri) for tri in caps]
    for k in range(6):
        faces += [(k, (k + 1) % 6, (k + 1) % 6 + 6), (k, (k + 1) % 6 + 6, k + 6)]
    trimesh.Trimesh([(*at, z) for z in (0.0, 0.4) for at in OUTLINE], faces).export(path)


def scene() -> Scene:
    s = Scene(timestep=0.002)
    s.add(MJCF(FLOOR), name="floor")
    s.add(MJCF(ARM, pos=(0, -3, 2)), name="arm")
    s.add(MJCF(HELD, pos=(0, -6, 2)), name="held")
    s.add(Sphere(0.1, pos=(3, 0, 0.5)), name="ball")
    s.add_sensor(IMU("arm/l", pos=(0.1, 0.05, 0.02), quat=(1, 0.5, 0.2, 0)), name="imu")
    s.add_sensor(IMU("ball", pos=(0, 0.1, 0)), name="falls")
    s.add_sensor(Contact("ball"), name="touch")
    s.add_sensor(Rays(((0, 0, -1), (0, 0, 1)), origins=((0.8, 0.8, 1), (3, 2, 1))), name="rays")
    return s


def stones() -> Scene:
    """A prism that lies, and a ball that falls onto another, where only its hull is."""
    s = Scene(timestep=0.002)
    s.add(Plane())
    s.add(Mesh("parts/prism.obj", 0.3, pos=(0, 0, 0.001)), Rigid(density=500.0), name="prism")
    s.add(Mesh("parts/prism.obj", 1.0, pos=(-3, 0, 0.2), fixed=True), name="post")
    s.add(Sphere(0.06, pos=(-2.6, 0.4, 0.7)), name="notch")
    s.add(MJCF("parts/stone.xml", pos=(3, 0, 0.001)), name="of a file")
    s.add(Sphere(0.06, pos=(3.4, 0.4, 0.5)), name="upon it")
    s.add_sensor(Contact("prism"), name="weight")
    return s


def rest(scene: Scene, backend: str, steps: int, spec: ObservationSpec) -> list[float]:
    world = scene.build(1, backend=backend)
    step, state = jax.jit(world.step) if backend == "native" else world.step, world.init()
    for _ in range(steps):
        state = step(state)
    return np.asarray(world.observe(state, spec))[0].tolist()


def measure(backend: str) -> dict[str, Any]:
    world = scene().build(2, backend=backend, action=ActionSpec("position", ("arm/j", "arm/slide"), kp=30.0, kd=3.0))
    real = np.float64 if backend == "native" else np.float32
    step = jax.jit(world.step) if backend == "native" else world.step
    start = [{"arm/j": 1.0, "arm/slide": 0.3}.get(name, 0.4) for name in world.joints]

    def seen(state: Any, spec: ObservationSpec) -> list[float]:
        numbers = np.asarray(world.observe(state, spec))
        assert np.array_equal(numbers[0], numbers[1])
        return numbers[0].tolist()

    state = world.init(start)
    found = {"begun": seen(state, FELT)}
    swing = []
    for _ in range(100):
        state = step(state)
        swing.append(seen(state, FELT))
    found["swing"] = swing[9::10]
    for _ in range(500):
        state = step(state)
    found["ends"] = seen(state, ObservationSpec(links=("ball", "b")))
    state = world.init(start)
    found["begun again"] = seen(state, FELT)
    target = np.tile(np.array([[0.9, 0.1]], real), (2, 1))
    for _ in range(60):
        state = step(state, target)
    found["driven"] = seen(state, FELT)
    weightless = Scene()
    weightless.add(MJCF('<mujoco><option><flag gravity="disable"/></option></mujoco>'), name="options")
    weightless.add(Sphere(0.1, pos=(0, 0, 1)), name="ball")
    found["weightless"] = rest(weightless, backend, 20, ObservationSpec(links=("ball",)))
    found["stones"] = rest(
        stones(), backend, 400, ObservationSpec(links=("prism", "notch", "upon it"), sensors=("weight",))
    )
    return found | {"columns": world.columns(FELT)}


if __name__ == "__main__":
    Path("parts").mkdir()
    prism(Path("parts/prism.obj"))
    Path("parts/stone.xml").write_text(STONE)
    Path(sys.argv[1]).write_text(json.dumps({backend: measure(backend) for backend in ("native", "genesis")}))
