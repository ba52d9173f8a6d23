"""What the number of a pair says: its two geoms, and what their contacts are like."""

from typing import Any

import jax
import jax.numpy as jnp

from ...model import Model
from ...model.pairs import pair_kinds, rows
from ...model.structure import Structure


def pair_list(model: Model) -> dict[str, Any]:
    """The pairs, as kernels take them."""
    s, k = model.structure, pair_kinds(model.structure)
    listed = {"geoms": s.geom.pair, "type": s.geom.type, "geom_body": s.geom.body, "group": k.group}
    listed |= {"groups": k.groups, "source": k.source, "slots": k.count}
    return listed | {"dim": k.dim, "rows": rows(k.dim, s.elliptic)}


def reach_of(structure: Structure) -> dict[str, Any]:
    """What decides whether two geoms may touch, as kernels take it."""
    return {"filter": structure.geom.reach, "apart": structure.geom.apart, "nbody": structure.nbody}


def geoms_of(structure: Structure, pair: jax.Array) -> jax.Array:
    """The two geoms of pairs, that of lower type first, shape (..., 2); of the pair -1, those of the pair 0."""
    pair = jnp.maximum(pair, 0)
    if not structure.sparse:
        return jnp.asarray(structure.geom.pair)[pair]
    low, high = jnp.divmod(pair, structure.ngeom)
    types = jnp.asarray(structure.geom.type)
    ordered = types[low] <= types[high]
    return jnp.stack([jnp.where(ordered, low, high), jnp.where(ordered, high, low)], -1)
