"""Finite elements against beams, and against another program: the elastica, the first frequency, scikit-fem."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import skfem
from skfem.models.elasticity import lame_parameters, linear_elasticity

from fphys.deformables import fem, mesh

LENGTH, HEIGHT, DENSITY, YOUNG = 1.0, 0.05, 1000.0, 1e7
BENDING = YOUNG * HEIGHT**3 / 12


def cantilever(cells: int) -> fem.Params:
    """A beam of slenderness 20 in the plane, nu = 0, held at its left end, at rest."""
    body = mesh.box((10 * cells, cells), (LENGTH, HEIGHT))
    held = np.flatnonzero(body.vertices[:, 0] == 0)
    return fem.Params(body, fem.StVenantKirchhoff(DENSITY, YOUNG, 0.0), jnp.inf, pinned=held, iterations=200)


def bent(cells: int) -> np.ndarray:
    """Where the middle of the end is, relative to the length, under a dead force P with P L^2 / EI = 1."""
    params = cantilever(cells)
    load = np.zeros_like(params.mesh.vertices)
    load[-cells - 1 :, 1] = -BENDING / LENGTH**2 / cells
    load[[-cells - 1, -1], 1] *= 0.5
    state = jax.jit(fem.step)(params, fem.init(params), jnp.asarray(load)[None])
    fem.check(params, state)
    return (np.asarray(state.x[0, -1 - cells // 2]) - (0.0, HEIGHT / 2)) / LENGTH


def test_a_cantilever_bends_as_the_elastica(full: bool):
    """Bisshopp and Drucker 1945: 0.3017 down, 0.0564 inwards. Linear elements lock as h^2, in the compliance: of two
    meshes the limit of 1 / w and of 1 / sqrt(inwards) is taken. Shear adds 0.1 %."""
    coarse, fine = (bent(cells) for cells in ((8, 16) if full else (4, 8)))
    down, inwards = ([1 / -p[1] for p in (coarse, fine)], [(1 - p[0]) ** -0.5 for p in (coarse, fine)])
    limits = [b + (b - a) / 3 for a, b in (down, inwards)]
    assert 1 / limits[0] == pytest.approx(0.3017, rel=0.01)
    assert limits[1] ** -2 == pytest.approx(0.0564, rel=0.02)


def hung(cells: int) -> np.ndarray:
    """How far [m] gravity moves the middle of the end of Turek and Hron's flag, which a cylinder holds."""
    body = mesh.box((18 * cells, cells), (1.0, 0.02))
    along, y = body.vertices.T
    left = 0.2 + np.sqrt(0.05**2 - (y - 0.01) ** 2)
    x = np.stack([left + (0.6 - left) * along, 0.19 + y], 1)
    held = np.flatnonzero(along == 0)
    law, gravity = fem.StVenantKirchhoff(1000.0, 1.4e6, 0.4), (0.0, -2.0)
    params = fem.Params(body.replace(vertices=x), law, jnp.inf, gravity, pinned=held, iterations=200)
    state = jax.jit(fem.step)(params, fem.init(params))
    fem.check(params, state)
    return np.asarray(state.x[0, -1 - cells // 2]) - (0.6, 0.2)


def test_the_flag_of_turek_and_hron(full: bool):
    """Turek and Hron 2006, CSM1: -7.187 mm along the flag and -66.10 mm down. The limit of two meshes as above."""
    coarse, fine = (hung(cells) for cells in ((8, 16) if full else (4, 8)))
    inwards, down = ([(-p[0]) ** -0.5 for p in (coarse, fine)], [1 / -p[1] for p in (coarse, fine)])
    limits = [b + (b - a) / 3 for a, b in (inwards, down)]
    assert limits[0] ** -2 == pytest.approx(7.187e-3, rel=0.001 if full else 0.003)
    assert 1 / limits[1] == pytest.approx(66.10e-3, rel=0.0005 if full else 0.0015)


SPAN, PLATE, METAL, POISSON, DENSE, HEAD = 1.0, 0.05, 67.5e9, 0.34, 2700.0, 2.0
"""A plate: span, thickness [m], Young's modulus [Pa], Poisson's ratio, density; water above it [m]."""


def sag(cells: int) -> float:
    """At mid-span of the plate, in plane strain, both ends clamped, under its weight and that of the water [m]."""
    body = mesh.box((round(SPAN / PLATE) * cells, cells), (SPAN, PLATE))
    x, ends = body.vertices, np.flatnonzero((body.vertices[:, 0] == 0) | (body.vertices[:, 0] == SPAN))
    force = np.zeros_like(x)
    force[x[:, 1] == PLATE, 1] = -9810.0 * HEAD * PLATE / cells
    law = fem.StVenantKirchhoff(DENSE, METAL, POISSON)
    params = fem.Params(body, law, jnp.inf, (0.0, -9.81), pinned=ends)
    state = jax.jit(fem.step)(params, fem.init(params), jnp.asarray(force)[None])
    fem.check(params, state)
    middle = np.flatnonzero(x[:, 0] == SPAN / 2)
    return float((x[middle, 1] - state.x[0, middle, 1]).mean())


def test_a_clamped_plate_under_water():
    """6.86e-5 m by Euler and Bernoulli, without shear, which adds q L^2 / (8 k G A), a shear factor k of 5/6."""
    load = 9.81 * (1000 * HEAD + DENSE * PLATE)
    bent = load * SPAN**4 * 12 * (1 - POISSON**2) / (384 * METAL * PLATE**3)
    shear = load * SPAN**2 * 2 * (1 + POISSON) / (8 * 5 / 6 * METAL * PLATE)
    assert bent == pytest.approx(6.86e-5, rel=0.002)
    coarse, fine = 1 / sag(4), 1 / sag(8)
    limit = 1 / (fine + (fine - coarse) / 3)
    assert limit == pytest.approx(bent + shear, rel=0.015)
    assert limit == pytest.approx(6.86e-5, rel=0.04)


def slowest(cells: int) -> float:
    """The first angular frequency [rad/s], by inverse iteration with the compliance, which is a step's derivative."""
    params = cantilever(cells)
    body, state = params.mesh, fem.init(params)
    mass = np.zeros(len(body.vertices))
    np.add.at(mass, body.elements, DENSITY * mesh.measures(body.vertices, body.elements)[:, None] / 3)

    @jax.jit
    def complied(force: Any) -> Any:
        return jax.grad(lambda f: (fem.step(params, state, f).x * force).sum())(jnp.zeros_like(force))

    u = jnp.zeros_like(state.x).at[0, :, 1].set(body.vertices[:, 0] ** 2)
    ratio = 0.0
    for _ in range(4):
        push = u * mass[None, :, None]
        moved = complied(push)
        ratio = float((u * push).sum() / (moved * push).sum())
        u = moved / jnp.abs(moved).max()
    return ratio**0.5


def test_the_first_frequency_of_bending():
    """(1.875^2) sqrt(EI / (rho A L^4)): the stiffness' error falls as h^2."""
    beam = 1.875104**2 * (BENDING / (DENSITY * HEIGHT * LENGTH**4)) ** 0.5
    coarse, fine = (slowest(cells) ** 2 for cells in (4, 8))
    assert (fine - (coarse - fine) / 3) ** 0.5 == pytest.approx(beam, rel=0.01)


@pytest.mark.parametrize("dim", [2, 3])
def test_the_static_response_is_that_of_scikit_fem(dim: int):
    """Linear elasticity on the same mesh, assembled and solved by scikit-fem: all displacements under one load."""
    rng = np.random.default_rng(0)
    grid = mesh.box((6, 3, 2)[:dim], (1.0, 0.5, 0.4)[:dim])
    inside = (grid.vertices > 0) & (grid.vertices < grid.vertices.max(0))
    body = mesh.build(grid.vertices + 0.03 * inside * rng.uniform(-1, 1, grid.vertices.shape), grid.elements)
    held = np.flatnonzero(body.vertices[:, 0] == 0)
    load = rng.normal(size=body.vertices.shape)
    load[held] = 0
    kind, element = ((skfem.MeshTri, skfem.ElementTriP1), (skfem.MeshTet, skfem.ElementTetP1))[dim - 2]
    basis = skfem.Basis(kind(body.vertices.T.copy(), body.elements.T.astype(np.int64)), skfem.ElementVector(element()))
    stiffness = linear_elasticity(*lame_parameters(1e5, 0.3)).assemble(basis)
    dofs: Any = basis.nodal_dofs  # (dim, vertex)
    right = np.zeros(basis.N)
    right[dofs] = load.T
    u = skfem.solve(*skfem.condense(stiffness, right, D=dofs[:, held].ravel()))
    params = fem.Params(body, fem.NeoHookean(1000.0, 1e5, 0.3), jnp.inf, pinned=held)
    state = fem.init(params)
    found = jax.jit(jax.grad(lambda f: (fem.step(params, state, f).x[0] * load).sum()))(jnp.zeros_like(state.x))
    np.testing.assert_allclose(found[0], u[dofs].T, rtol=0, atol=1e-8 * np.abs(u).max())
