"""Bodies that carry colliders and answer to contact: their twists are unknowns of Newton's method, beside the vertices.

At the end of the step a body's twist is nu = nu_0 + L y, with the twist nu_0 that it has without contact and the lever
L, so that W has m (1 / h^2 + a / h) |y|^2 / 2 for all bodies together, L L^T being m (1 / h^2 + a / h) times their
mobility Y. Where W is least, nu = nu_0 + Y p with the impulse p that contact gives them. The unknowns y stand behind
the vertices in all vectors, two for each body, of the mass m and without weight.

A force f on a vertex at the arm r from a body's origin turns it by -h r x f. The Hessian leaves out that it turns with
the body, a part f / k of the arm, k being the contact's stiffness.
"""

import warp as wp

from .._precision import mat33, real, vec3, vec3i
from ..math import quat_exp, quat_mul, quat_unit
from ..spectral import identity
from .potential import NONE, Body, Setting, Work, force_by, from_collider, inertia


@wp.struct
class Touches:
    """Vertices that colliders of bodies touch, and the second derivative of W by how they move relative to these."""

    count: wp.array(dtype=int)
    touch: wp.array2d(dtype=vec3i)  # vertex, collider, and whether it presses or rubs
    stiffness: wp.array2d(dtype=mat33)


PRESSING = wp.constant(0)
RUBBING = wp.constant(1)


@wp.func
def add_touch(world: int, i: int, c: int, kind: int, k: mat33, count: int, touches_out: Touches) -> int:
    """List a touch if it has any stiffness; returns how many there are."""
    if wp.ddot(k, k) > real(0.0):
        touches_out.touch[world, count] = vec3i(i, c, kind)
        touches_out.stiffness[world, count] = k
        return count + 1
    return count


@wp.func
def lifted(world: int, row: int, setting: Setting, y: wp.array2d(dtype=vec3)) -> vec3:
    """A row of L y."""
    total = vec3()
    rows = setting.free.shape[1]
    for e in range(rows):
        total += setting.lever[world, row * rows + e] * y[world, setting.v.shape[1] + e]
    return total


@wp.func
def add_lowered(world: int, setting: Setting, work: Work, part: real, sum_out: wp.array2d(dtype=vec3)) -> real:
    """Add a part of L^T w behind the vertices; returns the square of what was added."""
    size = real(0.0)
    rows = setting.free.shape[1]
    for e in range(rows):
        total = vec3()
        for row in range(rows):
            total += wp.transpose(setting.lever[world, row * rows + e]) * work.wrench[world, row]
        i = setting.v.shape[1] + e
        sum_out[world, i] = sum_out[world, i] + part * total
        size += part * part * wp.dot(total, total)
    return size


@wp.func
def arm(world: int, i: int, c: int, body: Body, setting: Setting, work: Work) -> vec3:
    """From the origin of the body that carries a collider to a vertex: where a force acts."""
    away = setting.begin[world, c] - setting.origin[world, body.carrier[c]]
    return from_collider(world, i, c, setting, work) + away


@wp.func
def arm_of(world: int, m: int, body: Body, setting: Setting, work: Work, touches: Touches) -> vec3:
    """To the point of a body that touches: pressure goes by where it is then, slip by where it was."""
    q = touches.touch[world, m]
    if q[2] == RUBBING:
        return setting.before[world, q[0]] - setting.origin[world, body.carrier[q[1]]]
    return arm(world, q[0], q[1], body, setting, work)


@wp.func
def carry(world: int, body: Body, setting: Setting, u: wp.array2d(dtype=vec3), work_out: Work):
    """Move the colliders with their bodies."""
    h = setting.timestep[world]
    for c in range(body.shape.shape[0]):
        b = body.carrier[c]
        if b >= 0:
            spin = setting.free[world, 2 * b + 1] + lifted(world, 2 * b + 1, setting, u)
            linear = setting.free[world, 2 * b] + lifted(world, 2 * b, setting, u)
            linear += wp.cross(spin, setting.begin[world, c] - setting.origin[world, b])
            work_out.velocity[world, c] = linear
            work_out.spin[world, c] = spin
            work_out.shift[world, c] = h * linear
            work_out.end_turn[world, c] = quat_mul(quat_exp(h * spin), quat_unit(setting.begin_turn[world, c]))


@wp.func
def clear(world: int, work_out: Work):
    """No wrench."""
    for row in range(work_out.wrench.shape[1]):
        work_out.wrench[world, row] = vec3()


