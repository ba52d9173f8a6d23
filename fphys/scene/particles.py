"""Matter of the native back end, and MPM: particles fill morphs; they and the rigid bodies push each other."""

import math
import warnings
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import coupling
from ..coupling.exchange import Pose
from ..coupling.particles import SHAPES, colliders
from ..deformables import fem, pbd
from ..errors import ModelError, UnsupportedError
from ..model import Model, init
from ..model import State as RigidState
from ..particles import flow, mpm, sph
from ..particles.boundary import Collider, Walls, is_inside, prepared
from ..render import Flex, Grains
from ..rigid.tree.kinematics import kinematics
from ..tree import Tree, pytree, static
from ..worlds import Solver
from . import flows
from .compose import resolve
from .lattice import filled
from .materials import MPM
from .morphs import Source
from .ranges import Balls, Triangles

Array = jax.Array

COURANT = 0.4
"""Courant number of a substep; MPM's limit is 0.5, and the rest is reserved for the motion of the particles."""


BEHIND = 2.0
"""Cells of MPM behind a source, within which nodes at a slip face hold the particles that enter."""

SOLVERS: dict[str, Solver] = {"mpm": mpm, "sph": sph, "fem": fem, "pbd": pbd}
"""By the field of a :class:`fphys.scene.native.State` that holds their states: one state, or one for each thing."""


class Filling(Tree):
    """Matter of a scene as described, which bodies push and are pushed by: the same in all worlds."""

    has_no_worlds = True  # fphys.distributed copies it to every device

    media: tuple[Any, ...]  # of fphys.coupling, with the parameters of their solvers
    kinds: tuple[str, ...]  # the solver of each
    substeps: int

    @property
    def parts(self) -> "tuple[Filling, ...]":
        """Fillings of one kind of matter each: this one, or those that it has."""
        return (self,)

    @property
    def surfaces(self) -> tuple[coupling.Surface, ...]:
        """Meshes that hold particles."""
        return ()

    @property
    def names(self) -> tuple[str, ...]:
        """Of the things."""
        raise NotImplementedError

    def start(self, model: Model, rigid: RigidState) -> tuple[Any, ...]:
        """The states at rest, one for each medium."""
        raise NotImplementedError

    def fields(self, matter: Iterable[Any]) -> dict[str, Any]:
        """States as the fields of a scene's state: of the solver's name; a tuple for finite elements and pbd."""
        found: dict[str, Any] = {}
        for kind, each in zip(self.kinds, matter, strict=True):
            found[kind] = (*found.get(kind, ()), each) if kind in ("fem", "pbd") else each
        return found

    def matter(self, state: Any) -> tuple[Any, ...]:
        """The states of the media, from those fields."""
        each = {kind: iter(getattr(state, kind)) for kind in ("fem", "pbd")}
        return tuple(next(each[kind]) if kind in each else getattr(state, kind) for kind in self.kinds)

    def media_in(self, model: Model) -> tuple[Any, ...]:
        """The media, with the gravity and, in their substeps, the time step of the model."""
        given = {"gravity": model.opt.gravity, "timestep": model.opt.timestep / self.substeps}
        return tuple(medium.replace(params=medium.params.replace(**given)) for medium in self.media)

    def counts(self) -> dict[str, Any]:
        """What states are made of: the particles or vertices of each medium; sources and drains."""
        raise NotImplementedError

    def tally(self, matter: tuple[Any, ...]) -> flow.Tally | None:
        """What has flowed at the start; None if nothing can."""
        return None

    def flowed(self, matter: tuple[Any, ...], tally: flow.Tally, duration: Array) -> tuple[tuple[Any, ...], flow.Tally]:
        """The states and the tally when drains have taken and sources given what is due before a step [s]."""
        return matter, tally

    def check(self, state: Any) -> None:
        """Raise StateError if a world is faulty."""
        for kind, medium, matter in zip(self.kinds, self.media, self.matter(state), strict=True):
            SOLVERS[kind].check(medium.params, matter)

    def reset(self, state: Any, mask: Array, start: Any) -> dict[str, Any]:
        """The worlds of ``mask`` as in ``start``, as fields of a scene's state."""
        each = zip(self.kinds, self.media, self.matter(state), self.matter(start), strict=True)
        return self.fields(SOLVERS[kind].reset(medium.params, old, mask, new) for kind, medium, old, new in each)

    def particles(self, state: Any, name: str) -> Array:
        """Positions of the particles of a thing; ModelError if there is none."""
        raise ModelError(f"there is no thing of particles {name!r}: the scene has none")

    def alive(self, state: Any, name: str) -> Array:
        """Which of them are there; ModelError as for :meth:`particles`."""
        return jnp.ones(self.particles(state, name).shape[:2], bool)

    def vertices(self, state: Any, name: str) -> Array:
        """Positions of the vertices of a deformable thing; ModelError if there is none."""
        raise ModelError(f"the scene has no deformable thing {name!r}: it has particles, see World.particles")

    def flexes(self, state: Any, world: int) -> list[Flex | Grains]:
        """What cameras see in one world."""
        return []

    def seen(self, state: Any) -> list[Balls | Triangles]:
        """What rays see."""
        return []


