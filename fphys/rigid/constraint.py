"""Constrained acceleration, and its gradient by one linear solve.

Forward: M(q) a + b = tau + J^T f(J a), the minimum of MuJoCo's convex problem, by Newton's method. The rows of J are
those of equalities, dry friction, limits and contacts, in this order.
Backward: with H the Hessian at the solution and H l = cotangent of a, the cotangent of any input x is
-(dP/dx) of the virtual power P(l) = l . (M a + b - tau - J^T f) at fixed a and fixed contact set. No
iteration and no factorisation is differentiated. If the integrator damps, the gradient is that of the damped
acceleration: :mod:`damped` pulls it back to a and adds its own power.

What the gradient leaves out: the jump of the force when a contact is made or broken, changes in the
number of contact points, and the choice of the frame's tangents.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..bridge import WarpOp, kernels, warp_op
from ..implicit import dense, flags, power_gradient, primal_values
from ..model import Model, State
from . import articulated as AB
from . import conjugate
from . import damped as D
from . import launches as L
from . import tendon as T
from .adhesion import add_adhesion, adheres, adhesion_power
from .collision import Contacts, detect, geom_poses, geometry, near_pairs, row_capacity
from .contact import Pairs, contact_power, contact_rows, mix_pairs, pair_rows
from .dynamics import (
    Found,
    applied_force,
    bias_force,
    body_and_joint_power,
    frame_accelerations,
    mass_matrix_launch,
    power_parts,
    required_force,
)
from .equality import Bonds, bonds, equality_power, equality_rows, equality_sizes
from .friction import friction_power, friction_rows, friction_sizes
from .limit import limit_power, limit_rows, limit_sizes

Array = jax.Array
_STACK = 1 << 20  # bytes of its stack that a thread may use to solve eight worlds at once


class Parameters(NamedTuple):
    """The parameters of the constraints, combined."""

    pairs: Pairs
    bonds: Bonds


class Solution(NamedTuple):
    """The result of a solve, and how it was found."""

    found: Found
    residual: Array  # this and the following are zero if the solution was known
    iterations: Array
    status: Array


def constrained(model: Model, state: State) -> bool:
    """Whether anything can constrain the motion."""
    return model.structure.nrow > 0 or state.max_contacts > 0


def _set_up(
    launch: Any, model: Model, state: State, given: Parameters, kept: Any, ids: tuple[Any, Any], status: Any
) -> L.Setting:
    """Poses, contacts and the rows of all constraints; writes the contacts' pairs and features, ``ids``."""
    t, dim = L.types(state.qpos), ids[0].shape
    frames = L.frame_poses(launch, model, state)
    axes = L.dof_axes(launch, model, state, frames)
    velocity = L.frame_motion(launch, model, state, axes, state.qvel)
    poses = geom_poses(launch, model, state, frames)
    row = launch.scratch(dim, t.integer)
    detect(
        launch,
        model,
        state,
        given.pairs.candidate,
        given.pairs.detection,
        pair_rows(model),
        poses,
        kept,
        [*ids, row, status],
    )
    contacts = Contacts(*ids, *(launch.scratch(dim, kind) for kind in (t.real, t.vec3, t.mat33)))
    geometry(launch, model, state, ids, frames, list(contacts[2:]))
    room = row_capacity(model, state) if kept is None else dim[1] * int(pair_rows(model).max(initial=0))
    rows = _rows(launch, model, state, given, contacts, row, (frames, axes, velocity), room)
    return L.Setting(frames, axes, contacts, row, rows)


