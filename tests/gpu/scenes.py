"""Small scenes of every solver, and what a device makes of them: states, and gradients by states and loads.

``JAX_PLATFORMS=cpu python -m tests.gpu.scenes FOLDER [PATTERN [DTYPE]]`` writes what a processor makes of them, unless
it is there. A process with a GPU that has the folder in FPHYS_EXPECTED then compiles no kernel for its processor.
"""

import fnmatch
import functools
import hashlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys import coupling, envs
from fphys.deformables import fem, mesh, pbd
from fphys.particles import boundary, mpm, sph

from .. import test_worlds
from ..coupling import scenes as coupled
from ..coupling import test_surfaces
from ..gradients import contact_scenes, test_self_contact
from ..parity import corpus
from ..particles import mpm_scenes, sph_scenes, test_mpm_contact, test_mpm_periodic
from ..rigid import mechanisms, test_rays, test_sensor, test_sparse

STEPS = 2


class Scene(NamedTuple):
    """``fn(fixed, moved)`` gives a tree of arrays; gradients are taken by ``moved``, a tree of real numbers."""

    fn: Callable[[Any, Any], Any]
    fixed: Any
    moved: Any


class Result(NamedTuple):
    """Leaves, in order."""

    values: list[np.ndarray]
    gradients: list[np.ndarray]


def in_contact(name: str, dtype: str) -> Scene:
    """Steps of three worlds along MuJoCo's trajectories."""
    model, start = corpus.case(name, dtype), contact_scenes.along(name, 3)
    state = start.state(model)

    def fn(fixed: Any, moved: Any) -> Any:
        model, state = fixed
        after = state.replace(qpos=moved["qpos"], qvel=moved["qvel"])
        for _ in range(STEPS):
            after = fphys.step(model, after, moved["ctrl"])
        return {"qpos": after.qpos, "qvel": after.qvel, "status": after.status}

    return Scene(fn, (model, state), {"qpos": state.qpos, "qvel": state.qvel, "ctrl": start.ctrl.astype(dtype)})


def by_all(scene: Scene) -> Scene:
    """The scene with gradients by every real number that goes in: models and parameters, which worlds share, too."""
    leaves, tree = jax.tree.flatten(scene.fixed)
    real = [isinstance(x, jax.Array | np.ndarray) and x.dtype.kind == "f" for x in leaves]

    def fn(fixed: Any, moved: Any) -> Any:
        numbers = iter(moved[1])
        return scene.fn(tree.unflatten([next(numbers) if r else x for x, r in zip(fixed, real, strict=True)]), moved[0])

    return Scene(fn, leaves, (scene.moved, [x for x, r in zip(leaves, real, strict=True) if r]))


def rollout(name: str, dtype: str) -> Scene:
    """Twenty steps of a mechanism that meets no constraint."""
    model = fphys.load(fphys.asset(name), disable=mechanisms.UNCONSTRAINED, dtype=dtype)
    rng = np.random.default_rng(2)
    state = fphys.init(model, 8, qvel=jnp.asarray(0.5 * rng.standard_normal((8, model.structure.nv)), dtype))
    ctrls = jnp.asarray(rng.uniform(-0.5, 0.5, (20, 8, model.structure.nu)), dtype)
    return Scene(lambda fixed, moved: fphys.rollout(*fixed, moved).qpos, (model, state), ctrls)


def mechanism(name: str, integrator: str, dtype: str) -> Scene:
    """Every joint, actuator, tendon and force; nothing touches."""
    model, source = mechanisms.case(name, integrator, dtype)
    x = mechanisms.random_inputs(source, 3, seed=6, size=0.3)
    state, (ctrl, wrench, force) = mechanisms.to_state(model, x), mechanisms.loads(model, x)

    def fn(fixed: Any, moved: Any) -> Any:
        model, state = fixed
        after = state.replace(qpos=moved["qpos"], qvel=moved["qvel"])
        after = fphys.step(model, after, moved["ctrl"], moved["wrench"], moved["force"])
        return {"qpos": after.qpos, "qvel": after.qvel, "act": after.act, "energy": fphys.energy(model, after)}

    loads = {"ctrl": ctrl, "wrench": wrench, "force": force}
    return Scene(fn, (model, state), {"qpos": state.qpos, "qvel": state.qvel} | loads)


