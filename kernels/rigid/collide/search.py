"""What a search for contacts is given: the candidates of one kind of pair, the geoms, and the hulls of meshes."""

import warp as wp

from ..._precision import quat, real, vec3
from .pairs import PairList, kind_of


@wp.struct
class Search:
    """Where to look, and where what is found belongs: candidate ``own[i]`` has slots from ``slot[i]`` on."""

    lanes: int  # threads that share a world's candidates
    pairs: PairList
    source: int  # that of the pairs that this search is for
    own: wp.array(dtype=int)
    slot: wp.array(dtype=int)
    candidate: wp.array2d(dtype=int)  # pairs that may touch, (world, candidate)
    detection: wp.array2d(dtype=real)  # distance up to which a candidate's contacts count, (world, candidate)


@wp.struct
class Geoms:
    """What geoms are, and where."""

    kind: wp.array(dtype=int)
    size: wp.array2d(dtype=vec3)
    pos: wp.array2d(dtype=vec3)
    quat: wp.array2d(dtype=quat)


@wp.struct
class Hulls:
    """The hulls of all meshes; see ``fphys.model.structure.Hulls``."""

    number: wp.array2d(dtype=int)  # of every geom: how the parts of its hull are numbered
    radius: wp.array(dtype=real)  # of every geom
    vert: wp.array(dtype=vec3)
    edge: wp.array(dtype=int)
    neighbour: wp.array(dtype=int)
    ends: wp.array2d(dtype=int)
    leaving: wp.array(dtype=int)
    normal: wp.array(dtype=vec3)
    level: wp.array(dtype=vec3)
    side: wp.array(dtype=vec3)  # for every face the normal of the side, nearly flat, that it is merged into
    first: wp.array(dtype=int)  # of every geom: the vertex at which a search starts
    corner: wp.array(dtype=int)
    corners: wp.array(dtype=int)
    face: wp.array(dtype=int)
    meeting: wp.array(dtype=int)
    faces: wp.array(dtype=int)
    beside: wp.array(dtype=int)
    sides: wp.array(dtype=int)
    merged: wp.array(dtype=int)


@wp.func
def slots_of(p: int, s: Search) -> int:
    """Slots of a pair; 0: it is for another search."""
    kind = kind_of(p, s.pairs)
    return wp.where(s.pairs.source[kind] == s.source, s.pairs.slots[kind], 0)


@wp.func
def chosen(world: int, i: int, s: Search) -> int:
    """The pair that the i-th candidate of this kind stands for, or -1 where there is none or it has no slots."""
    p = s.candidate[world, s.own[i]]
    if p >= 0:
        p = wp.where(slots_of(p, s) != 0, p, -1)
    return p
