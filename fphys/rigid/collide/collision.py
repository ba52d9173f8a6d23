"""Collision: which geoms touch, and the geometry of their contacts.

Detection decides which contacts exist: the pair and its *feature*, the branch of the pair's geometry. That
decision has no derivative. Distance, position and frame follow from the decision and the poses, and carry gradients.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...bridge import kernels, warp_op
from ...model import Model, State
from ...model.pairs import pair_kinds, slots
from ...model.structure import GeomType, Hulls
from .. import stages, team
from .pairs import geoms_of, pair_list, reach_of

Array = jax.Array


class Contacts(NamedTuple):
    """A contact set; slots without a contact have pair -1. Pair and feature identify a contact.

    A pair is an index into ``structure.geom.pair``. A sparse model lists no pairs: there it is the lower geom times
    ``ngeom``, plus the higher. ``fphys.rigid.collide.pairs.geoms_of`` gives the two geoms of either.
    """

    pair: Array  # int32, shape (world, contact)
    feature: Array  # branch of the pair's geometry, int32, shape (world, contact)
    distance: Any  # signed distance [m], shape (world, contact)
    pos: Any  # midpoint between the surfaces [m], shape (world, contact, 3)
    frame: Any  # rows: normal, two tangents, shape (world, contact, 3, 3)


class Shapes(NamedTuple):
    """The geometry of a contact set, each (world, contact, ...)."""

    distance: Any
    pos: Any
    frame: Any


def row_capacity(model: Model, state: State) -> int:
    """Rows that the contacts of a world may take: what the other constraints leave of ``max_constraints``."""
    return max(0, state.max_constraints - model.structure.nrow)


def geom_poses(launch: Any, model: Model, state: State, frames: stages.Frames) -> stages.Frames:
    """Pose of every geom."""
    s = model.structure
    t = stages.types(state.qpos)
    shape = (launch.worlds, s.ngeom)
    poses = stages.Frames(launch.scratch(shape, t.vec3), launch.scratch(shape, t.quat))
    launch(
        kernels(state.qpos.dtype, "rigid.collide.collision").geom_poses,
        dim=(launch.worlds, team.lanes(launch, s.ngeom)),
        inputs=[team.lanes(launch, s.ngeom), s.geom.body, s.body.frame, model.geom.pos, model.geom.quat, *frames],
        outputs=list(poses),
    )
    return poses


def detect(
    launch: Any,
    model: Model,
    state: State,
    candidate: Any,
    detection_distance: Any,
    poses: stages.Frames,
    given: Any,
    out: list[Any],
    max_rows: int,
) -> None:
    """The contact set of every world, detected or given.

    Args:
        candidate: pairs that may touch, (world, candidate): all, or those that :func:`near_pairs` found.
        detection_distance: distance at which a candidate's contact is reported, (world, candidate).
        given: None, or (pair, feature) of a contact set to keep.
        out: pair, feature and first row of every contact, each (world, contact), and the status, (world,).
        max_rows: constraint rows that the contacts of a world may take.
    """
    s = model.structure
    k = kernels(state.qpos.dtype, "rigid.collide.collision")
    if given is not None:
        launch(k.keep_contacts, dim=launch.worlds, inputs=[pair_list(model), *given], outputs=out)
        return
    of = pair_kinds(s)
    t = stages.types(state.qpos)
    geoms = {"kind": s.geom.type, "size": model.geom.size, "pos": poses.pos, "quat": poses.quat}
    hulls = _hulls(model, state)
    several = int("multiccd" not in s.disabled and not s.geom.nearest)
    sources = (
        ("plane", [geoms]),
        ("primitives", [geoms]),
        ("box_box", [geoms]),
        ("mesh", [geoms, hulls]),
        ("sphere_mesh", [geoms, hulls, s.hull.own_edges, s.hull.own_faces]),
        ("convex", [geoms, hulls, several]),
        ("hfield", [geoms, hulls, s.geom.grid, model.hfield.size, model.hfield.data]),
    )
    features: dict[str, Any] = {name: np.zeros((1, 0), np.int32) for name, _ in sources}
    first = np.zeros((len(sources) if s.sparse else 1, candidate.shape[1]), np.int32)
    for i, (name, arguments) in enumerate(sources):
        mine = np.where((of.source == i) & (of.number > 0), of.count, 0).astype(np.int32)
        if not mine.any():
            continue
        if s.sparse:  # a candidate may be of any kind
            own = np.arange(candidate.shape[1], dtype=np.int32)
            slot = own * mine.max()
            first[i], size = slot, own.size * mine.max()
        else:
            own = np.flatnonzero(mine).astype(np.int32)
            slot = slots(s).first[own]
            first[0, own], size = slot, mine.sum()
        features[name] = launch.scratch((launch.worlds, int(size)), t.integer)
        lanes = team.lanes(launch, own.size)
        search = {"lanes": lanes, "pairs": pair_list(model), "source": i, "own": own, "slot": slot}
        search |= {"candidate": candidate, "detection": detection_distance}
        launch(
            kernels(state.qpos.dtype, f"rigid.collide.{name}").features,
            dim=(launch.worlds, lanes),
            inputs=[search, *arguments],
            outputs=[features[name]],
        )
    launch(
        k.gather_contacts,
        dim=launch.worlds,
        inputs=[pair_list(model), first, max_rows, candidate, features],
        outputs=out,
    )


def geometry(
    launch: Any, model: Model, state: State, ids: Any, frames: stages.Frames, out: Shapes | None = None
) -> Contacts:
    """Distance, position and frame of every contact of a set ``ids``: pair and feature, each (world, contact).

    It computes the poses of the touching geoms itself: they are few.
    """
    s, t = model.structure, stages.types(state.qpos)
    pair, feature = ids
    lanes = team.lanes(launch, pair.shape[1])
    geoms = {"type": s.geom.type, "frame": s.body.frame[s.geom.body], "number": _numbers(model), "grid": s.geom.grid}
    out = out or Shapes(*(launch.scratch(pair.shape, kind) for kind in (t.real, t.vec3, t.mat33)))
    launch(
        kernels(state.qpos.dtype, "rigid.collide.collision").contact_geometry,
        dim=(launch.worlds, lanes),
        inputs=[lanes, pair_list(model), geoms, _parts(model, state)]
        + [model.geom.pos, model.geom.quat, model.geom.size, model.hfield.size, model.hfield.data]
        + [pair, feature, frames],
        outputs=list(out),
    )
    return Contacts(pair, feature, *out)


def _hulls(model: Model, state: State) -> dict[str, np.ndarray]:
    """The hulls of all meshes, in the form that kernels take."""
    h = model.structure.hull
    real = {"vert": h.vert, "normal": h.normal, "level": h.level, "side": h.normal[h.merged], "radius": h.radius}
    same = "first edge neighbour ends leaving corner corners meeting faces beside sides merged".split()
    found = {"number": _numbers(model), "face": _corner_face(h)} | {name: getattr(h, name) for name in same}
    return found | {name: _vectors(values, state) for name, values in real.items()}


def _numbers(model: Model) -> np.ndarray:
    """How the parts of every geom's hull are numbered, (ngeom, 10).

    Columns: its first vertex, edge and face; among its parts, the numbers of its first edge and face, and how many
    numbers tell them or its corners apart; the rows of its first edge, face and corner in :func:`_parts`; how many
    parts it has.
    """
    h = model.structure.hull
    verts, edges, faces = h.own_verts, h.own_edges, h.own_faces
    edge_base = verts[:, 1] - verts[:, 0]
    bases = edge_base, edge_base + edges[:, 1] - edges[:, 0], h.names
    rows = edges[:, 0] + len(h.vert), faces[:, 0] + len(h.vert) + len(h.ends)
    return np.stack([verts[:, 0], edges[:, 0], faces[:, 0], *bases, *rows, h.corner[faces[:, 0]], h.parts], 1).astype(
        np.int32
    )


def _corner_face(hull: Hulls) -> np.ndarray:
    """The face of every corner."""
    return np.repeat(np.arange(len(hull.normal), dtype=np.int32), np.diff(hull.corner))


def _parts(model: Model, state: State) -> dict[str, np.ndarray]:
    """A point and a direction for every vertex, edge and face of the hulls, and which of the three it is."""
    h = model.structure.hull
    sizes = len(h.vert), len(h.ends), len(h.normal)
    point = np.concatenate([h.vert, h.vert[h.ends[:, 0]], h.vert[h.corners[h.corner[:-1]]], np.zeros((1, 3))])
    along = h.vert[h.ends[:, 1]] - h.vert[h.ends[:, 0]]
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    direction = np.concatenate([np.zeros_like(h.vert), along, h.normal, np.zeros((1, 3))])
    kind = np.repeat(np.arange(4, dtype=np.int32), [*sizes, 1])
    real = {"point": point, "direction": direction, "corner": _corners(h)}
    return {"kind": kind} | {name: _vectors(values, state) for name, values in real.items()}


def _corners(hull: Hulls) -> np.ndarray:
    """Every corner of the hulls' faces, the next corner, and MuJoCo's normal and last corner of the face,
    (corner + 1, 4, 3)."""
    face = _corner_face(hull)
    last = hull.corner[face + 1] - 1
    after = np.where(np.arange(len(face)) == last, hull.corner[face], np.arange(len(face)) + 1)
    here, next, base = (hull.vert[hull.corners[k]] for k in (slice(None), after, last))
    return np.concatenate([np.stack([here, next, hull.level[face], base], 1), np.zeros((1, 4, 3))])


def _vectors(values: np.ndarray, state: State) -> np.ndarray:
    """Vectors in the precision of the state."""
    return values.astype(state.qpos.dtype)


def detection_distance(model: Model, candidate: Array | None = None) -> Array:
    """Distance below which a contact of each pair is reported [m]: margins and gaps, (1 | world, pair).

    Args:
        candidate: only these pairs, (world, candidate).
    """
    s = model.structure
    reach = model.geom.margin + model.geom.gap
    if candidate is not None:
        pair = geoms_of(s, candidate)
        return jax.vmap(lambda r, p: r[p].sum(-1))(jnp.broadcast_to(reach, (len(pair), s.ngeom)), pair)
    a, b = s.geom.pair[: len(s.geom.pair) - s.geom.named.size].T
    named = (model.pair.margin + model.pair.gap)[:, s.geom.named]
    worlds = max(reach.shape[0], named.shape[0])
    mixed = reach[:, a] + reach[:, b]
    return jnp.concatenate([jnp.broadcast_to(x, (worlds, x.shape[1])) for x in (mixed, named)], 1)


def near_pairs(model: Model, state: State) -> tuple[Array, Array]:
    """The broad phase: pairs whose axis-aligned boxes overlap, ascending, then -1; and the fault bits.

    Time and memory are linear in the number of geoms if few of them are near each other.
    """
    return _near_op(*jax.lax.stop_gradient((model, state)))


def _near(launch: Any, model: Model, state: State, candidate: Any, status: Any) -> None:
    _search(launch, model, state, candidate, status)


def _search(launch: Any, model: Model, state: State, candidate: Any, status: Any) -> stages.Frames:
    """Launch the broad phase; the poses of the geoms."""
    s, t, w = model.structure, stages.types(state.qpos), launch.worlds
    k = kernels(state.qpos.dtype, "rigid.collide.broad_phase")
    poses = geom_poses(launch, model, state, stages.frame_poses(launch, model, state))
    half = launch.scratch((w, s.ngeom), t.vec3)
    radius = s.hull.radius.astype(state.qpos.dtype)
    parameters = [model.geom.size, model.geom.margin, model.geom.gap, model.opt.softness]
    launch(k.bounds, dim=(w, s.ngeom), inputs=[s.geom.type, radius, *parameters, poses.quat], outputs=[half])
    sizes = (1 + (1 << max(0, s.ngeom - 1).bit_length()), s.ngeom, s.ngeom)
    scratch = [launch.scratch((w, n), t.integer) for n in sizes]
    cell = launch.scratch((w, s.ngeom), t.vec3i)
    inputs = [pair_list(model), reach_of(s), poses.pos, half]
    launch(k.near_pairs, dim=w, inputs=inputs, outputs=[cell, *scratch, candidate, status])
    return poses


def _near_shapes(model: Model, state: State) -> tuple[Any, ...]:
    w, shape = state.qpos.shape[0], jax.ShapeDtypeStruct
    return shape((w, _candidates(model, state)), jnp.int32), shape((w,), jnp.uint32)


def _candidates(model: Model, state: State) -> int:
    """Capacity of the broad phase: all pairs with an infinite geom or height field, and four per contact for others."""
    s, k = model.structure, pair_kinds(model.structure)
    endless = k.number[s.geom.type[k.pair[:, 0]] <= GeomType.HFIELD].sum()
    return int(min(k.number.sum(), endless + 4 * state.max_contacts))


_near_op = warp_op(_near, _near_shapes, differentiable=False, zeroed=False, name="broad phase")


class Near(NamedTuple):
    """What :func:`_near_contacts` writes."""

    pair: Any  # (world, contact)
    feature: Any
    broad: Any  # fault bits of the broad phase, (world,)
    narrow: Any


def near_contacts(model: Model, state: State) -> tuple[tuple[Array, Array], Array]:
    """The contact set of a sparse model, by the broad phase: pair and feature of every contact; and the fault bits."""
    found: Near = _near_contacts_op(*jax.lax.stop_gradient((model, state)))
    return (found.pair, found.feature), found.broad | found.narrow


def _near_contacts(launch: Any, model: Model, state: State, out: Near) -> None:
    t = stages.types(state.qpos)
    candidate = launch.scratch((launch.worlds, _candidates(model, state)), t.integer)
    poses = _search(launch, model, state, candidate, out.broad)
    distance = launch.scratch(candidate.shape, t.real)
    lanes = team.lanes(launch, candidate.shape[1])
    launch(
        kernels(state.qpos.dtype, "rigid.collide.broad_phase").reaches,
        dim=(launch.worlds, lanes),
        inputs=[lanes, pair_list(model), model.geom.margin, model.geom.gap, model.opt.softness, candidate],
        outputs=[distance],
    )
    row = launch.scratch(out.pair.shape, t.integer)
    found, room = [out.pair, out.feature, row, out.narrow], row_capacity(model, state)
    detect(launch, model, state, candidate, distance, poses, None, found, room)


def _near_contacts_shapes(_: Model, state: State) -> Near:
    ids = jax.ShapeDtypeStruct((state.qpos.shape[0], state.max_contacts), jnp.int32)
    return Near(ids, ids, *[jax.ShapeDtypeStruct(state.qpos.shape[:1], jnp.uint32)] * 2)


_near_contacts_op = warp_op(
    _near_contacts, _near_contacts_shapes, differentiable=False, zeroed=False, name="contact detection"
)


def contacts(model: Model, state: State, given: Contacts | None = None, within: Array | None = None) -> Contacts:
    """The contacts of a state, without solving for their forces.

    Args:
        given: a contact set; its pairs and features are kept instead of being detected.
        within: distance below which a contact of each pair is reported [m], (1 | world, pair); by default margin and
            gap. Not for sparse models.

    Returns:
        Contacts. Gradients flow from distance, position and frame, tangents included, to the state and to the
        geoms' poses and sizes, for the contact set as it is: the appearance or disappearance of a contact, or a change
        of its feature, has no derivative.
    """
    if given is None:
        candidate = near_pairs(model, state)[0] if model.structure.sparse else None
        distance = detection_distance(model, candidate) if within is None else within
        candidate = jnp.arange(distance.shape[1], dtype=jnp.int32)[None] if candidate is None else candidate
        pair, feature, _, _ = _detect_op(*jax.lax.stop_gradient((model, state, candidate, distance)))
    else:
        pair, feature = given.pair, given.feature
    return Contacts(pair, feature, *_geometry_op(model, state, (pair, feature)))


def _detect(launch: Any, model: Model, state: State, candidate: Any, distance: Any, *outs: Any) -> None:
    poses = geom_poses(launch, model, state, stages.frame_poses(launch, model, state))
    detect(launch, model, state, candidate, distance, poses, None, list(outs), _ANY)


_ANY = 2**31 - 1
"""Rows enough for all contacts."""


def _detect_shapes(_: Model, state: State, *__: Any) -> tuple[Any, ...]:
    ids = jax.ShapeDtypeStruct((state.qpos.shape[0], state.max_contacts), jnp.int32)
    return ids, ids, ids, jax.ShapeDtypeStruct(state.qpos.shape[:1], jnp.uint32)


_detect_op = warp_op(_detect, _detect_shapes, differentiable=False, zeroed=False, name="contact detection")


def _geometry(launch: Any, model: Model, state: State, ids: Any, out: Shapes) -> None:
    geometry(launch, model, state, ids, stages.frame_poses(launch, model, state), out)


def _geometry_shapes(_: Model, state: State, ids: Any) -> Shapes:
    w, nc = ids[0].shape
    return Shapes(*(jax.ShapeDtypeStruct((w, nc, *inner), state.qpos.dtype) for inner in ((), (3,), (3, 3))))


_geometry_op = warp_op(_geometry, _geometry_shapes, name="contact geometry")
