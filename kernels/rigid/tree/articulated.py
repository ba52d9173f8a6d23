"""Articulated inertias: M x = f and M x in a time that is linear in the bodies (Featherstone 2008, table 7.1).

A dense mass matrix of a chain has as many numbers as pairs of dofs. Here each body hands on to its parent the inertia
that is left when its own joints give way. Spatial vectors are in world axes about each body's *own* origin, for about
a point that is far away the inertia of one link would drown in that of its moment arm.
"""

import warp as wp

from ..._precision import mat33, motion, quat, real, vec3, wrench
from ...math import quat_mul, quat_unit, rotate, rotation, spatial
from .dynamics import arm


@wp.struct
class Tree:
    """Bodies and dofs."""

    parent: wp.array(dtype=int)  # of each body
    dofs: wp.array2d(dtype=int)  # of each body the first, and how many
    axis: wp.array2d(dtype=motion)  # motion that each dof causes
    offset: wp.array2d(dtype=vec3)  # of a body's origin from its parent's


@wp.struct
class Inertia:
    """The mass matrix, body by body."""

    diagonal: wp.array2d(dtype=real)  # armature and the like, of each dof
    turn: wp.array2d(dtype=mat33)  # blocks of a body's spatial inertia: [turn, mixed; mixed^T, shift]
    mixed: wp.array2d(dtype=mat33)
    shift: wp.array2d(dtype=mat33)


@wp.struct
class Factor:
    """What takes the place of a factor of the mass matrix."""

    gain: wp.array2d(dtype=wrench)  # I s / D, at which each dof's force is felt
    pivot: wp.array2d(dtype=real)  # D = s . I s, the inertia that resists each dof


@wp.func
def carried(m: motion, r: vec3) -> motion:
    """A body's motion, referred to the point that is r away from where it was."""
    return spatial(wp.spatial_top(m), wp.spatial_bottom(m) + wp.cross(wp.spatial_top(m), r))


@wp.func
def handed_on(f: wrench, r: vec3) -> wrench:
    """A wrench about a point, referred to the one from which that point is r away."""
    return spatial(wp.spatial_top(f) + wp.cross(r, wp.spatial_bottom(f)), wp.spatial_bottom(f))


@wp.func
def momentum(turn: mat33, mixed: mat33, shift: mat33, m: motion) -> wrench:
    """The product of a spatial inertia [turn, mixed; mixed^T, shift] and a motion."""
    w = wp.spatial_top(m)
    v = wp.spatial_bottom(m)
    return spatial(turn * w + mixed * v, wp.transpose(mixed) * w + shift * v)


@wp.kernel(enable_backward=False)
def body_inertias(
    # Structure:
    body_frame: wp.array(dtype=int),
    body_parent: wp.array(dtype=int),
    # Model:
    body_ipos: wp.array2d(dtype=vec3),
    body_iquat: wp.array2d(dtype=quat),
    body_mass: wp.array2d(dtype=real),
    body_inertia: wp.array2d(dtype=vec3),
    # In:
    frame_pos: wp.array2d(dtype=vec3),
    frame_quat: wp.array2d(dtype=quat),
    # Out:
    offset_out: wp.array2d(dtype=vec3),
    turn_out: wp.array2d(dtype=mat33),
    mixed_out: wp.array2d(dtype=mat33),
    shift_out: wp.array2d(dtype=mat33),
):
    """The spatial inertia of every body about its origin, and the way there from its parent's origin."""
    world, b = wp.tid()
    f = body_frame[b]
    offset_out[world, b] = frame_pos[world, f] - frame_pos[world, body_frame[body_parent[b]]]
    mass = body_mass[world, b]
    com = rotate(frame_quat[world, f], body_ipos[world, b])
    axes = rotation(quat_mul(frame_quat[world, f], quat_unit(body_iquat[world, b])))
    turn_out[world, b] = axes * wp.diag(body_inertia[world, b]) * wp.transpose(axes) + mass * arm(com)
    mixed_out[world, b] = mass * wp.skew(com)
    shift_out[world, b] = mass * wp.identity(n=3, dtype=real)


@wp.kernel(enable_backward=False)
def diagonal(
    # Structure:
    damper: int,
    # Model:
    dof_armature: wp.array2d(dtype=real),
    dof_damping: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    # Out:
    diagonal_out: wp.array2d(dtype=real),
):
    """What stands on the diagonal beside the bodies' inertia: armature, and damping over a time step if it counts."""
    world, d = wp.tid()
    damping = real(damper) * timestep[world] * dof_damping[world, d]
    diagonal_out[world, d] = dof_armature[world, d] + damping


@wp.func
def articulate_tree(
    world: int,
    t: Tree,
    f: Factor,
    diagonal: wp.array2d(dtype=real),
    turn: wp.array2d(dtype=mat33),
    mixed: wp.array2d(dtype=mat33),
    shift: wp.array2d(dtype=mat33),
):
    """Find the factor of inertias [turn, mixed; mixed^T, shift], which become articulated ones."""
    n = t.parent.shape[0]
    for i in range(n - 1):
        b = n - 1 - i
        a = turn[world, b]
        h = mixed[world, b]
        c = shift[world, b]
        first = t.dofs[b, 0]
        count = t.dofs[b, 1]
        for k in range(count):
            d = first + count - 1 - k
            felt = momentum(a, h, c, t.axis[world, d])
            pivot = wp.dot(t.axis[world, d], felt) + diagonal[world, d]
            top = wp.spatial_top(felt)
            bottom = wp.spatial_bottom(felt)
            a -= wp.outer(top, top) / pivot
            h -= wp.outer(top, bottom) / pivot
            c -= wp.outer(bottom, bottom) / pivot
            f.gain[world, d] = felt / pivot
            f.pivot[world, d] = pivot
        p = t.parent[b]
        if p > 0:
            r = wp.skew(t.offset[world, b])
            reach = h + r * c
            turn[world, p] = turn[world, p] + a - h * r + r * wp.transpose(reach)
            mixed[world, p] = mixed[world, p] + reach
            shift[world, p] = shift[world, p] + c


