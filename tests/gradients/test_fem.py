"""Gradients of finite elements against centred differences: every input, law and dimension; and against plain JAX."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.deformables import fem, mesh
from fphys.testing import check_grads, check_transforms

from ..deformables import plain_fem

LAWS = [fem.NeoHookean, fem.Corotated, fem.StVenantKirchhoff]
UNITS = {"density": 1000.0, "young": 1e4, "poisson": 0.3, "timestep": 1e-2, "v": 0.1, "force": 1.0, "gravity": 10.0}
UNITS |= {"actuation": 1e3}
"""Inputs are given in these units, so that differences suit all of them."""

STEPS = (1e-4, 1e-5, 1e-6)
"""A step is found to about 1e-11 m, of which smaller differences would be made."""


def scene(law: Any, dim: int, worlds: int = 1, poisson: float = 0.3) -> tuple[fem.Params, dict[str, Any]]:
    """A beam, one end of which is held and moves, swung and pushed; its inputs in units of their own."""
    rng = np.random.default_rng(0)
    body = mesh.box((3, 1, 1)[:dim], (0.3, 0.1, 0.1)[:dim])
    pinned = np.flatnonzero(body.vertices[:, 0] == 0)
    n, e = body.vertices.shape[0], len(body.elements)
    params = fem.Params(body, law(1000.0, 1e4, 0.3), 1e-2, pinned=pinned)
    x = np.broadcast_to(body.vertices, (worlds, n, dim)) + 0.005 * rng.normal(size=(worlds, n, dim))
    inputs = {
        "x": x,
        "v": rng.normal(size=x.shape),
        "vertices": body.vertices + 0.002 * rng.normal(size=body.vertices.shape),
        "density": 1 + 0.1 * rng.uniform(size=e),
        "young": 1 + 0.1 * rng.uniform(size=e),
        "poisson": poisson / 0.3 * (1 - 0.02 * rng.uniform(size=e)),
        "timestep": np.ones(1),
        "gravity": rng.normal(size=(1, dim)),
        "damping": np.array([0.3]),
        "force": rng.normal(size=x.shape),
        "pins": (body.vertices[pinned] + 0.004 * rng.normal(size=(len(pinned), dim)))[None],
    }
    return params, {k: jnp.asarray(v, float) for k, v in inputs.items()}


def rollout(params: fem.Params, inputs: dict[str, Any], steps: int = 1) -> Any:
    """Positions and velocities after some steps, in their units; the pins move on with each."""
    given = {k: v * UNITS.get(k, 1.0) for k, v in inputs.items()}
    law = params.material.replace(**{k: given[k] for k in ("density", "young", "poisson")})
    named = {k: given[k] for k in ("timestep", "gravity", "damping")}
    params = params.replace(mesh=params.mesh.replace(vertices=given["vertices"]), material=law, **named)
    count = len(given["x"])
    start = fem.State(given["x"], given["v"], jnp.zeros(count), jnp.zeros(count, jnp.uint32))

    def advance(state: fem.State, k: Any) -> tuple[fem.State, None]:
        pins, muscle = given["pins"] + 0.002 * jnp.sin(k), given.get("actuation")
        return fem.step(params, state, given["force"], muscle, pins), None

    if steps == 1:
        end = advance(start, 0.0)[0]
    else:
        end, _ = jax.lax.scan(advance, start, jnp.arange(steps, dtype=float))
    return end.x, end.v / UNITS["v"], end.status


def check(params: fem.Params, inputs: dict[str, Any], status: int = 0, steps: int = 1, directions: int = 1) -> None:
    def fn(given: dict[str, Any]) -> Any:
        return rollout(params, given, steps)

    check_grads(fn, (inputs,), directions=directions, steps=STEPS)
    assert np.asarray(jax.jit(fn)(inputs)[2]).tolist() == [status]


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("law", LAWS)
def test_every_input(law: Any, dim: int, full: bool):
    check(*scene(law, dim), directions=8 if full else 1)


@pytest.mark.parametrize(
    ("law", "dim", "steps"), [(fem.NeoHookean, 3, 10), (fem.Corotated, 2, 60), (fem.StVenantKirchhoff, 2, 10)]
)
def test_many_steps(law: Any, dim: int, steps: int, full: bool):
    check(*scene(law, dim), steps=steps, directions=8 if full else 1)


def test_a_long_rollout():
    """300 steps of second order, which damp hardly: the gradient is that of differences; it does not grow or vanish."""
    params, inputs = scene(fem.NeoHookean, 2)
    params = params.replace(order=2)
    names = ("v", "young")

    def end(steps: int) -> Any:
        return jax.jit(lambda given: rollout(params, inputs | given | {"damping": jnp.zeros(1)}, steps)[:2])

    given = {name: inputs[name] for name in names}
    check_grads(end(300), (given,), directions=1, steps=STEPS)
    size = {}
    for steps in (30, 300):
        run = end(steps)
        found = jax.grad(lambda g, run=run: jnp.sum(run(g)[1] ** 2))(given)
        size[steps] = [float(jnp.linalg.norm(found[name])) for name in names]
    assert all(0.01 < late / early < 1e3 for late, early in zip(size[300], size[30], strict=True))


def test_where_poissons_ratio_is_nearly_a_half():
    check(*scene(fem.NeoHookean, 3, poisson=0.49))


def crushed(law: Any, dim: int = 3) -> tuple[fem.Params, dict[str, Any]]:
    """An element that a pin turns inside out."""
    params, inputs = scene(law, dim)
    params = params.replace(pinned=(*params.pinned, len(params.mesh.vertices) - 1))
    beyond = np.zeros((1, 1, dim))
    beyond[..., 0] = 0.1
    return params, inputs | {"pins": jnp.concatenate([inputs["pins"], jnp.asarray(beyond)], 1)}


@pytest.mark.parametrize(("law", "dim"), [(fem.NeoHookean, 2), (fem.NeoHookean, 3), (fem.Corotated, 2)])
def test_an_inverted_element(law: Any, dim: int):
    """Its curvature is negative in some directions, so that the Hessian is not the one that Newton's method took."""
    check(*crushed(law, dim), status=int(fem.Status.INVERTED))


