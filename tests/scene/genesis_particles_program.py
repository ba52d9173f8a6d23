"""What is measured of particles in the back end of Genesis, in one process, written as JSON to a file.

Run by ``test_genesis_particles.py``; the native back end runs the same scenes.
"""

import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

import fphys
from fphys.particles.materials import Corotated, Liquid, NeoHookean, Sand, Snow, VonMises
from fphys.scene import MPM, SPH, Box, Camera, Domain, ObservationSpec, Rigid, Scene, Sphere, Surface

LAWS = {
    "corotated": Corotated(1000.0, 2e4, 0.3),
    "neohookean": NeoHookean(1000.0, 2e4, 0.3),
    "liquid": Liquid(1000.0, 2e4),
    "snow": Snow(400.0, 2e4),
    "sand": Sand(1600.0, 2e4),
    "clay": VonMises(1500.0, 2e4, 0.3, 1e3),
}
ROOM = Domain((0.0, 0.0, 0.0), (2.4, 0.8, 0.8), spacing=0.05)
BALL = ObservationSpec(links=("ball",))


def solids() -> fphys.Scene:
    """A cube of each law falls beside the others, and a ball onto the first."""
    scene = Scene(timestep=0.002, domain=ROOM)
    for i, (name, law) in enumerate(LAWS.items()):
        scene.add(Box((0.2, 0.2, 0.2), pos=(0.2 + 0.4 * i, 0.4, 0.3)), MPM(law), name=name)
    scene.add(Sphere(0.1, pos=(0.2, 0.4, 0.55)), Rigid(mass=1.0), name="ball")
    return scene


def water(tank: bool = True) -> fphys.Scene:
    """A block of water falls into a tank, or one of its own width that stands."""
    scene = Scene(timestep=0.002, domain=Domain((0.0, 0.0, 0.0), (0.8, 0.4, 0.8), spacing=0.05))
    scene.add(Box((0.8, 0.4, 0.3), pos=(0.4, 0.2, 0.25 if tank else 0.15)), SPH(15.0, viscosity=1.0), name="water")
    return scene


def run(world: Any, state: Any, steps: int) -> Any:
    if isinstance(world, fphys.scene.native.World):
        return jax.jit(lambda s: jax.lax.fori_loop(0, steps, lambda _, s: world.step(s), s))(state)
    for _ in range(steps):
        state = world.step(state)
    return state


def heights(world: Any, state: Any, names: Any) -> list[float]:
    """Mean height of each thing of particles, in world 1."""
    return [float(np.asarray(world.particles(state, name))[1, :, 2].mean()) for name in names]


def pictured() -> int:
    """How many pixels of 320 x 240 a blue cube of water covers, whose face is 2 m away."""
    scene = Scene(timestep=0.002, domain=Domain((0.0, 0.0, 0.0), (0.8, 0.4, 0.8), spacing=0.05))
    scene.add(Box((0.4, 0.4, 0.4), pos=(0.4, 0.2, 0.4)), SPH(15.0), Surface((0.0, 0.0, 1.0)), name="water")
    scene.add_sensor(Camera((0.4, -2.0, 0.4), (0.4, 0.0, 0.4), fov=30.0, width=320, height=240), name="camera")
    world = scene.build(2, backend="genesis")
    image = world.render(world.init(), "camera").astype(int)
    np.save("water.npy", image.astype(np.uint8))
    return int(((image[..., 2] > 60) & (image[..., 0] < image[..., 2] // 2)).sum())


def measure() -> dict[str, Any]:
    found: dict[str, Any] = {"pixels": pictured()}
    for backend in ("native", "genesis"):
        scene = solids()
        if backend == "native":  # whose balls are not pushed: it is left out
            scene.parts = [part for part in scene.parts if part.name != "ball"]
        world = scene.build(2, backend=backend)
        state = world.init()
        start = np.asarray(world.particles(state, "sand"))
        falling = run(world, state, 50)
        found[f"fallen {backend}"] = heights(world, falling, LAWS)
        state = run(world, falling, 450)
        world.check(state)
        found[f"rest {backend}"] = heights(world, state, LAWS)
        found[f"start {backend}"] = start[1].tolist()
        if backend == "genesis":
            ball = np.asarray(world.observe(state, BALL))
            found["ball"] = [float(ball[1, 2]), float(np.asarray(world.particles(state, "corotated"))[1, :, 2].max())]
            state = world.init()
            found["again"] = float(np.abs(np.asarray(world.particles(state, "sand")) - start).max())
        world = water().build(2, backend=backend)
        state = run(world, world.init(), 600)
        world.check(state)
        x = np.asarray(world.particles(state, "water"))[1]
        found[f"water {backend}"] = [float(x[:, 2].mean()), *x.min(0).tolist(), *x.max(0).tolist()]
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(measure()))
