"""The floating-point types of this copy of the kernels.

The folder is loaded once per precision, under a package name that ends in ``_f32`` or ``_f64``
(see ``fphys.bridge.kernels``); every kernel file takes its types from here.
"""

import warp as wp

real = wp.float64 if __name__.split(".")[0].endswith("f64") else wp.float32
integer = wp.int32
bits = wp.uint32
double = wp.float64
"""For the few results that must not depend on the precision, such as the cell that a point is in."""
vec2 = wp.types.vector(length=2, dtype=real)
vec3 = wp.types.vector(length=3, dtype=real)
vec4 = wp.types.vector(length=4, dtype=real)
vec5 = wp.types.vector(length=5, dtype=real)
vec6 = wp.types.vector(length=6, dtype=real)
vec7 = wp.types.vector(length=7, dtype=real)
vec11 = wp.types.vector(length=11, dtype=real)
vec2i = wp.types.vector(length=2, dtype=int)
vec3i = wp.types.vector(length=3, dtype=int)
mat33 = wp.types.matrix(shape=(3, 3), dtype=real)
mat43 = wp.types.matrix(shape=(4, 3), dtype=real)
mat44 = wp.types.matrix(shape=(4, 4), dtype=real)
mat55 = wp.types.matrix(shape=(5, 5), dtype=real)
mat66 = wp.types.matrix(shape=(6, 6), dtype=real)

quat = wp.types.vector(length=4, dtype=real)
"""A quaternion (w, x, y, z), MuJoCo's order."""

motion = vec6
"""A spatial motion (angular, linear): a rigid body's velocity field, its linear part at the reference point."""

wrench = vec6
"""A spatial force (torque, force), its torque about the tree's reference point."""


def tolerance(double: float, single: float):
    """A tolerance that rounding sets, in the precision of this copy."""
    return real(double if real is wp.float64 else single)
