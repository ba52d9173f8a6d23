"""Random scenes of boxes in water and sand: many worlds, each with its own sizes, poses, densities and velocities."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fphys
from fphys import coupling
from fphys.particles import mpm, sph
from fphys.particles.boundary import local

from .scenes import grid, sides

GRAVITY, BOXES, SUBSTEPS = 9.81, 2, 4
RATIOS = 0.05, 20.0
"""Densities of the boxes as multiples of the matter's; all of their logarithms are equally likely."""
SPEED, SPIN = 1.0, 5.0
"""Largest velocities at the start, along and about each axis [m/s], [rad/s]."""
SOUND, FASTEST = {2: 20.0, 3: 12.0}, 8.0
"""Speed of sound in water, and of the fastest particle that the time step of SPH is made for [m/s]."""


class Size(NamedTuple):
    """Of the scenes in the plane or in space."""

    spacing: float  # of the particles [m]
    width: int  # of the matter, in particles
    depth: int
    layers: tuple[int, int]  # edges of the boxes, in particles: the least, which is two cells of MPM, and the most


SIZES = {2: Size(0.02, 40, 20, (4, 10)), 3: Size(0.03, 18, 10, (4, 7))}
OF_SPH = {2: Size(0.03, 26, 13, (3, 6)), 3: Size(0.05, 11, 6, (3, 4))}


class Scenes(NamedTuple):
    """Boxes and their matter, one scene in each world."""

    model: Any
    state: Any
    medium: Any
    matter: Any
    size: Size


class Found(NamedTuple):
    """What became of each scene, (world,)."""

    rise: Any  # the most that energy was above that at the start, by what there was of it
    depth: Any  # of the particle that was deepest in a box, in spacings
    lost: Any  # how far a particle was outside the tank, in spacings
    status: Any  # of bodies and matter
    sound: Any  # whether all is finite


def scenes(kind: str, dim: int, worlds: int, seed: int) -> Scenes:
    """Of "water" or "sand" in MPM, or "fluid" in SPH, at the longest substep that the solver allows."""
    rng, fluid = np.random.default_rng([seed, dim]), kind == "fluid"
    size, density = (OF_SPH if fluid else SIZES)[dim], 1600.0 if kind == "sand" else 1000.0
    width, depth = size.width * size.spacing, size.depth * size.spacing
    least, most = size.layers
    half = rng.integers(least, most + 1, (worlds, BOXES, 3)) if fluid else rng.uniform(least, most, (worlds, BOXES, 3))
    half = half * size.spacing / 2
    half[..., dim:] = 0.5
    at, quat = placed(rng, half, dim, width, depth)
    x = grid((0,) * dim, (width,) * (dim - 1) + (depth,), size.spacing)
    inside = np.zeros((worlds, len(x)), bool)
    for b in range(BOXES):
        d = turned(space(x)[None] - at[:, b, None], quat[:, b, None] * [1, -1, -1, -1])
        inside |= (np.abs(d) < half[:, b, None] + size.spacing / 2).all(-1)
    origin = at - turned(corner(half, dim), quat)
    if fluid:
        medium, matter = in_sph(dim, size, x, inside, half, origin, quat)
    else:
        medium, matter = in_mpm(kind, dim, size, x, inside)
    ratio = np.exp(rng.uniform(*np.log(RATIOS), (worlds, BOXES)))
    model = boxes(dim, width, SUBSTEPS * float(medium.params.timestep), half, ratio * density)
    qpos, spin = [], 3 if dim == 3 else 1
    for b in range(BOXES):
        turn = quat[:, b] if dim == 3 else 2 * np.arctan2(quat[:, b, 3:], quat[:, b, :1])
        qpos += [origin[:, b, :dim], turn]
    qvel = [rng.uniform(-v, v, (worlds, n)) for _ in range(BOXES) for v, n in ((SPEED, dim), (SPIN, spin))]
    state = fphys.init(model, worlds, qpos=np.concatenate(qpos, 1), qvel=np.concatenate(qvel, 1))
    return Scenes(model, state, medium, matter, size)


def placed(rng: Any, half: np.ndarray, dim: int, width: float, depth: float) -> tuple[np.ndarray, np.ndarray]:
    """Middles and orientations of boxes that touch neither walls nor each other, in the matter and above it."""
    at, quat = np.zeros_like(half), rng.normal(size=(*half.shape[:2], 4))
    if dim == 2:
        quat[..., 1:3] = 0
    quat /= np.linalg.norm(quat, axis=-1, keepdims=True)
    radius = np.linalg.norm(half[..., :dim], axis=-1)
    for w in range(len(half)):
        while True:
            r = radius[w][:, None]
            at[w, :, : dim - 1] = rng.uniform(r, width - r, (BOXES, dim - 1))
            at[w, :, dim - 1 : dim] = rng.uniform(r, depth + 2 * r)
            if np.linalg.norm(at[w, 0] - at[w, 1]) > radius[w].sum():
                break
    return at, quat


