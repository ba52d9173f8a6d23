"""Constraints of position-based dynamics: which vertices they join, in colours, and how they move them."""

import functools
import hashlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import custom_vjp, kernels, warp_op
from ..math import einsum
from .mesh import Topology, measures

Array = jax.Array


class Group:
    """Constraints of one kind, sorted by colour. Immutable, hashed by content, so that it can be static under ``jit``.

    Constraints of one colour share no vertex, so they act at the same time.
    """

    def __init__(self, kind: str, corners: np.ndarray):
        color = colors(corners)
        order = np.argsort(color, kind="stable")
        self.kind = kind
        self.order = order.astype(np.int32)  # which of the given constraints each one is
        self.corners = np.ascontiguousarray(corners[order], np.int32)  # vertices, shape (constraint, corner)
        self.first = np.searchsorted(color[order], np.arange(color.max(initial=-1) + 2))  # of each colour, and the end
        self.corners.setflags(write=False)
        self._digest = hashlib.blake2b(self.corners.tobytes(), digest_size=16).digest()

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Group) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __len__(self) -> int:
        return len(self.corners)

    def _key(self) -> tuple[Any, ...]:
        return self.kind, self.corners.shape, self._digest

    @functools.cached_property
    def indices(self) -> np.ndarray:
        """The corners as kernels take them: a triangle has four, of which the last repeats the first."""
        return np.concatenate([self.corners, self.corners[:, :1]], 1) if self.kind == "area" else self.corners


class Values(NamedTuple):
    """Numbers of a group's constraints, (1 | world, constraint)."""

    compliance: Array  # alpha / h^2 [kg per unit^2]; of bends and hinges its inverse, a stiffness
    rest: Array  # length, area, volume or angle at rest; of bends the vertices' shares (1 | world, constraint, corner)


def colors(corners: np.ndarray) -> np.ndarray:
    """A colour for each constraint, so that no two of one colour share a vertex: the lowest that is free, in order."""
    taken = [0] * (int(corners.max(initial=-1)) + 1)  # of each vertex, a bit for each colour
    found = np.empty(len(corners), np.int32)
    for i, vertices in enumerate(corners.tolist()):
        used = 0
        for v in vertices:
            used |= taken[v]
        bit = ~used & (used + 1)  # the lowest that is not set
        for v in vertices:
            taken[v] |= bit
        found[i] = bit.bit_length() - 1
    return found


@functools.lru_cache(16)
def groups(topology: Topology, bending: bool, sizes: bool, curved: bool = False) -> tuple[Group, ...]:
    """The constraints of a mesh: its edges; if wanted its bends, and the areas or volumes of its elements.

    Bends of a sheet that is curved at rest are hinges.
    """
    e = topology.elements
    found = [Group("edge", edges(topology))]
    if sizes:
        found.append(Group("area" if e.shape[1] == 3 else "volume", e))
    if bending:
        found.append(Group("hinge" if curved else "bend", bends(topology)))
    return tuple(found)


def edges(topology: Topology) -> np.ndarray:
    """The edges of a mesh's elements, each once, int32, shape (edge, 2)."""
    e = topology.elements
    pairs = [np.sort(e[:, [a, b]], axis=1) for a in range(e.shape[1]) for b in range(a)]
    return np.unique(np.concatenate(pairs), axis=0).astype(np.int32)


def bends(topology: Topology) -> np.ndarray:
    """Where ropes and cloth bend: a vertex between two edges, in the middle; or the edge of two triangles, before the
    vertices opposite. int32, shape (bend, 3 | 4)."""
    if topology.corners == 3:
        return topology.hinges
    first, elements = topology.incidence
    inner = np.flatnonzero(np.diff(first) == 2)
    at = np.stack([topology.elements[elements[first[inner] + k]] for k in (0, 1)], 1)  # (bend, edge, end)
    ends = np.where(at[..., 0] == inner[:, None], at[..., 1], at[..., 0])
    return np.stack([ends[:, 0], inner, ends[:, 1]], 1).astype(np.int32)


def shares(x: Array, topology: Topology) -> Array:
    """Shares s of a bend's vertices, shape (world, bend, 3 | 4): its energy is B |sum_i s_i x_i|^2 / 2.

    A straight line or plane has none. In a rope (B in N m^2) the sum is the change of the tangent over the root of the
    length that belongs to the vertex. In a sheet (B in N m) it is the sum of cotangents across an edge, as in Bergou et
    al. (2006), exact if nothing stretches. These weigh what :func:`_hinges` finds, so that a sheet that is rolled up
    about any of a triangle's edges has the energy B / (2 R^2) for each unit of area; about any other axis, too, if
    the triangles are equilateral. Gradients flow.
    """
    if topology.corners == 3:
        s, factor = _hinges(x, topology, measures(x, topology.elements))
        return s * factor[..., None] ** 0.5
    p = [x[:, bends(topology)[:, k]] for k in range(3)]
    before, after = (_norm(p[1] - p[0]), _norm(p[2] - p[1]))
    s = [1 / before, -1 / before - 1 / after, 1 / after]
    return jnp.stack(s, -1) * (2 / (before + after))[..., None] ** 0.5


