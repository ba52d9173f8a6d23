"""JAX's transforms compared with a plain loop, for operations whose arrays have the world axis first.

The reference is the operation itself, called once per world and once per element of a batch. Every
world and every element of a batch holds different data. A rule that reads the data of its neighbour,
or of the first element, therefore gives other numbers.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Leaves = list[Any]
Pattern = tuple[bool, ...]  # whether each leaf is mapped
Runs = dict[str, tuple[Callable[..., Any], Sequence[Any]]]  # by transform: a function, and the arrays to expect

_RTOL = {"float64": 1e-11, "float32": 2e-5}
_ATOL = {"float64": 1e-13, "float32": 1e-6}


def check_transforms(
    fn: Callable[..., Any],
    args: Sequence[Any],
    *,
    differentiable: bool = True,
    perturb: float | None = None,
    variants: Sequence[Sequence[Any]] | None = None,
    batches: Sequence[int] = (1, 2, 3),
    max_patterns: int = 16,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
) -> dict[str, float]:
    """Check that a world-batched operation means the same under every transform.

    Values and (if ``differentiable``) gradients are compared with the plain loop for: all worlds in one
    call against one call per world; ``jit``; ``vmap`` over each batch size and each pattern of mapped
    and unmapped arguments; ``vmap`` of the gradient and gradient of the ``vmap``; ``scan`` and its
    gradient; ``jax.checkpoint``; gradients by two parts of the arguments in one traced function; nested
    ``vmap``. The gradient of data that all worlds share (leading size 1) must be the sum over the worlds.

    Args:
        fn: ``fn(*args)`` returns an array or a tree of arrays with the world axis first.
        args: trees of arrays with the world axis first: two worlds or more, or size 1 for shared data.
        differentiable: whether to check gradients with respect to every floating-point leaf.
        perturb: first add noise of this size, relative to max(1, |x|), to each world's own floating-point data.
        variants: further arguments of the same shapes for the elements of a batch. By default the worlds
            are rolled, and every floating-point number is multiplied by its own factor within 5 % of one.
        batches: sizes of the mapped axis.
        max_patterns: how many patterns to try. First come all combinations of whole arguments (for more
            than four: all, each alone, all but one), then each leaf alone and all but one. The report
            counts the remaining ones under ``patterns_left_out``.
        rtol: largest difference relative to the largest entry of the array; default by dtype (float64
            1e-11, float32 2e-5).
        atol: additional absolute difference allowed; default by dtype (1e-13, 1e-6).

    Returns:
        For each transform the worst difference, relative to the largest entry of its array; and
        ``patterns``, ``patterns_left_out``.

    Raises:
        AssertionError: a result differs; names transform, batch, pattern and output.
        ValueError: fewer than two worlds, or two worlds of an argument hold the same data.
    """
    args = tuple(args)
    leaves, tree = jax.tree.flatten(args)
    leaves = [np.asarray(leaf) for leaf in leaves]
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(args)[0]]
    rng = np.random.default_rng(seed)
    worlds = _num_worlds(leaves, paths)
    if perturb is not None:
        leaves = [_perturbed(leaf, perturb, rng) if len(leaf) > 1 else leaf for leaf in leaves]
    owners = [path[0].idx for path in paths]
    _refuse_equal_worlds(leaves, owners)
    if variants is None:
        sets = [leaves, *(_variant(leaves, k, rng) for k in range(1, max(*batches, 4)))]
    else:
        sets = [leaves, *([np.asarray(leaf) for leaf in jax.tree.leaves(tuple(v))] for v in variants)]
    if len(sets) < max(*batches, 4):
        raise ValueError(f"variants hold {len(sets) - 1} sets of arguments, must hold {max(*batches, 4) - 1}")
    operation = _Operation(fn, tree, leaves, worlds, differentiable, rng)
    check = _Comparison(rtol, atol)
    chosen, left_out = _patterns(owners, max_patterns)

    one_world = _Operation(fn, tree, [leaf[:1] for leaf in leaves], 1, differentiable, rng)
    _check_worlds(operation, one_world, check, leaves, worlds)
    _check_plain(operation, check, leaves)
    for pattern in chosen:
        for batch in batches:
            _check_vmap(operation, check, sets, batch, pattern, "")
        _check_vmap(one_world, check, [[leaf[:1] for leaf in s] for s in sets], max(batches), pattern, " of one world")
    _check_scan(operation, check, sets[: max(batches)])
    _check_nested(operation, check, sets, owners)
    return check.worst | {"patterns": float(len(chosen)), "patterns_left_out": float(left_out)}


class _Operation:
    """The operation on flat lists of leaves, its pullback, and the plain calls used as reference."""

    def __init__(self, fn: Any, tree: Any, leaves: Leaves, worlds: int, differentiable: bool, rng: np.random.Generator):
        self.floats = [i for i, leaf in enumerate(leaves) if leaf.dtype.kind == "f"]
        self.rng = rng

        def value(leaves: Leaves) -> Leaves:
            return [jnp.asarray(y) for y in jax.tree.leaves(fn(*tree.unflatten(map(jnp.asarray, leaves))))]

        def pull(leaves: Leaves, cotangents: Leaves) -> Leaves:
            """Gradients of sum(cotangent * output) with respect to the float leaves."""
            return self.grad(lambda xs: self.dot(cotangents, value(xs)), leaves)

        self.value, self.pull = value, pull
        outputs = jax.eval_shape(lambda leaves: fn(*tree.unflatten(leaves)), leaves)
        self.outputs = jax.tree.leaves(outputs)
        self.float_outputs = [y for y in self.outputs if jnp.issubdtype(y.dtype, jnp.floating)]
        self.differentiable = differentiable and bool(self.floats) and bool(self.float_outputs)
        self.plain = jax.jit(lambda xs, cs: (value(xs), pull(xs, cs) if self.differentiable else []))  # one program
        self.value_names = _names("output", outputs)
        self.grad_names = [_names("gradient by args", tree.unflatten(leaves))[i] for i in self.floats]
        for name, y in zip(self.value_names, self.outputs, strict=True):
            if y.shape[:1] != (worlds,):
                raise ValueError(f"{name} has shape {y.shape}: axis 0 must be the world axis, of size {worlds}")

    def grad(self, loss: Callable[[Leaves], Any], leaves: Leaves) -> Leaves:
        """Gradient of a function of all leaves with respect to the float leaves."""

        def of_floats(wanted: Leaves) -> Any:
            moved = list(leaves)
            for i, leaf in zip(self.floats, wanted, strict=True):
                moved[i] = leaf
            return loss(moved)

        return jax.grad(of_floats)([leaves[i] for i in self.floats])

    def dot(self, cotangents: Leaves, outs: Leaves) -> Any:
        floats = [y for y in outs if jnp.issubdtype(y.dtype, jnp.floating)]
        return sum(jnp.sum(w * y) for w, y in zip(cotangents, floats, strict=True))

    def loop(self, elements: list[Leaves], cotangents: list[Leaves]) -> tuple[Leaves, Leaves]:
        """The reference: one plain call per element, with values and gradients stacked."""
        values, grads = zip(*map(self.plain, elements, cotangents))
        return _stack(values), _stack(grads)

    def cotangents(self, *lead: int) -> Leaves:
        """Random cotangents of the float outputs, with additional leading axes."""
        return [self.rng.standard_normal((*lead, *y.shape)).astype(y.dtype) for y in self.float_outputs]


class _Comparison:
    """Compares results with those of the plain loop, and records the worst difference of each transform."""

    def __init__(self, rtol: float | None, atol: float | None):
        self.rtol, self.atol = rtol, atol
        self.worst: dict[str, float] = {}

    def __call__(self, op: "_Operation", where: str, inputs: tuple[Any, ...], runs: Runs) -> None:
        """Run transformed operations on the inputs as one program, to save compile time, and compare.

        ``runs`` maps a transform's name to the function and the expected arrays."""
        if not op.differentiable:
            runs = {name: run for name, run in runs.items() if "grad" not in name}
        try:
            results = jax.jit(lambda *xs: {name: fn(*xs) for name, (fn, _) in runs.items()})(*inputs)
            results = jax.tree.map(np.asarray, results)
        except Exception:
            results = {name: self._alone(name + where, fn, inputs) for name, (fn, _) in runs.items()}
        for name, (_, references) in runs.items():
            parts = op.grad_names if "grad" in name else op.value_names
            for part, result, reference in zip(parts, results[name], references, strict=True):
                self._one(name, f"{name}{where}: {part}", result, np.asarray(reference))

    @staticmethod
    def _alone(label: str, fn: Callable[..., Leaves], inputs: tuple[Any, ...]) -> Leaves:
        try:
            return [np.asarray(y) for y in jax.jit(fn)(*inputs)]
        except Exception as error:
            raise AssertionError(f"{label} raised {type(error).__name__}: {error}") from error

    def _one(self, name: str, label: str, result: np.ndarray, reference: np.ndarray) -> None:
        if result.shape != reference.shape or result.dtype != reference.dtype:
            got, wanted = f"{result.dtype}{result.shape}", f"{reference.dtype}{reference.shape}"
            raise AssertionError(f"{label} is {got}, the plain loop gives {wanted}")
        if not result.size:
            return
        if reference.dtype.kind != "f":
            if not np.array_equal(result, reference):
                raise AssertionError(f"{label} differs from the plain loop: {result} instead of {reference}")
            return
        if not np.isfinite(reference).all():
            raise AssertionError(f"{label} cannot be checked: the plain loop itself gives values that are not finite")
        kind = reference.dtype.name
        gap = np.abs(result - reference)
        scale = float(np.max(np.abs(reference)))
        rtol = _RTOL[kind] if self.rtol is None else self.rtol
        atol = _ATOL[kind] if self.atol is None else self.atol
        allowed = rtol * scale + atol
        worst = float(np.max(gap))
        if not worst <= allowed:
            index = tuple(map(int, np.unravel_index(np.argmax(gap), gap.shape)))
            raise AssertionError(
                f"{label} differs from the plain loop by {worst:.3e} (allowed {allowed:.1e}) at {index}: "
                f"{result[index]} instead of {reference[index]}"
            )
        self.worst[name] = max(self.worst.get(name, 0.0), worst / scale if scale > 0 else worst)


