"""What happens at the nodes: momentum becomes velocity, gravity acts, the walls of the domain hold.

Nodes lie in the middle of cells, and a wall acts on those up to half a cell inside its face. A particle on the face
then sees no node that moves through it, and matter fills the domain up to the face and no farther.

A thread takes sixteen nodes, ``lanes`` threads a world. Those without mass, as are most of a grid, and those that no
wall is near are moved in one go; what is left is for the general code.
"""

import warp as wp

from .._precision import real, vec3, vec4

OPEN = wp.constant(0)
STICKY = wp.constant(1)
SLIP = wp.constant(2)
SEPARATE = wp.constant(3)

SMALL_SQUARED = wp.constant(real(1.0e-24))


@wp.func
def against(v: vec3, normal: vec3, kind: int, friction: real) -> vec3:
    """A velocity relative to a wall, after the wall: ``normal`` points away from it.

    Sticky: none is left. Slip: none along the normal. Separate: none into the wall. What the wall takes along the
    normal, n, it takes up to friction |n| along itself (Coulomb).
    """
    if kind == OPEN:
        return v
    if kind == STICKY:
        return vec3()
    n = wp.dot(v, normal)
    if kind == SEPARATE and n >= real(0.0):
        return v
    t = v - n * normal
    if friction == real(0.0):
        return t
    size = wp.sqrt(wp.max(wp.dot(t, t), SMALL_SQUARED))
    return wp.max(real(1.0) - friction * wp.abs(n) / size, real(0.0)) * t


@wp.func
def ratio(momentum: vec3, mass: real) -> vec3:
    """Velocity of a node."""
    return momentum / mass


@wp.func_grad(ratio)
def ratio_grad(momentum: vec3, mass: real, adj_ret: vec3):
    """By mass: -(momentum / mass) / mass, for the square of what a far particle leaves at a node underflows."""
    wp.adjoint[momentum] += adj_ret / mass
    wp.adjoint[mass] += -wp.dot(momentum / mass, adj_ret / mass)


@wp.func
def axis(i: int, sign: real) -> vec3:
    """A unit vector along an axis."""
    return vec3(wp.where(i == 0, sign, real(0.0)), wp.where(i == 1, sign, real(0.0)), wp.where(i == 2, sign, real(0.0)))


@wp.func
def within(kind: int, depth: int) -> int:
    """The contact of a node: none for the two beside a sticky face, which ``hold`` has made opposite to each other."""
    if kind == STICKY and depth <= 1:
        return OPEN
    return kind


_NODES = """
    const int n = grid.shape[1];
#ifdef __CUDACC__
    const int first = batch, stride = lanes;  // neighbours in memory go to neighbours among the threads
#else
    const int first = 16 * batch, stride = 1;
#endif
"""
"""Which nodes are a thread's."""

_FREE = (
    _NODES
    + """
    auto row = [&](auto& a) { return (decltype(a.data))((char*)a.data + world * a.strides[0]); };
    auto free = [&](int node) -> bool {
        const int line = node / nodes[2], k = node - line * nodes[2], i = line / nodes[1], j = line - i * nodes[1];
        auto inner = [&](int at, int a) -> bool { return at > 2 && at < nodes[a] - 3; };
        return inner(i, 0) && inner(j, 1) && (dim == 2 || inner(k, 2));
    };
    const auto* const from = row(grid);
    const auto* const g = row(gravity);
    const auto h = *row(timestep);
    typedef decltype(h + h) number;
    const int last = (n - first + stride - 1) / stride < 16 ? (n - first + stride - 1) / stride : 16;
    int left = 0;
    auto sum = from[first];
    for (int m = 1; m < last; ++m) sum = wp::add(sum, from[first + m * stride]);
    const bool massive = sum[3] > 0;
"""
)
"""Nodes that no wall is near, and which of them have mass."""


@wp.func_native(
    _FREE
    + """
    auto* const to = row(velocity_out);
    for (int m = 0; m < last; ++m) {
        auto u = from[first + m * stride];
        u[0] = u[1] = u[2] = 0;
        to[first + m * stride] = u;
    }
    if (!massive) return 0;
    const number fall[3] = {h * g[0], h * g[1], dim == 3 ? h * g[2] : 0};
    for (int m = 0; m < last; ++m) {
        const int node = first + m * stride;
        const auto p = from[node];
        if (!(p[3] > 0)) continue;
        for (int a = 0; a < 3; ++a) to[node][a] = p[a] / p[3] + fall[a];
        if (!free(node)) left |= 1 << m;
    }
    return left;
"""
)
def move_free(
    world: int,
    batch: int,
    lanes: int,
    nodes: wp.vec3i,
    dim: int,
    gravity: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    grid: wp.array2d(dtype=vec4),
    velocity_out: wp.array2d(dtype=vec4),
) -> int:
    """Which nodes of a batch, as bits, are near a wall and have mass; the others are done."""


