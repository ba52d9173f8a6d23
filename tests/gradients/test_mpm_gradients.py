"""Gradients of the material point method against centred differences: every input, material and dimension."""

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.bridge import op as bridge_op
from fphys.particles import boundary, mpm, mpm_stages
from fphys.testing import check_grads, check_transforms

from ..particles.mpm_scenes import MATERIALS, scene, with_worlds

PLASTIC = ("snow", "sand", "mohr-coulomb", "von-mises")
FEW = 6
"""Numbers of an input up to which each is checked by itself: a random direction along one number is a random step."""

STEPS = (1e-5, 1e-6, 1e-7)
"""A slope of 3e-5 drowns in rounding at these, so random directions may use 1e-4 as well."""
Case = tuple[mpm.Params, mpm.State, Any, Any, Any]


def case(name: str, dim: int, contact: str = "slip", worlds: int = 1, hold: str = "nodes") -> Case:
    """A cloud against walls and two moving colliders, with a force and a muscle on each particle."""
    params, state = scene(name, dim, worlds=worlds, contact=contact, hold=hold)
    rng = np.random.default_rng(2)
    force = jnp.asarray(5e3 * np.asarray(state.volume)[..., None] * rng.normal(size=state.x.shape))  # half the weights
    muscle = jnp.asarray(200.0 * rng.normal(size=state.F.shape))
    ball = boundary.sphere((0.15, 0.12, 0.1), 0.1, "slip", 0.3, velocity=(0.1, 0.2, 0.0), spin=(0.0, 0.0, 1.0))
    floor = boundary.plane((0.0, 0.02, 0.0), (0.2, 1.0, 0.1), "separate", 0.1, velocity=(0.15, 0.2, 0.0))
    params = with_worlds(params, dim)
    speeds = jnp.asarray(0.1 * rng.normal(size=params.walls.velocity.shape))  # no two faces that move alike
    params = params.replace(walls=params.walls.replace(velocity=speeds))
    colliders = tuple(boundary.prepared(c, i, float, dim, worlds) for i, c in enumerate((ball, floor)))
    return params, state, force, muscle, colliders


def rollout(case: Case, steps: int = 20) -> tuple[Any, ...]:
    params, state, force, muscle, colliders = case

    def advance(s: mpm.State, _: None) -> tuple[mpm.State, None]:
        return mpm.step(params, s, force, muscle, colliders), None

    s = jax.lax.scan(advance, state, None, length=steps)[0]
    return s.x, s.v, s.C / 10, s.F, s.history


def scaled(case: Any, factors: Any) -> Any:
    """Every number times its factor: differences in units of the numbers' own."""
    return jax.tree.map(lambda x, k: x * k if x.dtype == float else x, case, factors)


def ones(case: Any) -> Any:
    return jax.tree.map(lambda x: jnp.ones_like(x) if x.dtype == float else x, case)


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("name", [name for name in MATERIALS if name not in PLASTIC])
def test_twenty_steps(name: str, dim: int, full: bool):
    check_by_everything(case(name, dim), 16 if full else 3)


@pytest.mark.parametrize("contact", ["sticky", "separate"])
def test_other_walls(contact: str):
    check_by_everything(case("corotated", 3, contact), 3)


@pytest.mark.parametrize("contact", ["slip", "separate"])
def test_walls_held_at_their_faces(contact: str):
    check_by_everything(case("corotated", 3 if contact == "slip" else 2, contact, hold="face"), 3)


@pytest.mark.parametrize("dim", [2, 3])
def test_affine_flip(dim: int):
    """By the share that particles keep, too."""
    params, state, force, muscle, colliders = case("liquid" if dim == 2 else "corotated", dim)
    params = params.replace(transfer=mpm.AffineFlip(jnp.full(1, 0.9)))
    check_by_everything((params, state, force, muscle, colliders), 3)


def check_by_everything(given: Case, directions: int) -> None:
    at, tree = jax.tree.flatten(ones(given))
    few, many = ({i: x for i, x in enumerate(at) if x.dtype == float and (x.size <= FEW) == small} for small in (1, 0))

    def fn(few: dict[int, Any], many: dict[int, Any]) -> Any:
        return rollout(scaled(given, tree.unflatten([(few | many).get(i, x) for i, x in enumerate(at)])))

    check_grads(fn, (few, many), tol=1e-6, argnums=0, elementwise=True)
    check_grads(fn, (few, many), tol=1e-6, argnums=1, directions=directions, steps=(1e-5, 1e-4, *STEPS[1:]))


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("name", PLASTIC)
def test_twenty_steps_that_yield(name: str, dim: int, full: bool):
    """Directions along which a particle begins or ends to yield within the smallest difference are left out."""
    errors, kinks = errors_along(case(name, dim), 16 if full else 3, 1e-5)
    assert max(errors) <= 1e-5
    assert kinks <= 0.2 * (len(errors) + kinks)