def _check_worlds(op: _Operation, one_world: _Operation, check: _Comparison, leaves: Leaves, worlds: int) -> None:
    """All worlds in one call against one call per world; shared gradients against their sum."""
    cotangents = op.cotangents()
    elements = [[leaf[w : w + 1] if len(leaf) > 1 else leaf for leaf in leaves] for w in range(worlds)]
    values, grads = one_world.loop(elements, [[c[w : w + 1] for c in cotangents] for w in range(worlds)])
    shared = [len(leaves[i]) <= 1 for i in op.floats]
    runs: Runs = {
        "worlds": (lambda xs, _: op.value(xs), [y.swapaxes(0, 1)[0] for y in values]),
        "grad of worlds": (op.pull, [g.sum(axis=0) if s else g[:, 0] for s, g in zip(shared, grads)]),
    }
    check(op, " in one call (what they share: summed)", (leaves, cotangents), runs)


def _check_plain(op: _Operation, check: _Comparison, leaves: Leaves) -> None:
    """jit and jax.checkpoint against the plain function."""
    cotangents = op.cotangents()
    saved = jax.checkpoint(op.value)
    values, grads = op.value(leaves), op.pull(leaves, cotangents) if op.differentiable else []
    runs: Runs = {
        "jit": (lambda xs, _: op.value(xs), values),
        "checkpoint": (lambda xs, _: saved(xs), values),
        "jit of grad": (op.pull, grads),
        "grad of checkpoint": (lambda xs, cs: op.grad(lambda xs: op.dot(cs, saved(xs)), xs), grads),
        "grad by one part, then by another": (lambda xs, cs: _by_parts(op, saved, xs, cs), grads),
    }
    check(op, "", (leaves, cotangents), runs)


