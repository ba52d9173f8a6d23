"""Arguments of XPBD: what is refused before anything runs, and what a step finds to be wrong."""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import units
from ..particles.arguments import known, row
from ..particles.neighbors import in_space
from ..worlds import Status, choose, flag, idle, is_nonfinite, sound
from . import constraints
from .arguments import anywhere, expect_finite, expect_pins
from .mesh import measures

if TYPE_CHECKING:
    from .pbd import Params, State

Array = jax.Array

FLAT = 1e-6
"""A mesh counts as straight if its bends at rest are below this, relative to a bend by a right angle."""


def expect(params: "Params") -> None:
    """Refuse structure that cannot be; ValueError."""
    shape = getattr(getattr(params.mesh, "vertices", None), "shape", None)
    if shape is None:
        return  # JAX rebuilds trees with other things in the place of leaves
    expect_pins(params.pinned, params.mesh.topology.num_vertices)
    if params.substeps < 1 or params.substeps != int(params.substeps):
        raise ValueError(f"params.substeps is {params.substeps}: give a whole number, one at least")
    if not 0 <= params.apart < np.inf:
        raise ValueError(f"params.apart is {params.apart}: give the distance that vertices keep [m], or 0")
    if params.neighbors < 1:
        raise ValueError(f"params.neighbors is {params.neighbors}: give room for one at least")
    corners = params.mesh.topology.corners
    if params.bend is not None and corners == 4:
        raise ValueError("params.bend is for ropes and cloth: the mesh has tetrahedra")
    if params.curved and (corners != 3 or params.bend is None):
        raise ValueError("params.curved is for cloth that bends: give triangles and params.bend, or leave it out")
    if params.squeeze is not None and corners == 2:
        raise ValueError("params.squeeze is for triangles and tetrahedra: the mesh has edges")


EACH = {"density": "element", "stretch": "edge", "squeeze": "element", "bend": "bend"}
"""What each field has a number for."""


def rows(params: "Params", dtype: Any) -> "Params":
    """All numbers with the world axis first, in the precision of the state."""
    topology = params.mesh.topology
    sizes = {"element": len(topology.elements), "edge": len(constraints.edges(topology))}
    sizes["bend"] = len(constraints.bends(topology)) if topology.corners < 4 else 0
    vertices = params.mesh.vertices
    vertices = vertices.astype(dtype) if isinstance(vertices, np.ndarray) else vertices  # from a file or a shape
    mesh = params.mesh.replace(vertices=row("mesh.vertices", vertices, (topology.num_vertices, params.mesh.dim), dtype))
    each = {
        name: row(f"params.{name}", getattr(params, name), (sizes[what],), dtype)
        for name, what in EACH.items()
        if getattr(params, name) is not None
    }
    own = {
        name: row(f"params.{name}", getattr(params, name), (), dtype)
        for name in ("timestep", "damping", "thickness", "friction")
    }
    gravity = row("params.gravity", params.gravity, (params.mesh.dim,), dtype, vector=True)
    return params.replace(mesh=mesh, gravity=gravity, **each, **own)


def bare(params: "Params") -> "Params":
    """Params without quantities."""
    mesh = units.bare(params.mesh, {"vertices": units.length}, "mesh")
    kinds = {"timestep": units.duration, "gravity": units.acceleration, "damping": units.frequency}
    return units.bare(params, kinds | {"thickness": units.length}, "params").replace(mesh=mesh)


def simulable(params: "Params") -> Array:
    """Worlds whose parameters can be simulated, bool, (1 | world,)."""
    p = jax.lax.stop_gradient(params)
    fine = (p.timestep > 0) & jnp.isfinite(p.timestep) & (p.damping >= 0) & (p.thickness >= 0) & (p.friction >= 0)
    fine = (
        fine
        & sound([p.mesh.vertices, p.density, p.gravity, p.damping, p.thickness, p.friction])
        & (p.density > 0).all(1)
    )
    for name in ("stretch", "squeeze", "bend"):
        if (value := getattr(p, name)) is not None:
            fine = fine & (sound([value]) & (value >= 0).all(1))
    return fine & (measures(in_space(p.mesh.vertices), p.mesh.elements) > 0).all(1)