def errors_along(given: Case, directions: int, tolerance: float) -> tuple[list[float], int]:
    """The gradient error by each of few numbers, along random directions of others, and along how many there is a kink.

    A kink shows in the slopes to both sides: where the function is smooth they differ by h f'', ten times less for a
    step ten times as small.
    """
    at, tree = jax.tree.flatten(ones(given))
    rng = np.random.default_rng(3)
    weights = [rng.standard_normal(y.shape) for y in jax.eval_shape(lambda: rollout(given))]
    value = jax.jit(
        lambda k: sum(jnp.sum(w * y) for w, y in zip(weights, rollout(scaled(given, tree.unflatten(k))), strict=True))
    )
    floats = [i for i, x in enumerate(at) if x.dtype == float]
    grads = jax.jit(jax.grad(lambda xs: value([xs.get(i, x) for i, x in enumerate(at)])))({i: at[i] for i in floats})
    errors, kinks, middle = [], 0, float(value(at))
    for i in floats:
        few = np.eye(at[i].size) if at[i].size <= FEW else rng.standard_normal((directions, at[i].size))
        for d in few.reshape(-1, *at[i].shape):
            sides = {h: [float(value([*at[:i], at[i] + s * h * d, *at[i + 1 :]])) for s in (1, -1)] for h in STEPS}
            slope = float(jnp.sum(grads[i] * d))
            floor = 1e-3 * float(jnp.linalg.norm(grads[i]) * np.linalg.norm(d))
            slopes = {h: (up - down) / (2 * h) for h, (up, down) in sides.items()}
            gaps = {h: (abs(slope - fd), max(abs(fd), floor)) for h, fd in slopes.items()}
            error = min(gap / size if size else gap for gap, size in gaps.values())
            bends = [abs(sum(sides[h]) - 2 * middle) / h for h in STEPS]
            if error > tolerance and any(small > 0.3 * large for large, small in itertools.pairwise(bends)):
                kinks += 1
            else:
                errors.append(error)
    return errors, kinks


def test_float32_against_float64():
    given = case("all", 3)

    def gradient(real: Any) -> Any:
        cast = jax.tree.map(lambda x: jnp.asarray(x, real) if x.dtype == float else x, given)
        grad = jax.grad(
            lambda x, v: sum((y**2).sum() for y in rollout((cast[0], cast[1].replace(x=x, v=v), *cast[2:])))
        )
        return grad(cast[1].x, cast[1].v)

    single, double = (np.asarray(gradient(real), np.float64) for real in (np.float32, np.float64))
    assert np.median(np.abs(single - double) / np.maximum(np.abs(double), 1e-3 * np.abs(double).max())) <= 1e-3


def test_transforms():
    """Two worlds, parameters shared and not, a force of each world's own."""
    params, state, force, _, _ = case("all", 2, worlds=2)
    args = (params.timestep, params.gravity, state.x, state.v, force)

    def step(timestep: Any, gravity: Any, x: Any, v: Any, force: Any) -> Any:
        after = mpm.step(params.replace(timestep=timestep, gravity=gravity), state_of(state, x, v), force)
        return after.x, after.v, after.C, after.F, after.history

    check_transforms(step, args, max_patterns=4, batches=(1, 3), rtol=1e-9)


def state_of(state: mpm.State, x: Any, v: Any) -> mpm.State:
    """As many worlds as the positions have, the rest from the first."""
    rest = jax.tree.map(lambda a: jnp.broadcast_to(a[:1], (x.shape[0], *a.shape[1:])), state)
    return rest.replace(x=x, v=v)


def test_no_part_of_the_adjoint_is_idle(monkeypatch: pytest.MonkeyPatch):
    """Without any one of the adjoint launches the gradient is another, and a check against differences would fail."""
    given = case("corotated", 3)
    honest = bridge_op.plan_backward

    def gradient(left_out: int | None) -> Any:
        """Of two steps, by positions and by the ball's velocity."""

        def changed(*args: Any) -> Any:
            plan, scratch = honest(*args)
            adjoints = [launch for launch, adjoint in plan.launches if adjoint]
            if left_out is not None:
                dropped = adjoints[left_out]
                kept = [(launch, adjoint) for launch, adjoint in plan.launches if not (adjoint and launch is dropped)]
                plan = dataclasses.replace(plan, launches=kept)
            count.append(len(adjoints))
            replayed.append([launch.kernel.key for launch, adjoint in plan.launches if not adjoint])
            return plan, scratch

        monkeypatch.setattr(bridge_op, "plan_backward", changed)
        for cached in (mpm_stages.whole.operation, mpm_stages.whole.adjoint, mpm_stages.whole.backward_plan):
            cached.cache_clear()

        def loss(x: Any, spin: Any) -> Any:
            ball, *rest = given[4]
            scene = (given[0], given[1].replace(x=x), given[2], given[3], (ball.replace(spin=spin), *rest))
            return sum((y**2).sum() for y in rollout(scene, 2))

        return jax.grad(loss, argnums=(0, 1))(given[1].x, given[4][0].spin)

    count: list[int] = []
    replayed: list[list[str]] = []
    right = gradient(None)
    assert count[0] == 3  # scatter, move among the colliders, gather
    assert replayed[0] == ["scatter", "near", "move_among"]  # nobody reads what is collected
    for left_out in range(count[0]):
        wrong = gradient(left_out)
        gaps = [float(jnp.linalg.norm(a - b) / jnp.linalg.norm(a)) for a, b in zip(right, wrong, strict=True)]
        assert max(gaps) > 1e-4
    monkeypatch.undo()
    for cached in (mpm_stages.whole.operation, mpm_stages.whole.adjoint, mpm_stages.whole.backward_plan):
        cached.cache_clear()