def hinge_stiffness(x: Array, topology: Topology, bending: Array) -> Array:
    """k [N m] of a sheet's hinges, whose energy at the angle a is k a^2 / 2, (world, hinge).

    As in :func:`shares`: for small angles |sum_i s_i x_i| is the angle times the length of the edge. Gradients flow.

    Args:
        x: at rest [m], (world, vertex, 3). bending: B of each triangle [N m], (1 | world, triangle).
    """
    edge = topology.hinges[:, :2]
    if not len(edge):
        return jnp.zeros((1, 0), x.dtype)
    factor = _hinges(x, topology, bending * measures(x, topology.elements))[1]
    return factor * ((x[:, edge[:, 1]] - x[:, edge[:, 0]]) ** 2).sum(-1)


def angles(x: Array, topology: Topology) -> Array:
    """Of a sheet's hinges [rad], between the normals of both triangles, (world, hinge). Gradients flow."""
    p0, p1, p2, p3 = (x[:, topology.hinges[:, k]] for k in range(4))
    edge = p1 - p0
    first, second = jnp.cross(edge, p2 - p0), jnp.cross(p3 - p0, edge)
    return jnp.arctan2((jnp.cross(first, second) * edge).sum(-1) / _norm(edge), (first * second).sum(-1))


def _hinges(x: Array, topology: Topology, weight: Array) -> tuple[Array, Array]:
    """Shares s of a hinge's vertices (world, hinge, 4), the sum of cotangents, and factors of |sum_i s_i x_i|^2.

    A sheet of curvature 1 about the direction d has sum_i s_i z_i = sum_i s_i (n . x_i)^2 / 2, n normal to d in the
    plane. In each triangle the factors of its hinges solve sum_hinges w (sum_i s_i z_i)^2 = 1 for the directions of
    their edges; the other triangle of a hinge is laid into its plane. A hinge's factor is the sum of weight times w
    over its two triangles; the weight, (1 | world, triangle), is an area.

    Three factors cannot be right about all axes, but for equilateral triangles. Where squares are halved by parallel
    diagonals, one axis is 4 times as stiff as another, and no other factors make it less.
    """
    p = [x[:, topology.hinges[:, k]] for k in range(4)]
    edge = p[1] - p[0]
    near = [_cotangent(edge, p[k] - p[0]) for k in (2, 3)]  # at the edge's first vertex, in both triangles
    far = [_cotangent(-edge, p[k] - p[1]) for k in (2, 3)]
    s = jnp.stack([far[0] + far[1], near[0] + near[1], -near[0] - far[0], -near[1] - far[1]], -1)

    square = (edge**2).sum(-1, keepdims=True)
    foot = [(edge * (q - p[0])).sum(-1, keepdims=True) / square * edge for q in p[2:]]
    rise = [q - p[0] - f for q, f in zip(p[2:], foot, strict=True)]
    laid = [f - r * (_norm(o) / _norm(r))[..., None] for f, r, o in zip(foot[::-1], rise, rise[::-1], strict=True)]
    zero = jnp.zeros_like(edge)
    arms = [[zero, edge, p[2] - p[0], laid[0]], [zero, edge, laid[1], p[3] - p[0]]]  # as seen from each triangle
    arm = jnp.stack([jnp.stack(a, 2) for a in arms], 2)  # (world, hinge, triangle, corner, 3)

    triangles, (hinge, which) = topology.elements, _hinge_of(topology)
    count = len(topology.hinges)
    there = hinge < count
    p = [x[:, triangles[:, k]] for k in range(3)]
    normal = jnp.cross(p[1] - p[0], p[2] - p[0])
    across = jnp.stack([jnp.cross(normal, p[(k + 2) % 3] - p[(k + 1) % 3]) for k in range(3)], 2)
    across = across / _norm(across)[..., None]  # (world, triangle, side, 3)
    safe = np.minimum(hinge, max(count - 1, 0))
    arm = arm[:, safe, which]  # (world, triangle, side, corner, 3)
    seen = 0.5 * einsum("wtik,wtijk->wtij", s[:, safe], einsum("wtikx,wtjx->wtijk", arm, across) ** 2)
    both = there[:, :, None] & there[:, None, :]
    matrix = jnp.where(both, jnp.swapaxes(seen, 2, 3) ** 2, jnp.eye(3, dtype=x.dtype))
    factor = jnp.linalg.solve(matrix, jnp.where(there, 1.0, 0.0).astype(x.dtype)[None, ..., None])[..., 0]
    factor = jnp.maximum(factor, 0) * weight[..., None]
    return s, jnp.zeros((len(factor), count + 1), x.dtype).at[:, hinge].add(factor)[:, :-1]