def without_matrices(name: str, dtype: str) -> Scene:
    """A mechanism that has no matrices: many bodies, three worlds of which MuJoCo has settled one."""
    source, settled = test_sparse.settled(test_sparse.SCENES[name]("sparse"), 40)
    model, rng = fphys.load(source, dtype=dtype), np.random.default_rng(5)
    qvel = settled.qvel + 0.1 * rng.standard_normal((3, source.nv))
    state = fphys.init(model, 3).replace(qpos=jnp.asarray(np.tile(settled.qpos, (3, 1)), dtype))

    def fn(fixed: Any, moved: Any) -> Any:
        model, state = fixed
        after = state.replace(qvel=moved["qvel"])
        for _ in range(STEPS):
            after = fphys.step(model, after, force=moved["force"])
        return {"qpos": after.qpos, "qvel": after.qvel, "status": after.status}

    qvel = jnp.asarray(qvel, dtype)
    return Scene(fn, (model, state), {"qvel": qvel, "force": 0.1 * jnp.ones_like(qvel)})


def readings(dtype: str) -> Scene:
    """Every sensor, among them rays that meet all shapes."""
    model, source = test_sensor.measured(dtype=dtype)
    x = mechanisms.random_inputs(source, 3, seed=7)
    state, loads = mechanisms.to_state(model, x), mechanisms.loads(model, x)

    def fn(fixed: Any, moved: Any) -> Any:
        model, state = fixed
        return fphys.sensors(model, state.replace(qpos=moved["qpos"], qvel=moved["qvel"]), *loads)

    return Scene(fn, (model, state), {"qpos": state.qpos, "qvel": state.qvel})


def scan(dtype: str) -> Scene:
    """Rays on hills and meshes."""
    model = fphys.load(test_rays.landscape("both", *test_rays.some(100)), disable=("contact",), dtype=dtype)
    state = fphys.init(model, 3)
    qpos = state.qpos + 0.1 * jnp.sin(jnp.arange(21.0, dtype=dtype)).reshape(3, 7)

    def fn(fixed: Any, moved: Any) -> Any:
        model, state = fixed
        changed = model.replace(hfield=model.hfield.replace(data=moved["heights"]))
        return fphys.sensors(changed, state.replace(qpos=moved["qpos"]))

    return Scene(fn, (model, state), {"qpos": qpos, "heights": model.hfield.data})


def matter(solver: Any, params: Any, state: Any, dtype: str, *colliders: Any) -> Scene:
    """Steps of particles or vertices, against colliders if there are any."""
    named = ("colliders",) * bool(colliders)

    def fn(fixed: Any, moved: Any) -> Any:
        params, state, colliders = fixed
        after = state.replace(**moved)
        for _ in range(STEPS):
            after = solver.step(params, after, **dict.fromkeys(named, colliders))
        return after

    params, state, colliders = cast((params, state, colliders), dtype)
    return Scene(fn, (params, state, colliders), {"x": state.x, "v": state.v})


def cloud(name: str, dim: int, contact: str, dtype: str, *colliders: Any) -> Scene:
    """Material points against three walls."""
    return matter(mpm, *mpm_scenes.scene(name, dim, worlds=2, contact=contact), dtype, *colliders)


def periodic(dtype: str) -> Scene:
    """Material points across the faces of a periodic domain."""
    params = test_mpm_periodic.EVERYWHERE
    return matter(mpm, params, test_mpm_periodic.cloud(params), dtype)


def apart(dtype: str) -> Scene:
    """Bodies of material points with grids of their own, which keep a part of the velocity that no grid has."""
    params = test_mpm_contact.PARAMS.replace(transfer=mpm.AffineFlip(0.9))
    return matter(mpm, params, test_mpm_contact.blocks(params=params, worlds=2), dtype)


