"""Constrained acceleration. Its gradient needs one linear solve.

Forward: M(q) a + b = tau + J^T f(J a), the minimum of MuJoCo's convex problem, by Newton's method. The rows of J are
those of equalities, dry friction, limits and contacts, in this order.
Backward: with H the Hessian at the solution and H l = cotangent of a, the cotangent of any input x is
-(dP/dx) of the virtual power P(l) = l . (M a + b - tau - J^T f) at fixed a and fixed contact set. No
iteration and no factorisation is differentiated. If the integrator damps, the cotangent belongs to the
damped acceleration, and ``damped.py`` pulls it back to a.

What the gradient leaves out: the jump of the force when a contact is made or broken, changes in the
number of contact points, and the choice of the frame's tangents.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...bridge import WarpOp, custom_vjp, kernels, warp_op
from ...implicit import dense, flags, power_gradient, primal_values
from ...model import Model, State
from ...model.pairs import most_rows, pair_kinds
from .. import damped, dynamics, stages, team
from ..collide.collision import Contacts, detect, geom_poses, geometry, near_contacts, near_pairs, row_capacity
from ..dynamics import (
    Found,
    applied_force,
    bias_force,
    frame_accelerations,
    mass_matrix_launch,
    required_force,
    smooth_parts,
    smooth_power,
)
from ..forces import tendon
from ..forces.adhesion import add_adhesion, adheres, adhesion_power
from ..tree import articulated, topology
from . import equality, friction, islands, limit, links
from .contact import Pairs, contact_power, contact_rows, mix_pairs
from .equality import bonds, equality_parts, equality_power, equality_rows
from .friction import friction_parts, friction_power, friction_rows, friction_sizes
from .islands import Parameters
from .limit import limit_parts, limit_power, limit_rows, limit_sizes

Array = jax.Array
_STACK = 1 << 20  # bytes of its stack that a thread may use to solve eight worlds at once


class Solution(NamedTuple):
    """The result of a solve, and how it was found."""

    found: Found
    residual: Array  # this and the following are zero if the solution was known
    iterations: Array
    status: Array


def constrained(model: Model, state: State) -> bool:
    """Whether anything can constrain the motion."""
    return model.structure.nrow > 0 or state.max_contacts > 0


class Setting(NamedTuple):
    """The common inputs of the solve and of the forces at given accelerations."""

    motions: stages.Motions
    contacts: Contacts
    row: Any  # first row of each contact, (world, contact)
    rows: stages.Rows


class Ids(NamedTuple):
    """What identifies a contact set, each (world, contact)."""

    pair: Any
    feature: Any


def set_up(launch: Any, model: Model, state: State, given: Parameters, kept: Any, ids: Ids, status: Any) -> Setting:
    """Poses, contacts and the rows of all constraints; writes the contacts' pairs and features, ``ids``."""
    t, dim = stages.types(state.qpos), ids.pair.shape
    frames = stages.frame_poses(launch, model, state)
    axes = stages.dof_axes(launch, model, frames)
    velocity = stages.frame_motion(launch, model, axes, state.qvel)
    motions = stages.Motions(frames, axes, velocity)
    poses = geom_poses(launch, model, state, frames)
    row = launch.scratch(dim, t.integer)
    found = [*ids, row, status]
    room = row_capacity(model, state) if kept is None else dim[1] * most_rows(model.structure)
    detect(launch, model, state, given.pairs.candidate, given.pairs.detection, poses, kept, found, room)
    contacts = geometry(launch, model, state, ids, frames)
    rows = _rows(launch, model, state, given, contacts, row, motions, room)
    return Setting(motions, contacts, row, rows)


