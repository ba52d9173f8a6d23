"""Finite elements against theory: patch test, stretched bars, rotations, beams, Cook's membrane, momentum."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.spatial.transform import Rotation

from fphys.deformables import fem, mesh

LAWS = [fem.NeoHookean, fem.Corotated, fem.StVenantKirchhoff]
YOUNG, POISSON = 1e5, 0.3

step = jax.jit(fem.step)
elastic_force = jax.jit(fem.elastic_force)


def block(dim: int) -> mesh.Mesh:
    """Cells of all shapes: inner vertices are displaced, outer ones within their sides."""
    body = mesh.box((3,) * dim, (1.0, 0.8, 0.6)[:dim])
    x, size = body.vertices, body.vertices.max(0)
    inside = (x > 0) & (x < size)
    return mesh.build(x + inside * 0.06 * np.random.default_rng(0).uniform(-1, 1, x.shape), body.elements)


def at_rest(params: fem.Params, force: Any = None, pins: Any = None, near: Any = None) -> Any:
    """Positions in equilibrium, (vertex, dim), found from the shape at rest or from ``near``."""
    state = step(params, fem.init(params, near), force, pins=pins)
    fem.check(params, state)
    return np.asarray(state.x[0])


@pytest.mark.parametrize(
    ("law", "mean"), [*((law, False) for law in LAWS), (fem.NeoHookean, True), (fem.Corotated, True)]
)
@pytest.mark.parametrize("dim", [2, 3])
def test_patch(law: Any, mean: bool, dim: int):
    """Sides held by a linear map: every vertex inside follows it, so that all elements have the same deformation."""
    body = block(dim)
    x, size = body.vertices, body.vertices.max(0)
    pinned = np.flatnonzero(((x == 0) | (x == size)).any(1))
    assert 0 < len(pinned) < len(x)
    change = np.eye(dim) + 0.15 * np.random.default_rng(1).uniform(-1, 1, (dim, dim))
    params = fem.Params(body, law(1000.0, YOUNG, POISSON), jnp.inf, pinned=tuple(pinned), mean_dilatation=mean)
    exact = x @ change.T + 0.3
    np.testing.assert_allclose(at_rest(params, pins=jnp.asarray(exact[pinned])), exact, rtol=0, atol=1e-10)


def principal_stress(law: Any, s: np.ndarray) -> np.ndarray:
    """P of the closed forms, for stretches s."""
    mu, lam = YOUNG / (2 * (1 + POISSON)), YOUNG * POISSON / ((1 + POISSON) * (1 - 2 * POISSON))
    j = s.prod()
    if law is fem.Corotated:
        return 2 * mu * (s - 1) + lam * (j - 1) * j / s
    if law is fem.StVenantKirchhoff:
        return s * (mu * (s**2 - 1) + lam * 0.5 * (s**2 - 1).sum())
    m, l = 4 / 3 * mu, lam + 5 / 6 * mu
    return m * (1 - 1 / ((s**2).sum() + 1)) * s + l * (j - 1 - 0.75 * m / l) * j / s


def traction(body: mesh.Mesh, axis: int) -> np.ndarray:
    """What each vertex has of the area of the upper side across an axis, (vertex,)."""
    sides = body.topology.surface
    top = sides[(body.vertices[sides, axis] == body.vertices[:, axis].max()).all(1)]
    p = body.vertices[top]
    area = np.linalg.norm(np.cross(p[:, 1] - p[:, 0], p[:, 2] - p[:, 0]), axis=1) / 2
    return np.bincount(top.ravel(), np.repeat(area / 3, 3), len(body.vertices))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("stretch", [0.95, 1.3])
@pytest.mark.parametrize("biaxial", [False, True])
def test_a_stretched_bar(law: Any, stretch: float, biaxial: bool):
    """A pull by dead loads on one side, or two, the others free: the closed form's contraction.

    Compressed by more than 7 % the bar would buckle.
    """

    def stretches(b: float) -> np.ndarray:
        return np.array([stretch, stretch if biaxial else b, b])

    b: Any = brentq(lambda b: principal_stress(law, stretches(b))[2], 0.5, 1.5, xtol=1e-14)
    s = stretches(b)
    pull = principal_stress(law, s)
    assert abs(pull[0]) > 0.1 * YOUNG * abs(stretch - 1)
    body = block(3)
    force = np.zeros_like(body.vertices)
    for axis in range(2 if biaxial else 1):
        force[:, axis] = pull[axis] * traction(body, axis)
    held = (body.vertices[:, : 2 if biaxial else 1] == 0).any(1)
    params = fem.Params(body, law(1000.0, YOUNG, POISSON), jnp.inf, pinned=tuple(np.flatnonzero(held)))
    exact = body.vertices * s
    near = exact + 0.01 * np.random.default_rng(4).normal(size=exact.shape)
    found = at_rest(params, jnp.asarray(force)[None], jnp.asarray(exact[held]), near[None])
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-8)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("dim", [2, 3])
def test_a_rotation_is_free_of_stress(law: Any, dim: int):
    body = block(dim)
    turn = Rotation.from_rotvec([0.0, 0.0, 2.0] if dim == 2 else [1.0, -2.0, 0.5]).as_matrix()[:dim, :dim]
    params = fem.Params(body, law(1000.0, YOUNG, POISSON), jnp.inf)
    force = elastic_force(params, fem.init(params, (body.vertices @ turn.T + 1.0)[None]))
    assert np.abs(force).max() <= 1e-13 * YOUNG


def test_small_strain_is_hookes():
    """All laws have the same stiffness at rest."""
    body = block(3)
    x = body.vertices + 1e-7 * np.random.default_rng(2).normal(size=body.vertices.shape)
    found = []
    for law in LAWS:
        params = fem.Params(body, law(1000.0, YOUNG, POISSON), jnp.inf)
        found.append(np.asarray(elastic_force(params, fem.init(params, x[None]))))
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=0, atol=1e-5 * np.abs(found[0]).max())


def test_momentum_energy_and_free_fall():
    """A free body that wobbles: its momentum stays, to rounding, and its energy does not grow; falling adds h g."""
    body = block(3)
    params = fem.Params(body, fem.NeoHookean(1000.0, YOUNG, POISSON), 2e-3)
    velocity = jnp.asarray(np.random.default_rng(3).normal(size=(1, *body.vertices.shape)))
    state = fem.init(params, velocities=velocity)
    mass = np.zeros(len(body.vertices))
    np.add.at(mass, body.elements, (1000.0 * mesh.measures(body.vertices, body.elements) / 4)[:, None])
    before = (mass[:, None] * np.asarray(state.v[0])).sum(0)
    fast = np.abs(mass[:, None] * np.asarray(state.v[0])).sum()
    kinetic = [float((mass[:, None] * state.v[0] ** 2).sum())]
    gravity = np.array([0.0, 0.0, -9.81])
    for k in range(10):
        state = step(params.replace(gravity=gravity if k >= 5 else 0.0 * gravity), state)
        fem.check(params, state)
        fall = (gravity * params.timestep * max(0, k - 4))[None]
        moved = (mass[:, None] * (np.asarray(state.v[0]) - fall)).sum(0)
        np.testing.assert_allclose(moved, before, rtol=0, atol=1e-11 * fast)
        kinetic.append(float((mass[:, None] * (np.asarray(state.v[0]) - fall) ** 2).sum()))
    assert kinetic[-1] < 0.9 * kinetic[0]


def test_nearly_incompressible_bars_converge():
    """A soft bar at nu = 0.499 that falls far in steps of 0.1 s: without the true Hessian 50 iterations are too few."""
    body = mesh.box((20, 2), (1.0, 0.05))
    pinned = np.flatnonzero(body.vertices[:, 0] == 0)
    params = fem.Params(body, fem.NeoHookean(1000.0, 1e5, 0.499), 0.1, (0.0, -9.81), pinned=pinned, iterations=30)
    state = fem.init(params)
    for _ in range(10):
        state = step(params, state)
        assert float(state.residual[0]) <= 1e-13
    fem.check(params, state)
    assert float(state.x[0, -1, 1]) < -0.8


def test_damping_slows_a_body_down():
    """Of a body without stress, v' = (v + h g) / (1 + h a)."""
    params = fem.Params(block(2), fem.Corotated(1000.0, YOUNG, POISSON), 0.01, (0.0, -9.81), damping=3.0)
    state = fem.init(params, velocities=jnp.full((1, *params.mesh.vertices.shape), 2.0))
    after = step(params, state)
    exact = (np.array([2.0, 2.0]) + 0.01 * np.array([0.0, -9.81])) / 1.03
    np.testing.assert_allclose(after.v, np.broadcast_to(exact, after.v.shape), rtol=1e-10)


