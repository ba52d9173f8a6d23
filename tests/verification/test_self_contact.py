"""Bodies that meet themselves: nothing passes, layers rest at their thickness, momentum stays."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fphys.deformables import fem, mesh, pbd

from ..deformables.plain_pairs import combined, crossings

G = 9.81


def rolled(params: fem.Params, state: fem.State, steps: int) -> tuple[fem.State, Any]:
    """The state after some steps, and the positions after each."""

    def advance(state: fem.State, _: None) -> tuple[fem.State, Any]:
        state = fem.step(params, state)
        return state, state.x[0]

    return jax.jit(lambda s: jax.lax.scan(advance, s, None, steps))(state)


def layers(pairs: int) -> tuple[fem.Params, fem.State]:
    """A sheet held at its corners, and one above it, turned, that is thrown at it with 3 m/s."""
    lower = mesh.box((4, 4, 1), (0.2, 0.2, 0.01))
    upper = mesh.box((3, 3, 1), (0.12, 0.12, 0.01), (0.04, 0.04, 0.02))
    upper = upper.replace(vertices=(upper.vertices - 0.1) @ np.array([[0.9, 0.1, 0], [-0.1, 0.9, 0], [0, 0, 1]]) + 0.1)
    x, elements = combined(lower, upper)
    corner = (np.abs(x[:, :2] - 0.1).min(1) > 0.099) & (x[:, 2] < 0.015)
    contact = fem.Contact(stiffness=1e8, thickness=2e-3, friction=0.3, pairs=pairs)
    params = fem.Params(
        mesh.build(x, elements),
        fem.NeoHookean(1000.0, 1e5, 0.3),
        5e-3,
        (0.0, 0.0, -G),
        pinned=np.flatnonzero(corner),
        contact=contact,
    )
    v = np.zeros((1, *x.shape))
    v[0, len(lower.vertices) :, 2] = -3.0
    return params, fem.init(params, velocities=jnp.asarray(v))


def test_two_layers_do_not_pass():
    """Without the contact the same sheet falls through the other."""
    params, state = layers(400)
    end, x = rolled(params, state, 16)
    fem.check(params, end)
    assert [crossings(y, params.mesh.topology) for y in x] == [0] * 16
    middle = np.flatnonzero((np.abs(params.mesh.vertices[:50, :2] - 0.1) < 1e-9).all(1))
    assert float(end.x[0, 50:, 2].mean()) > float(end.x[0, middle, 2].max())
    params, state = layers(0)
    _, x = rolled(params, state, 16)
    assert max(crossings(y, params.mesh.topology) for y in x) > 10


def pair_of_blocks(friction: float) -> fem.Params:
    """Two blocks, one above the other, turned against each other."""
    lower, upper = mesh.box((2, 2, 1), (0.2, 0.2, 0.1)), mesh.box((2, 2, 1), (0.15, 0.2, 0.1), (0.02, 0.03, 0.103))
    x, elements = combined(lower, upper)
    contact = fem.Contact(stiffness=1e8, thickness=4e-3, friction=friction, slip=0.05, pairs=300)
    return fem.Params(mesh.build(x, elements), fem.NeoHookean(1000.0, 1e5, 0.3), 5e-3, contact=contact)


def test_self_contact_keeps_momentum():
    """Two free blocks that hit and rub each other: the sum over vertices is zero to rounding."""
    params = pair_of_blocks(0.5)
    x = params.mesh.vertices
    v = np.where(np.arange(len(x))[:, None] < 18, (0.3, 0.2, 0.5), (-0.2, 0.1, -0.6)) + 0.0 * x
    mass = np.zeros(len(x))
    np.add.at(mass, params.mesh.elements, mesh.measures(x, params.mesh.elements)[:, None] * 250.0)
    state = fem.init(params, velocities=v[None])
    begin, fast = mass @ v, mass @ np.abs(v)
    end, _ = rolled(params, state, 12)
    fem.check(params, end)
    np.testing.assert_allclose(mass @ np.asarray(end.v[0]), begin, rtol=0, atol=1e-12 * fast.max())
    for part in (slice(0, 18), slice(18, None)):  # they have exchanged it, along all axes
        assert (np.abs(mass[part] @ np.asarray(end.v[0, part] - v[part])) > 0.02 * fast.max()).all()


def test_a_folded_sheet_rests_on_itself():
    """A soft sheet in the form of a U, its lower half held: the upper one comes down and rests within the thickness."""
    length, high, thick, radius = 0.24, 0.008, 2e-3, 0.012
    flat = mesh.box((12, 1, 1), (length, 0.04, high))
    s, y, z = flat.vertices.T
    half = 0.5 * (length - np.pi * radius)
    turn = np.clip((s - half) / radius, 0, np.pi)
    along = np.minimum(s, half) - np.maximum(s - half - np.pi * radius, 0)
    x = np.stack([along + (radius - z) * np.sin(turn), y, radius - (radius - z) * np.cos(turn)], 1)
    params = fem.Params(
        mesh.build(x, flat.elements),
        fem.NeoHookean(1000.0, 2e4, 0.3),
        0.02,
        (0.0, 0.0, -G),
        damping=5.0,
        pinned=np.flatnonzero(s < half),
        contact=fem.Contact(stiffness=1e7, thickness=thick, friction=0.2, pairs=400),
    )
    end, path = rolled(params, fem.init(params), 12)
    fem.check(params, end)
    assert max(crossings(y, flat.topology) for y in path) == 0 and float(jnp.abs(end.v).max()) < 2e-2
    gap = np.asarray(end.x[0])[(s > 0.95 * length) & (z == high), 2] - high  # of the end, whose upper side is below
    assert 0.3 * thick < gap.min() and gap.max() < thick


def sheets(apart: float, **numbers: Any) -> pbd.Params:
    """Two sheets of cloth, one above the other and turned, in one mesh."""
    lower = mesh.cloth((6, 7), (0.3, 0.3))
    turned = (lower.vertices - 0.15) @ np.array([[0.8, 0.6, 0.0], [-0.6, 0.8, 0.0], [0.0, 0.0, 1.0]]) + (
        0.15,
        0.15,
        0.22,
    )
    x, elements = combined(lower, lower.replace(vertices=turned))
    return pbd.Params(mesh.build(x, elements), 0.2, 0.01, 1e-5, apart=apart, neighbors=16, substeps=10, **numbers)


def test_sheets_of_cloth_rest_on_each_other():
    """The lower one is held at its rim. Without the contact the upper one falls through."""
    lower = mesh.cloth((6, 7), (0.3, 0.3)).vertices[:, :2]
    rim = tuple(np.flatnonzero(np.abs(lower - 0.15).max(1) > 0.149).tolist())
    below = []
    for apart in (0.04, 0.0):
        params = sheets(apart, gravity=(0.0, 0.0, -G), pinned=rim, damping=2.0, friction=0.4, bend=1e-5)
        state = pbd.init(params)
        end = jax.jit(lambda s, p=params: jax.lax.scan(lambda s, _: (pbd.step(p, s), None), s, None, 40)[0])(state)
        pbd.check(params, end)
        x = np.asarray(end.x[0])
        first, second = np.split(x, 2)
        below.append(int((second[:, 2] < first[:, 2].min() - 0.04).sum()))
        if apart:
            nearest = np.linalg.norm(first[:, None] - second[None], axis=-1).min()
            assert 0.9 * apart < nearest < 1.05 * apart and float(jnp.abs(end.v).max()) < 0.3
    assert below[0] == 0 and below[1] > 10


def test_vertices_that_meet_keep_momentum():
    params = sheets(0.04, friction=0.5)
    x = params.mesh.vertices
    n = len(x) // 2
    v = np.where(np.arange(len(x))[:, None] < n, (0.3, 0.2, 1.0), (-0.2, 0.1, -1.5)) + 0.0 * x
    mass = np.asarray(pbd.masses(params))[0]
    state = pbd.init(params, velocities=v[None])
    end = jax.jit(lambda s: jax.lax.scan(lambda s, _: (pbd.step(params, s), None), s, None, 6)[0])(state)
    pbd.check(params, end)
    fast = (mass @ np.abs(v)).max()
    np.testing.assert_allclose(mass @ np.asarray(end.v[0]), mass @ v, rtol=0, atol=1e-13 * fast)
    assert (np.abs(mass[:n] @ np.asarray(end.v[0, :n] - v[:n])) > 0.004 * fast).all()