def _solve(
    launch: Any,
    model: Model,
    state: State,
    loads: stages.Loads,
    given: Parameters,
    kept: Any,
    out: "Solved",
) -> None:
    """Everything from poses to the constrained acceleration, and to the damped one if that is wanted."""
    real = stages.types(state.qpos).real
    w, n = launch.worlds, model.structure.nv
    k = stages.modules(state.qpos)
    setting = set_up(launch, model, state, given, kept, out.ids, out.detected)
    frames, axes = setting.motions.frames, setting.motions.axes
    bias, net = launch.scratch((w, n), real), launch.scratch((w, n), real)
    zero = launch.scratch((w, n), real, zeroed=True)
    both = axes, stages.dof_axes(launch, model, frames, own=True)
    bias_force(launch, model, state, frames, both, stages.applied_wrench(launch, model, state, loads), zero, bias)
    force_applied = applied_force(launch, model, state, loads, frames, axes)
    force_applied = add_adhesion(launch, model, state, loads, setting.motions, setting.contacts, force_applied)
    launch(k.forces.subtract, dim=(w, n), inputs=[force_applied, bias], outputs=[net])
    if model.structure.sparse:
        mass = articulated.inertias(launch, model, state, frames, implicit=False)
        islands.newton(launch, model, state, given, mass, setting, net, out.qacc, out.found)
        if out.damped is not None:
            damped.damp_sparse(launch, model, state, loads, frames, mass, out.qacc, out.damped)
        return
    matrix = launch.scratch((w, topology.packed_size(n)), real, zeroed=True)
    mass_matrix_launch(launch, model, state, frames, both, model.dof.armature, matrix)
    _newton(launch, model, state, given.pairs, matrix, net, setting, out)
    if out.damped is not None:
        damped.damp(launch, model, state, loads, (frames, axes), matrix, out.qacc, out.damped)


def _rows(
    launch: Any,
    model: Model,
    state: State,
    given: Parameters,
    contacts: Contacts,
    row: Any,
    motions: stages.Motions,
    room: int,
) -> stages.Rows:
    """The rows of all constraints; ``room`` is the number of rows for contacts."""
    s, t = model.structure, stages.types(state.qpos)
    size = (launch.worlds, s.nrow + room)
    weight = launch.scratch(size, t.real, zeroed=True)
    jacobian = launch.scratch((*size, links.links(s).width if s.sparse else s.nv), t.real)
    rows = stages.Rows(jacobian, weight, launch.scratch(size, t.real), launch.scratch(size, t.vec2))
    ten = tendon.tendons(launch, model, state, motions.frames, motions.axes)
    moment = None
    if s.ntendon:
        moment = links.moments(launch, model, state) if s.sparse else tendon.dense_jacobian(launch, model, ten)
    if equality_parts(model, state).weld is not None:
        bias = frame_accelerations(launch, model, state, motions.axes, motions.velocity)
        motions = motions._replace(acceleration=bias)
    equality_rows(launch, model, state, given.bonds, motions, ten, moment, rows)
    first = s.nrow - sum(limit_sizes(model))
    limit_rows(launch, model, state, ten, moment, first, rows)
    friction_rows(launch, model, state, ten, moment, first - sum(friction_sizes(model)), rows)
    contact_rows(launch, model, state, given.pairs, contacts, row, motions, s.nrow, rows)
    return rows


def _side_by_side(launch: Any, model: Model, nr: int, itemsize: int) -> bool:
    """Whether eight worlds are solved at once: on a CPU, without elliptic cones, if a thread's stack has the room."""
    n = model.structure.nv
    room = 8 * itemsize * (nr * (n + 7) + 7 * n + 2 * topology.packed_size(n))
    return launch.platform == "cpu" and not model.structure.elliptic and room <= _STACK


def _newton(
    launch: Any, model: Model, state: State, pairs: Pairs, matrix: Any, force: Any, setting: Setting, out: "Solved"
) -> None:
    """The solver, with its scratch memory."""
    s, t = model.structure, stages.types(state.qpos)
    rows, contact_pair = setting.rows, setting.contacts.pair
    if _side_by_side(launch, model, rows.weight.shape[1], state.qpos.dtype.itemsize):
        launch(
            kernels(state.qpos.dtype, "rigid.solve.newton_lanes").newton_lanes,
            dim=launch.worlds,
            inputs=[s.iterations, s.ls_iterations, s.nrow, model.opt.tolerance, model.opt.meaninertia]
            + [matrix, force, state.warmstart, *rows, contact_pair, setting.row],
            outputs=[out.qacc, out.factor, *out.found],
        )
        return
    vectors = {
        name: launch.scratch((launch.worlds, s.nv), t.real) for name in ("gradient", "search", "net", "change_net")
    }
    team.shared(
        launch,
        kernels(state.qpos.dtype, "rigid.solve.newton").newton,
        [s.iterations, s.ls_iterations, model.opt.tolerance, model.opt.meaninertia]
        + [matrix, force, state.warmstart, rows, cones(model, pairs, setting)],
        [out.qacc, out.factor, out.found, vectors, working_memory(launch, model, setting)],
    )


