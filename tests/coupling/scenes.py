"""Bodies and matter that touch: small scenes of every pair, and what they hold of momentum."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys import coupling
from fphys.deformables import fem, mesh, pbd
from fphys.particles import mpm, sph

STEP = 0.004
"""Time step of the bodies [s]."""

BALL = """<mujoco><option timestep="0.004" gravity="0 0 {gravity}"/><worldbody>
<body name="ball" pos="{pos}"><freejoint/>
<geom type="sphere" size="0.1" density="{density}" friction="{friction}"/></body>
</worldbody></mujoco>"""


class Scene(NamedTuple):
    model: Any
    state: Any
    media: tuple[Any, ...]
    matter: tuple[Any, ...]
    substeps: int
    mass: Any = None  # of the matter's particles or vertices [kg], shape (1, n, 1)


def grid(lower: Any, upper: Any, spacing: float) -> np.ndarray:
    """The centres of cells of a block, shape (n, dim)."""
    axes = [np.arange(a + spacing / 2, b, spacing) for a, b in zip(lower, upper, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))


def ball(pos: str, velocity: Any, density: float, friction: float, gravity: float = 0.0) -> tuple[Any, Any]:
    xml = BALL.format(pos=pos, density=density, friction=friction, gravity=gravity)
    model = fphys.load(xml, dtype=jnp.float64)
    return model, fphys.init(model, 1).replace(qvel=jnp.asarray([velocity]))


def in_mpm(density: float = 100.0, friction: float = 0.3) -> Scene:
    """A ball that spins flies into a block of rubber."""
    params = mpm.Params(mpm.NeoHookean(1000.0, 1e5, 0.3), STEP / 4, cell=0.05, shape=(20, 20, 20))
    x = grid((0.3, 0.3, 0.4), (0.7, 0.7, 0.6), 0.04)[None]
    velocity = jnp.broadcast_to(jnp.asarray([0.0, 0.1, 0.3]), x.shape)
    matter = mpm.init(params, jnp.asarray(x), velocity)
    model, state = ball("0.5 0.45 0.71", (0.2, 0.0, -2.0, 1.0, 5.0, 2.0), density, friction)
    return Scene(model, state, (coupling.MPM(params, (0,)),), (matter,), 4, 1000.0 * matter.volume[..., None])


def in_sph(density: float = 500.0) -> Scene:
    """A ball of particles flies into a drop."""
    spacing = 0.05
    params = sph.Params(spacing, STEP / 4, 15.0, 1000.0, artificial=0.05)
    fluid = grid((-0.2, -0.2, -0.25), (0.2, 0.2, -0.1), spacing)
    solid = grid((-0.15,) * 3, (0.15,) * 3, spacing)
    solid = solid[np.linalg.norm(solid, axis=1) < 0.1]
    kind = np.r_[np.full(len(fluid), sph.FLUID), np.full(len(solid), sph.WALL)].astype(np.int32)
    x = jnp.asarray(np.concatenate([fluid, solid])[None])
    matter = sph.init(params, x, material=kind, max_neighbors=200)
    model, state = ball("0 0 0", (0.2, 0.0, -1.0, 1.0, 3.0, 2.0), density, 0.3)
    media = (coupling.SPH(params, jnp.asarray(solid), (1,) * len(solid)),)
    return Scene(
        model, state, media, (matter,), 4, jnp.where(kind == sph.FLUID, 1000.0 * spacing**3, 0.0)[None, :, None]
    )


def in_pbd(stretch: float = 1e-5, density: float = 20.0, friction: float = 0.3) -> Scene:
    """A ball that spins flies into a free cloth."""
    cloth = mesh.cloth((8, 8), (0.6, 0.6))
    params = pbd.Params(cloth, 0.5, STEP / 4, stretch=stretch, thickness=0.01, substeps=1)
    x = jnp.asarray(cloth.vertices - cloth.vertices.mean(0))[None]
    model, state = ball("0.03 0.02 0.115", (0.2, 0.0, -2.0, 1.0, 5.0, 2.0), density, friction)
    mass = pbd.masses(params)
    return Scene(model, state, (coupling.PBD(params, (0,)),), (pbd.init(params, x),), 4, mass[..., None])


def in_fem(density: float = 1000.0, friction: float = 0.3) -> Scene:
    """A ball that spins flies into a block of rubber, whose elements are finite."""
    body = mesh.box((4, 4, 2), (0.4, 0.4, 0.2))
    params = fem.Params(body, fem.NeoHookean(1000.0, 1e5, 0.3), STEP)
    matter = fem.init(params, jnp.asarray(body.vertices - [0.2, 0.2, 0.2])[None])
    model, state = ball("0.03 0.02 0.108", (0.2, 0.0, -2.0, 1.0, 5.0, 2.0), density, friction)
    volume = np.abs(np.linalg.det(body.vertices[body.elements[:, 1:]] - body.vertices[body.elements[:, :1]])) / 6
    mass = np.zeros(len(body.vertices))
    np.add.at(mass, body.elements, 250.0 * volume[:, None])
    return Scene(model, state, (coupling.FEM(params, (0,)),), (matter,), 1, jnp.asarray(mass)[None, :, None])


SCENES = {"mpm": in_mpm, "sph": in_sph, "pbd": in_pbd, "fem": in_fem}


def rolled(scene: Scene, steps: int) -> Scene:
    """The scene some steps later."""

    def advance(carry: Any, _: None) -> tuple[Any, None]:
        return coupling.step(scene.model, carry[0], scene.media, carry[1], substeps=scene.substeps), None

    state, matter = jax.lax.scan(advance, (scene.state, scene.matter), None, steps)[0]
    return scene._replace(state=state, matter=matter)


def momenta(scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """Linear and angular momentum about the origin, of a ball and its matter."""
    model, (matter,) = scene.model, scene.matter
    body = fphys.kinematics(model, scene.state).body
    x, v, w = (np.asarray(a[0, 1]) for a in (body.pos, body.vel[..., :3], body.vel[..., 3:]))
    own = float(model.body.mass[0, 1]) * v
    given = np.asarray(scene.mass * matter.v)[0]
    spin = float(model.body.inertia[0, 1, 0]) * w
    if isinstance(matter, mpm.State):  # affine motion about each particle: m dx^2 / 4 (C - C^T)
        C, share = np.asarray(matter.C[0]), np.asarray(scene.mass[0]) * scene.media[0].params.cell ** 2 / 4
        turn = np.stack([C[:, 2, 1] - C[:, 1, 2], C[:, 0, 2] - C[:, 2, 0], C[:, 1, 0] - C[:, 0, 1]], -1)
        spin = spin + (share * turn).sum(0)
    return own + given.sum(0), np.cross(x, own) + spin + np.cross(np.asarray(matter.x[0]), given).sum(0)


def in_tank(
    params: Any, speed: float, water: np.ndarray, tank: np.ndarray, body: np.ndarray, at: Any, kinds: Any, **given: Any
) -> tuple[Any, Any, int]:
    """SPH with one body, number 1: medium, matter, and how many substeps a step of ``params.timestep`` has.

    Args:
        speed: of the fastest particle [m/s].
        water, tank, body: positions of particles [m], shape (n, dim), the body's in its frame, which is at ``at``.
        kinds: of the tank's and of the body's particles.
        given: for sph.init.
    """
    substeps = int(np.ceil(params.timestep / float(sph.limit(params, speed).min()) - 1e-9))
    params = params.replace(timestep=params.timestep / substeps)
    x = np.concatenate([water, tank, body + at])
    kind = np.repeat((sph.FLUID, *kinds), (len(water), len(tank), len(body))).astype(np.int32)
    matter = sph.init(params, jnp.asarray(x[None]), material=kind, **given)
    walls = np.concatenate([tank, body])
    walls = jnp.asarray(np.pad(walls, ((0, 0), (0, 3 - walls.shape[1]))))
    return coupling.SPH(params, walls, (0,) * len(tank) + (1,) * len(body)), matter, substeps


def sides(lower: Any, upper: Any, open_top: float, spacing: float, layers: int = 3) -> np.ndarray:
    """Layers of particles around a tank, whose sides are higher than its water by ``open_top``, shape (n, dim)."""
    lower, upper, reach = np.asarray(lower), np.asarray(upper), layers * spacing
    top = upper + np.eye(len(upper))[-1] * open_top
    end = top + reach * (1 - np.eye(len(upper))[-1])
    x = grid(lower - reach, end, spacing)
    return x[((x < lower) | (x > top)).any(1)]


def clear(water: np.ndarray, body: np.ndarray, spacing: float, far: float = 0.8) -> np.ndarray:
    """Water that is at least ``far`` spacings from the particles of a body."""
    near = np.concatenate([np.linalg.norm(w[:, None] - body, axis=-1).min(1) for w in np.array_split(water, 20)])
    return water[near > far * spacing]