def screen(
    params: "Params", state: "State", force: Array, pins: Array, colliders: Any
) -> tuple["Params", "State", Array, Array, Any, Array]:
    """The arguments, harmless in worlds that do not take the step, and fault bits, uint32, (world,)."""
    count = len(state.status)
    still = ~sound([state.x, state.v], count) | is_nonfinite(state.status)
    leaves = [leaf for leaf in jax.tree.leaves(colliders) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    bad = ~sound([force, pins, *leaves], count)
    bits = flag(Status.NONFINITE, still) | flag(Status.BADCTRL, bad) | flag(Status.BADPARAM, ~simulable(params))
    stop = idle(bits)

    def calm(value: Array, instead: Any) -> Array:
        return choose(stop if len(value) == count else stop.all()[None], instead, value)

    rest = jnp.asarray(anywhere(*params.mesh.vertices.shape[-2:]), state.x.dtype)[None]
    mesh = params.mesh.replace(vertices=calm(params.mesh.vertices, rest))
    safe = {name: calm(getattr(params, name), 1) for name in (*EACH, "timestep") if getattr(params, name) is not None}
    safe |= {name: calm(getattr(params, name), 0) for name in ("gravity", "damping", "thickness", "friction")}
    state = state.replace(x=calm(state.x, rest), v=calm(state.v, 0))
    harmless = jax.tree.map(lambda leaf: calm(leaf, 1), colliders)
    return params.replace(mesh=mesh, **safe), state, calm(force, 0), calm(pins, 0), harmless, bits


def refuse(params: "Params", dtype: Any) -> None:
    """Refuse values that are known to be wrong before anything runs; ValueError."""
    expect_finite("params.gravity", params.gravity)
    for name in (*EACH, "timestep", "damping", "thickness", "friction"):
        value, positive = getattr(params, name), name in ("density", "timestep")
        if value is None or (given := known(value)) is None:
            continue
        wrong = ~(np.isfinite(given[0]) & ((given[0] > 0) if positive else (given[0] >= 0)))
        if wrong.any():
            which = f" of {EACH[name]} {np.argwhere(wrong)[0][-1]}" if name in EACH and np.size(given[0]) > 1 else ""
            most = "positive and finite" if positive else "finite and not negative"
            raise ValueError(f"params.{name}{which} is {np.asarray(given[0])[wrong].flat[0]}: it must be {most}")
    if known(*jax.tree.leaves(params.mesh)) is None:
        return
    with jax.ensure_compile_time_eval():
        every = rows(params, dtype)
        rest = in_space(every.mesh.vertices)
        size = np.asarray(measures(rest, params.mesh.elements))
        if not (size > 0).all():
            e = np.argwhere(~(size > 0))[0][-1]
            raise ValueError(f"element {e} of the mesh is inside out or has no extent at rest: make it by mesh.build")
        if params.bend is not None and not params.curved:
            corners, share = constraints.bends(params.mesh.topology), constraints.shares(rest, params.mesh.topology)
            at = rest[:, corners] - rest[:, corners[:, :1]]
            bent = (share[..., None] * at).sum(2)
            most = (jnp.abs(share) * jnp.linalg.norm(at, axis=-1)).sum(-1)
            curved = np.asarray(jnp.linalg.norm(bent, axis=-1) > FLAT * most)
            if curved.any():
                raise ValueError(
                    f"the mesh is bent at rest, first at the vertices {corners[np.argwhere(curved)[0][-1]].tolist()}: "
                    "give params.curved=True for cloth, see rod for ropes; or lay it flat, or leave params.bend out"
                )
