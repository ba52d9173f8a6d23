"""Constants derived from others: inverse weights and mean inertia at the reference position.

MuJoCo's ``mj_setConst``, differentiable: a ball at rest on a plane must not accelerate when its mass
changes, but it does if the inverse weights that regularise its contact are not updated.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from ..math import einsum, rotate
from ..model import Model, State, init
from ..model.model import derive_by, world_counts
from ..model.sound import as_loaded, screen_model
from ..model.structure import CONNECT, JointType
from .forces import ellipsoid
from .forces.actuation import Transmissions, transmissions
from .inverse import mass_matrix
from .tree.kinematics import Motions, ancestry, motions

Array = jax.Array


@derive_by
def recompute(model: Model) -> Model:
    """The model with its derived constants recomputed from the rest; gradients flow through.

    Sets ``body.invweight0`` (mean diagonal of J M^-1 J^T at the centre of mass, translation and
    rotation), ``dof.invweight0`` (diagonal of M^-1, averaged over each joint's translations and
    rotations), ``tendon.length0``, ``tendon.invweight0``, muscles' ``actuator.acc0``, ``opt.meaninertia`` (mean
    diagonal of M) and the second anchor of connected bodies, all at ``qpos0``; ``tendon.lengthspring`` at
    ``qpos_spring`` where ``tendon.follows``; and what ellipsoids carry of the medium, in ``geom.fluid``.
    ``Model.replace`` then puts back what it was given of these.
    """
    if model.structure.nv == 0:
        return model
    groups = {name: dataclasses.replace(getattr(model, name), **leaves) for name, leaves in _derived(model).items()}
    return dataclasses.replace(model, **groups)


@jax.jit  # eagerly, it would compile some sixty programs
def _derived(model: Model) -> dict[str, dict[str, Array]]:
    """What :func:`recompute` sets, by group and leaf."""
    s = model.structure
    model, unsound = screen_model(model)
    model = as_loaded(model, unsound)
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
        einsum("wbik,wij,wbjk->wb", jac, inverse, jac) / 3.0
        for jac in (linear * moved, jnp.broadcast_to(angular, linear.shape) * moved)
    ]
    groups = jnp.asarray(_averaging(model), mass.dtype)
    diagonal = einsum("ij,wjj->wi", groups, inverse)
    # MuJoCo takes 1 / mass, without armature, for bodies that only slide along their own axes
    sliding = np.asarray(s.source.body_simple) == 2
    light = 1.0 / jnp.where(sliding, model.body.mass, 1.0)
    light = jnp.broadcast_to(light, weights[0].shape)
    weights = [jnp.where(sliding, light, weights[0]), jnp.where(sliding, 0.0, weights[1])]
    mean = jnp.where(unsound, jnp.nan, einsum("wii->w", mass) / s.nv)  # NaN: the step must find these worlds too
    found = {
        "body": {"invweight0": jnp.stack(weights, -1)},
        "dof": {"invweight0": jnp.where(sliding[s.dof.body], light[:, s.dof.body], diagonal)},
        "opt": {"meaninertia": mean},
        "equality": _connections(model, m),
    }
    if ellipsoid.count(s):
        found |= {"geom": {"fluid": ellipsoid.derived_fluid(model)}}
    if s.ntendon or s.muscles.any():
        moved = transmissions(model, state)
        found |= {"actuator": _muscles(model, moved, inverse), "tendon": _tendons(model, moved, inverse)}
    return found


def _connections(model: Model, m: Motions) -> dict[str, Array]:
    """Connected points coincide at the reference position: the second anchor follows the first."""
    e, data = model.structure.equality, model.equality.data
    which = np.flatnonzero((e.type == CONNECT) & (e.site == 0))
    if not which.size:
        return {}
    (first, second), index = e.object[which].T, e.index[which]
    point = m.pos[:, first] + rotate(m.quat[:, first], jnp.broadcast_to(data[:, index, :3], m.pos[:, first].shape))
    back = m.quat[:, second] * jnp.array([[[1.0, -1.0, -1.0, -1.0]]], data.dtype)
    anchor = rotate(back, point - m.pos[:, second])
    data = jnp.broadcast_to(data, (max(len(data), len(anchor)), *data.shape[1:]))
    return {"data": data.at[:, index, 3:6].set(anchor)}


def _tendons(model: Model, moved: Transmissions, inverse: Array) -> dict[str, Array]:
    """Tendons' length and inverse inertia J M^-1 J^T at the reference position, and the rest lengths that follow."""
    jacobian = moved.tendon_jacobian
    found = {"length0": moved.tendon_length}
    found["invweight0"] = einsum("wti,wij,wtj->wt", jacobian, inverse, jacobian)
    rest = _reference(model)
    rest = rest.replace(qpos=jnp.broadcast_to(model.qpos_spring, rest.qpos.shape))
    length = transmissions(model, rest).tendon_length[..., None]
    found["lengthspring"] = jnp.where(model.tendon.follows[..., None] > 0, length, model.tendon.lengthspring)
    return found


def _muscles(model: Model, moved: Transmissions, inverse: Array) -> dict[str, Array]:
    """The acceleration |M^-1 moment| caused by a unit force, which scales muscles."""
    muscle = model.structure.muscles
    if not muscle.any():
        return {}
    acc = einsum("wij,wuj->wui", inverse, moved.moment[:, muscle])
    square = (acc * acc).sum(-1)
    acc0 = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)
    shape = (max(model.actuator.acc0.shape[0], acc0.shape[0]), *model.actuator.acc0.shape[1:])
    return {"acc0": jnp.broadcast_to(model.actuator.acc0, shape).at[:, muscle].set(acc0)}


def _averaging(model: Model) -> np.ndarray:
    """The matrix that averages over the translations and over the rotations of each joint, shape (nv, nv)."""
    out = np.eye(model.structure.nv)
    for joint, start in zip(model.structure.joint.type, model.structure.joint.dof, strict=True):
        blocks = {JointType.FREE: (start, start + 3), JointType.BALL: (start,)}.get(JointType(int(joint)), ())
        for first in blocks:
            out[first : first + 3, first : first + 3] = 1.0 / 3.0
    return out


def _reference(model: Model) -> State:
    """The reference position, for as many worlds as the model has."""
    return init(model, max(world_counts(model).values()))
