"""Gradients against centred differences.

*Gradient error* has one meaning throughout the project. Along a direction d it is

    error = |g.d - fd| / max(|fd|, 1e-3 |g| |d|),    fd = (f(x + h d) - f(x - h d)) / 2h,

the smallest over several steps h. A gradient passes if the error is within the tolerance along each of
16 random directions per input.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = np.ndarray
Retract = Callable[[tuple[Any, ...], Any, Any], tuple[Any, ...]]

_SHOWN = 20  # how many failures an error lists


@dataclasses.dataclass(frozen=True)
class _Row:
    """One comparison: an input along one direction."""

    name: str
    direction: str
    slope: float
    difference: float
    error: float


def check_grads(
    fn: Callable[..., Any],
    args: Sequence[Any],
    *,
    tol: float = 1e-6,
    argnums: int | Sequence[int] | None = None,
    directions: int = 16,
    steps: Sequence[float] = (1e-5, 1e-6, 1e-7),
    seed: int = 0,
    elementwise: bool = False,
    retract: Retract | None = None,
    atol: float = 0.0,
) -> float:
    """Check the reverse-mode gradient of ``fn`` at ``args`` against centred differences, along random directions d.

    The gradient error is |g.d - fd| / max(|fd|, 1e-3 |g| |d|), fd = (f(x + h d) - f(x - h d)) / 2h, smallest over h.

    Args:
        fn: maps pytrees of float64 arrays to a scalar, or to a pytree of arrays, which a fixed random
            cotangent projects to a scalar. Outputs that are not floats (status bits, ids) are ignored.
        args: the arguments. Every floating-point leaf of those that ``argnums`` selects is one input.
        tol: the largest gradient error that passes.
        argnums: which arguments to check; all by default.
        directions: number of random directions per input, with standard normal entries.
        steps: step sizes of the centred differences, tried in this order until one is within ``tol``.
        seed: of the directions and the cotangent.
        elementwise: check along every element of every input instead of along random directions.
        retract: ``retract(args, direction, step) -> args`` moves the arguments along a manifold, for
            example unit quaternions. ``direction`` is a tree like ``args``, zero except in the input
            that is checked. By default arguments move in a straight line: args + step * direction.
        atol: a difference |g.d - fd| up to this counts as zero. Use it only for gradients that are zero
            up to rounding, because relative errors cannot judge them.

    Returns:
        The worst error found.

    Raises:
        AssertionError: a gradient is wrong; with a table of input, direction, g.d, fd and error.
        TypeError: an input or output is not float64.
    """
    args = tuple(args)
    leaves, tree = jax.tree.flatten(args)
    names, owners = _paths(args)
    selected = set(range(len(args)) if argnums is None else np.atleast_1d(np.asarray(argnums)) % len(args))
    inputs = [i for i, leaf in enumerate(leaves) if owners[i] in selected and _is_float(leaf)]
    _refuse(leaves, names, inputs)
    leaves = [np.asarray(leaf) if i in inputs else leaf for i, leaf in enumerate(leaves)]

    def call(moved: Sequence[Any]) -> list[Any]:
        outs = [y for y in map(jnp.asarray, jax.tree.leaves(fn(*tree.unflatten(moved)))) if _is_float(y)]
        for y in outs:
            if y.dtype != jnp.float64:
                raise TypeError(f"fn returns {y.dtype}: differences need float64; keep the arguments' precision in fn")
        return outs

    evaluate = jax.jit(call)  # traced once for its shapes, its values and its gradient
    rng = np.random.default_rng(seed)
    outs = jax.eval_shape(evaluate, leaves)
    if not outs:
        raise TypeError("fn returns no floating-point array: there is no gradient to check")
    scalar = len(outs) == 1 and outs[0].shape == ()
    cotangents = [np.ones(()) if scalar else rng.standard_normal(y.shape) for y in outs]

    def project(wanted: list[Any]) -> Any:
        moved = list(leaves)
        for i, leaf in zip(inputs, wanted, strict=True):
            moved[i] = leaf
        return sum(jnp.sum(w * y) for w, y in zip(cotangents, evaluate(moved), strict=True))

    found = jax.jit(jax.grad(project))([leaves[i] for i in inputs])
    grads = {i: np.asarray(g) for i, g in zip(inputs, found, strict=True)}

    def move(leaf: int, direction: Array, step: Any) -> list[Any]:
        if retract is None:
            return [x + step * direction if i == leaf else x for i, x in enumerate(leaves)]
        tangent = [direction if i == leaf else np.zeros(np.shape(x)) for i, x in enumerate(leaves)]
        return jax.tree.leaves(retract(args, tree.unflatten(tangent), step))

    def difference(leaf: int, direction: Array, step: float) -> float:
        above, below = evaluate(move(leaf, direction, step)), evaluate(move(leaf, direction, -step))
        pairs = zip(cotangents, above, below, strict=True)
        return float(sum(np.sum(w * (np.asarray(a) - np.asarray(b))) for w, a, b in pairs)) / (2 * step)

    def compare(leaf: int, label: str, direction: Array) -> _Row:
        tangents = {leaf: direction}
        if retract is not None:
            _, moved = jax.jvp(lambda step: move(leaf, direction, step), (0.0,), (1.0,))
            tangents = {i: np.asarray(moved[i]) for i in inputs}
        slope = float(sum(np.sum(grads[i] * d) for i, d in tangents.items()))
        scale = float(np.linalg.norm(grads[leaf]) * np.linalg.norm(tangents[leaf]))
        best = _Row(names[leaf], label, slope, np.nan, np.inf)
        for step in steps:
            fd = difference(leaf, direction, step)
            row = _Row(names[leaf], label, slope, fd, _error(slope, fd, scale, atol))
            best = row if row.error < best.error or np.isnan(best.difference) else best
            if best.error <= tol:
                break
        return best

    rows = [
        compare(i, label, direction)
        for i in inputs
        for label, direction in (_elements(leaves[i]) if elementwise else _random(leaves[i], directions, rng))
    ]
    failed = sorted((row for row in rows if not row.error <= tol), key=lambda row: -row.error)
    if failed:
        raise AssertionError(_table(failed, len(rows), tol))
    return max((row.error for row in rows), default=0.0)


def _error(slope: float, difference: float, scale: float, atol: float) -> float:
    gap = abs(slope - difference)
    if gap <= atol:
        return 0.0
    bound = max(abs(difference), 1e-3 * scale)
    error = gap / bound if bound > 0 else np.inf
    return error if np.isfinite(error) else np.inf


def _random(leaf: Array, count: int, rng: np.random.Generator) -> Iterable[tuple[str, Array]]:
    if leaf.size:
        for k in range(count):
            yield f"random {k}", rng.standard_normal(leaf.shape)


def _elements(leaf: Array) -> Iterable[tuple[str, Array]]:
    for index in np.ndindex(leaf.shape):
        direction = np.zeros(leaf.shape)
        direction[index] = 1.0
        yield str(list(map(int, index))), direction


def _is_float(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    return jnp.issubdtype(np.asarray(leaf).dtype if dtype is None else dtype, np.inexact)


def _paths(args: tuple[Any, ...]) -> tuple[list[str], list[int]]:
    """Each leaf's name, such as ``args[0].qpos``, and the index of its argument."""
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(args)[0]]
    return [f"args{jax.tree_util.keystr(path)}" for path in paths], [path[0].idx for path in paths]


def _refuse(leaves: list[Any], names: list[str], inputs: list[int]) -> None:
    if not jax.config.read("jax_enable_x64"):
        raise TypeError('differences need float64: turn it on first, jax.config.update("jax_enable_x64", True)')
    if not inputs:
        raise ValueError("no input to check: the selected arguments hold no floating-point array")
    for i in inputs:
        dtype = np.asarray(leaves[i]).dtype
        if dtype != np.float64:
            raise TypeError(f"{names[i]} is {dtype}: differences need float64, convert it with .astype('float64')")


def _table(failed: list[_Row], checked: int, tol: float) -> str:
    width = max(len("input"), *(len(row.name) for row in failed))
    lines = [
        f"{len(failed)} of {checked} gradient checks have an error above {tol:g}; the worst:",
        f"{'input':{width}}  {'direction':>12}  {'g.d':>23}  {'fd':>23}  {'error':>9}",
    ]
    for row in failed[:_SHOWN]:
        lines.append(
            f"{row.name:{width}}  {row.direction:>12}  {row.slope:23.15e}  {row.difference:23.15e}  {row.error:9.2e}"
        )
    return "\n".join(lines)