def _by_parts(op: _Operation, saved: Callable[[Leaves], Leaves], leaves: Leaves, cotangents: Leaves) -> Leaves:
    """Gradients by the first float leaf, then by the others, of one function; both are traced before either runs."""
    pulls = []
    for part in filter(None, (op.floats[:1], op.floats[1:])):

        def moved(xs: Leaves, part: list[int] = part) -> Any:
            given = dict(zip(part, xs, strict=True))
            return op.dot(cotangents, saved([given.get(i, leaf) for i, leaf in enumerate(leaves)]))

        value, pull = jax.vjp(moved, [leaves[i] for i in part])
        pulls.append((pull, jnp.ones_like(value)))
    return [grad for pull, one in pulls for grad in pull(one)[0]]


def _check_vmap(
    op: _Operation, check: _Comparison, sets: list[Leaves], batch: int, pattern: Pattern, what: str
) -> None:
    """vmap, vmap of the gradient, gradient of the vmap, for one batch size and one pattern."""
    elements = [[sets[b][i] if m else sets[0][i] for i, m in enumerate(pattern)] for b in range(batch)]
    stacked = [np.stack([e[i] for e in elements]) if m else sets[0][i] for i, m in enumerate(pattern)]
    cotangents = op.cotangents(batch)
    values, grads = op.loop(elements, [[c[b] for c in cotangents] for b in range(batch)])
    total = [g if pattern[i] else g.sum(axis=0) for i, g in zip(op.floats, grads)]
    axes = [0 if m else None for m in pattern]
    mapped = jax.vmap(op.value, in_axes=(axes,))
    runs: Runs = {
        "vmap": (lambda xs, _: mapped(xs), values),
        "vmap of grad": (jax.vmap(op.pull, in_axes=(axes, 0)), grads),
        "grad of vmap": (lambda xs, cs: op.grad(lambda xs: op.dot(cs, mapped(xs)), xs), total),
    }
    check(op, f"{what}, batch {batch}, in_axes {tuple(axes)}", (stacked, cotangents), runs)


