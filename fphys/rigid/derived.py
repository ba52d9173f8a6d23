"""Constants that follow from others: inverse weights and mean inertia at the reference position.

MuJoCo's ``mj_setConst``, differentiable: a ball at rest on a plane must not accelerate when its mass
changes, and does if the inverse weights that regularise its contact stay behind.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from ..math import rotate
from ..model import Model, State, init
from ..model.model import DERIVED_SOURCES, Equality, Tendon, derive_by
from ..model.structure import CONNECT, JointType
from .inverse import mass_matrix
from .kinematics import Motions, ancestry, motions

Array = jax.Array


@derive_by
def recompute(model: Model) -> Model:
    """The model with its derived constants recomputed from the rest; gradients flow through.

    Sets ``body.invweight0`` (mean diagonal of J M^-1 J^T at the centre of mass, translation and
    rotation), ``dof.invweight0`` (diagonal of M^-1, averaged over each joint's translations and
    rotations), ``tendon.length0``, ``tendon.invweight0``, ``opt.meaninertia`` (mean diagonal of M) and the
    second anchor of connected bodies, all at ``qpos0``.
    """
    s = model.structure
    if s.nv == 0:
        return model
    state = _reference(model)
    m = motions(model, state)
    mass = mass_matrix(model, state)
    inverse = jnp.linalg.inv(mass)
    com = m.pos + rotate(m.quat, jnp.broadcast_to(model.body.ipos, m.pos.shape))
    angular, linear = m.axes[:, None, :, :3], m.axes[:, None, :, 3:]
    linear = linear + jnp.cross(
        jnp.broadcast_to(angular, (*com.shape[:2], *angular.shape[2:])), (com - m.origin)[:, :, None]
    )
    moved = jnp.asarray(ancestry(model), mass.dtype)[None, :, :, None]
    weights = [
        jnp.einsum("wbik,wij,wbjk->wb", jac, inverse, jac) / 3.0
        for jac in (linear * moved, jnp.broadcast_to(angular, linear.shape) * moved)
    ]
    groups = jnp.asarray(_averaging(model), mass.dtype)
    diagonal = jnp.einsum("ij,wjj->wi", groups, inverse)
    # MuJoCo takes 1 / mass, without armature, for bodies that only slide along their own axes
    sliding = np.asarray(s.source.body_simple) == 2
    light = 1.0 / jnp.where(sliding, model.body.mass, 1.0)
    light = jnp.broadcast_to(light, weights[0].shape)
    weights = [jnp.where(sliding, light, weights[0]), jnp.where(sliding, 0.0, weights[1])]
    body = dataclasses.replace(model.body, invweight0=jnp.stack(weights, -1))
    invweight0 = jnp.where(sliding[s.dof.body], light[:, s.dof.body], diagonal)
    dof = dataclasses.replace(model.dof, invweight0=invweight0)
    opt = dataclasses.replace(model.opt, meaninertia=jnp.einsum("wii->w", mass) / s.nv)
    tendon, equality = _tendons(model, inverse), _connections(model, m)
    return dataclasses.replace(model, body=body, dof=dof, tendon=tendon, equality=equality, opt=opt)


def _connections(model: Model, m: Motions) -> Equality:
    """Equalities whose connected points coincide at the reference position: the second anchor follows the first."""
    e, data = model.structure.equality, model.equality.data
    which = np.flatnonzero((e.type == CONNECT) & (e.site == 0))
    if not which.size:
        return model.equality
    (first, second), index = e.object[which].T, e.index[which]
    point = m.pos[:, first] + rotate(m.quat[:, first], jnp.broadcast_to(data[:, index, :3], m.pos[:, first].shape))
    back = m.quat[:, second] * jnp.array([[[1.0, -1.0, -1.0, -1.0]]], data.dtype)
    anchor = rotate(back, point - m.pos[:, second])
    data = jnp.broadcast_to(data, (max(len(data), len(anchor)), *data.shape[1:]))
    return model.equality.replace(data=data.at[:, index, 3:6].set(anchor))


def _tendons(model: Model, inverse: Array) -> Tendon:
    """Tendons with their length and their inverse inertia J M^-1 J^T at the reference position."""
    s, coef = model.structure, model.tendon.coef
    owner = np.repeat(np.arange(s.ntendon), np.diff(s.tendon.adr))
    qpos0 = model.qpos0[:, s.joint.qpos[s.tendon.joint]]
    worlds = max(len(coef), len(qpos0))
    moment = jnp.zeros((len(coef), s.ntendon, s.nv), coef.dtype).at[:, owner, s.joint.dof[s.tendon.joint]].add(coef)
    length0 = jnp.zeros((worlds, s.ntendon), coef.dtype).at[:, owner].add(coef * qpos0)
    return model.tendon.replace(length0=length0, invweight0=jnp.einsum("wti,wij,wtj->wt", moment, inverse, moment))


def _averaging(model: Model) -> np.ndarray:
    """The matrix that averages over the translations and over the rotations of each joint, shape (nv, nv)."""
    out = np.eye(model.structure.nv)
    for joint, start in zip(model.structure.joint.type, model.structure.joint.dof, strict=True):
        blocks = {JointType.FREE: (start, start + 3), JointType.BALL: (start,)}.get(JointType(int(joint)), ())
        for first in blocks:
            out[first : first + 3, first : first + 3] = 1.0 / 3.0
    return out


def _reference(model: Model) -> State:
    """The reference position, in as many worlds as the model has."""
    worlds = max(
        getattr(getattr(model, p.split(".")[0]), p.split(".")[1]).shape[0] for p in DERIVED_SOURCES if "." in p
    )
    return init(model, max(worlds, model.qpos0.shape[0]))
