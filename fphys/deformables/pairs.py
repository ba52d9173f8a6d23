"""A surface that meets itself: its triangles and edges, and what each stands for."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .mesh import Topology, measures

Array = jax.Array


class Skin(NamedTuple):
    """What meets: a solid's surface, or all of a sheet. int32."""

    points: np.ndarray  # vertices, (point,)
    sides: np.ndarray  # triangles, (side, 3)
    rims: np.ndarray  # their edges, each once, (edge, 2)
    borders: np.ndarray  # the edges of each triangle, (side, 3)


@functools.lru_cache(16)
def skin(topology: Topology) -> Skin:
    """The triangles that meet each other."""
    sides = topology.surface if topology.corners == 4 else topology.elements
    pairs = np.sort(np.stack([sides[:, [0, 1]], sides[:, [1, 2]], sides[:, [2, 0]]], 1).reshape(-1, 2), 1)
    rims, borders = np.unique(pairs, axis=0, return_inverse=True)
    found = np.unique(sides), sides, rims, borders.reshape(-1, 3)
    return Skin(*(np.ascontiguousarray(a, np.int32) for a in found))


class Shares(NamedTuple):
    """Parts of the surface at rest."""

    share: Array  # of vertices [m^2], (1 | world, vertex)
    seam: Array  # of edges [m^2], (1 | world, edge)
    span: Array  # squared lengths of edges [m^2], (1 | world, edge)


def shares(rest: Any, topology: Topology) -> Shares:
    """A third of each triangle for each of its vertices and edges. Gradients flow to the shape at rest."""
    s = skin(topology)
    part = measures(rest, s.sides) / 3
    share = jnp.zeros((len(part), topology.num_vertices), part.dtype).at[:, s.sides.T].add(part[:, None])
    seam = jnp.zeros((len(part), len(s.rims)), part.dtype).at[:, s.borders.T].add(part[:, None])
    return Shares(share, seam, ((rest[:, s.rims[:, 1]] - rest[:, s.rims[:, 0]]) ** 2).sum(-1))
