"""Between a particle and the nodes around it: quadratic B-splines, and the two sums of a transfer.

A particle spreads an affine field q0 + (i - f0) q1 + (j - f1) q2 + (k - f2) q3 over the 3 x 3 x 3 nodes (i, j, k) of
its stencil (3 x 3 in a plane), where it stands at f, and collects from them the moments sum(w g), sum(w (i - f0) g) and
so on. Each is the other's transpose; their adjoints are written out, in one pass over the nodes. A node holds four
numbers (momentum or velocity, mass), which a processor adds at once; in a plane the third is zero.

Arrays are indexed [world, node], nodes in row-major order; ``nodes`` counts them per axis, 1 along z in a plane.
"""

import warp as wp

from .._precision import mat33, mat44, real, vec3, vec4


@wp.func
def weights(f: real) -> vec3:
    """Weights of the nodes at 0, 1 and 2 for a particle at f in [1/2, 3/2) (Steffen et al. 2008)."""
    a = real(1.5) - f
    b = f - real(1.0)
    c = f - real(0.5)
    return vec3(real(0.5) * a * a, real(0.75) - b * b, real(0.5) * c * c)


@wp.func
def slopes(f: real) -> vec3:
    """Derivatives of the weights by f."""
    return vec3(f - real(1.5), real(2.0) * (real(1.0) - f), f - real(0.5))


@wp.func
def spread(world: int, base: wp.vec3i, f: vec3, q: mat44, nodes: wp.vec3i, grid_out: wp.array2d(dtype=vec4)):
    """Add w times the affine field of rows q to every node of the stencil that begins at ``base``."""
    wx = weights(f[0])
    wy = weights(f[1])
    wz = weights(f[2])
    plane = q[0] - f[0] * q[1] - f[1] * q[2]
    if nodes[2] != 1:
        plane = plane - f[2] * q[3]
    for i in range(3):
        row = plane
        for j in range(3):
            first = ((base[0] + i) * nodes[1] + base[1] + j) * nodes[2] + base[2]
            w = wx[i] * wy[j]
            if nodes[2] == 1:
                wp.atomic_add(grid_out, world, first, w * row)
            else:
                wp.atomic_add(grid_out, world, first, (w * wz[0]) * row)
                wp.atomic_add(grid_out, world, first + 1, (w * wz[1]) * (row + q[3]))
                wp.atomic_add(grid_out, world, first + 2, (w * wz[2]) * (row + real(2.0) * q[3]))
            row = row + q[2]
        plane = plane + q[1]


@wp.func_replay(spread)
def no_replay_of_spread(
    world: int, base: wp.vec3i, f: vec3, q: mat44, nodes: wp.vec3i, grid_out: wp.array2d(dtype=vec4)
):
    """A backward pass has no use for the sums."""


@wp.func
def collect(world: int, base: wp.vec3i, f: vec3, nodes: wp.vec3i, grid: wp.array2d(dtype=vec4)) -> mat44:
    """The moments of a field on the nodes of the stencil, rows sum(w g), sum(w (i - f) g), along j and k likewise."""
    wx = weights(f[0])
    wy = weights(f[1])
    wz = weights(f[2])
    moment = vec4()
    moment_i = vec4()
    moment_j = vec4()
    moment_k = vec4()
    far = -f[0]
    for i in range(3):
        aside = -f[1]
        for j in range(3):
            first = ((base[0] + i) * nodes[1] + base[1] + j) * nodes[2] + base[2]
            w = wx[i] * wy[j]
            if nodes[2] == 1:
                row = w * grid[world, first]
            else:
                a = (w * wz[0]) * grid[world, first]
                b = (w * wz[1]) * grid[world, first + 1]
                c = (w * wz[2]) * grid[world, first + 2]
                row = a + b + c
                moment_k = moment_k + b + real(2.0) * c - f[2] * row
            moment = moment + row
            moment_i = moment_i + far * row
            moment_j = moment_j + aside * row
            aside = aside + real(1.0)
        far = far + real(1.0)
    return wp.matrix_from_rows(moment, moment_i, moment_j, moment_k)


