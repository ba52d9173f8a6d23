"""Triangles of the meshes that rays may hit, and the tree that finds them."""

from typing import Any

import numpy as np

from .sensors import SensorType, visible_geoms
from .structure import GeomType, Meshes

_WIDER = 1e-6
"""How far boxes reach beyond their triangles, in units of the mesh: rounding of float32 must not lose one."""


def read_meshes(m: Any) -> Meshes:
    """The meshes among the visible geoms of a compiled model with range finders, with MuJoCo's trees."""
    seen = visible_geoms(m) if (m.sensor_type == SensorType.RANGEFINDER).any() else np.zeros(0, int)
    seen = seen[m.geom_type[seen] == GeomType.MESH]
    root = np.full(m.ngeom, -1, np.int32)
    vert, corner, middle, half = np.zeros((0, 3)), np.zeros((0, 3), int), np.zeros((0, 3)), np.zeros((0, 3))
    past, triangle = np.zeros(0, int), np.zeros(0, int)
    for mesh in np.unique(m.geom_dataid[seen]):
        root[seen[m.geom_dataid[seen] == mesh]] = len(past)
        rows = slice(m.mesh_bvhadr[mesh], m.mesh_bvhadr[mesh] + m.mesh_bvhnum[mesh])
        order, after = _walk(m.bvh_child[rows])
        face, box = m.bvh_nodeid[rows][order], m.bvh_aabb[rows][order]
        past, triangle = (
            np.concatenate([past, len(past) + after]),
            np.concatenate([triangle, np.where(face >= 0, len(corner) + face, -1)]),
        )
        middle, half = (
            np.concatenate([middle, box[:, :3]]),
            np.concatenate([half, box[:, 3:] + _WIDER * box[0, 3:].max()]),
        )
        own = slice(m.mesh_faceadr[mesh], m.mesh_faceadr[mesh] + m.mesh_facenum[mesh])
        corner = np.concatenate([corner, len(vert) + m.mesh_face[own]])
        own = slice(m.mesh_vertadr[mesh], m.mesh_vertadr[mesh] + m.mesh_vertnum[mesh])
        vert = np.concatenate([vert, m.mesh_vert[own]])
    ints = lambda values: values.astype(np.int32)  # noqa: E731
    return Meshes(vert, ints(corner), middle, half, ints(past), ints(triangle), root)


def _walk(child: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of a tree in the order of a walk, each before its children, and where in it those below each end."""
    order, stack = list[int](), [0]
    while stack:
        node = stack.pop()
        order.append(node)
        stack += [int(c) for c in child[node, ::-1] if c >= 0]
    place = np.empty(len(order), int)
    place[order] = np.arange(len(order))
    after = np.arange(1, len(order) + 1)
    for node in reversed(order):
        after[place[node]] = max([after[place[node]], *(after[place[c]] for c in child[node] if c >= 0)])
    return np.array(order), after
