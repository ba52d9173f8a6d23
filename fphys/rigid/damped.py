"""The integrator's own solve: velocities moved by accelerations that damping has already slowed.

(M + h D) a2 = M a. With l the solution of (M + h D) l = cotangent of a2, the cotangent of a is M l and
that of any other input x is -(dP/dx) of P = l . (M (a2 - a) + h D a2) at fixed a, a2.
"""

from typing import Any

import jax
import jax.numpy as jnp

from ..bridge import warp_op
from ..implicit import Wanted, dense, power_gradient, primal_values
from ..model import Model, State
from . import launches as L
from .damping import implicit_matrix, implicit_power, implicit_sizes, lone_inverses, lone_shape, solve_implicit
from .dynamics import mass_matrix_launch

Array = jax.Array


def _matrices(launch: Any, model: Model, state: State, loads: L.Loads) -> tuple[Any, Any, Any]:
    """M, the factor of M + h D, and the inverses of the blocks that it does not cover."""
    s = model.structure
    k = L.modules(state.qpos)
    t = L.types(state.qpos)
    size = (launch.worlds, L.packed_size(s.nv))
    frames = L.frame_poses(launch, model, state)
    axes = L.dof_axes(launch, model, state, frames)
    mass, factor = (launch.scratch(size, t.real) for _ in range(2))
    mass_matrix_launch(launch, model, state, frames, axes, model.dof.armature, mass)
    damped = implicit_matrix(launch, model, state, loads, frames, axes, mass)
    launch(k.dynamics.factor, dim=launch.worlds, inputs=[s.dof.parent, damped], outputs=[factor])
    inverse = launch.scratch((launch.worlds, lone_shape(model)[0]), L.types(state.qpos).mat66)
    lone_inverses(launch, model, state, frames, axes, damped, inverse)
    return mass, factor, inverse


def _damp(launch: Any, model: Model, state: State, loads: L.Loads, qacc: Any, out: Any) -> None:
    k = L.modules(state.qpos)
    t = L.types(state.qpos)
    parent = model.structure.dof.parent
    mass, factor, inverse = _matrices(launch, model, state, loads)
    force = launch.scratch((launch.worlds, model.structure.nv), t.real)
    launch(k.dynamics.multiply, dim=launch.worlds, inputs=[parent, mass, qacc], outputs=[force])
    solve_implicit(launch, model, factor, inverse, force, out)


def _pull(launch: Any, model: Model, state: State, loads: L.Loads, cotangent: Any, trial: Any, pulled: Any) -> None:
    k = L.modules(state.qpos)
    parent = model.structure.dof.parent
    mass, factor, inverse = _matrices(launch, model, state, loads)
    solve_implicit(launch, model, factor, inverse, cotangent, trial, transposed=True)
    launch(k.dynamics.multiply, dim=launch.worlds, inputs=[parent, mass, trial], outputs=[pulled])


def _power(
    launch: Any, model: Model, state: State, loads: L.Loads, change: Any, damped: Any, trial: Any, *outs: Any
) -> None:
    s = model.structure
    k = L.modules(state.qpos)
    bodies, dofs, *damping = outs
    frames = L.frame_poses(launch, model, state)
    axes = L.dof_axes(launch, model, state, frames)
    moved, tried = (L.frame_motion(launch, model, state, axes, x) for x in (change, trial))
    dim = (launch.worlds, s.nbody)
    launch(
        k.dynamics.body_inertia_power,
        dim=dim,
        inputs=[*L.body_arguments(model), *frames, moved, tried],
        outputs=[bodies],
    )
    dim = (launch.worlds, s.nv)
    launch(k.forces.dof_product, dim=dim, inputs=[model.dof.armature, change, trial], outputs=[dofs])
    velocity, linear = (L.frame_motion(launch, model, state, axes, x) for x in (state.qvel, damped))
    implicit_power(launch, model, state, loads, frames, axes, (velocity, linear, tried), (damped, trial), damping)


def _parts(model: Model, state: State, loads: L.Loads, change: Any, *_: Any) -> tuple[Any, ...]:
    s, worlds = model.structure, change.shape[0]
    sizes = [s.nbody, s.nv, *implicit_sizes(model, loads)]
    return tuple(jax.ShapeDtypeStruct((worlds, n), change.dtype) for n in sizes)


_damp_op = warp_op(_damp, lambda m, s, lo, qacc: qacc, differentiable=False, zeroed=False, name="damping")
_pull_op = warp_op(
    _pull, lambda m, s, lo, cotangent: (cotangent, cotangent), differentiable=False, zeroed=False, name="damping"
)
_power_op = warp_op(_power, _parts, name="damping's power")


@jax.custom_vjp
def damped_acceleration(model: Model, state: State, loads: L.Loads, qacc: Array) -> Array:
    """Accelerations after implicit damping, shape (world, nv): (M + h D) a2 = M a. All arguments get gradients."""
    return _damp_op(model, state, loads, qacc)


def _fwd(*primals: Any) -> Any:
    (model, state, loads, qacc), wanted = primal_values(primals)
    damped = _damp_op(model, state, loads, qacc)
    return damped, (model, state, loads, qacc, damped, wanted)


def _bwd(saved: Any, cotangent: Any) -> Any:
    model, state, loads, qacc, damped, wanted = saved
    trial, pulled = _pull_op(model, state, loads, dense(cotangent))
    fixed = (damped - qacc, damped, trial)
    grads = power_gradient(_power_op, (model, state, loads), fixed, Wanted(wanted.flags[:-1]), dense(cotangent))
    return (*grads, jnp.where((dense(cotangent) == 0).all(1, keepdims=True), 0, pulled))


damped_acceleration.defvjp(_fwd, _bwd, symbolic_zeros=True)
