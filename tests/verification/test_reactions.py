"""What a step does to its colliders is what matter loses to them, to rounding."""

from typing import Any

import jax
import numpy as np
import pytest

from fphys.deformables import mesh, pbd, rod
from fphys.particles import boundary, mpm

WORLDS = 2
SPEEDS = np.array([[0.3, 0.0, 0.5], [0.0, -0.4, 0.2]])  # of the ball, one for each world
SPINS = np.array([[0.0, 4.0, 0.0], [3.0, 0.0, 1.0]])
GRAVITY = (0.0, 0.0, -9.81)


def shapes(x: Any, contact: str) -> tuple[boundary.Collider, ...]:
    """A ball that pushes into the matter from below, moving and turning, and a plane that leans on it."""
    low = np.asarray(x).min((0, 1))
    middle = np.asarray(x).mean((0, 1))
    ball = boundary.sphere((middle[0], middle[1], low[2] - 0.03), 0.05, contact, 0.4, velocity=SPEEDS, spin=SPINS)
    wall = boundary.plane((low[0] + 0.004, 0.0, 0.0), (1.0, 0.2, 0.0), contact, 0.2, velocity=(0.1, 0.0, 0.0))
    return ball, wall


def sand(_: int) -> tuple[Any, Any, Any]:
    params = mpm.Params(
        mpm.Corotated(young=1e4, poisson=0.3, density=1000.0), 1e-3, gravity=GRAVITY, cell=0.02, shape=(20, 20, 20)
    )
    axis = 0.15 + 0.01 * np.arange(10)
    x = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)
    state = mpm.init(params, np.stack([x, x]), volume=1e-6)
    mass = 1000.0 * np.asarray(state.volume)
    return params, state, mass


def cloth(substeps: int) -> tuple[Any, Any, Any]:
    params = pbd.Params(
        mesh.cloth((8, 8), (0.2, 0.2)), 0.5, 5e-3, gravity=GRAVITY, thickness=0.01, substeps=substeps, bend=1e-4
    )
    state = pbd.init(params, num_worlds=WORLDS)
    return params, state, np.broadcast_to(pbd.masses(params), state.x.shape[:2])


def cable(substeps: int) -> tuple[Any, Any, Any]:
    params = rod.Params(
        mesh.rope(12, 0.2), 0.1, 0.005, 5e-3, bend=1e-3, twist=1e-3, gravity=GRAVITY, thickness=0.01, substeps=substeps
    )
    state = rod.init(params, num_worlds=WORLDS)
    length = 0.2 / 12
    mass = np.full(13, 0.1 * length)
    mass[[0, -1]] /= 2
    return params, state, np.broadcast_to(mass, state.x.shape[:2])


SOLVERS = {"mpm": (mpm, sand), "pbd": (pbd, cloth), "rod": (rod, cable)}


CASES = [(name, contact, None) for name in SOLVERS for contact in ("separate", "sticky")]


@pytest.mark.parametrize(("name", "contact", "width"), [*CASES, ("mpm", "slip", None), ("mpm", "separate", 0.03)])
def test_they_are_the_momentum_that_is_lost(name: str, contact: str, width: float | None):
    solver, make = SOLVERS[name]
    params, state, mass = make(4)
    colliders = tuple(c.replace(width=width) for c in shapes(state.x, contact))
    step, reactions = jax.jit(solver.step), jax.jit(solver.reactions)
    for k in range(3):
        wrench = np.asarray(reactions(params, state, colliders=colliders))
        after = step(params, state, colliders=colliders)
        gained = (mass[..., None] * np.asarray(after.v - state.v)).sum(1)
        fall = np.array(GRAVITY) * mass.sum(1)[:, None] * params.timestep
        assert wrench.shape == (WORLDS, 2, 6) and (k > 0 or (np.abs(wrench[:, :, :3]).max(-1) > 1e-3).all())
        np.testing.assert_allclose(-wrench[..., :3].sum(1) * params.timestep, gained - fall, atol=1e-12)
        state = after


