"""Arguments of rods: what is refused before anything runs, and what a step finds to be wrong."""

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import units
from ..errors import ModelError
from ..math import quat_unit
from ..particles.arguments import known, row
from ..worlds import Status, choose, flag, idle, is_nonfinite, sound
from .arguments import expect_finite, expect_lines, expect_pins
from .chain import Rows, rows
from .mesh import Topology, measures

if TYPE_CHECKING:
    from .rod import Params, State

Array = jax.Array


@functools.lru_cache(16)
def joints_of(topology: Topology) -> np.ndarray:
    e, n = topology.elements, topology.num_vertices
    meeting = np.bincount(e.ravel(), minlength=n)
    if (meeting > 2).any():
        raise ModelError(f"at vertex {np.argmax(meeting > 2)} more than two edges meet: a rod does not branch")
    into, out = np.full(n, -1), np.full(n, -1)
    into[e[:, 1]], out[e[:, 0]] = np.arange(len(e)), np.arange(len(e))
    there = (into >= 0) & (out >= 0)
    if (wrong := (meeting == 2) & ~there).any():
        raise ModelError(f"at vertex {np.argmax(wrong)} two edges run against each other: swap the vertices of one")
    return np.stack([into[there], out[there]], 1).astype(np.int32)


@functools.lru_cache(16)
def lines_of(topology: Topology) -> Rows:
    return rows(joints_of(topology), len(topology.elements))


def expect(params: "Params") -> None:
    """Refuse structure that cannot be; ValueError, ModelError."""
    shape = getattr(getattr(params.mesh, "vertices", None), "shape", None)
    if shape is None:
        return  # JAX rebuilds trees with other things in the place of leaves
    topology = params.mesh.topology
    if topology.corners != 2 or shape[-1] != 3:
        raise ModelError("a rod is a mesh of edges in space: make it with mesh.rope, or mesh.build")
    expect_pins(params.pinned, topology.num_vertices)
    edges = len(topology.elements)
    if params.clamped and not 0 <= params.clamped[0] <= params.clamped[-1] < edges:
        raise ValueError(f"params.clamped has {params.clamped}: the mesh has {edges} edges, 0 to {edges - 1}")
    if params.substeps < 1 or params.substeps != int(params.substeps):
        raise ValueError(f"params.substeps is {params.substeps}: give a whole number, one at least")
    joints_of(topology)


EACH = {"density": "edge", "stretch": "edge", "bend": "joint", "twist": "joint"}  # what each has a number for

POSITIVE = ("density", "radius", "timestep")
OTHERS = ("stretch", "bend", "twist", "damping", "thickness")


def rows_of(params: "Params", dtype: Any) -> "Params":
    """All numbers with the world axis first, in the precision of the state."""
    topology = params.mesh.topology
    sizes = {"edge": len(topology.elements), "joint": len(joints_of(topology))}
    vertices = params.mesh.vertices
    vertices = vertices.astype(dtype) if isinstance(vertices, np.ndarray) else vertices
    mesh = params.mesh.replace(vertices=row("mesh.vertices", vertices, (topology.num_vertices, 3), dtype))
    found = {
        name: row(f"params.{name}", getattr(params, name), (sizes[EACH[name]],) if name in EACH else (), dtype)
        for name in (*POSITIVE, *OTHERS)
    }
    return params.replace(mesh=mesh, gravity=row("params.gravity", params.gravity, (3,), dtype, vector=True), **found)


def bare(params: "Params") -> "Params":
    """Params without quantities."""
    mesh = units.bare(params.mesh, {"vertices": units.length}, "mesh")
    kinds = {"timestep": units.duration, "gravity": units.acceleration, "damping": units.frequency}
    kinds |= {"thickness": units.length, "radius": units.length}
    return units.bare(params, kinds, "params").replace(mesh=mesh)


def simulable(params: "Params") -> Array:
    """Worlds whose parameters can be simulated, bool, (1 | world,)."""
    p = jax.lax.stop_gradient(params)
    fine = sound([p.mesh.vertices, p.gravity]) & (measures(p.mesh.vertices, p.mesh.elements) > 0).all(1)
    for name in (*POSITIVE, *OTHERS):
        value = getattr(p, name).reshape(len(getattr(p, name)), -1)
        fine = fine & sound([value]) & ((value > 0) if name in POSITIVE else (value >= 0)).all(1)
    return fine


def screen(params: "Params", state: "State", loads: tuple[Array, ...], colliders: Any) -> tuple[Any, ...]:
    """The arguments, harmless in worlds that do not take the step, and fault bits, uint32, (world,)."""
    count = len(state.status)
    still = ~sound([state.x, state.v, state.q, state.spin], count) | is_nonfinite(state.status)
    leaves = [leaf for leaf in jax.tree.leaves(colliders) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    bad = ~sound([*loads, *leaves], count)
    bits = flag(Status.NONFINITE, still) | flag(Status.BADCTRL, bad) | flag(Status.BADPARAM, ~simulable(params))
    stop = idle(bits)

    def calm(value: Array, instead: Any) -> Array:
        return choose(stop if len(value) == count else stop.all()[None], instead, value)

    line = jnp.zeros((1, *params.mesh.vertices.shape[1:]), state.x.dtype)
    line = line.at[0, :, 0].set(jnp.arange(line.shape[1], dtype=line.dtype))
    mesh = params.mesh.replace(vertices=calm(params.mesh.vertices, line))
    safe = {name: calm(getattr(params, name), 1) for name in (*POSITIVE, *OTHERS)}
    unit = jnp.asarray([[[1.0, 0.0, 0.0, 0.0]]], state.x.dtype)
    q = quat_unit(calm(state.q, unit))
    state = state.replace(x=calm(state.x, line), v=calm(state.v, 0), q=q, spin=calm(state.spin, 0))
    force, torque, pins, turns = loads
    loads = calm(force, 0), calm(torque, 0), calm(pins, 0), calm(turns, unit)
    params = params.replace(mesh=mesh, gravity=calm(params.gravity, 0), **safe)
    return params, state, loads, jax.tree.map(lambda leaf: calm(leaf, 1), colliders), bits


def refuse(params: "Params") -> None:
    """Refuse values that are known to be wrong before anything runs; ValueError."""
    expect_finite("params.gravity", params.gravity)
    expect_lines("params.mesh", params.mesh.vertices, params.mesh.topology.elements)
    for name in (*POSITIVE, *OTHERS):
        if (given := known(getattr(params, name))) is None:
            continue
        value, positive = np.asarray(given[0]), name in POSITIVE
        if (wrong := ~(np.isfinite(value) & ((value > 0) if positive else (value >= 0)))).any():
            which = f" of {EACH[name]} {np.argwhere(wrong)[0][-1]}" if name in EACH and value.size > 1 else ""
            most = "positive and finite" if positive else "finite and not negative"
            raise ValueError(f"params.{name}{which} is {value[wrong].flat[0]}: it must be {most}")
