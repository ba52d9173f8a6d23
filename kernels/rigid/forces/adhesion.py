"""Adhesion: an actuator that pulls its body towards all that the body touches, along the contacts' normals."""

import warp as wp

from ..._precision import mat33, motion, real, vec3
from ..collide.pairs import PairList, body_of
from ..solve.constraint import point_rate


@wp.func
def sticks(body: int, p: int, pairs: PairList) -> bool:
    """Whether a body is one of a pair's two; an empty place has the pair -1."""
    out = bool(False)
    if p >= 0:
        out = body_of(p, 0, pairs) == body or body_of(p, 1, pairs) == body
    return out


@wp.func
def contact_count(
    world: int,
    body: int,
    contact_pair: wp.array2d(dtype=int),
    pairs: PairList,
) -> int:
    """How many contacts a body has, those in the gap included."""
    count = int(0)
    for c in range(contact_pair.shape[1]):
        if sticks(body, contact_pair[world, c], pairs):
            count = count + 1
    return count


@wp.kernel
def contact_pulls(
    # Structure:
    actuator: wp.array(dtype=int),
    body: wp.array(dtype=int),
    pairs: PairList,
    # In:
    contact_pair: wp.array2d(dtype=int),
    force: wp.array2d(dtype=real),
    # Out:
    pull_out: wp.array2d(dtype=real),
):
    """What pulls the bodies of every contact together: each adhesion's force in equal parts over its contacts."""
    world, c = wp.tid()
    pull = real(0.0)
    for k in range(actuator.shape[0]):
        if sticks(body[k], contact_pair[world, c], pairs):
            count = contact_count(world, body[k], contact_pair, pairs)
            pull += force[world, actuator[k]] / real(count)
    pull_out[world, c] = pull


@wp.kernel(enable_backward=False)
def add_pulls(
    # Structure:
    pairs: PairList,
    body_lastdof: wp.array(dtype=int),
    dof_parent: wp.array(dtype=int),
    dof_origin: wp.array(dtype=int),
    # In:
    contact_pair: wp.array2d(dtype=int),
    pos: wp.array2d(dtype=vec3),
    frame: wp.array2d(dtype=mat33),
    pull: wp.array2d(dtype=real),
    frame_pos: wp.array2d(dtype=vec3),
    axis: wp.array2d(dtype=motion),
    force: wp.array2d(dtype=real),
    # Out:
    force_out: wp.array2d(dtype=real),
):
    """Generalised forces with the pulls added: J^T f along every contact's normal."""
    world = wp.tid()
    for i in range(force.shape[1]):
        force_out[world, i] = force[world, i]
    for c in range(contact_pair.shape[1]):
        if contact_pair[world, c] >= 0:
            normal = frame[world, c][0]
            for side in range(2):
                f = wp.where(side == 0, pull[world, c], -pull[world, c])
                i = body_lastdof[body_of(contact_pair[world, c], side, pairs)]
                while i >= 0:
                    v = point_rate(axis[world, i], pos[world, c] - frame_pos[world, dof_origin[i]])
                    force_out[world, i] = force_out[world, i] + f * wp.dot(normal, v)
                    i = dof_parent[i]


@wp.kernel
def pull_power(
    # Structure:
    pairs: PairList,
    body_frame: wp.array(dtype=int),
    body_origin: wp.array(dtype=int),
    # In:
    contact_pair: wp.array2d(dtype=int),
    pos: wp.array2d(dtype=vec3),
    frame: wp.array2d(dtype=mat33),
    pull: wp.array2d(dtype=real),
    frame_pos: wp.array2d(dtype=vec3),
    frame_trial: wp.array2d(dtype=motion),
    # Out:
    power_out: wp.array2d(dtype=real),
):
    """Virtual power of the pulls, negative as all that acts on the joints."""
    world, c = wp.tid()
    p = contact_pair[world, c]
    if p >= 0:
        b1 = body_of(p, 0, pairs)
        b2 = body_of(p, 1, pairs)
        v1 = point_rate(frame_trial[world, body_frame[b1]], pos[world, c] - frame_pos[world, body_origin[b1]])
        v2 = point_rate(frame_trial[world, body_frame[b2]], pos[world, c] - frame_pos[world, body_origin[b2]])
        apart = frame[world, c] * (v2 - v1)
        power_out[world, c] = pull[world, c] * apart[0]
