"""What is measured of the back end of Genesis, in one process and with one build; written as JSON to a file.

Run by ``test_genesis.py``: Genesis keeps state in the process, and its kernels take minutes to compile the first time.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

import fphys
from fphys.errors import StateError
from fphys.scene import (
    IMU,
    MJCF,
    URDF,
    ActionSpec,
    Box,
    Camera,
    Capsule,
    Contact,
    Cylinder,
    JointState,
    Mesh,
    ObservationSpec,
    Plane,
    Rays,
    Rigid,
    Scene,
    Sphere,
    Surface,
    Terrain,
)

sys.path.insert(0, str(Path(__file__).parent))
from things import ARM

WORLDS = 16
MASS = tuple(np.linspace(4.0, 10.0, WORLDS).tolist())
FRICTION = tuple(np.linspace(0.2, 0.9, WORLDS).tolist())
HOME = [0.0, -0.7854, 0.0, -2.3562, 0.0, 1.5708, 0.7854]
SWING = [0.6, 0.4]
START = np.array([*HOME, *SWING, *[0.0] * 7], np.float32)
DRIVEN = (*(f"franka/joint{i}" for i in range(1, 8)), "arm/shoulder", "arm/elbow")
WEDGE = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


def scene() -> fphys.Scene:
    s = Scene(timestep=0.002)
    s.add(Plane(), Rigid(friction=0.1), name="ground")
    s.add(
        Box((0.2, 0.2, 0.2), pos=(1.0, 0.0, 0.4)), Rigid(mass=MASS, friction=FRICTION), Surface((1, 0, 0)), name="box"
    )
    s.add(Capsule(0.1, 0.2, pos=(2.0, 2.0, 0.5)), name="pill")
    s.add(Box((0.3, 0.3, 0.3), pos=(0.0, -4.0, 1.0), fixed=True), surface=Surface((0, 1, 0)), name="target")
    s.add(MJCF(fphys.asset("franka"), pos=(0.0, 2.0, 0.0)), name="franka")
    s.add(MJCF(ARM, pos=(-2.0, 0.0, 0.0)), name="arm")
    s.add(URDF(fphys.asset("arm-urdf"), pos=(0.0, 6.0, 0.0)), name="lift")
    s.add(Sphere(0.15, pos=(4.0, 0.0, 0.2)), name="ball")
    s.add(Cylinder(0.1, 0.3, pos=(4.0, 2.0, 0.2)), name="can")
    s.add_sensor(IMU("box"), name="imu")
    s.add_sensor(Contact("box"), name="touch")
    s.add(Terrain(np.full((5, 5), 0.3), 1.0, pos=(10.0, 10.0, 0.0)), name="hills")
    s.add(Mesh("wedge.obj", 0.4, pos=(4.0, 4.0, 0.02)), name="wedge")
    s.add(Sphere(0.2, pos=(12.1, 12.2, 0.55)), name="walker")
    s.add_sensor(Rays(((0, 0, -1), (0, -1, 0)), origins=((0.0, -2.0, 1.0), (0.0, -2.0, 1.0))), name="rays")
    on_hills, on_wedge = ((11.3, 13.2, 1.0), (13.2, 11.2, 1.0)), ((4.05, 4.1, 1.0),)
    scan = Rays(((0, 0, -1), (-1, 0, -1), (0, 0, -1)), origins=(*on_hills, *on_wedge))
    s.add_sensor(scan, name="scan")
    s.add_sensor(JointState(("franka/joint1",)), name="encoder")
    s.add_sensor(Camera((0.0, -1.0, 0.5), (0.0, -4.0, 0.5), link="franka/link0", fov=30.0), name="mounted")
    s.add_sensor(Camera((0.0, -1.0, 1.0), (0.0, -4.0, 1.0), fov=30.0), name="camera")
    return s


def measure() -> dict[str, Any]:
    Path("wedge.obj").write_text(WEDGE)
    start = time.perf_counter()
    action = ActionSpec("position", DRIVEN, kp=1500.0, kd=100.0)
    world = scene().build(WORLDS, backend="genesis", action=action)
    found: dict[str, Any] = {"build": time.perf_counter() - start}
    native = scene().build(WORLDS, action=action)
    found["columns"] = world.columns(EVERYTHING) == native.columns(EVERYTHING)
    found["joints"] = list(world.joints)
    found |= motion(world, native)
    found |= franka(world)
    found |= modes(world)
    found |= picture(world)
    found |= faults(world)
    found |= cost(world)
    return found


EVERYTHING = ObservationSpec("all", ("box", "end_effector", "arm/tip"), ("imu", "touch", "rays", "scan", "encoder"))
BOX = ObservationSpec(links=("box",))
SWINGING = ObservationSpec(("arm/shoulder", "arm/elbow"))


def motion(world: Any, native: Any) -> dict[str, Any]:
    """Fall, pendulum and rest on both, and what sensors and friction say of it."""
    ours, theirs, paths = native.init(START), world.init(START), []
    move = jax.jit(native.step)
    fall = None
    for i in range(600):
        ours, theirs = move(ours), world.step(theirs)
        if i == 99:
            fall = [np.asarray(w.observe(s, BOX))[:, 2] for w, s in ((native, ours), (world, theirs))]
        if i < 250:
            paths.append([np.asarray(w.observe(s, SWINGING))[:, :2] for w, s in ((native, ours), (world, theirs))])
    world.check(theirs)
    a, b = np.asarray(native.observe(ours, EVERYTHING)), np.asarray(world.observe(theirs, EVERYTHING))
    column = {name: i for i, name in enumerate(native.columns(EVERYTHING))}
    swing = np.array(paths)
    solids = ObservationSpec(links=("pill", "ball", "can", "lift/tip", "walker", "wedge"))
    still = [
        np.asarray(w.observe(x, solids)).reshape(WORLDS, 6, 13)[0, :, :3] for w, x in ((native, ours), (world, theirs))
    ]
    found = {
        "solids": [x.tolist() for x in still],
        "scans": [x[0, column["scan:0"] : column["scan:0"] + 3].tolist() for x in (a, b)],
        "fall": [(0.4 - x).tolist() for x in fall],
        "swing": float(np.abs(swing[:, 0] - swing[:, 1]).max() / np.ptp(swing[:, 0])),
        "height": [x[:, column["box:z"]].tolist() for x in (a, b)],
        "imu": b[:, column["imu:acceleration.x"] : column["imu:acceleration.x"] + 3].tolist(),
        "touch": b[:, column["touch:force.z"]].tolist(),
        "rays": b[0, column["rays:0"] : column["rays:0"] + 2].tolist(),
    }
    entity = world._entities["box"]
    begin = np.asarray(world.observe(theirs, BOX))[:, 0]
    entity.set_dofs_velocity(np.tile([[1.0, 0, 0, 0, 0, 0]], (WORLDS, 1)))
    for _ in range(600):
        theirs = world.step(theirs)
    found["slid"] = (np.asarray(world.observe(theirs, BOX))[:, 0] - begin).tolist()
    return found


def franka(world: Any) -> dict[str, Any]:
    """A jitted policy drives the arm for 1,000 steps by PD control."""
    spec = ObservationSpec(DRIVEN, ("end_effector",))

    @jax.jit
    def policy(observation: Any, t: Any) -> Any:
        goal = jnp.array([*HOME, *SWING], jnp.float32) + 0.2 * jnp.sin(2.0 * t) * (t < 1.5)
        return goal[None] + 0.05 * jnp.tanh(goal[None] - observation[:, : goal.size])

    state = world.init(START)
    start = time.perf_counter()
    for i in range(1000):
        state = world.step(state, policy(world.observe(state, spec), jnp.float32(0.002 * i)))
    seconds = time.perf_counter() - start
    q = np.asarray(world.observe(state, spec))[:, :7]
    return {"franka": float(np.abs(q - np.array(HOME)).max()), "franka seconds": seconds}


def modes(world: Any) -> dict[str, Any]:
    """Each mode of control tracks a target, on the joints of the arm."""
    joints, found = ("arm/shoulder", "arm/elbow"), {}
    target = np.tile(np.array([[0.4, -0.8]], np.float32), (WORLDS, 1))
    for mode in ("torque", "position", "velocity"):
        world.set_action(ActionSpec(mode, joints, kp=400.0, kd=40.0))
        state = world.init()
        for _ in range(500):
            control = target
            if mode == "torque":
                now = np.asarray(world.observe(state, SWINGING))
                control = 400.0 * (target - now[:, :2]) - np.array([[20.0, 4.0]], np.float32) * now[:, 2:]
            state = world.step(state, control.astype(np.float32))
        now = np.asarray(world.observe(state, SWINGING))
        found[mode] = float(np.abs((now[:, 2:] if mode == "velocity" else now[:, :2]) - target).max())
    return found


def picture(world: Any) -> dict[str, Any]:
    state = world.init()
    image, depth = world.render(state, "camera").astype(int), world.depth(state, "camera")
    green = (image[..., 1] > 60) & (image[..., 0] < image[..., 1] // 2) & (image[..., 2] < image[..., 1] // 2)
    mounted = world.render(state, "mounted").astype(int)
    seen = (mounted[..., 1] > 60) & (mounted[..., 0] < mounted[..., 1] // 2) & (mounted[..., 2] < mounted[..., 1] // 2)
    np.save("picture.npy", np.stack([image, mounted]).astype(np.uint8))
    return {
        "mounted": int(seen.sum()),
        "pixels": int(green.sum()),
        "depth": float(np.median(depth[green])),
        "shape": list(image.shape),
    }


def faults(world: Any) -> dict[str, Any]:
    state = world.init()
    later = world.step(state)
    control = np.zeros((WORLDS, len(world.controls)), np.float32)
    calls = {
        "old": lambda: world.step(state),
        "old observation": lambda: world.observe(state, BOX),
        "foreign": lambda: world.step(None),
        "jit": lambda: jax.jit(lambda u: world.step(later, u))(control),
        "ticket": lambda: jax.jit(world.step)(later),
        "shape": lambda: world.step(later, control[:3]),
        "dtype": lambda: world.step(later, jnp.asarray(control, jnp.float16)),
        "world": lambda: world.render(later, "camera", world=1),
    }
    found = {}
    for name, call in calls.items():
        try:
            call()
            found[name] = "no error"
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    later = world.step(later, control.astype(np.float64))  # NumPy's numbers are cast, as natively
    world.check(later)
    control[3] = np.nan
    try:
        world.check(world.step(later, control))
    except StateError as error:
        found["nan"] = f"StateError: {error}"
    return {"faults": found}


def cost(world: Any) -> dict[str, Any]:
    """Wrapped steps with a control against those of the engine with the same control, in turns."""
    world.set_action(ActionSpec("position", DRIVEN[:7], kp=1500.0, kd=100.0))
    state = world.init(START)
    control = jnp.tile(jnp.array(HOME, jnp.float32), (WORLDS, 1))
    entity = world._entities["franka"]
    tensor, dofs = torch.from_dlpack(control).clone(), list(range(7))
    times: dict[str, list[float]] = {"raw": [], "wrapped": []}
    for i in range(1000):
        name = ("raw", "wrapped")[i % 2]
        start = time.perf_counter()
        if name == "raw":
            entity.control_dofs_position(tensor, dofs)
            world.scene.step()
        else:
            state = world.step(state, control)
        times[name].append(time.perf_counter() - start)
    return {name: float(np.median(seconds)) for name, seconds in times.items()}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(measure()))
