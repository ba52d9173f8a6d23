"""Sheets of finite elements, membranes with hinges, against theory: stretch, bending, weight, and contact."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from fphys import coupling
from fphys.deformables import constraints, fem, mesh
from fphys.particles import boundary

from ..deformables import plain_fem, plain_pairs

LAWS = [fem.NeoHookean, fem.Corotated, fem.StVenantKirchhoff]
TURN = Rotation.from_rotvec([1.0, -2.0, 0.5]).as_matrix()

step = jax.jit(fem.step)
elastic_force = jax.jit(fem.elastic_force)


def patch() -> mesh.Mesh:
    """Cells of all shapes: inner vertices are displaced in their plane."""
    body = mesh.box((3, 3), (1.0, 0.8))
    x, size = body.vertices, body.vertices.max(0)
    inside = ((x > 0) & (x < size)).all(1, keepdims=True)
    x = x + inside * 0.06 * np.random.default_rng(0).uniform(-1, 1, x.shape)
    return mesh.build(np.pad(x, ((0, 0), (0, 1))), body.elements)


@pytest.mark.parametrize("law", LAWS)
def test_patch(law: Any):
    """Sides held by a linear map of the plane, which lies askew in space: every vertex inside follows it."""
    body = patch()
    x, size = body.vertices, body.vertices.max(0)
    pinned = np.flatnonzero(((x == 0) | (x == size))[:, :2].any(1))
    change = np.array([[1.15, 0.06, 0.0], [0.03, 1.12, 0.0], [0.0, 0.0, 1.0]])
    params = fem.Params(body, law(1000.0, 1e5, 0.3), jnp.inf, pinned=pinned, thickness=0.01)
    exact = x @ change.T @ TURN.T + 0.3
    near = exact + 0.01 * np.random.default_rng(2).normal(size=x.shape)
    state = step(params, fem.init(params, near[None]), pins=jnp.asarray(exact[pinned]))
    fem.check(params, state)
    np.testing.assert_allclose(state.x[0], exact, rtol=0, atol=1e-10)


@pytest.mark.parametrize("stretch", [1.1, 1.3])
def test_a_pulled_strip_is_in_plane_stress(stretch: float):
    """Of St. Venant and Kirchhoff: S = E (s^2 - 1) / 2 along the pull, and the width's strain is -nu times that."""
    young, poisson, thick = 1e5, 0.3, 0.01
    body = patch()
    x = body.vertices
    strain = (stretch**2 - 1) / 2
    exact = x * [stretch, (1 - 2 * poisson * strain) ** 0.5, 1.0]
    force = np.zeros_like(x)
    ends = np.flatnonzero(x[:, 0] == 1.0)
    force[ends, 0] = stretch * young * strain * thick * np.gradient(x[ends, 1]) * [0.5, 1.0, 1.0, 0.5]
    pinned = np.flatnonzero(x[:, 0] == 0)
    params = fem.Params(
        body, fem.StVenantKirchhoff(1000.0, young, poisson), jnp.inf, pinned=pinned, thickness=thick, bending=100.0
    )
    near = exact + 1e-3 * np.random.default_rng(3).normal(size=x.shape)
    state = step(params, fem.init(params, near[None]), jnp.asarray(force)[None], pins=jnp.asarray(exact[pinned]))
    fem.check(params, state)
    np.testing.assert_allclose(state.x[0], exact, rtol=0, atol=1e-8)


@pytest.mark.parametrize("law", LAWS)
def test_a_rotation_is_free_of_stress(law: Any):
    """Of a sheet that is curved at rest."""
    body = mesh.cloth((4, 4), (1.0, 1.0))
    body = body.replace(vertices=body.vertices + [0, 0, 1] * body.vertices[:, :1] ** 2)
    params = fem.Params(body, law(1000.0, 1e5, 0.3), jnp.inf, thickness=0.01)
    force = elastic_force(params, fem.init(params, (body.vertices @ TURN.T + 1.0)[None]))
    bent = elastic_force(params, fem.init(params, (body.vertices * [1.0, 1.0, 0.9])[None]))
    assert np.abs(force).max() <= 1e-13 * 1e5 * 0.01 and np.abs(bent).max() > 1e-3


