"""The borders of rigid bodies with particles: geoms that hold an MPM grid, and walls of SPH particles."""

import functools
from typing import Any, ClassVar, Self

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from .. import units
from ..errors import ModelError, UnsupportedError
from ..math import quat_mul, rotate
from ..model import Model
from ..model.structure import GeomType
from ..particles import mpm, sph
from ..particles.arguments import array, known, row, several
from ..particles.boundary import Collider, endless, local
from ..particles.materials import column
from ..particles.response import Response
from ..tree import Tree, pytree, static
from ..worlds import IDLE, Status
from .exchange import Held, Pose, number_of
from .surfaces import Cloud
from .together import Along

Array = jax.Array

HOLDS = 2.0
"""Thickness of a box that holds MPM's particles, in cells: from both sides at once, nodes keep them apart."""

SHAPES = {t: t.name.lower() for t in (GeomType.PLANE, GeomType.SPHERE, GeomType.CAPSULE, GeomType.BOX)}
"""Geoms that hold matter, and their names in :mod:`fphys.particles.boundary`."""


@pytree
class MPM(Tree):
    """Material points, and the geoms that touch them: planes, spheres, capsules and boxes."""

    solver: ClassVar[Any] = mpm
    stops: ClassVar[Status] = Status.BADPARAM
    symmetric: ClassVar[bool] = False
    params: mpm.Params
    geoms: Any = static()  # their names or numbers, or one alone
    contact: str = static(default="separate")  # one of fphys.particles.boundary.CONTACTS

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

    def prepared(self, name: str, model: Model, matter: mpm.State) -> Self:
        """The medium itself: it carries no arrays."""
        return self

    def exchange(
        self,
        model: Model,
        matter: mpm.State,
        pose: Pose,
        response: Response,
        numbers: tuple[int, ...],
        force: Array | None,
        near: Array | None = None,
    ) -> tuple[mpm.State, Array, Along | None]:
        """A substep by :func:`fphys.particles.mpm.exchange`, as :meth:`Medium.exchange` says.

        The impulses [N s, N m s] have shape (world, body, 6). Gradients flow as there.

        Raises:
            UnsupportedError: an axis is periodic, or a geom is no plane, sphere, capsule or box.
        """
        if "periodic" in self.params.walls.contact:
            raise UnsupportedError("coupling.MPM: bodies have no images, so no axis may be periodic; see mpm.exchange")
        shapes, of = colliders(model, self.geoms, pose, numbers, self.contact)
        if not shapes:
            return mpm.step(self.params, matter, force), jnp.zeros_like(response.twist), None
        after, took, along = mpm.yielding(self.params, matter, shapes, response.replace(body=of), force)
        return after, took, lambda some: along

    @property
    def _limit(self) -> float:
        """How thick a box must be to hold particles [m]."""
        return HOLDS * float(self.params.cell) * (1 - 1e-6)

    def thin(self, model: Model) -> tuple[int, ...]:
        """Numbers of the boxes with an edge too short to hold particles (:data:`HOLDS`), in the plane or out of it."""
        seen = known(model.geom.size)  # if they are traced, the sizes are those of the file
        sizes = model.structure.source.geom_size[None] if seen is None else seen[0]
        return tuple(
            g
            for g in geoms_of(model, self.geoms)
            if model.structure.geom.type[g] == GeomType.BOX and (2 * sizes[:, g] < self._limit).any()
        )

    def through(
        self,
        model: Model,
        geoms: tuple[int, ...],
        numbers: tuple[int, ...],
        poses: tuple[Pose, Pose],
        matter: tuple[mpm.State, mpm.State],
    ) -> Array:
        """Worlds in which a particle passed through a box that is too thin to hold it, bool, shape (world,).

        Args:
            geoms: the boxes.
            poses: of the bodies ``numbers``, before and after.
            matter: before and after.
        """
        found = []
        for boxes in zip(*(colliders(model, geoms, pose, numbers, self.contact)[0] for pose in poses), strict=True):
            before, after = (
                local(jnp.asarray(c.pos), jnp.asarray(c.quat), m.x) for c, m in zip(boxes, matter, strict=True)
            )
            half = jnp.asarray(boxes[0].size)
            half = endless(half, jnp.asarray(boxes[0].quat)) if self.params.dim == 2 else half
            found.append(_crossed(before, after, half, self._limit))
        return functools.reduce(jnp.logical_or, found)

    def cloud(self, matter: mpm.State) -> Cloud:
        """The particles, as surfaces meet them."""
        density = jnp.zeros_like(matter.volume)
        for i, material in enumerate(self.params.materials):
            one = array("density", units.si(material.density, units.density, "density"), matter.x.dtype)
            density = jnp.where(matter.material == i, column(one), density)
        return Cloud(matter.x, matter.v, density * matter.volume, matter.volume)


