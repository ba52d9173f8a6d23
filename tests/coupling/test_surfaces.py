"""Cloth and the surfaces of soft bodies hold what flows, and take the reaction."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import coupling
from fphys.coupling import surfaces
from fphys.deformables import fem, mesh, pbd
from fphys.errors import UnsupportedError
from fphys.particles import mpm, sph
from fphys.testing import check_grads

from .scenes import STEP, Scene, ball, grid

SUBSTEPS = 4


@functools.cache
def away() -> tuple[Any, Any]:
    """A rigid body that touches nothing."""
    return ball("0 0 9", (0.0,) * 6, 1000.0, 0.0)


def cloth(**options: Any) -> tuple[Any, Any, Any]:
    """A free cloth at a height of 0.5 m that comes up."""
    sheet = mesh.cloth((6, 6), (0.4, 0.4))
    params = pbd.Params(sheet, 4.0, STEP / SUBSTEPS, **{"stretch": 1e9, "substeps": 1} | options)
    x = jnp.asarray(sheet.vertices + [0.3, 0.3, 0.5])[None]
    state = pbd.init(params, x, jnp.broadcast_to(jnp.asarray([0.1, 0.2, 0.5]), x.shape))
    return coupling.PBD(params, ()), state, pbd.masses(params)[..., None]


def block() -> tuple[Any, Any, Any]:
    """A free block of rubber, its top at 0.5 m, that comes up."""
    body = mesh.box((3, 3, 1), (0.3, 0.3, 0.1))
    params = fem.Params(body, fem.NeoHookean(1000.0, 1e5, 0.3), STEP / SUBSTEPS)
    x = jnp.asarray(body.vertices + [0.35, 0.35, 0.4])[None]
    medium = coupling.FEM(params, ())
    state = fem.init(params, x, jnp.broadcast_to(jnp.asarray([0.1, 0.2, 0.5]), x.shape))
    return medium, state, medium.sheet(state).mass[..., None]


def rubber() -> tuple[Any, Any, Any]:
    """A lump of soft rubber by material points above 0.5 m that comes down."""
    params = mpm.Params(mpm.NeoHookean(1000.0, 2e4, 0.3), STEP / SUBSTEPS, cell=0.05, shape=(20, 20, 20))
    x = grid((0.4, 0.4, 0.505), (0.6, 0.6, 0.605), 0.025)[None]
    matter = mpm.init(params, jnp.asarray(x), jnp.broadcast_to(jnp.asarray([0.3, 0.0, -1.0]), x.shape))
    return coupling.MPM(params, ()), matter, 1000.0 * matter.volume[..., None]


def drop() -> tuple[Any, Any, Any]:
    """A drop of smoothed particles above 0.5 m that comes down."""
    spacing = 0.04
    params = sph.Params(spacing, STEP / SUBSTEPS, 12.0, 1000.0, artificial=0.1)
    x = grid((0.4, 0.4, 0.51), (0.6, 0.6, 0.63), spacing)[None]
    matter = sph.init(
        params, jnp.asarray(x), jnp.broadcast_to(jnp.asarray([0.3, 0.0, -1.0]), x.shape), max_neighbors=200
    )
    none = coupling.SPH(params, jnp.zeros((0, 3)), ())
    return none, matter, jnp.full((1, x.shape[1], 1), 1000.0 * spacing**3)


def scene(flow: Any, sheet: Any, friction: float = 0.4) -> tuple[Scene, tuple[Any, ...]]:
    media, matter, mass = zip(flow, sheet, strict=True)
    reach = 0.02
    return Scene(*away(), media, matter, SUBSTEPS, mass), (coupling.Surface(0, 1, reach, friction),)


PAIRS = {"mpm, pbd": (rubber, cloth), "mpm, fem": (rubber, block), "sph, pbd": (drop, cloth), "sph, fem": (drop, block)}


def rolled(given: Scene, borders: Any, steps: int) -> tuple[Any, ...]:
    """The matter some steps later."""

    def advance(carry: Any, _: None) -> tuple[Any, None]:
        kinds = {"substeps": given.substeps, "surfaces": borders}
        return coupling.step(given.model, carry[0], given.media, carry[1], **kinds), None

    return jax.lax.scan(advance, (given.state, given.matter), None, steps)[0][1]


def momenta(given: Scene, matter: Any) -> list[np.ndarray]:
    """Linear and angular, of all matter."""
    linear, angular = np.zeros(3), np.zeros(3)
    for mass, m in zip(given.mass, matter, strict=True):
        p = np.asarray(mass * m.v)[0]
        linear, angular = linear + p.sum(0), angular + np.cross(np.asarray(m.x)[0], p).sum(0)
        if isinstance(m, mpm.State):
            C, share = np.asarray(m.C[0]), np.asarray(mass[0]) * given.media[0].params.cell ** 2 / 4
            turn = np.stack([C[:, 2, 1] - C[:, 1, 2], C[:, 0, 2] - C[:, 2, 0], C[:, 1, 0] - C[:, 0, 1]], -1)
            angular = angular + (share * turn).sum(0)
    return [linear, angular]


@pytest.mark.parametrize("pair", PAIRS)
def test_what_a_surface_takes_is_what_flows_gives(pair: str):
    """Both momenta to rounding; implicit Euler keeps the angular one only to first order in the step."""
    given, borders = scene(*(make() for make in PAIRS[pair]))
    matter = jax.jit(lambda m: rolled(given._replace(matter=m), borders, 25))(given.matter)
    assert not any(np.asarray(m.status).any() for m in matter)
    before, after = momenta(given, given.matter), momenta(given, matter)
    size = np.linalg.norm(np.asarray(given.mass[0] * given.matter[0].v)[0].sum(0))
    assert np.abs(after[0] - before[0]).max() < 1e-12 * size
    assert pair.endswith("fem") or np.abs(after[1] - before[1]).max() < 1e-12 * size
    gave = np.asarray(given.mass[0] * (matter[0].v - given.matter[0].v))[0].sum(0)
    assert gave[2] > 0.01 * size and abs(gave[0]) > 1e-3 * size  # pushed, and held back by friction


def inputs(pair: str) -> tuple[Any, tuple[Any, ...]]:
    """A rollout in contact, as a function of both sides and of the surface."""
    given, ((border),) = scene(*(make() for make in PAIRS[pair]))
    flow, sheet = given.media
    share = jnp.ones(1)

    def run(v: Any, w: Any, density: Any, reach: Any, friction: Any) -> Any:
        if isinstance(sheet, coupling.PBD):
            weighed = sheet.params.replace(
                density=4.0 * jnp.broadcast_to(density[:, None], (1, len(sheet.params.mesh.elements)))
            )
        else:
            weighed = sheet.params.replace(material=fem.NeoHookean(1000.0 * density, 1e5, 0.3))
        matter = given.matter[0].replace(v=v), given.matter[1].replace(v=w)
        moved = given._replace(media=(flow, sheet.replace(params=weighed)), matter=matter)
        end = rolled(moved, (border.replace(reach=0.02 * reach, friction=0.4 * friction),), 3)
        return [(m.x, m.v) for m in end]

    return run, (given.matter[0].v, given.matter[1].v, share, share, share)


SLOW = [pytest.param(p, marks=pytest.mark.slow) for p in ("mpm, fem", "sph, pbd")]


@pytest.mark.parametrize("pair", ["mpm, pbd", "sph, fem", *SLOW])
def test_gradients_of_both_sides(pair: str, full: bool):
    run, args = inputs(pair)
    check_grads(jax.jit(run), args, tol=1e-5, directions=8 if full else 1)


def test_without_the_cotangent_of_the_reaction_it_is_wrong(monkeypatch: pytest.MonkeyPatch):
    def push(*args: Any) -> Any:
        force, back = _PUSH(*args)
        return force, jax.lax.stop_gradient(back)

    monkeypatch.setattr(surfaces, "push", push)
    run, args = inputs("mpm, pbd")
    with pytest.raises(AssertionError, match="error"):
        check_grads(jax.jit(run), args, tol=1e-5, directions=1)


_PUSH = surfaces.push


def test_a_light_cloth_holds_water():
    """A hundred times as heavy as itself, to its last particle, and bears the weight."""
    n, reach = 8, 0.0125
    h = STEP / n
    params = mpm.Params(mpm.Liquid(1000.0, bulk=1e5, gamma=7.0), h, (0, 0, -9.81), cell=0.05, shape=(4, 4, 8))
    water = mpm.init(params, jnp.asarray(grid((0, 0, 0.2 + reach), (0.2, 0.2, 0.3 + reach), 0.025)[None]))
    sheet = mesh.cloth((4, 4), (0.2, 0.2))
    rim = np.flatnonzero(np.abs(sheet.vertices[:, :2] - 0.1).max(1) > 0.099)
    held = pbd.Params(
        sheet, 1.0, h, stretch=1e-5, gravity=(0, 0, -9.81), damping=5.0, pinned=tuple(rim.tolist()), substeps=1
    )
    media = coupling.MPM(params, ()), coupling.PBD(held, ())
    matter = water, pbd.init(held, jnp.asarray(sheet.vertices + [0, 0, 0.2])[None])
    border = (coupling.Surface(0, 1, reach, front=True),)
    given = Scene(*away(), media, matter, n)
    end = jax.jit(lambda m: rolled(given._replace(matter=m), border, 100))(matter)
    assert not any(np.asarray(m.status).any() for m in end)
    lift = surfaces.pushes(border, media, end)[0]
    assert lift is not None
    assert abs(float(lift.sum(1)[0, 2]) / (1000.0 * 0.2 * 0.2 * 0.1 * 9.81) - 1) < 0.15  # it still swings
    assert end[0].x[0, :, 2].min() > end[1].x[0, :, 2].min() - reach


def test_a_faulty_particle_disturbs_no_other_and_no_gradient():
    given, borders = scene(rubber(), cloth())

    def after(x: Any) -> Any:
        end = rolled(given._replace(matter=(given.matter[0].replace(x=x), given.matter[1])), borders, 1)[1].x
        return end.sum(), end

    x = given.matter[0].x.at[0, 3].set(jnp.nan)
    slope, end = jax.jit(jax.grad(after, has_aux=True))(x)
    assert np.isfinite(np.asarray(end)).all() and np.isfinite(np.asarray(slope)).all() and np.abs(slope).max() > 0


def test_a_world_does_not_see_its_neighbours():
    """Batched, with ``vmap`` or as worlds, it is as alone."""
    given, borders = scene(rubber(), cloth())
    run = jax.jit(lambda m: [a.x for a in rolled(given._replace(matter=m), borders, 2)])
    other = jax.tree.map(lambda a: a, given.matter[0].replace(v=-given.matter[0].v)), given.matter[1]
    both = jax.vmap(run)(jax.tree.map(lambda a, b: jnp.stack([a, b]), given.matter, other))
    for a, b, c in zip(run(given.matter), run(other), both, strict=True):
        np.testing.assert_array_equal(c, jnp.stack([a, b]))


def test_media_that_are_no_boundary_are_refused():
    given, _ = scene(rubber(), cloth())
    with pytest.raises(ValueError, match=r"surfaces\[0\].flow is 1: it must be the number of a medium MPM or SPH"):
        rolled(given, (coupling.Surface(1, 0, 0.02),), 1)
    with pytest.raises(ValueError, match=r"surfaces\[0\].mesh is 2"):
        rolled(given, (coupling.Surface(0, 2, 0.02),), 1)
    rope = pbd.Params(mesh.rope(4, 1.0), 0.1, STEP / SUBSTEPS, substeps=1)
    hung = given._replace(media=(given.media[0], coupling.PBD(rope, ())), matter=(given.matter[0], pbd.init(rope)))
    with pytest.raises(UnsupportedError, match="edge kind in space has no surface"):
        rolled(hung, (coupling.Surface(0, 1, 0.02),), 1)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("reach", 0.0, r"surfaces\[0\].reach is 0.0: it must be finite and positive"),
        ("reach", -1.0, "reach is -1.0"),
        ("reach", np.nan, "reach is nan"),
        ("reach", 0.051, r"surfaces\[0\]\.reach is 0\.051: .* at most 0\.05 m, 2 spacings"),
        ("friction", -1.0, r"surfaces\[0\].friction is -1.0: it must be finite and not negative"),
        ("friction", jnp.asarray([np.nan]), "friction is nan"),
        ("friction", jnp.ones(3), "friction is of 3 worlds, there are 1"),
        ("reach", jnp.ones((1, 2)), r"reach has shape \(1, 2\)"),
    ],
)
def test_numbers_that_cannot_be_are_refused(name: str, value: Any, says: str):
    given, (border,) = scene(rubber(), cloth())
    with pytest.raises(ValueError, match=says):
        rolled(given, (border.replace(**{name: value}),), 1)


def test_a_traced_number_that_cannot_be_stops_its_world_and_has_no_gradient():
    """And only for that step."""
    given, (border,) = scene(rubber(), cloth())
    doubled = jax.tree.map(lambda a: jnp.concatenate([a, a]), given.matter)
    given = given._replace(state=fphys.init(given.model, 2), matter=doubled)

    @jax.jit
    def moved(reach: Any, friction: Any, matter: Any = doubled) -> Any:
        return rolled(given._replace(matter=matter), (border.replace(reach=reach, friction=friction),), 1)

    by_numbers = jax.jit(jax.grad(lambda r, f: sum((m.v**2).sum() for m in moved(r, f)), (0, 1)))
    fine, good = moved(jnp.full(2, 0.02), jnp.full(2, 0.4)), (0.02, 0.4)
    for which, bad in ((0, 0.0), (0, -1.0), (0, np.nan), (0, 0.051), (1, -1.0), (1, np.nan)):
        numbers = [jnp.full(2, x) for x in good]
        numbers[which] = numbers[which].at[1].set(bad)
        after = moved(*numbers)
        for m, begun, other in zip(after, doubled, fine, strict=True):
            np.testing.assert_array_equal(m.status, [0, fphys.Status.BADPARAM])
            np.testing.assert_array_equal(m.x[1], begun.x[1])
            np.testing.assert_array_equal(m.x[0], other.x[0])
        for slope in by_numbers(*numbers):
            assert slope[0] != 0 and slope[1] == 0
    assert not np.array_equal(moved(jnp.full(2, 0.02), jnp.full(2, 0.4), after)[0].x[1], doubled[0].x[1])


def test_matter_of_another_medium_or_of_other_worlds_is_refused():
    given, (border,) = scene(rubber(), cloth())
    with pytest.raises(TypeError, match=r"matter\[0\] is pbd.State, but media\[0\], a coupling.MPM, takes mpm.State"):
        rolled(given._replace(matter=given.matter[::-1]), (border,), 1)
    wet, _ = scene(drop(), cloth())
    with pytest.raises(TypeError, match=r"media\[0\], a coupling.SPH, takes sph.State"):
        rolled(wet._replace(matter=given.matter), (border,), 1)
    with pytest.raises(ValueError, match=r"matter\[0\] has 1 worlds, the bodies' state has 2"):
        rolled(given._replace(state=fphys.init(given.model, 2)), (border,), 1)
    with pytest.raises(TypeError, match=r"surfaces\[0\] is a int"):
        rolled(given, (1,), 1)
    one, many = (jax.eval_shape(lambda s=s: rolled(given, s, 1)) for s in (border, (border,)))
    assert one == many  # a surface alone is a tuple of one


def bodies() -> dict[str, Any]:
    """A surface of each kind that there is."""
    h = 1e-3
    solid = mesh.box((2, 2, 1), (0.2, 0.2, 0.1))
    flat = mesh.box((3, 2), (0.3, 0.2))
    line = mesh.build([[0.0, 0.0], [0.1, 0.02], [0.2, 0.0], [0.3, 0.05]], [[0, 1], [1, 2], [2, 3]])
    return {
        "solid": coupling.FEM(fem.Params(solid, fem.NeoHookean(1000.0, 1e5, 0.3), h), ()),
        "cloth": coupling.PBD(pbd.Params(mesh.cloth((3, 3), (0.3, 0.3)), 0.5, h, substeps=1), ()),
        "plane": coupling.FEM(fem.Params(flat, fem.NeoHookean(1000.0, 1e5, 0.3), h), ()),
        "rope in a plane": coupling.PBD(pbd.Params(line, 0.5, h, substeps=1), ()),
    }


@pytest.mark.parametrize("kind", bodies())
def test_forces_and_moments_balance_wherever_particles_are(kind: str):
    """Over sides, edges and corners, inside and outside, with friction."""
    medium, rng = bodies()[kind], np.random.default_rng(0)
    solver = fem if isinstance(medium, coupling.FEM) else pbd
    rest = np.asarray(medium.params.mesh.vertices)
    bent = rest + 0.01 * rng.standard_normal(rest.shape)
    sheet = medium.sheet(solver.init(medium.params, jnp.asarray(bent[None]), rng.standard_normal((1, *rest.shape))))
    x = jnp.asarray(rng.uniform(rest.min(0) - 0.05, rest.max(0) + 0.05, (1, 300, rest.shape[1])))
    cloud = surfaces.Cloud(
        x, jnp.asarray(rng.standard_normal(x.shape)), jnp.full((1, 300), 0.01), jnp.full((1, 300), 1e-6)
    )
    border = coupling.Surface(0, 1, 0.03, 0.6)
    force, back = (np.asarray(a[0]) for a in jax.jit(surfaces.push)(border, cloud, sheet, jnp.full((1, 1), 1e-3)))
    assert (np.abs(force).max(1) > 0).sum() > 30
    size = np.abs(force).sum()
    assert np.abs(force.sum(0) + back.sum(0)).max() < 1e-14 * size
    turn = [
        np.cross(np.pad(a, ((0, 0), (0, 3 - a.shape[1]))), np.pad(f, ((0, 0), (0, 3 - f.shape[1])))).sum(0)
        for a, f in ((np.asarray(x[0]), force), (bent, back))
    ]
    assert np.abs(turn[0] + turn[1]).max() < 1e-13 * size


@pytest.mark.parametrize("kind", ["solid", "rope in a plane"])
def test_particles_leave_on_their_side(kind: str):
    """In a solid by the nearest face, also above a vertex; beside a rope on their side, or all on its front."""
    medium = bodies()[kind]
    solver = fem if isinstance(medium, coupling.FEM) else pbd
    sheet = medium.sheet(solver.init(medium.params))
    at = [[0.1, 0.1, 0.09], [0.1, 0.1, 0.11], [0.1, 0.1, 0.2]] if kind == "solid" else [[0.1, 0.03], [0.1, 0.01]]
    x, n = jnp.asarray([at]), len(at)
    cloud = surfaces.Cloud(x, jnp.zeros_like(x), jnp.ones((1, n)), jnp.ones((1, n)))

    def push(front: bool) -> Any:
        border = coupling.Surface(0, 1, 0.03, front=front)
        return surfaces.push(border, cloud, sheet, jnp.ones((1, 1)))[0][0]

    if kind == "solid":
        up = push(False)
        assert up[0, 2] > up[1, 2] > 0 == up[2, 2]  # the deeper, the more
    else:
        assert push(False)[0, 1] > 0 > push(False)[1, 1]
        assert jnp.sign(push(True)[0, 1]) == jnp.sign(push(True)[1, 1])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("where", ["edge", "vertex", "corner"])
def test_a_particle_on_a_surface_is_held_also_at_the_border_of_a_side(where: str, dtype: Any):
    """As one just above it, by its force and by its gradients."""
    body, reach = mesh.cloth((2, 2), (0.2, 0.2)), 0.01
    rest = jnp.asarray(body.vertices + np.array([1.0, 2.0, 0.5]), dtype)
    spot = {"edge": rest[body.elements[0][:2]].mean(0), "vertex": rest[4], "corner": rest[0]}[where]
    sheet = surfaces.Sheet(rest[None], 0 * rest[None], jnp.full((1, len(rest)), 0.01, dtype), body, rest[None])

    @jax.jit
    def lift(up: Any) -> Any:
        def force(x: Any, vertices: Any) -> Any:
            one, down = jnp.ones((1, 1), dtype), jnp.asarray([[[0.1, 0.2, -1.0]]], dtype)
            border = coupling.Surface(0, 1, jnp.asarray([reach], dtype), jnp.asarray([0.3], dtype))
            cloud = surfaces.Cloud(x, down, 0.01 * one, 1e-5 * one)
            return surfaces.push(border, cloud, sheet._replace(x=vertices), 1e-3 * one)[0]

        x = (spot + up * jnp.asarray([0, 0, 1], dtype))[None, None]
        return force(x, sheet.x)[0, 0], jax.jacrev(force, (0, 1))(x, sheet.x)

    (on, slopes), (above, near) = lift(jnp.zeros((), dtype)), lift(jnp.asarray(0.01 * reach, dtype))
    np.testing.assert_allclose(on, above, rtol=0.02)
    assert on[2] > 1
    for a, b in zip(slopes, near, strict=True):
        np.testing.assert_allclose(a, b, atol=0.03 * float(jnp.abs(b).max()))
    if dtype == jnp.float64:
        step = 1e-3 * reach
        difference = (lift(jnp.asarray(step))[0] - on) / step
        np.testing.assert_allclose(slopes[0].reshape(3, 3)[:, 2], difference, rtol=1e-5, atol=1e-3)


def test_a_side_without_an_area_takes_no_particles_from_the_others():
    """A corner of a cloth lies on its neighbour; a particle lies on a side that is as before."""
    body, reach = mesh.cloth((2, 2), (0.2, 0.2)), 0.01
    laid = np.asarray(body.vertices, float)
    flat = laid.copy()
    flat[0] = flat[next(v for e in body.elements if 0 in e for v in e if v)]
    away = next(e for e in body.elements if 0 not in e)
    x = jnp.asarray(laid[away].mean(0) + [0, 0, 0.5 * reach])[None, None]

    @jax.jit
    def force(vertices: Any) -> Any:
        one = jnp.ones((1, 1))
        sheet = surfaces.Sheet(vertices[None], 0 * vertices[None], jnp.full((1, len(laid)), 0.01), body, laid[None])
        cloud = surfaces.Cloud(x, 0 * x, 0.01 * one, 1e-5 * one)
        border = coupling.Surface(0, 1, jnp.asarray([reach]), jnp.asarray([0.3]))
        return surfaces.push(border, cloud, sheet, 1e-3 * one)[0]

    areas = np.linalg.norm(np.cross(*(flat[body.elements[:, k]] - flat[body.elements[:, 0]] for k in (1, 2))), axis=1)
    assert areas.min() == 0
    found, slopes = force(jnp.asarray(flat)), jax.jacrev(force)(jnp.asarray(flat))
    assert found[0, 0, 2] > 0.1
    np.testing.assert_allclose(found, force(jnp.asarray(laid)), rtol=1e-12)
    np.testing.assert_allclose(slopes, jax.jacrev(force)(jnp.asarray(laid)), rtol=1e-9, atol=1e-6)
