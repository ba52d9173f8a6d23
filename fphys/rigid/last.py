"""What MuJoCo's ``mjData`` holds after ``mj_step``: quantities of the step's last solve, before the new state.

``mj_step`` integrates last, so ``data.xpos``, ``data.cvel`` and the forces belong to the state at which it computed
accelerations last: the state before the step for Euler, the fourth stage for RK4. Rewards and observations of
Gymnasium's and dm_control's tasks are made of these. Every function takes the model and a :class:`LastSolve`. Spatial
vectors are (angular, linear) about the centre of mass of the body's tree, in world axes, as MuJoCo's.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..math import einsum, matmul, quat_mul, quat_unit, rotate, rotation
from ..model import Model, State
from .collide.collision import Contacts
from .collide.collision import contacts as contact_geometry
from .collide.pairs import geoms_of
from .forces.actuation import actuator_force, generalized_force, transmissions
from .forward import forward
from .inverse import smooth_inverse
from .solve.contact import contact_forces
from .solve.noslip import grips
from .tree.kinematics import motions

Array = jax.Array


class LastSolve(NamedTuple):
    """Where a step's last solve was made, and what it found."""

    state: State
    qacc: Array | None  # (world, nv); None if the integrator damps: the forces are those of the undamped accelerations
    contacts: Contacts | None  # which geoms touch, without the geometry; None if nothing can


class TreeInertias(NamedTuple):
    """Bodies about the centre of mass of their tree, world axes."""

    centre: Array  # of each body's tree [m], (world, body, 3)
    cinert: Array  # Ixx Iyy Izz Ixy Ixz Iyz [kg m^2], m times the offset [kg m], m [kg], (world, body, 10)
    cvel: Array  # angular, then linear velocity [rad/s, m/s], (world, body, 6)


def unsolved(state: State) -> LastSolve:
    """The quantities at a state itself, as after ``mj_forward``. No contact has acted yet: ``cfrc_ext`` is zero."""
    return LastSolve(state, None, None)


def inertial_positions(model: Model, last: LastSolve) -> Array:
    """Centres of mass of the bodies [m], shape (world, body, 3): ``xipos``."""
    m = motions(model, last.state)
    return m.pos + rotate(m.quat, jnp.broadcast_to(model.body.ipos, m.pos.shape))


def _tree_centres(model: Model, inertial: Array) -> Array:
    """Centre of mass of the tree that each body belongs to, shape (world, body, 3). The world's is that of all."""
    root, mass = model.structure.body.root, model.body.mass[..., None]
    tree = jnp.asarray(root[:, None] == root[None], mass.dtype).at[0].set(1)
    weight = tree[None] * model.body.mass[:, None]
    return matmul(weight, inertial) / jnp.maximum(weight.sum(-1, keepdims=True), 1e-15)


def tree_inertias(model: Model, last: LastSolve) -> TreeInertias:
    """``cinert``, ``cvel`` and the point that they are about. Gradients flow to state, masses and geometry."""
    m = motions(model, last.state)
    arm = rotate(m.quat, jnp.broadcast_to(model.body.ipos, m.pos.shape))
    centre = _tree_centres(model, m.pos + arm)
    turn = rotation(quat_mul(m.quat, jnp.broadcast_to(quat_unit(model.body.iquat), m.quat.shape)))
    offset, mass = m.pos + arm - centre, model.body.mass
    inertia = einsum("wbij,wbj,wbkj->wbik", turn, jnp.broadcast_to(model.body.inertia, offset.shape), turn)
    square = (offset**2).sum(-1)[..., None, None] * jnp.eye(3, dtype=offset.dtype)[None, None]
    inertia = inertia + mass[..., None, None] * (square - offset[..., :, None] * offset[..., None, :])
    six = inertia[..., (0, 1, 2, 0, 0, 1), (0, 1, 2, 1, 2, 2)]
    moment = mass[..., None] * offset
    cinert = jnp.concatenate([six, moment, jnp.broadcast_to(mass, moment.shape[:2])[..., None]], -1)
    angular, linear = m.velocity[..., :3], m.velocity[..., 3:]
    linear = linear + jnp.cross(angular, centre - m.origin)
    return TreeInertias(centre, cinert.at[:, 0].set(0), jnp.concatenate([angular, linear], -1))