def _check_scan(op: _Operation, check: _Comparison, sets: list[Leaves]) -> None:
    """scan over a leading time axis. Data that the worlds share stays outside the loop."""
    inside = [len(leaf) > 1 for leaf in sets[0]]
    elements = [[leaf if m else first for leaf, first, m in zip(s, sets[0], inside, strict=True)] for s in sets]
    stacked = [np.stack([e[i] for e in elements]) if m else sets[0][i] for i, m in enumerate(inside)]
    cotangents = op.cotangents(len(sets))
    values, grads = op.loop(elements, [[c[t] for c in cotangents] for t in range(len(sets))])
    total = [g if inside[i] else g.sum(axis=0) for i, g in zip(op.floats, grads)]

    def scan(leaves: Leaves) -> Leaves:
        def body(carry: None, xs: Leaves) -> tuple[None, Leaves]:
            moved = iter(xs)
            return carry, op.value([next(moved) if m else leaf for leaf, m in zip(leaves, inside, strict=True)])

        return jax.lax.scan(body, None, [leaf for leaf, m in zip(leaves, inside, strict=True) if m])[1]

    runs: Runs = {
        "scan": (lambda xs, _: scan(xs), values),
        "grad of scan": (lambda xs, cs: op.grad(lambda xs: op.dot(cs, scan(xs)), xs), total),
    }
    check(op, "", (stacked, cotangents), runs)


def _check_nested(op: _Operation, check: _Comparison, sets: list[Leaves], owners: list[int]) -> None:
    """vmap of vmap, two by two: both over all leaves; then one over the first argument and one over the rest."""
    both = (True,) * len(owners)
    first = tuple(owner == 0 for owner in owners)
    rest = tuple(not m for m in first)
    for outer, inner in [(both, both), (first, rest), (rest, first)] if any(rest) else [(both, both)]:
        grid = list(np.ndindex(2, 2))
        elements = [
            [sets[2 * a * o + b * i][k] for k, (o, i) in enumerate(zip(outer, inner, strict=True))] for a, b in grid
        ]
        stacked = [leaf.reshape(2, 2, *leaf.shape[1:]) for leaf in _stack(elements)]
        stacked = [leaf if o else leaf[0] for leaf, o in zip(stacked, outer, strict=True)]
        stacked = [
            leaf if i else leaf[(slice(None),) * o + (0,)] for leaf, o, i in zip(stacked, outer, inner, strict=True)
        ]
        cotangents = op.cotangents(2, 2)
        values, grads = op.loop(elements, [[c[ab] for c in cotangents] for ab in grid])
        over, within = ([0 if m else None for m in pattern] for pattern in (outer, inner))
        nested = jax.vmap(jax.vmap(op.value, in_axes=(within,)), in_axes=(over,))
        nested_pull = jax.vmap(jax.vmap(op.pull, in_axes=(within, 0)), in_axes=(over, 0))
        runs: Runs = {
            "nested vmap": (lambda xs, _, nested=nested: nested(xs), [y.reshape(2, 2, *y.shape[1:]) for y in values]),
            "nested vmap of grad": (nested_pull, [g.reshape(2, 2, *g.shape[1:]) for g in grads]),
        }
        check(op, f", outer in_axes {tuple(over)}, inner in_axes {tuple(within)}", (stacked, cotangents), runs)