@wp.func_native(
    _FREE
    + """
    if (massive)
        for (int m = 0; m < last; ++m)
            if (from[first + m * stride][3] > 0 && !free(first + m * stride)) left |= 1 << m;
    return left;
"""
)
def which_walled(
    world: int,
    batch: int,
    lanes: int,
    nodes: wp.vec3i,
    dim: int,
    gravity: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    grid: wp.array2d(dtype=vec4),
) -> int:
    """Which nodes of a batch, as bits, are near a wall and have mass."""


@wp.func_native(
    _FREE
    + """
    if (!massive) return;
    const auto* const bars = row(velocity_out_bar);
    number push_0 = 0, push_1 = 0, push_2 = 0;
    for (int m = 0; m < last; ++m) {
        const int node = first + m * stride;
        const auto at = from[node], bar = bars[node];
        const auto mass = at[3];
        if (!(mass > 0) || !free(node)) continue;
        auto* const to = row(grid_bar) + node;
        auto by_mass = bar[3];
        for (int a = 0; a < dim; ++a) {
            const auto per_mass = bar[a] / mass;
            by_mass -= at[a] / mass * per_mass;
            (*to)[a] += per_mass;
        }
        (*to)[3] += by_mass;
        push_0 += bar[0], push_1 += bar[1];
        if (dim == 3) push_2 += bar[2];
    }
    if (timestep_bar.data) {
        number h_bar = g[0] * push_0 + g[1] * push_1;
        if (dim == 3) h_bar += g[2] * push_2;
        wp::atomic_add(row(timestep_bar), h_bar);
    }
    if (gravity_bar.data) {
        wp::atomic_add(row(gravity_bar), h * push_0), wp::atomic_add(row(gravity_bar) + 1, h * push_1);
        if (dim == 3) wp::atomic_add(row(gravity_bar) + 2, h * push_2);
    }
"""
)
def pull_free(
    world: int,
    batch: int,
    lanes: int,
    nodes: wp.vec3i,
    dim: int,
    gravity: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    grid: wp.array2d(dtype=vec4),
    velocity_out_bar: wp.array2d(dtype=vec4),
    gravity_bar: wp.array2d(dtype=real),
    timestep_bar: wp.array(dtype=real),
    grid_bar: wp.array2d(dtype=vec4),
):
    """The adjoint of the nodes that no wall is near: v = p / m + h g; :func:`ratio_grad` says why it divides twice."""


@wp.func
def freely(
    world: int,
    batch: int,
    lanes: int,
    nodes: wp.vec3i,
    dim: int,
    gravity: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    grid: wp.array2d(dtype=vec4),
    velocity_out: wp.array2d(dtype=vec4),
) -> int:
    """Move the nodes of a batch that no wall is near; which are left, as bits."""
    return move_free(world, batch, lanes, nodes, dim, gravity, timestep, grid, velocity_out)


@wp.func_replay(freely)
def freely_before(
    world: int,
    batch: int,
    lanes: int,
    nodes: wp.vec3i,
    dim: int,
    gravity: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    grid: wp.array2d(dtype=vec4),
    velocity_out: wp.array2d(dtype=vec4),
):
    """A backward pass only asks which were left."""
    return which_walled(world, batch, lanes, nodes, dim, gravity, timestep, grid)


@wp.func_grad(freely)
def adj_freely(
    world: int,
    batch: int,
    lanes: int,
    nodes: wp.vec3i,
    dim: int,
    gravity: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    grid: wp.array2d(dtype=vec4),
    velocity_out: wp.array2d(dtype=vec4),
    adj_ret: int,
):
    """By hand."""
    pull_free(
        world,
        batch,
        lanes,
        nodes,
        dim,
        gravity,
        timestep,
        grid,
        wp.adjoint[velocity_out],
        wp.adjoint[gravity],
        wp.adjoint[timestep],
        wp.adjoint[grid],
    )


@wp.func_native(_NODES + "    return first + k * stride;\n")
def node_of(batch: int, k: int, lanes: int, grid: wp.array2d(dtype=vec4)) -> int:
    """The k-th node of a batch."""