def _solve(
    damping: bool, launch: Any, model: Model, state: State, loads: L.Loads, given: Parameters, kept: Any, *outs: Any
) -> None:
    """Everything from poses to the constrained acceleration, and with ``damping`` to the damped one."""
    qacc, damped, factor, pair, feature, residual, iterations, status, detected = outs
    real = L.types(state.qpos).real
    w, n = launch.worlds, model.structure.nv
    k = L.modules(state.qpos)
    setting = _set_up(launch, model, state, given, kept, (pair, feature), detected)
    frames, axes, contacts, row, rows = setting
    bias, net = launch.scratch((w, n), real), launch.scratch((w, n), real)
    zero = launch.scratch((w, n), real, zeroed=True)
    both = axes, L.dof_axes(launch, model, state, frames, own=True)
    bias_force(launch, model, state, frames, both, L.applied_wrench(launch, model, state, loads), zero, bias)
    force_applied = applied_force(launch, model, state, loads, frames, axes)
    force_applied = add_adhesion(launch, model, state, loads, (frames, axes), contacts, force_applied)
    launch(k.forces.subtract, dim=(w, n), inputs=[force_applied, bias], outputs=[net])
    if model.structure.sparse:
        mass = AB.inertias(launch, model, state, frames, implicit=False)
        found = [residual, iterations, status]
        conjugate.newton(launch, model, state, given.pairs, mass, setting, net, qacc, found)
        if damping:
            D.damp_sparse(launch, model, state, frames, mass, qacc, damped)
        return
    matrix = launch.scratch((w, L.packed_size(n)), real, zeroed=True)
    mass_matrix_launch(launch, model, state, frames, both, model.dof.armature, matrix)
    found = [residual, iterations, status]
    _newton(launch, model, state, given.pairs, (matrix, net), rows, (pair, row), [qacc, factor], found)
    if damping:
        D.damp(launch, model, state, loads, (frames, axes), matrix, qacc, damped)


def _rows(
    launch: Any, model: Model, state: State, given: Parameters, contacts: Contacts, row: Any, motions: Any, room: int
) -> L.Rows:
    """The rows of all constraints; ``room`` is the number of rows for contacts."""
    s, t = model.structure, L.types(state.qpos)
    size = (launch.worlds, s.nrow + room)
    weight = launch.scratch(size, t.real, zeroed=True)
    jacobian = launch.scratch((*size, 1 if s.sparse else s.nv), t.real)
    rows = L.Rows(jacobian, weight, launch.scratch(size, t.real), launch.scratch(size, t.vec2))
    ten = T.tendons(launch, model, state, *motions[:2])
    tendons = L.Tendons(ten.length, ten.velocity)
    moment = T.dense_jacobian(launch, model, ten) if s.ntendon else None
    bias = frame_accelerations(launch, model, state, *motions[1:]) if equality_sizes(model)[0] else None
    equality_rows(launch, model, state, given.bonds, (*motions, bias), tendons, moment, rows)
    first = s.nrow - sum(limit_sizes(model))
    limit_rows(launch, model, state, tendons, moment, first, rows)
    friction_rows(launch, model, state, tendons, moment, first - sum(friction_sizes(model)), rows)
    contact_rows(launch, model, state, given.pairs, contacts, row, motions, s.nrow, rows)
    return rows


def _side_by_side(launch: Any, model: Model, nr: int, itemsize: int) -> bool:
    """Whether eight worlds are solved at once: on a CPU, without elliptic cones, if a thread's stack has the room."""
    n = model.structure.nv
    room = 8 * itemsize * (nr * (n + 7) + 7 * n + 2 * L.packed_size(n))
    return launch.platform == "cpu" and not model.structure.elliptic and room <= _STACK


def _newton(
    launch: Any,
    model: Model,
    state: State,
    pairs: Pairs,
    problem: tuple[Any, Any],
    rows: L.Rows,
    contacts: tuple[Any, Any],
    out: list[Any],
    found: list[Any],
) -> None:
    """The solver, with its scratch memory; ``problem``: mass matrix and net force, ``contacts``: pairs and rows."""
    s, t = model.structure, L.types(state.qpos)
    w, nr, nc = launch.worlds, rows.weight.shape[1], contacts[0].shape[1]
    if _side_by_side(launch, model, nr, state.qpos.dtype.itemsize):
        launch(
            kernels(state.qpos.dtype, "rigid.newton_lanes").newton_lanes,
            dim=w,
            inputs=[s.iterations, s.ls_iterations, s.nrow, model.opt.tolerance, model.opt.meaninertia]
            + [*problem, state.warmstart, *rows, *contacts],
            outputs=[*out, *found],
        )
        return
    scratch = [launch.scratch((w, n), t.real) for n in (s.nv, s.nv, s.nv, s.nv, nr, nr)]
    scratch += [launch.scratch((w, n), t.integer) for n in (nr, nr, nc)] + [launch.scratch((w, 2, s.nv), t.real)]
    scratch += [launch.scratch((w, nr), t.real)]
    structure = [s.iterations, s.ls_iterations, s.nrow, int(s.elliptic), s.geom.pair_condim]
    parameters = [model.opt.tolerance, model.opt.meaninertia, pairs.friction, model.opt.impratio]
    L.shared(
        launch,
        kernels(state.qpos.dtype, "rigid.newton").newton,
        [*structure, *parameters, *problem, state.warmstart, *rows, *contacts],
        [*out, *scratch, *found],
    )


