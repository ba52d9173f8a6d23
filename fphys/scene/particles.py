"""Matter of the native back end, and MPM: particles fill morphs; they and the rigid bodies push each other."""

import math
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import coupling
from ..coupling.particles import SHAPES
from ..deformables import fem, pbd
from ..errors import ModelError, UnsupportedError
from ..model import Model
from ..model import State as RigidState
from ..particles import mpm, sph
from ..particles.boundary import Walls
from ..render import Flex
from ..tree import Tree, pytree, static
from ..worlds import Solver
from .compose import resolve
from .lattice import placed
from .materials import MPM

Array = jax.Array

COURANT = 0.4
"""Courant number of a substep; MPM's limit is 0.5, and the rest is reserved for the motion of the particles."""


SOLVERS: dict[str, Solver] = {"mpm": mpm, "sph": sph, "fem": fem, "pbd": pbd}
"""By the field of a :class:`fphys.scene.native.State` that holds their states: one state, or one for each thing."""


class Filling(Tree):
    """Matter of a scene as described, which bodies push and are pushed by."""

    media: tuple[Any, ...]  # of fphys.coupling, with the parameters of their solvers
    kinds: tuple[str, ...]  # the solver of each
    substeps: int

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

    def vertices(self, state: Any, name: str) -> Array:
        """Positions of the vertices of a deformable thing; ModelError if there is none."""
        raise ModelError(f"the scene has no deformable thing {name!r}: it has particles, see World.particles")

    def flexes(self, state: Any) -> list[Flex]:
        """What cameras see."""
        return []


class Particles(Filling):
    """Things of particles, of one solver."""

    spans: tuple[tuple[str, int, int], ...]  # for each thing: name, first particle, one past the last

    def particles(self, state: Any, name: str) -> Array:
        name = resolve("thing of particles", name, tuple(other for other, *_ in self.spans))
        first, end = next(span for other, *span in self.spans if other == name)
        return self.matter(state)[0].x[:, first:end]


@pytree
class Solids(Particles):
    """Things made of material points."""

    media: tuple[coupling.MPM]
    positions: Array  # [m], shape (particle, 3)
    material: np.ndarray  # number of each particle's material, shape (particle,)
    substeps: int = static()
    spans: tuple[tuple[str, int, int], ...] = static()
    kinds: tuple[str, ...] = static(default=("mpm",))

    def start(self, model: Model, rigid: RigidState) -> tuple[mpm.State]:
        x, (medium,) = jnp.broadcast_to(self.positions, (rigid.qpos.shape[0], *self.positions.shape)), self.media
        return (mpm.init(medium.params, x, material=self.material, volume=(medium.params.cell / 2) ** 3),)


def fill(scene: Any, model: Model, geoms: tuple[int, ...]) -> Solids | None:
    """The MPM particles of a scene, or None if it has none; ``geoms`` hold them."""
    parts = [part for part in scene.parts if isinstance(part.material, MPM)]
    if not parts:
        return None
    real, domain = model.qpos0.dtype, scene.domain
    points = [placed(part.morph, domain.spacing) for part in parts]
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
        shape=tuple(np.ceil(np.subtract(domain.upper, domain.lower) / cell - 1e-9).astype(int).tolist()),
        lower=tuple(map(float, domain.lower)),
    )
    return Solids(
        media=(coupling.MPM(params, geoms),),
        positions=jnp.asarray(np.concatenate(points), real),
        material=np.repeat(np.arange(len(parts)), [len(p) for p in points]).astype(np.int32),
        substeps=substeps,
        spans=tuple(zip((part.name for part in parts), [0, *ends], ends, strict=False)),
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
