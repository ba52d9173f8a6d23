"""Arguments of finite elements: what is refused before anything runs, and what a step finds to be wrong."""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import UnsupportedError
from ..particles.arguments import array, expect_fields, known, row
from .arguments import expect_pins
from .materials import Law
from .mesh import NAMES, measures

if TYPE_CHECKING:
    from .fem import Params, State

Array = jax.Array

_RANGES = {"density": (0.0, np.inf), "young": (0.0, np.inf), "poisson": (-1.0, 0.5)}
"""Open intervals that a law's numbers must lie in."""


class Given(NamedTuple):
    """Parameters with the world axis first, of size 1 if worlds share them."""

    rest: Array  # (1 | world, vertex, dim)
    density: Array  # this and the next two: (1 | world, element)
    young: Array
    poisson: Array
    timestep: Array  # (1 | world,)
    gravity: Array  # (1 | world, dim)
    damping: Array  # (1 | world,)


def expect_mesh(params: "Params") -> None:
    """Refuse a body that this solver does not have, and pins that are not vertices.

    Raises:
        TypeError: it is no mesh, or no law. UnsupportedError: its elements. ValueError: a pin is out of range.
    """
    body, law = params.mesh, params.material
    shape = getattr(getattr(body, "vertices", None), "shape", None)
    if shape is None or not isinstance(law, Law):
        return  # JAX rebuilds trees with other things in the place of leaves
    corners, n = body.topology.corners, body.topology.num_vertices
    if len(shape) >= 2 and corners != shape[-1] + 1:
        raise UnsupportedError(
            f"fem takes tetrahedra in space or triangles in the plane, not elements of {NAMES[corners]} kind with "
            f"{shape[-1]} coordinates: membranes, shells and ropes are not there yet"
        )
    if getattr(law, "plane_stress", False) and corners == 4:
        raise ValueError("material.plane_stress is for triangles in the plane: the mesh has tetrahedra")
    expect_pins(params.pinned, n)
    if params.iterations < 1:
        raise ValueError(f"params.iterations is {params.iterations}: give one at least")


def gathered(params: "Params", state: "State") -> Given:
    """The parameters, in the precision of the state.

    Raises:
        ValueError: a shape. TypeError: a dtype.
    """
    count, dtype, e = len(state.x), state.x.dtype, len(params.mesh.elements)
    n, dim = params.mesh.topology.num_vertices, params.mesh.dim
    if state.x.ndim != 3 or state.x.shape[1:] != (n, dim):
        raise ValueError(f"state.x has shape {state.x.shape}, must be (num_worlds, {n}, {dim}): the mesh's vertices")
    expect_fields(state, {"v": (dim,)}, (), "fem.init")
    vertices = params.mesh.vertices
    vertices = vertices.astype(dtype) if isinstance(vertices, np.ndarray) else vertices  # from a file or a shape
    law = params.material
    given = Given(
        row("mesh.vertices", vertices, (n, dim), dtype),
        _field("material.density", law.density, e, dtype),
        _field("material.young", law.young, e, dtype),
        _field("material.poisson", law.poisson, e, dtype),
        row("params.timestep", params.timestep, (), dtype),
        row("params.gravity", params.gravity, (dim,), dtype, vector=True),
        row("params.damping", params.damping, (), dtype),
    )
    for name, value in given._asdict().items():
        if len(value) not in (1, count):
            raise ValueError(
                f"{name} is given for {len(value)} worlds, there are {count}: give one for all, or one for each"
            )
    return given


def is_solid(rest: Array, elements: np.ndarray) -> Array:
    """Worlds whose elements all have a volume at rest, bool, (1 | world,)."""
    size = measures(jax.lax.stop_gradient(rest), elements)
    return ((size > 0) & jnp.isfinite(size)).all(1)


def simulable(given: Given) -> Array:
    """Worlds whose numbers can be simulated, bool, (1 | world,)."""
    g = jax.lax.stop_gradient(given)
    fine = (g.timestep > 0) & (g.damping >= 0) & jnp.isfinite(g.damping) & jnp.isfinite(g.gravity).all(1)
    for name, (low, high) in _RANGES.items():
        value = getattr(g, name)
        fine = fine & ((value > low) & (value < high)).all(1)
    return fine


def refuse(params: "Params") -> None:
    """Refuse values that are known to be wrong before anything runs; ValueError."""
    for name, (low, high) in _RANGES.items():
        given = known(getattr(params.material, name))
        if given is not None and (wrong := ~((given[0] > low) & (given[0] < high))).any():
            most = f"below {high:g}" if high < np.inf else "finite"
            which = f", first in element {np.argwhere(wrong)[0][-1]}" if np.size(given[0]) > 1 else ""
            raise ValueError(
                f"{type(params.material).__name__}.{name} is {np.asarray(given[0])[wrong].flat[0]}{which}: it must be "
                f"above {low:g} and {most}"
            )
    step, damping = known(params.timestep), known(params.damping)
    if step is not None and not (step[0] > 0).all():
        raise ValueError(f"params.timestep is {step[0]}: it must be positive, or infinite for the equilibrium")
    if damping is not None and not ((damping[0] >= 0) & np.isfinite(damping[0])).all():
        raise ValueError(f"params.damping is {damping[0]}: it must be finite and not negative")
    if (vertices := known(params.mesh.vertices)) is not None:
        size = measures(vertices[0].astype(float), params.mesh.elements)
        if (flat := ~(size > 0)).any():
            e = np.argwhere(flat)[0][-1]
            raise ValueError(
                f"element {e} of the mesh is inside out or has no extent at rest, its volume is {size[flat][0]:.3g}: "
                f"move its vertices {params.mesh.elements[e].tolist()}, or make the mesh with mesh.build"
            )


def _field(name: str, value: Any, elements: int, dtype: Any) -> Array:
    """A number for each element, (1 | world, element), from a number, (element,), (1 | world, 1 | element)."""
    value = array(name, value, dtype)
    value = value.reshape((1,) * (2 - value.ndim) + value.shape)
    if value.ndim != 2 or value.shape[1] not in (1, elements):
        raise ValueError(
            f"{name} has shape {value.shape}, must be a number, ({elements},) for the elements, or (1 | num_worlds, 1) "
            f"or (1 | num_worlds, {elements})"
        )
    return jnp.broadcast_to(value, (len(value), elements))
