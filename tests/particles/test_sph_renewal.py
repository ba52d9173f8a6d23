"""Density renewed from where the particles are: against plain sums, its gradient, and what it mends."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.particles import sph
from fphys.testing import check_grads, check_transforms

from .sph_scenes import lattice, pool
from .test_sph import wendland


@pytest.mark.parametrize("dim", [2, 3])
def test_renewal_is_the_plain_sum(dim: int):
    params, state = pool(dim=dim, noise=0.3)
    got = sph.renew(params, state, 0.3)
    x, rho, kind = (np.asarray(getattr(state, k))[0] for k in ("x", "rho", "kind"))
    d = x[:, None] - x[None]
    w, slope = wendland(np.sqrt((d**2).sum(-1)), params.h, dim)
    slope *= ~((kind[:, None] > 0) & (kind[None] > 0)) * (w > 0)  # walls do not feel one another
    at_rest = lattice([-0.45] * dim, [0.45] * dim, 0.1)
    whole = wendland(np.sqrt((at_rest**2).sum(-1)), params.h, dim)[0].sum()
    surface = ((params.h * 0.1**dim * (slope[..., None] * d).sum(1)) ** 2).sum(-1)
    inside = np.maximum(1 - surface / 0.4**2, 0) ** 2
    assert 0.05 < inside[kind == 0].mean() < 0.9
    wanted = np.where(kind == 0, rho + 0.3 * inside * (1000 * w.sum(1) / whole - rho), rho)
    assert np.abs(np.asarray(got.rho[0]) - wanted).max() < 1e-9 * 1000
    fluid = kind == 0
    assert np.abs(np.asarray(got.p - sph.pressure_at(params, got.rho))[0, fluid]).max() == 0


def test_fluid_that_is_looser_than_its_density_says_is_found_out():
    """A lattice a tenth wider at the density of rest: inside it falls to the true one, the surface is left alone."""
    params = sph.Params(0.1, 1e-3, 20.0)
    x = 1.1 * lattice([0, 0], [2, 2], 0.1)[None]
    state = sph.init(params, x)
    middle = np.abs(x[0] - 1.1).max(1) < 0.5
    for _ in range(60):
        state = sph.renew(params, state, 0.1)
    assert np.asarray(state.rho)[0, middle] == pytest.approx(1000 / 1.1**2, rel=5e-3)
    edge = np.abs(x[0] - 1.1).max(1) > 1.0
    assert np.asarray(state.rho)[0, edge] == pytest.approx(1000, rel=1e-3)


def test_gradients_and_transforms(full: bool):
    params, state = pool(worlds=2, noise=0.2)
    index = np.r_[:20, 40:50]
    few = {k: getattr(state, k)[:, index] for k in ("x", "v", "rho", "p", "shift", "kind")}
    state = state.replace(**few)

    def renewed(x: Any, rho: Any, density: Any, share: Any) -> Any:
        zeros = {"v": jnp.zeros_like(x), "shift": jnp.zeros_like(x), "p": jnp.zeros_like(rho)}
        bits = {"status": jnp.zeros(len(x), jnp.uint32), "kind": jnp.broadcast_to(state.kind[:1], rho.shape)}
        new = sph.renew(params.replace(density=density), state.replace(x=x, rho=rho, **zeros, **bits), share)
        return new.rho / 1000, new.p / 1e5

    args = (state.x, state.rho, params.density, jnp.array([0.3]))
    check_grads(renewed, args, tol=1e-6, directions=16 if full else 1)
    if full:
        check_transforms(renewed, args, max_patterns=1, batches=(2,), rtol=1e-9)


def test_a_world_that_stands_still_is_left_as_it_is():
    params, state = pool()
    state = state.replace(status=jnp.array([fphys.Status.NONFINITE, 0], jnp.uint32))
    got = sph.renew(params, state)
    assert (got.rho[0] == state.rho[0]).all() and (got.rho[1] != state.rho[1]).any()
    assert np.isfinite(jax.grad(lambda x: sph.renew(params, state.replace(x=x)).rho.sum())(state.x)).all()
