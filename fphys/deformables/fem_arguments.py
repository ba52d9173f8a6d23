"""Arguments of finite elements: what is refused before anything runs, and what a step finds to be wrong."""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import units
from ..errors import UnsupportedError
from ..math import quat_turned, quat_unit
from ..model.arguments import whole_number
from ..particles.arguments import array, expect_fields, kind_of, known, row
from ..particles.boundary import Collider, prepared, shape_number
from ..tree import Tree, pytree, static
from .arguments import expect_finite, expect_pins, for_worlds
from .materials import Law, NeoHookean, StVenantKirchhoff
from .mesh import NAMES, Mesh, measures

if TYPE_CHECKING:
    from .fem import Params, State

Array = jax.Array

_RANGES = {"density": (0.0, np.inf), "young": (0.0, np.inf), "poisson": (-1.0, 0.5)}
"""Open intervals that a law's numbers must lie in."""

AUXETIC = -5 / 7
"""Poisson's ratio of a Neo-Hookean sheet, below which its modulus lambda + 5/6 mu, in plane stress, is negative."""

STIFFNESS, THICKNESS = 10.0, 0.05
"""Of contact, where none is given: the stiffness of ten elements' pressure, and a twentieth of their edges."""

STICKY = 1e3
"""The coefficient of friction of a collider that sticks."""


_BENDING = units.Kind("bending stiffness", (2, 1, -2), "N m")

_CONTACT = {
    "stiffness": units.Kind("stiffness of contact", (-2, 1, -2), "Pa/m"),
    "thickness": units.length,
    "slip": units.velocity,
}


@pytree
class Contact(Tree):
    """How a body meets colliders, and itself. Numbers, arrays of shape () or (1 | world,), or quantities of either.

    With itself (``pairs``) it must begin free of crossings, its sides that share no vertex farther apart than
    ``thickness``.
    """

    stiffness: Any = None  # pressure by depth [Pa/m]; by default ten times the mean of Young's moduli over an edge
    thickness: Any = None  # how far from a collider contact begins [m]; by default a twentieth of an edge
    slip: Any = 1e-3  # speed [m/s] from which friction has its full size
    friction: Any = 0.0  # of the body with itself
    pairs: int = static(default=0)  # room for pairs of the body with itself; 0: it does not meet itself


class Given(NamedTuple):
    """Parameters with the world axis first, of size 1 if worlds share them."""

    rest: Array  # (1 | world, vertex, dim)
    density: Array  # this and the next two: (1 | world, element)
    young: Array
    poisson: Array
    timestep: Array  # (1 | world,)
    gravity: Array  # (1 | world, dim)
    damping: Array  # this and the rest: (1 | world,)
    stiffness_damping: Array
    stiffness: Array
    thickness: Array
    slip: Array
    friction: Array
    thick: Array  # of triangles, and their bending stiffness; (1 | world, element)
    bending: Array


def is_sheet(body: Mesh) -> bool:
    """Whether a mesh is of triangles in space."""
    return body.topology.corners == 3 and np.shape(body.vertices)[-1] == 3


def ranges(params: "Params") -> dict[str, tuple[float, float]]:
    """Open intervals that the numbers of this body's law must lie in."""
    low = AUXETIC if is_sheet(params.mesh) and isinstance(params.material, NeoHookean) else -1.0
    return _RANGES | {"poisson": (low, 0.5)}


def bare(params: "Params") -> "Params":
    """Params without quantities.

    Raises:
        TypeError: a mesh or a law of another kind, such as one of particles. UnitError: a quantity of another kind.
    """
    for name, kind, example in (("mesh", Mesh, "mesh.box(...)"), ("material", Law, "fem.NeoHookean(...)")):
        if not isinstance(given := getattr(params, name), kind):
            raise TypeError(f"params.{name} is a {kind_of(given)}: give {example}, or another of fphys.deformables")
    material = units.bare(params.material, params.material.kinds, type(params.material).__name__)
    body = units.bare(params.mesh, {"vertices": units.length}, "mesh")
    contact = units.bare(params.contact, _CONTACT, "contact")
    kinds = {"timestep": units.duration, "gravity": units.acceleration, "damping": units.frequency}
    kinds |= {"stiffness_damping": units.duration, "thickness": units.length, "bending": _BENDING}
    return units.bare(params, kinds, "params").replace(material=material, mesh=body, contact=contact)