@wp.kernel
def hold(
    # Model:
    nodes: wp.vec3i,
    dim: int,
    along: int,
    wall_kind: wp.array(dtype=int),
    wall_velocity: wp.array2d(dtype=vec3),
    gravity: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    # In:
    grid: wp.array2d(dtype=vec4),
    # Out:
    grid_out: wp.array2d(dtype=vec4),
):
    """At a sticky face the field itself vanishes: its nodes half a cell inside and outside move oppositely.

    With one unknown for the two, u = -u', its momentum is that of both, m u - m' u', its mass m + m' (Galerkin, mass
    lumped): the wall takes what it must to hold the matter on its face, and no more. Along one axis.
    """
    world, node = wp.tid()
    g = grid[world, node]
    stride = int(1)
    if along == 0:
        stride = nodes[1] * nodes[2]
    if along == 1:
        stride = nodes[2]
    at = (node // stride) % nodes[along]
    face = int(-1)
    if wall_kind[2 * along] == STICKY and (at == 1 or at == 2):
        face = 2 * along
    if wall_kind[2 * along + 1] == STICKY and (at == nodes[along] - 3 or at == nodes[along] - 2):
        face = 2 * along + 1
    if face >= 0:
        across = wp.where(face == 2 * along, 3 - at, 2 * nodes[along] - 5 - at)
        other = grid[world, node + (across - at) * stride]
        z = real(0.0)
        if dim == 3:
            z = gravity[world, 2]
        rest = wall_velocity[world, face] - timestep[world] * vec3(gravity[world, 0], gravity[world, 1], z)
        p = vec3(g[0] - other[0], g[1] - other[1], g[2] - other[2]) + (real(2.0) * other[3]) * rest
        grid_out[world, node] = vec4(p[0], p[1], p[2], g[3] + other[3])
    else:
        grid_out[world, node] = g


@wp.func
def moved(
    world: int,
    node: int,
    g: vec4,
    nodes: wp.vec3i,
    dim: int,
    wall_kind: wp.array(dtype=int),
    wall_friction: wp.array2d(dtype=real),
    wall_velocity: wp.array2d(dtype=vec3),
    gravity: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
) -> vec3:
    """v_i = (m v)_i / m_i + h g, then each face of the domain that is at most half a cell away."""
    u = vec3()
    if g[3] > real(0.0):
        z = real(0.0)
        if dim == 3:
            z = gravity[world, 2]
        u = ratio(vec3(g[0], g[1], g[2]), g[3]) + timestep[world] * vec3(gravity[world, 0], gravity[world, 1], z)
        k = node % nodes[2]
        j = (node // nodes[2]) % nodes[1]
        i = node // (nodes[2] * nodes[1])
        for a in range(3):
            at = wp.where(a == 0, i, wp.where(a == 1, j, k))
            if a < dim:
                if at <= 2:
                    w = wall_velocity[world, 2 * a]
                    kind = within(wall_kind[2 * a], 2 - at)
                    u = w + against(u - w, axis(a, real(1.0)), kind, wall_friction[world, 2 * a])
                if at >= nodes[a] - 3:
                    w = wall_velocity[world, 2 * a + 1]
                    kind = within(wall_kind[2 * a + 1], at - nodes[a] + 3)
                    u = w + against(u - w, axis(a, real(-1.0)), kind, wall_friction[world, 2 * a + 1])
    return u


@wp.kernel
def move(
    # Model:
    nodes: wp.vec3i,
    lanes: int,
    dim: int,
    wall_kind: wp.array(dtype=int),
    wall_friction: wp.array2d(dtype=real),
    wall_velocity: wp.array2d(dtype=vec3),
    gravity: wp.array2d(dtype=real),
    timestep: wp.array(dtype=real),
    # In:
    grid: wp.array2d(dtype=vec4),
    # Out:
    velocity_out: wp.array2d(dtype=vec4),
):
    """Velocity of the nodes, from their momentum; the mass goes along."""
    world, batch = wp.tid()
    left = freely(world, batch, lanes, nodes, dim, gravity, timestep, grid, velocity_out)
    if left != 0:
        for m in range(wp.min(16, grid.shape[1])):
            if (left >> m) % 2 == 1:
                node = node_of(batch, m, lanes, grid)
                g = grid[world, node]
                u = moved(world, node, g, nodes, dim, wall_kind, wall_friction, wall_velocity, gravity, timestep)
                velocity_out[world, node] = vec4(u[0], u[1], u[2], g[3])
