"""PhysX on the CPU compared with fphys: NVIDIA's ovphysx with Gymnasium's ant, which mujoco-usd-converter turns to USD.

PhysX has its own equations and contacts, so none of its steps agrees with MuJoCo's to 1e-3. Two converted models are
not timed. The humanoid has three hinges between two links, of which PhysX keeps one. The Franka's massless base is the
root, and a joint outside the articulation holds it, so PhysX lets it float: 5e4 rad/s within a step. Scenes write their
own stage (``Scene.build(backend="physx")``), which has neither fault.
"""

import importlib
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..bridge.workers import num_threads
from ..math import rotate
from .case import Workload
from .engines import STEPS, accuracy, described, problem

APART = 4.0  # distance between neighbouring worlds, which share one scene [m]
SCENE = """#usda 1.0
(
    metersPerUnit = 1
    upAxis = "Z"
)
def PhysicsScene "Scene" (prepend apiSchemas = ["PhysxSceneAPI"])
{{
    vector3f physics:gravityDirection = (0, 0, -1)
    float physics:gravityMagnitude = {gravity}
    uint physxScene:timeStepsPerSecond = {rate}
    bool physxScene:enableSceneQuerySupport = 0
}}
def Xform "World"
{{
    def Plane "ground" (prepend apiSchemas = ["PhysicsCollisionAPI"])
    {{
        uniform token axis = "Z"
    }}
    def Xform "world0" (prepend references = @{path}@</{name}>)
    {{
        over "Geometry"
        {{
            over "floor" (active = false)
            {{
            }}
        }}
    }}
}}
"""
_held: list[tuple[Any, Any]] = []  # the engine and its stage; a process has one at a time


def physx(name: str, integrator: str, worlds: int) -> Workload:
    """PhysX, all worlds in one scene."""
    given = problem(name, integrator, worlds)
    model, rate = given.model, 1 / given.model.opt.timestep
    with tempfile.TemporaryDirectory() as folder:
        xml, scene = Path(folder) / f"{name}.xml", Path(folder) / "scene.usda"
        spec = described(name, integrator)
        spec.compile()
        xml.write_text(spec.to_xml())
        convert = [sys.executable, "-m", "mujoco_usd_converter", str(xml), folder, "--no-layer-structure"]
        subprocess.run(convert, check=True, capture_output=True)
        path, gravity = xml.with_suffix(".usdc"), -float(model.opt.gravity[2])
        scene.write_text(SCENE.format(gravity=gravity, rate=round(rate), path=path, name=name))
        engine = _attached(scene)
    side = int(np.ceil(np.sqrt(worlds)))
    place = np.array([(APART * (k % side), APART * (k // side), 0) for k in range(worlds)])
    if worlds > 1:
        copies = [f"/World/world{k}" for k in range(1, worlds)]
        engine.clone("/World/world0", copies, anchor_transforms=[(*at, 0, 0, 0, 1) for at in place[1:]])
        engine.wait_all()

    root = f"/World/world*/Geometry/{model.body(1).name}"
    kinds = ("ROOT_POSE", "ROOT_VELOCITY", "DOF_POSITION", "DOF_VELOCITY", "DOF_ACTUATION_FORCE")
    bound = {kind: _binding(engine, root, f"ARTICULATION_{kind}") for kind in kinds}
    joints = [model.joint(n) for n in bound["DOF_POSITION"].dof_names]
    qpos_of, dof_of = ([int(getattr(j, name)[0]) for j in joints] for name in ("qposadr", "dofadr"))
    quat = jnp.asarray(given.qpos[:, 3:7])
    height = np.pad(given.qpos[:, 2:3], ((0, 0), (2, 0)))  # the horizontal position makes no difference
    spin = rotate(quat, jnp.asarray(given.qvel[:, 3:6]))
    start = {
        "ROOT_POSE": np.concatenate([place + height, np.roll(quat, -1, axis=1)], 1),
        "ROOT_VELOCITY": np.concatenate([given.qvel[:, :3], spin], 1),
        "DOF_POSITION": given.qpos[:, qpos_of],
        "DOF_VELOCITY": given.qvel[:, dof_of],
    }
    start = {kind: np.ascontiguousarray(value, np.float32) for kind, value in start.items()}
    forces = np.zeros((STEPS, worlds, len(joints)), np.float32)
    for a, (joint, gear) in enumerate(zip(model.actuator_trnid[:, 0], model.actuator_gear[:, 0], strict=True)):
        forces[:, :, dof_of.index(model.jnt_dofadr[joint])] = given.ctrl[:, :, a].T * gear

    def fn(forces: np.ndarray) -> np.ndarray:
        for kind, value in start.items():
            bound[kind].write(value)
        for force in forces:
            bound["DOF_ACTUATION_FORCE"].write(force)
            engine.step_sync(1 / rate)
        twist, joint = np.empty_like(start["ROOT_VELOCITY"]), np.empty_like(start["DOF_VELOCITY"])
        bound["ROOT_VELOCITY"].read(twist)
        bound["DOF_VELOCITY"].read(joint)
        qvel = np.zeros_like(given.qvel)
        qvel[:, :3], qvel[:, 3:6] = twist[:, :3], rotate(quat * jnp.array([1, -1, -1, -1]), jnp.asarray(twist[:, 3:]))
        qvel[:, dof_of] = joint
        return qvel

    return Workload(fn, (forces,), lambda _: accuracy(given, fn(forces[:1])), jit=False)


def _attached(scene: Path) -> Any:
    """The engine with this scene instead of the previous one."""
    library, stages = importlib.import_module("ovphysx"), importlib.import_module("ovstage")
    if _held:
        engine, before = _held.pop()
        engine.wait_task(engine.detach_ovstage())
        before.destroy()
    else:
        library.PhysX.set_cpu_mode(True)
        library.set_global_config(library.GlobalConfigKey.NUM_THREADS, num_threads())
        support = importlib.import_module("ovphysx.samples.python_samples.schema_support")
        schemas = [*map(str, support.physx_schema_paths()), str(library.newton_schema_root())]
        stages.population.register_usd_schemas(schemas)
        engine = library.PhysX()
    stage = stages.Stage(scene.parent.name)
    stages.population.open_usd(stage, str(scene), ordinal=1, domains=stages.PopulationDomain.ALL)
    stage.advance_write_floor(ordinal=1).wait()
    engine.wait_task(engine.attach_ovstage(stage, read_ordinal=1))
    _held.append((engine, stage))
    return engine


def _binding(engine: Any, pattern: str, kind: str) -> Any:
    """An array over the articulations of all worlds, to read or write at once."""
    kinds = importlib.import_module("ovphysx.types").TensorType
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return engine.create_tensor_binding(pattern=pattern, tensor_type=kinds[kind], raise_if_empty=True)