def corner(half: np.ndarray, dim: int) -> np.ndarray:
    """From the origin of a box's body, which is one of its corners, to its middle [m]."""
    return half * (np.arange(3) < dim)


def turned(v: np.ndarray, quat: np.ndarray) -> np.ndarray:
    w, u = quat[..., :1], quat[..., 1:]
    return v + 2 * np.cross(u, np.cross(u, v) + w * v)


def boxes(dim: int, width: float, step: float, half: np.ndarray, density: np.ndarray) -> Any:
    """Boxes between walls. Their numbers are each world's own."""
    slides = '<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/><joint axis="0 0 1"/>'
    joints = slides if dim == 2 else "<freejoint/>"
    ends = [(axis, end) for axis in range(dim) for end in ((0,) if axis == dim - 1 else (0, width))]
    vector = lambda axis, value: " ".join(str(value * (i == axis)) for i in range(3))  # noqa: E731
    planes = "".join(
        f'<geom type="plane" size="0 0 1" pos="{vector(axis, end)}" zaxis="{vector(axis, -1 if end else 1)}"/>'
        for axis, end in ends
    )
    bodies = "".join(
        f'<body>{joints}<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>'
        f'<geom name="box{b}" type="box" size="1 1 1" friction="0.3"/></body>'
        for b in range(BOXES)
    )
    gravity = vector(dim - 1, -GRAVITY)
    model = fphys.load(
        f'<mujoco><option timestep="{step}" gravity="{gravity}"/><worldbody>{planes}{bodies}</worldbody></mujoco>'
    )
    mass = density * 8 * half.prod(-1)
    square = half**2
    inertia = mass[..., None] / 3 * (square.sum(-1, keepdims=True) - square)
    first = model.structure.nbody - BOXES
    given = {
        "body.mass": (model.body.mass, first, mass),
        "body.inertia": (model.body.inertia, first, inertia),
        "body.ipos": (model.body.ipos, first, corner(half, dim)),
        "geom.pos": (model.geom.pos, len(ends), corner(half, dim)),
        "geom.size": (model.geom.size, len(ends), half),
    }

    def own(leaf: Any, start: int, value: np.ndarray) -> Any:
        leaf = np.broadcast_to(leaf, (len(value), *leaf.shape[1:])).copy()
        leaf[:, start:] = value
        return leaf

    return model.replace({name: jnp.asarray(own(*value)) for name, value in given.items()})


def in_mpm(kind: str, dim: int, size: Size, x: np.ndarray, inside: np.ndarray) -> tuple[Any, Any]:
    """Matter of which particles ``inside`` are left out, (world, n)."""
    law = mpm.Sand() if kind == "sand" else mpm.Liquid(1000.0, bulk=1000 * SOUND[dim] ** 2, gamma=7.0)
    cell, flat = 2 * size.spacing, (size.width // 2,) * (dim - 1)
    step = 0.5 * cell / np.sqrt(law.modulus() / law.density)
    params = mpm.Params(law, float(step), down(dim), cell=cell, shape=(*flat, 5 * size.depth // 4))
    x = np.broadcast_to(x, (*inside.shape, dim)).astype(np.float32)
    matter = mpm.init(params, x, material=np.where(inside, mpm.EMPTY, 0).astype(np.int32))
    return coupling.MPM(params, tuple(f"box{b}" for b in range(BOXES))), matter


def in_sph(
    dim: int, size: Size, x: np.ndarray, inside: np.ndarray, half: np.ndarray, origin: np.ndarray, quat: np.ndarray
) -> tuple[Any, Any]:
    """The same, in a tank of particles; those of a box are a part of the largest one's."""
    worlds, dx = len(inside), size.spacing
    params = sph.Params(dx, 1e-6, SOUND[dim], gravity=down(dim), artificial=0.1, repulsion=1.0)
    params = params.replace(timestep=float(sph.limit(params, FASTEST).min()))
    upper = np.array([size.width] * (dim - 1) + [size.depth]) * dx
    tank = sides((0.0,) * dim, upper, 1.5 * upper[-1], dx)
    box = grid((0,) * dim, (size.layers[1] * dx,) * dim, dx)
    kinds = [np.where(inside, sph.EMPTY, sph.FLUID), np.full((worlds, len(tank)), sph.SLIP_WALL)]
    places = [np.broadcast_to(a, (worlds, *a.shape)) for a in (x, tank)]
    for b in range(BOXES):
        kinds.append(np.where((box < 2 * half[:, b, None, :dim]).all(-1), sph.WALL, sph.EMPTY))
        places.append((origin[:, b, None] + turned(space(box)[None], quat[:, b, None]))[..., :dim])
    walls = space(np.concatenate([tank, *[box] * BOXES]))
    body = (0,) * len(tank) + tuple(np.repeat(np.arange(1, BOXES + 1), len(box)).tolist())
    x, kind = np.concatenate(places, 1).astype(np.float32), np.concatenate(kinds, 1).astype(np.int32)
    pressure = np.where(kind == sph.FLUID, 1000 * GRAVITY * (upper[-1] - x[..., -1]), 0).astype(np.float32)
    matter = sph.init(params, x, material=kind, pressure=pressure, max_neighbors={2: 80, 3: 250}[dim])
    return coupling.SPH(params, jnp.asarray(walls, jnp.float32), body), matter


def down(dim: int) -> tuple[float, ...]:
    return (0.0,) * (dim - 1) + (-GRAVITY,)


def space(x: np.ndarray) -> np.ndarray:
    """Vectors with three numbers."""
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 3 - x.shape[-1])])


