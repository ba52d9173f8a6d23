"""Contact constraints: parameters of every pair, the rows of the solve, and their virtual power."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...bridge import kernels, warp_op
from ...model import Model, State
from .. import stages, team
from ..collide.collision import Contacts
from ..collide.pairs import geoms_of, pair_list
from ..tree import topology

Array = jax.Array

MIN_FRICTION = 1e-5
"""MuJoCo's mjMINMU: no coefficient is smaller."""


class Pairs(NamedTuple):
    """Contact parameters of pairs that may touch, mixed from their geoms or given for named pairs.

    Each (1 | world, candidate, ...); candidates are all pairs, or those that a broad phase has found.
    """

    candidate: Any  # the pairs, ascending, then -1
    friction: Any  # two sliding, torsional, two rolling
    solref: Any
    solreffriction: Any
    solimp: Any
    margin: Any  # distance at which the constraint acts
    detection: Any  # distance at which a contact is reported


@jax.jit
def mix_pairs(model: Model, candidate: Array | None = None) -> Pairs:
    """Parameters of pairs, combined from those of two geoms as in MuJoCo. Gradients flow to geoms and pairs.

    Args:
        candidate: pairs that may touch, (world, candidate), -1 for none; None for all.
    """
    s, g = model.structure, model.geom
    mixed = len(s.geom.pair) - s.geom.named.size
    if candidate is None:
        a, b = s.geom.pair[:mixed].T
        candidate = jnp.arange(len(s.geom.pair), dtype=jnp.int32)[None]
        first, second = (
            x[None] for x in (s.geom.priority[a] > s.geom.priority[b], s.geom.priority[a] < s.geom.priority[b])
        )
    else:
        a, b = jnp.moveaxis(geoms_of(s, candidate), -1, 0)
        priority = jnp.asarray(s.geom.priority)
        first, second = priority[a] > priority[b], priority[a] < priority[b]

    def of(x: Array, index: Any) -> Array:
        return x[:, index] if index.ndim == 1 else _by_world(x, index)

    def pick(x: Array, mixed: Array) -> Array:
        shape = (*first.shape, *[1] * (x.ndim - 2))
        return jnp.where(first.reshape(shape), of(x, a), jnp.where(second.reshape(shape), of(x, b), mixed))

    total = of(g.solmix, a) + of(g.solmix, b)
    share = jnp.where(total > 1e-15, of(g.solmix, a) / jnp.where(total > 1e-15, total, 1.0), 0.5)[..., None]
    standard = (of(g.solref, a)[..., :1] > 0) & (of(g.solref, b)[..., :1] > 0)
    blend = lambda x: share * of(x, a) + (1.0 - share) * of(x, b)  # noqa: E731
    solref = pick(g.solref, jnp.where(standard, blend(g.solref), jnp.minimum(of(g.solref, a), of(g.solref, b))))
    friction = pick(g.friction, jnp.maximum(of(g.friction, a), of(g.friction, b)))[..., np.array([0, 0, 1, 2, 2])]
    margin = of(g.margin, a) + of(g.margin, b)
    gap = of(g.gap, a) + of(g.gap, b)
    none = jnp.zeros_like(solref)
    p = model.pair.replace(**{n: getattr(model.pair, n)[:, s.geom.named] for n in _NAMED})
    return Pairs(
        candidate=candidate,
        friction=jnp.maximum(_joined(friction, p.friction), _least_friction(model)),
        solref=_joined(solref, p.solref),
        solreffriction=_joined(none, p.solreffriction),
        solimp=_joined(pick(g.solimp, blend(g.solimp)), p.solimp),
        margin=_joined(margin, p.margin),
        detection=_joined(margin + gap, p.margin + p.gap) + model.opt.softness[:, None],
    )


def _by_world(x: Array, index: Array) -> Array:
    """x[w, index[w]] for every world w; x may be shared by all worlds."""
    return x[0][index] if x.shape[0] == 1 else jax.vmap(lambda x, i: x[i])(x, index)


