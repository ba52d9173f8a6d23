"""What rays and cameras see of particles and of what deforms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.errors import UnsupportedError
from fphys.particles.materials import Liquid
from fphys.scene import (
    MPM,
    PBD,
    SPH,
    Box,
    Camera,
    Cloth,
    Domain,
    ObservationSpec,
    Plane,
    Rays,
    Rigid,
    Rope,
    Scene,
    Source,
    Sphere,
    Surface,
)
from fphys.scene.ranges import Balls, Triangles, nearest
from fphys.testing import check_grads

RNG = np.random.default_rng(0)
X, CORNERS = RNG.uniform(-1, 1, (2, 40, 3)), RNG.integers(0, 40, (30, 3))
CORNERS = CORNERS[[len(set(row)) == 3 for row in CORNERS.tolist()]]
ORIGIN, DIRECTION = RNG.uniform(-1.5, 1.5, (2, 50, 3)), RNG.normal(size=(2, 50, 3))
DIRECTION /= np.linalg.norm(DIRECTION, axis=-1, keepdims=True)
THERE = RNG.uniform(size=(2, 40)) < 0.7


def brute(world: int, ray: int) -> tuple[float, float]:
    """Distances to balls of 0.3 m, and to triangles, by another way: roots of polynomials, and linear systems."""
    o, d = ORIGIN[world, ray], DIRECTION[world, ray]
    balls = [np.inf]
    for x in X[world][THERE[world]]:
        roots = np.roots([1.0, 2 * (o - x) @ d, (o - x) @ (o - x) - 0.09])
        balls += [r.real for r in roots if abs(r.imag) < 1e-12 and r.real >= 0]
    triangles = [np.inf]
    for a, b, c in X[world][CORNERS]:
        t, u, v = np.linalg.solve(np.stack([-d, b - a, c - a], -1), o - a)
        if t >= 0 and min(u, v, 1 - u - v) >= 0:
            triangles.append(t)
    return min(balls), min(triangles)


def test_distances_are_those_of_brute_force():
    balls, triangles = Balls(jnp.asarray(X), 0.3, jnp.asarray(THERE)), Triangles(jnp.asarray(X), CORNERS)
    expected = np.array([[brute(w, r) for r in range(50)] for w in range(2)])
    assert np.isfinite(expected).mean((0, 1)).min() > 0.2 and np.isinf(expected).any((0, 1)).all()
    see = jax.jit(lambda o, d: [nearest(things, o, d) for things in ([balls], [triangles], [balls, triangles])])
    for found, wanted in zip(see(ORIGIN, DIRECTION), (*np.moveaxis(expected, -1, 0), expected.min(-1)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_gradients_by_what_is_hit_and_by_the_ray():
    def total(x, origin, direction):
        found = nearest([Balls(x, 0.3, jnp.asarray(THERE)), Triangles(x, CORNERS)], origin, direction)
        return jnp.where(jnp.isfinite(found), found, 0.0) ** 2

    # a direction is one of length one: it turns
    unit = lambda x, o, d: total(x, o, d / jnp.linalg.norm(d, axis=-1, keepdims=True))  # noqa: E731
    check_grads(jax.jit(unit), (jnp.asarray(X), jnp.asarray(ORIGIN), jnp.asarray(DIRECTION)), directions=3, tol=1e-5)


@pytest.mark.parametrize("thing", [lambda x: Balls(x, 0.3), lambda x: Triangles(x, CORNERS)])
def test_what_is_not_finite_is_not_seen_and_gradients_stay_finite(thing):
    """A ray that sees nothing is compared with the first of all, which is NaN."""
    x = jnp.asarray(X).at[0, np.array([0, CORNERS[0, 0]])].set(jnp.nan)
    away = jnp.asarray(ORIGIN).at[:, 0].set(9.0), jnp.asarray(DIRECTION).at[:, 0].set([1.0, 0.0, 0.0])

    def total(origin, direction):
        found = nearest([thing(x)], origin, direction)
        return jnp.where(jnp.isfinite(found), found, 0.0).sum(), found

    by, found = jax.jit(jax.grad(total, (0, 1), has_aux=True))(*away)
    assert np.isinf(found[:, 0]).all() and all(np.isfinite(each).all() for each in by)


def test_a_lidar_sees_water_a_source_and_what_is_in_front():
    scene = Scene(timestep=0.002, domain=Domain((0, 0, 0), (0.8, 0.8, 0.8), spacing=0.1))
    scene.add(Plane(), name="ground")
    water = MPM(Liquid(1000.0, 1e4))
    scene.add(Box((0.2, 0.2, 0.2), pos=(0.4, 0.4, 0.4)), water, Surface((0.1, 0.2, 0.9)), name="water")
    scene.add(Source(0.04, 1.0, 5, pos=(0.1, 0.1, 0.6)), water, name="jet")
    scene.add(Sphere(0.05, pos=(0.65, 0.35, 0.35)), Rigid(mass=1.0), name="ball")
    scene.add_sensor(Rays(((0, 0, -1), (1, 0, 0)), origins=((0.35, 0.35, 1), (0, 0.35, 0.35))), name="fixed")
    scene.add_sensor(Rays(((-1, 0, 0), (0, 0, -1), (0, 0, 1)), "ball"), name="carried")
    scene.add_sensor(Rays(((0, 0, -1),), origins=(0.1, 0.1, 1.0)), name="above")
    scene.add_sensor(
        Camera((0.35, 0.35, 2.0), (0.35, 0.35, 0.0), up=(0, 1, 0), fov=30, width=64, height=64), name="eye"
    )
    world = scene.build(1)
    spec = ObservationSpec(sensors=("fixed", "carried", "above"))
    observe = jax.jit(lambda s: world.observe(s, spec))
    state = world.init()
    expected = [1 - 0.45 - 0.05, 0.35 - 0.05, 0.65 - 0.45 - 0.05, 0.35, 20.0, 1.0]
    np.testing.assert_allclose(observe(state)[0], expected, atol=1e-12)
    after = jax.jit(world.step)(state)
    assert abs(observe(after)[0, 5] - (1 - 0.6 - 0.05)) < 0.01  # the jet has begun
    by = jax.grad(lambda x: world.observe(state.replace(mpm=state.mpm.replace(x=x)), spec)[0, 0])(state.mpm.x)
    assert np.count_nonzero(np.abs(by) > 1e-12) == 1 and by.min() == -1.0  # the particle that is hit, upwards
    # a particle of half a spacing is seen at its place, and beside it the ground
    depth = world.depth(state, "eye")
    assert 2.0 - 0.45 - 0.05 - 0.01 < depth.min() < 2.0 - 0.45 and abs(depth[2, 2] - 2.0) < 0.01
    image = world.render(state, "eye")
    assert image[32, 32, 2] > image[32, 32, 0] + 30


def test_a_lidar_sees_cloth():
    scene = Scene(timestep=0.01)
    scene.add(Cloth((0.6, 0.6), (6, 6), pos=(0, 0, 0.5)), PBD(0.2))
    scene.add(Plane())
    scene.add_sensor(Rays(((0, 0, -1), (0.3, 0.1, -1)), origins=((0.03, 0.07, 1), (0, 0, 1))), name="down")
    scene.add_sensor(Rays(((0, 0, 1),), origins=(1.0, 0.0, 0.2)), name="beside")
    world = scene.build(1)
    found = world.observe(world.init(), ObservationSpec(sensors=("down", "beside")))[0]
    np.testing.assert_allclose(found, [0.5, 0.5 * np.sqrt(1.1), 20.0], atol=1e-12)
    scene.add(Rope(0.5, 4), PBD(0.1))
    with pytest.raises(UnsupportedError, match="'down', Rays: they would not see the ropes"):
        scene.build(1)


def test_a_lidar_sees_the_fluid_and_not_its_walls():
    scene = Scene(timestep=0.002, domain=Domain((0, 0, 0), (0.6, 0.6, 0.6), spacing=0.1))
    scene.add(Box((0.2, 0.2, 0.2), pos=(0.3, 0.3, 0.3)), SPH(15.0), name="water")
    scene.add_sensor(Rays(((0, 0, -1), (0, 0, -1)), origins=((0.25, 0.25, 1), (0.05, 0.05, 1))), name="down")
    world = scene.build(1)
    found = world.observe(world.init(), ObservationSpec(sensors=("down",)))[0]
    np.testing.assert_allclose(found, [1 - 0.35 - 0.05, 20.0], atol=1e-12)
