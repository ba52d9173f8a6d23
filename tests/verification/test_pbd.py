"""Extended position-based dynamics against what is known of chains, beams and plates."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.deformables import constraints, mesh, pbd
from fphys.particles import boundary


@functools.partial(jax.jit, static_argnames="steps")
def settled(params: pbd.Params, state: pbd.State, steps: int, force: Any = None, colliders: Any = ()) -> pbd.State:
    def advance(state: pbd.State, _: None) -> tuple[pbd.State, None]:
        return pbd.step(params, state, force, colliders=colliders), None

    return jax.lax.scan(advance, state, None, steps)[0]


@pytest.mark.parametrize(("timestep", "substeps"), [(0.02, 60), (0.01, 40)])
def test_a_hanging_chain_stretches_by_compliance_times_load(timestep: float, substeps: int):
    """Whatever the time step. An edge carries what hangs below it, half of its own mass at the upper end.

    The tolerance is the share of h^2 sum w that one iteration a substep adds to the compliance: 40 h^2 of 1e-3.
    """
    edges, mass, gravity, compliance = 10, 0.05, 10.0, 1e-3
    line = mesh.rope(edges, 1.0)
    line = line.replace(vertices=-line.vertices[:, [1, 2, 0]])
    params = pbd.Params(
        line, mass * edges, timestep, compliance, gravity=(0, 0, -gravity), damping=5, pinned=(0,), substeps=substeps
    )
    state = settled(params, pbd.init(params), round(4 / timestep))
    load = mass * gravity * (edges - np.arange(edges) - 0.5)
    stretch = np.asarray(state.x[0, :-1, 2] - state.x[0, 1:, 2]) - 1 / edges
    np.testing.assert_allclose(stretch, compliance * load, rtol=0.01)


def test_a_rope_bends_as_the_elastica():
    """A clamped rope with a force at its end: P L^2 / B = 1 (Bisshopp and Drucker 1945: 0.3017 and 0.0564 of L).

    The clamp holds half of the first curved piece, so the length counts from the middle of the held edge.
    """
    n = 16
    length = 1 - 0.5 / n
    params = pbd.Params(mesh.rope(n, 1.0), 0.2, 0.02, bend=length**2, damping=8.0, pinned=(0, 1), substeps=200)
    state = pbd.init(params)
    end = settled(params, state, 150, jnp.zeros(state.x.shape).at[0, -1, 2].set(-1.0)).x[0, -1]
    assert -end[2] / length == pytest.approx(0.3017, rel=0.01)
    assert (1 - end[0]) / length == pytest.approx(0.0564, rel=0.02)


@pytest.mark.parametrize("curved", [False, True])
def test_a_strip_of_cloth_sags_as_a_beam(curved: bool):
    """q L^4 / 8 B, for a strip clamped along an edge, with the length as for the rope; also with angles for bends."""
    n, rows, weight = 10, 6, 0.1
    strip = mesh.cloth((n, rows), (1.0, 0.75**0.5 * rows / n))
    held = np.flatnonzero(strip.vertices[:, 0] < 1.5 / n)
    params = pbd.Params(
        strip,
        0.5,
        0.02,
        1e-4,
        bend=1.0,
        gravity=(0, 0, -2 * weight),
        damping=8.0,
        pinned=tuple(held.tolist()),
        substeps=60,
        curved=curved,
    )
    state = settled(params, pbd.init(params), 100)
    tip = state.x[0, strip.vertices[:, 0] > 1 - 1e-9, 2].mean()
    assert -tip == pytest.approx(weight * (1 - 0.5 / n) ** 4 / 8, rel=0.03)


def test_a_sheet_that_is_curved_at_rest():
    """It stays as it is; laid flat, it rolls up again to its radius."""
    n, rows, radius = 6, 2, 0.5
    strip = mesh.cloth((n, rows), (1.0, 0.75**0.5 * rows / n))
    angle = strip.vertices[:, 0] / radius
    x = np.stack([radius * np.sin(angle), strip.vertices[:, 1], radius * (1 - np.cos(angle))], 1)
    held = tuple(np.flatnonzero(strip.vertices[:, 0] < 1.5 / n).tolist())
    params = pbd.Params(
        strip.replace(vertices=x), 0.5, 0.02, 1e-4, bend=1.0, damping=8.0, pinned=held, substeps=20, curved=True
    )
    np.testing.assert_allclose(settled(params, pbd.init(params), 5).x[0], x, rtol=0, atol=1e-12)
    free = np.isin(np.arange(len(x)), held, invert=True)[:, None]
    opened = np.where(free, x * [1, 1, 0.3], x)
    np.testing.assert_allclose(settled(params, pbd.init(params, opened[None]), 80).x[0], x, rtol=0, atol=1e-3)
    with pytest.raises(ValueError, match=r"the mesh is bent at rest.*give params.curved=True for cloth"):
        pbd.init(params.replace(curved=False))
    with pytest.raises(ValueError, match=r"params\.curved is for cloth that bends"):
        params.replace(bend=None)


@pytest.mark.parametrize("angle", [0.0, 0.3, 1.0])
def test_a_rolled_sheet_of_equal_triangles_has_the_energy_of_a_plate(angle: float):
    """B / (2 R^2) for each unit of area, about any axis; the rim, one cell wide, is not covered."""
    n = 40
    sheet = mesh.cloth((n, n), (1.0, 0.75**0.5))
    x = jnp.asarray(sheet.vertices)[None]
    along = x[0, :, 0] * np.cos(angle) + x[0, :, 1] * np.sin(angle)
    rolled = x[0].at[:, 2].set(0.5 * along**2 / 10)
    share = constraints.shares(x, sheet.topology)[0]
    energy = 0.5 * (jnp.einsum("ck,ckx->cx", share, rolled[constraints.bends(sheet.topology)]) ** 2).sum()
    assert energy == pytest.approx(0.5 * 0.75**0.5 / 10**2, rel=1.2 / n)


def test_free_bodies_keep_their_momentum():
    """Linear momentum to rounding; angular momentum to first order in the substep, as positions are integrated so."""
    ball, spin = mesh.ball(0.1, 2), np.array([1.0, 2.0, 3.0])
    mass = np.zeros(len(ball.vertices))
    np.add.at(mass, ball.elements, mesh.measures(ball.vertices, ball.elements)[:, None] * 250.0)
    lost = []
    for substeps in (20, 40):
        params = pbd.Params(ball, 1000.0, 0.05, 1e-5, squeeze=1e-6, substeps=substeps)
        velocity = np.cross(spin, ball.vertices) + (0.1, 0.0, 0.0)
        state = pbd.init(params, ball.vertices[None] * (1.01, 0.99, 1.0), velocity[None])
        end = settled(params, state, 10)
        (p, angular), (q, turned) = (
            [(mass[:, None] * a).sum(0) for a in (s.v[0], np.cross(s.x[0], s.v[0]))] for s in (state, end)
        )
        np.testing.assert_allclose(q, p, atol=1e-12 * np.abs(p).max())
        lost.append(np.linalg.norm(turned - angular) / np.linalg.norm(angular))
    assert lost[0] < 0.02 and lost[1] < 0.6 * lost[0]


def test_an_incompressible_block_keeps_its_volume():
    block = mesh.box((2, 2, 2), (0.2, 0.2, 0.2))
    held = tuple(np.flatnonzero(block.vertices[:, 2] > 0.19).tolist())
    params = pbd.Params(
        block, 1000.0, 0.01, 1e-3, squeeze=0.0, gravity=(0, 0, -9.81), damping=5, pinned=held, substeps=40
    )
    end = settled(params, pbd.init(params), 150)
    sizes = mesh.measures(end.x[0], block.elements)
    assert np.asarray(end.x[0])[:, 2].min() < -0.003  # it sags
    np.testing.assert_allclose(sizes, mesh.measures(block.vertices, block.elements), rtol=0.01)


def test_cloth_comes_to_rest_on_a_ball_without_a_penetration():
    sheet = mesh.cloth((12, 14), (1.0, 1.0))
    params = pbd.Params(
        sheet, 0.2, 0.01, 1e-4, bend=1e-4, gravity=(0, 0, -9.81), damping=1.0, thickness=0.01, substeps=20
    )
    ball = boundary.sphere((0.5, 0.5, -0.35), 0.3, friction=0.5)
    end = settled(params, pbd.init(params), 150, None, (ball,))
    gap = np.linalg.norm(np.asarray(end.x[0]) - (0.5, 0.5, -0.35), axis=1) - 0.3
    assert gap.min() > 0.01 - 1e-9 and (gap < 0.011).sum() > 10 and np.abs(end.v).max() < 0.5


def test_a_block_slides_down_a_slope_as_far_as_friction_lets_it():
    """Acceleration g (sin a - mu cos a), and none if mu > tan a."""
    slope = np.deg2rad(30.0)
    normal, down = (np.sin(slope), 0.0, np.cos(slope)), np.array([np.cos(slope), 0.0, -np.sin(slope)])
    block = mesh.box((1, 1, 1), (0.1, 0.1, 0.1))
    turn = np.array([down, (0, 1, 0), normal]).T
    params = pbd.Params(block, 1000.0, 0.01, 0.0, squeeze=0.0, gravity=(0, 0, -10.0), substeps=20)
    for friction, expected in ((0.2, 0.5 * 10 * (np.sin(slope) - 0.2 * np.cos(slope)) * 0.5**2), (0.7, 0.0)):
        state = pbd.init(params, (block.vertices @ turn.T)[None])
        end = settled(params, state, 50, None, (boundary.plane((0.0, 0.0, 0.0), normal, friction=friction),))
        moved = float(((end.x - state.x)[0] @ down).mean())
        assert moved == pytest.approx(expected, rel=0.03, abs=2e-3)