def expect_mesh(params: "Params") -> None:
    """Refuse a body that this solver does not have, and pins that are not vertices.

    Raises:
        TypeError: its contact is no Contact. UnsupportedError: its elements. ValueError: a pin is out of range.
    """
    body, law = params.mesh, params.material
    shape = getattr(getattr(body, "vertices", None), "shape", None)
    if shape is None or not isinstance(law, Law):
        return  # JAX rebuilds trees with other things in the place of leaves
    corners, n = body.topology.corners, body.topology.num_vertices
    if len(shape) < 2:
        return
    sheet = is_sheet(body)
    if corners != shape[-1] + 1 and not sheet:
        raise UnsupportedError(
            f"fem takes tetrahedra, and triangles in the plane or in space, not elements of {NAMES[corners]} kind with "
            f"{shape[-1]} coordinates: for ropes see pbd and rod"
        )
    for name in ("thickness", "bending"):
        if getattr(params, name) is not None and not sheet:
            raise ValueError(f"params.{name} is for sheets, triangles in space: leave it out for other bodies")
    if sheet and params.thickness is None:
        raise ValueError("params.thickness is missing: a sheet, of triangles in space, needs it [m]")
    if sheet and params.mean_dilatation:
        raise UnsupportedError("params.mean_dilatation is for bodies with a volume: a sheet is in plane stress")
    if getattr(law, "plane_stress", False) and corners == 4:
        raise ValueError("material.plane_stress is for triangles in the plane: the mesh has tetrahedra")
    if params.mean_dilatation and isinstance(law, StVenantKirchhoff):
        raise UnsupportedError(
            "params.mean_dilatation needs an energy of J: NeoHookean or Corotated; StVenantKirchhoff has none"
        )
    expect_pins(params.pinned, n)
    if not isinstance(params.contact, Contact):
        raise TypeError(f"params.contact is a {kind_of(params.contact)}: give fem.Contact(...)")
    if whole_number("params.contact.pairs", params.contact.pairs) < 0:
        raise ValueError(
            f"params.contact.pairs is {params.contact.pairs}: give room for pairs, or 0 for no self-contact"
        )
    if params.contact.pairs and shape[-1] == 2:
        raise UnsupportedError("params.contact.pairs is for bodies in space: in the plane a body does not meet itself")
    if params.explicit:
        given = {"a sheet": sheet, "mean_dilatation": params.mean_dilatation, "order=2": params.order == 2}
        given |= {"contact.pairs": params.contact.pairs}
        for what, there in given.items():
            if there:
                raise UnsupportedError(f"explicit steps do not take {what}: leave it out, or params.explicit")
    if whole_number("params.iterations", params.iterations) < 1:
        raise ValueError(f"params.iterations is {params.iterations}: give one at least")
    if params.order not in (1, 2):
        raise ValueError(f"params.order is {params.order}: it is 1 (implicit Euler) or 2 (two solves a step)")


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
    law, sheet = params.material, is_sheet(params.mesh)
    rest, young = row("mesh.vertices", vertices, (n, dim), dtype), _field("material.young", law.young, e, dtype)
    poisson = _field("material.poisson", law.poisson, e, dtype)
    thick = _field("params.thickness", params.thickness if sheet else 1.0, e, dtype)
    bending = params.bending
    if bending is None:
        safe = jnp.where(jnp.abs(poisson) < 1, poisson, 0)
        bending = young * thick**3 / (12 * (1 - safe**2)) if sheet else 0.0
    touch, edge = params.contact, mean_edge(rest, params.mesh.elements)
    stiffness = touch.stiffness
    if stiffness is None:
        stiffness = STIFFNESS * young.mean(1) / edge * (thick.mean(1) / edge if sheet else 1)
    given = Given(
        rest,
        _field("material.density", law.density, e, dtype),
        young,
        poisson,
        row("params.timestep", params.timestep, (), dtype),
        row("params.gravity", params.gravity, (dim,), dtype, vector=True),
        row("params.damping", params.damping, (), dtype),
        row("params.stiffness_damping", params.stiffness_damping, (), dtype),
        row("contact.stiffness", stiffness, (), dtype),
        row("contact.thickness", THICKNESS * edge if touch.thickness is None else touch.thickness, (), dtype),
        row("contact.slip", touch.slip, (), dtype),
        row("contact.friction", touch.friction, (), dtype),
        thick,
        _field("params.bending", bending, e, dtype),
    )
    return for_worlds(given, count, "")


