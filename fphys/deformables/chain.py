"""Chains of joints: those that act at once, and the tridiagonal equations of what they give."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array


class Rows(NamedTuple):
    """Edges in their order, row after row; a ring begins anywhere."""

    edges: np.ndarray  # their numbers
    places: np.ndarray  # where each edge is among them
    row: np.ndarray  # which row each is of, in that order
    first: np.ndarray  # place of the first edge of each row, shape (row,)
    last: np.ndarray  # of the last
    closed: np.ndarray  # whether a row is a ring, bool, shape (row,)


class Chain(NamedTuple):
    """Joints that act at once, in their order along the rods, and which of them follow the one before."""

    joints: np.ndarray
    follows: np.ndarray  # bool, shape (joint,)


def chains(pairs: np.ndarray) -> list[Chain]:
    """All joints but one of each ring, and then these.

    Args:
        pairs: the two edges of every joint, shape (joint, 2); an edge is the first of one joint at most.
    """
    before = _before(pairs)
    closing = _closing(before)
    return [_row(before, joints) for joints in (np.setdiff1d(np.arange(len(pairs)), closing), closing) if len(joints)]


def rows(pairs: np.ndarray, count: int) -> Rows:
    """All of ``count`` edges; ``pairs`` as for :func:`chains`."""
    closing = {int(b) for a, b in pairs[_closing(_before(pairs))]}
    after = {int(a): int(b) for a, b in pairs if int(b) not in closing}
    inner = set(after.values())
    found: list[list[int]] = []
    for edge in (e for e in range(count) if e not in inner):
        found.append([edge])
        while found[-1][-1] in after:
            found[-1].append(after[found[-1][-1]])
    length = np.array([len(row) for row in found], int)
    last = np.cumsum(length) - 1
    closed = np.array([row[0] in closing for row in found], bool)
    edges = [edge for row in found for edge in row]
    row = np.arange(len(found)).repeat(length)
    places = np.argsort(edges)
    edges, places, row, first, last = (np.asarray(x, np.int32) for x in (edges, places, row, last - length + 1, last))
    return Rows(edges, places, row, first, last, closed)


def _before(pairs: np.ndarray) -> np.ndarray:
    """The joint before every joint, or -1."""
    ending = {int(b): j for j, (_, b) in enumerate(pairs)}
    return np.array([ending.get(int(a), -1) for a, _ in pairs], int)


def _closing(before: np.ndarray) -> np.ndarray:
    """One joint of each ring."""
    seen, found = np.zeros(len(before), bool), []
    for start in range(len(before)):
        joint = start
        while joint >= 0 and not seen[joint]:
            seen[joint] = True
            joint = before[joint]
            if joint == start:
                found.append(start)
    return np.array(found, int)


def _row(before: np.ndarray, joints: np.ndarray) -> Chain:
    """These joints in order; there is no ring among them."""
    within = set(joints.tolist())
    after = {int(before[j]): j for j in joints.tolist() if before[j] in within}
    order: list[int] = []
    for joint in (j for j in joints.tolist() if before[j] not in within):
        order.append(joint)
        while order[-1] in after:
            order.append(after[order[-1]])
    return Chain(np.array(order), before[order] == [-2, *order[:-1]])


def solve(chain: Chain, low: Array, middle: Array, high: Array, right: Array) -> Array:
    """u of low u_before + middle u + high u_after = right, shape (world, joint); all have it.

    Gradients flow to all coefficients.
    """
    low = jnp.where(chain.follows, low, 0)
    high = jnp.where(np.append(chain.follows[1:], False), high, 0)
    return jax.lax.linalg.tridiagonal_solve(low, middle, high, right[..., None])[..., 0]