def cones(model: Model, pairs: Pairs, setting: Setting) -> dict[str, Any]:
    """The contacts whose rows may form cones, as kernels take them."""
    s = model.structure
    listed = {"elliptic": int(s.elliptic), "first": s.nrow, "pair": setting.contacts.pair, "row": setting.row}
    return listed | {"dim": pair_kinds(s).dim, "friction": pairs.friction, "impratio": model.opt.impratio}


def working_memory(launch: Any, model: Model, setting: Setting) -> dict[str, Any]:
    """Working memory of the solver."""
    t, size = stages.types(setting.rows.weight), setting.rows.weight.shape
    kinds = {"active": t.integer, "inside": t.integer, "error": t.real, "change": t.real, "force": t.real}
    work = {name: launch.scratch(size, kind) for name, kind in kinds.items()}
    work["cone"] = launch.scratch(setting.row.shape, t.integer)
    return work | {"slope": launch.scratch((launch.worlds, 2, model.structure.nv), t.real)}


class SolverReport(NamedTuple):
    """How a solve ended, each (world,)."""

    residual: Any
    iterations: Any
    status: Any


class Solved(NamedTuple):
    """What :func:`_solve` writes."""

    qacc: Any  # (world, nv)
    damped: Any  # (world, nv), or None
    factor: Any  # of the Hessian, packed, or None
    ids: Ids
    found: SolverReport
    detected: Any  # fault bits of the search for contacts, (world,)


def _solve_shapes(
    damping: bool, model: Model, state: State, loads: stages.Loads, given: Parameters, kept: Any
) -> Solved:
    s, w, shape = model.structure, state.qpos.shape[0], jax.ShapeDtypeStruct
    contact = shape((w, state.max_contacts if kept is None else kept[0].shape[1]), jnp.int32)
    bits = shape((w,), jnp.uint32)
    return Solved(
        stages.numbers(state, s.nv),
        stages.numbers(state, s.nv) if damping else None,
        None if s.sparse else stages.numbers(state, topology.packed_size(s.nv)),
        Ids(contact, contact),
        SolverReport(shape((w,), state.qpos.dtype), shape((w,), jnp.int32), bits),
        bits,
    )


@functools.cache
def _solve_op(damping: bool) -> WarpOp:
    return warp_op(_solve, functools.partial(_solve_shapes, damping), differentiable=False, name="constraint")


class Power(NamedTuple):
    """Virtual power of everything, one number for each joint, contact and so on; None for what the model lacks."""

    smooth: dynamics.Power
    damped: damped.Power | None
    equality: equality.Power
    friction: friction.Power
    limit: limit.Power
    contact: Any
    adhesion: Any


def _power(
    launch: Any,
    model: Model,
    state: State,
    loads: stages.Loads,
    given: Parameters,
    ids: Ids,
    slowed: damped.Slowed | None,
    qacc: Any,
    trial: Any,
    out: Power,
) -> None:
    """Virtual power of everything, constraint forces last; ``slowed``: the inputs of the power of damping, if any."""
    rates = stages.Rates(qacc, trial)
    second = stages.Rates(slowed.change, slowed.trial) if slowed else None
    motions, ten = smooth_power(launch, model, state, loads, rates, out.smooth, second)
    if slowed and out.damped:
        damped.damped_power(launch, model, state, loads, motions, ten, slowed, out.damped)
    ten_rates = None
    if model.structure.ntendon:
        ten_rates = stages.Rates(*(tendon.rates(launch, model, ten, rate) for rate in rates))
    equality_power(launch, model, state, given.bonds, motions, rates, ten, ten_rates, out.equality)
    friction_power(launch, model, state, rates, ten, ten_rates, out.friction)
    limit_power(launch, model, state, rates, ten, ten_rates, out.limit)
    if out.contact is not None:
        contacts = geometry(launch, model, state, ids, motions.frames)
        contact_power(launch, model, state, given.pairs, contacts, motions, out.contact)
        if out.adhesion is not None:
            adhesion_power(launch, model, state, loads, contacts, motions, out.adhesion)