def _patterns(owners: list[int], most: int) -> tuple[list[Pattern], int]:
    """Which leaves to map: by whole arguments, then by single leaves; and the number of patterns not tried."""
    count, args = len(owners), sorted(set(owners))
    by_argument: Iterator[Pattern] = itertools.product((True, False), repeat=len(args))
    if len(args) > 4:
        by_argument = iter([(True,) * len(args), *_singles(len(args))])
    every = [tuple(mapped[args.index(owner)] for owner in owners) for mapped in by_argument]
    distinct = [p for p in dict.fromkeys([*every, *_singles(count)]) if any(p)]
    return distinct[:most], max(0, len(distinct) - most)


def _singles(count: int) -> list[Pattern]:
    """Each item alone; all items but one."""
    alone = [tuple(i == k for i in range(count)) for k in range(count)]
    return [*alone, *(tuple(not m for m in p) for p in alone)]


def _stack(lists: Iterable[Leaves]) -> Leaves:
    return [np.stack([np.asarray(y) for y in ys]) for ys in zip(*lists, strict=True)]


def _names(kind: str, values: Any) -> list[str]:
    return [f"{kind}{jax.tree_util.keystr(path)}" for path, _ in jax.tree_util.tree_flatten_with_path(values)[0]]


def _num_worlds(leaves: Leaves, paths: list[Any]) -> int:
    if not leaves:
        raise ValueError("args hold no array")
    worlds = max(leaf.shape[0] if leaf.ndim else 0 for leaf in leaves)
    for leaf, path in zip(leaves, paths, strict=True):
        if not leaf.ndim or (leaf.shape[0] not in (1, worlds) and leaf.size):
            name = f"args{jax.tree_util.keystr(path)}"
            raise ValueError(
                f"{name} has shape {leaf.shape}: axis 0 must be the world axis, of size {worlds} (1: shared)"
            )
    if worlds < 2:
        raise ValueError("args hold one world: at least two worlds with different data are needed to show a mix-up")
    return worlds


def _refuse_equal_worlds(leaves: Leaves, owners: list[int]) -> None:
    for owner in sorted(set(owners)):
        own = [leaf for leaf, o in zip(leaves, owners, strict=True) if o == owner and len(leaf) > 1 and leaf.size]
        if own:
            rows = [b"".join(np.ascontiguousarray(leaf[w]).tobytes() for leaf in own) for w in range(len(own[0]))]
            if len(set(rows)) < len(rows):
                raise ValueError(
                    f"args[{owner}] holds the same data in several worlds, which would hide a mix-up of worlds: "
                    "give every world its own, or pass perturb=0.1"
                )


def _perturbed(leaf: np.ndarray, size: float, rng: np.random.Generator) -> np.ndarray:
    if leaf.dtype.kind != "f":
        return leaf
    return (leaf + size * np.maximum(1.0, np.abs(leaf)) * rng.uniform(-1.0, 1.0, leaf.shape)).astype(leaf.dtype)


def _variant(leaves: Leaves, k: int, rng: np.random.Generator) -> Leaves:
    rolled = [np.roll(leaf, k, axis=0) for leaf in leaves]
    return [
        (leaf * rng.uniform(0.95, 1.05, leaf.shape)).astype(leaf.dtype) if leaf.dtype.kind == "f" else leaf
        for leaf in rolled
    ]