class Particles(Filling):
    """Things of particles, of one solver."""

    positions: Array  # of all things' particles [m], shape (particle, 3)
    runs: tuple[tuple[int, int], ...]  # of particles in a row: the number of their material or kind, and how many
    spans: tuple[tuple[str, int, int], ...]  # for each thing: name, first particle, one past the last
    sources: tuple[flow.Source, ...]
    drains: tuple[Collider, ...]
    colors: tuple[tuple[float, ...], ...]  # of each thing
    radius: float  # of particles as they are seen: half their spacing [m]
    domain: tuple[tuple[float, ...], ...]  # its lower and its upper corner [m]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, *_ in self.spans)

    @property
    def material(self) -> np.ndarray:
        """The number of each particle's material or kind, int32, shape (particle,); a fluid's walls are last."""
        number, count = zip(*self.runs, strict=True)
        return np.repeat(np.array(number, np.int32), count)

    def particles(self, state: Any, name: str) -> Array:
        return self.matter(state)[0].x[:, self._span(name)]

    def alive(self, state: Any, name: str) -> Array:
        return flow.alive(self.matter(state)[0])[:, self._span(name)]

    def counts(self) -> dict[str, Any]:
        flows, particles = (len(self.sources), len(self.drains)), sum(count for _, count in self.runs)
        return {self.kinds[0]: (particles,)} | ({"sources and drains": flows} if any(flows) else {})

    def tally(self, matter: tuple[Any, ...]) -> flow.Tally | None:
        return flow.init(matter[0], self.sources, self.drains) if self.sources or self.drains else None

    def flowed(self, matter: tuple[Any, ...], tally: flow.Tally, duration: Array) -> tuple[tuple[Any, ...], flow.Tally]:
        params = self.media[0].params
        after, tally = flow.step(params, matter[0], tally, self.sources, self.drains, duration)
        return (after,), tally

    def flexes(self, state: Any, world: int) -> list[Flex | Grains]:
        found = []
        for (name, *_), color in zip(self.spans, self.colors, strict=True):
            x = np.asarray(self.particles(state, name))
            there = np.asarray(self.alive(state, name)) & np.isfinite(x).all(-1)
            x = np.where(there[..., None], x, np.nan)
            found += [Grains(x[None], self.radius, color)] if there[world : world + 1].any() else []
        return found

    def seen(self, state: Any) -> list[Balls | Triangles]:
        (matter,), end = self.matter(state), self.spans[-1][2]
        return [Balls(matter.x[:, :end], self.radius, flow.alive(matter)[:, :end])]

    def _span(self, name: str) -> slice:
        name = resolve("thing of particles", name, self.names)
        return next(slice(*span) for other, *span in self.spans if other == name)


@pytree
class Solids(Particles):
    """Things made of material points."""

    media: tuple[coupling.MPM]
    positions: Array  # [m], shape (particle, 3)
    runs: tuple[tuple[int, int], ...] = static()
    substeps: int = static()
    spans: tuple[tuple[str, int, int], ...] = static()
    kinds: tuple[str, ...] = static(default=("mpm",))
    colors: tuple[tuple[float, ...], ...] = static(default=())
    radius: float = static(default=0.0)
    domain: tuple[tuple[float, ...], ...] = static(default=())
    sources: tuple[flow.Source, ...] = ()
    drains: tuple[Collider, ...] = ()

    def start(self, model: Model, rigid: RigidState) -> tuple[mpm.State]:
        (medium,), worlds = self.media_in(model), rigid.qpos.shape[0]
        x = jnp.broadcast_to(self.positions, (worlds, *self.positions.shape))
        return (mpm.init(medium.params, x, material=self.material, volume=(medium.params.cell / 2) ** 3),)