def _power_shapes(
    model: Model, state: State, loads: stages.Loads, given: Parameters, ids: Ids, slowed: Any, *_: Any
) -> Power:
    contacts = 0 if ids.pair is None else ids.pair.shape[1]  # the record leaves out inputs that no launch uses
    return Power(
        smooth_parts(model, state, loads, implicit=False),
        damped.damped_parts(model, state, loads) if slowed else None,
        equality_parts(model, state),
        friction_parts(model, state),
        limit_parts(model, state),
        stages.part(state, contacts),
        stages.part(state, contacts * adheres(model, loads)),
    )


_power_op = warp_op(_power, _power_shapes, name="constraint's power")


class BackSolved(NamedTuple):
    """What :func:`_back_solve` writes."""

    trial: Any  # (world, nv)
    slowed: damped.Pulled | None  # with damping


def _back_solve(
    launch: Any,
    model: Model,
    state: State,
    loads: stages.Loads,
    given: Parameters,
    found: Found,
    cotangent: Any,
    out: BackSolved,
) -> None:
    """Solve H l = cotangent. With implicit damping, the cotangent is first pulled back to that of a."""
    qacc = found.qacc
    if out.slowed is not None:
        cotangent = damped.pull_damped(launch, model, state, loads, qacc, found.damped, cotangent, out.slowed)
        qacc = out.slowed.qacc
    if model.structure.sparse:
        status = launch.scratch(cotangent.shape[:1], stages.types(cotangent).bits)
        ids = Ids(found.pair, found.feature)
        copies = Ids(*(launch.scratch(i.shape, stages.types(cotangent).integer) for i in ids))
        setting = set_up(launch, model, state, given, ids, copies, status)
        islands.solve(launch, model, state, given, setting, qacc, cotangent, out.trial)
        return
    solve_dense = kernels(cotangent.dtype, "rigid.dense").solve_dense
    team.shared(launch, solve_dense, [found.factor, cotangent], [out.trial])


@functools.cache
def _back_solve_op(damping: bool) -> WarpOp:
    def shapes(*args: Any) -> BackSolved:
        cotangent = args[-1]
        return BackSolved(cotangent, damped.Pulled(cotangent, cotangent, cotangent) if damping else None)

    return warp_op(_back_solve, shapes, differentiable=False, zeroed=False, name="solve")


@functools.partial(custom_vjp, nondiff_argnums=(0,))
def _accelerate(
    damping: bool, model: Model, state: State, loads: stages.Loads, given: Parameters, kept: Any, known: Found | None
) -> Solution:
    if known is not None:
        none = [jnp.zeros(len(state.qpos), kind) for kind in (state.qpos.dtype, jnp.int32, jnp.uint32)]
        return Solution(known if known.qacc is not None else known._replace(qacc=known.damped), *none)
    solved: Solved = _solve_op(damping)(model, state, loads, given, kept)
    found, report = Found(solved.qacc, solved.damped, solved.factor, *solved.ids), solved.found
    return Solution(found, report.residual, report.iterations, report.status | solved.detected)


def _accelerate_fwd(damping: bool, *primals: Any) -> Any:
    (model, state, loads, given, kept, known), wanted = primal_values(primals)
    solution: Solution = _accelerate(damping, model, state, loads, given, kept, known)
    return solution, (model, state, loads, given, needed(model, damping, solution.found), wanted)


def needed(model: Model, damping: bool, found: Found) -> Found:
    """Drop what the backward pass can recompute."""
    return found._replace(
        qacc=None if damping and damped.invertible(model) else found.qacc, damped=found.damped if damping else None
    )


def _accelerate_bwd(damping: bool, saved: Any, cotangent: Solution) -> Any:
    model, state, loads, given, found, wanted = saved
    direction = dense(cotangent.found.damped if damping else cotangent.found.qacc)
    pulled: BackSolved = _back_solve_op(damping)(model, state, loads, given, found, direction)
    qacc, slowed = found.qacc, None
    if pulled.slowed is not None:
        qacc, slowed = pulled.slowed.qacc, damped.Slowed(found.damped, pulled.slowed.trial, pulled.slowed.change)
    fixed = (Ids(found.pair, found.feature), slowed, qacc, pulled.trial)
    wish = flags.load(wanted)[: len(jax.tree.leaves((model, state, loads, given)))]
    grads = power_gradient(_power_op, (model, state, loads, given), fixed, wish, direction)
    return (*grads, None, None)


