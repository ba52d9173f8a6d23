"""Fluids of the native back end: SPH particles that fill morphs, between walls of particles. Bodies carry some of these
walls; they and the fluid push each other."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import coupling
from ..math import rotate
from ..model import Model, init
from ..model import State as RigidState
from ..particles import flow, sph
from ..particles.boundary import Collider
from ..rigid.tree.kinematics import kinematics
from ..tree import pytree, static
from . import flows
from .lattice import filled, grid, placed, turned
from .materials import SPH
from .morphs import Box, Capsule, Sphere
from .particles import Particles, corners, runs

Array = jax.Array

LAYERS = 3
"""Layers of wall particles: as far as the kernel reaches, which is twice the smoothing length of 1.5 spacings."""

FASTEST = 0.5
"""Largest speed that the substeps allow for, as a fraction of the speed of sound."""


@pytree
class Fluid(Particles):
    """The fluids of a scene, and the walls that hold them, as they were described."""

    media: tuple[coupling.SPH]
    positions: Array  # of the fluid's particles [m], shape (particle, 3)
    runs: tuple[tuple[int, int], ...] = static()
    substeps: int = static()
    spans: tuple[tuple[str, int, int], ...] = static()  # for each thing: name, first particle, one past the last
    kinds: tuple[str, ...] = static(default=("sph",))
    colors: tuple[tuple[float, ...], ...] = static(default=())
    radius: float = static(default=0.0)
    domain: tuple[tuple[float, ...], ...] = static(default=())
    sources: tuple[flow.Source, ...] = ()
    drains: tuple[Collider, ...] = ()

    def start(self, model: Model, rigid: RigidState) -> tuple[sph.State]:
        """The fluid at rest, at zero pressure."""
        (medium,), body, worlds = self.media_in(model), kinematics(model, rigid).body, rigid.qpos.shape[0]
        of = list(medium.body)
        walls = jnp.broadcast_to(medium.walls, (worlds, *medium.walls.shape))
        walls = body.pos[:, of] + rotate(body.quat[:, of], walls)
        fluid = jnp.broadcast_to(self.positions, (worlds, *self.positions.shape))
        room = 2 * math.ceil(4 / 3 * math.pi * (2 * medium.params.smoothing) ** 3)
        x = jnp.concatenate([fluid, walls], 1)
        extent = np.ptp(self.domain, axis=0) + 2 * LAYERS * medium.params.spacing
        return (sph.init(medium.params, x, material=self.material, extent=extent, max_neighbors=room),)


def pour(scene: Any, model: Model, geoms: tuple[int, ...], num_worlds: int) -> Fluid | None:
    """The fluids of a scene, or None if it has none; ``geoms`` and the domain's faces contain them."""
    parts = [part for part in scene.parts if isinstance(part.material, SPH)]
    if not parts:
        return None
    real, substance, spacing = model.qpos0.dtype, parts[0].material, scene.domain.spacing
    points = [filled(part, scene.domain) for part in parts]
    ends = np.cumsum([len(p) for p in points]).tolist()
    params = sph.Params(
        spacing=spacing,
        timestep=scene.timestep,
        sound_speed=substance.sound_speed,
        density=substance.density,
        gravity=jnp.asarray(scene.gravity, real),
        viscosity=substance.viscosity,
        artificial=substance.artificial,
    )
    longest = float(sph.limit(params, FASTEST * substance.sound_speed).min())
    substeps = max(1, math.ceil(scene.timestep / longest))
    solids, planes = _solids(model, geoms, scene.domain, num_worlds)
    faces = _faces(scene.domain)
    behind = [((faces - at) @ normal < 0) for at, normal in planes]
    walls = [(0, faces[~np.any([np.zeros(len(faces), bool), *behind], 0)], sph.SLIP_WALL), *solids]
    layers = tuple((kind, len(x)) for _, x, kind in walls)
    body = np.repeat([body for body, *_ in walls], [len(x) for _, x, _ in walls])
    return Fluid(
        media=(
            coupling.SPH(
                params.replace(timestep=scene.timestep / substeps),
                jnp.asarray(np.concatenate([x for _, x, _ in walls]), real),
                tuple(body.tolist()),
            ),
        ),
        positions=jnp.asarray(np.concatenate(points), real),
        runs=(*runs(parts, points, [sph.FLUID] * len(parts)), *layers),
        substeps=substeps,
        spans=tuple(zip((part.name for part in parts), [0, *ends], ends, strict=False)),
        colors=tuple(part.surface.rgba for part in parts),
        radius=spacing / 2,
        domain=corners(scene.domain),
        sources=flows.sources(parts, ends, scene.domain, real),
        drains=flows.drains(scene, real),
    )


def _faces(domain: Any) -> np.ndarray:
    """Layers around the domain [m], shape (wall, 3)."""
    lower, upper, reach = np.asarray(domain.lower), np.asarray(domain.upper), LAYERS * domain.spacing
    counts = np.round((upper - lower) / domain.spacing).astype(int) + 2 * LAYERS
    points = (lower + upper) / 2 + grid(counts, (upper - lower + 2 * reach) / counts)
    return points[((points < lower) | (points > upper)).any(1)]


def _solids(
    model: Model, geoms: tuple[int, ...], domain: Any, num_worlds: int
) -> tuple[list[tuple[int, np.ndarray, int]], list[tuple[np.ndarray, np.ndarray]]]:
    """For each geom its body, its wall particles in the body's frame [m], and their kind; for planes, point and normal.

    Planes, which are fixed, get only those layers that are near the domain.
    """
    m, dx, made, planes = model.structure.source, domain.spacing, [], []
    places, centre = kinematics(model, init(model, num_worlds)).geom, np.add(domain.lower, domain.upper) / 2
    across = math.ceil(math.dist(domain.lower, domain.upper) / dx) + 2 * LAYERS
    for g in geoms:
        size, pose = m.geom_size[g], {"pos": m.geom_pos[g], "quat": m.geom_quat[g]}
        match int(m.geom_type[g]):
            case 0:
                at, turn = np.asarray(places.pos[0, g]), np.asarray(places.mat[0, g])
                planes.append((at, turn[:, 2]))
                points = grid(np.array([across, across, LAYERS]), np.full(3, dx))
                points += [*((centre - at) @ turn)[:2], -LAYERS * dx / 2]
                apart = np.abs(at + points @ turn.T - centre) - np.subtract(domain.upper, domain.lower) / 2
                points = pose["pos"] + turned(pose["quat"], points[(apart < LAYERS * dx).all(1)])
            case 2:
                points = placed(Sphere(size[0], **pose), dx)
            case 3:
                points = placed(Capsule(size[0], 2 * size[1], **pose), dx)
            case _:
                points = placed(Box(tuple(2 * size), **pose), dx)
        made.append((int(m.geom_bodyid[g]), points, sph.WALL))
    return made, planes
