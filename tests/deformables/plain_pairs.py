"""A surface that meets itself, in plain code: the energy of its pairs for JAX to differentiate, and what crosses."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fphys.deformables import pairs


def combined(*meshes: Any) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and elements of several meshes as one."""
    first = np.cumsum([0, *(len(m.vertices) for m in meshes)])
    elements = [m.elements + k for m, k in zip(meshes, first, strict=False)]
    return np.concatenate([m.vertices for m in meshes]), np.concatenate(elements)


def crossings(x: Any, topology: Any) -> int:
    """How many edges of the surface go through one of its triangles."""
    s, x = pairs.skin(topology), np.asarray(x, float)
    a, b = x[s.rims[:, 0]][:, None], x[s.rims[:, 1]][:, None]
    p, q, r = (x[s.sides[:, k]][None] for k in range(3))
    normal = np.cross(q - p, r - p)
    up, down = ((a - p) * normal).sum(-1), ((b - p) * normal).sum(-1)
    at = a + (up / np.where(up == down, 1, up - down))[..., None] * (b - a)
    inside = [(np.cross(w - v, at - v) * normal).sum(-1) > 0 for v, w in ((p, q), (q, r), (r, p))]
    apart = ~(s.rims[:, None, :, None] == s.sides[None, :, None, :]).any((2, 3))
    return int(((up * down < 0) & inside[0] & inside[1] & inside[2] & apart).sum())


def listed(topology: Any) -> tuple[np.ndarray, np.ndarray]:
    """Every vertex with every side, and every edge with every other, that have none in common; (pair, 4) of both."""
    s = pairs.skin(topology)
    corners = [(v, *t) for v in s.points.tolist() for t in s.sides.tolist() if v not in t]
    i, j = np.triu_indices(len(s.rims), 1)
    both = np.concatenate([s.rims[i], s.rims[j]], 1)
    free = [len(set(row)) == 4 for row in both.tolist()]
    return np.asarray(corners), np.concatenate([both, i[:, None], j[:, None]], 1)[free]


def to_piece(p: Any, a: Any, b: Any) -> Any:
    """Square of the distance from points to pieces of lines."""
    s = jnp.clip(((p - a) * (b - a)).sum(-1) / ((b - a) ** 2).sum(-1), 0, 1)[:, None]
    return ((a + s * (b - a) - p) ** 2).sum(-1)


def in_plane(r: Any, e: Any, f: Any) -> tuple[Any, Any, Any]:
    """Where r + s e + t f is nearest to the origin, and the square of how near."""
    ee, ff, ef = (e * e).sum(-1), (f * f).sum(-1), (e * f).sum(-1)
    det = ee * ff - ef**2
    flat = det <= 1e-12 * ee * ff
    det = jnp.where(flat, 1, det)
    s = jnp.where(flat, -1, (ef * (f * r).sum(-1) - ff * (e * r).sum(-1)) / det)
    t = jnp.where(flat, -1, (ef * (e * r).sum(-1) - ee * (f * r).sum(-1)) / det)
    return s, t, ((r + s[:, None] * e + t[:, None] * f) ** 2).sum(-1)


def barrier(square: Any, k: Any, t: Any) -> Any:
    y = jnp.minimum(jnp.sqrt(square) / t, 1.0)
    return -k * t**2 / 6 * (1 - y) ** 2 * jnp.log(y)


def energy(params: Any, after: Any) -> Any:
    """Of all pairs of one world, without friction, from the equations of ``kernels/deformables/pairs.py``."""
    topology, k, t = params.mesh.topology, params.contact.stiffness, params.contact.thickness
    share, seam, span = (a[0] for a in pairs.shares(jnp.asarray(params.mesh.vertices)[None], topology))
    sides, edges = listed(topology)
    p, a, b, c = (after[sides[:, m]] for m in range(4))
    s, r, square = in_plane(p - a, a - b, a - c)
    rim = jnp.minimum(jnp.minimum(to_piece(p, a, b), to_piece(p, b, c)), to_piece(p, c, a))
    square = jnp.where((s > 0) & (r > 0) & (s + r < 1), square, rim)
    total = (0.5 * share[sides[:, 0]] * barrier(square, k, t)).sum()
    p, q, a, b = (after[edges[:, m]] for m in range(4))
    s, r, square = in_plane(p - a, q - p, a - b)
    ends = jnp.stack([to_piece(p, a, b), to_piece(q, a, b), to_piece(a, p, q), to_piece(b, p, q)]).min(0)
    square = jnp.where((s > 0) & (r > 0) & (s < 1) & (r < 1), square, ends)
    i, j = edges[:, 4], edges[:, 5]
    sine = jnp.minimum(1, (jnp.cross(q - p, b - a) ** 2).sum(-1) / (1e-3 * span[i] * span[j]))
    return total + (0.25 * (seam[i] + seam[j]) * sine * (2 - sine) * barrier(square, k, t)).sum()


forces = jax.jit(jax.grad(energy, argnums=1))
