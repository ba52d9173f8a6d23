"""The integrator's own solve: velocities moved by accelerations that damping has already slowed.

(M + h D) a2 = M a. With l the solution of (M + h D) l = cotangent of a2, the cotangent of a is M l and
that of any other input x is -(dP/dx) of P = l . (M (a2 - a) + h D a2) at fixed a, a2.
"""

from typing import Any

import jax
import jax.numpy as jnp

from ..bridge import warp_op
from ..implicit import dense, flags, power_gradient, primal_values
from ..model import Model, State
from . import articulated as AB
from . import launches as L
from . import tendon as T
from .armature import armature_power, count
from .damping import implicit_matrix, implicit_power, implicit_sizes, lone_inverses, lone_shape, solve_implicit
from .dynamics import mass_matrix_launch

Array = jax.Array


def _mass(launch: Any, model: Model, state: State) -> tuple[tuple[L.Frames, Any], Any]:
    """Poses with the dofs' axes, and M."""
    frames = L.frame_poses(launch, model, state)
    axes = L.dof_axes(launch, model, state, frames)
    mass = launch.scratch((launch.worlds, L.packed_size(model.structure.nv)), L.types(state.qpos).real)
    mass_matrix_launch(launch, model, state, frames, axes, model.dof.armature, mass)
    return (frames, axes), mass


def _factors(
    launch: Any, model: Model, state: State, loads: L.Loads, poses: tuple[L.Frames, Any], mass: Any
) -> tuple[Any, Any]:
    """The factor of M + h D, and the inverses of the blocks that it does not cover."""
    t = L.types(state.qpos)
    damped = implicit_matrix(launch, model, state, loads, *poses, mass)
    factor = launch.scratch(mass.shape, t.real)
    inputs = [model.structure.dof.parent, damped]
    launch(L.modules(state.qpos).dynamics.factor, dim=launch.worlds, inputs=inputs, outputs=[factor])
    inverse = launch.scratch((launch.worlds, lone_shape(model)[0]), t.mat66)
    lone_inverses(launch, model, state, *poses, damped, inverse)
    return factor, inverse


def damp(
    launch: Any, model: Model, state: State, loads: L.Loads, poses: tuple[L.Frames, Any], mass: Any, qacc: Any, out: Any
) -> None:
    """Launch the solve where poses, axes and M are known."""
    factor, inverse = _factors(launch, model, state, loads, poses, mass)
    force = launch.scratch(qacc.shape, L.types(state.qpos).real)
    inputs = [model.structure.dof.parent, mass, qacc]
    launch(L.modules(state.qpos).dynamics.multiply, dim=launch.worlds, inputs=inputs, outputs=[force])
    solve_implicit(launch, model, factor, inverse, force, out)


def damp_sparse(
    launch: Any, model: Model, state: State, frames: L.Frames, mass: AB.Inertias, qacc: Any, out: Any
) -> None:
    """The same where M is applied rather than stored."""
    force = launch.scratch(qacc.shape, L.types(state.qpos).real)
    AB.multiply(launch, model, mass, qacc, force)
    AB.solve(
        launch, model, AB.articulate(launch, model, state, _with_damping(launch, model, state, frames)), force, out
    )


def _with_damping(launch: Any, model: Model, state: State, frames: L.Frames) -> AB.Inertias:
    return AB.inertias(launch, model, state, frames, implicit=True)


def _damp(launch: Any, model: Model, state: State, loads: L.Loads, qacc: Any, out: Any) -> None:
    if model.structure.sparse:
        frames = L.frame_poses(launch, model, state)
        mass = AB.inertias(launch, model, state, frames, implicit=False)
        damp_sparse(launch, model, state, frames, mass, qacc, out)
    else:
        damp(launch, model, state, loads, *_mass(launch, model, state), qacc, out)


def _pull(launch: Any, model: Model, state: State, loads: L.Loads, cotangent: Any, trial: Any, pulled: Any) -> None:
    if model.structure.sparse:
        frames = L.frame_poses(launch, model, state)
        AB.solve(
            launch,
            model,
            AB.articulate(launch, model, state, _with_damping(launch, model, state, frames)),
            cotangent,
            trial,
        )
        AB.multiply(launch, model, AB.inertias(launch, model, state, frames, implicit=False), trial, pulled)
        return
    poses, mass = _mass(launch, model, state)
    factor, inverse = _factors(launch, model, state, loads, poses, mass)
    solve_implicit(launch, model, factor, inverse, cotangent, trial, transposed=True)
    inputs = [model.structure.dof.parent, mass, trial]
    launch(L.modules(state.qpos).dynamics.multiply, dim=launch.worlds, inputs=inputs, outputs=[pulled])


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
    if count(s):
        ten = T.tendons(launch, model, state, frames, axes)
        armature_power(launch, model, ten, None, (change, trial), damping.pop(0))
    velocity, linear = (L.frame_motion(launch, model, state, axes, x) for x in (state.qvel, damped))
    implicit_power(launch, model, state, loads, frames, axes, (velocity, linear, tried), (damped, trial), damping)


def _parts(model: Model, state: State, loads: L.Loads, change: Any, *_: Any) -> tuple[Any, ...]:
    s, worlds = model.structure, change.shape[0]
    sizes = [s.nbody, s.nv, *([count(s)] if count(s) else []), *implicit_sizes(model, loads)]
    return tuple(jax.ShapeDtypeStruct((worlds, n), change.dtype) for n in sizes)


_damp_op = warp_op(_damp, lambda m, s, lo, qacc: qacc, differentiable=False, zeroed=False, name="damping")
_pull_op = warp_op(
    _pull, lambda m, s, lo, cotangent: (cotangent, cotangent), differentiable=False, zeroed=False, name="damping"
)
_power_op = warp_op(_power, _parts, name="damping's power")


@jax.custom_vjp
def damped_acceleration(model: Model, state: State, loads: L.Loads, qacc: Array, known: Array) -> Array:
    """Accelerations after implicit damping, shape (world, nv): (M + h D) a2 = M a.

    Args:
        known: a2, where the solve for a left it by :func:`damp`; without a gradient.

    Returns:
        a2; gradients flow to the other arguments. Where they are taken, a2 is solved for again.
    """
    return known


def _fwd(*primals: Any) -> Any:
    (model, state, loads, qacc, _), wanted = primal_values(primals)
    damped = _damp_op(model, state, loads, qacc)
    return damped, (model, state, loads, qacc, damped, wanted)


def _bwd(saved: Any, cotangent: Any) -> Any:
    model, state, loads, qacc, damped, wanted = saved
    trial, pulled = _pull_op(model, state, loads, dense(cotangent))
    fixed = (damped - qacc, damped, trial)
    grads = power_gradient(_power_op, (model, state, loads), fixed, flags.load(wanted)[:-2], dense(cotangent))
    return (*grads, jnp.where((dense(cotangent) == 0).all(1, keepdims=True), 0, pulled), None)


damped_acceleration.defvjp(_fwd, _bwd, symbolic_zeros=True)
