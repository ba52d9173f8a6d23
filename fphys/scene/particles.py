"""MPM of the native back end: particles fill morphs and are held by the rigid bodies, but do not push them."""

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ModelError, UnsupportedError
from ..math import quat_mul
from ..model import Model
from ..model import State as RigidState
from ..model.structure import GeomType
from ..particles import mpm
from ..particles.boundary import Collider, Walls
from ..render import Flex
from ..rigid.tree.kinematics import kinematics
from ..tree import Tree, pytree, static
from ..worlds import Solver
from .lattice import placed
from .materials import MPM

Array = jax.Array

SHAPES = {t: t.name.lower() for t in (GeomType.PLANE, GeomType.SPHERE, GeomType.CAPSULE, GeomType.BOX)}
"""Geoms that hold particles, and their names in fphys.particles.boundary."""

COURANT = 0.4
"""Courant number of a substep; MPM's limit is 0.5, and the rest is reserved for the motion of the particles."""


class Filling(Tree):
    """Particles of a scene as described, and the solver that moves them."""

    solver: ClassVar[Solver]
    params: Any  # the solver's
    positions: Array  # [m], shape (particle, 3)
    substeps: int
    spans: tuple[tuple[str, int, int], ...]  # for each thing: name, first particle, one past the last

    def init(self, model: Model, rigid: RigidState) -> Any:
        """All particles at rest."""
        raise NotImplementedError

    def step(self, model: Model, rigid: RigidState, state: Any) -> Any:
        """One step of the scene, in substeps; bodies keep the velocity that they have at the start of the step."""
        raise NotImplementedError

    def check(self, state: Any) -> None:
        """Raise StateError if a world is faulty."""
        self.solver.check(self.params, state)

    def reset(self, state: Any, mask: Array, start: Any) -> Any:
        """The worlds of ``mask`` as in ``start``."""
        return self.solver.reset(self.params, state, mask, start)

    def vertices(self, state: Any, name: str) -> Array:
        """Positions of the vertices of a deformable thing; ModelError if there is none."""
        raise ModelError(f"the scene has no deformable thing {name!r}: it has particles, see World.particles")

    def flexes(self, state: Any) -> list[Flex]:
        """What cameras see."""
        return []


@pytree
class Solids(Filling):
    """Things made of material points, and the bodies that hold them."""

    solver: ClassVar[Solver] = mpm
    params: mpm.Params
    positions: Array  # [m], shape (particle, 3)
    material: np.ndarray  # number of each particle's material, shape (particle,)
    substeps: int = static()
    spans: tuple[tuple[str, int, int], ...] = static()
    geoms: tuple[int, ...] = static()  # geoms that hold particles

    def init(self, model: Model, rigid: RigidState) -> mpm.State:
        x = jnp.broadcast_to(self.positions, (rigid.qpos.shape[0], *self.positions.shape))
        return mpm.init(self.params, x, material=self.material, volume=(self.params.cell / 2) ** 3)

    def step(self, model: Model, rigid: RigidState, state: mpm.State) -> mpm.State:
        bodies = colliders(model, rigid, self.geoms)
        h = jnp.asarray(self.params.timestep, state.x.dtype)

        def substep(s: mpm.State, k: Array) -> tuple[mpm.State, None]:
            moved = [c.replace(pos=c.pos + k * h * c.velocity) for c in bodies]
            return mpm.step(self.params, s, colliders=moved), None

        return jax.lax.scan(substep, state, jnp.arange(self.substeps, dtype=state.x.dtype))[0]


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
        params=params,
        positions=jnp.asarray(np.concatenate(points), real),
        material=np.repeat(np.arange(len(parts)), [len(p) for p in points]).astype(np.int32),
        substeps=substeps,
        spans=tuple(zip((part.name for part in parts), [0, *ends], ends, strict=False)),
        geoms=geoms,
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


def colliders(model: Model, rigid: RigidState, geoms: tuple[int, ...]) -> list[Collider]:
    """Geoms as shapes that hold particles, with their present poses and velocities. Gradients flow to model, state."""
    k, s, worlds = kinematics(model, rigid), model.structure, rigid.qpos.shape[0]
    made = []
    for g in geoms:
        body, kind = int(s.geom.body[g]), int(s.geom.type[g])
        pos, spin = k.geom.pos[:, g], k.body.vel[:, body, 3:]
        own = jnp.broadcast_to(model.geom.quat[:, g], (worlds, 4))
        size = jnp.broadcast_to(model.geom.size[:, g], (worlds, 3))
        made.append(
            Collider(
                pos=pos,
                quat=quat_mul(k.body.quat[:, body], own),
                size=k.geom.mat[:, g, :, 2] if kind == GeomType.PLANE else size,
                velocity=k.body.vel[:, body, :3] + jnp.cross(spin, pos - k.body.pos[:, body]),
                spin=spin,
                friction=jnp.broadcast_to(model.geom.friction[:, g, 0], (worlds,)),
                shape=SHAPES[GeomType(kind)],
            )
        )
    return made