def _solve_shapes(
    damping: bool, model: Model, state: State, loads: L.Loads, given: Parameters, kept: Any
) -> tuple[Any, ...]:
    (w, _), real, nv = state.qpos.shape, state.qpos.dtype, model.structure.nv
    nc = state.max_contacts if kept is None else kept[0].shape[1]
    shape = jax.ShapeDtypeStruct
    ids = [shape((w, nc), jnp.int32) for _ in range(2)]
    flags = [shape((w,), kind) for kind in (real, jnp.int32, jnp.uint32, jnp.uint32)]
    factor = 0 if model.structure.sparse else L.packed_size(nv)
    rates = [shape((w, n), real) for n in (nv, nv * damping, factor)]
    return (*rates, *ids, *flags)


@functools.cache
def _solve_op(damping: bool) -> WarpOp:
    fn, shapes = functools.partial(_solve, damping), functools.partial(_solve_shapes, damping)
    return warp_op(fn, shapes, differentiable=False, name="constraint")


def _power(
    launch: Any, model: Model, state: State, loads: L.Loads, given: Parameters, ids: Any, slowed: Any, *rest: Any
) -> None:
    """Virtual power of everything, constraint forces last; ``slowed``: the inputs of the power of damping, if any."""
    qacc, trial, *outs = rest
    t = L.types(state.qpos)
    smooth = len(power_parts(model, state, loads, implicit=False))
    second = (slowed[2], slowed[1]) if slowed else None
    parts = body_and_joint_power(launch, model, state, loads, qacc, trial, outs[:smooth], implicit=False, slowed=second)
    outs = outs[smooth:]
    if slowed:
        count = len(D.power_sizes(model, loads))
        D.power(launch, model, state, loads, parts, slowed, outs[:count])
        outs = outs[count:]
    ten, rates = parts.tendons, None
    tendons = L.Tendons(ten.length, ten.velocity)
    if model.structure.ntendon:
        rates = [T.rates(launch, model, ten, x) for x in (qacc, trial)]
    whole = (parts.frames, parts.velocity, parts.acceleration, parts.trial)
    equality_power(launch, model, state, given.bonds, whole, (qacc, trial), tendons, rates, outs)
    friction_power(launch, model, state, (qacc, trial), tendons, rates, outs)
    limit_power(launch, model, state, (qacc, trial), tendons, rates, outs)
    if _capacity(ids):
        shapes = [launch.scratch(ids[0].shape, kind) for kind in (t.real, t.vec3, t.mat33)]
        geometry(launch, model, state, ids, parts.frames, shapes)
        relative = (parts.frames, parts.velocity, parts.linear, parts.trial)
        contact_power(launch, model, state, given.pairs, ids[0], shapes, relative, outs.pop(0))
        if adheres(model, loads):
            adhesion_power(launch, model, state, loads, ids[0], shapes, (parts.frames, parts.trial), outs.pop(0))


def _capacity(ids: Any) -> int:
    """Capacity of a contact set, which is None in an operation whose launches do not use it."""
    return 0 if ids[0] is None else ids[0].shape[1]


def _power_shapes(
    model: Model, state: State, loads: L.Loads, given: Parameters, ids: Any, slowed: Any, *_: Any
) -> tuple[Any, ...]:
    sizes = D.power_sizes(model, loads) if slowed else []
    sizes += [*equality_sizes(model), *friction_sizes(model), *limit_sizes(model), _capacity(ids)]
    sizes += [_capacity(ids)] if adheres(model, loads) else []
    parts = [jax.ShapeDtypeStruct((state.qpos.shape[0], n), state.qpos.dtype) for n in sizes if n]
    return (*power_parts(model, state, loads, implicit=False), *parts)


