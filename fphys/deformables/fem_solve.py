"""The solve of a step, and its gradient by one linear solve.

Forward: the displacement u that minimises the incremental potential (``kernels/deformables/potential.py``).
Backward: with H its Hessian at the solution, not projected, and H l = cotangent of u, the cotangent of every input y is
-dP/dy of the residual's power P = l . dW/du at fixed u. No iteration is differentiated. The cotangent of the
displacement given to pinned vertices is what they got themselves, less (H l) there: that is -dP/du.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import custom_vjp, kernels, warp_op
from ..implicit import dense, flags, power_gradient, primal_values
from ..math import einsum
from .mesh import Topology
from .pairs import skin

Array = jax.Array


@jax.tree_util.register_static
class Layout(NamedTuple):
    """Everything that is known when the step is compiled."""

    law: int
    topology: Topology
    pinned: tuple[int, ...]
    iterations: int
    mean: bool = False  # dilatation
    muscles: bool = False
    shapes: tuple[tuple[int, tuple[int, int, int], int], ...] = ()  # of colliders; a field's samples, and its first
    sheet: bool = False  # triangles in space
    room: int = 0  # for pairs of the body with itself; 0: it does not meet itself
    carrier: tuple[int, ...] = ()  # of each collider the body that carries it and answers to contact, else -1
    bodies: int = 0  # that answer: their unknowns stand behind the vertices, two for each

    @property
    def size(self) -> int:
        """How many vectors are unknown."""
        return self.topology.num_vertices + 2 * self.bodies

    @property
    def body(self) -> dict[str, Any]:
        """The kernels' ``Body``."""
        first, column, slot, fold = self.sparsity
        pinned = np.zeros(self.size, np.int32)
        pinned[list(self.pinned)] = 1
        tables = {"elements": self.topology.elements, "first": first, "column": column, "slot": slot}
        tables |= {"hinge": self.hinges, "fold": fold}
        kinds = {"law": self.law, "mean": int(self.mean), "muscles": int(self.muscles), "sheet": int(self.sheet)}
        return {**kinds, "pinned": pinned, **tables, **self.colliders, "skin": self.skin}

    @property
    def hinges(self) -> np.ndarray:
        """Of a sheet, (hinge, 4)."""
        return self.topology.hinges if self.sheet else np.zeros((0, 4), np.int32)

    @property
    def sparsity(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Of the Hessian: rows, columns, and slots of elements and hinges."""
        bare = (*self.topology.sparsity, np.zeros((0, 16), np.int32))
        first, column, slot, fold = self.topology.bent_sparsity if self.sheet else bare
        if not self.bodies:
            return first, column, slot, fold
        more = np.arange(2 * self.bodies, dtype=np.int32)
        first = np.concatenate([first, first[-1] + 1 + more])
        return first, np.concatenate([column, self.topology.num_vertices + more]), slot, fold

    @property
    def skin(self) -> dict[str, Any]:
        """The kernels' ``Skin``."""
        if not self.room:
            none = np.zeros((1, 3), np.int32)
            return {"room": 0, "points": none[0], "sides": none, "rims": none[:, :2]}
        return {"room": self.room, **skin(self.topology)._asdict()}

    @property
    def colliders(self) -> dict[str, Any]:
        """The part of it that is about colliders."""
        table = np.array([(shape, *count, first) for shape, count, first in self.shapes], np.int32).reshape(-1, 5)
        shape, count, first = (np.ascontiguousarray(a) for a in (table[:, 0], table[:, 1:4], table[:, 4]))
        carrier = np.array(self.carrier or (-1,) * len(self.shapes), np.int32)
        return {"shape": shape, "count": count, "sample": first, "carrier": carrier}

    @property
    def most(self) -> int:
        """Iterations that a linear solve may take."""
        return 200 + 6 * self.topology.num_vertices


class Setting(NamedTuple):
    """Parameters, state and loads in the form that the kernels take, world axis first; vectors of three numbers."""

    rest: Any
    density: Any
    mu: Any
    lam: Any
    timestep: Any
    gravity: Any
    damping: Any
    x: Any
    v: Any
    force: Any
    viscous: Any
    muscle: Any
    thick: Any
    bend: Any
    area: Any
    stiffness: Any
    thickness: Any
    slip: Any
    before: Any
    share: Any
    seam: Any
    span: Any
    rub: Any
    size: Any
    friction: Any
    field: Any
    begin: Any
    begin_turn: Any
    end: Any
    end_turn: Any
    velocity: Any
    spin: Any
    origin: Any
    free: Any
    lever: Any
    weight: Any


class Solved(NamedTuple):
    """What a solve finds."""

    u: Any  # displacement [m], (world, vertex, 3)
    residual: Any  # norm of the gradient over that of the forces it is the sum of, (world,)
    iterations: Any  # int32, (world,)
    status: Any  # fault bits, uint32, (world,)
    pair: Any  # of the body with itself: those that touch, then those that rub, int32, (world, 2 room, 3)


def _scratch(launch: Any, layout: Layout, like: Any) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """A ``Work``, a ``Matrix``, and a function that makes vectors by name."""
    t, w = kernels(like.dtype, "_precision"), launch.worlds
    n, e = layout.size, len(layout.topology.elements)
    shapes, rows = max(len(layout.shapes), 1), max(2 * layout.bodies, 1)
    blocks = len(layout.sparsity[1])
    work = {"inverse": launch.scratch((w, e), t.mat33), "volume": launch.scratch((w, e), t.real)}
    work |= {"mass": launch.scratch((w, n), t.real), "place": launch.scratch((w, n), t.vec3)}
    work |= {"moved": launch.scratch((w, n), t.vec3)}
    work |= {"angle": launch.scratch((w, max(len(layout.hinges), 1)), t.real)}
    work |= {name: launch.scratch((w, shapes), t.vec3) for name in ("shift", "velocity", "spin")}
    work |= {"end_turn": launch.scratch((w, shapes), t.quat)}
    work |= {name: launch.scratch((w, rows), t.vec3) for name in ("twist", "wrench")}
    names = "room", "bulk", "rest", "dilatation"
    work |= {name: launch.scratch((w, n if layout.mean else 1), t.real) for name in names}
    matrix = {"block": launch.scratch((w, blocks), t.mat33), "diagonal": launch.scratch((w, n), t.mat33)}
    matrix |= {"rise": launch.scratch((w, blocks if layout.mean else 1), t.vec3)}
    touches = 2 * layout.topology.num_vertices * len(layout.shapes) if layout.bodies else 1
    touch = {"touch": launch.scratch((w, touches), t.vec3i), "stiffness": launch.scratch((w, touches), t.mat33)}
    matrix |= {"touches": {"count": launch.scratch((w,), t.integer), **touch}}
    skin, rows = layout.skin, max(2 * layout.room, 1)
    most = max(len(skin["points"]), len(skin["rims"]))
    pairs = {"pair": launch.scratch((w, rows), t.vec3i), "alive": launch.scratch((w, rows), t.integer)}
    pairs |= {"block": launch.scratch((w, rows, 16 if layout.room else 1), t.mat33)}
    sizes = {"start": most + 2, "order": most, "count": 3}
    grid = {name: launch.scratch((w, size), t.integer) for name, size in sizes.items()}
    matrix |= {"pairs": pairs, "grid": {**grid, "cell": launch.scratch((w, most), t.vec3i)}}
    return work, matrix, lambda *names: {name: launch.scratch((w, n), t.vec3) for name in names}


def _newton(launch: Any, layout: Layout, setting: Setting, start: Any, out: Solved) -> None:
    work, matrix, vectors = _scratch(launch, layout, start)
    descent = vectors("gradient", "search", "residual", "direction", "product", "trial")
    launch(
        kernels(start.dtype, "deformables.newton").newton,
        dim=launch.worlds,
        inputs=[layout.iterations, layout.most, layout.body, setting, start],
        outputs=[work, matrix, descent, *out],
    )


def _newton_shapes(layout: Layout, setting: Setting, start: Any) -> Solved:
    w, shape = start.shape[0], jax.ShapeDtypeStruct
    pair = shape((w, 2 * layout.room, 3), np.int32)
    return Solved(start, shape((w,), start.dtype), shape((w,), np.int32), shape((w,), np.uint32), pair)


def _solve(launch: Any, layout: Layout, setting: Setting, u: Any, pair: Any, cotangent: Any, trial: Any) -> None:
    work, matrix, vectors = _scratch(launch, layout, u)
    krylov = vectors("older", "old", "lanczos", "z", "w_older", "w_old")
    launch(
        kernels(u.dtype, "deformables.newton").solve,
        dim=launch.worlds,
        inputs=[layout.most, layout.body, setting, u, pair, cotangent],
        outputs=[work, matrix, krylov, trial],
    )


class Power(NamedTuple):
    """Virtual power in parts."""

    element: Any  # (world, element)
    vertex: Any  # (world, vertex)
    contact: Any  # (world, vertex, collider)
    dilatation: Any  # (world, vertex) where it is a mean, else (world, 0)
    pair: Any  # (world, 2 room)
    bend: Any  # (world, hinge)


def _power(launch: Any, layout: Layout, setting: Setting, u: Any, pair: Any, trial: Any, out: Power) -> None:
    k, s = kernels(u.dtype, "deformables.power"), setting
    inputs = [layout.law, int(layout.mean), int(layout.sheet), layout.topology.elements, s.rest, s.density, s.mu, s.lam]
    inputs += [s.timestep, s.gravity, s.damping, s.viscous, s.muscle, s.thick, s.x, s.v, u, trial]
    launch(k.element_power, dim=(launch.worlds, len(layout.topology.elements)), inputs=inputs, outputs=[out.element])
    dim = (launch.worlds, layout.topology.num_vertices)
    launch(k.vertex_power, dim=dim, inputs=[s.force, trial], outputs=[out.vertex])
    if layout.mean:
        vec5 = kernels(u.dtype, "_precision").vec5
        part, total = launch.scratch(out.element.shape, vec5), launch.scratch(dim, vec5)
        inputs = [layout.law, layout.topology.elements, s.rest, s.mu, s.lam, s.x, u, trial]
        launch(k.dilate, dim=out.element.shape, inputs=inputs, outputs=[part])
        launch(k.gather, dim=dim, inputs=[*layout.topology.incidence, part], outputs=[total])
        launch(k.dilatation_power, dim=dim, inputs=[total], outputs=[out.dilatation])
    if len(layout.hinges):
        inputs = [layout.hinges, s.rest, s.bend, s.viscous, s.timestep, s.x, u, trial]
        launch(k.bend_power, dim=out.bend.shape, inputs=inputs, outputs=[out.bend])
    if layout.shapes:
        force = launch.scratch((*dim, len(layout.shapes)), kernels(u.dtype, "_precision").vec3)
        _push(launch, layout, setting, u, force)
        k = kernels(u.dtype, "deformables.contact")
        launch(k.push_power, dim=(*dim, len(layout.shapes)), inputs=[force, trial], outputs=[out.contact])
    if layout.room:
        inputs = [layout.skin, pair, s.share, s.seam, s.span, s.stiffness, s.thickness, s.slip, s.rub, s.timestep]
        inputs += [s.before, s.x, u, trial]
        kernel = kernels(u.dtype, "deformables.pairs").pair_power
        launch(kernel, dim=(launch.worlds, 2 * layout.room), inputs=inputs, outputs=[out.pair])


def _push(launch: Any, layout: Layout, setting: Setting, u: Any, out: Any) -> None:
    """Force of each collider on each vertex [N]."""
    s, table = setting, layout.colliders
    inputs = [
        table["shape"],
        table["count"],
        table["sample"],
        s.area,
        s.stiffness,
        s.thickness,
        s.slip,
        s.size,
        s.friction,
        s.field,
    ]
    inputs += [s.begin, s.begin_turn, s.end, s.end_turn, s.velocity, s.spin, s.timestep, s.before, s.x, u]
    dim = (launch.worlds, layout.topology.num_vertices, len(layout.shapes))
    launch(kernels(u.dtype, "deformables.contact").push, dim=dim, inputs=inputs, outputs=[out])


def _power_shapes(layout: Layout, setting: Setting, u: Any, pair: Any, trial: Any) -> Power:
    n = layout.topology.num_vertices
    sizes = (
        (len(layout.topology.elements),),
        (n,),
        (n, len(layout.shapes)),
        (n if layout.mean else 0,),
        (2 * layout.room,),
        (len(layout.hinges),),
    )
    return Power(*(jax.ShapeDtypeStruct((u.shape[0], *size), u.dtype) for size in sizes))


def _push_shapes(layout: Layout, setting: Setting, u: Any) -> Any:
    return jax.ShapeDtypeStruct((*u.shape[:2], len(layout.shapes), 3), u.dtype)


_newton_op = warp_op(_newton, _newton_shapes, differentiable=False, zeroed=False, name="fem.step")
_solve_op = warp_op(_solve, lambda *args: args[-1], differentiable=False, zeroed=False, name="fem.step: solve")
_power_op = warp_op(_power, _power_shapes, zeroed=False, name="fem.step: power")
pushed = warp_op(_push, _push_shapes, zeroed=False, name="fem.step: contact")


def elastic_power(layout: Layout, setting: Setting) -> Array:
    """Derivative of the elastic energy by the vertices' places [N], (world, vertex, 3)."""
    zero = jnp.zeros_like(setting.x)
    bare = setting._replace(
        timestep=jnp.full_like(setting.timestep, jnp.inf), gravity=jnp.zeros_like(setting.gravity), force=zero
    )
    args = layout._replace(room=0), bare, zero, jnp.zeros((len(zero), 0, 3), jnp.int32), zero
    seeds = jax.tree.map(lambda part: jnp.ones(part.shape, part.dtype), _power_shapes(*args))
    wanted = [False] * (len(jax.tree.leaves(args)) - 1) + [True]
    return _power_op.vjp(args, seeds, wanted)[-1]


def no_bodies(dtype: Any) -> dict[str, Array]:
    """The part of a setting that is about bodies that answer to contact, if there are none."""
    none = jnp.zeros((1, 0, 3), dtype)
    return {"origin": none, "free": none, "lever": jnp.zeros((1, 0, 3, 3), dtype), "weight": jnp.ones(1, dtype)}


def meeting(
    layout: Layout, setting: Setting, start: Array, origin: Array, twist: Array, mobility: Array
) -> tuple[Solved, Array]:
    """A step's displacement, and the twists of the bodies that carry colliders, found together. No gradient flows.

    Args:
        layout: its ``carrier`` and ``bodies`` say which collider is whose.
        setting: colliders begin where they are; those that bodies carry end where these go.
        start: as in :func:`displacement`.
        origin: of the bodies [m], (world, body, 3).
        twist: without contact, (world, body, 6): velocity of the origin [m/s], angular velocity [rad/s].
        mobility: twists by impulses about the origins, (world, 6 body, 6 body).

    Returns:
        The displacement, and the twists.
    """
    worlds, rows, extra = len(twist), 2 * layout.bodies, ((0, 0), (0, 2 * layout.bodies))
    value, axis = jnp.linalg.eigh(mobility)
    swift = jnp.diagonal(mobility, axis1=1, axis2=2).reshape(worlds, -1, 6)[..., :3].max((1, 2))
    weight = 1 / jnp.where(swift > 0, swift, 1)
    rate = 1 / setting.timestep
    scale = jnp.sqrt(jnp.maximum(value, 0) * (weight * rate * (rate + setting.damping))[:, None])
    still = scale > 1e-6 * scale.max(1, keepdims=True)  # where bodies can move; there they begin at rest, apart
    along = einsum("wij,wi->wj", axis, twist.reshape(worlds, -1))
    begin = -jnp.where(still, along / jnp.where(still, scale, 1), 0).reshape(worlds, rows, 3)
    lever = (axis * scale[:, None]).reshape(worlds, rows, 3, rows, 3).swapaxes(2, 3)
    found: Solved = _newton_op(
        layout,
        setting._replace(
            **{name: jnp.pad(getattr(setting, name), (*extra, (0, 0))) for name in ("x", "force", "before")},
            area=jnp.pad(setting.area, extra),
            origin=origin,
            free=twist.reshape(worlds, rows, 3),
            lever=lever.reshape(worlds, rows * rows, 3, 3),
            weight=weight,
        ),
        jnp.concatenate([start, begin], 1),
    )
    y = found.u[:, layout.topology.num_vertices :]
    change = (lever * y[:, None, :, None]).sum((2, 4)).reshape(twist.shape)
    return found._replace(u=found.u[:, : layout.topology.num_vertices]), twist + change


@custom_vjp
def displacement(layout: Layout, setting: Setting, start: Array) -> Solved:
    """The step's displacement; ``start`` [m], (world, vertex, 3), holds that of pinned vertices, and a guess elsewhere.

    Gradients flow from ``u`` to the setting, and to ``start`` where it is pinned.
    """
    return _newton_op(layout, setting, start)


def _forward(*primals: Any) -> Any:
    (layout, setting, start), wanted = primal_values(primals)
    found: Solved = displacement(layout, setting, start)
    return found, (layout, setting, found.u, found.pair, wanted)


def _backward(saved: Any, cotangent: Solved) -> Any:
    layout, setting, u, pair, wanted = saved
    direction = dense(cotangent.u)
    silent = (direction == 0).all((1, 2))[:, None, None]  # may have overflowed: at rest nothing does
    u, setting = jnp.where(silent, 0, u), setting._replace(x=jnp.where(silent, setting.rest, setting.x))
    trial = _solve_op(layout, setting, u, pair, direction)
    grads = power_gradient(_power_op, (layout, setting, u), (pair, trial), flags.load(wanted), direction)
    by_start = None
    if grads[2] is not None:
        pinned = jnp.asarray(layout.body["pinned"] != 0)[None, :, None]
        by_start = jnp.where(pinned, direction + grads[2], 0)
    return layout, grads[1], by_start


displacement.defvjp(_forward, _backward, symbolic_zeros=True)