@pytest.mark.parametrize("name", ["mpm", "pbd"])
def test_torques_are_about_the_colliders_origins(name: str):
    """The angular momentum that is lost, of one step without gravity; XPBD's of one substep, as others turn forces."""
    solver, make = SOLVERS[name]
    params, state, mass = make(1)
    params, (ball, _) = params.replace(gravity=0.0), shapes(state.x, "separate")
    reached = jax.jit(solver.reactions)(params, state, colliders=ball)
    after = jax.jit(solver.step)(params, state, colliders=ball)
    x, at = np.asarray(state.x), np.asarray(ball.pos)
    if name == "mpm":  # what a particle carries in C has moments too: those of the nodes, which meet at C = 0 here
        moved = np.asarray(after.v)
        spin = np.asarray(after.C)
        own = mass[..., None] * (params.cell**2 / 4) * _axial(spin)
        gained = (np.cross(np.asarray(after.x) - at, mass[..., None] * moved) + own).sum(1)
    else:
        gained = np.cross(x - at, mass[..., None] * np.asarray(after.v)).sum(1)
    found = -np.asarray(reached)[:, 0, 3:] * params.timestep
    assert np.abs(found).max() > 1e-7
    np.testing.assert_allclose(found, gained, atol=1e-12)


def _axial(c: np.ndarray) -> np.ndarray:
    """The angular velocity of the skew part, which has a moment of inertia m cell^2 / 2."""
    return np.stack([c[..., 2, 1] - c[..., 1, 2], c[..., 0, 2] - c[..., 2, 0], c[..., 1, 0] - c[..., 0, 1]], -1)


def test_a_heap_at_rest_weighs_what_it_weighs():
    """A block of rubber in a plane, which lies on a floor."""
    params = mpm.Params(
        mpm.Corotated(young=1e5, poisson=0.3, density=1000.0), 1e-3, gravity=(0.0, -10.0), cell=0.05, shape=(20, 20)
    )
    axis = 0.4 + 0.025 * np.arange(8)
    x = np.stack(np.meshgrid(axis, axis - 0.18, indexing="ij"), -1).reshape(-1, 2)
    state = mpm.init(params, x[None], volume=0.025**2)
    floor = boundary.plane((0.0, 0.2), (0.0, 1.0), "sticky")

    def settle(state: Any, _: None) -> tuple[Any, Any]:
        state = mpm.step(params, state, colliders=floor).replace(v=0.99 * state.v)
        return state, None

    state = jax.jit(lambda s: jax.lax.scan(settle, s, None, 2000)[0])(state)
    wrench = mpm.reactions(params, state, colliders=floor)[0, 0]
    np.testing.assert_allclose(wrench[:3], [0, -64 * 0.025**2 * 1e4, 0], atol=0.02 * 400)


def test_a_collider_that_touches_nothing_feels_nothing_and_none_is_allowed():
    for name in ("mpm", "pbd"):
        solver, make = SOLVERS[name]
        params, state, _ = make(1)
        far = boundary.sphere((0.2, 0.2, -5.0), 0.05)
        assert not np.asarray(jax.jit(solver.reactions)(params, state, colliders=far)).any(), name
        assert solver.reactions(params, state).shape == (WORLDS, 0, 6)


@pytest.mark.parametrize("name", ["mpm", "pbd"])
def test_a_world_that_takes_no_step_gives_nothing_and_no_gradient(name: str):
    solver, make = SOLVERS[name]
    params, state, _ = make(2)
    ball, wall = shapes(state.x, "separate")

    def felt(speeds: Any, steps: Any) -> jax.Array:
        colliders = ball.replace(velocity=speeds), wall
        return solver.reactions(params.replace(timestep=steps), state, colliders=colliders)

    @jax.jit
    def both(speeds: Any, steps: Any) -> Any:
        return felt(speeds, steps), jax.grad(lambda *given: (felt(*given) ** 2).sum(), argnums=(0, 1))(speeds, steps)

    steps = np.full(WORLDS, params.timestep)
    good, slopes = both(SPEEDS, steps)
    wrong = (SPEEDS, np.array([-1.0, 1.0]) * steps), (SPEEDS * [[np.nan], [1.0]], steps)
    for given in wrong[: 1 if name == "mpm" else 2]:  # MPM has no screening of a collider's motion: its nodes have
        found, own = both(*given)
        for a, b in zip(jax.tree.leaves((found, own)), jax.tree.leaves((good, slopes)), strict=True):
            np.testing.assert_array_equal(a[0], 0)
            np.testing.assert_allclose(a[1], b[1], rtol=1e-9, atol=1e-12)
