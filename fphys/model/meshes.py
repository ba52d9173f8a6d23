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
    found = [(np.zeros((0, 3)), np.zeros((0, 3), int), np.zeros((0, 6)), np.zeros(0, int), np.zeros(0, int))]
    verts, triangles, nodes = 0, 0, 0
    for mesh in np.unique(m.geom_dataid[seen]):
        root[seen[m.geom_dataid[seen] == mesh]] = nodes
        vert, corner, box, past, triangle = _read(m, int(mesh))
        found.append((vert, verts + corner, box, nodes + past, np.where(triangle >= 0, triangles + triangle, -1)))
        verts, triangles, nodes = verts + len(vert), triangles + len(corner), nodes + len(past)
    vert, corner, box, past, triangle = map(np.concatenate, zip(*found, strict=True))
    corner, past, triangle = (x.astype(np.int32) for x in (corner, past, triangle))
    return Meshes(vert, corner, box[:, :3], box[:, 3:], past, triangle, root)


def _read(m: Any, mesh: int) -> tuple[np.ndarray, ...]:
    """Vertices and triangles of a mesh; boxes, next nodes and triangles of its tree in the order of a walk."""
    rows, faces, verts = (
        slice(first[mesh], first[mesh] + number[mesh])
        for first, number in (
            (m.mesh_bvhadr, m.mesh_bvhnum),
            (m.mesh_faceadr, m.mesh_facenum),
            (m.mesh_vertadr, m.mesh_vertnum),
        )
    )
    order, past = _walk(m.bvh_child[rows])
    box = m.bvh_aabb[rows][order]
    box[:, 3:] += _WIDER * box[0, 3:].max()
    return m.mesh_vert[verts].astype(float), m.mesh_face[faces], box, past, m.bvh_nodeid[rows][order]


def _walk(child: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of a tree in the order of a walk, each before its children, and where in it those below each end."""
    order, stack = list[int](), [0]
    while stack:
        node = stack.pop()
        order.append(node)
        stack += [int(c) for c in child[node, ::-1] if c >= 0]
    place = np.empty(len(order), int)
    place[order] = np.arange(len(order))
    past = np.arange(1, len(order) + 1)
    for node in reversed(order):
        past[place[node]] = max([past[place[node]], *(past[place[c]] for c in child[node] if c >= 0)])
    return np.array(order), past
