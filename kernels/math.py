"""Rotations, spatial vectors, and numbers held in a range.

Every function is smooth wherever its value is: roots and divisions are guarded at their argument,
because a ``where`` after the fact does not protect an adjoint.
"""

import warp as wp

from ._precision import mat33, motion, quat, real, vec3, vec6

SMALL_ANGLE_SQUARED = wp.constant(real(1.0e-6))
"""Below this squared angle, Taylor series to the fourth order are exact to rounding (error 1e-23)."""


@wp.func
def held(x: real, low: real, high: real) -> real:
    """x, between low and high. At an end its derivative is that inside: a control at its limit can still be lowered."""
    out = x
    if x < low:
        out = low
    elif x > high:
        out = high
    return out


@wp.func
def quat_mul(a: quat, b: quat) -> quat:
    """Hamilton product."""
    return quat(
        a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
        a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
        a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
        a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
    )


@wp.func
def quat_conj(q: quat) -> quat:
    """Inverse of a unit quaternion."""
    return quat(q[0], -q[1], -q[2], -q[3])


@wp.func
def quat_unit(q: quat) -> quat:
    """q / |q|; the identity for q = 0."""
    n = wp.dot(q, q)
    if n < real(1.0e-30):
        return quat(real(1.0), real(0.0), real(0.0), real(0.0))
    return q / wp.sqrt(n)


@wp.func
def rotate(q: quat, v: vec3) -> vec3:
    """Rotate v by a unit quaternion: v + 2 w (u x v) + 2 u x (u x v)."""
    u = vec3(q[1], q[2], q[3])
    t = real(2.0) * wp.cross(u, v)
    return v + q[0] * t + wp.cross(u, t)


@wp.func
def rotate_back(q: quat, v: vec3) -> vec3:
    """Rotate v by the inverse of a unit quaternion."""
    u = vec3(q[1], q[2], q[3])
    t = real(2.0) * wp.cross(v, u)
    return v + q[0] * t + wp.cross(t, u)


@wp.func
def rotation(q: quat) -> mat33:
    """The rotation matrix of a unit quaternion."""
    x = rotate(q, vec3(real(1.0), real(0.0), real(0.0)))
    y = rotate(q, vec3(real(0.0), real(1.0), real(0.0)))
    z = rotate(q, vec3(real(0.0), real(0.0), real(1.0)))
    return mat33(x[0], y[0], z[0], x[1], y[1], z[1], x[2], y[2], z[2])


@wp.func
def quat_axis_angle(axis: vec3, angle: real) -> quat:
    """Rotation by ``angle`` about a unit axis."""
    s = wp.sin(real(0.5) * angle)
    return quat(wp.cos(real(0.5) * angle), axis[0] * s, axis[1] * s, axis[2] * s)


@wp.func
def quat_exp(w: vec3) -> quat:
    """Rotation by |w| about w, smooth at w = 0: (cos(t/2), w sin(t/2) / t)."""
    t2 = wp.dot(w, w)
    c = real(1.0) - t2 / real(8.0) + t2 * t2 / real(384.0)
    s = real(0.5) - t2 / real(48.0) + t2 * t2 / real(3840.0)
    if t2 > SMALL_ANGLE_SQUARED:
        t = wp.sqrt(t2)
        c = wp.cos(real(0.5) * t)
        s = wp.sin(real(0.5) * t) / t
    return quat(c, w[0] * s, w[1] * s, w[2] * s)


@wp.func
def quat_log(q: quat) -> vec3:
    """The rotation vector of a unit quaternion, of length at most pi; smooth at the identity."""
    u = vec3(q[1], q[2], q[3])
    w = q[0]
    if w < real(0.0):  # q and -q are one rotation: take the shorter way
        u = -u
        w = -w
    s2 = wp.dot(u, u)
    k = real(2.0) / w - real(2.0) * s2 / (real(3.0) * w * w * w)
    if s2 > SMALL_ANGLE_SQUARED:
        s = wp.sqrt(s2)
        k = real(2.0) * wp.atan2(s, w) / s
    return u * k


@wp.func
def cross_motion(v: motion, m: motion) -> motion:
    """v x m: the rate of change of a motion m that is carried along by the velocity v."""
    w = wp.spatial_top(v)
    return spatial(
        wp.cross(w, wp.spatial_top(m)),
        wp.cross(w, wp.spatial_bottom(m)) + wp.cross(wp.spatial_bottom(v), wp.spatial_top(m)),
    )


@wp.func
def unit(i: int) -> vec3:
    """The i-th axis of the frame."""
    return vec3(
        wp.where(i == 0, real(1.0), real(0.0)),
        wp.where(i == 1, real(1.0), real(0.0)),
        wp.where(i == 2, real(1.0), real(0.0)),
    )


@wp.func
def lower(i: int, j: int) -> int:
    """Index of element (i, j), i >= j, in a packed lower triangle."""
    return i * (i + 1) // 2 + j


@wp.func
def spatial(angular: vec3, linear: vec3) -> vec6:
    """A spatial motion or wrench from its two halves."""
    return vec6(angular[0], angular[1], angular[2], linear[0], linear[1], linear[2])
