"""Rollouts of many steps, and how reverse mode goes back through them: the strategy is a value."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_leaves_with_path

from .bridge import reverse_only
from .model import Model, State
from .model.arguments import expect
from .model.kinds import bare_ctrl
from .rigid.step import step

Array = jax.Array
StepFn = Callable[[Any, Any], tuple[Any, Any]]


@dataclasses.dataclass(frozen=True)
class Full:
    """Store what every step needs for its adjoint: memory grows with the number of steps."""

    def scan(self, step_fn: StepFn, state: Any, inputs: Any) -> tuple[Any, Any]:
        """As ``jax.lax.scan(step_fn, state, inputs)``: the last state, and the outs on a leading axis T."""
        return jax.lax.scan(step_fn, state, inputs)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Store the state of every ``every``-th step and recompute the steps between in the backward pass.

    The gradient is that of :class:`Full`; memory falls from T steps to T / every states and ``every``
    steps, at the cost of one more forward pass (Griewank and Walther 2000).
    """

    every: int = 16

    def __post_init__(self) -> None:
        _positive("every", self.every)

    def scan(self, step_fn: StepFn, state: Any, inputs: Any) -> tuple[Any, Any]:
        """As ``jax.lax.scan(step_fn, state, inputs)``: the last state, and the outs on a leading axis T."""
        return _in_blocks(step_fn, state, inputs, self.every, jax.checkpoint, lambda s, _: s)


@dataclasses.dataclass(frozen=True)
class Truncated:
    """Cut the gradient of the state between windows of ``window`` steps (truncated backpropagation).

    The result is the same; gradients reach back at most ``window`` steps, so they are biased but do
    not explode with the length of the rollout. The initial state gets that of the first window.
    """

    window: int = 32

    def __post_init__(self) -> None:
        _positive("window", self.window)

    def scan(self, step_fn: StepFn, state: Any, inputs: Any) -> tuple[Any, Any]:
        """As ``jax.lax.scan(step_fn, state, inputs)``: the last state, and the outs on a leading axis T."""
        return _in_blocks(step_fn, state, inputs, self.window, lambda f: f, _cut)


Adjoint = Full | Checkpoint | Truncated


@reverse_only
def scan(
    step_fn: StepFn, state: Any, inputs: Any, adjoint: Adjoint = Full(), length: int | None = None
) -> tuple[Any, Any]:
    """Run any solver through time: ``jax.lax.scan`` with a strategy for reverse mode.

    Args:
        step_fn: ``(state, input) -> (state, out)``, pure.
        state: the initial state, any pytree.
        inputs: a pytree whose leaves have a leading time axis T, or None.
        adjoint: :class:`Full`, :class:`Checkpoint` or :class:`Truncated`.
        length: T, required if there are no inputs.

    Returns:
        The final state, and the outs stacked on a leading axis T.

    Raises:
        ValueError: the time axes and ``length`` differ, or neither is given. TypeError: ``adjoint`` is not a strategy.
    """
    _expect_strategy(adjoint)
    lengths = {f"inputs{keystr(path)}": np.shape(leaf)[:1] for path, leaf in tree_leaves_with_path(inputs)}
    if not lengths and length is None:
        raise ValueError("inputs hold no array, so the number of steps is unknown: pass length=T")
    if not lengths:
        return adjoint.scan(lambda s, _: step_fn(s, inputs), state, jnp.arange(length))
    if length is not None:
        lengths["length"] = (length,)
    if () in lengths.values() or len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {size[0] if size else 'none'}" for name, size in lengths.items())
        raise ValueError(f"the inputs need one leading time axis of the same length: {listed}")
    return adjoint.scan(step_fn, state, inputs)


@reverse_only
def rollout(model: Model, state: State, ctrls: Array, adjoint: Adjoint = Full()) -> State:
    """The states after each of T steps.

    Args:
        ctrls: controls, shape (T, world, nu) [the actuators' units]; step k lasts ``model.opt.timestep`` [s].

    Returns:
        States with a leading time axis T; the initial one is not included. Gradients flow to model,
        state and controls.

    Raises:
        ValueError, TypeError: as :func:`fphys.step`, and if there is no time axis.
    """
    expect(model, state)
    ctrls = bare_ctrl(model, ctrls)
    if isinstance(ctrls, list | np.ndarray):
        ctrls = jnp.asarray(ctrls, state.qpos.dtype)
    needs = f"(T, num_worlds, nu) = (T, {state.qpos.shape[0]}, {model.structure.nu})"
    if not hasattr(ctrls, "shape"):
        raise TypeError(
            f"ctrls is {'None' if ctrls is None else type(ctrls).__name__}, must be an array of shape {needs}: its "
            "first axis says how many steps to take; without control, jnp.zeros of that shape"
        )
    if len(ctrls.shape) != 3 or ctrls.shape[1:] != (state.qpos.shape[0], model.structure.nu):
        raise ValueError(f"ctrls has shape {ctrls.shape}, needs {needs}")
    _expect_strategy(adjoint)
    return _rollout(model, state, ctrls, adjoint)


@functools.partial(jax.jit, static_argnames="adjoint")
def _rollout(model: Model, state: State, ctrls: Array, adjoint: Adjoint) -> State:
    def advance(s: State, ctrl: Array) -> tuple[State, State]:
        s = step(model, s, ctrl)
        return s, s

    return scan(advance, state, ctrls, adjoint)[1]


def _expect_strategy(adjoint: Any) -> None:
    if isinstance(adjoint, type) or not callable(getattr(adjoint, "scan", None)):
        raise TypeError(f"adjoint is {adjoint!r}, must be fphys.Full(), Checkpoint(every=...) or Truncated(window=...)")


def _positive(name: str, value: int) -> None:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}, must be a whole number of steps, at least 1")


def _cut(state: Any, later: Any) -> Any:
    """The state, without gradient if the block is not the first."""
    return jax.tree.map(lambda a: jnp.where(later, jax.lax.stop_gradient(a), a), state)


def _in_blocks(step_fn: StepFn, state: Any, inputs: Any, size: int, wrap: Any, enter: Any) -> tuple[Any, Any]:
    """Scan over blocks of ``size`` steps, and then over the remaining steps.

    ``wrap(block)`` is what runs; ``enter(state, later)`` what a block starts from, ``later`` unless it is the first.
    """
    total = jax.tree.leaves(inputs)[0].shape[0]
    blocks, rest = divmod(total, size)

    def block(s: Any, given: tuple[Any, Any]) -> tuple[Any, Any]:
        xs, later = given
        return jax.lax.scan(step_fn, enter(s, later), xs)

    run = wrap(block)
    outs = []
    if blocks:
        head = jax.tree.map(lambda x: x[: blocks * size].reshape(blocks, size, *x.shape[1:]), inputs)
        state, out = jax.lax.scan(run, state, (head, np.arange(blocks) > 0))
        outs.append(jax.tree.map(lambda x: x.reshape(blocks * size, *x.shape[2:]), out))
    if rest or not blocks:
        state, out = run(state, (jax.tree.map(lambda x: x[blocks * size :], inputs), np.bool_(blocks > 0)))
        outs.append(out)
    return state, outs[0] if len(outs) == 1 else jax.tree.map(lambda *x: jnp.concatenate(x), *outs)
