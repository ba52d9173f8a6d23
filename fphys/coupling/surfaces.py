"""The border of meshes with what flows: cloth and the surfaces of soft bodies keep particles out.

A particle of MPM or SPH that is nearer to a surface than its reach r is pushed away from the nearest point x_c of it,
and slows down relative to it; the vertices of the side that it is at take the reaction. In a substep h the impulse is

    J = mu max(0, STIFF (r - delta) / h - DAMPED v_n),   mu = m m_s / (m + m_s)

with the distance delta, the relative velocity v_n along the normal, the particle's mass m, and m_s that of the piece of
surface which a particle covers. So a spring and a damper are as stiff as a light cloth can bear in explicit steps, and
no number has to be tuned. Coulomb's friction acts in the side's plane.

The vertices take exactly what the particles are given: with the shares b_k of the corners in x_c, the side's normal n
and its own motion, a particle stands on x_p = sum b_k x_k + delta n. The transpose of that map gives the reactions,

    f_k = -(b_k f - delta (f . grad b_k) n)

whose sum is -f and whose moment is that of -f at x_p: linear and angular momentum close to rounding.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import units
from ..bridge import kernels, warp_op
from ..deformables.mesh import NAMES, Mesh, Topology, measures, shared
from ..errors import UnsupportedError
from ..model.arguments import whole_number
from ..particles.arguments import known, row
from ..tree import Tree, pytree, static
from ..worlds import choose

Array = jax.Array

STIFF = 1.0
"""Of the spring: stable up to 4 - 2 DAMPED for one particle; several layers may be within reach."""

DAMPED = 0.5
"""Of the damper."""

MOST = 2.0
"""Spacings of the particles in the longest reach: as many layers push the same vertices, and more throw them apart."""

GROUP = 16
"""Sides with a common box, which a search looks at first."""

BESIDE = 1e-9
"""Square of how far beyond the edge of a side a particle counts as above it, by the reach: rounding is less."""

TINY = 1e-24


@pytree
class Surface(Tree):
    """A mesh as a boundary of particles: two media of :func:`step`, by their numbers.

    Cloth, and in the plane a rope, hold particles on both sides, each on the side where it is; with ``front``, all on
    the side that the normals point to, also those up to the reach behind it. The surface of a solid holds them outside.
    Under a pressure p on a cloth of rho_s [kg/m^2], particles rest at the depth p h^2 / (STIFF rho_s) below the reach,
    with a substep h: light cloth under much weight needs a short one, or ``front``.

    The spring is stable for a layer or two of particles: a reach above two spacings (in MPM, a cell) is refused, as
    more layers would push the same vertices, and explicit steps throw them apart. One that particles cross in a substep
    lets them pass.
    A number that cannot be is refused on the host; if it is traced, its world skips the step, and the states of both
    media say BADPARAM.
    """

    flow: int = static()  # the medium of particles: coupling.MPM or coupling.SPH
    mesh: int = static()  # the medium of the mesh: coupling.PBD or coupling.FEM
    reach: Any  # distance that the surface keeps [m], shape () or (1 | world,); half to one spacing of the particles
    friction: Any = 0.0  # Coulomb's coefficient, shape () or (1 | world,)
    front: bool = static(default=False)  # of cloth: all particles belong on the side that its normals point to


class Cloud(NamedTuple):
    """Particles of what flows."""

    x: Array  # [m], shape (world, particle, dim)
    v: Array  # [m/s], the same shape
    mass: Array  # [kg], shape (1 | world, particle); zero for those that feel no surface
    volume: Array  # [m^dim], shape (1 | world, particle)


class Sheet(NamedTuple):
    """The surface of a mesh."""

    x: Array  # of all vertices [m], shape (world, vertex, dim)
    v: Array  # [m/s], the same shape
    mass: Array  # [kg], shape (1 | world, vertex)
    mesh: Mesh
    rest: Array  # the mesh's vertices [m], shape (1 | world, vertex, dim)


def prepared(
    surfaces: Surface | Sequence[Surface] | None, media: Sequence[Any], matter: Sequence[Any]
) -> tuple[tuple[Surface, ...], list[Array]]:
    """Surfaces with numbers of shape (1 | world,); and for each the worlds in which they cannot be, of the same shape.

    Raises:
        ValueError: a number is not that of a medium, a medium is of another kind, or a reach or friction is known not
            to be one, or not of these worlds. TypeError: no surface, no whole number, or another dtype.
    """
    given, faults = [], []
    surfaces = () if surfaces is None else surfaces
    for i, surface in enumerate(surfaces if isinstance(surfaces, Sequence) else (surfaces,)):
        if not isinstance(surface, Surface):
            raise TypeError(f"surfaces[{i}] is a {type(surface).__name__}: give coupling.Surface(flow, mesh, reach)")
        for name, number, part, kinds in (
            ("flow", surface.flow, "cloud", "MPM or SPH"),
            ("mesh", surface.mesh, "sheet", "PBD or FEM"),
        ):
            number = whole_number(f"surfaces[{i}].{name}", number)
            if not (0 <= number < len(media) and hasattr(media[number], part)):
                raise ValueError(f"surfaces[{i}].{name} is {number}: it must be the number of a medium {kinds}")
        real, worlds = matter[surface.flow].x.dtype, len(matter[surface.flow].status)
        fault, numbers = jnp.zeros(1, bool), {"reach": surface.reach, "friction": surface.friction}
        params = media[surface.flow].params
        longest = MOST * (params.spacing if hasattr(params, "spacing") else params.cell / 2)
        for key, value in numbers.items():
            name = f"surfaces[{i}].{key}"
            value = units.si(value, units.length, name) if key == "reach" else value
            seen, value = known(value), row(name, value, (), real)
            if len(value) not in (1, worlds):
                raise ValueError(f"{name} is of {len(value)} worlds, there are {worlds}: give one for all, or each")
            low, high = (0, np.inf) if key == "friction" else (jnp.finfo(real).tiny, longest)
            shown = np.ravel(seen[0]) if seen else np.zeros(0)
            if (bad := shown[~(np.isfinite(shown) & (low <= shown) & (shown <= high))]).size:
                many = f", at most {longest:.4g} m, {MOST:g} spacings: more layers of particles throw the mesh away"
                must = "not negative" if key == "friction" else f"positive{many}"
                raise ValueError(f"{name} is {bad[0]}: it must be finite and {must}")
            fault, numbers[key] = fault | ~(jnp.isfinite(value) & (low <= value) & (value <= high)), value
        given.append(surface.replace(**{key: choose(fault, 0, value) for key, value in numbers.items()}))
        faults.append(fault)
    return tuple(given), faults


def pushes(surfaces: Sequence[Surface], media: Sequence[Any], matter: Sequence[Any]) -> list[Array | None]:
    """Forces [N] on the particles or vertices of each medium; None where there is no surface.

    Raises:
        ValueError: the coordinates differ in number. UnsupportedError: a mesh without a surface.
    """
    total: list[Array | None] = [None] * len(media)
    for i, surface in enumerate(surfaces):
        cloud = media[surface.flow].cloud(matter[surface.flow])
        sheet = media[surface.mesh].sheet(matter[surface.mesh])
        if cloud.x.shape[-1] != sheet.x.shape[-1]:
            raise ValueError(
                f"surfaces[{i}]: the particles have {cloud.x.shape[-1]} coordinates, the mesh another number"
            )
        h = jnp.asarray(media[surface.flow].params.timestep, cloud.x.dtype).reshape(-1, 1)
        for number, force in zip((surface.flow, surface.mesh), push(surface, cloud, sheet, h), strict=True):
            before = total[number]
            total[number] = force if before is None else before + force
    return total


def push(surface: Surface, cloud: Cloud, sheet: Sheet, h: Array) -> tuple[Array, Array]:
    """Forces [N] of a surface on particles and of particles on its vertices, both (world, n, dim).

    Args:
        h: length of the substep [s], shape (1 | world, 1).

    Gradients flow to all arguments, not through the choice of the nearest side.
    """
    dim, real = cloud.x.shape[-1], cloud.x.dtype
    sides, solid = sides_of(sheet.mesh)
    at, vel, x, v = _sound(cloud.x), _sound(cloud.v), _sound(sheet.x), _sound(sheet.v)
    reach, friction = (jnp.asarray(a, real).reshape(-1, 1) for a in (surface.reach, surface.friction))
    side = _nearest(sheet.mesh.topology, solid, *jax.lax.stop_gradient((reach, x, at)))
    corner = jnp.asarray(_padded(sides))[side]  # (world, particle, corner)
    pick = jax.vmap(lambda values, numbers: values[numbers])
    ends, moving = pick(x, corner), pick(v, corner)
    share, slope, upright = _on_side(ends, at)
    away = at - (share[..., None] * ends).sum(2)
    height = (away * upright).sum(-1)
    square = (away**2).sum(-1)
    distance = jnp.sqrt(jnp.maximum(square, TINY))
    beside = max(BESIDE, jnp.finfo(real).eps) * reach**2
    flat = (share.min(-1) > 0) | (square - height**2 <= beside)  # above the side, not beyond its edge
    behind, one_sided = height < 0, solid or surface.front
    sign = jnp.where(behind & (not one_sided), -1, 1).astype(real)
    turned = jnp.where(behind & one_sided, -1, 1).astype(real)
    normal = jnp.where(flat[..., None], sign[..., None] * upright, (turned / distance)[..., None] * away)
    delta = jnp.where(flat, sign * height, turned * distance)

    mass, cover = cloud.mass, cloud.volume ** ((dim - 1) / dim)
    piece = cover * (share * pick(jnp.broadcast_to(_by_area(sheet, sides), x.shape[:2]), corner)).sum(-1)
    mu = mass * piece / jnp.maximum(mass + piece, jnp.finfo(real).tiny)
    near = (side >= 0) & (delta < reach)
    relative = vel - (share[..., None] * moving).sum(2)
    closing = (relative * normal).sum(-1)
    size = jnp.where(near, mu * jnp.maximum(STIFF * (reach - delta) / h - DAMPED * closing, 0), 0)
    turn = ((moving * normal[:, :, None]).sum(-1)[..., None] * slope).sum(2)  # of the normal: its rate is -turn
    slide = relative - (relative * upright).sum(-1, keepdims=True) * upright + delta[..., None] * turn
    fast = jnp.sqrt(jnp.maximum((slide**2).sum(-1), TINY))
    drag = -(jnp.minimum(friction * size, DAMPED * mu * fast) / fast)[..., None] * slide
    force = (size[..., None] * normal + drag) / h[..., None]

    lever = delta[..., None] / h[..., None] * (drag[:, :, None] * slope).sum(-1)
    back = lever[..., None] * normal[:, :, None] - share[..., None] * force[:, :, None]
    add = jax.vmap(lambda zero, numbers, values: zero.at[numbers].add(values))
    return force[..., :dim], add(jnp.zeros_like(x), corner, back)[..., :dim]


def overlapping(mesh: Mesh, x: Any, at: Any, distance: float) -> np.ndarray:
    """Which points are inside a solid, or nearer than this to a surface, bool, shape (point,). On the host.

    Args:
        x: vertices [m], shape (vertex, dim). at: points [m], shape (point, dim). distance: [m].
    """
    sides, solid = sides_of(mesh)
    corners, points = np.asarray(x)[sides], np.asarray(at)
    close = ((points >= corners.min((0, 1)) - distance) & (points <= corners.max((0, 1)) + distance)).all(-1)
    found, candidates = np.zeros(len(points), bool), _sound(jnp.asarray(points[close])[None])
    if close.any():
        vertices = _sound(jnp.asarray(x, candidates.dtype)[None])
        side = _nearest(mesh.topology, solid, jnp.full((1, 1), distance, candidates.dtype), vertices, candidates)[0]
        ends = vertices[0][jnp.asarray(_padded(sides))[side]]
        share, _, _ = _on_side(ends, candidates[0])
        away = candidates[0] - (share[..., None] * ends).sum(-2)
        found[close] = (side >= 0) & (jnp.sqrt((away**2).sum(-1)) < distance)
        if solid:
            found[close] |= _inside(np.asarray(x), mesh.elements, points[close])
    return found


def _inside(x: np.ndarray, elements: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Which points are in an element, triangles in the plane or tetrahedra, bool, shape (point,)."""
    from scipy.spatial import KDTree

    found, corners = np.zeros(len(points), bool), np.asarray(x, float)[elements]
    centre = corners.mean(1)
    reach = np.linalg.norm(corners - centre[:, None], axis=-1).max(1)
    near = KDTree(points).query_ball_point(centre, reach)
    of, point = np.repeat(np.arange(len(elements)), [len(n) for n in near]), np.concatenate(near).astype(int)
    edges = np.swapaxes(corners[:, 1:] - corners[:, :1], 1, 2)
    shares = np.einsum("mij,mj->mi", np.linalg.inv(edges)[of], points[point] - corners[of, 0])
    found[point[(shares >= 0).all(1) & (shares.sum(1) <= 1)]] = True
    return found