def test_an_equilibrium():
    """At rest, under loads and pins: the velocity, density of no weight and damping do not count."""
    params, inputs = scene(fem.NeoHookean, 2)
    at_rest = params.replace(timestep=jnp.inf)

    def found(given: dict[str, Any]) -> Any:
        return rollout(at_rest, given | {"timestep": jnp.full(1, jnp.inf)})[0]

    by = jax.grad(lambda given: found(given)[0, -1, 1])(inputs)
    assert not by["v"].any() and not by["damping"].any() and by["gravity"].any()
    used = {k: inputs[k] for k in ("vertices", "young", "poisson", "density", "gravity", "force", "pins")}
    check_grads(lambda given: found(inputs | given), (used,), directions=1, steps=STEPS)


@pytest.mark.parametrize(
    ("law", "dim"), [(fem.NeoHookean, 2), (fem.Corotated, 3), (fem.StVenantKirchhoff, 3), ("inverted", 3)]
)
def test_a_step_is_the_minimum_that_plain_jax_finds(law: Any, dim: int):
    """A step of the plain potential's own Newton's method, with a dense Hessian, goes nowhere from there."""
    params, inputs = crushed(fem.NeoHookean, dim) if law == "inverted" else scene(law, dim)
    params = params.replace(gravity=(0.0, -9.81, 1.0)[:dim], damping=0.3)
    x, v, force = inputs["x"], 0.1 * inputs["v"], inputs["force"]
    start = fem.State(x, v, jnp.zeros(1), jnp.zeros(1, jnp.uint32))
    found = fem.step(params, start, force, pins=inputs["pins"]).x[0]
    polished = plain_fem.newton(params, x[0], v[0], force[0], found)
    np.testing.assert_allclose(found, polished, rtol=0, atol=1e-11)
    assert np.abs(found - x[0]).max() > 1e-3


def test_float32_against_float64():
    params, inputs = scene(fem.NeoHookean, 3)

    def gradient(real: Any) -> Any:
        given = {k: v.astype(real) for k, v in inputs.items()}
        start = fem.init(params, given["x"], UNITS["v"] * given["v"])
        return jax.grad(lambda f: (fem.step(params, start, f).x ** 2).sum())(UNITS["force"] * given["force"])

    single, double = (np.asarray(gradient(real), float) for real in (jnp.float32, jnp.float64))
    assert np.abs(single - double).max() <= 1e-3 * np.abs(double).max()


def test_coincident_vertices_have_a_finite_gradient():
    params, inputs = scene(fem.NeoHookean, 3)
    x = inputs["x"].at[0, -1].set(inputs["x"][0, -2])
    found = jax.grad(lambda given: sum(jnp.sum(y**2) for y in rollout(params, given)[:2]))(inputs | {"x": x})
    assert all(np.isfinite(g).all() for g in found.values())


def test_transforms():
    """Two worlds, parameters shared and not."""
    params, inputs = scene(fem.NeoHookean, 2, worlds=2)
    names = ("timestep", "vertices", "x", "v", "force")
    shared = inputs | {"vertices": inputs["vertices"][None]}

    def step(*given: Any) -> Any:
        return rollout(params, shared | dict(zip(names, given, strict=True)))[:2]

    check_transforms(step, [shared[k] for k in names], max_patterns=2, batches=(3,), rtol=1e-8, atol=1e-10)
