"""Gradients of explicit steps of finite elements against centred differences: every input, over 1, 10 and 60 steps."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.deformables import fem, fem_explicit
from fphys.testing import check_grads, check_transforms

from . import test_fem


def scene(law: Any = fem.NeoHookean, dim: int = 3, worlds: int = 1) -> tuple[fem.Params, dict[str, Any]]:
    """The beam of ``test_fem``, with the time step below its limit, and a muscle."""
    params, inputs = test_fem.scene(law, dim, worlds)
    pull = np.random.default_rng(1).normal(size=(1, len(params.mesh.elements), 3, 3))
    inputs |= {"timestep": jnp.full(1, 0.2), "actuation": jnp.asarray(0.1 * (pull + pull.swapaxes(2, 3)))}
    return params.replace(explicit=True), inputs


@pytest.mark.parametrize(
    ("law", "dim", "steps"),
    [
        *((law, 3, 1) for law in test_fem.LAWS),
        (fem.NeoHookean, 2, 1),
        (fem.NeoHookean, 3, 10),
        (fem.Corotated, 2, 60),
    ],
)
def test_every_input(law: Any, dim: int, steps: int, full: bool):
    params, inputs = scene(law, dim)
    run = jax.jit(lambda given: test_fem.rollout(params, given, steps))
    assert int(run(inputs)[2][0]) == 0
    check_grads(run, (inputs,), directions=8 if full else 1, steps=test_fem.STEPS)


@pytest.mark.parametrize(("missing", "seen"), [("muscle", "actuation"), ("density", "density"), ("rest", "vertices")])
def test_a_missing_term_is_noticed(missing: str, seen: str, monkeypatch: pytest.MonkeyPatch):
    """The step's gradient by one of its inputs goes nowhere."""
    whole = fem_explicit.leap

    def lossy(layout: Any, setting: Any, start: Any) -> Any:
        return whole(layout, setting._replace(**{missing: jax.lax.stop_gradient(getattr(setting, missing))}), start)

    monkeypatch.setattr(fem, "leap", lossy)
    params, inputs = scene(dim=2)
    with pytest.raises(AssertionError, match="gradient checks have an error"):
        check_grads(
            jax.jit(lambda y: test_fem.rollout(params, inputs | {seen: y})),
            (inputs[seen],),
            directions=1,
            steps=(1e-5,),
            tol=1e-4,
        )


def test_transforms():
    params, inputs = scene(dim=2, worlds=2)
    shared = inputs | {"force": inputs["force"][:1]}

    def step(x: Any, v: Any, young: Any) -> Any:
        return test_fem.rollout(params, shared | {"x": x, "v": v, "young": young})[:2]

    given = [inputs["x"], inputs["v"], inputs["young"][None]]
    check_transforms(step, given, max_patterns=1, batches=(3,), rtol=1e-10, atol=1e-12)