def sides_of(mesh: Mesh) -> tuple[np.ndarray, bool]:
    """The sides of a mesh's surface, int32, shape (side, 2 | 3), and whether it encloses a solid.

    Raises:
        UnsupportedError: a rope in space.
    """
    corners, dim = mesh.topology.corners, mesh.dim
    if corners == dim + 1:
        return mesh.topology.surface, True
    if corners == dim:
        return mesh.elements, False
    raise UnsupportedError(f"a mesh of {NAMES[corners]} kind in space has no surface: take triangles or tetrahedra")


def _by_area(sheet: Sheet, sides: np.ndarray) -> Array:
    """Mass of each vertex by its part of the surface at rest [kg/m^2], (1 | world, vertex)."""
    area = shared(measures(sheet.rest, sides), sides, sheet.rest.shape[1])
    return jnp.where(area > 0, sheet.mass / jnp.where(area > 0, area, 1), 0)


def _sound(x: Array) -> Array:
    """Vectors of three numbers; those that are not finite are zero, and pass no gradient."""
    x = jnp.pad(x, ((0, 0), (0, 0), (0, 3 - x.shape[-1])))
    return jnp.where(jnp.isfinite(x).all(-1, keepdims=True), x, 0)


def _on_side(ends: Array, at: Array) -> tuple[Array, Array, Array]:
    """Of the point of a side nearest to ``at``: the corners' shares (..., corner), their gradients, and the normal."""

    def along(i: int, j: int) -> Array:
        e = ends[..., j, :] - ends[..., i, :]
        return jnp.clip(((at - ends[..., i, :]) * e).sum(-1) / jnp.maximum((e**2).sum(-1), TINY), 0, 1)

    corners = ends.shape[-2]
    e = ends[..., 1, :] - ends[..., 0, :]
    if corners == 2:
        s, long = along(0, 1), jnp.maximum((e**2).sum(-1, keepdims=True), TINY)
        normal = jnp.stack([e[..., 1], -e[..., 0], jnp.zeros_like(s)], -1) / jnp.sqrt(long)
        return jnp.stack([1 - s, s], -1), jnp.stack([-e / long, e / long], -2), normal
    m = jnp.cross(e, ends[..., 2, :] - ends[..., 0, :])
    square = (m**2).sum(-1, keepdims=True)
    twice = jnp.maximum(square, TINY)
    opposite = [ends[..., (k + 2) % 3, :] - ends[..., (k + 1) % 3, :] for k in range(3)]
    slope = jnp.stack([jnp.cross(m, o) / twice for o in opposite], -2)
    plane = jnp.stack([((at - ends[..., (k + 1) % 3, :]) * slope[..., k, :]).sum(-1) for k in range(3)], -1)
    best, far = plane, jnp.where((plane.min(-1) >= 0) & (square[..., 0] > TINY), -1.0, jnp.inf)
    for i, j in ((0, 1), (1, 2), (2, 0)):
        s = along(i, j)
        shares = jnp.zeros_like(plane).at[..., i].set(1 - s).at[..., j].set(s)
        away = ((at - (shares[..., None] * ends).sum(-2)) ** 2).sum(-1)
        best, far = jnp.where((away < far)[..., None], shares, best), jnp.minimum(away, far)
    return best, slope, m / jnp.sqrt(twice)


