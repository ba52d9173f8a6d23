"""The cloth and the solid of the deformables' cases in Genesis: same vertices, edges, tetrahedra, density, time step.

Its cloth has position-based springs whose compliance does not accumulate over iterations, so that it is stiffer than
given. Its solid is corotated, with our moduli at small strain; Newton's method stops after three iterations. Neither is
differentiable there.
"""

import importlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from ..deformables import fem, pbd
from .case import Workload
from .genesis_particles import INSTALLED, started, wait

__all__ = ["INSTALLED", "cloth", "solid"]

ITERATIONS = 10


def cloth(params: pbd.Params, state: pbd.State, steps: int, exact: Callable[[Any], float]) -> Workload:
    """Steps of the first world; ``exact`` gives the accuracy of its places."""
    gs, edge = started(), np.sqrt(1 / len(params.mesh.vertices))
    scene = _scene(
        params,
        pbd_options=gs.options.PBDOptions(
            max_stretch_solver_iterations=ITERATIONS, particle_size=0.2 * edge, lower_bound=(-10.0,) * 3
        ),
    )
    material = gs.materials.PBD.Cloth(
        rho=params.density, stretch_compliance=params.stretch, bending_compliance=1e6, air_resistance=0.0
    )
    with mock.patch.object(importlib.import_module("genesis.engine.mesh").Mesh, "remesh"):  # it would make its own
        body = _entity(scene, params, params.mesh.elements, material)
    _expect(body.n_particles, params)
    start = [np.array(a[0]) for a in (state.x, state.v)]
    body.fix_particles(list(params.pinned))

    def fn() -> Any:
        body.set_particles_pos(start[0])
        body.set_particles_vel(start[1])
        for _ in range(steps):
            scene.step()
        wait()
        return body

    return Workload(fn, (), lambda body: exact(body.get_particles_pos().numpy().reshape(-1, 3)), jit=False)


def solid(params: fem.Params, state: fem.State, steps: int, exact: Callable[[Any], float]) -> Workload:
    """The same of a solid; Genesis gets our tetrahedra in the place of those that it would make."""
    gs, law, tets = started(), params.material, params.mesh.elements
    scene = _scene(
        params,
        fem_options=gs.options.FEMOptions(
            use_implicit_solver=True,
            n_newton_iterations=3,
            damping_alpha=0.0,
            damping_beta=0.0,
            enable_vertex_constraints=True,
        ),
    )
    material = gs.materials.FEM.Elastic(E=law.young, nu=law.poisson, rho=law.density, model="linear_corotated")
    ours = np.asarray(params.mesh.vertices, np.float32), np.asarray(tets, np.int32)
    maker = importlib.import_module("genesis.utils.element")
    with (
        mock.patch.object(maker, "mesh_to_elements", return_value=ours),
        mock.patch.object(maker, "split_all_surface_tets", return_value=ours),
    ):
        body = _entity(scene, params, params.mesh.topology.surface, material)
    _expect(body.n_vertices, params)
    body.set_vertex_constraints(list(params.pinned))
    start = [np.array(a[0]) for a in (state.x, state.v)]

    def fn() -> Any:
        body.set_position(start[0])
        body.set_velocity(start[1])
        for _ in range(steps):
            scene.step()
        wait()
        return body

    return Workload(fn, (), lambda body: exact(body.get_state().pos.numpy().reshape(-1, 3)), jit=False)


def _scene(params: Any, **options: Any) -> Any:
    gs = started()
    sim = gs.options.SimOptions(dt=float(params.timestep), substeps=1, gravity=tuple(params.gravity))
    return gs.Scene(sim_options=sim, show_viewer=False, **options)


def _entity(scene: Any, params: Any, triangles: np.ndarray, material: Any) -> Any:
    """A body whose file has all vertices, in our order."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "body.obj")
        rows = [f"v {x:.9g} {y:.9g} {z:.9g}" for x, y, z in params.mesh.vertices.tolist()]
        rows += [f"f {a} {b} {c}" for a, b, c in (triangles + 1).tolist()]
        path.write_text("\n".join(rows))
        morph = started().morphs.Mesh(file=str(path), file_meshes_are_zup=True, decimate=False)
        entity = scene.add_entity(morph=morph, material=material)
        scene.build()
    return entity


def _expect(count: int, params: Any) -> None:
    if count != len(params.mesh.vertices):
        raise ValueError(f"Genesis has {count} vertices, must be {len(params.mesh.vertices)}")