def _least_friction(model: Model) -> Array:
    """Least friction coefficients: in float32 a pyramid's sliding friction is at least half a percent. Its stiffness
    grows as 1 / mu^2 of the first of the five coefficients and must be representable beside M. Torsional and rolling
    friction do not matter here. Shape (1, 1, 5)."""
    single = model.qpos0.dtype == np.float32 and not model.structure.elliptic
    sliding = 5e-3 if single else MIN_FRICTION
    return jnp.asarray([[[sliding] * 2 + [MIN_FRICTION] * 3]], model.qpos0.dtype)


_NAMED = ("friction", "solref", "solreffriction", "solimp", "margin", "gap")


def _joined(mixed: Array, named: Array) -> Array:
    """Parameters of the mixed pairs, then of the named ones; either may be shared by all worlds."""
    if not named.shape[1]:
        return mixed
    worlds = max(mixed.shape[0], named.shape[0])
    return jnp.concatenate([jnp.broadcast_to(x, (worlds, *x.shape[1:])) for x in (mixed, named)], 1)


def of_pairs(model: Model, pairs: Pairs) -> list[Any]:
    """The pairs, the bodies, the pairs' parameters and what all contacts have in common, as kernels take them."""
    opt = model.opt
    cones = {"elliptic": int(model.structure.elliptic), "refsafe": stages.refsafe(model)}
    cones |= {"timestep": opt.timestep, "impratio": opt.impratio, "softness": opt.softness}
    return [pair_list(model), topology.bodies(model), pairs, cones | {"invweight0": model.body.invweight0}]


def contact_rows(
    launch: Any,
    model: Model,
    state: State,
    pairs: Pairs,
    contacts: Contacts,
    row: Any,
    motions: stages.Motions,
    first: int,
    out: stages.Rows,
) -> None:
    """Write the rows of every contact from row ``first``."""
    lanes = team.lanes(launch, row.shape[1])
    listed, bodies, *parameters = of_pairs(model, pairs)
    launch(
        kernels(state.qpos.dtype, "rigid.solve.contact").contact_rows,
        dim=(launch.worlds, lanes),
        inputs=[lanes, listed, bodies, first, *parameters, contacts, row]
        + [motions.frames.pos, motions.axes, motions.velocity],
        outputs=[out],
    )


def contact_power(
    launch: Any, model: Model, state: State, pairs: Pairs, contacts: Contacts, motions: stages.Motions, out: Any
) -> None:
    """Virtual power of the contact forces."""
    lanes = team.lanes(launch, contacts.pair.shape[1])
    launch(
        kernels(state.qpos.dtype, "rigid.solve.contact").contact_power,
        dim=(launch.worlds, lanes),
        inputs=[lanes, *of_pairs(model, pairs), contacts]
        + [motions.frames.pos, motions.velocity, motions.linear, motions.trial],
        outputs=[out],
    )


def _force(launch: Any, model: Model, state: State, pairs: Pairs, contacts: Contacts, qacc: Any, out: Any) -> None:
    frames = stages.frame_poses(launch, model, state)
    axes = stages.dof_axes(launch, model, frames)
    motions = [stages.frame_motion(launch, model, axes, rate) for rate in (state.qvel, qacc)]
    launch(
        kernels(state.qpos.dtype, "rigid.solve.contact").contact_forces,
        dim=(launch.worlds, contacts.pair.shape[1]),
        inputs=[*of_pairs(model, pairs), contacts, frames.pos, *motions],
        outputs=[out],
    )


_force_op = warp_op(
    _force,
    lambda m, s, p, contacts, a: jax.ShapeDtypeStruct((*contacts.pair.shape, 6), a.dtype),
    zeroed=False,
    name="contact forces",
)


def contact_forces(model: Model, state: State, contacts: Contacts, qacc: Array) -> Array:
    """Force [N] and torque [N m] of every contact on its second geom, at given accelerations.

    Returns:
        In each contact's frame, normal first, shape (world, contact, 6). Gradients flow to all arguments. With the
        accelerations of :func:`fphys.forward`, and through them, they are the gradients of the solution.
    """
    return _force_op(model, state, mix_pairs(model, contacts.pair if model.structure.sparse else None), contacts, qacc)
