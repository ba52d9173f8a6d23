"""Which bodies of a USD stage touch: all but those that a joint connects, unless its ``collisionEnabled`` is on.

MuJoCo has another rule: what is fixed together does not touch what is fixed to its parent, unless the parent stands.
It is that of files with MuJoCo's scene, which are MJCF in another form.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from .structure import GeomType
from .usd_joints import Joint
from .usd_shapes import Collider
from .usd_stage import Stage

_OF_GEOMS = {"friction": 5, "solref": 2, "solimp": 5}  # what MuJoCo takes from a pair's geoms where it is NaN
_OF_GEOMS |= {"margin": 1, "gap": 1}


def standing(joints: list[Joint], bodies: dict[Any, Any], static: list[Collider]) -> dict[Any, list[Collider]]:
    """Static colliders by the path of the prim that a joint holds something to, None for those of no such prim.

    What has rigid bodies below is a part of the world, not such a prim.
    """
    ends = [end for own in joints for end, path in zip(own.ends, own.bodies, strict=True) if end and not path]
    found: dict[Any, list[Collider]] = {None: []}
    world = _above(bodies)
    found |= {path: [] for path in dict.fromkeys(end.GetPath() for end in ends) if path not in world}
    for own in static:
        above = own.prim.GetPath().GetAncestorsRange()  # from itself upwards
        found[next((path for path in above if path in found), None)].append(own)
    return {path: group for path, group in found.items() if group or path is None}


def separate(
    usd: Stage,
    spec: Any,
    joints: list[Joint],
    bodies: dict[Any, Any],
    made: dict[Any, Any],
    geoms: dict[Collider, Any],
) -> None:
    """Turn MuJoCo's rule into that of UsdPhysics; in a file with MuJoCo's scene, only where a joint says so.

    Args:
        bodies: how they hang in the tree, by path.
        made: the bodies of the spec by path, with those of :func:`standing`.
        geoms: those of all colliders.
    """
    below = _above(path for path in made if path and path not in bodies)
    for path in _above(bodies):
        below.pop(path, None)
    apart: dict[frozenset[Any], None] = {}
    for own in joints:
        ends = zip(own.ends, own.bodies, strict=True)
        sides = [[path] if path else below.get(end and end.GetPath(), []) for end, path in ends]
        if own.touch is False:
            apart |= dict.fromkeys(map(frozenset, itertools.product(*sides)))
    touch = {frozenset(own.bodies) for own in joints if own.touch} - apart.keys()
    for one, other in map(sorted, apart):
        spec.add_exclude(bodyname1=made[one].name, bodyname2=made[other].name)
    for pair in _left_out(bodies):
        if frozenset(pair) in touch or not (usd.mujocos or frozenset(pair) in apart):
            for one, other in itertools.product(*(bodies[path].colliders for path in pair)):
                _let_touch(spec, geoms[one], geoms[other])


def _above(paths: Iterable[Any]) -> dict[Any, list[Any]]:
    """Of every path at or above some of these: which of them."""
    found: dict[Any, list[Any]] = {}
    for path in paths:
        for above in path.GetAncestorsRange():
            found.setdefault(above, []).append(path)
    return found


def _left_out(bodies: dict[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Pairs of bodies that do not touch by MuJoCo's rule: of two pieces that move, one of which hangs on the other."""

    def top(path: Any) -> Any:
        while path is not None and not bodies[path].moves:
            path = bodies[path].parent
        return path

    pieces: dict[Any, list[Any]] = {}
    for path in bodies:
        pieces.setdefault(top(path), []).append(path)
    for path, members in pieces.items():
        above = None if path is None else top(bodies[path].parent)
        if above is not None:
            yield from itertools.product(pieces[above], members)


def _let_touch(spec: Any, one: Any, other: Any) -> None:
    """Let two geoms touch as they would if MuJoCo did not leave them out."""
    if not (one.contype & other.conaffinity or other.contype & one.conaffinity):
        return
    if one.type == other.type == GeomType.PLANE:
        return
    first = max(one, other, key=lambda geom: geom.priority)
    condim = first.condim if one.priority != other.priority else max(one.condim, other.condim)
    pair = spec.add_pair(geomname1=one.name, geomname2=other.name, condim=condim)
    for name, size in _OF_GEOMS.items():
        setattr(pair, name, np.full(size, np.nan) if size > 1 else np.nan)
