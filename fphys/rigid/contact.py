"""Contact: constrained acceleration, and its gradient by one linear solve.

Forward: M(q) a + b = tau + J^T f(J a), the minimum of MuJoCo's convex problem, by Newton's method.
Backward: with H the Hessian at the solution and H l = cotangent of a, the cotangent of any input x is
-(dP/dx) of the virtual power P(l) = l . (M a + b - tau - J^T f) at fixed a and fixed contact set. No
iteration and no factorisation is differentiated.

What the gradient leaves out: the jump of the force when a contact is made or broken, changes in the
number of contact points, and the choice of the frame's tangents.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import kernels, warp_op
from ..implicit import Wanted, dense, power_gradient, primal_values
from ..model import Model, State
from ..model.pairs import condim
from . import launches as L
from .collision import Contacts, detect, geom_poses, geometry
from .dynamics import (
    applied_force,
    bias_force,
    body_and_joint_power,
    mass_matrix_launch,
    power_parts,
)

Array = jax.Array
ROWS = 4
"""Rows kept for each contact: the edges of a pyramid."""


class Pairs(NamedTuple):
    """Contact parameters of every geom pair, mixed from the two geoms, each (1 | world, pair, ...)."""

    friction: Any
    solref: Any
    solimp: Any
    margin: Any  # distance at which the constraint acts
    detection: Any  # distance at which a contact is reported


class Solution(NamedTuple):
    """What the operation returns besides what stays private."""

    qacc: Array
    factor: Array
    contacts: Contacts
    force: Array  # normal and tangential forces [N], in each contact's frame, shape (world, contact, 3)
    residual: Array
    iterations: Array
    status: Array


def mix_pairs(model: Model) -> Pairs:
    """Parameters of every pair, as MuJoCo combines those of two geoms. Gradients flow to the geoms'."""
    s, g = model.structure, model.geom
    a, b = s.geom.pair[:, 0], s.geom.pair[:, 1]
    first, second = s.geom.priority[a] > s.geom.priority[b], s.geom.priority[a] < s.geom.priority[b]

    def pick(x: Array, mixed: Array) -> Array:
        shape = (1, -1, *[1] * (x.ndim - 2))
        return jnp.where(first.reshape(shape), x[:, a], jnp.where(second.reshape(shape), x[:, b], mixed))

    total = g.solmix[:, a] + g.solmix[:, b]
    share = jnp.where(total > 1e-15, g.solmix[:, a] / jnp.where(total > 1e-15, total, 1.0), 0.5)[..., None]
    standard = (g.solref[:, a, :1] > 0) & (g.solref[:, b, :1] > 0)
    blend = lambda x: share * x[:, a] + (1.0 - share) * x[:, b]  # noqa: E731
    solref = jnp.where(standard, blend(g.solref), jnp.minimum(g.solref[:, a], g.solref[:, b]))
    margin = g.margin[:, a] + g.margin[:, b]
    return Pairs(
        friction=pick(g.friction, jnp.maximum(g.friction[:, a], g.friction[:, b])),
        solref=pick(g.solref, solref),
        solimp=pick(g.solimp, blend(g.solimp)),
        margin=margin,
        detection=margin + g.gap[:, a] + g.gap[:, b],
    )


def capacity(state: State) -> int:
    return state.max_contacts


def pair_rows(model: Model) -> np.ndarray:
    """Rows of each pair's contacts: one without friction, four with."""
    s = model.structure
    return np.where(condim(s.geom.pair, s.geom.condim, s.geom.priority) > 1, ROWS, 1).astype(np.int32)


def _modules(state: State) -> tuple[Any, Any]:
    constraint, newton = (kernels(state.qpos.dtype, f"rigid.{n}") for n in ("constraint", "newton"))
    return constraint, newton


def _row_arguments(model: Model) -> list[Any]:
    s = model.structure
    return [s.geom.pair, pair_rows(model), s.geom.body, s.body.frame, L.body_origin(model)]


