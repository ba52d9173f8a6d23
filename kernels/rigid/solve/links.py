"""Rows that are linear in the motions of several bodies, for mechanisms whose rows have no entries for dofs.

Such a row is a sum of terms, a number times a wrench on a body: its *base*. The bases are of three sorts.

- A dof's rate is p . (v_b - v_p), the motions of its body and of the body's parent. Of the axes s_k of the body's
  dofs, p is the wrench in their span with p . s_k = 1 for its own axis and 0 for the others.
- A spatial tendon's length changes by its pulls on bodies.
- A connection holds points of two bodies together, a weld their orientations, too.
"""

import warp as wp

from ..._precision import mat66, motion, real, vec3, vec6, wrench
from ...math import quat_conj, quat_mul, quat_unit, spatial
from ..bodies import Bodies, Frames
from ..tree.articulated import Tree, handed_on
from .equality import Welds, anchor_point, turned


@wp.func
def dual(world: int, first: int, count: int, which: int, axis: wp.array2d(dtype=motion)) -> wrench:
    """The wrench p in the span of a body's axes with p . s = 1 for one of them and 0 for the others."""
    gram = mat66()
    x = vec6()
    for i in range(count):
        x[i] = wp.where(i == which, real(1.0), real(0.0))
        for j in range(count):
            gram[i, j] = wp.dot(axis[world, first + i], axis[world, first + j])
    for k in range(count):  # Gauss: the matrix is positive definite
        for i in range(k + 1, count):
            factor = gram[i, k] / gram[k, k]
            x[i] = x[i] - factor * x[k]
            for j in range(k, count):
                gram[i, j] = gram[i, j] - factor * gram[k, j]
    out = wrench()
    for k in range(count):
        i = count - 1 - k
        for j in range(i + 1, count):
            x[i] = x[i] - gram[i, j] * x[j]
        x[i] = x[i] / gram[i, i]
        out += x[i] * axis[world, first + i]
    return out


@wp.kernel(enable_backward=False)
def dof_bases(
    # Structure:
    base: int,
    dof: wp.array(dtype=int),
    body: wp.array(dtype=int),
    wrap: wp.array(dtype=int),
    # Model:
    tendon_coef: wp.array2d(dtype=real),
    # In:
    t: Tree,
    # Out:
    base_out: wp.array2d(dtype=vec6),
):
    """Two bases of each dof, on its body and on the parent, from ``base`` on; a wrap's are times its coefficient."""
    world, i = wp.tid()
    b = body[i]
    first = t.dofs[b, 0]
    p = dual(world, first, t.dofs[b, 1], dof[i] - first, t.axis)
    if wrap[i] >= 0:
        p = tendon_coef[world, wrap[i]] * p
    base_out[world, base + 2 * i] = p
    base_out[world, base + 2 * i + 1] = -handed_on(p, t.offset[world, b])


@wp.kernel(enable_backward=False)
def pull_bases(
    # Structure:
    segment_body: wp.array2d(dtype=int),
    bodies: Bodies,
    # In:
    pull: wp.array3d(dtype=vec6),
    frame_pos: wp.array2d(dtype=vec3),
    # Out:
    base_out: wp.array2d(dtype=vec6),
):
    """The pulls of tendons' segments on bodies, about the bodies' own origins."""
    world, s, k = wp.tid()
    b = segment_body[s, k]
    r = frame_pos[world, bodies.origin[b]] - frame_pos[world, bodies.frame[b]]
    base_out[world, 3 * s + k] = handed_on(pull[world, s, k], r)


@wp.kernel(enable_backward=False)
def weld_bases(
    # Structure:
    first: wp.array(dtype=int),
    bodies: Bodies,
    # Model:
    welds: Welds,
    # In:
    frames: Frames,
    # Out:
    base_out: wp.array2d(dtype=vec6),
):
    """The bases of every row of a connection or weld, on its first and second body."""
    world, e = wp.tid()
    f1 = bodies.frame[welds.body[e, 0]]
    f2 = bodies.frame[welds.body[e, 1]]
    turn = quat_mul(frames.quat[world, f1], quat_unit(welds.turn1[world, e]))
    back = quat_conj(quat_mul(frames.quat[world, f2], quat_unit(welds.turn2[world, e])))
    for side in range(2):
        sign = wp.where(side == 0, real(1.0), real(-1.0))
        origin = frames.pos[world, bodies.frame[welds.body[e, side]]]
        r = anchor_point(world, e, side, welds, bodies, frames) - origin
        for i in range(3):
            along = vec3()
            along[i] = sign
            base_out[world, first[e] + 2 * i + side] = spatial(wp.cross(r, along), along)
            if welds.rows[e] == 6:
                about = vec3()
                for j in range(3):
                    unit = vec3()
                    unit[j] = sign * welds.torquescale[world, e]
                    rate = turned(back, unit, turn)
                    about[j] = rate[i]
                base_out[world, first[e] + 2 * (3 + i) + side] = spatial(about, vec3())


@wp.kernel(enable_backward=False)
def fill_ones(
    # Out:
    ones_out: wp.array3d(dtype=real),
):
    """Ones: what stands for the Jacobian of tendons in rows whose entries are multiples of tendons."""
    world, t, d = wp.tid()
    ones_out[world, t, d] = real(1.0)