def pool(dim: int, dtype: str, **changes: Any) -> Scene:
    """Water in a tank."""
    return matter(sph, *sph_scenes.pool(dtype, dim, **changes), dtype)


def pressure_pool(dim: int, dtype: str) -> Scene:
    """Incompressible water, whose pressures are solved for to rounding."""
    tolerance = 1e-13 if dtype == "float64" else 1e-7
    given = {"method": "dfsph", "artificial": 0.0, "repulsion": 0.0, "timestep": 5e-3, "viscosity": 20.0}
    return pool(dim, dtype, tolerance=tolerance, **given)


def blocks(dtype: str) -> Scene:
    """Two blocks of finite elements that are pressed on each other and on a ball, and rub."""
    params, _, inputs = test_self_contact.scene()
    state = fem.init(params, inputs["x"], inputs["v"])
    ball = boundary.sphere((0.2, 0.15, -0.19), 0.2, velocity=(0.1, 0.0, 0.2), friction=0.3)
    return matter(fem, params, state, dtype, ball)


def explicit(dtype: str) -> Scene:
    """Finite elements without a solve."""
    case = test_worlds.of_fem(jnp.dtype(dtype).type)
    return matter(fem, case.params.replace(explicit=True), case.state, dtype)


def cloth(dtype: str) -> Scene:
    """A cloth that meets a ball, and itself."""
    rng, sheet = np.random.default_rng(4), mesh.cloth((6, 3), (0.6, 0.3))
    params = pbd.Params(sheet, 0.2, 0.01, 1e-3, bend=1e-3, substeps=3, apart=0.06, thickness=0.02, friction=0.4)
    folded = np.array(sheet.vertices)
    folded[:, 2] = 0.05 * (folded[:, 0] > 0.3)
    folded[:, 0] = 0.3 - np.abs(folded[:, 0] - 0.3)
    x = folded + 0.005 * rng.standard_normal((2, *folded.shape))
    ball = boundary.sphere((0.15, 0.15, -0.19), 0.2, velocity=(0.1, 0.0, 0.2), friction=0.3)
    return matter(pbd, params, pbd.init(params, x, 0.3 * rng.standard_normal(x.shape)), dtype, ball)


def of_case(make: Callable[[Any], Any], dtype: str) -> Scene:
    """A case of ``tests/test_worlds.py``."""
    case = make(jnp.dtype(dtype).type)
    return matter(case.solver, case.params, case.state, dtype)


def touching(make: Callable[[], Any], dtype: str, *borders: Any) -> Scene:
    """A ball and a medium, or media that meet at surfaces."""
    scene = make()

    def fn(fixed: Any, moved: Any) -> Any:
        model, state, media, matter = fixed
        state = state.replace(qvel=moved["qvel"])
        matter = tuple(m.replace(v=v) for m, v in zip(matter, moved["v"], strict=True))
        for _ in range(STEPS):
            named = {"substeps": scene.substeps, "surfaces": borders}
            state, matter = coupling.step(model, state, media, matter, **named)
        return {"qvel": state.qvel, "x": [m.x for m in matter], "v": [m.v for m in matter]}

    fixed = cast((scene.model, scene.state, scene.media, scene.matter), dtype)
    return Scene(fn, fixed, {"qvel": fixed[1].qvel, "v": [m.v for m in fixed[3]]})


def surface(dtype: str) -> Scene:
    """A drop that falls on a cloth."""
    scene, borders = test_surfaces.scene(test_surfaces.drop(), test_surfaces.cloth())
    return touching(lambda: scene, dtype, *borders)


def task(name: str, dtype: str) -> Scene:
    """An environment's step, with its observation and reward."""
    env = envs.make(name, 3, dtype=jnp.dtype(dtype))
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    size = env.action_spec.shape
    action = jnp.asarray(np.random.default_rng(0).uniform(-0.4, 0.4, (3, *size)), dtype)

    def fn(state: Any, moved: Any) -> Any:
        found = env.step(state, moved["action"])
        return jax.tree.leaves(found[1:])

    return Scene(fn, state, {"action": action})


