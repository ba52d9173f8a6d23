"""Worlds are split over threads inside one call: the results are those of one thread."""

import gc
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import fphys
from fphys.bridge import WarpOp, workers

from .mechanisms import case, loads, random_inputs, to_state


def forget() -> None:
    """Let every operation be planned anew."""
    for op in [found for found in gc.get_objects() if type(found) is WarpOp]:
        for cached in (op.operation, op.adjoint, op.forward_plan, op.backward_plan):
            cached.cache_clear()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Set the number of threads."""

    def use(count: int) -> None:
        monkeypatch.setenv("FPHYS_THREADS", str(count))
        forget()

    yield use
    monkeypatch.undo()
    forget()


def test_a_step_does_not_depend_on_the_number_of_threads(threads: Any):
    """Bit for bit, gradients included; the sum of a shared gradient alone depends on how the worlds are split."""
    model, m = case("small")
    x = random_inputs(m, 200)
    state, given = to_state(model, x), loads(model, x)

    def loss_of(model: Any, state: Any, given: Any) -> Any:
        after = fphys.step(model, state, *given)
        return (after.qvel**2).sum() + after.qpos.sum(), after

    results = []
    for count in (1, 2, 3):
        threads(count)
        assert len(workers.shares(200, workers.num_blocks(200, 1, 1))) == count
        gradient = jax.jit(jax.grad(lambda *args: loss_of(*args), (0, 1, 2), has_aux=True, allow_int=True))
        grads, after = gradient(model, state, given)
        results.append((jax.tree.leaves((after, grads[1:])), jax.tree.leaves(grads[0])))
    for own, shared in results[1:]:
        jax.tree.map(np.testing.assert_array_equal, own, results[0][0])
        for ours, alone in zip(shared, results[0][1], strict=True):
            assert np.abs(ours - alone).max(initial=0) <= 1e-13 * np.abs(alone).max(initial=0)