@wp.func_grad(spread)
def adj_spread(world: int, base: wp.vec3i, f: vec3, q: mat44, nodes: wp.vec3i, grid_out: wp.array2d(dtype=vec4)):
    """What is spread is collected; moving the particle turns the weights, and shifts the field."""
    wx = weights(f[0])
    wy = weights(f[1])
    wz = weights(f[2])
    dx = slopes(f[0])
    dy = slopes(f[1])
    dz = slopes(f[2])
    moment = vec4()
    moment_i = vec4()
    moment_j = vec4()
    moment_k = vec4()
    x = real(0.0)
    y = real(0.0)
    z = real(0.0)
    far = -f[0]
    plane = q[0] - f[0] * q[1] - f[1] * q[2]
    if nodes[2] != 1:
        plane -= f[2] * q[3]
    for i in range(3):
        aside = -f[1]
        row = plane
        for j in range(3):
            first = ((base[0] + i) * nodes[1] + base[1] + j) * nodes[2] + base[2]
            w = wx[i] * wy[j]
            a = wp.adjoint[grid_out][world, first]
            line = w * a
            e = wp.dot(row, a)
            if nodes[2] != 1:
                b = wp.adjoint[grid_out][world, first + 1]
                c = wp.adjoint[grid_out][world, first + 2]
                row_b = row + q[3]
                eb = wp.dot(row_b, b)
                ec = wp.dot(row_b + q[3], c)
                z += w * (dz[0] * e + dz[1] * eb + dz[2] * ec)
                e = wz[0] * e + wz[1] * eb + wz[2] * ec
                b = (w * wz[1]) * b
                c = (w * wz[2]) * c
                line = wz[0] * line + b + c
                moment_k += b + real(2.0) * c - f[2] * line
            x += dx[i] * wy[j] * e
            y += wx[i] * dy[j] * e
            moment += line
            moment_i += far * line
            moment_j += aside * line
            aside += real(1.0)
            row += q[2]
        far += real(1.0)
        plane += q[1]
    wp.adjoint[q] += wp.matrix_from_rows(moment, moment_i, moment_j, moment_k)
    wp.adjoint[f] += vec3(x - wp.dot(moment, q[1]), y - wp.dot(moment, q[2]), z - wp.dot(moment, q[3]))


@wp.func_grad(collect)
def adj_collect(world: int, base: wp.vec3i, f: vec3, nodes: wp.vec3i, grid: wp.array2d(dtype=vec4), adj_ret: mat44):
    """What is collected is spread; moving the particle turns the weights, and shifts the first moments."""
    wx = weights(f[0])
    wy = weights(f[1])
    wz = weights(f[2])
    dx = slopes(f[0])
    dy = slopes(f[1])
    dz = slopes(f[2])
    x = real(0.0)
    y = real(0.0)
    z = real(0.0)
    moment = vec4()
    # in a plane there is no moment along z
    plane = adj_ret[0] - f[0] * adj_ret[1] - f[1] * adj_ret[2]
    if nodes[2] != 1:
        plane -= f[2] * adj_ret[3]
    for i in range(3):
        row = plane
        for j in range(3):
            first = ((base[0] + i) * nodes[1] + base[1] + j) * nodes[2] + base[2]
            w = wx[i] * wy[j]
            a = grid[world, first]
            line = a
            e = wp.dot(row, a)
            if nodes[2] == 1:
                wp.atomic_add(wp.adjoint[grid], world, first, w * row)
            else:
                b = grid[world, first + 1]
                c = grid[world, first + 2]
                row_b = row + adj_ret[3]
                row_c = row_b + adj_ret[3]
                wp.atomic_add(wp.adjoint[grid], world, first, (w * wz[0]) * row)
                wp.atomic_add(wp.adjoint[grid], world, first + 1, (w * wz[1]) * row_b)
                wp.atomic_add(wp.adjoint[grid], world, first + 2, (w * wz[2]) * row_c)
                eb = wp.dot(row_b, b)
                ec = wp.dot(row_c, c)
                z += w * (dz[0] * e + dz[1] * eb + dz[2] * ec)
                e = wz[0] * e + wz[1] * eb + wz[2] * ec
                line = wz[0] * a + wz[1] * b + wz[2] * c
            x += dx[i] * wy[j] * e
            y += wx[i] * dy[j] * e
            moment += w * line
            row += adj_ret[2]
        plane += adj_ret[1]
    wp.adjoint[f] += vec3(
        x - wp.dot(moment, adj_ret[1]), y - wp.dot(moment, adj_ret[2]), z - wp.dot(moment, adj_ret[3])
    )


@wp.func
def affine(value: vec4, rate: mat33, dx: real, nodes: wp.vec3i) -> mat44:
    """Rows of the field value + rate (x_node - x), its fourth component constant; nothing along z in a plane."""
    o = real(0.0)
    a = dx * vec4(rate[0, 0], rate[1, 0], rate[2, 0], o)
    b = dx * vec4(rate[0, 1], rate[1, 1], rate[2, 1], o)
    c = dx * vec4(rate[0, 2], rate[1, 2], rate[2, 2], o)
    if nodes[2] == 1:
        a = dx * vec4(rate[0, 0], rate[1, 0], o, o)
        b = dx * vec4(rate[0, 1], rate[1, 1], o, o)
        c = vec4()
    return wp.matrix_from_rows(value, a, b, c)