class Drives(NamedTuple):
    """Actuators and tendons."""

    qfrc_actuator: Array  # generalised force of the actuators [N or N m], (world, nv)
    ten_length: Array  # (world, tendon) [m or rad]
    ten_velocity: Array  # (world, tendon)


def drives(model: Model, last: LastSolve, ctrl: Array) -> Drives:
    """``qfrc_actuator`` [N or N m], ``ten_length`` [m or rad] and ``ten_velocity``, shapes as in :class:`Drives`.

    Gradients flow to model, ``last.state`` and ctrl.
    """
    t, state = transmissions(model, last.state), last.state
    force = generalized_force(model, state, t.moment, actuator_force(model, state, ctrl))
    return Drives(force, t.tendon_length, einsum("wij,wj->wi", t.tendon_jacobian, state.qvel))


def constraint_generalized(model: Model, last: LastSolve, ctrl: Array) -> Array:
    """Generalised force of all constraints [N or N m], shape (world, nv): ``qfrc_constraint``.

    Gradients flow to model, ``last.state`` and ctrl.
    """
    qacc = _solution(model, last, ctrl)
    return smooth_inverse(model, last.state, qacc) - drives(model, last, ctrl).qfrc_actuator


def contact_wrenches(model: Model, last: LastSolve, ctrl: Array) -> Array:
    """Torque [N m] and force [N] of the contacts on every body: ``cfrc_ext``, shape (world, body, 6).

    Without applied wrenches and without equality constraints, which MuJoCo adds. The world body's is zero. Gradients
    flow at a frozen contact set, as in :func:`fphys.forward`.
    """
    state, geom = last.state, model.structure.geom
    if last.contacts is None:
        return jnp.zeros((state.qpos.shape[0], model.structure.nbody, 6), state.qpos.dtype)
    touching = contact_geometry(model, state, last.contacts)
    parts = _contact_forces(model, last, ctrl, touching)
    there = (touching.pair >= 0)[..., None]
    force, torque = (
        jnp.where(there, einsum("wcij,wci->wcj", touching.frame, part), 0) for part in (parts[..., :3], parts[..., 3:])
    )
    body = jnp.asarray(geom.body)[geoms_of(model.structure, touching.pair)]
    each = jnp.arange(model.structure.nbody, dtype=jnp.int32)[None, None]
    sign = (body[..., 1:] == each).astype(force.dtype) - (body[..., :1] == each).astype(force.dtype)
    centre = _tree_centres(model, inertial_positions(model, last))
    moment = torque + jnp.cross(jnp.where(there, touching.pos, 0), force)
    total = einsum("wcb,wcx->wbx", sign, jnp.concatenate([moment, force], -1))
    turn = total[..., :3] - jnp.cross(centre, total[..., 3:])
    return jnp.concatenate([turn, total[..., 3:]], -1).at[:, 0].set(0)


def _contact_forces(model: Model, last: LastSolve, ctrl: Array, touching: Contacts) -> Array:
    """Forces of the contacts in their frames; those after a no-slip pass do not follow from accelerations."""
    if grips(model):
        return forward(model, last.state, ctrl, contacts=last.contacts)[1].force
    return contact_forces(model, last.state, touching, _solution(model, last, ctrl))


def _solution(model: Model, last: LastSolve, ctrl: Array) -> Array:
    """The accelerations of the last solve. Those of a damped step are solved for again, for the sake of gradients."""
    if last.qacc is not None:
        return last.qacc
    return forward(model, last.state, ctrl, contacts=last.contacts)[0]
