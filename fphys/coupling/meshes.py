"""The borders of rigid bodies with cloth, ropes and soft solids: geoms that keep vertices out."""

from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from .. import units
from ..deformables import fem, fem_exchange, pbd
from ..deformables.mesh import measures, shared
from ..model import Model
from ..particles.arguments import array, several
from ..particles.response import Response
from ..tree import Tree, pytree, static
from ..worlds import IDLE, Status
from .exchange import Held, Pose
from .particles import colliders, geoms_of
from .surfaces import Sheet
from .together import Along

Array = jax.Array


def _velocities(name: str, pins: Any, params: fem.Params | pbd.Params, x: Array) -> Array | None:
    """Of pinned vertices [m/s], shape (1 | world, pinned, dim); None if they rest.

    Raises:
        ValueError: another shape. UnitError: a quantity of another kind.
    """
    if pins is None:
        return None
    given, wanted = jnp.asarray(units.si(pins, units.velocity, name), x.dtype), (len(params.pinned), x.shape[-1])
    rows = given[None] if given.ndim == 2 else given
    if rows.ndim != 3 or len(rows) not in (1, len(x)) or rows.shape[1:] != wanted:
        raise ValueError(
            f"{name} have shape {given.shape}, must be {wanted} or {('1 | num_worlds', *wanted)}: one velocity for "
            "each of params.pinned"
        )
    return rows


def _cast(params: Any, dtype: Any) -> Any:
    """Params whose mesh, if it is from a file or a shape, has the precision of the matter also where it is traced."""
    body = params.mesh
    return params.replace(mesh=body.replace(vertices=body.vertices.astype(dtype))) if _is_numpy(body) else params


def _is_numpy(body: Any) -> bool:
    return isinstance(body.vertices, np.ndarray)


def _carried_on(x: Array, params: fem.Params | pbd.Params, velocity: Array | None) -> Array | None:
    """Where pinned vertices are at the end of a substep; None if they rest."""
    if velocity is None:
        return None
    return x[:, list(params.pinned)] + jnp.asarray(params.timestep, x.dtype).reshape(-1, 1, 1) * velocity


@pytree
class PBD(Held, Tree):
    """Cloth, a rope or a soft solid by XPBD, and the geoms that touch it. ``params.substeps`` is 1."""

    solver: ClassVar[Any] = pbd
    stops: ClassVar[Status] = IDLE
    symmetric: ClassVar[bool] = False
    params: pbd.Params
    geoms: Any = static()  # their names or numbers, or one alone
    pins: Any = None  # velocities of the pinned vertices [m/s], shape (pinned, dim) or (1 | world, pinned, dim)
    contact: str = static(default="separate")  # or "sticky"

    def __post_init__(self) -> None:
        object.__setattr__(self, "geoms", several(self.geoms))

    def bodies(self, model: Model) -> set[int]:
        """Numbers of the bodies of its geoms.

        Raises:
            ModelError: there is no such geom. TypeError: a geom is neither a name nor a whole number.
        """
        return {int(model.structure.geom.body[g]) for g in geoms_of(model, self.geoms)}

    @property
    def explicit(self) -> bool:
        """Whether it meets the bodies as they would move without it: no."""
        return False

    def prepared(self, name: str, model: Model, matter: pbd.State) -> Self:
        """The medium with ``pins`` as an array, and a mesh of the matter's precision.

        Raises:
            ValueError: ``pins`` have another shape. UnitError: they are a quantity of another kind.
        """
        pins = _velocities(f"{name}.pins", self.pins, self.params, matter.x)
        return self.replace(params=_cast(self.params, matter.x.dtype), pins=pins)

    def exchange(
        self,
        model: Model,
        matter: pbd.State,
        pose: Pose,
        response: Response,
        numbers: tuple[int, ...],
        force: Array | None,
        near: Array | None = None,
    ) -> tuple[pbd.State, Array, Along | None]:
        """A substep by :func:`fphys.deformables.pbd.exchange`, as :meth:`Medium.exchange` says.

        The impulses [N s, N m s] have shape (world, body, 6). Gradients flow as there.

        Raises:
            UnsupportedError: a geom is no plane, sphere, capsule or box. ValueError: ``params.substeps`` is not 1.
        """
        shapes, of = colliders(model, self.geoms, pose, numbers, self.contact)
        pins = _carried_on(matter.x, self.params, self.pins)
        if not shapes:
            return pbd.step(self.params, matter, force, pins), jnp.zeros_like(response.twist), None
        after, took, along = pbd.yielding(self.params, matter, shapes, response.replace(body=of), force, pins)
        return after, took, lambda some: along

    def sheet(self, matter: pbd.State) -> Sheet:
        """Its surface, as particles meet it."""
        mass = pbd.masses(self.params, matter.x.dtype)
        return Sheet(matter.x, matter.v, mass, self.params.mesh, _at_rest(self.params, matter.x.dtype))


