"""Incompressible SPH against dense matrices: steps, gradients, what is kept, and what is reported."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys import Status, scan
from fphys.errors import StateError
from fphys.particles import sph, sph_pressure
from fphys.testing import check_grads, check_transforms

from ..compiled import as_users
from . import plain_dfsph as plain
from .sph_scenes import pool, run

step = jax.jit(sph.step)
EXACT = {"method": "dfsph", "tolerance": 1e-13, "artificial": 0.0, "repulsion": 0.0, "timestep": 5e-3}


def calm(**changes: Any) -> tuple[sph.Params, sph.State]:
    """A jostled pool whose solve is converged to rounding, with drops above it: some fall into it, some rise."""
    params, state = pool(**EXACT | changes)
    water = state.kind == sph.FLUID
    top = water & (state.x[..., -1] > jnp.where(water, state.x[..., -1], 0).max(1, keepdims=True) - 0.08)
    turn = jnp.cumsum(top, 1)  # the first of them, the second, ...
    falls, rises = top & (turn % 3 == 0), top & (turn % 3 == 1)
    up = jnp.where(falls | rises, 0.05 if state.x.shape[-1] == 2 else 0.02, 0.0)
    faster = jnp.where(falls, -4.0, 0.0) + jnp.where(rises, 4.0, 0.0)
    return params, state.replace(x=state.x.at[..., -1].add(up), v=state.v.at[..., -1].add(faster))


def numbers(params: sph.Params) -> dict[str, Any]:
    """What the plain step takes of the parameters of one world."""
    names = ("timestep", "density", "viscosity")
    return {"spacing": params.spacing, "h": params.h, "gravity": params.gravity[0]} | {
        name: getattr(params, name)[0] for name in names
    }


@pytest.mark.parametrize("dim", [2, 3])
def test_a_step_is_that_of_dense_matrices(dim: int):
    params, state = calm(dim=dim)
    new = step(params, state)
    assert not new.status.any()
    kind = np.asarray(state.kind[1])
    x, v, p, rho, acting = plain.step(numbers(params), state.x[1], state.v[1], kind)
    fluid = kind == sph.FLUID
    assert 3 < acting.sum() < fluid.sum()  # some have a pressure, not all
    assert (acting & (np.asarray(rho) < 1000 * (1 - 1.1 * plain.lacking(params.spacing, params.h, dim)))).any()
    for got, wanted in ((new.x, x), (new.v, v), (new.p, p), (new.rho, rho)):
        assert np.abs(np.asarray(got[1] - wanted)[fluid]).max() < 1e-9 * np.abs(np.asarray(wanted)[fluid]).max()


def test_a_loose_solve_does_not_spoil_its_gradient():
    """Four steps at the default tolerance: steps that are differentiated solve to 1e-8 (2 % off if to 1e-4)."""
    params, state = pool(**EXACT | {"worlds": 1, "viscosity": 20.0})
    pull = np.random.default_rng(0).standard_normal(state.x.shape) * (np.asarray(state.kind) == sph.FLUID)[..., None]

    def gradient(tolerance: float) -> Any:
        loose = params.replace(tolerance=tolerance)
        last = lambda v: scan(lambda s, _: (sph.step(loose, s), None), state.replace(v=v), jnp.arange(4))[0]  # noqa: E731
        return jax.jit(jax.grad(lambda v: (last(v).x * pull).sum()))(state.v)

    exact = gradient(1e-13)
    assert jnp.linalg.norm(gradient(1e-4) - exact) < 1e-5 * jnp.linalg.norm(exact)


def test_the_gradient_is_that_of_dense_solves():
    params, state = calm(worlds=1)
    kind = np.asarray(state.kind[0])
    fluid = kind == sph.FLUID
    acting = plain.step(numbers(params), state.x[0], state.v[0], kind)[-1]
    rng = np.random.default_rng(3)
    pull_x, pull_v = rng.standard_normal((2, *state.x.shape[1:])) * fluid[:, None]
    pull_p = 1e-4 * rng.standard_normal(len(kind)) * fluid

    def ours(params: Any, x: Any, v: Any) -> Any:
        new = sph.step(params, state.replace(x=x, v=v))
        return (new.x[0] * pull_x).sum() + (new.v[0] * pull_v).sum() + (new.p[0] * pull_p).sum()

    def dense(params: Any, x: Any, v: Any) -> Any:
        x, v, p, *_ = plain.step(numbers(params), x[0], v[0], kind, acting)
        return (x * pull_x).sum() + (v * pull_v).sum() + (p * pull_p).sum()

    got, wanted = (jax.jit(jax.grad(f, argnums=(0, 1, 2)))(params, state.x, state.v) for f in (ours, dense))
    for name in ("timestep", "density", "viscosity", "gravity"):
        a, b = (np.asarray(getattr(g[0], name)) for g in (got, wanted))
        assert np.abs(a - b).max() < 1e-8 * np.abs(b).max(), name
    for a, b in zip(got[1:], wanted[1:]):
        assert np.abs(np.asarray(a - b)).max() < 1e-8 * np.abs(np.asarray(b)).max()


def test_gradients_over_steps(full: bool):
    """Against centred differences: small, so that no particle begins or ceases to push, but not all in the rounding."""
    params, state = calm(worlds=1, viscosity=20.0)

    def moved(x: Any, v: Any, gravity: Any, wall: Any) -> Any:
        start, given = state.replace(x=x, v=v), params.replace(gravity=gravity)
        last, _ = scan(lambda s, _: (sph.step(given, s, None, wall), None), start, jnp.arange(4))
        return last.x, last.v, last.p / 1e4

    args = (state.x, state.v, params.gravity, 0.1 * jnp.ones_like(state.v))
    check_grads(moved, args, tol=1e-5, directions=8 if full else 1, steps=(1e-6, 1e-5, 1e-4, 1e-3, 1e-7))


def test_a_gradient_without_the_adjoint_solve_is_noticed(monkeypatch: pytest.MonkeyPatch):
    params, state = calm(worlds=1)
    monkeypatch.setattr(sph_pressure, "_linear", lambda apply, diagonal, active, b: 0 * b)
    jax.clear_caches()
    try:
        with pytest.raises(AssertionError, match="have an error above"):
            check_grads(
                lambda v: sph.step(params, state.replace(v=v)).v, (state.v,), tol=1e-5, directions=1, steps=(1e-7, 1e-8)
            )
    finally:
        jax.clear_caches()


def test_the_linear_system_of_a_gradient_goes_on_until_it_is_solved():
    """A chain of 1,500 springs takes as many iterations, more than a step's solve may."""
    n = 1500
    b = np.random.default_rng(0).standard_normal((1, n))

    def chain(w: Any) -> Any:
        return 2 * w - jnp.pad(w[:, 1:], ((0, 0), (0, 1))) - jnp.pad(w[:, :-1], ((0, 0), (1, 0)))

    solve = jax.jit(lambda b: sph_pressure._linear(chain, jnp.full_like(b, 2.0), jnp.isfinite(b), b))
    found = solve(b)
    assert np.abs(chain(found) - b).max() < 1e-7 and n > sph_pressure.MOST