def mean_edge(rest: Array, elements: np.ndarray) -> Array:
    """A length that elements have, from their mean extent [m], (1 | world,)."""
    dim, size = elements.shape[1] - 1, measures(rest, elements).mean(1)
    return jnp.maximum((6.0 if dim == 3 else 2.0) * size, 1e-30) ** (1 / dim)


def areas(rest: Array, topology: Any, pinned: tuple[int, ...]) -> Array:
    """What each vertex has of the surface at rest [m^2], (1 | world, vertex); pinned and inner ones nothing."""
    sides = topology.elements if topology.corners == rest.shape[-1] else topology.surface  # all of a sheet
    part = measures(rest, sides) / sides.shape[1]
    total = jnp.zeros(rest.shape[:2], rest.dtype).at[:, sides.T].add(part[:, None])
    return total.at[:, list(pinned)].set(0)


class Shapes(NamedTuple):
    """Colliders side by side, (1 | world, collider, ...)."""

    pos: Array
    quat: Array
    size: Array
    velocity: Array
    spin: Array
    friction: Array
    samples: Array  # of all fields, one after the other, (1 | world, sample)

    def after(self, time: Array) -> tuple[Array, Array]:
        """Positions and orientations after a time [s], (world,), at these velocities."""
        time = time[:, None, None]
        return self.pos + time * self.velocity, quat_turned(quat_unit(self.quat), time * self.spin)


def side_by_side(colliders: tuple[Collider, ...], dtype: Any, dim: int, worlds: int) -> tuple[Any, Shapes]:
    """Numbers of the colliders' shapes with how many samples they have and which is their first, and their arrays.

    Raises:
        ValueError, TypeError: a collider that does not fit, by name. UnsupportedError: one that fem does not have.
    """
    made = [prepared(c, i, dtype, dim, worlds) for i, c in enumerate(colliders)]
    for i, c in enumerate(made):
        if c.contact not in ("separate", "sticky"):
            raise UnsupportedError(f'colliders[{i}].contact is {c.contact!r}: fem has "separate" and "sticky"')
        if c.contact == "sticky":
            made[i] = c.replace(friction=jnp.full_like(c.friction, STICKY))
    if not made:
        none = {name: jnp.zeros((1, 0, 4 if name == "quat" else 3), dtype) for name in Shapes._fields}
        return (), Shapes(**none)._replace(friction=jnp.zeros((1, 0), dtype), samples=jnp.zeros((1, 1), dtype))

    def stacked(name: str, join: Any = jnp.stack) -> Array:
        given = [getattr(c, name) for c in made]
        rows = max(len(a) for a in given)
        return join([jnp.broadcast_to(a, (rows, *a.shape[1:])) for a in given], 1)

    first = np.cumsum([0, *(c.samples.shape[1] for c in made)]).tolist()
    numbers = tuple((shape_number(c.shape), c.count, at) for c, at in zip(made, first, strict=False))
    shapes = {name: stacked(name) for name in Shapes._fields if name != "samples"}
    return numbers, Shapes(**shapes, samples=stacked("samples", jnp.concatenate))