@pytree
class FEM(Held, Tree):
    """A soft body by finite elements, and the geoms that touch it.

    A substep finds the motion of both together, so that bodies may be light and steps as long as the bodies' own. With
    ``params.order`` 2 it meets the geoms as they would move without it; that is stable while their bodies are heavier
    than the square of the substep times the stiffness of the contact.
    """

    solver: ClassVar[Any] = fem
    stops: ClassVar[Status] = IDLE
    symmetric: ClassVar[bool] = True
    params: fem.Params
    geoms: Any = static()  # their names or numbers, or one alone
    pins: Any = None  # velocities of the pinned vertices [m/s], shape (pinned, dim) or (1 | world, pinned, dim)

    def __post_init__(self) -> None:
        object.__setattr__(self, "geoms", several(self.geoms))

    @property
    def explicit(self) -> bool:
        """Whether it meets the bodies as they would move without it: with ``params.order`` 2."""
        return self.params.order == 2

    def bodies(self, model: Model) -> set[int]:
        """Numbers of the bodies of its geoms.

        Raises:
            ModelError: there is no such geom. TypeError: a geom is neither a name nor a whole number.
        """
        return {int(model.structure.geom.body[g]) for g in geoms_of(model, self.geoms)}

    def prepared(self, name: str, model: Model, matter: fem.State) -> Self:
        """The medium with ``pins`` as an array, and a mesh of the matter's precision.

        Raises:
            ValueError: ``pins`` have another shape. UnitError: they are a quantity of another kind.
        """
        pins = _velocities(f"{name}.pins", self.pins, self.params, matter.x)
        return self.replace(params=_cast(self.params, matter.x.dtype), pins=pins)

    def exchange(
        self,
        model: Model,
        matter: fem.State,
        pose: Pose,
        response: Response,
        numbers: tuple[int, ...],
        force: Array | None,
        near: Array | None = None,
    ) -> tuple[fem.State, Array, Along | None]:
        """A substep by finite elements and contact with the bodies, as :meth:`Medium.exchange` says.

        The impulses [N s, N m s] have shape (world, body, 6). Gradients flow as there.

        Raises:
            UnsupportedError: a geom is no plane, sphere, capsule or box.
        """
        shapes, of = colliders(model, self.geoms, pose, numbers, "separate")
        pins = _carried_on(matter.x, self.params, self.pins)
        if not shapes:
            return fem.step(self.params, matter, force, pins=pins), jnp.zeros_like(response.twist), None
        return fem_exchange.exchange(self.params, matter, shapes, response.replace(body=of), force, pins, near)

    def sheet(self, matter: fem.State) -> Sheet:
        """Its surface, as particles meet it."""
        rest, elements = _at_rest(self.params, matter.x.dtype), self.params.mesh.elements
        density = array("density", units.si(self.params.material.density, units.density, "density"), matter.x.dtype)
        density = density.reshape((1,) * (2 - density.ndim) + density.shape)
        if self.params.thickness is not None:  # a sheet's elements are measured by their areas
            thickness = units.si(self.params.thickness, units.length, "thickness")
            density = density * array("thickness", thickness, matter.x.dtype)
        mass = shared(density * measures(rest, elements), elements, rest.shape[1])
        return Sheet(matter.x, matter.v, mass, self.params.mesh, rest)


def _at_rest(params: fem.Params | pbd.Params, dtype: Any) -> Array:
    """The mesh's vertices [m], (1 | world, vertex, dim)."""
    rest = jnp.asarray(units.si(params.mesh.vertices, units.length, "mesh.vertices"), dtype)
    return rest if rest.ndim == 3 else rest[None]
