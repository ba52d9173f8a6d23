"""Explicit steps of finite elements: what stays, how exact they are, and the limit of the time step."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.deformables import fem, mesh
from fphys.errors import StateError

step = jax.jit(fem.step)


def bar(timestep: float, dim: int = 3, law: Any = fem.NeoHookean, **changed: Any) -> fem.Params:
    body = mesh.box((3, 1, 1)[:dim], (0.3, 0.1, 0.1)[:dim])
    return fem.Params(body, law(1000.0, 1e5, 0.3), timestep, explicit=True, **changed)


def swung(params: fem.Params, size: float = 0.05) -> fem.State:
    """The bar, stretched, sheared and spun."""
    x, dim = params.mesh.vertices, params.mesh.dim
    v = 2.0 * np.stack([-x[:, 1], x[:, 0], *(0 * x[:, :1].T)], 1)[:, :dim] + 0.3
    shape = np.eye(dim) + size * np.random.default_rng(0).uniform(-1, 1, (dim, dim))
    return fem.init(params, jnp.asarray(x @ shape.T)[None], jnp.asarray(v)[None])


def run(params: fem.Params, state: fem.State, steps: int) -> tuple[fem.State, Any]:
    """The state after some steps, and positions and velocities of every one."""

    @jax.jit
    def rolled(state: fem.State) -> Any:
        def advance(s: fem.State, _: None) -> Any:
            s = fem.step(params, s)
            return s, (s.x[0], s.v[0])

        return jax.lax.scan(advance, state, None, steps)

    return rolled(state)


def masses(params: fem.Params) -> np.ndarray:
    body = params.mesh
    mass = np.zeros(len(body.vertices))
    part = 1000.0 * mesh.measures(body.vertices, body.elements) / body.elements.shape[1]
    np.add.at(mass, body.elements, part[:, None])
    return mass[:, None]


def elastic(params: fem.Params, x: np.ndarray) -> np.ndarray:
    """Neo-Hookean energy of the elements, less that at rest, (time,)."""
    from ..deformables import plain_fem

    e = params.mesh.elements
    rest = plain_fem.edges(jnp.asarray(params.mesh.vertices), e)
    volume = mesh.measures(params.mesh.vertices, e)

    def of(y: Any) -> Any:
        f = jnp.einsum("eij,ejk->eik", plain_fem.edges(y, e), jnp.linalg.inv(rest))
        return (volume * plain_fem.density(params.material, f)).sum()

    return np.asarray(jax.jit(jax.vmap(of))(x) - of(jnp.asarray(params.mesh.vertices)))


def test_both_momenta_and_the_energy_stay(full: bool):
    """To rounding; and the energy within 1 %, at a fifth of the longest time step."""
    params = bar(5e-4)
    start = swung(params)
    end, (x, v) = run(params, start, 10_000 if full else 2_000)
    fem.check(params, end)
    mass = masses(params)
    for moment in (lambda x, v: mass * v, lambda x, v: mass * np.cross(x, v)):
        before, after = moment(np.asarray(start.x[0]), np.asarray(start.v[0])), moment(*map(np.asarray, (x[-1], v[-1])))
        np.testing.assert_allclose(after.sum(0), before.sum(0), rtol=0, atol=1e-10 * np.abs(before).sum())
    x, v = (np.concatenate([np.asarray(a), np.asarray(b)]) for a, b in ((start.x, x), (start.v, v)))
    x, v = x[::50], v[::50]
    energy = (0.5 * mass * v**2).sum((1, 2)) + elastic(params, x)
    own = energy - 0.5 * (mass * v[0]).sum(0) @ (mass * v[0]).sum(0) / mass.sum()  # without that of the flight
    assert np.abs(own / own[0] - 1).max() < 0.01 and elastic(params, x).max() > 0.02 * own[0]


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("law", [fem.NeoHookean, fem.Corotated, fem.StVenantKirchhoff])
def test_the_error_falls_with_the_square_of_the_step(law: Any, dim: int):
    """Strongly damped, with weight, a force, a muscle and pins; against small implicit steps of second order."""
    force, pull = np.zeros((1, 1, dim)), 500.0 * np.eye(3)[None, None]
    force[..., 0] = 0.2
    loads, muscle = jnp.asarray(force), jnp.asarray(pull)
    ends = {}
    for h, explicit in ((2e-3, True), (1e-3, True), (2.5e-4, False)):
        params = bar(h, dim, law, gravity=(0.5, -1.0, 0.3)[:dim], damping=50.0, pinned=(0, 1)).replace(
            explicit=explicit
        )
        params = params.replace(order=1 if explicit else 2)
        fly = jax.jit(lambda s, p=params: fem.step(p, s, loads, actuation=muscle))
        state = swung(params, 0.02)
        for _ in range(round(0.02 / h)):
            state = fly(state)
        fem.check(params, state)
        ends[h] = np.asarray(state.x)
    coarse, fine = (np.abs(ends[h] - ends[2.5e-4]).max() for h in (2e-3, 1e-3))
    assert 1e-8 < fine < 0.35 * coarse and coarse < 2e-3


@pytest.mark.parametrize("dim", [2, 3])
def test_the_courant_limit(dim: int):
    """Below it steps are stable; a little above it is reported; at two and a half times it the body flies apart."""
    params = bar(1e-4, dim)
    said = step(params.replace(timestep=1.0), fem.init(params))
    with pytest.raises(StateError, match=r"CFL: params.timestep is above (\S+) s, below which") as found:
        fem.check(params.replace(timestep=1.0), said)
    longest = float(str(found.value).split("above ")[1].split(" s")[0])
    near = swung(params, 1e-6)
    for part, status in ((0.99, 0), (1.02, int(fem.Status.CFL))):
        now = params.replace(timestep=part * longest)
        end, (x, _) = run(now, near, 400)
        assert int(end.status[0]) == status
        if not status:
            stretch = mesh.measures(np.asarray(x[-1]), now.mesh.elements) / mesh.measures(
                now.mesh.vertices, now.mesh.elements
            )
            assert np.abs(stretch - 1).max() < 0.01
    wild, _ = run(params.replace(timestep=2.5 * longest), near, 400)
    assert int(wild.status[0]) & int(fem.Status.INVERTED | fem.Status.NONFINITE)
