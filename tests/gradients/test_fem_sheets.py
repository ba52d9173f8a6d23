"""Gradients of sheets, triangles in space, by the implicit rule: every input, against differences; and plain JAX."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.deformables import fem, mesh
from fphys.particles import boundary
from fphys.testing import check_grads, check_transforms

from ..deformables import plain_fem

LAWS = [fem.NeoHookean, fem.Corotated, fem.StVenantKirchhoff]
UNITS = {"density": 1000.0, "young": 1e4, "poisson": 0.3, "thickness": 2e-2, "bending": 1e-2, "timestep": 1e-2}
UNITS |= {"gravity": 10.0, "v": 0.1, "stiffness_damping": 1e-3, "actuation": 300.0, "stiffness": 1e5, "pos": 0.01}
"""Inputs are given in these units, so that differences suit all of them."""

STEPS = (1e-4, 1e-5, 1e-6)
"""A step is found to about 1e-11 m, of which smaller differences would be made."""


def scene(law: Any = fem.StVenantKirchhoff, worlds: int = 1, **fixed: Any) -> tuple[fem.Params, dict[str, Any]]:
    """A sheet that is curved at rest, one edge of which is held and moves, swung, pushed and pressed on a ball."""
    rng = np.random.default_rng(0)
    body = mesh.cloth((2, 3), (0.3, 0.3))
    x = body.vertices
    rest = x + [0, 0, 1] * (0.8 * x[:, :1] ** 2 - 0.5 * x[:, :1] * x[:, 1:2])
    pinned = np.flatnonzero(x[:, 1] == 0)
    n, e = len(x), len(body.elements)
    params = fem.Params(body, law(1000.0, 1e4, 0.3), 1e-2, pinned=pinned, thickness=2e-2, **fixed)
    at = np.broadcast_to(rest, (worlds, n, 3)) + 0.01 * rng.normal(size=(worlds, n, 3))
    pull = rng.normal(size=(1, e, 3, 3))
    inputs = {
        "x": at,
        "v": 5 * rng.normal(size=at.shape),
        "vertices": rest + 0.004 * rng.normal(size=rest.shape),
        "density": 1 + 0.1 * rng.uniform(size=e),
        "young": 1 + 0.1 * rng.uniform(size=e),
        "poisson": 1 - 0.1 * rng.uniform(size=e),
        "thickness": 1 + 0.1 * rng.uniform(size=e),
        "bending": 1 + 0.1 * rng.uniform(size=e),
        "timestep": np.ones(1),
        "gravity": rng.normal(size=(1, 3)),
        "damping": np.array([0.3]),
        "stiffness_damping": np.ones(1),
        "force": 0.1 * rng.normal(size=at.shape),
        "pins": (rest[pinned] + 0.004 * rng.normal(size=(len(pinned), 3)))[None],
        "actuation": pull + pull.swapaxes(2, 3),
        "stiffness": np.ones(1),
        "friction": np.full(1, 0.4),
        "pos": np.array([[15.0, 17.0, -19.0]]),
    }
    return params, {k: jnp.asarray(v, float) for k, v in inputs.items()}


def rollout(params: fem.Params, inputs: dict[str, Any], steps: int = 1) -> Any:
    """Positions and velocities after some steps, in their units; pins move on. Bending may be left out."""
    given = {k: v * UNITS.get(k, 1.0) for k, v in inputs.items()}
    law = params.material.replace(**{k: given[k] for k in ("density", "young", "poisson")})
    named = ("timestep", "gravity", "damping", "stiffness_damping", "thickness")
    now = params.replace(
        mesh=params.mesh.replace(vertices=given["vertices"]),
        material=law,
        bending=given.get("bending"),
        contact=fem.Contact(given["stiffness"], 0.02, 0.3),
        **{k: given[k] for k in named},
    )
    ball = boundary.sphere((0.0, 0.0, 0.0), 0.2).replace(pos=given["pos"], friction=given["friction"])
    count = len(given["x"])
    start = fem.State(given["x"], given["v"], jnp.zeros(count, given["x"].dtype), jnp.zeros(count, jnp.uint32))

    def advance(state: fem.State, k: Any) -> tuple[fem.State, None]:
        pins = given["pins"] + 0.002 * jnp.sin(k)
        return fem.step(now, state, given["force"], given["actuation"], pins, (ball,)), None

    if steps == 1:
        end = advance(start, 0.0)[0]
    else:
        end, _ = jax.lax.scan(advance, start, jnp.arange(steps, dtype=float))
    return 10 * end.x, end.v, end.status


def check(params: fem.Params, inputs: dict[str, Any], steps: int = 1, directions: int = 1) -> None:
    def fn(given: dict[str, Any]) -> Any:
        return rollout(params, given, steps)

    assert np.asarray(jax.jit(fn)(inputs)[2]).tolist() == [0]
    check_grads(fn, (inputs,), directions=directions, steps=STEPS)


@pytest.mark.parametrize("law", LAWS)
def test_every_input(law: Any, full: bool):
    check(*scene(law), directions=8 if full else 1)


@pytest.mark.parametrize("steps", [10, pytest.param(60, marks=pytest.mark.slow)])
def test_many_steps(steps: int, full: bool):
    check(*scene(order=2), steps=steps, directions=8 if full else 1)


def test_a_plate_bends_as_its_material():
    """Without a bending stiffness of its own: the gradient by modulus, Poisson's ratio and thickness has that, too."""
    params, inputs = scene()
    del inputs["bending"]
    used = {k: inputs[k] for k in ("young", "poisson", "thickness", "vertices")}
    check_grads(lambda given: rollout(params, inputs | given), (used,), directions=1, steps=STEPS)


