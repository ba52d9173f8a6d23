"""Frames of a rod that is laid somewhere: joints bend as the edges do, and do not twist.

Along a row each frame follows from the one before by the shortest turn between their edges (parallel transport; Bishop
1975, "There is more than one way to frame a curve"). Compared with the same at rest, that gives the turn of every edge
by the turn of the first. In a ring, all joints share the twist that is left after a round.
"""

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import alongside
from ..math import einsum, quat_mul, quat_unit, rotate
from .chain import Rows
from .turns import frames_of, inverse, roll, shortest

Array = jax.Array


def laid(before: Array, now: Array, rows: Rows) -> Array:
    """Frames along ``now`` of edges that lie along ``before`` at rest.

    A row that is curved at rest is turned nearest to its shape at rest, turned as a whole.

    Args:
        before, now: unit vectors along the edges, shape (world, edge, 3).

    Returns:
        Quaternions, shape (world, edge, 4). Gradients flow to ``before`` and ``now``.
    """
    b, t = before[:, rows.edges], now[:, rows.edges]
    whole, curved = _whole(b, t, rows)
    some = curved[..., None]
    b0, t0 = b[:, rows.first], t[:, rows.first]
    first = jnp.where(
        some, quat_mul(shortest(rotate(whole, b0), t0), whole), quat_mul(frames_of(t0), inverse(frames_of(b0)))
    )
    turn = quat_mul(quat_mul(_carried(t, rows), first[:, rows.row]), inverse(_carried(b, rows)))
    if rows.closed.any():
        turn = quat_mul(roll(t, _shared(turn, first, b, t, rows)), turn)
    apart = quat_mul(inverse(whole[:, rows.row]), turn)
    turn = quat_mul(roll(t, -_mean(apart, b, curved, rows)[:, rows.row]), turn)
    turn = quat_mul(shortest(rotate(turn, b), t), turn)  # to rounding
    return quat_unit(quat_mul(turn, frames_of(b)))[:, rows.places]


def _carried(t: Array, rows: Rows) -> Array:
    """The turn to every edge from the first of its row, in shortest turns from edge to edge."""
    follows = (np.arange(len(rows.edges)) != rows.first[rows.row])[None, :, None]
    one = jnp.eye(4, dtype=t.dtype)[0]
    steps = jnp.where(follows, shortest(jnp.roll(t, 1, 1), t), one)
    turns = jax.lax.associative_scan(lambda early, late: quat_mul(late, early), steps, axis=1)
    return quat_mul(turns, inverse(turns[:, rows.first])[:, rows.row])


def _shared(turn: Array, first: Array, b: Array, t: Array, rows: Rows) -> Array:
    """By how much every edge of a ring rolls for all of its joints to twist alike [rad], (world, edge, 1)."""
    end, start = rows.last, rows.first
    ahead, back = (shortest(x[:, end], x[:, start]) for x in (t, b))
    q = quat_mul(quat_mul(quat_mul(ahead, turn[:, end]), inverse(back)), inverse(first))
    w, s = q[..., :1], (q[..., 1:] * t[:, start]).sum(-1, keepdims=True)
    left = 2 * jnp.arctan2(jnp.where(w < 0, -s, s), jnp.abs(w))
    count = np.bincount(rows.row)
    place = np.arange(len(rows.edges)) - start[rows.row]
    share = np.where(rows.closed[rows.row], place / count[rows.row], 0).astype(t.dtype)
    return -left[:, rows.row] * share[None, :, None]


def _mean(q: Array, t: Array, fine: Array, rows: Rows) -> Array:
    """The angle of turns about edges [rad], in the mean over a row, (world, row, 1); 0 where not ``fine``."""
    w, s = q[..., :1], (q[..., 1:] * t).sum(-1, keepdims=True)
    x, y = _total(w**2 - s**2, rows), _total(2 * w * s, rows)
    return jnp.arctan2(jnp.where(fine[..., None], y, 0), jnp.where(fine[..., None], x, 1))


def _whole(before: Array, now: Array, rows: Rows) -> tuple[Array, Array]:
    """The one turn that takes all directions of a row nearest to others, an eigenvector (Horn 1987), (world, row, 4).

    It is none where those before are parallel, to a milliradian: any roll about them would do as well. Second, whether
    they are not, (world, row).
    """
    unit = jnp.eye(4, dtype=now.dtype)[None, None]
    was, new = (jnp.pad(t, ((0, 0), (0, 0), (1, 0)))[:, :, None] for t in (before, now))
    match = einsum("weki,weli->wekl", quat_mul(new, unit), quat_mul(unit, was))
    count = np.bincount(rows.row).astype(now.dtype)[None, :, None]
    match = _total(match.reshape(*match.shape[:2], 16), rows) / count
    sines = (jnp.cross(before[:, rows.first][:, rows.row], before) ** 2).sum(-1, keepdims=True)
    curved = (_total(sines, rows) / count)[..., 0] > 1e-6
    none = jnp.diag(unit[0, 0, 0])
    match = jnp.where(curved[..., None, None], match.reshape(*match.shape[:2], 4, 4), none[None, None])
    values, vectors = jnp.linalg.eigh(jax.lax.stop_gradient(match))
    best = vectors[..., -1] * jnp.where(vectors[..., :1, -1] < 0, -1, 1)
    gap = jnp.maximum(values[..., -1:] - values[..., :-1], 1e-6)
    change = einsum("wrik,wrk,wrjk,wrjl,wrl->wri", vectors[..., :-1], 1 / gap, vectors[..., :-1], match, best)
    return best + change - jax.lax.stop_gradient(change), curved  # of change, only the gradient


def _total(x: Array, rows: Rows) -> Array:
    """The sum over the edges of each row, from (world, edge, n) to (world, row, n)."""
    zero = alongside(jnp.zeros((x.shape[0], len(rows.first), x.shape[-1]), x.dtype), x)
    return zero.at[:, rows.row].add(x)
