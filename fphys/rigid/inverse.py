"""Inverse dynamics, mass matrix, bias force and energy."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import custom_vjp, kernels, warp_op, worldwise
from ..model import Model, State
from ..model.arguments import expect, expect_array
from . import stages, team
from .dynamics import packed_matrix, power_operation, required_force
from .forces import tendon
from .forces.armature import armature_power, count
from .solve.constraint import constrained, constrained_inverse

Array = jax.Array

NO_LOADS = stages.Loads(None, None, None)


@worldwise
def inverse(model: Model, state: State, qacc: Array) -> Array:
    """The generalised force that produces given accelerations: M a + b - passive, as MuJoCo's ``mj_inverse``.

    It equals the sum of actuator, applied and projected external forces of the forward problem: the forces of
    constraints, contacts included, are subtracted.

    Args:
        qacc: shape (world, nv) [m/s^2 or rad/s^2].

    Returns:
        Force [N or N m], shape (world, nv). Gradients flow to every continuous leaf of the model, to
        state and qacc, at a frozen contact set.
    """
    expect(model, state)
    expect_array("qacc", qacc, state.qvel.shape, "nv")
    return _inverse(model, state, qacc)


@jax.jit
def _inverse(model: Model, state: State, qacc: Array) -> Array:
    return constrained_inverse(model, state, qacc) if constrained(model, state) else smooth_inverse(model, state, qacc)


@worldwise
def bias(model: Model, state: State) -> Array:
    """Coriolis, centrifugal and gravitational force b(q, v) [N or N m], shape (world, nv): MuJoCo's ``qfrc_bias``.

    Gradients flow to the bodies' and joints' geometry, masses, inertias, gravity and state.
    """
    expect(model, state)
    return _bias(model, state)


@jax.jit
def _bias(model: Model, state: State) -> Array:
    none = jnp.zeros_like
    opt = model.opt.replace(density=none(model.opt.density), viscosity=none(model.opt.viscosity))
    bare = dataclasses.replace(
        model,
        opt=opt,
        body=model.body.replace(gravcomp=none(model.body.gravcomp)),
        joint=model.joint.replace(stiffness=none(model.joint.stiffness)),
        dof=model.dof.replace(damping=none(model.dof.damping)),
        tendon=model.tendon.replace(stiffness=none(model.tendon.stiffness), damping=none(model.tendon.damping)),
    )
    return smooth_inverse(bare, state, none(state.qvel))


@custom_vjp
def smooth_inverse(model: Model, state: State, qacc: Array) -> Array:
    """:func:`inverse` without constraints: M a + b - passive."""
    return required_force(model, state, NO_LOADS, qacc)


def _inverse_bwd(saved: Any, trial: Array) -> Any:
    model, state, qacc = saved
    power = power_operation(implicit=False)
    args = (model, state, NO_LOADS, qacc, trial)
    seeds = jax.tree.map(lambda part: jnp.ones(part.shape, part.dtype), power.outputs(*args))
    grads = power.vjp(args, seeds)
    return grads[0], grads[1], grads[3]


smooth_inverse.defvjp(lambda *args: (smooth_inverse(*args), args), _inverse_bwd)


@worldwise
def mass_matrix(model: Model, state: State) -> Array:
    """The mass matrix M(q) [kg, kg m or kg m^2], armature included, shape (world, nv, nv).

    Gradients flow to qpos, masses, inertias, armature and geometry.
    """
    expect(model, state)
    return _compiled_mass_matrix(model, state)


@custom_vjp
def _mass_matrix(model: Model, state: State) -> Array:
    nv = model.structure.nv
    packed = packed_matrix(model, state)
    i, j = np.tril_indices(nv)
    full = jnp.zeros((packed.shape[0], nv, nv), packed.dtype).at[:, i, j].set(packed)
    return full.at[:, j, i].set(packed)


def _mass_matrix_bwd(saved: Any, cotangent: Array) -> Any:
    """Sum over columns of (cotangent column) . M e_j."""
    model, state = saved
    worlds, nv = state.qvel.shape
    basis = jnp.broadcast_to(jnp.eye(nv, dtype=cotangent.dtype)[:, None], (nv, worlds, nv))

    def pairing(model: Model, state: State) -> Array:
        each = jax.vmap(lambda rate, trial: inertia_power(model, state, rate, trial).sum())
        return each(basis, jnp.moveaxis(cotangent, 2, 0)).sum()

    return jax.grad(pairing, (0, 1), allow_int=True)(model, state)


_mass_matrix.defvjp(lambda *args: (_mass_matrix(*args), args), _mass_matrix_bwd)
_compiled_mass_matrix = jax.jit(_mass_matrix)


class InertiaPower(NamedTuple):
    """Parts of trial . M rate."""

    body: Any
    dof: Any
    tendon: Any  # None if no tendon has armature


def _pair(launch: Any, model: Model, state: State, rate: Any, trial: Any, out: InertiaPower) -> None:
    s = model.structure
    k = stages.modules(state.qpos)
    frames = stages.frame_poses(launch, model, state)
    axes = stages.dof_axes(launch, model, frames)
    motions = [stages.frame_motion(launch, model, axes, x) for x in (rate, trial)]
    lanes = team.lanes(launch, s.nbody)
    launch(
        k.dynamics.body_inertia_power,
        dim=(launch.worlds, lanes),
        inputs=[lanes, stages.masses(model), frames, *motions],
        outputs=[out.body],
    )
    launch(k.forces.dof_product, dim=out.dof.shape, inputs=[model.dof.armature, rate, trial], outputs=[out.dof])
    if out.tendon is not None:
        ten = tendon.tendons(launch, model, state, frames, axes)
        armature_power(launch, model, ten, None, stages.Rates(rate, trial), out.tendon)


def _pair_shapes(model: Model, state: State, rate: Any, trial: Any) -> InertiaPower:
    s, w = model.structure, rate.shape[0]
    body, dof, tendon = (jax.ShapeDtypeStruct((w, n), rate.dtype) for n in (s.nbody, s.nv, count(s)))
    return InertiaPower(body, dof, tendon if count(s) else None)


_pairing = warp_op(_pair, _pair_shapes, name="inertia's power")


def inertia_power(model: Model, state: State, rate: Array, trial: Array) -> Array:
    """trial . M rate of every world, shape (world,); all arguments get gradients."""
    return functools.reduce(jnp.add, [part.sum(1) for part in jax.tree.leaves(_pairing(model, state, rate, trial))])


class PotentialEnergy(NamedTuple):
    """Potential energy of each body, joint and tendon; None where there is none."""

    body: Any
    joint: Any
    tendon: Any


def _potential(launch: Any, model: Model, state: State, out: PotentialEnergy) -> None:
    s = model.structure
    k = kernels(state.qpos.dtype, "rigid.tree.energy")
    frames = stages.frame_poses(launch, model, state)
    launch(
        k.gravity_energy,
        dim=out.body.shape,
        inputs=[s.body.frame, model.body.ipos, model.body.mass, stages.gravity(launch, model, state), *frames],
        outputs=[out.body],
    )
    if out.joint is not None:
        launch(
            k.joint_energy,
            dim=out.joint.shape,
            inputs=[s.joint.type, s.joint.qpos, model.joint.stiffness, model.qpos_spring, state.qpos],
            outputs=[out.joint],
        )
    if out.tendon is not None:
        length = tendon.lengths(launch, model, state, frames)
        launch(
            k.tendon_energy,
            dim=out.tendon.shape,
            inputs=[model.tendon.stiffness, model.tendon.lengthspring, length],
            outputs=[out.tendon],
        )


def _potential_shapes(model: Model, state: State) -> PotentialEnergy:
    s, springs = model.structure, "spring" not in model.structure.disabled
    return PotentialEnergy(*(stages.part(state, n) for n in (s.nbody, s.njnt * springs, s.ntendon * springs)))


_potential_parts = warp_op(_potential, _potential_shapes, name="energy")


@worldwise
def energy(model: Model, state: State) -> tuple[Array, Array]:
    """Potential energy of gravity and springs, and kinetic energy v . M v / 2 [J], each of shape (world,).

    MuJoCo's ``d.energy``. Gradients flow to masses, inertias, stiffness, geometry, gravity and state.
    """
    expect(model, state)
    return _energy(model, state)


@jax.jit
def _energy(model: Model, state: State) -> tuple[Array, Array]:
    potential = functools.reduce(jnp.add, [part.sum(1) for part in jax.tree.leaves(_potential_parts(model, state))])
    return potential, 0.5 * inertia_power(model, state, state.qvel, state.qvel)
