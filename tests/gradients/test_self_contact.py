"""Gradients of bodies that meet themselves, with the set of pairs that touch where the step ends."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.deformables import fem, fem_solve, mesh
from fphys.testing import check_grads

from ..deformables import plain_fem, plain_pairs

UNITS = {"stiffness": 1e6, "thickness": 2e-2, "young": 1e4}
"""Inputs are given in these units, so that differences suit all of them."""

STEPS = (1e-4, 1e-5, 1e-6, 1e-7)


def scene(order: int = 1, steps: int = 1, sheet: bool = False) -> tuple[fem.Params, Any, dict[str, Any]]:
    """Two blocks, or sheets, that are pressed on each other and rub; their inputs in units of their own."""
    rng = np.random.default_rng(1)
    lower, upper = mesh.box((2, 1, 1), (0.4, 0.3, 0.2)), mesh.box((1, 1, 1), (0.2, 0.2, 0.2), (0.05, 0.06, 0.21))
    if sheet:
        lower, upper = mesh.cloth((2, 2), (0.4, 0.3)), mesh.cloth((1, 1), (0.2, 0.2))
        upper = upper.replace(vertices=upper.vertices + [0.05, 0.06, 0.015])
    x, elements = plain_pairs.combined(lower, upper)
    x = x + 0.002 * rng.normal(size=x.shape)
    body = mesh.build(x, elements)
    contact = fem.Contact(1e6, 2e-2, 0.3, 0.4, pairs=200)
    kind: dict[str, Any] = {"thickness": 0.02, "order": order} if sheet else {"order": order}
    params = fem.Params(body, fem.NeoHookean(1000.0, 1e4, 0.3), 1e-2, contact=contact, pinned=(0, 1), **kind)
    v = 0.2 * rng.normal(size=x.shape)
    v[len(lower.vertices) :] += (0.5, 0.3, -0.7)
    inputs = {"x": x[None], "v": v[None], "vertices": x, "young": 1 + 0.1 * rng.uniform(size=len(elements))}
    inputs |= {name: np.ones(1) for name in ("timestep", "stiffness", "thickness", "slip", "friction")}
    inputs["pins"] = x[None, :2] + 0.002

    def run(given: dict[str, Any]) -> Any:
        got = {k: v * UNITS.get(k, 1.0) for k, v in given.items()}
        touch = fem.Contact(got["stiffness"], got["thickness"], 0.3 * got["slip"], 0.4 * got["friction"], pairs=200)
        now = params.replace(
            mesh=body.replace(vertices=got["vertices"]),
            material=params.material.replace(young=got["young"]),
            timestep=0.01 * got["timestep"],
            contact=touch,
        )
        state = fem.State(got["x"], got["v"], jnp.zeros(1), jnp.zeros(1, jnp.uint32))
        advance = lambda s, _: (fem.step(now, s, pins=got["pins"]), None)  # noqa: E731
        end = jax.lax.scan(advance, state, None, steps)[0] if steps > 1 else advance(state, None)[0]
        return 100 * end.x, end.v, end.status

    return params, run, {k: jnp.asarray(v, float) for k, v in inputs.items()}


def pairs_of(params: fem.Params, inputs: dict[str, Any]) -> np.ndarray:
    """The pairs of a step, (2 room, 3), those that rub in the second half."""
    start = fem.State(inputs["x"], inputs["v"], jnp.zeros(1), jnp.zeros(1, jnp.uint32))
    layout, setting, shapes, first, _ = fem.screened(params, start, None, None, (), None)
    return np.asarray(fem_solve.displacement(layout, fem.first_solve(setting, shapes, 1.0), first).pair[0])


SLOW = pytest.param(1, 60, False, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("order", "steps", "sheet"), [(1, 1, False), (2, 1, False), (1, 10, False), (1, 1, True), SLOW]
)
def test_every_input(order: int, steps: int, sheet: bool, full: bool):
    params, run, inputs = scene(order, steps, sheet)
    run = jax.jit(run)
    if order == 1:
        found = pairs_of(params, inputs)
        assert all((half[:, 0] == kind).any() for half in (found[:200], found[200:]) for kind in (0, 1))
    assert int(run(inputs)[-1][0]) == 0
    check_grads(run, (inputs,), directions=8 if full else 1, steps=STEPS)


def test_a_step_is_the_minimum_that_plain_jax_finds():
    """There the forces of the plain energy, with those of all pairs, found by brute force, balance."""
    params, _, inputs = scene()
    params = params.replace(contact=params.contact.replace(friction=0.0), gravity=(1.0, 2.0, -9.81))
    x, v = inputs["x"], inputs["v"]
    start = fem.State(x, v, jnp.zeros(1), jnp.zeros(1, jnp.uint32))
    found = jax.jit(fem.step)(params, start).x[0]
    loose, force = plain_fem.free(params), jnp.zeros_like(found)

    def value(y: Any) -> Any:
        at = found.at[loose].set(y.reshape(-1, 3))
        return plain_fem.potential(params, x[0], v[0], force, at) + plain_pairs.energy(params, at)

    y = found[loose].reshape(-1)
    pressed = float(jnp.abs(plain_pairs.forces(params, found)).max())
    assert pressed > 1.0 and float(jnp.abs(jax.jit(jax.grad(value))(y)).max()) < 1e-9 * pressed


@pytest.mark.parametrize(("missing", "seen"), [("before", "x"), ("share", "vertices"), ("rub", "friction")])
def test_a_missing_term_is_noticed(missing: str, seen: str, monkeypatch: pytest.MonkeyPatch):
    """The solve's gradient by one of its inputs goes nowhere; ``before`` is where friction lags."""
    whole = fem.displacement

    def lossy(layout: Any, setting: Any, start: Any) -> Any:
        held = {missing: jax.lax.stop_gradient(getattr(setting, missing))}
        return whole(layout, setting._replace(**held), start)

    monkeypatch.setattr(fem, "displacement", lossy)
    _, run, inputs = scene()
    with pytest.raises(AssertionError, match="gradient checks have an error"):
        check_grads(jax.jit(lambda y: run(inputs | {seen: y})), (inputs[seen],), directions=2, steps=(1e-5,), tol=1e-4)
