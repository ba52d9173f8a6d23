"""The cloth and the solid of the deformables' cases in Newton: same vertices, springs, tetrahedra, masses, time step.

Its cloths are made of our springs, its solids of its own Neo-Hookean tetrahedra, which have our moduli at small strain.
Contact is switched off. It has ten iterations a step, and no gradient (its page says so for both solvers).
"""

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ..deformables import fem, mesh, pbd
from .case import Workload

INSTALLED = importlib.util.find_spec("newton") is not None
SOLVERS = {"xpbd": "SolverXPBD", "vbd": "SolverVBD"}
ITERATIONS = 10


def cloth(kind: str, params: pbd.Params, state: pbd.State, steps: int, exact: Callable[[Any], float]) -> Workload:
    """Steps of the first world; ``exact`` gives the accuracy of its places."""
    builder = _builder(params, state, np.asarray(pbd.masses(params)[0], float), params.mesh.vertices)
    for i, j in pbd.edges(params.mesh).tolist():
        builder.add_spring(i, j, 1 / params.stretch, 0.0, 0.0)
    a, b, c = params.mesh.elements.T.tolist()  # colours are those of triangles that have a stiffness
    none, hardly = [0.0] * len(a), [1e-9] * len(a)
    builder.add_triangles(a, b, c, tri_ke=hardly, tri_ka=none, tri_kd=none, tri_drag=none, tri_lift=none)
    return _workload(builder, kind, params, state, steps, exact)


def solid(params: fem.Params, state: fem.State, steps: int, exact: Callable[[Any], float]) -> Workload:
    """The same of a solid, by VBD: with XPBD, ten iterations and no damping it flies apart."""
    body, law = params.mesh, params.material
    mass = np.zeros(len(body.vertices))
    np.add.at(mass, body.elements, law.density * mesh.measures(body.vertices, body.elements)[:, None] / 4)
    builder = _builder(params, state, mass, body.vertices)
    mu, lam = law.lame(law.young, law.poisson)
    for corners in body.elements.tolist():
        builder.add_tetrahedron(*corners, mu, lam, 0.0)
    return _workload(builder, "vbd", params, state, steps, exact)


def _builder(params: Any, state: Any, mass: np.ndarray, rest: Any) -> Any:
    """A model's vertices, at rest; pinned ones have no mass."""
    builder = importlib.import_module("newton").ModelBuilder(gravity=params.gravity)
    held = np.isin(np.arange(len(mass)), params.pinned)
    mass = np.where(held, 0.0, mass)
    count = len(mass)
    builder.add_particles(
        np.asarray(rest).tolist(),
        np.asarray(state.v[0], float).tolist(),
        mass.tolist(),
        radius=[0.0] * count,
        flags=np.where(held, 0, 1).tolist(),
    )
    return builder


def _workload(builder: Any, kind: str, params: Any, state: Any, steps: int, exact: Callable[[Any], float]) -> Workload:
    if kind == "vbd":
        builder.color()
    model = builder.finalize(device="cuda" if jax.default_backend() == "gpu" else "cpu")
    solver = getattr(importlib.import_module("newton").solvers, SOLVERS[kind])(model, iterations=ITERATIONS)
    states, control, h = [model.state(), model.state()], model.control(), float(params.timestep)
    begin = [np.asarray(a[0], np.float32) for a in (state.x, state.v)]

    def fn() -> Any:
        now, new = states
        now.particle_q.assign(begin[0])
        now.particle_qd.assign(begin[1])
        for _ in range(steps):
            now.clear_forces()
            solver.step(now, new, control, None, h)
            now, new = new, now
        return now.particle_q.numpy()  # waits for it

    return Workload(fn, (), exact, jit=False)
