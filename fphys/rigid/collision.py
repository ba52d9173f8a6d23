"""Collision: which geoms touch, and the geometry of their contacts.

Detection decides which contacts exist: the pair and its *feature*, the branch of the pair's geometry. That
decision has no derivative. Distance, position and frame follow from the decision and the poses, and carry gradients.
"""

from typing import Any, NamedTuple

import jax

from ..bridge import kernels
from ..model import Model, State
from . import launches as L

Array = jax.Array


class Contacts(NamedTuple):
    """A contact set; slots without a contact have pair -1."""

    pair: Array  # index into structure.geom.pair, int32, shape (world, contact)
    feature: Array  # branch of the pair's geometry, int32, shape (world, contact)
    distance: Array  # signed distance [m], shape (world, contact)
    pos: Array  # midpoint between the surfaces [m], shape (world, contact, 3)
    frame: Array  # rows: normal, two tangents, shape (world, contact, 3, 3)


def row_capacity(model: Model, state: State) -> int:
    """Rows that the contacts of a world may take: what the other constraints leave of ``max_constraints``."""
    return max(0, state.max_constraints - model.structure.nrow)


def geom_poses(launch: Any, model: Model, state: State, frames: L.Frames) -> L.Frames:
    """Pose of every geom."""
    s = model.structure
    t = L.types(state.qpos)
    shape = (launch.worlds, s.ngeom)
    poses = L.Frames(launch.scratch(shape, t.vec3), launch.scratch(shape, t.quat))
    launch(
        kernels(state.qpos.dtype, "rigid.collision").geom_poses,
        dim=shape,
        inputs=[s.geom.body, s.body.frame, model.geom.pos, model.geom.quat, *frames],
        outputs=list(poses),
    )
    return poses


def detect(
    launch: Any,
    model: Model,
    state: State,
    detection_distance: Any,
    pair_rows: Any,
    poses: L.Frames,
    given: Any,
    out: list[Any],
) -> None:
    """The contact set of every world, or a given one.

    Args:
        detection_distance: distance at which a pair's contact is reported, (world, pair).
        pair_rows: constraint rows of a contact of each pair, (pair,).
        given: None, or (pair, feature) of a contact set to keep.
        out: pair, feature and first row of every contact, each (world, contact), and the status, (world,).
    """
    s = model.structure
    k = kernels(state.qpos.dtype, "rigid.collision")
    if given is not None:
        launch(k.keep_contacts, dim=launch.worlds, inputs=[pair_rows, *given], outputs=out)
        return
    launch(
        k.detect,
        dim=launch.worlds,
        inputs=[s.geom.pair, pair_rows, s.geom.type, row_capacity(model, state)]
        + [model.geom.size, detection_distance, *poses],
        outputs=out,
    )


def geometry(launch: Any, model: Model, state: State, ids: Any, poses: L.Frames, out: list[Any]) -> None:
    """Distance, position and frame of every contact of a set ``ids``: (pair, feature, ...), each (world, contact)."""
    s = model.structure
    launch(
        kernels(state.qpos.dtype, "rigid.collision").contact_geometry,
        dim=(launch.worlds, ids[0].shape[1]),
        inputs=[s.geom.pair, s.geom.type, model.geom.size, ids[0], ids[1], *poses],
        outputs=out,
    )