def _padded(sides: np.ndarray) -> np.ndarray:
    """Whole groups of sides; the last side is repeated."""
    return np.concatenate([sides, np.repeat(sides[-1:], -len(sides) % GROUP, 0)])


def _nearest(topology: Topology, solid: bool, reach: Array, x: Array, at: Array) -> Array:
    """The nearest side of each point, (world, particle), -1 if none is within reach."""
    sides = _padded(topology.surface if solid else topology.elements)
    ends = x[:, sides].reshape(len(x), -1, GROUP * sides.shape[1], 3)
    return _search(topology, solid)(reach[:, 0], ends.min(2), ends.max(2), x, at)


@functools.lru_cache
def _search(topology: Topology, solid: bool) -> Any:
    sides = _padded(topology.surface if solid else topology.elements)
    corners = sides.shape[1]
    sides = np.ascontiguousarray(np.pad(sides, ((0, 0), (0, 3 - corners))), np.int32)

    def launches(launch: Any, reach: Any, lower: Any, upper: Any, vertex: Any, point: Any, out: Any) -> None:
        kernel = kernels(point.dtype, "coupling.nearest").nearest
        inputs = [corners, sides, GROUP, reach, lower, upper, vertex, point]
        launch(kernel, dim=point.shape[:2], inputs=inputs, outputs=[out])

    def outputs(*inputs: Any) -> Any:
        return jax.ShapeDtypeStruct(inputs[-1].shape[:2], np.int32)

    return warp_op(launches, outputs, differentiable=False, zeroed=False, name="nearest side")
