"""Matter of the native back end, and MPM: particles fill morphs; they and the rigid bodies push each other."""

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from .. import coupling
from ..coupling.particles import SHAPES
from ..errors import UnsupportedError
from ..model import Model
from ..model import State as RigidState
from ..particles import mpm
from ..particles.boundary import Walls
from ..tree import Tree, pytree, static
from ..worlds import Solver
from .lattice import placed
from .materials import MPM

Array = jax.Array

COURANT = 0.4
"""Courant number of a substep; MPM's limit is 0.5, and the rest is reserved for the motion of the particles."""


class Filling(Tree):
    """Matter of a scene as described: what a solver moves, and what bodies push and are pushed by."""

    solver: ClassVar[Solver]
    medium: Any  # of fphys.coupling; its parameters are the solver's
    positions: Array  # [m], shape (particle, 3)
    substeps: int
    spans: tuple[tuple[str, int, int], ...]  # for each thing: name, first particle, one past the last

    @property
    def kind(self) -> str:
        """The solver's name, and that of its field of a :class:`fphys.scene.native.State`."""
        return self.solver.__name__.rpartition(".")[2]  # type: ignore[attr-defined]

    def init(self, model: Model, rigid: RigidState) -> Any:
        """All particles at rest."""
        raise NotImplementedError


@pytree
class Solids(Filling):
    """Things made of material points."""

    solver: ClassVar[Solver] = mpm
    medium: coupling.MPM
    positions: Array  # [m], shape (particle, 3)
    material: np.ndarray  # number of each particle's material, shape (particle,)
    substeps: int = static()
    spans: tuple[tuple[str, int, int], ...] = static()

    def init(self, model: Model, rigid: RigidState) -> mpm.State:
        x, params = jnp.broadcast_to(self.positions, (rigid.qpos.shape[0], *self.positions.shape)), self.medium.params
        return mpm.init(params, x, material=self.material, volume=(params.cell / 2) ** 3)


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
        medium=coupling.MPM(params, geoms),
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
