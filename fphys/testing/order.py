"""A method's order of convergence."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

_ROUNDING = 1e-13  # errors below this, relative to the solution, count as rounding


def check_order(
    solve: Callable[[float], Any],
    exact: Any,
    steps: Sequence[float],
    expected: float,
    tol: float = 0.2,
) -> float:
    """Check the slope of log(error) over log(step).

    Args:
        solve: ``solve(h)`` returns the solution with step h at one fixed time: an array or a tree of arrays.
        exact: the exact solution; or None to compare successive steps, which must then have a
            constant ratio (Richardson: u(h) - u(rh) is of the order of the error itself).
        steps: step sizes, at least 2 (3 if ``exact`` is None).
        expected: the method's order.
        tol: largest difference between the slope and the order.

    Returns:
        The slope, by least squares.

    Raises:
        AssertionError: the slope is not as expected; with step and error of each solution.
        ValueError: the steps cannot show an order: too few, not a constant ratio, or errors at rounding level.
    """
    sizes = np.sort(np.asarray(steps, float))[::-1]
    needed = 2 if exact is not None else 3
    if len(sizes) < needed or sizes[-1] <= 0 or len(np.unique(sizes)) < len(sizes):
        raise ValueError(f"steps are {list(steps)}: an order needs at least {needed} different positive step sizes")
    if exact is None and not np.allclose(sizes[1:] / sizes[:-1], sizes[1] / sizes[0], rtol=1e-6):
        raise ValueError(
            f"steps are {list(steps)}: without an exact solution each must be the same fraction of the one before"
        )

    solutions = [_flat(solve(float(h))) for h in sizes]
    references = [_flat(exact)] * len(sizes) if exact is not None else solutions[1:]
    pairs = list(zip(sizes, solutions, references, strict=False))
    errors = np.array([np.max(np.abs(_same_size(u, v) - v)) for _, u, v in pairs])
    scale = max(float(np.max(np.abs(references[-1]))), np.finfo(float).tiny)
    listed = "\n".join(f"  step {h:.3e}  error {e:.3e}" for (h, _, _), e in zip(pairs, errors, strict=True))
    if not np.all(np.isfinite(errors)):
        raise AssertionError(f"the solution is not finite at every step:\n{listed}")
    if np.any(errors <= _ROUNDING * scale):
        raise ValueError(f"some errors are rounding and show no order: use larger steps\n{listed}")
    slope = float(np.polyfit(np.log([h for h, _, _ in pairs]), np.log(errors), 1)[0])
    if not abs(slope - expected) <= tol:
        raise AssertionError(f"the order is {slope:.3f}, expected {expected:g} within {tol:g}:\n{listed}")
    return slope


def _flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(tree)])


def _same_size(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    if u.shape != v.shape:
        raise ValueError(
            f"solutions hold {u.size} and {v.size} numbers: solve must return the same points at every step"
        )
    return u