def test_small_strain_is_hookes():
    """All laws have the same stiffness at rest."""
    body = patch()
    x = body.vertices + 1e-7 * np.random.default_rng(2).normal(size=body.vertices.shape)
    found = []
    for law in LAWS:
        params = fem.Params(body, law(1000.0, 1e5, 0.3), jnp.inf, thickness=0.01, bending=0.0)
        found.append(np.asarray(elastic_force(params, fem.init(params, x[None]))))
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=0, atol=1e-5 * np.abs(found[0]).max())


@pytest.mark.parametrize("angle", [0.0, 0.3, 1.0])
def test_a_rolled_sheet_of_equal_triangles_has_the_energy_of_a_plate(angle: float):
    """B (1 / R - 1 / R_0)^2 / 2 for each unit of area, about any axis, flat at rest or not; but for the rim."""
    n = 40
    sheet = mesh.cloth((n, n), (1.0, 0.75**0.5))
    x = sheet.vertices
    along = x[:, 0] * np.cos(angle) + x[:, 1] * np.sin(angle)

    def rolled(radius: float) -> np.ndarray:
        across = x[:, 1] * np.cos(angle) - x[:, 0] * np.sin(angle)
        return np.stack([radius * np.sin(along / radius), across, radius * (1 - np.cos(along / radius))], 1)

    for rest, curvature in ((x, 0.1), (rolled(2.0), 0.5 - 0.1)):
        k = constraints.hinge_stiffness(jnp.asarray(rest)[None], sheet.topology, jnp.ones((1, len(sheet.elements))))[0]
        change = [plain_fem.angles(jnp.asarray(at), sheet.topology.hinges) for at in (rolled(10.0), rest)]
        energy = float(0.5 * (k * (change[0] - change[1]) ** 2).sum())
        assert energy == pytest.approx(0.5 * 0.75**0.5 * curvature**2, rel=1.2 / n)


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [("equilateral", 0.95, 1.01), ("alternating", 0.95, 1.01), ("square", 0.81, 1.13), ("parallel", 0.72, 2.95)],
)
def test_the_stiffness_of_other_meshes_is_as_the_table_says(kind: str, least: float, most: float):
    """Energy of a rolled sheet over that of a plate, over all axes."""
    n = 24
    number = np.arange((n + 1) ** 2).reshape(n + 1, n + 1)
    a, b, c, d = (number[i : n + i, j : n + j].ravel() for i, j in ((0, 0), (1, 0), (1, 1), (0, 1)))
    flat = mesh.box((n, n), (1.0, 1.0))
    x = np.pad(flat.vertices, ((0, 0), (0, 1)))
    sheet = {
        "equilateral": mesh.cloth((n, n), (1.0, 0.75**0.5)),
        "alternating": mesh.build(x, flat.elements),
        "square": mesh.cloth((n, n), (1.0, 1.0)),
        "parallel": mesh.build(x, np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])),
    }[kind]
    x, topology = sheet.vertices, sheet.topology
    k = constraints.hinge_stiffness(jnp.asarray(x)[None], topology, jnp.ones((1, len(sheet.elements))))[0]
    found = []
    for angle in np.radians(np.arange(0, 180, 5)):
        along = x[:, 0] * np.cos(angle) + x[:, 1] * np.sin(angle)
        bent = x + 0.5 * (along**2 / 1e3)[:, None] * [0.0, 0.0, 1.0]
        fold = plain_fem.angles(jnp.asarray(bent), topology.hinges)
        found.append(float((k * fold**2).sum()) * 1e6 / mesh.measures(x, sheet.elements).sum())
    assert least < min(found) < least + 0.02 and most - 0.05 < max(found) < most


