"""Chains of joints: those that act at once, and the tridiagonal equations of what they give."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array


class Chain(NamedTuple):
    """Joints that act at once, and for distances 1, 2, 4, ... the places of those before and after each, or -1."""

    joints: np.ndarray
    levels: np.ndarray  # shape (distance, 2, joint)


def chains(pairs: np.ndarray) -> list[Chain]:
    """All joints but one of each ring, and then these.

    Args:
        pairs: the two edges of every joint, shape (joint, 2); an edge is the first of one joint at most.
    """
    ending = {int(b): j for j, (_, b) in enumerate(pairs)}
    before = np.array([ending.get(int(a), -1) for a, _ in pairs], int)
    closing = _closing(before)
    return [_row(before, joints) for joints in (np.setdiff1d(np.arange(len(pairs)), closing), closing) if len(joints)]


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
    place = np.full(len(before) + 1, -1)  # the last one is of no joint
    place[joints] = np.arange(len(joints))
    near = np.full((2, len(joints)), -1)
    near[0] = place[before[joints]]
    near[1, near[0][near[0] >= 0]] = np.flatnonzero(near[0] >= 0)
    levels = [near]
    while (near >= 0).any():
        near = np.stack([np.where(side >= 0, side[side], -1) for side in near])
        levels.append(near)
    return Chain(joints, np.stack(levels))


def solve(chain: Chain, low: Array, middle: Array, high: Array, right: Array) -> Array:
    """u of low u_before + middle u + high u_after = right (cyclic reduction), shape (world, joint); all have it.

    Gradients flow to all coefficients.
    """

    def level(carry: tuple[Array, ...], near: Array) -> tuple[tuple[Array, ...], None]:
        (low, middle, high, right), (before, after) = carry, near
        down = jnp.where(before >= 0, -low / middle[:, before], 0)
        up = jnp.where(after >= 0, -high / middle[:, after], 0)
        middle = middle + down * high[:, before] + up * low[:, after]
        right = right + down * right[:, before] + up * right[:, after]
        return (down * low[:, before], middle, up * high[:, after], right), None

    # A scan: unrolled, the levels are one expression, which XLA writes out anew for each of its uses.
    (_, middle, _, right), _ = jax.lax.scan(level, (low, middle, high, right), jnp.asarray(chain.levels))
    return right / middle