def masses(now: Scenes) -> jax.Array:
    """Of the particles that move [kg], (world, n)."""
    matter, params = now.matter, now.medium.params
    if isinstance(matter, sph.State):
        return jnp.where(matter.kind == sph.FLUID, params.density * params.spacing ** matter.x.shape[-1], 0)
    return jnp.where(matter.material == mpm.EMPTY, 0, params.material.density * matter.volume)


def strain_energy(now: Scenes) -> jax.Array:
    """Of each particle by its mass [J/kg], (world, n)."""
    matter, params = now.matter, now.medium.params
    if isinstance(matter, sph.State):
        r = matter.rho / params.density
        return params.sound_speed**2 / 7 * (r**6 / 6 + 1 / r - 7 / 6)
    law = params.material
    if isinstance(law, mpm.Liquid):
        r = 1 / jnp.linalg.det(matter.F)
        return law.bulk / law.density / 7 * (r**6 / 6 + 1 / r - 7 / 6)
    e = jnp.log(jnp.linalg.svd(matter.F, compute_uv=False))
    mu, lam = law.young / (2 * (1 + law.poisson)), law.young * law.poisson / ((1 + law.poisson) * (1 - 2 * law.poisson))
    return (mu * (e**2).sum(-1) + lam / 2 * e.sum(-1) ** 2) / law.density


def energies(now: Scenes) -> tuple[jax.Array, jax.Array]:
    """Of bodies and matter together, kinetic and potential above the floor [J], (world,).

    The velocities' gradients of MPM are left out: they are zero at the start.
    """
    potential, kinetic = fphys.energy(now.model, now.state)
    m, matter = masses(now), now.matter
    kinetic = kinetic + (m * (matter.v**2).sum(-1)).sum(1) / 2
    return kinetic, potential + (m * (GRAVITY * matter.x[..., -1] + strain_energy(now))).sum(1)


def depths(now: Scenes) -> tuple[jax.Array, jax.Array]:
    """How deep the deepest particle is in a box, and how far one is outside the tank [m], (world,)."""
    dim, body, there = now.matter.x.shape[-1], fphys.kinematics(now.model, now.state).body, masses(now) > 0
    half, middle = (a[:, -BOXES:] for a in (now.model.geom.size, now.model.geom.pos))
    deepest = jnp.full(len(there), -jnp.inf, now.matter.x.dtype)
    for b in range(BOXES):
        d = local(body.pos[:, b - BOXES], body.quat[:, b - BOXES], now.matter.x) - middle[:, b, None]
        deep = (half[:, b, None] - jnp.abs(d))[..., :dim].min(-1)
        deepest = jnp.maximum(deepest, jnp.where(there, deep, -jnp.inf).max(1))
    x, width = now.matter.x, now.size.width * now.size.spacing
    out = jnp.maximum(-x.min(-1), (x[..., :-1] - width).max(-1))
    return deepest, jnp.where(there, out, -jnp.inf).max(1)


def lived(start: Scenes, seconds: float) -> Found:
    """What becomes of the scenes."""
    step = SUBSTEPS * float(start.medium.params.timestep)

    def at(state: Any, matter: Any) -> Scenes:
        return start._replace(state=state, matter=matter)

    @jax.jit
    def roll(state: Any, matter: Any) -> tuple[Any, Any]:
        kinetic, potential = energies(at(state, matter))
        begun = kinetic + potential

        def advance(now: Any, _: None) -> Any:
            state, matter, found = now
            state, (matter,) = coupling.step(start.model, state, (start.medium,), (matter,), substeps=SUBSTEPS)
            if isinstance(matter, sph.State):
                matter = sph.renew(start.medium.params, matter, 0.02)
            scene = at(state, matter)
            kinetic, potential = energies(scene)
            new = ((kinetic + potential - begun) / begun, *(d / start.size.spacing for d in depths(scene)))
            return (state, matter, tuple(jnp.maximum(a, b) for a, b in zip(found, new, strict=True))), None

        least = (jnp.full(len(begun), -jnp.inf, begun.dtype),) * 3
        (state, matter, found), _ = jax.lax.scan(advance, (state, matter, least), length=round(seconds / step))
        return at(state, matter)[1:4:2], found

    (state, matter), found = roll(start.state, start.matter)
    finite = [
        np.isfinite(np.asarray(a)).reshape(len(a), -1).all(1) for a in (state.qpos, state.qvel, matter.x, matter.v)
    ]
    return Found(*map(np.asarray, found), np.asarray(state.status | matter.status), np.logical_and.reduce(finite))
