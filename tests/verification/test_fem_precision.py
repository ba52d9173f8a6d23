"""Finite elements in float32 move as in float64, also where loads are small beside what elements bear."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.deformables import fem, mesh
from fphys.particles import boundary

GRAVITY = (0.0, 0.0, -9.81)


def after(params: fem.Params, state: fem.State, steps: int, **loads: Any) -> fem.State:
    advance = lambda now, _: (fem.step(params, now, **loads), None)  # noqa: E731
    return jax.jit(lambda now: jax.lax.scan(advance, now, length=steps)[0])(state)


def begun(params: fem.Params, dtype: Any, velocity: float = 0.0) -> fem.State:
    x = jnp.asarray(params.mesh.vertices, dtype)[None]
    return fem.init(params, x, jnp.zeros_like(x).at[..., 0].set(velocity))


@pytest.mark.parametrize(("young", "cells"), [(1e9, (4, 2, 2)), (1e8, (12, 6, 6))])
def test_a_stiff_body_falls(young: float, cells: tuple[int, int, int]):
    body = mesh.box(cells, (0.2, 0.1, 0.1))
    params = fem.Params(body, fem.NeoHookean(1000.0, young, 0.3), 0.01, GRAVITY)
    state = after(params, begun(params, jnp.float32), 10)
    assert not state.status.any()
    assert float(state.v[..., 2].mean()) == pytest.approx(-0.981, rel=1e-4)


@pytest.mark.parametrize(("young", "speed"), [(1e9, 1.0), (1e9, 0.1), (1e7, 1e-3)])
def test_a_body_that_flies_keeps_its_momentum(young: float, speed: float):
    body = mesh.box((4, 2, 2), (0.2, 0.1, 0.1))
    params = fem.Params(body, fem.NeoHookean(1000.0, young, 0.3), 0.01)
    state = after(params, begun(params, jnp.float32, speed), 50)
    assert not state.status.any()
    assert float(state.v[..., 0].mean()) == pytest.approx(speed, rel=2e-4)


def bar(young: Any, poisson: float, cells: tuple[int, int, int], **options: Any) -> fem.Params:
    body = mesh.box(cells, (1.0, 0.05, 0.05))
    held = np.flatnonzero(body.vertices[:, 0] == 0)
    return fem.Params(body, fem.NeoHookean(1000.0, young, poisson), gravity=GRAVITY, pinned=held, **options)


@pytest.mark.parametrize(("young", "poisson"), [(1e7, 0.3), (1e8, 0.45), (1e9, 0.3)])
def test_a_slender_bar_swings(young: float, poisson: float):
    params = bar(young, poisson, (20, 2, 2), timestep=0.01)
    tips = []
    for dtype in (jnp.float32, jnp.float64):
        state = after(params, begun(params, dtype), 30)
        assert state.x.dtype == dtype and not state.status.any()
        tips.append(float(state.x[0, -1, 2]) - 0.05)
    assert tips[0] == pytest.approx(tips[1], rel=5e-3)
    assert abs(tips[1]) > 1e-3


def test_a_thin_sheet_hangs():
    body = mesh.cloth((8, 8), (0.3, 0.3))
    law = fem.StVenantKirchhoff(400.0, 1e8, 0.3)
    params = fem.Params(body, law, 0.01, GRAVITY, pinned=(0, 8), thickness=1e-4, damping=1.0)
    low = [float(after(params, begun(params, dtype), 20).x[..., 2].min()) for dtype in (jnp.float32, jnp.float64)]
    assert low[0] == pytest.approx(low[1], rel=2e-3) and low[1] < -0.19


def test_sag_at_rest_and_its_gradient():
    def sag(young: Any) -> Any:
        params = bar(young, 0.4, (12, 2, 2), timestep=jnp.inf)
        state = fem.step(params, begun(params, young.dtype))
        return state.x[0, -1, 2] - 0.05, state.status

    found = [jax.value_and_grad(sag, has_aux=True)(jnp.asarray(2e9, dtype)) for dtype in (jnp.float32, jnp.float64)]
    (rough, _), slope = found[0]
    ((sharp, status), exact), moved = found[1], 2e9 * float(found[1][1])
    assert not status.any() and moved == pytest.approx(-float(sharp), rel=1e-3)  # a linear beam's
    assert float(rough) == pytest.approx(float(sharp), rel=2e-2)
    assert float(slope) == pytest.approx(float(exact), rel=2e-2)


@pytest.mark.parametrize("friction", [0.3, 0.8])
def test_blocks_thrown_on_a_rough_floor_converge(friction: float):
    body, rng = mesh.box((4, 4, 4), (0.1, 0.1, 0.1)), np.random.default_rng(0)
    params = fem.Params(body, fem.NeoHookean(1000.0, 1e5, 0.4), 5e-3, GRAVITY)
    x = np.broadcast_to(body.vertices, (16, *body.vertices.shape))
    v = np.broadcast_to(np.concatenate([rng.uniform(-1, 1, (16, 1, 2)), -rng.random((16, 1, 1))], -1), x.shape)
    floor = boundary.plane((0, 0, -0.002), (0, 0, 1.0), friction=friction)
    ends = []
    for dtype in (jnp.float32, jnp.float64):
        state = after(params, fem.init(params, jnp.asarray(x, dtype), jnp.asarray(v, dtype)), 60, colliders=(floor,))
        assert not state.status.any()
        ends.append(np.asarray(state.x).mean(1))
    assert np.median(np.abs(ends[0] - ends[1]).max(1)) < 1e-5 and np.abs(ends[0] - ends[1]).max() < 2e-3