@functools.lru_cache(16)
def _hinge_of(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """The hinge at each side of each triangle, (triangle, 3), their number where there is none; and which of the
    hinge's two triangles this is. In 32 bits, which are the same in JAX's two precisions."""
    sides, count = topology._sides()
    order = np.lexsort(np.sort(sides, axis=1).T[::-1])  # as for topology.hinges
    order = order[count[order] == 2].reshape(-1, 2)
    found, which = np.full(len(sides), len(order), np.int32), np.zeros(len(sides), np.int32)
    found[order] = np.arange(len(order))[:, None]
    which[order[:, 1]] = 1
    return found.reshape(3, -1).T, which.reshape(3, -1).T


def _norm(d: Array) -> Array:
    return (d**2).sum(-1) ** 0.5


def _cotangent(a: Array, b: Array) -> Array:
    return (a * b).sum(-1) / _norm(jnp.cross(a, b))


def project(found: tuple[Group, ...], start: Array, moved: Array, weight: Array, values: tuple[Values, ...]) -> Array:
    """Let every constraint move its vertices once, colour after colour.

    Args:
        start, moved: vertices are at start + moved [m], shape (world, vertex, 3).
        weight: inverse masses [1/kg], shape (1 | world, vertex); zero holds a vertex.
        values: of each group.

    Returns:
        How far they push the vertices [m], with gradients to start, moved, weight and values.
    """
    return _operation(found)(start, moved, weight, values)


@functools.lru_cache
def _operation(found: tuple[Group, ...]) -> Any:
    fixed: Any = {"differentiable": False, "zeroed": False}
    act = functools.partial(_project, found)
    forward = warp_op(act, lambda start, moved, *_: moved, name="project", **fixed)
    keeping = warp_op(act, functools.partial(_kept, found), name="project, and keep", **fixed)
    backward = warp_op(functools.partial(_adjoint, found), _gradients, differentiable=False, name="gradient of project")
    operation = custom_vjp(lambda start, moved, weight, values: forward(start, moved, weight, values))

    def push(start: Array, moved: Array, weight: Array, values: Any) -> Any:
        pushed, memory = keeping(start, moved, weight, values)
        return pushed, (weight, values, memory)

    def pull(saved: Any, cotangent: Array) -> Any:
        by_moved, *rest = backward(*saved, cotangent)
        own = jax.tree.map(lambda given, g: g if len(g) == len(given) else g.sum(0, keepdims=True), saved[:2], (*rest,))
        return by_moved, by_moved, *own  # constraints see start + moved

    operation.defvjp(push, pull)
    return operation


def _project(
    found: tuple[Group, ...],
    launch: Any,
    start: Any,
    moved: Any,
    weight: Any,
    values: Any,
    out: Any,
    memory: Any = None,
) -> None:
    """How far all constraints push; and what each finds, if there is a place to keep it."""
    project, vector = kernels(moved.dtype, "deformables.project"), kernels(moved.dtype, "_precision").vec3
    after = launch.scratch(moved.shape[:2], vector)
    launch(project.copy, moved.shape[:2], [moved], [after])
    keep = memory is not None
    nothing = [launch.scratch((launch.worlds, 1, 1), vector)] * len(found)
    for group, given, kept in zip(found, values, memory if keep else nothing, strict=True):
        for first, corners in _by_color(group):
            inputs = [first, *_measure(group), corners, weight, *given, start, int(keep)]
            launch(_kernel(group, moved.dtype), (launch.worlds, len(corners)), inputs, [after, kept])
    launch(project.pushed, moved.shape[:2], [moved, after], [out])


def _kept(found: tuple[Group, ...], start: Any, moved: Any, weight: Any, values: Any) -> Any:
    """The form of the push, and of what each constraint finds of its corners but the first."""
    sizes = [(len(group), group.indices.shape[1] - 1) for group in found]
    return moved, tuple(jax.ShapeDtypeStruct((moved.shape[0], *size, 3), moved.dtype) for size in sizes)


def _gradients(weight: Any, values: Any, memory: Any, cotangent: Any) -> Any:
    """The form of the gradients: of every world, also where worlds share what they are of."""
    given = (cotangent, weight, values)
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct((cotangent.shape[0], *a.shape[1:]), a.dtype), given)


def _adjoint(
    found: tuple[Group, ...], launch: Any, weight: Any, values: Any, memory: Any, cotangent: Any, *outs: Any
) -> None:
    by_moved, by_weight, by_values = outs
    for group, given, by, kept in reversed(list(zip(found, values, by_values, memory, strict=True))):
        for first, corners in reversed(_by_color(group)):
            inputs = [first, *_measure(group), corners, weight, *given, kept, cotangent]
            outputs = [by_moved, by_weight, *by]
            launch(_kernel(group, cotangent.dtype, "_adjoint"), (launch.worlds, len(corners)), inputs, outputs)


def _by_color(group: Group) -> list[tuple[int, np.ndarray]]:
    """Where each colour's constraints begin, and their vertices."""
    parts = zip(group.first[:-1].tolist(), group.first[1:].tolist(), strict=True)
    return [(first, group.indices[first:end]) for first, end in parts]


def _measure(group: Group) -> list[int]:
    measured = ("area", "volume")
    return [measured.index(group.kind)] if group.kind in measured else []


def _kernel(group: Group, dtype: Any, suffix: str = "") -> Any:
    name = {"edge": "edges", "bend": "bends", "hinge": "hinges"}.get(group.kind, "measures")
    return getattr(kernels(dtype, "deformables.project"), name + suffix)
