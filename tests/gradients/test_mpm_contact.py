"""Gradients of bodies with grids of their own that press and slide, against centred differences."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from fphys.particles import boundary, mpm
from fphys.testing import check_grads

CELL = 1 / 8


def pressed(dim: int, sizes: tuple[int, int, int] = (24, 8, 32)) -> tuple[mpm.Params, mpm.State]:
    """Three clouds on top of each other, overlapping, that approach and slide; of two densities."""
    rng = np.random.default_rng(4)
    params = mpm.Params(
        (mpm.NeoHookean(1000.0, 1e4, 0.3), mpm.Liquid(2500.0, 2e4, 7.0, 10.0)),
        2e-3,
        np.array([1.0, *[-2.0] * (dim - 2), -9.8]),
        mpm.Walls("separate", 0.2),
        contact=mpm.Contact(sizes, jnp.array([0.3]), jnp.array([[0.5, 1.0, 1.5]])),
        cell=CELL,
        shape=(8, 7, 6)[:dim],
    )
    body = np.repeat([0, 1, 2], sizes)
    x = rng.uniform(0.15, 0.45, (1, len(body), dim))
    x[0, :, 1] = rng.uniform(0.05, 0.2, len(body)) + np.array([0.13, 0.0, 0.0])[body]
    x[0, :, 0] += np.array([0.0, -0.1, 0.1])[body]
    v = 0.3 * rng.normal(size=x.shape)
    v[0, :, 1] += np.array([-1.0, 0.5, 0.5])[body]
    v[0, :, 0] += np.array([1.0, 0.5, -1.0])[body]
    state = mpm.init(params, x, v, (body == 2).astype(np.int32), 2 * (CELL / 2) ** dim)
    flat = np.diag([1.0] * dim + [0.0] * (3 - dim))
    rate = flat @ rng.normal(size=state.C.shape) @ flat
    return params, state.replace(C=jnp.asarray(rate))


def check(params: mpm.Params, state: mpm.State, moved: Any) -> None:
    few = (jnp.ones(1), params.contact.friction, params.contact.normal, jnp.ones(1))  # type: ignore[union-attr]

    def fn(few: Any, x: Any, v: Any, C: Any, F: Any, volume: Any) -> Any:
        step, friction, normal, density = few
        contact = params.contact.replace(friction=friction, normal=normal)  # type: ignore[union-attr]
        first, second = params.materials
        heavy = (first.replace(density=1000.0 * density), second)
        given = params.replace(timestep=2e-3 * step, contact=contact, material=heavy)
        state_0 = state.replace(x=x, v=v, C=C, F=F, volume=volume / 64)
        return moved(given, state_0)

    args = (few, state.x, state.v, state.C, state.F, 64 * state.volume)
    check_grads(fn, args, tol=1e-6, argnums=0, elementwise=True)
    check_grads(fn, args, tol=1e-6, argnums=(1, 2, 3, 4, 5), directions=2)


@pytest.mark.parametrize("dim", [2, 3])
def test_steps_in_contact(dim: int):
    params, state = pressed(dim)
    params = params.replace(transfer=mpm.AffineFlip(0.9) if dim == 2 else mpm.Apic())
    params = params.replace(contact=params.contact.replace(smooth=4 - dim))  # type: ignore[union-attr]
    floor = boundary.sphere((0.3, 0.0, 0.2), 0.12, "separate", 0.3)

    def moved(params: mpm.Params, state: mpm.State) -> Any:
        for _ in range(3):
            state = mpm.step(params, state, colliders=floor)
        return state.x, state.v, state.C / 10, state.F

    rough, free = (moved(params.replace(contact=c), state) for c in (params.contact, mpm.Contact((24, 8, 32))))
    assert np.abs(rough[1] - free[1]).max() > 0.01  # friction acts
    check(params, state, moved)


def test_a_body_that_answers_to_bodies_in_contact():
    params, state = pressed(2)
    ball = boundary.sphere((0.3, 0.1), 0.1, friction=0.3)
    body = mpm.Response(jnp.full((1, 1, 3), 0.1), jnp.zeros((1, 1, 6)), 0.1 * jnp.eye(6)[None], (0,))

    def moved(params: mpm.Params, state: mpm.State) -> Any:
        after, took = mpm.exchange(params, state, (ball,), body)
        return after.v, after.C / 10, took

    check(params, state, moved)
