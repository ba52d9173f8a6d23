"""Fluids in a scene: walls hold them, bodies push them and are pushed."""

import jax
import numpy as np
import pytest

from fphys.errors import UnsupportedError
from fphys.particles import sph
from fphys.scene import SPH, Box, Capsule, Cylinder, Domain, ObservationSpec, Plane, Rigid, Scene, Sphere
from fphys.testing import check_grads

ROOM = Domain((0.0, 0.0, 0.0), (0.5, 0.5, 0.8), spacing=0.1)


def tub(**body) -> Scene:
    """Water 0.3 m deep on a floor, and a ball just above it, which falls into it."""
    scene = Scene(timestep=0.005, domain=ROOM)
    scene.add(Plane(pos=(0, 0, 0.1)))
    scene.add(Box((0.5, 0.5, 0.3), pos=(0.25, 0.25, 0.25)), SPH(15.0, viscosity=2.0), name="water")
    scene.add(Sphere(0.15, pos=(0.25, 0.25, 0.55)), Rigid(**body), name="ball")
    return scene


def test_water_carries_a_light_ball_and_not_a_heavy_one():
    """Of a third, and of twice the density of water."""
    volume = 4 / 3 * np.pi * 0.15**3
    world = tub(mass=(333 * volume, 2000 * volume)).build(2)
    move = jax.jit(lambda s: jax.lax.fori_loop(0, 80, lambda _, s: world.step(s), s))
    state = move(world.init())
    world.check(state)
    light, heavy = world.observe(state, ObservationSpec(links=("ball",)))[:, 2]
    assert heavy < 0.36 and light > 0.42


def test_a_ball_that_water_does_not_push():
    """It falls as if alone, and the water makes room and stays between its walls.

    Particles come as near to a surface as half a spacing behind it: the walls' are as far inside.
    """
    world = tub(pushed=False, mass=5.0).build(1)
    move = jax.jit(lambda s, n: jax.lax.fori_loop(0, n, lambda _, s: world.step(s), s))
    start = world.init()
    assert world.particles(start, "water").shape == (1, 75, 3)
    state = move(start, 20)
    z = world.observe(state, ObservationSpec(links=("ball",)))[:, 2]
    assert np.allclose(z, 0.55 - 0.5 * 9.81 * 0.1 * 0.105, atol=1e-9)
    state = move(state, 20)
    world.check(state)
    x, centre = np.asarray(world.particles(state, "water")), np.asarray(state.rigid.qpos[:, None, :3])
    assert np.linalg.norm(x - centre, axis=-1).min() > 0.15 - 0.05
    assert (x > np.add(ROOM.lower, [0, 0, 0.1]) - 0.05).all() and (x < ROOM.upper).all()


def test_walls_are_where_domain_and_bodies_are():
    scene = tub(pushed=False)
    scene.add(Box((0.2, 0.2, 0.1), pos=(0.1, 0.1, 0.7), quat=(1, 0, 0, 1), fixed=True), name="step")
    scene.add(Capsule(0.1, 0.1, pos=(0.4, 0.4, 0.6), fixed=True), name="pill")
    fluid = scene.build(1).filling
    walls, kind, body = np.asarray(fluid.media[0].walls), fluid.material[75:], np.array(fluid.media[0].body)
    faces = walls[kind == sph.SLIP_WALL]
    assert ((faces < ROOM.lower) | (faces > ROOM.upper)).any(1).all() and (faces[:, 2] > 0.1).all()
    assert faces.max() == pytest.approx(0.8 + 0.25) and faces.min() == pytest.approx(-0.25)
    floor = walls[(kind == sph.WALL) & (body == 1)][:, 2] + 0.1
    assert np.unique(np.round(floor, 9))[:3] == pytest.approx([-0.15, -0.05, 0.05])
    assert np.count_nonzero(body == 3) == 2 * 2 * 1  # the box, two by two by one, in its own frame
    assert np.abs(walls[body == 3]).max() == pytest.approx(0.05)


def test_gradients_through_a_body_that_moves_water():
    world = tub(pushed=False, mass=5.0).build(1)
    start = world.init()
    near = start.rigid.qpos.at[:, 2].set(0.53)

    def loss(height, speed):
        rigid = start.rigid.replace(qpos=near.at[:, 2].add(height), qvel=start.rigid.qvel.at[:, 2].set(speed))
        return (world.step(start.replace(rigid=rigid)).sph.v[:, :75] ** 2).sum()

    check_grads(loss, (np.array(0.0), np.array(-1.0)), tol=1e-5)


def test_what_cannot_hold_a_fluid_is_refused():
    scene = tub(pushed=False)
    scene.add(Cylinder(0.1, 0.1, fixed=True), name="post")
    with pytest.raises(UnsupportedError, match="geom 'post' of 'post'"):
        scene.build(1)
