"""Gradients of SPH against centred differences, over substeps in which neighbours come and go."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys import scan
from fphys.particles import sph, sph_sums
from fphys.particles.neighbors import in_space, neighbors
from fphys.testing import check_grads

from ..particles.sph_scenes import lattice, pool
from ..rigid.mechanisms import in_own_units

STEPS = 24
SIZES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-8, 1e-9)


def end(params: Any, state: sph.State, x: Any, v: Any, force: Any, wall_velocity: Any, steps: int = STEPS) -> Any:
    """Where the pool is after some steps: positions, velocities, densities and pressures as fractions."""
    start = state.replace(x=x, v=v)
    last, _ = scan(lambda s, _: (sph.step(params, s, force, wall_velocity), None), start, jnp.arange(steps))
    return last.x, last.v, last.rho / 1000, last.p / 1e5


def check_by_everything(moved: Any, args: tuple[Any, ...], full: bool) -> None:
    """Each parameter by itself, for a random direction along one number is a random step; the rest along directions."""
    measured, (args,) = in_own_units(lambda given: moved(*given), (args,))
    fn, others = (lambda *given: measured(given)), tuple(range(1, len(args)))
    check_grads(fn, args, tol=1e-6, argnums=0, elementwise=True)
    check_grads(fn, args, tol=1e-6, argnums=others, directions=16 if full else 2)


@pytest.mark.parametrize(("dim", "steps"), [(2, STEPS), (3, 20)])
def test_gradients_by_everything(dim: int, steps: int, full: bool):
    params, state = pool(dim=dim, worlds=1, noise=0.2, viscosity=20.0)  # with less, differences by it are rounding
    force = jnp.asarray(50 * np.random.default_rng(1).standard_normal(state.x.shape))  # as large as weights
    wall = 0.1 * jnp.ones_like(state.v)

    def moved(params: Any, x: Any, v: Any, rho: Any, force: Any, wall: Any) -> Any:
        return end(params, state.replace(rho=rho), x, v, force, wall, steps)

    args = (params, state.x, state.v, state.rho, force, wall)
    check_by_everything(moved, args, full)
    before, after = (neighbors(state.grid, x, 80)[1] for x in (state.x, moved(*args)[0]))
    assert (before != after).sum() > 5  # neighbours came and went


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("forces", 0),
        ("rates", 1),
        ("extensions", 1),
        pytest.param("forces", 1, marks=pytest.mark.slow),
        pytest.param("forces", 2, marks=pytest.mark.slow),
        pytest.param("rates", 2, marks=pytest.mark.slow),
        pytest.param("tensions", 0, marks=pytest.mark.slow),
        pytest.param("tensions", 1, marks=pytest.mark.slow),
    ],
)
def test_a_gradient_without_one_part_is_noticed(name: str, part: int, monkeypatch: pytest.MonkeyPatch):
    """Each kernel's gradient by position, by state and by parameter, left out in turn."""
    params, state = pool(worlds=1, tension=70.0 if name == "tensions" else None)
    args = (params, state.x, state.v)

    def moved(params: Any, x: Any, v: Any) -> Any:
        return end(params, state, x, v, None, None, 3)

    whole = sph_sums._backward

    def without(what: Any, grid: Any) -> Any:
        backward = whole(what, grid)
        if what.name != name:
            return backward
        return lambda *given: tuple(0 * g if i == part else g for i, g in enumerate(backward(*given)))

    monkeypatch.setattr(sph_sums, "_backward", without)
    forget()
    try:
        with pytest.raises(AssertionError, match="have an error above"):
            check_grads(moved, args, tol=1e-5, directions=1, steps=SIZES)
    finally:
        forget()


def forget() -> None:
    """Trace again: what was traced holds the gradient that it was traced with."""
    sph_sums._operation.cache_clear()
    jax.clear_caches()


def test_coincident_particles_have_finite_gradients():
    params, state = pool(worlds=1)
    x = state.x.at[0, 1].set(state.x[0, 0])

    def far(x: Any, v: Any) -> Any:
        return sum(jnp.sum(y**2) for y in end(params, state, x, v, None, None, 2))

    for grad in jax.jit(jax.grad(far, argnums=(0, 1)))(x, state.v):
        assert np.isfinite(grad).all() and np.abs(grad[0, :2]).max() > 0