def is_solid(rest: Array, elements: np.ndarray) -> Array:
    """Worlds whose elements all have a volume at rest, bool, (1 | world,)."""
    size = measures(jax.lax.stop_gradient(rest), elements)
    return ((size > 0) & jnp.isfinite(size)).all(1)


def simulable(params: "Params", given: Given) -> Array:
    """Worlds whose numbers can be simulated, bool, (1 | world,)."""
    g = jax.lax.stop_gradient(given)
    fine = (g.timestep > 0) & jnp.isfinite(g.gravity).all(1)
    for value in (g.damping, g.stiffness_damping, g.friction):
        fine = fine & (value >= 0) & jnp.isfinite(value)
    for value in (g.stiffness, g.thickness, g.slip):
        fine = fine & (value > 0) & jnp.isfinite(value)
    fine = fine & ((g.thick > 0) & jnp.isfinite(g.thick) & (g.bending >= 0) & jnp.isfinite(g.bending)).all(1)
    for name, (low, high) in ranges(params).items():
        value = getattr(g, name)
        fine = fine & ((value > low) & (value < high)).all(1)
    return fine


def refuse(params: "Params") -> None:
    """Refuse values that are known to be wrong before anything runs; ValueError."""
    expect_finite("params.gravity", params.gravity)
    for name, (low, high) in ranges(params).items():
        given = known(getattr(params.material, name))
        if given is not None and (wrong := ~((given[0] > low) & (given[0] < high))).any():
            value = np.asarray(given[0])[wrong].flat[0]
            most = f"below {high:g}" if high < np.inf else "finite"
            most += ", or this law is unstable in a sheet" if low == AUXETIC and value <= low else ""
            which = f", first in element {np.argwhere(wrong)[0][-1]}" if np.size(given[0]) > 1 else ""
            raise ValueError(
                f"{type(params.material).__name__}.{name} is {value}{which}: it must be above {low:g} and {most}"
            )
    step = known(params.timestep)
    if step is not None and not (step[0] > 0).all():
        raise ValueError(f"params.timestep is {step[0]}: it must be positive, or infinite for the equilibrium")
    if step is not None and (params.order == 2 or params.explicit) and not np.isfinite(step[0]).all():
        how = "params.explicit set" if params.explicit else "params.order 2"
        raise ValueError(f"params.timestep is infinite and {how}: for the equilibrium leave the order at 1, implicit")
    for name, least, must in (("thickness", 1e-30, "positive"), ("bending", 0.0, "not negative")):
        given = getattr(params, name)
        value = None if given is None else known(given)
        if value is not None and not ((value[0] >= least) & np.isfinite(value[0])).all():
            raise ValueError(f"params.{name} is {value[0]}: it must be finite and {must}")
    for holder, name in ((params, "damping"), (params, "stiffness_damping"), (params.contact, "friction")):
        value = known(getattr(holder, name))
        if value is not None and not ((value[0] >= 0) & np.isfinite(value[0])).all():
            where = "params" if holder is params else "params.contact"
            raise ValueError(f"{where}.{name} is {value[0]}: it must be finite and not negative")
    damped = known(params.stiffness_damping)
    if params.explicit and damped is not None and damped[0].any():
        raise ValueError("params.stiffness_damping is given: explicit steps are damped by mass only (params.damping)")
    for name in ("stiffness", "thickness", "slip"):
        given = getattr(params.contact, name)
        value = None if given is None else known(given)
        if value is not None and not ((value[0] > 0) & np.isfinite(value[0])).all():
            raise ValueError(f"params.contact.{name} is {value[0]}: it must be finite and positive")
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