def test_a_strip_sags_as_a_plate():
    """q L^4 / 8 B, for a strip clamped along an edge; the clamp ends in the middle of the first cell."""
    n, rows, thick, young = 10, 6, 0.01, 1e7
    plate = young * thick**3 / 12
    strip = mesh.cloth((n, rows), (1.0, 0.75**0.5 * rows / n))
    held = np.flatnonzero(strip.vertices[:, 0] < 1.5 / n)
    weight = 0.1 * plate
    law = fem.StVenantKirchhoff(1000.0, young, 0.0)
    params = fem.Params(strip, law, jnp.inf, (0.0, 0.0, -weight / (1000.0 * thick)), pinned=held, thickness=thick)
    state = step(params, fem.init(params))
    fem.check(params, state)
    tip = float(state.x[0, strip.vertices[:, 0] > 1 - 1e-9, 2].mean())
    assert -tip == pytest.approx(0.1 * (1 - 0.5 / n) ** 4 / 8, rel=0.03)


def test_a_hanging_square_sags_as_a_membrane():
    """Held along two edges: a parabola of sag d = (3 q L^4 / 64 E t)^(1/3); its stretch, 8/3 (d / L)^2, carries q."""
    n, thick, young, density = 8, 1e-3, 1e6, 1000.0
    body = mesh.cloth((n, n), (1.0, 1.0))
    x = body.vertices
    pinned = np.flatnonzero((x[:, 1] == 0) | (x[:, 1] == 1.0))
    load = 9.81 * density * thick * 0.1
    sag = (3 * load / (64 * young * thick)) ** (1 / 3)
    assert 0.02 < sag < 0.05
    law = fem.StVenantKirchhoff(density, young, 0.0)
    params = fem.Params(body, law, jnp.inf, (0.0, 0.0, -0.981), pinned=pinned, thickness=thick, bending=0.0)
    near = x - np.array([0, 0, 3 * sag]) * (x[:, 1:2] * (1 - x[:, 1:2]))
    state = step(params, fem.init(params, near[None]), pins=jnp.asarray(x[pinned]))
    fem.check(params, state)
    middle = np.asarray(state.x[0, np.abs(x[:, 1] - 0.5) < 1e-9, 2])
    np.testing.assert_allclose(-middle, sag, rtol=0.02)


def test_a_free_sheet_keeps_its_momentum():
    body = mesh.cloth((4, 4), (0.4, 0.4))
    params = fem.Params(body, fem.NeoHookean(1000.0, 1e5, 0.3), 2e-3, thickness=2e-3, stiffness_damping=1e-3)
    velocity = np.random.default_rng(3).normal(size=(1, *body.vertices.shape))
    mass = np.zeros(len(body.vertices))
    np.add.at(mass, body.elements, (2.0 * mesh.measures(body.vertices, body.elements) / 3)[:, None])
    state = fem.init(params, velocities=jnp.asarray(velocity))
    for _ in range(5):
        state = step(params, state)
        fem.check(params, state)
    before, after = ((mass[:, None] * np.asarray(v[0])).sum(0) for v in (velocity, state.v))
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-11 * np.abs(mass[:, None] * velocity[0]).sum())


@jax.jit
def fall(params: fem.Params, state: fem.State, pins: Any, ball: boundary.Collider, gone: Any) -> Any:
    """Steps with a ball that moves on, and the worst status."""

    def advance(carry: Any, k: Any) -> Any:
        state, bits = carry
        now = ball.replace(pos=jnp.reshape(jnp.asarray(ball.pos), (1, 3)) + k * params.timestep * ball.velocity)
        state = fem.step(params, state, pins=pins, colliders=(now,))
        return (state, bits | state.status), None

    return jax.lax.scan(advance, (state, state.status), gone)[0]


def test_cloth_comes_to_rest_on_a_ball_without_a_penetration():
    sheet = mesh.cloth((8, 9), (1.0, 1.0))
    law = fem.StVenantKirchhoff(1000.0, 1e6, 0.3)
    contact = fem.Contact(1e7, 0.01)
    params = fem.Params(
        sheet, law, 0.02, (0.0, 0.0, -9.81), thickness=1e-3, bending=1e-4, contact=contact, damping=1.0, iterations=200
    )
    ball = boundary.sphere((0.5, 0.5, -0.32), 0.3, friction=0.5)
    end, bits = fall(params, fem.init(params), None, ball, jnp.arange(60.0))
    gap = np.linalg.norm(np.asarray(end.x[0]) - (0.5, 0.5, -0.32), axis=1) - 0.3
    assert not np.asarray(bits).any() and gap.min() > 0 and (gap < 0.01).sum() > 5 and np.abs(end.v).max() < 0.5