@wp.kernel(enable_backward=False)
def articulate(
    # In:
    t: Tree,
    m: Inertia,
    # Out:
    turn_out: wp.array2d(dtype=mat33),
    mixed_out: wp.array2d(dtype=mat33),
    shift_out: wp.array2d(dtype=mat33),
    factor_out: Factor,
):
    """Articulated inertias, and the factor."""
    world = wp.tid()
    for b in range(t.parent.shape[0]):
        turn_out[world, b] = m.turn[world, b]
        mixed_out[world, b] = m.mixed[world, b]
        shift_out[world, b] = m.shift[world, b]
    articulate_tree(world, t, factor_out, m.diagonal, turn_out, mixed_out, shift_out)


@wp.func
def solve_tree(
    world: int,
    t: Tree,
    f: Factor,
    force: wp.array2d(dtype=real),
    body: wp.array2d(dtype=motion),
    x: wp.array2d(dtype=real),
):
    """M x = force, in place of x: forces inwards, accelerations outwards; ``body`` is scratch."""
    n = t.parent.shape[0]
    for b in range(n):
        body[world, b] = wrench()
    for i in range(n - 1):
        b = n - 1 - i
        felt = body[world, b]
        first = t.dofs[b, 0]
        count = t.dofs[b, 1]
        for k in range(count):
            d = first + count - 1 - k
            left = force[world, d] - wp.dot(t.axis[world, d], felt)
            x[world, d] = left
            felt += left * f.gain[world, d]
        p = t.parent[b]
        if p > 0:
            body[world, p] = body[world, p] + handed_on(felt, t.offset[world, b])
    for b in range(1, n):
        moved = carried(body[world, t.parent[b]], t.offset[world, b])
        first = t.dofs[b, 0]
        for k in range(t.dofs[b, 1]):
            d = first + k
            a = x[world, d] / f.pivot[world, d] - wp.dot(f.gain[world, d], moved)
            x[world, d] = a
            moved += a * t.axis[world, d]
        body[world, b] = moved


@wp.func
def spread(world: int, t: Tree, rate: wp.array2d(dtype=real), body: wp.array2d(dtype=motion)):
    """The motion of every body, in place of ``body``, for given rates of the dofs."""
    body[world, 0] = motion()
    for b in range(1, t.parent.shape[0]):
        moved = carried(body[world, t.parent[b]], t.offset[world, b])
        first = t.dofs[b, 0]
        for k in range(t.dofs[b, 1]):
            moved += rate[world, first + k] * t.axis[world, first + k]
        body[world, b] = moved


@wp.func
def resist(
    world: int,
    t: Tree,
    m: Inertia,
    rate: wp.array2d(dtype=real),
    body: wp.array2d(dtype=motion),
    load: wp.array2d(dtype=wrench),
    force: wp.array2d(dtype=real),
):
    """Momenta of the bodies for their motions, in place of ``load``, and what the diagonal adds, of ``force``."""
    for b in range(t.parent.shape[0]):
        load[world, b] = momentum(m.turn[world, b], m.mixed[world, b], m.shift[world, b], body[world, b])
    for d in range(rate.shape[1]):
        force[world, d] = m.diagonal[world, d] * rate[world, d]


@wp.func
def collect(world: int, t: Tree, load: wp.array2d(dtype=wrench), force: wp.array2d(dtype=real)):
    """Add the dofs' shares of the loads on the bodies to ``force``; each body's subtree's load is left in ``load``."""
    n = t.parent.shape[0]
    for i in range(n - 1):
        b = n - 1 - i
        first = t.dofs[b, 0]
        for k in range(t.dofs[b, 1]):
            force[world, first + k] = force[world, first + k] + wp.dot(t.axis[world, first + k], load[world, b])
        p = t.parent[b]
        load[world, p] = load[world, p] + handed_on(load[world, b], t.offset[world, b])


@wp.kernel(enable_backward=False)
def solve(
    # In:
    t: Tree,
    f: Factor,
    force: wp.array2d(dtype=real),
    # Out:
    body_out: wp.array2d(dtype=motion),
    x_out: wp.array2d(dtype=real),
):
    """M x = force."""
    world = wp.tid()
    solve_tree(world, t, f, force, body_out, x_out)


@wp.kernel(enable_backward=False)
def multiply(
    # In:
    t: Tree,
    m: Inertia,
    x: wp.array2d(dtype=real),
    # Out:
    body_out: wp.array2d(dtype=motion),
    load_out: wp.array2d(dtype=wrench),
    y_out: wp.array2d(dtype=real),
):
    """y = M x."""
    world = wp.tid()
    spread(world, t, x, body_out)
    resist(world, t, m, x, body_out, load_out, y_out)
    collect(world, t, load_out, y_out)