_accelerate.defvjp(_accelerate_fwd, _accelerate_bwd, symbolic_zeros=True)


def constrained_acceleration(
    model: Model,
    state: State,
    loads: stages.Loads,
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
    kept, status = None if given is None else (given.pair, given.feature), jnp.zeros(state.qpos.shape[0], jnp.uint32)
    if kept is None and known is None and model.structure.sparse and state.max_contacts:  # mix pairs that touch only
        kept, status = near_contacts(model, state)
    pairs = _pairs(model, state, known.pair if known is not None else None if kept is None else kept[0])
    solution: Solution = _accelerate(damping, model, state, loads, Parameters(pairs, bonds(model)), kept, known)
    return solution._replace(status=solution.status | status)


def _pairs(model: Model, state: State, touching: Any = None) -> Pairs:
    """Pairs that may touch: all, or for a sparse model those that do, if they are known, or those near each other."""
    if not model.structure.sparse:
        return mix_pairs(model)
    return mix_pairs(model, near_pairs(model, state)[0] if touching is None else touching)


class Restored(NamedTuple):
    """What :func:`_restore` writes."""

    force: Any  # (world, nv)
    ids: Ids
    status: Any  # (world,)


def _restore(launch: Any, model: Model, state: State, given: Parameters, qacc: Any, out: Restored) -> None:
    """-J^T f at given accelerations."""
    s, t = model.structure, stages.types(state.qpos)
    setting = set_up(launch, model, state, given, None, out.ids, out.status)
    if s.sparse:
        islands.restore(launch, model, state, given, setting, qacc, out.force)
        return
    stiffness = launch.scratch((launch.worlds, topology.packed_size(s.nv)), t.real)
    launch(
        kernels(state.qpos.dtype, "rigid.solve.newton").restoring_forces,
        dim=launch.worlds,
        inputs=[qacc, setting.rows, cones(model, given.pairs, setting)],
        outputs=[out.force, stiffness, working_memory(launch, model, setting)],
    )


def _restore_shapes(model: Model, state: State, given: Parameters, qacc: Any) -> Restored:
    w, shape = qacc.shape[0], jax.ShapeDtypeStruct
    contact = shape((w, state.max_contacts), jnp.int32)
    return Restored(shape(qacc.shape, qacc.dtype), Ids(contact, contact), shape((w,), jnp.uint32))


_restore_op = warp_op(_restore, _restore_shapes, differentiable=False, name="constraint's force")


@custom_vjp
def _require(model: Model, state: State, given: Parameters, qacc: Array) -> Array:
    return required_force(model, state, _NO_LOADS, qacc) + _restore_op(model, state, given, qacc).force


def _require_fwd(*primals: Any) -> Any:
    (model, state, given, qacc), wanted = primal_values(primals)
    restored: Restored = _restore_op(model, state, given, qacc)
    force = required_force(model, state, _NO_LOADS, qacc) + restored.force
    return force, (model, state, given, restored.ids, qacc, wanted)


def _require_bwd(saved: Any, cotangent: Array) -> Any:
    model, state, given, ids, qacc, wanted = saved
    args = (model, state, _NO_LOADS, given, ids, None, qacc, dense(cotangent))
    seeds = jax.tree.map(lambda part: jnp.ones(part.shape, part.dtype), _power_op.outputs(*args))
    flag = iter(flags.load(wanted))
    mask = [[next(flag) for _ in jax.tree.leaves(part)] for part in (model, state, given)]
    wish = [*mask[0], *mask[1], *mask[2], False, False, next(flag), False]
    grads = _power_op.vjp(args, seeds, wish)
    return grads[0], grads[1], grads[3], grads[6]


_require.defvjp(_require_fwd, _require_bwd, symbolic_zeros=True)

_NO_LOADS = stages.Loads(None, None, None)


def constrained_inverse(model: Model, state: State, qacc: Array) -> Array:
    """M a + b - passive - J^T f(a), shape (world, nv); gradients flow to model, state and qacc."""
    return _require(model, state, Parameters(_pairs(model, state), bonds(model)), qacc)
