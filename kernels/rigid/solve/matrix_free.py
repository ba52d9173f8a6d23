"""Products with the Hessian H = M + J^T s'' J, and solves, without a matrix.

A product is a sweep outwards to the bodies' motions, what inertia and contacts make of them, and a sweep inwards. The
preconditioner is H without what couples the two bodies of a contact: each contact's stiffness is added to its bodies'
inertias, and articulated inertias solve with the sum. Where only the world is touched, it is H itself. MuJoCo's
constraints are soft in proportion to what they move, J M^-1 J^T s'' <= d / (1 - d) row by row, which bounds the number
of sweeps, whatever the number of bodies.
"""

import warp as wp

from ..._precision import mat33, motion, real, vec2, vec3, vec5, vec6, wrench
from ...math import spatial
from ..collide.shapes import place
from ..tree.articulated import Factor, Inertia, Tree, articulate_tree, collect, resist, solve_tree, spread
from .contact import edge_rate, relative_rate

SWEEPS = wp.constant(1000)
"""Most sweeps of one solve; friction and stacks of hundreds of bodies need some thirty."""


@wp.struct
class Rows:
    """The constraints' rows: those of single joints first, then contacts'."""

    row_dof: wp.array(dtype=int)  # dof of each row of a joint
    pair: wp.array2d(dtype=int)
    pair_dim: wp.array(dtype=int)
    geom_body: wp.array(dtype=int)
    body_frame: wp.array(dtype=int)
    friction: wp.array2d(dtype=vec5)
    frame_pos: wp.array2d(dtype=vec3)
    jacobian: wp.array3d(dtype=real)  # the only entry of a row of a joint
    weight: wp.array2d(dtype=real)
    reference: wp.array2d(dtype=real)
    bound: wp.array2d(dtype=vec2)
    contact_pair: wp.array2d(dtype=int)
    contact_slot: wp.array2d(dtype=int)
    contact_row: wp.array2d(dtype=int)
    pos: wp.array2d(dtype=vec3)
    frame: wp.array2d(dtype=mat33)


@wp.kernel(enable_backward=False)
def locate(
    # In:
    candidate: wp.array2d(dtype=int),
    pair: wp.array2d(dtype=int),
    # Out:
    slot_out: wp.array2d(dtype=int),
):
    """Where the parameters of every contact's pair stand."""
    world, c = wp.tid()
    slot_out[world, c] = place(world, pair[world, c], candidate)


@wp.func
def edges(dim: int) -> int:
    """Rows of a contact: the edges of its pyramid."""
    return wp.where(dim == 1, 1, 2 * (dim - 1))


