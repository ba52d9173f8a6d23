"""What all constraints share: MuJoCo's soft constraint model.

A row of the constraint Jacobian has the error x = J a - a_ref with a_ref = -b J v - k d r, its violation r, and
the force f = -clamp(x / R, lower, upper): unbounded for an equality, between plus and minus the friction loss for
dry friction, from minus infinity to zero for a limit or a contact (Todorov 2014, "Convex and analytically-invertible
dynamics with contacts and constraints"). A row that does not act has 1 / R = 0.
"""

import warp as wp

from ..._precision import motion, real, vec2, vec3, vec5

MIN_IMPEDANCE = wp.constant(real(1.0e-4))
MAX_IMPEDANCE = wp.constant(real(0.9999))
TINY = wp.constant(real(1.0e-15))
UNBOUNDED = wp.constant(real(1.0e30))


@wp.struct
class Rows:
    """Rows of the constraint Jacobian."""

    jacobian: wp.array3d(dtype=real)  # in a sparse model the entry of a joint's row, or factors: see links.py
    weight: wp.array2d(dtype=real)  # 1 / R, zero for a row that does not act
    reference: wp.array2d(dtype=real)
    bound: wp.array2d(dtype=vec2)  # least and greatest value of minus its force


@wp.struct
class Soft:
    """How soft constraints of one kind are."""

    solref: wp.array2d(dtype=vec2)
    solimp: wp.array2d(dtype=vec5)
    timestep: wp.array(dtype=real)
    refsafe: int  # 1: no constraint is stiffer than the time step allows


@wp.func
def impedance(solimp: vec5, violation: real) -> real:
    """d(r) of MuJoCo's solver parameters: from dmin to dmax along a sigmoid of two powers."""
    dmin = wp.clamp(solimp[0], MIN_IMPEDANCE, MAX_IMPEDANCE)
    dmax = wp.clamp(solimp[1], MIN_IMPEDANCE, MAX_IMPEDANCE)
    width = wp.max(solimp[2], real(0.0))
    middle = wp.clamp(solimp[3], MIN_IMPEDANCE, MAX_IMPEDANCE)
    power = wp.max(solimp[4], real(1.0))
    d = real(0.5) * (dmin + dmax)
    if width > TINY:  # also where dmin is dmax: each has its own gradient
        x = wp.abs(violation) / width
        if x >= real(1.0):
            d = dmax
        elif x <= TINY:
            d = dmin
        elif x <= middle:
            d = dmin + (dmax - dmin) * middle * wp.pow(x / middle, power)
        else:
            y = (real(1.0) - x) / (real(1.0) - middle)
            d = dmin + (dmax - dmin) * (real(1.0) - (real(1.0) - middle) * wp.pow(y, power))
    return d


@wp.func
def spring_damper(solref: vec2, solimp: vec5, timestep: real, refsafe: int) -> vec2:
    """Stiffness and damping of the reference acceleration, from time constant and damping ratio, or given directly."""
    dmax = wp.clamp(solimp[1], MIN_IMPEDANCE, MAX_IMPEDANCE)
    t = solref[0]
    ratio = solref[1]
    if (t > real(0.0)) != (ratio > real(0.0)):  # one of each form: MuJoCo takes its default
        t = real(0.02)
        ratio = real(1.0)
    k = -t / (dmax * dmax)
    b = -ratio / dmax
    if t > real(0.0):
        if refsafe != 0:
            t = wp.max(t, real(2.0) * timestep)
        k = real(1.0) / wp.max(TINY, dmax * dmax * t * t * ratio * ratio)
        b = real(2.0) / wp.max(TINY, dmax * t)
    return vec2(k, b)


@wp.func
def resistance(d: real, weight: real) -> real:
    """R = (1 - d) / d times the approximate inverse inertia along the row."""
    return wp.max(TINY, (real(1.0) - d) / d * weight)


@wp.func
def softened(world: int, i: int, weight: real, violation: real, s: Soft) -> vec3:
    """k d(r), b and R of the i-th constraint of a kind, whose approximate inverse inertia is ``weight``."""
    z = impedance(s.solimp[world, i], violation)
    kb = spring_damper(s.solref[world, i], s.solimp[world, i], s.timestep[world], s.refsafe)
    return vec3(kb[0] * z, kb[1], resistance(z, weight))


@wp.func
def point_rate(m: motion, r: vec3) -> vec3:
    """Velocity of the point at r, from the reference point, in a field of motion."""
    return wp.spatial_bottom(m) + wp.cross(wp.spatial_top(m), r)


@wp.func
def set_row(
    world: int,
    row: int,
    r: real,
    reference: real,
    low: real,
    high: real,
    rows_out: Rows,
):
    """Start a row that acts: its weight 1 / R, reference and bounds, and a Jacobian of zeros."""
    rows_out.weight[world, row] = real(1.0) / r
    rows_out.reference[world, row] = reference
    rows_out.bound[world, row] = vec2(low, high)
    for i in range(rows_out.jacobian.shape[2]):
        rows_out.jacobian[world, row, i] = real(0.0)


@wp.func
def restoring(error: real, r: real, low: real, high: real) -> real:
    """Minus the force of a row: clamp(x / R, lower, upper)."""
    return wp.clamp(error / r, low, high)