@wp.func
def press(world: int, c: int, r: vec3, f: vec3, body: Body, work_out: Work):
    """Add a force at an arm to the wrench on the body of a collider."""
    b = body.carrier[c]
    work_out.wrench[world, 2 * b] = work_out.wrench[world, 2 * b] + f
    work_out.wrench[world, 2 * b + 1] = work_out.wrench[world, 2 * b + 1] + wp.cross(r, f)


@wp.func
def add_body_force(world: int, body: Body, setting: Setting, work: Work, gradient_out: wp.array2d(dtype=vec3)) -> real:
    """Add the contact's part of dW/dy; returns the square of what its rounding is relative to."""
    clear(world, work)
    blur = real(0.0)
    h = setting.timestep[world]
    for i in range(setting.v.shape[1]):
        if setting.area[world, i] > real(0.0):
            for c in range(body.shape.shape[0]):
                if body.carrier[c] >= 0:
                    f, size = force_by(world, i, c, body, setting, work)
                    press(world, c, arm(world, i, c, body, setting, work), f, body, work)
                    if size > real(0.0):
                        blur += size * size * lightness(world, body.carrier[c], setting)
    return add_lowered(world, setting, work, h, gradient_out) + h * h * blur


@wp.func
def lightness(world: int, b: int, setting: Setting) -> real:
    """The square of how far a force along some axis moves the unknowns of a body [1/kg]."""
    total = real(0.0)
    rows = setting.free.shape[1]
    for e in range(rows):
        k = setting.lever[world, 2 * b * rows + e]
        total += wp.ddot(k, k)
    return total / real(3.0)


@wp.func
def body_imbalance(
    world: int, pressed: real, setting: Setting, u: wp.array2d(dtype=vec3), gradient: wp.array2d(dtype=vec3)
) -> real:
    """The square of dW/dy over that of what it is the sum of: contact (``pressed``), inertia, and the free motion's."""
    heavy = setting.weight[world] * inertia(setting, world)
    left = real(0.0)
    size = real(pressed)
    for i in range(setting.v.shape[1], u.shape[1]):
        left += wp.dot(gradient[world, i], gradient[world, i])
        size += heavy * heavy * wp.dot(u[world, i], u[world, i])
    for b in range(setting.free.shape[1] // 2):
        free = setting.free[world, 2 * b]
        size += heavy * heavy * wp.dot(free, free) / wp.max(lightness(world, b, setting), NONE)
    return left / wp.max(size, NONE)


@wp.func
def skew(r: vec3) -> mat33:
    """r x, as a matrix."""
    o = real(0.0)
    return mat33(o, -r[2], r[1], r[2], o, -r[0], -r[1], r[0], o)


@wp.func
def moved_by(world: int, e: int, m: int, body: Body, setting: Setting, work: Work, touches: Touches) -> mat33:
    """The derivative of where a collider is, at a vertex that it touches, by an unknown."""
    c = touches.touch[world, m][1]
    b = body.carrier[c]
    rows = setting.free.shape[1]
    r = arm_of(world, m, body, setting, work, touches)
    turn = skew(r) * setting.lever[world, (2 * b + 1) * rows + e]
    return setting.timestep[world] * (setting.lever[world, 2 * b * rows + e] - turn)


@wp.func
def inverse_block(
    world: int, e: int, inertia: real, body: Body, setting: Setting, work: Work, touches: Touches
) -> mat33:
    """Inverse of the Hessian's diagonal block of an unknown, of stiffnesses that are not negative."""
    total = inertia * identity()
    for m in range(touches.count[world]):
        g = moved_by(world, e, m, body, setting, work, touches)
        total += wp.transpose(g) * touches.stiffness[world, m] * g
    return wp.inverse(total)


@wp.func
def add_body_product(
    world: int,
    body: Body,
    setting: Setting,
    work: Work,
    touches: Touches,
    p: wp.array2d(dtype=vec3),
    product_out: wp.array2d(dtype=vec3),
):
    """Add the touches' product with p; what is between vertices alone is in the blocks of the Hessian."""
    h = setting.timestep[world]
    clear(world, work)
    for row in range(setting.free.shape[1]):
        work.twist[world, row] = lifted(world, row, setting, p)
    for m in range(touches.count[world]):
        i = touches.touch[world, m][0]
        c = touches.touch[world, m][1]
        b = body.carrier[c]
        r = arm_of(world, m, body, setting, work, touches)
        way = h * (work.twist[world, 2 * b] + wp.cross(work.twist[world, 2 * b + 1], r))
        k = touches.stiffness[world, m]
        product_out[world, i] = product_out[world, i] - k * way
        press(world, c, r, k * (way - p[world, i]), body, work)
    add_lowered(world, setting, work, h, product_out)