def cast(tree: Any, dtype: str) -> Any:
    """The tree with all real numbers in a precision."""
    return jax.tree.map(lambda x: jnp.asarray(x, dtype) if np.asarray(x).dtype.kind == "f" else x, tree)


RIGID = (
    {
        name: functools.partial(in_contact, name)
        for name in (
            *("ant", "humanoid", "franka pushing a box", "hand grasping a ball", "capsules on a box"),
            *(f"{cone} cone, condim {n}" for cone in ("pyramidal", "elliptic") for n in (1, 3, 4, 6)),
            *("stack of boxes, elliptic", "mesh on a plane", "height field", "cylinder on a plane", "no slip", "weld"),
            *("cylinder and ellipsoid on a box, one contact", "mesh and capsule on a mesh, flat sides"),
            *("limits of hinges", "dry friction of joints", "RK4 in contact", "implicitfast in contact", "adhesion"),
        )
    }
    | {
        f"{name}, {integrator}": functools.partial(mechanism, name, integrator)
        for names, integrator in ((("everything", "spatial"), "euler"), (("everything", "small"), "implicitfast"))
        for name in names
    }
    | {f"rollout of {name}": functools.partial(rollout, name) for name in ("double-pendulum", "franka", "ant")}
    | {f"sparse, {name}": functools.partial(without_matrices, name) for name in ("fast", "bonded", "elliptic")}
    | {"sensors": readings, "scan": scan}
)
MATTER = {
    "mpm, all materials": functools.partial(cloud, "all", 3, "separate"),
    "mpm, in a plane": functools.partial(cloud, "corotated", 2, "slip"),
    "mpm, sticky": functools.partial(cloud, "sand", 3, "sticky"),
    "mpm, periodic": periodic,
    "mpm, in contact": apart,
    "sph": functools.partial(pool, 3),
    "sph, in a plane": functools.partial(pool, 2),
    "sph, with tension": functools.partial(pool, 3, tension=70.0),
    "sph, with transport": functools.partial(pool, 2, transport=True, diffusion=0.0, repulsion=0.0),
    "sph, incompressible": functools.partial(pressure_pool, 3),
    "sph, incompressible in a plane": functools.partial(pressure_pool, 2),
    "fem": functools.partial(of_case, test_worlds.of_fem),
    "pbd": functools.partial(of_case, test_worlds.of_pbd),
    "rod": functools.partial(of_case, test_worlds.of_rod),
    "fem, explicit": explicit,
    "fem, in contact": blocks,
    "pbd, in contact": cloth,
    **{f"coupled {name}": functools.partial(touching, make) for name, make in coupled.SCENES.items()},
    "surface of cloth": surface,
}
TASKS = {name: functools.partial(task, name) for name in ("Ant-v5", "HalfCheetah-v5")}
SCENES: dict[str, Callable[[str], Scene]] = RIGID | MATTER | TASKS
DTYPES = ("float64", "float32")


def loss(out: Any) -> Any:
    """A number that every real number of the output changes."""
    total = 0.0
    for leaf in jax.tree.leaves(out):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.size:
            weight = jnp.cos(jnp.arange(leaf.size, dtype=leaf.dtype)).reshape(leaf.shape)
            total = total + jnp.sum(weight * leaf) / leaf.size
    return total


@functools.cache
def compiled(fn: Callable[[Any, Any], Any]) -> Any:
    """The function with its gradient, jitted."""

    @jax.jit
    def run(fixed: Any, moved: Any) -> Any:
        def weighted(moved: Any) -> Any:
            out = fn(fixed, moved)
            return loss(out), out

        gradient, out = jax.grad(weighted, has_aux=True)(moved)
        return out, gradient

    return run