@pytest.mark.parametrize(("law", "bending"), [(LAWS[0], None), *((law, 0.1) for law in LAWS)])
def test_a_step_is_the_minimum_that_plain_jax_finds(law: Any, bending: Any):
    """A step of the plain potential's own Newton's method, with a dense Hessian, goes nowhere from there."""
    params, inputs = scene(law)
    params = params.replace(
        mesh=params.mesh.replace(vertices=inputs["vertices"]), bending=bending, gravity=(0.0, -9.81, 1.0), damping=0.3
    )
    x, v, force = inputs["x"], 0.1 * inputs["v"], inputs["force"]
    start = fem.State(x, v, jnp.zeros(1), jnp.zeros(1, jnp.uint32))
    found = jax.jit(fem.step)(params, start, force, pins=inputs["pins"])
    fem.check(params, found)
    polished = plain_fem.newton(params, x[0], v[0], force[0], found.x[0])
    np.testing.assert_allclose(found.x[0], polished, rtol=0, atol=1e-11)
    assert np.abs(found.x[0] - x[0]).max() > 1e-3


@pytest.mark.parametrize(("missing", "seen"), [("bend", "vertices"), ("thick", "thickness")])
def test_a_missing_term_is_noticed(missing: str, seen: str, monkeypatch: pytest.MonkeyPatch):
    """The solve's gradient by one of its inputs goes nowhere."""
    whole = fem.displacement

    def lossy(layout: Any, setting: Any, start: Any) -> Any:
        held = {missing: jax.lax.stop_gradient(getattr(setting, missing))}
        return whole(layout, setting._replace(**held), start)

    monkeypatch.setattr(fem, "displacement", lossy)
    params, inputs = scene()
    with pytest.raises(AssertionError, match="gradient checks have an error"):
        check_grads(
            jax.jit(lambda y: rollout(params, inputs | {seen: y})),
            (inputs[seen],),
            directions=1,
            steps=(1e-5,),
            tol=1e-4,
        )


def test_coincident_vertices_have_a_finite_gradient():
    params, inputs = scene()
    x = inputs["x"].at[0, -1].set(inputs["x"][0, -2])
    found = jax.jit(jax.grad(lambda given: sum(jnp.sum(y**2) for y in rollout(params, given)[:2])))(inputs | {"x": x})
    assert all(np.isfinite(g).all() for g in found.values())


def test_float32_against_float64():
    params, inputs = scene()

    def gradient(real: Any) -> Any:
        given = {k: v.astype(real) for k, v in inputs.items()}
        return jax.jit(jax.grad(lambda f: (rollout(params, given | {"force": f})[0] ** 2).sum()))(given["force"])

    single, double = (np.asarray(gradient(real), float) for real in (jnp.float32, jnp.float64))
    assert np.abs(single - double).max() <= 1e-3 * np.abs(double).max()


@pytest.mark.slow
def test_transforms():
    """Two worlds, parameters shared and not."""
    params, inputs = scene(worlds=2)
    names = ("vertices", "x", "v", "bending")
    shared = inputs | {
        "vertices": inputs["vertices"][None],
        "bending": inputs["bending"][None],
        "force": inputs["force"][:1],
    }

    def step(*given: Any) -> Any:
        return rollout(params, shared | dict(zip(names, given, strict=True)))[:2]

    check_transforms(step, [shared[k] for k in names], max_patterns=1, batches=(3,), rtol=1e-8, atol=1e-10)
