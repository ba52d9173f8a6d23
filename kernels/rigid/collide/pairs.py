"""What the number of a pair says: its two geoms, and what their contacts are like.

Small models list all pairs that may touch. In a sparse model the number is the lower geom times the number of geoms,
plus the higher, and what decides is the kinds of the two geoms, of which there are few.
"""

import warp as wp

from .shapes import HFIELD


@wp.struct
class PairList:
    """The pairs of geoms that may touch; see ``fphys.model.pairs.Kinds``."""

    geoms: wp.array2d(dtype=int)  # the two geoms of each listed pair; none in a sparse model
    type: wp.array(dtype=int)  # of every geom
    geom_body: wp.array(dtype=int)
    group: wp.array(dtype=int)  # kind of every geom
    groups: int
    source: wp.array(dtype=int)  # of each kind of pair: which search finds its contacts
    slots: wp.array(dtype=int)  # most contacts
    dim: wp.array(dtype=int)  # their dimension: 1, 3, 4 or 6
    rows: wp.array(dtype=int)  # their rows


@wp.struct
class Reach:
    """What decides whether two geoms may touch; see ``fphys.model.pairs.reach``."""

    filter: wp.array2d(dtype=int)
    apart: wp.array(dtype=int)  # pairs of bodies that do not touch, ascending
    nbody: int


@wp.func
def geom_of(p: int, side: int, pairs: PairList) -> int:
    """The first or second geom of a pair: that of lower type comes first."""
    g = int(0)
    if pairs.geoms.shape[0] > 0:
        g = pairs.geoms[p, side]
    else:
        n = pairs.type.shape[0]
        low = p // n
        high = p - n * low
        ordered = pairs.type[low] <= pairs.type[high]
        g = wp.where(ordered == (side == 0), low, high)
    return g


@wp.func
def kind_of(p: int, pairs: PairList) -> int:
    """The kind of a pair."""
    kind = int(p)
    if pairs.geoms.shape[0] == 0:
        n = pairs.type.shape[0]
        kind = pairs.group[p // n] * pairs.groups + pairs.group[p % n]
    return kind


@wp.func
def body_of(p: int, side: int, pairs: PairList) -> int:
    """The body of a pair's first or second geom."""
    return pairs.geom_body[geom_of(p, side, pairs)]


@wp.func
def are_apart(a: int, b: int, reach: Reach) -> bool:
    """Whether the file says that two bodies do not touch."""
    code = wp.min(a, b) * reach.nbody + wp.max(a, b)
    low = int(0)
    high = int(reach.apart.shape[0])
    while low < high:
        middle = (low + high) // 2
        if reach.apart[middle] < code:
            low = middle + 1
        else:
            high = middle
    found = bool(False)
    if low < reach.apart.shape[0]:
        found = reach.apart[low] == code
    return found


@wp.func
def may_touch(a: int, b: int, pairs: PairList, reach: Reach) -> bool:
    """Whether two geoms may touch, as MuJoCo decides: by their bits, pieces, parents, types and exclusions."""
    f = reach.filter
    may = ((f[a, 3] & f[b, 4]) | (f[b, 3] & f[a, 4])) != 0
    may = may and f[a, 0] != f[b, 0] and f[a, 1] != f[b, 2] and f[b, 1] != f[a, 2]
    may = may and (pairs.type[a] > HFIELD or pairs.type[b] > HFIELD)
    if may:
        may = not are_apart(pairs.geom_body[a], pairs.geom_body[b], reach)
    return may