_power_op = warp_op(_power, _power_shapes, name="constraint's power")


def _back_solve(
    launch: Any,
    model: Model,
    state: State,
    loads: L.Loads,
    given: Parameters,
    ids: Any,
    solved: Any,
    cotangent: Any,
    out: Any,
    *slowed: Any,
) -> None:
    """Solve with the Hessian; ``solved``: accelerations, damped ones, the Hessian's factor; ``slowed``: for damping."""
    qacc, damped, factor = solved
    if slowed:
        cotangent = D.pull(launch, model, state, loads, (qacc, damped), cotangent, slowed)
        qacc = slowed[-1]
    if model.structure.sparse:
        outs = [launch.scratch(cotangent.shape[:1], L.types(cotangent).bits)]
        copies = tuple(launch.scratch(i.shape, L.types(cotangent).integer) for i in ids)
        setting = _set_up(launch, model, state, given, ids, copies, *outs)
        conjugate.solve(launch, model, state, given.pairs, setting, qacc, cotangent, out)
        return
    L.shared(launch, kernels(cotangent.dtype, "rigid.dense").solve_dense, [factor, cotangent], [out])


@functools.cache
def _back_solve_op(damping: bool) -> WarpOp:
    def shapes(*args: Any) -> tuple[Any, ...]:
        return (args[-1],) * (4 if damping else 1)

    return warp_op(_back_solve, shapes, differentiable=False, zeroed=False, name="solve")


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _accelerate(
    damping: bool, model: Model, state: State, loads: L.Loads, given: Parameters, kept: Any, known: Found | None
) -> Solution:
    if known is not None:
        none = [jnp.zeros(len(state.qpos), kind) for kind in (state.qpos.dtype, jnp.int32, jnp.uint32)]
        return Solution(known if known.qacc is not None else known._replace(qacc=known.damped), *none)
    *found, residual, iterations, status, detected = _solve_op(damping)(model, state, loads, given, kept)
    return Solution(Found(*found), residual, iterations, status | detected)


def _accelerate_fwd(damping: bool, *primals: Any) -> Any:
    (model, state, loads, given, kept, known), wanted = primal_values(primals)
    solution: Solution = _accelerate(damping, model, state, loads, given, kept, known)
    return solution, (model, state, loads, given, needed(model, damping, solution.found), wanted)


def needed(model: Model, damping: bool, found: Found) -> Found:
    """The part of what was found that a backward pass needs."""
    return found._replace(
        qacc=None if damping and D.invertible(model) else found.qacc, damped=found.damped if damping else None
    )


def _accelerate_bwd(damping: bool, saved: Any, cotangent: Solution) -> Any:
    model, state, loads, given, found, wanted = saved
    ids, solved = (found.pair, found.feature), (found.qacc, found.damped, found.factor)
    direction = dense(cotangent.found.damped if damping else cotangent.found.qacc)
    pulled = _back_solve_op(damping)(model, state, loads, given, ids, solved, direction)
    if damping:
        trial, slowed, change, qacc = pulled
        fixed = (ids, (found.damped, slowed, change), qacc, trial)
    else:
        fixed = (ids, (), found.qacc, pulled)
    wish = flags.load(wanted)[: len(jax.tree.leaves((model, state, loads, given)))]
    grads = power_gradient(_power_op, (model, state, loads, given), fixed, wish, direction)
    return (*grads, None, None)


_accelerate.defvjp(_accelerate_fwd, _accelerate_bwd, symbolic_zeros=True)


def constrained_acceleration(
    model: Model,
    state: State,
    loads: L.Loads,
    given: Contacts | None = None,
    known: Found | None = None,
    *,
    damping: bool = False,
) -> Solution:
    """Accelerations under constraints, and the contact set.

    Args:
        given: a contact set to use instead of detecting one.
        known: what the solve found, if that is already known.
        damping: whether to solve also for the accelerations after implicit damping.

    Returns:
        Solution; gradients flow only from ``found.qacc``, or with damping only from ``found.damped``, to model, state
        and loads.
    """
    kept = None if given is None else (given.pair, given.feature)
    pairs, status = _pairs(model, state, kept)
    solution: Solution = _accelerate(damping, model, state, loads, Parameters(pairs, bonds(model)), kept, known)
    return solution._replace(status=solution.status | status)