def _parameter_arguments(model: Model, pairs: Pairs) -> list[Any]:
    return [
        model.body.invweight0,
        pairs.friction,
        pairs.solref,
        pairs.solimp,
        pairs.margin,
        model.opt.timestep,
        model.opt.impratio,
    ]


def _solve(launch: Any, model: Model, state: State, loads: L.Loads, pairs: Pairs, given: Any, *outs: Any) -> None:
    """Everything from poses to the constrained acceleration."""
    qacc, factor, pair, feature, row, distance, pos, frame, force, residual, iterations, status, detected = outs
    s = model.structure
    w, n, nc = launch.worlds, s.nv, pair.shape[1]
    k = L.modules(state.qpos)
    t = L.types(state.qpos)
    constrain, solver = _modules(state)
    real = t.real
    frames = L.frame_poses(launch, model, state)
    axes = L.dof_axes(launch, model, state, frames)
    velocity = L.frame_motion(launch, model, state, axes, state.qvel)
    poses = geom_poses(launch, model, state, frames)
    detect(launch, model, state, pairs.detection, pair_rows(model), poses, given, [pair, feature, row, detected])
    geometry(launch, model, state, (pair, feature), poses, [distance, pos, frame])
    jacobian = launch.scratch((w, ROWS * nc, n), real)
    weight, reference = (launch.scratch((w, ROWS * nc), real) for _ in range(2))
    refsafe = int("refsafe" not in s.disabled)
    launch(
        constrain.contact_rows,
        dim=(w, nc),
        inputs=[*_row_arguments(model), L.last_dof(model), s.dof.parent, L.dof_origin(model), refsafe]
        + [*_parameter_arguments(model, pairs), pair, distance, pos, frame, frames.pos, axes, velocity],
        outputs=[jacobian, weight, reference],
    )
    bias, net = launch.scratch((w, n), real), launch.scratch((w, n), real)
    matrix = launch.scratch((w, L.packed_size(n)), real, zeroed=True)
    zero = launch.scratch((w, n), real, zeroed=True)
    bias_force(launch, model, state, frames, axes, L.applied_wrench(launch, model, state, loads), zero, bias)
    launch(k.forces.subtract, dim=(w, n), inputs=[applied_force(launch, model, state, loads), bias], outputs=[net])
    mass_matrix_launch(launch, model, state, frames, axes, model.dof.armature, matrix)
    scratch = [launch.scratch((w, size), real) for size in (n, n, ROWS * nc, ROWS * nc)]
    row_force = launch.scratch((w, ROWS * nc), real)
    launch(
        solver.newton,
        dim=w,
        inputs=[s.iterations, s.ls_iterations, model.opt.tolerance, model.opt.meaninertia]
        + [matrix, net, state.warmstart, jacobian, weight, reference],
        outputs=[qacc, factor, *scratch, row_force, residual, iterations, status],
    )
    launch(
        constrain.contact_forces,
        dim=(w, nc),
        inputs=[pair_rows(model), pairs.friction, pair, row_force],
        outputs=[force],
    )


def _solve_shapes(model: Model, state: State, loads: L.Loads, pairs: Pairs, given: Any) -> tuple[Any, ...]:
    (w, _), real, nv = state.qpos.shape, state.qpos.dtype, model.structure.nv
    nc = capacity(state) if given is None else given[0].shape[1]
    shape = jax.ShapeDtypeStruct
    return (
        shape((w, nv), real),
        shape((w, L.packed_size(nv)), real),
        shape((w, nc), jnp.int32),
        shape((w, nc), jnp.int32),
        shape((w, nc), jnp.int32),
        shape((w, nc), real),
        shape((w, nc, 3), real),
        shape((w, nc, 3, 3), real),
        shape((w, nc, 3), real),
        shape((w,), real),
        shape((w,), jnp.int32),
        shape((w,), jnp.uint32),
        shape((w,), jnp.uint32),
    )


_solve_op = warp_op(_solve, _solve_shapes, differentiable=False, name="contact")


