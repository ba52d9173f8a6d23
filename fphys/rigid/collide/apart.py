"""How far apart geoms are, whether or not they may touch, and where they are nearest to each other."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...model import Model, State
from ...model.pairs import lower_first, pair_kinds
from ...model.structure import GeomType
from .collision import contacts

Array = jax.Array


class Apart(NamedTuple):
    """Of pairs of geoms; those farther apart than was asked for have that distance, and zeros."""

    distance: Array  # negative where they overlap [m], (world, pair)
    normal: Array  # from the first geom to the second, (world, pair, 3)
    ends: Array  # the points nearest to each other on the first and the second, world axes [m], (world, pair, 2, 3)


def apart(model: Model, state: State, pair: np.ndarray, within: np.ndarray) -> Apart:
    """Signed distances of pairs of geoms (pair, 2), up to ``within`` (pair,) [m].

    They are the contacts of a model in which nothing but these pairs may touch, each where it is nearest. Gradients
    flow to the state and to the geoms' poses and sizes, at the parts of the geoms that are nearest to each other.
    """
    s, real = model.structure, state.qpos.dtype
    assert (s.hull.first[pair[s.geom.type[pair] == GeomType.MESH]] >= 0).all(), "hulls are read of measured geoms"
    ordered = lower_first(pair, s.geom.type).astype(np.int32)
    sign = jnp.asarray(np.where((ordered == pair).all(1), 1, -1), real)[None]
    geom = dataclasses.replace(
        s.geom,
        pair=ordered,
        pair_condim=np.ones(len(pair), np.int32),
        named=np.zeros(0, np.int32),
        nearest=True,
    )
    alone = dataclasses.replace(s, geom=geom, sparse=False)
    room = dataclasses.replace(state, max_contacts=max(1, int(pair_kinds(alone).count.sum())))
    limit = jnp.asarray(within, real)[None]
    found = contacts(dataclasses.replace(model, structure=alone), room, within=limit)
    own = found.pair[:, None] == jnp.arange(len(pair), dtype=jnp.int32)[None, :, None]
    between = jnp.where(own, found.distance[:, None], jnp.inf)
    best = jnp.argmin(jax.lax.stop_gradient(between), -1)
    there = own.any(-1)

    def pick(values: Array, missing: Array) -> Array:
        taken = jnp.take_along_axis(values, best.reshape(*best.shape, *[1] * (values.ndim - 2)), 1)
        return jnp.where(there.reshape(*best.shape, *[1] * (values.ndim - 2)), taken, missing)

    none = jnp.zeros((1, 1, 3), real)
    distance = pick(found.distance, limit)
    normal = pick(found.frame[..., 0, :], none) * sign[..., None]
    half = normal * (0.5 * distance)[..., None]
    pos = pick(found.pos, none)
    return Apart(distance, normal, jnp.stack([pos - half, pos + half], 2))