@pytree
class SPH(Held, Tree):
    """A fluid whose particles come first, and after them the walls, layers of particles that bodies carry.

    The last particles of the state are the walls, in their order: of kind WALL or SLIP_WALL, or EMPTY. Walls among
    the particles before them keep their velocity. Fluid where walls belong is refused on the host; if kinds are
    traced, its world skips the step (BADPARAM).
    """

    solver: ClassVar[Any] = sph
    stops: ClassVar[Status] = IDLE
    symmetric: ClassVar[bool] = False
    params: sph.Params
    walls: Any  # positions of wall particles in the frames of their bodies [m], shape (wall, 3), also in the plane
    body: Any = static()  # name or number of the body of all wall particles, or one for each; 0: world

    def __post_init__(self) -> None:
        body = several(self.body)
        if isinstance(self.body, str | int | np.integer):
            listed = isinstance(self.walls, list | tuple)
            body *= len(self.walls) if listed else (*np.shape(self.walls), 1)[0]
        object.__setattr__(self, "body", body)

    def bodies(self, model: Model) -> set[int]:
        """Numbers of the bodies that carry its walls.

        Raises:
            ModelError: there is no such body. TypeError: a body is neither a name nor a whole number.
        """
        return {number_of(model, "body", b, "SPH.body") for b in set(self.body)}

    @property
    def explicit(self) -> bool:
        """Whether it meets the bodies as they would move without it: yes."""
        return True

    def prepared(self, name: str, model: Model, matter: sph.State) -> Self:
        """The medium with ``walls`` as an array, and ``body`` as numbers.

        Raises:
            ValueError: ``walls`` have another shape or are more than the particles; or, if known on the host, fluid is
                where they belong. ModelError: there is no such body. UnitError: ``walls`` are of another kind.
        """
        count, size = len(self.body), matter.x.shape[1]
        numbers = {b: number_of(model, "body", b, f"{name}.body") for b in set(self.body)}
        walls = jnp.asarray(units.si(self.walls, units.length, f"{name}.walls"), matter.x.dtype)
        if walls.shape != (count, 3):
            raise ValueError(
                f"{name}.walls have shape {walls.shape}, must be {(count, 3)}: three coordinates, also in the plane, "
                f"for each of the {count} in body"
            )
        if count > size:
            raise ValueError(f"{name} has {count} walls, but its state {size} particles: give sph.init the walls, too")
        kinds = _kinds(matter)
        if kinds is not None and (fluid := kinds[:, size - count :] == sph.FLUID).any():
            world, i = np.argwhere(fluid)[0]
            raise ValueError(
                f"{name}: particle {size - count + i} of world {world} is fluid, but the last {count} of {size} "
                "particles are walls: put the fluid first, and give sph.init their material, WALL or SLIP_WALL"
            )
        return self.replace(walls=walls, body=tuple(numbers[b] for b in self.body))

    def exchange(
        self,
        model: Model,
        matter: sph.State,
        pose: Pose,
        response: Response,
        numbers: tuple[int, ...],
        force: Array | None,
        near: Array | None = None,
    ) -> tuple[sph.State, Array, Along | None]:
        """A substep by :func:`fphys.particles.sph.exchange`, as :meth:`Medium.exchange` says.

        The impulses [N s, N m s] have shape (world, body, 6). Gradients flow as there. Walls move as at the
        start of the substep. A world with fluid where walls belong skips it (BADPARAM).

        Raises:
            ValueError: ``params.transport`` is on.
        """
        of, dim = np.searchsorted(numbers, self.body), matter.x.shape[-1]
        walls = jnp.broadcast_to(self.walls, (len(pose.pos), len(of), 3))
        arm, twist = rotate(pose.quat[:, of], walls), pose.twist[:, of]
        velocity = twist[..., :3] + jnp.cross(twist[..., 3:], arm)
        first = matter.x.shape[1] - len(of)
        x = matter.x.at[:, first:].set((pose.pos[:, of] + arm)[..., :dim])
        held = matter.replace(x=x, v=matter.v.at[:, first:].set(velocity[..., :dim]))
        after, push = sph.exchange(self.params, held, force)
        fluid = (matter.kind[:, first:] == sph.FLUID).any(1)
        after = after.replace(status=jnp.where(fluid, matter.status | int(Status.BADPARAM), after.status))
        push = jnp.pad(push[:, first:], ((0, 0), (0, 0), (0, 3 - dim)))
        push = push * jnp.asarray(self.params.timestep, push.dtype).reshape(-1, 1, 1)
        each = jnp.concatenate([push, jnp.cross(arm, push)], -1)
        return after, jnp.zeros_like(response.twist).at[:, of].add(each), None

    def cloud(self, matter: sph.State) -> Cloud:
        """The fluid's particles, as surfaces meet them; walls feel none."""
        density = row("density", units.si(self.params.density, units.density, "density"), (), matter.x.dtype)
        volume = jnp.full(matter.kind.shape, self.params.spacing ** matter.x.shape[-1], matter.x.dtype)
        return Cloud(matter.x, matter.v, jnp.where(matter.kind == sph.FLUID, density[:, None] * volume, 0), volume)