def test_beside_a_walls_kink_the_gradient_is_that_of_its_side():
    """A fluid and a wall particle, by the reference density: the wall's pressure is zero where the densities agree.

    Shorter differences than the way to the kink find the gradient, longer ones the mean of both sides.
    """
    params = sph.Params(0.02, 1e-3, 10.0)
    kind = np.array([sph.FLUID, sph.WALL], np.int32)
    state = sph.init(params, jnp.array([[[0.0, 0.0], [0.02, 0.0]]]), material=kind)

    @jax.jit
    def speed(reference: Any, rho: Any) -> Any:
        """Of the fluid, away from the wall [mm/s]."""
        return -1e3 * sph.step(params.replace(density=1000 * reference), state.replace(rho=rho * state.rho)).v[0, 0, 0]

    def difference(rho: float, far: float) -> float:
        return float(speed(1 + far, rho) - speed(1 - far, rho)) / (2 * far)

    below, above = 1 - 1e-7, 1 + 1e-7  # a suction of 0.01 Pa, and a pressure
    slope = {rho: float(jax.jit(jax.grad(speed))(1.0, rho)) for rho in (below, above)}
    assert slope[above] == pytest.approx(2 * slope[below], rel=1e-3)
    for rho in (below, above):
        assert difference(rho, 5e-8) == pytest.approx(slope[rho], rel=1e-6)  # 1e-7 is the way to the kink
        assert difference(rho, 1e-5) == pytest.approx((slope[below] + slope[above]) / 2, rel=0.02)


def test_single_precision_has_nearly_the_gradient_of_double():
    found = []
    for dtype in ("float32", "float64"):
        params, state = pool(dtype, worlds=1)

        def far(x: Any, v: Any, params: Any = params, state: Any = state) -> Any:
            return jnp.sum(end(params, state, x, v, None, None)[0] ** 2)

        found.append([np.asarray(g, float) for g in jax.jit(jax.grad(far, argnums=(0, 1)))(state.x, state.v)])
    for single, double in zip(*found):
        assert np.median(np.abs(single - double) / np.maximum(np.abs(double), 1e-3 * np.abs(double).max())) < 1e-3


def test_a_sum_is_differentiated_across_the_edge_of_a_period():
    rng = np.random.default_rng(0)
    params = sph.Params(0.1, 1e-3, 20.0, periodic=((0.0, 1.0), (0.0, 1.0)))
    state = sph.init(params, rng.uniform(0, 1, (1, 60, 2)), max_neighbors=59)

    def force(x: Any) -> Any:
        return sph.forces(params, state.replace(x=x, rho=state.rho * (1 + 0.01 * jnp.sin(6 * in_space(x)[..., 0]))))

    assert check_grads(force, (state.x,), tol=1e-6, directions=4) < 1e-6


def test_gradients_with_transport_velocity(full: bool):
    """A sheared fluid between walls, periodic along them."""
    rng = np.random.default_rng(2)
    fluid, walls = lattice([0.0, 0.0], [1.0, 0.5], 0.1), lattice([0.0, -0.3], [1.0, 0.0], 0.1)
    x = np.concatenate([fluid, walls])[None]
    x[:, : len(fluid)] += 0.02 * rng.standard_normal((1, *fluid.shape))
    kind = np.repeat([sph.FLUID, sph.WALL], [len(fluid), len(walls)])
    params = sph.Params(
        0.1, jnp.array([2e-3]), jnp.array([10.0]), jnp.array([1.0]), jnp.array([[0.5, 0.0]]), jnp.array([0.1]),
        jnp.array([0.02]), jnp.array([0.1]), jnp.array([0.7]), transport=True, periodic=((0.0, 1.0), None),
    )  # fmt: skip
    state = sph.init(params, x, rng.standard_normal(x.shape), kind)

    def moved(params: Any, x: Any, v: Any) -> Any:
        start = state.replace(x=x, v=v)
        last, _ = scan(lambda s, _: (sph.step(params, s), None), start, jnp.arange(20))
        return last.x, last.v, last.rho, last.p / 100, last.shift

    check_by_everything(moved, (params, state.x, state.v), full)