@wp.func
def edge_force(s: real, mu: vec5, dim: int, row: int) -> vec6:
    """Force in the contact's frame whose product with a rate is s times that along the row (:func:`edge_rate`)."""
    out = vec6()
    out[0] = s
    if dim > 1:
        out[1 + row // 2] = wp.where(row % 2 == 0, s, -s) * mu[row // 2]
    return out


@wp.func
def rates(world: int, r: Rows, x: wp.array2d(dtype=real), body: wp.array2d(dtype=motion), out: wp.array2d(dtype=real)):
    """J x, in place of ``out``, for the bodies' motions that x causes."""
    first = r.row_dof.shape[0]
    for i in range(first):
        rate = real(0.0)
        if r.weight[world, i] > real(0.0):
            rate = r.jacobian[world, i, 0] * x[world, r.row_dof[i]]
        out[world, i] = rate
    for c in range(r.contact_pair.shape[1]):
        p = r.contact_pair[world, c]
        if p < 0:
            break
        start = first + r.contact_row[world, c]
        if r.weight[world, start] > real(0.0):
            b1 = r.geom_body[r.pair[p, 0]]
            b2 = r.geom_body[r.pair[p, 1]]
            o1 = r.frame_pos[world, r.body_frame[b1]]
            o2 = r.frame_pos[world, r.body_frame[b2]]
            u = relative_rate(r.frame[world, c], r.pos[world, c], body[world, b1], o1, body[world, b2], o2)
            mu = r.friction[world, r.contact_slot[world, c]]
            for row in range(edges(r.pair_dim[p])):
                out[world, start + row] = edge_rate(u, mu, r.pair_dim[p], 0, row)


@wp.func
def contact_wrench(world: int, r: Rows, c: int, b: int, f: vec6) -> wrench:
    """A force and torque in a contact's frame, as a wrench on a body about its origin."""
    back = wp.transpose(r.frame[world, c])
    linear = back * vec3(f[0], f[1], f[2])
    arm = r.pos[world, c] - r.frame_pos[world, r.body_frame[b]]
    return spatial(back * vec3(f[3], f[4], f[5]) + wp.cross(arm, linear), linear)


@wp.func
def push(world: int, r: Rows, s: wp.array2d(dtype=real), load: wp.array2d(dtype=wrench), force: wp.array2d(dtype=real)):
    """Add J^T s: that of joints to ``force``, that of contacts to the bodies' ``load``."""
    first = r.row_dof.shape[0]
    for i in range(first):
        if r.weight[world, i] > real(0.0):
            d = r.row_dof[i]
            force[world, d] = force[world, d] + s[world, i] * r.jacobian[world, i, 0]
    for c in range(r.contact_pair.shape[1]):
        p = r.contact_pair[world, c]
        if p < 0:
            break
        start = first + r.contact_row[world, c]
        if r.weight[world, start] > real(0.0):
            mu = r.friction[world, r.contact_slot[world, c]]
            f = vec6()
            for row in range(edges(r.pair_dim[p])):
                f += edge_force(s[world, start + row], mu, r.pair_dim[p], row)
            b1 = r.geom_body[r.pair[p, 0]]
            b2 = r.geom_body[r.pair[p, 1]]
            load[world, b1] = load[world, b1] - contact_wrench(world, r, c, b1, f)
            load[world, b2] = load[world, b2] + contact_wrench(world, r, c, b2, f)


@wp.func
def dot(world: int, a: wp.array2d(dtype=real), b: wp.array2d(dtype=real)) -> real:
    """Product of two vectors of dofs."""
    out = real(0.0)
    for i in range(a.shape[1]):
        out += a[world, i] * b[world, i]
    return out


@wp.func
def respond(
    world: int, r: Rows, error: wp.array2d(dtype=real), force: wp.array2d(dtype=real), stiffness: wp.array2d(dtype=real)
):
    """Minus the rows' forces for their errors, in place of ``force``, and how they vary, of ``stiffness``."""
    for i in range(r.weight.shape[1]):
        s = real(0.0)
        stiff = real(0.0)
        if r.weight[world, i] > real(0.0):
            low = r.bound[world, i][0]
            high = r.bound[world, i][1]
            s = wp.clamp(r.weight[world, i] * error[world, i], low, high)
            if s > low and s < high:
                stiff = r.weight[world, i]
        force[world, i] = s
        stiffness[world, i] = stiff


@wp.struct
class Scratch:
    """What a solve works with, of dofs, rows and bodies."""

    residual: wp.array2d(dtype=real)
    preconditioned: wp.array2d(dtype=real)
    direction: wp.array2d(dtype=real)
    product: wp.array2d(dtype=real)
    stiffness: wp.array2d(dtype=real)
    change: wp.array2d(dtype=real)
    diagonal: wp.array2d(dtype=real)
    body: wp.array2d(dtype=motion)
    load: wp.array2d(dtype=wrench)
    turn: wp.array2d(dtype=mat33)
    mixed: wp.array2d(dtype=mat33)
    shift: wp.array2d(dtype=mat33)


@wp.func
def precondition(world: int, t: Tree, m: Inertia, r: Rows, f: Factor, s: Scratch):
    """Articulate the bodies' inertias, the stiffness of their contacts and joints added."""
    for b in range(t.parent.shape[0]):
        s.turn[world, b] = m.turn[world, b]
        s.mixed[world, b] = m.mixed[world, b]
        s.shift[world, b] = m.shift[world, b]
    for d in range(t.axis.shape[1]):
        s.diagonal[world, d] = m.diagonal[world, d]
    first = r.row_dof.shape[0]
    for i in range(first):
        if s.stiffness[world, i] > real(0.0):
            d = r.row_dof[i]
            entry = r.jacobian[world, i, 0]
            s.diagonal[world, d] = s.diagonal[world, d] + s.stiffness[world, i] * entry * entry
    for c in range(r.contact_pair.shape[1]):
        p = r.contact_pair[world, c]
        if p < 0:
            break
        start = first + r.contact_row[world, c]
        for row in range(edges(r.pair_dim[p])):
            stiff = s.stiffness[world, start + row]
            if stiff > real(0.0):
                mu = r.friction[world, r.contact_slot[world, c]]
                force = edge_force(real(1.0), mu, r.pair_dim[p], row)
                for side in range(2):
                    b = r.geom_body[r.pair[p, side]]
                    w = contact_wrench(world, r, c, b, force)
                    top = wp.spatial_top(w)
                    bottom = wp.spatial_bottom(w)
                    s.turn[world, b] = s.turn[world, b] + stiff * wp.outer(top, top)
                    s.mixed[world, b] = s.mixed[world, b] + stiff * wp.outer(top, bottom)
                    s.shift[world, b] = s.shift[world, b] + stiff * wp.outer(bottom, bottom)
    articulate_tree(world, t, f, s.diagonal, s.turn, s.mixed, s.shift)


@wp.func
def conjugate_gradients(
    world: int,
    t: Tree,
    m: Inertia,
    r: Rows,
    f: Factor,
    s: Scratch,
    part: real,
    right: wp.array2d(dtype=real),
    x: wp.array2d(dtype=real),
) -> int:
    """H x = right, in place of x, until ``part`` of the right side is left (Hestenes & Stiefel 1952); the sweeps."""
    n = right.shape[1]
    for i in range(n):
        x[world, i] = real(0.0)
        s.residual[world, i] = right[world, i]
    enough = part * part * dot(world, right, right)
    solve_tree(world, t, f, s.residual, s.body, s.preconditioned)
    for i in range(n):
        s.direction[world, i] = s.preconditioned[world, i]
    fall = dot(world, s.residual, s.preconditioned)
    count = int(0)
    while count < SWEEPS and fall > real(0.0):
        count = count + 1
        spread(world, t, s.direction, s.body)
        rates(world, r, s.direction, s.body, s.change)
        for i in range(r.weight.shape[1]):
            s.change[world, i] = s.stiffness[world, i] * s.change[world, i]
        resist(world, t, m, s.direction, s.body, s.load, s.product)
        push(world, r, s.change, s.load, s.product)
        collect(world, t, s.load, s.product)
        along = fall / dot(world, s.direction, s.product)
        for i in range(n):
            x[world, i] = x[world, i] + along * s.direction[world, i]
            s.residual[world, i] = s.residual[world, i] - along * s.product[world, i]
        if dot(world, s.residual, s.residual) <= enough:
            break
        solve_tree(world, t, f, s.residual, s.body, s.preconditioned)
        before = fall
        fall = dot(world, s.residual, s.preconditioned)
        for i in range(n):
            s.direction[world, i] = s.preconditioned[world, i] + fall / before * s.direction[world, i]
    return count