def test_a_ball_of_10_metres_a_second_does_not_pass_a_held_cloth():
    sheet = mesh.cloth((8, 9), (1.0, 1.0))
    x = sheet.vertices
    pinned = np.flatnonzero(((x == x.min(0)) | (x == x.max(0)))[:, :2].any(1))
    law = fem.StVenantKirchhoff(1000.0, 1e6, 0.3)
    params = fem.Params(sheet, law, 2e-3, pinned=pinned, thickness=1e-3, bending=1e-4, contact=fem.Contact(1e7, 0.02))
    ball = boundary.sphere((0.5, 0.5, 0.23), 0.2).replace(velocity=jnp.array([[0.0, 0.0, -10.0]]))
    end, bits = fall(params, fem.init(params), jnp.asarray(x[pinned]), ball, jnp.arange(15.0))
    gap = np.linalg.norm(np.asarray(end.x[0]) - (0.5, 0.5, 0.23 - 0.3), axis=1) - 0.2
    assert not np.asarray(bits).any() and gap.min() > 0 and float(end.x[0, :, 2].min()) < -0.2


def test_a_sheet_that_is_thrown_at_another_does_not_pass():
    """Both in one mesh, one held; with the barrier of a body with itself."""
    lower, upper = mesh.cloth((4, 4), (0.4, 0.4)), mesh.cloth((2, 2), (0.15, 0.15))
    x, elements = plain_pairs.combined(lower, upper)
    n = len(lower.vertices)
    x[n:] += (0.11, 0.12, 0.01)
    body = mesh.build(x, elements)
    rim = np.flatnonzero(((x == x[:n].min(0)) | (x == x[:n].max(0)))[:n, :2].any(1))
    contact = fem.Contact(1e6, 5e-3, pairs=400)
    law = fem.StVenantKirchhoff(1000.0, 1e5, 0.3)
    params = fem.Params(body, law, 2e-3, pinned=rim, thickness=2e-3, contact=contact)
    v = np.zeros_like(x)
    v[n:, 2] = -5.0
    state = fem.init(params, velocities=jnp.asarray(v)[None])
    for _ in range(10):
        state = step(params, state)
        fem.check(params, state)
        assert plain_pairs.crossings(state.x[0], body.topology) == 0
    assert float(state.x[0, :n, 2].min()) < -0.005 and float(state.x[0, n:, 2].mean()) < 0


@pytest.mark.parametrize("side", [-1, 1])
def test_a_hinge_folded_shut_at_rest_opens_either_way(side: int):
    """Its angle is half a turn, of either sign: the moment is by how far it is open, not by a whole turn more."""
    x = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.5, 1.0, side * 1e-12]])
    body = mesh.build(x, np.array([[0, 1, 2], [1, 0, 3]]))
    params = fem.Params(body, fem.StVenantKirchhoff(1e3, 1e5, 0.3), 1e-2, thickness=0.01, bending=1.0)
    forces = []
    for way in (-1, 1):
        opened = x.copy()
        opened[3] = [0.5, np.cos(0.1), way * np.sin(0.1)]
        forces.append(np.asarray(elastic_force(params, fem.init(params, opened[None]))[0]))
        np.testing.assert_allclose(np.linalg.norm(forces[-1][3]), np.linalg.norm(forces[0][3]), rtol=1e-6)
    np.testing.assert_allclose(forces[0] * [1, 1, -1], forces[1], rtol=0, atol=1e-6 * np.abs(forces[1]).max())
    assert forces[1][3] @ [0.0, np.cos(0.1), np.sin(0.1)] == pytest.approx(0, abs=1e-6)  # across the triangle


def test_a_sheet_that_meets_particles_has_the_mass_of_its_thickness():
    body = mesh.cloth((4, 3), (0.4, 0.3))
    params = fem.Params(body, fem.StVenantKirchhoff(400.0, 1e5, 0.3), 1e-2, thickness=2e-3)
    assert coupling.FEM(params, ()).sheet(fem.init(params)).mass.sum() == pytest.approx(400.0 * 2e-3 * 0.12)