def sag(cells: int) -> float:
    """Tip of a cantilever, slenderness 20, by its weight, over the beam's; the derivative at rest is exactly linear."""
    length, height, density, young = 1.0, 0.05, 1000.0, 1e7
    body = mesh.box((10 * cells, cells), (length, height))
    law = fem.StVenantKirchhoff(density, young, 0.3, plane_stress=True)
    params = fem.Params(body, law, jnp.inf, pinned=tuple(np.flatnonzero(body.vertices[:, 0] == 0)))

    def tip(gravity: Any) -> Any:
        return fem.step(params.replace(gravity=gravity), fem.init(params)).x[0, -cells // 2 - 1, 1]

    return float(jax.jit(jax.grad(tip))(jnp.zeros(2))[1]) / (
        density * height * length**4 / (8 * young * height**3 / 12)
    )


def test_a_cantilever_under_its_own_weight():
    """Linear elements lock in bending: 26 % too stiff with four cells across. The compliance's error falls as h^2."""
    coarse, fine = 1 / sag(4), 1 / sag(8)
    assert coarse == pytest.approx(1.352, rel=1e-3)
    assert (coarse - 1) / (fine - 1) == pytest.approx(4, rel=0.05)
    assert fine - (coarse - fine) / 3 == pytest.approx(1, rel=0.003)  # Richardson's extrapolation; shear gives 0.26 %


def cook(cells: int) -> tuple[mesh.Mesh, np.ndarray, fem.Params]:
    """Cook's membrane of E = 1 and nu = 1/3 in plane stress, and its shear load of 1 in all."""
    square = mesh.box((cells, cells), (1.0, 1.0))
    s, t = square.vertices.T
    body = mesh.build(np.stack([48 * s, 44 * s * (1 - t) + (44 + 16 * s) * t], 1), square.elements)
    load = np.zeros_like(body.vertices)
    load[s == 1, 1] = np.where((t[s == 1] == 0) | (t[s == 1] == 1), 0.5, 1.0) / cells
    law = fem.StVenantKirchhoff(1.0, 1.0, 1 / 3, plane_stress=True)
    return body, load, fem.Params(body, law, jnp.inf, pinned=tuple(np.flatnonzero(s == 0)))


def response(params: fem.Params) -> Any:
    """Derivative of the loaded side's middle, upwards, by all forces, (vertex, dim): a row of the linear compliance."""
    state = fem.init(params)
    middle = len(params.mesh.vertices) - 1 - round((len(params.mesh.vertices)) ** 0.5 - 1) // 2
    return jax.jit(jax.grad(lambda f: fem.step(params, state, f[None]).x[0, middle, 1]))(jnp.zeros_like(state.x[0]))


def test_cooks_membrane():
    """u_y at (48, 52) tends to 23.96."""
    found = []
    for cells in (8, 16, 32):
        _, load, params = cook(cells)
        found.append(float((response(params) * load).sum()))
    assert found == sorted(found) and found[-1] == pytest.approx(23.96, rel=0.01)
    rate = (found[1] - found[0]) / (found[2] - found[1])
    assert 2**1.0 < rate < 2**2.0  # the corner of 108 degrees allows less than h^2
    assert found[2] + (found[2] - found[1]) / (rate - 1) == pytest.approx(23.96, rel=0.005)


def test_the_linear_response_is_that_of_assembled_elements():
    """Constant-strain triangles, assembled densely from B^T D B."""
    body, _, params = cook(6)
    x, n = body.vertices, len(body.vertices)
    elastic = np.array([[1, 1 / 3, 0], [1 / 3, 1, 0], [0, 0, 1 / 3]]) / (1 - 1 / 9)
    stiffness = np.zeros((2 * n, 2 * n))
    for e in body.elements:
        inverse = np.linalg.inv((x[e[1:]] - x[e[0]]).T)
        g = np.vstack([-inverse.sum(0), inverse])
        b = np.zeros((3, 6))
        b[0, ::2] = b[2, 1::2] = g[:, 0]
        b[1, 1::2] = b[2, ::2] = g[:, 1]
        dofs = np.stack([2 * e, 2 * e + 1], 1).ravel()
        stiffness[np.ix_(dofs, dofs)] += b.T @ elastic @ b / np.linalg.det(inverse) / 2
    free = np.setdiff1d(np.arange(2 * n), [2 * i + k for i in params.pinned for k in range(2)])
    exact = np.zeros(2 * n)
    exact[free] = np.linalg.inv(stiffness[np.ix_(free, free)])[np.flatnonzero(free == 2 * (n - 4) + 1)[0]]
    np.testing.assert_allclose(response(params).ravel(), exact, rtol=0, atol=1e-8 * np.abs(exact).max())