def _contact_power(
    launch: Any, model: Model, state: State, loads: L.Loads, pairs: Pairs, ids: Any, qacc: Any, trial: Any, *outs: Any
) -> None:
    """Virtual power of everything, contact forces last."""
    s = model.structure
    constrain, _ = _modules(state)
    parts = body_and_joint_power(launch, model, state, loads, qacc, trial, outs[:-1], implicit=False)
    nc = ids[0].shape[1]
    t = L.types(state.qpos)
    shapes = [launch.scratch((launch.worlds, nc), kind) for kind in (t.real, t.vec3, t.mat33)]
    geometry(launch, model, state, ids, geom_poses(launch, model, state, parts.frames), shapes)
    launch(
        constrain.contact_power,
        dim=(launch.worlds, nc),
        inputs=[*_row_arguments(model), int("refsafe" not in s.disabled), *_parameter_arguments(model, pairs)]
        + [ids[0], *shapes, parts.frames.pos, parts.velocity, parts.linear, parts.trial],
        outputs=[outs[-1]],
    )


def _contact_parts(model: Model, state: State, loads: L.Loads, pairs: Pairs, ids: Any, *_: Any) -> tuple[Any, ...]:
    nc = jax.ShapeDtypeStruct((state.qpos.shape[0], ids[0].shape[1]), state.qpos.dtype)
    return (*power_parts(model, state, loads, implicit=False), nc)


_power_op = warp_op(_contact_power, _contact_parts, name="contact's power")


def _back_solve(launch: Any, factor: Any, cotangent: Any, out: Any) -> None:
    launch(
        kernels(cotangent.dtype, "rigid.newton").solve_dense,
        dim=launch.worlds,
        inputs=[factor, cotangent],
        outputs=[out],
    )


_back_solve_op = warp_op(
    _back_solve, lambda factor, cotangent: cotangent, differentiable=False, zeroed=False, name="solve"
)


def _solution(model: Model, state: State, loads: L.Loads, pairs: Pairs, given: Any) -> Solution:
    qacc, factor, pair, feature, _, distance, pos, frame, force, residual, iterations, status, detected = _solve_op(
        model, state, loads, pairs, given
    )
    contacts = Contacts(pair, feature, distance, pos, frame)
    return Solution(qacc, factor, contacts, force, residual, iterations, status | detected)


@jax.custom_vjp
def _accelerate(model: Model, state: State, loads: L.Loads, pairs: Pairs, given: Any) -> Solution:
    return _solution(model, state, loads, pairs, given)


def _accelerate_fwd(*primals: Any) -> Any:
    (model, state, loads, pairs, given), wanted = primal_values(primals)
    solution = _solution(model, state, loads, pairs, given)
    ids = (solution.contacts.pair, solution.contacts.feature)
    return solution, (model, state, loads, pairs, given, ids, solution.qacc, solution.factor, wanted)


def _accelerate_bwd(saved: Any, cotangent: Solution) -> Any:
    model, state, loads, pairs, given, ids, qacc, factor, wanted = saved
    trial = _back_solve_op(factor, dense(cotangent.qacc))
    count = len(jax.tree.leaves((model, state, loads, pairs)))
    grads = power_gradient(_power_op, (model, state, loads, pairs), (ids, qacc, trial), Wanted(wanted.flags[:count]))
    return (*grads, jax.tree.map(lambda _: None, given))


_accelerate.defvjp(_accelerate_fwd, _accelerate_bwd, symbolic_zeros=True)


def constrained_acceleration(model: Model, state: State, loads: L.Loads, given: Contacts | None = None) -> Solution:
    """Accelerations with contact, and the contact set.

    Args:
        given: a contact set to use instead of detecting one.

    Returns:
        Solution; gradients flow from ``qacc`` alone, to model, state and loads.
    """
    ids = None if given is None else (given.pair, given.feature)
    return _accelerate(model, state, loads, mix_pairs(model), ids)