def fill(scene: Any, model: Model, geoms: tuple[int, ...]) -> Solids | None:
    """The MPM particles of a scene, or None if it has none; ``geoms`` hold them."""
    parts = [part for part in scene.parts if isinstance(part.material, MPM)]
    if not parts:
        return None
    real, domain = model.qpos0.dtype, scene.domain
    points = [filled(part, domain) for part in parts]
    ends = np.cumsum([len(p) for p in points]).tolist()
    laws = tuple(part.material.law for part in parts)
    cell = 2 * domain.spacing
    fastest = max(float(np.sqrt(np.asarray(law.modulus()) / np.asarray(law.density)).max()) for law in laws)
    substeps = max(1, math.ceil(scene.timestep * fastest / (COURANT * cell)))
    params = mpm.Params(
        material=laws,
        timestep=scene.timestep / substeps,
        gravity=jnp.asarray(scene.gravity, real),
        walls=Walls(contact="slip"),
        cell=cell,
        shape=_whole_cells(domain, cell),
        lower=tuple(map(float, domain.lower)),
    )
    return Solids(
        media=(coupling.MPM(params, geoms),),
        positions=jnp.asarray(np.concatenate(points), real),
        runs=runs(parts, points, range(len(parts))),
        substeps=substeps,
        spans=tuple(zip((part.name for part in parts), [0, *ends], ends, strict=False)),
        colors=tuple(part.surface.rgba for part in parts),
        radius=domain.spacing / 2,
        domain=corners(domain),
        sources=flows.sources(parts, ends, domain, real, BEHIND * cell),
        drains=flows.drains(scene, real),
    )


def _whole_cells(domain: Any, cell: float) -> tuple[int, ...]:
    """Cells along each edge of a domain; ModelError if they are not whole."""
    counts = np.subtract(domain.upper, domain.lower) / cell
    whole = np.round(counts)
    if (uneven := np.abs(counts - whole) > 1e-6 * counts).any():
        axis = int(np.argmax(uneven))
        fit = [f"{domain.lower[axis] + n * cell:.6g}" for n in (np.floor(counts[axis]), np.ceil(counts[axis]))]
        raise ModelError(
            f"Domain: along {'xyz'[axis]} it is {counts[axis]:.6g} cells long, and MPM's grid has whole cells, each of "
            f"two spacings, {cell:.6g} m: end it at {' or '.join(fit)} m, or take a spacing that fits"
        )
    return tuple(whole.astype(int).tolist())


def corners(domain: Any) -> tuple[tuple[float, ...], ...]:
    """The lower and the upper corner of a domain [m]."""
    return tuple(tuple(map(float, each)) for each in (domain.lower, domain.upper))


def runs(parts: list[Any], points: list[np.ndarray], material: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """For each thing the number of its particles' material, EMPTY where a source has not given them yet, and how many.

    They are static: JAX takes no gradients by trees in which there are integers.
    """
    each = zip(parts, material, points, strict=True)
    return tuple((flow.EMPTY if isinstance(p.morph, Source) else number, len(x)) for p, number, x in each)


def warn_of_overlaps(model: Model, geoms: tuple[int, ...], num_worlds: int, things: Particles) -> None:
    """Warn of matter that begins inside a body, by the names of both: it would be thrown out."""
    body, source = kinematics(model, init(model, num_worlds)).body, model.structure.source
    shapes, _ = colliders(model, geoms, Pose.resting(body.pos, body.quat), tuple(range(body.pos.shape[1])), "open")
    x, there = things.positions[None], things.material[: len(things.positions)] != flow.EMPTY
    for g, shape in zip(geoms, shapes, strict=True):
        shape = prepared(shape, g, x.dtype, 3, num_worlds, kind="geoms")
        inside = np.asarray(is_inside(jax.tree.map(lambda a: a[:1], shape), x))[0] & there
        body_name = source.body(int(source.geom_bodyid[g])).name
        for name, first, end in things.spans:
            if count := inside[first:end].sum():
                warnings.warn(
                    f"{name!r} begins where the body {body_name!r} is: {count} of its {end - first} particles are "
                    f"inside geom {source.geom(g).name or g!r}, which throws them out; move one of the two",
                    UserWarning,
                    stacklevel=4,
                )


def holding(model: Model) -> tuple[int, ...]:
    """Geoms that collide.

    Raises:
        UnsupportedError: rigid bodies have shapes that cannot hold particles; the error names all of them.
    """
    m = model.structure.source
    solid = np.flatnonzero((m.geom_contype != 0) | (m.geom_conaffinity != 0))
    faults = [
        f"  geom {m.geom(int(g)).name or int(g)!r} of {m.body(int(m.geom_bodyid[g])).name!r}"
        for g in solid
        if int(m.geom_type[g]) not in SHAPES
    ]
    if faults:
        raise UnsupportedError(
            "the back end 'native' has particles and bodies that cannot hold them; planes, spheres, capsules and boxes "
            "can, and what has contype and conaffinity 0 need not:\n" + "\n".join(faults)
        )
    return tuple(solid.tolist())
