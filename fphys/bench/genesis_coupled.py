"""The coupling cases' scenes in Genesis: same bodies, particles, material, time step, substeps and threads.

Its rigid bodies step with every substep. Its exchange is staggered: nodes of MPM and particles of SPH meet the bodies'
old velocities, and the bodies take the forces in the next step. Its SPH has a domain as a tank, without
particles; its support is 2.15 spacings, ours 3.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .. import coupling
from ..model.structure import GeomType
from ..particles import mpm, sph
from ..scene import MPM, SPH
from ..scene.genesis_particles import FILL, PADDING, material
from .case import Workload
from .genesis_particles import INSTALLED, started, wait

__all__ = ["INSTALLED", "coupled"]


def coupled(
    scene: Any, steps: int, substeps: int, wanted: Callable[[], tuple[Any, Any]], file: str | None = None
) -> Workload:
    """Steps of the first world of a scene of ours.

    Its accuracy is 1 - |u' - u| / |u - u_0|: u are velocities of the joints after the steps, u' Genesis's, u_0 without
    the matter.

    Args:
        wanted: gives u and u_0.
        file: MJCF of its mechanism; without it, the bodies are free boxes or balls.
    """
    gs, params = started(), scene.medium.params
    stage = gs.Scene(
        sim_options=gs.options.SimOptions(
            dt=substeps * float(params.timestep), substeps=substeps, gravity=tuple(params.gravity)
        ),
        rigid_options=gs.options.RigidOptions(enable_collision=False),
        show_viewer=False,
        **_domain(scene),
    )
    start = _particles(scene)
    matter = stage.add_entity(gs.morphs.Nowhere(n_particles=len(start[0])), material=_substance(params))
    with tempfile.TemporaryDirectory() as folder:
        bodies = _free(stage, scene) if file is None else [_mechanism(stage, Path(folder, "mechanism.xml"), file)]
        stage.build()
    qpos, qvel = (np.split(np.array(a[0]), len(bodies)) for a in (scene.state.qpos, scene.state.qvel))

    def fn() -> Any:
        stage.reset()
        matter.set_particles_pos(start[0])
        matter.set_particles_vel(start[1])
        matter.set_particles_active(True)
        for body, q, v in zip(bodies, qpos, qvel, strict=True):
            body.set_qpos(q)
            body.set_dofs_velocity(v)
        for _ in range(steps):
            stage.step()
        wait()
        return matter, bodies

    def validate(after: Any) -> float:
        matter, bodies = after
        if not np.isfinite(matter.get_particles_pos().numpy()).all():
            raise ValueError("a particle of Genesis is not finite")
        found = np.concatenate([b.get_dofs_velocity().numpy().reshape(-1) for b in bodies])
        ours, free = (np.asarray(u).reshape(-1) for u in wanted())
        agreed = 1 - np.linalg.norm(found - ours) / np.linalg.norm(ours - free)
        if not agreed > 0:
            raise ValueError(f"bodies of Genesis differ by {1 - agreed:.0%} of what the matter does to ours")
        return float(agreed)

    return Workload(fn, (), validate, jit=False)


def _particles(scene: Any) -> list[np.ndarray]:
    """Positions and velocities of the first world's particles; of SPH, of its fluid."""
    moving = np.asarray(scene.matter.kind[0]) == sph.FLUID if isinstance(scene.medium, coupling.SPH) else slice(None)
    return [np.array(a[0])[moving] for a in (scene.matter.x, scene.matter.v)]


def _substance(params: mpm.Params | sph.Params) -> Any:
    if isinstance(params, mpm.Params):
        (law,) = params.materials
        return material(MPM(law), params.cell / 2)
    c, density, artificial = (float(a) for a in (params.sound_speed, params.density, params.artificial))
    return material(SPH(c, density, artificial=artificial), params.spacing)


def _domain(scene: Any) -> dict[str, Any]:
    """Its domain; of SPH, the box that the fluid fills, twice as high."""
    options, params = started().options, scene.medium.params
    if isinstance(params, sph.Params):
        x, size = _particles(scene)[0], params.spacing / FILL ** (1 / 3)
        lower, upper = x.min(0), x.max(0)
        upper[2] += upper[2] - lower[2]
        return {"sph_options": options.SPHOptions(particle_size=size, **_bounds(lower, upper))}
    lower, margin = np.array(params.lower), PADDING * params.cell
    bounds = _bounds(lower - margin, lower + np.array(params.shape) * params.cell + margin)
    return {"mpm_options": options.MPMOptions(particle_size=params.cell / 2, grid_density=1 / params.cell, **bounds)}


def _bounds(lower: np.ndarray, upper: np.ndarray) -> dict[str, tuple[float, ...]]:
    return {"lower_bound": tuple(lower.tolist()), "upper_bound": tuple(upper.tolist())}


def _free(stage: Any, scene: Any) -> list[Any]:
    """The bodies, each a geom that floats."""
    morphs, made, model = started().morphs, [], scene.model
    for g, kind in enumerate(model.structure.geom.type):
        size, mass = np.asarray(model.geom.size[0, g], float), float(model.body.mass[0, model.structure.geom.body[g]])
        if kind == GeomType.BOX:
            morph, volume = morphs.Box(size=tuple(2 * size)), 8 * size.prod()
        else:
            morph, volume = morphs.Sphere(radius=size[0]), 4 / 3 * np.pi * size[0] ** 3
        made.append(stage.add_entity(morph, material=_rigid(rho=mass / volume)))
    return made


def _mechanism(stage: Any, path: Path, text: str) -> Any:
    path.write_text(text, encoding="utf-8")
    return stage.add_entity(started().morphs.MJCF(file=str(path), default_armature=None), material=_rigid())


def _rigid(**given: Any) -> Any:
    """Friction as our geoms have it, which is MuJoCo's."""
    return started().materials.Rigid(coup_friction=1.0, **given)