def _pairs(model: Model, state: State, kept: Any = None) -> tuple[Pairs, Array]:
    """Pairs that may touch, and the fault bits of the search; for a sparse model only pairs near each other."""
    fine = jnp.zeros(state.qpos.shape[0], jnp.uint32)
    if not model.structure.sparse:
        return mix_pairs(model), fine
    candidate, status = near_pairs(model, state) if kept is None else (kept[0], fine)
    return mix_pairs(model, candidate), status


def _restore(launch: Any, model: Model, state: State, given: Parameters, qacc: Any, *outs: Any) -> None:
    """-J^T f at given accelerations."""
    total, pair, feature, status = outs
    s, t = model.structure, L.types(state.qpos)
    w, nc = launch.worlds, pair.shape[1]
    setting = _set_up(launch, model, state, given, None, (pair, feature), status)
    if s.sparse:
        conjugate.restore(launch, model, state, given.pairs, setting, qacc, total)
        return
    *_, row, rows = setting
    nr = rows.weight.shape[1]
    scratch = [
        launch.scratch((w, n), kind) for n, kind in ((nr, t.real), (nr, t.integer), (nr, t.integer), (nc, t.integer))
    ]
    scratch += [launch.scratch((w, 2, s.nv), t.real)]
    scratch += [launch.scratch((w, n), t.real) for n in (L.packed_size(s.nv), nr)]
    launch(
        kernels(state.qpos.dtype, "rigid.newton").restoring_forces,
        dim=w,
        inputs=[s.nrow, int(s.elliptic), s.geom.pair_condim, given.pairs.friction, model.opt.impratio]
        + [qacc, *rows, pair, row],
        outputs=[total, *scratch],
    )


def _restore_shapes(model: Model, state: State, given: Parameters, qacc: Any) -> tuple[Any, ...]:
    w, shape = qacc.shape[0], jax.ShapeDtypeStruct
    ids = [shape((w, state.max_contacts), jnp.int32) for _ in range(2)]
    return (shape(qacc.shape, qacc.dtype), *ids, shape((w,), jnp.uint32))


_restore_op = warp_op(_restore, _restore_shapes, differentiable=False, name="constraint's force")


@jax.custom_vjp
def _require(model: Model, state: State, given: Parameters, qacc: Array) -> Array:
    return required_force(model, state, _NO_LOADS, qacc) + _restore_op(model, state, given, qacc)[0]


def _require_fwd(*primals: Any) -> Any:
    (model, state, given, qacc), wanted = primal_values(primals)
    total, pair, feature, _ = _restore_op(model, state, given, qacc)
    force = required_force(model, state, _NO_LOADS, qacc) + total
    return force, (model, state, given, (pair, feature), qacc, wanted)


def _require_bwd(saved: Any, cotangent: Array) -> Any:
    model, state, given, ids, qacc, wanted = saved
    args = (model, state, _NO_LOADS, given, ids, (), qacc, dense(cotangent))
    seeds = [jnp.ones(p.shape, p.dtype) for p in _power_op.outputs(*args)]
    flag = iter(flags.load(wanted))
    mask = [[next(flag) for _ in jax.tree.leaves(part)] for part in (model, state, given)]
    wish = [*mask[0], *mask[1], *mask[2], False, False, next(flag), False]
    grads = _power_op.vjp(args, seeds, wish)
    return grads[0], grads[1], grads[3], grads[6]


_require.defvjp(_require_fwd, _require_bwd, symbolic_zeros=True)

_NO_LOADS = L.Loads(None, None, None)


def constrained_inverse(model: Model, state: State, qacc: Array) -> Array:
    """M a + b - passive - J^T f(a), shape (world, nv); gradients flow to model, state and qacc."""
    return _require(model, state, Parameters(_pairs(model, state)[0], bonds(model)), qacc)