def result(scene: Scene, device: Any = None) -> Result:
    """What a device makes of a scene."""
    out = compiled(scene.fn)(*jax.device_put((scene.fixed, scene.moved), device))
    values, gradients = ([np.asarray(x) for x in jax.tree.leaves(part)] for part in jax.block_until_ready(out))
    return Result(values, gradients)


ROOT = Path(__file__).parents[2]


@functools.cache
def sources() -> str:
    """A hash of the files that decide what a scene gives: the physics, the scenes, and this file."""
    digest = hashlib.blake2b(Path(__file__).read_bytes(), digest_size=8)
    for module in (
        *(coupled, contact_scenes, corpus, mpm_scenes, sph_scenes, mechanisms),
        *(
            test_worlds,
            test_surfaces,
            test_self_contact,
            test_rays,
            test_sensor,
            test_sparse,
            test_mpm_contact,
            test_mpm_periodic,
        ),
    ):
        digest.update(Path(str(module.__file__)).read_bytes())
    rooms = ("model", "rigid", "particles", "deformables", "coupling", "envs")
    files = [f for room in rooms for f in (ROOT / "fphys" / room).rglob("*.py")]
    files += [f for kind in ("*.py", "*.h") for f in (ROOT / "kernels").rglob(kind)]
    for file in sorted([*files, *(ROOT / "fphys").glob("*.py")]):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def path(folder: str | Path, name: str, dtype: str) -> Path:
    return Path(folder) / f"{''.join(c if c.isalnum() else '-' for c in name)}-{dtype}.npz"


def save(folder: str | Path, name: str, dtype: str) -> None:
    """Write a scene and what the processor makes of it."""
    scene = SCENES[name](dtype)
    given = jax.tree.leaves((scene.fixed, scene.moved))
    keys = [jnp.issubdtype(x.dtype, jax.dtypes.prng_key) if isinstance(x, jax.Array) else False for x in given]
    given = [np.asarray(jax.random.key_data(x) if key else x) for x, key in zip(given, keys, strict=True)]
    found = {"given": given, **result(scene, jax.devices("cpu")[0])._asdict()}
    arrays = {f"{kind}{i}": array for kind, part in found.items() for i, array in enumerate(part)}
    file = path(folder, name, dtype)
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".part.npz")
    np.savez_compressed(draft, sources=np.array(sources()), **arrays)
    draft.replace(file)


def is_current(folder: str | Path, name: str, dtype: str) -> bool:
    """Whether these very sources have made what is there."""
    file = path(folder, name, dtype)
    if not file.exists():
        return False
    with np.load(file) as found:
        return str(found["sources"]) == sources()


def load(folder: str | Path, name: str, dtype: str, scene: Scene) -> tuple[Scene, Result]:
    """A scene with the numbers that were saved, and the result."""
    with np.load(path(folder, name, dtype)) as file:
        parts = {
            kind: [file[f"{kind}{i}"] for i in range(sum(key.startswith(kind) for key in file))]
            for kind in ("given", *Result._fields)
        }
    leaves, tree = jax.tree.flatten((scene.fixed, scene.moved))
    assert len(leaves) == len(parts["given"]), "the scene has changed: write it again"
    again = [
        jax.random.wrap_key_data(y) if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else y
        for x, y in zip(leaves, parts.pop("given"), strict=True)
    ]
    return Scene(scene.fn, *tree.unflatten(again)), Result(**parts)


def record(folder: str, pattern: str = "*", *dtypes: str) -> None:
    """Write what is not there, or what other sources have made."""
    jax.config.update("jax_enable_x64", True)
    for name in (name for name in SCENES if fnmatch.fnmatch(name, pattern)):
        for dtype in (dtype for dtype in dtypes or DTYPES if not is_current(folder, name, dtype)):
            start = time.perf_counter()
            save(folder, name, dtype)
            size = path(folder, name, dtype).stat().st_size
            print(f"{name}, {dtype}: {size} bytes, {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    record(*sys.argv[1:])