def _kinds(matter: sph.State) -> np.ndarray | None:
    """What particles are, shape (world, particle); None if it is traced, or spread over processes."""
    kind = matter.kind
    if isinstance(kind, jax.core.Tracer) or not getattr(kind, "is_fully_addressable", True):
        return None
    return np.asarray(kind)


def _crossed(before: Array, after: Array, half: Array, limit: float) -> Array:
    """Worlds in which a particle went from one side of a box's middle to the other, across an edge below a limit [m].

    What is nearer to a rim than a cell flows around it: nodes tell no better.

    Args:
        before, after: positions in the box's axes [m], shape (world, n, 3).
        half: half its edges [m], shape (1 | world, 3).
    """
    before, after, half = jax.lax.stop_gradient((before, after, half))
    half = half[:, None]
    inner = half - limit / HOLDS
    beside = (jnp.abs(before) < inner) & (jnp.abs(after) < inner)
    around = jnp.stack([beside[..., [1, 2]].all(-1), beside[..., [0, 2]].all(-1), beside[..., [0, 1]].all(-1)], -1)
    return ((before * after < 0) & around & (2 * half < limit)).any((1, 2))


def geoms_of(model: Model, geoms: tuple[str | int, ...]) -> tuple[int, ...]:
    """Numbers of geoms.

    Raises:
        ModelError: there is no such geom, or one is named twice. TypeError: neither a name nor a whole number.
    """
    found = tuple(number_of(model, "geom", g, "geoms") for g in geoms)
    twice = [g for i, g in enumerate(found) if g in found[:i]]
    if twice:
        raise ModelError(f"geoms names geom {twice[0]} twice: it would act twice, so give it once")
    return found


def colliders(
    model: Model, geoms: tuple[str | int, ...], pose: Pose, numbers: tuple[int, ...], contact: str
) -> tuple[tuple[Collider, ...], tuple[int, ...]]:
    """Geoms as shapes at the poses of their bodies, and each one's place among the bodies.

    Raises:
        ModelError: there is no such geom. UnsupportedError: a geom is of another shape.
    """
    s, worlds, made = model.structure, len(pose.pos), []
    geoms = geoms_of(model, geoms)
    of = tuple(numbers.index(int(s.geom.body[g])) for g in geoms)
    for g, b in zip(geoms, of, strict=True):
        kind, quat = GeomType(int(s.geom.type[g])), pose.quat[:, b]
        if kind not in SHAPES:
            raise UnsupportedError(f"geom {g} is a {kind.name.lower()}: planes, spheres, capsules, boxes hold matter")
        arm, own, size = (
            jnp.broadcast_to(a[:, g], (worlds, a.shape[-1])) for a in (model.geom.pos, model.geom.quat, model.geom.size)
        )
        if kind == GeomType.PLANE:
            size = jnp.broadcast_to(jnp.asarray([0, 0, 1], size.dtype), size.shape)  # its normal
        friction = jnp.broadcast_to(model.geom.friction[:, g, 0], (worlds,))
        pos, turn = pose.pos[:, b] + rotate(quat, arm), quat_mul(quat, own)
        made.append(Collider(pos, turn, size, friction=friction, shape=SHAPES[kind], contact=contact))
    return tuple(made), of
