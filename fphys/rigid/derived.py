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
from ..model.model import DERIVED_SOURCES, derive_by
from ..model.sound import screen_model
from ..model.structure import JointType
from .inverse import mass_matrix
from .kinematics import ancestry, motions

Array = jax.Array


@derive_by
def recompute(model: Model) -> Model:
    """The model with its derived constants recomputed from the rest; gradients flow through.

    Sets ``body.invweight0`` (mean diagonal of J M^-1 J^T at the centre of mass, translation and
    rotation), ``dof.invweight0`` (diagonal of M^-1, averaged over each joint's translations and
    rotations) and ``opt.meaninertia`` (mean diagonal of M), all at ``qpos0``.
    """
    s, given = model.structure, model
    if s.nv == 0:
        return model
    model, _ = screen_model(model)
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
    body = dataclasses.replace(given.body, invweight0=jnp.stack(weights, -1))
    invweight0 = jnp.where(sliding[s.dof.body], light[:, s.dof.body], diagonal)
    dof = dataclasses.replace(given.dof, invweight0=invweight0)
    opt = dataclasses.replace(given.opt, meaninertia=jnp.einsum("wii->w", mass) / s.nv)
    return dataclasses.replace(given, body=body, dof=dof, opt=opt)


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