def test_momentum_and_angular_momentum_are_kept_to_rounding():
    """Of a block whose halves collide, by pressure alone, and with viscosity and tension along lines."""
    for changes in ({"viscosity": 0.0}, {"viscosity": 5.0, "tension": 50.0, "central": True}):
        params, state = calm(gravity=np.zeros(2), **changes)
        towards = -jnp.sign(state.x[..., :1] - 0.3) * jnp.array([[[1.0, 0.2]]])
        state = state.replace(kind=jnp.zeros_like(state.kind), walls=False, v=state.v + towards)
        after = run(params.replace(tolerance=1e-6), state, 40)
        assert not after.status.any() and np.abs(np.asarray(after.p)).max() > 10
        for one, of in ((lambda s: s.v, 1e-12), (turning, 1e-12)):
            gained = np.asarray((one(after) - one(state)).sum(1))
            assert np.abs(gained).max() < of * float(jnp.abs(one(state)).sum())


def turning(state: sph.State) -> Any:
    """Angular momentum of each particle, in a plane."""
    return state.x[..., 0] * state.v[..., 1] - state.x[..., 1] * state.v[..., 0]


def test_the_same_bits_every_time_and_in_every_company():
    params, state = calm(worlds=3, tolerance=1e-4)
    lived = as_users(lambda state: run(params, state, 10))
    first, again, alone = lived(state), lived(state), lived(jax.tree.map(lambda leaf: leaf[1:2], state))
    for name in ("x", "v", "rho", "p"):
        assert (getattr(first, name) == getattr(again, name)).all()
        assert (getattr(first, name)[1] == getattr(alone, name)[0]).all()


def test_transforms():
    params, state = calm(worlds=2)
    index = np.r_[:20, 40:50]
    few = {k: getattr(state, k)[:, index] for k in ("x", "v", "rho", "p", "shift", "kind")}
    state = state.replace(**few)
    rough = params.viscosity * np.array([1.0, 1.1])

    def one(x: Any, v: Any, viscosity: Any) -> Any:
        worlds = x.shape[0]
        kind = jnp.broadcast_to(state.kind[:1], x.shape[:2])
        zeros = {"time": jnp.zeros(worlds), "shift": jnp.zeros_like(x), "most_neighbors": jnp.zeros(worlds, jnp.int32)}
        rho = jnp.full(x.shape[:2], 1000.0)
        start = state.replace(x=x, v=v, rho=rho, p=0 * rho, kind=kind, status=jnp.zeros(worlds, jnp.uint32), **zeros)
        new = step(params.replace(viscosity=viscosity), start)
        return new.x, new.v, new.p

    check_transforms(one, (state.x, state.v, rough), max_patterns=1, batches=(2,), rtol=1e-7)


def test_what_is_not_converged_is_reported(monkeypatch: pytest.MonkeyPatch):
    params, state = calm()
    monkeypatch.setattr(sph_pressure, "MOST", 3)
    jax.clear_caches()
    try:
        after = sph.step(params, state)
        assert after.status.tolist() == [Status.UNCONVERGED] * 2 and (after.x != state.x).any()
        with pytest.raises(StateError, match="tolerance"):
            sph.check(params, after)
    finally:
        jax.clear_caches()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"method": "pcisph"}, "is 'wcsph' or 'dfsph'"),
        ({"transport": True}, "transport"),
        ({"repulsion": 1.0}, "repulsion"),
    ],
)
def test_what_does_not_go_with_incompressible_fluid_is_refused(changes: dict, text: str):
    params = sph.Params(0.1, 1e-3, 10.0, method="dfsph")
    with pytest.raises(ValueError, match=text):
        sph.init(params.replace(**changes), np.zeros((1, 4, 2)))


def test_walls_feel_what_the_fluid_feels():
    """The force on all walls and the fluid's gain of momentum are equal and opposite."""
    params, state = calm(gravity=np.zeros(2))
    after, push = jax.jit(sph.exchange)(params, state)
    mass = 1000 * params.spacing**2
    gained = mass * np.where(state.kind[..., None] == sph.FLUID, after.v - state.v, 0).sum(1) / 5e-3
    assert np.abs(gained + np.asarray(push).sum(1)).max() < 1e-11 * np.abs(push).sum()
    assert np.abs(push).max() > 1.0
