"""What IMUs and contact sensors feel of matter."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.deformables import fem, pbd
from fphys.math import rotate
from fphys.particles.materials import Corotated
from fphys.scene import (
    FEM,
    IMU,
    MPM,
    PBD,
    SPH,
    Box,
    Cloth,
    Contact,
    Domain,
    ObservationSpec,
    Plane,
    Rigid,
    Scene,
    Sphere,
)
from fphys.testing import check_grads

MASS = 0.5
SPEC = ObservationSpec(sensors=("imu", "touch"))


def above(scene: Scene, z: float, **rigid: Any) -> Any:
    """Two worlds with a ball that carries the sensors."""
    scene.add(Sphere(0.1, pos=(0.21, 0.2, z)), Rigid(mass=MASS, **rigid), name="ball")
    scene.add_sensor(IMU("ball"), "imu")
    scene.add_sensor(Contact("ball"), "touch")
    return scene.build(2)


def cloth(material: Any, **rigid: Any) -> Any:
    scene = Scene(timestep=0.005)
    scene.add(Cloth((0.4, 0.4), (4, 4), pos=(0.2, 0.2, 0.3)), material, name="cloth")
    return above(scene, 0.405, **rigid)


def particles(material: Any) -> Any:
    scene = Scene(timestep=0.002, domain=Domain((0, 0, 0), (0.4, 0.4, 0.6), spacing=0.05))
    scene.add(Plane(pos=(0, 0, 0.1)))
    scene.add(Box((0.4, 0.4, 0.2), pos=(0.2, 0.2, 0.2)), material)
    return above(scene, 0.4)


@functools.cache
def worlds(solver: str) -> Any:
    held = (0, 4, 20, 24)
    match solver:
        case "pbd":
            return cloth(PBD(0.5, stretch=1e-5, bend=1e-4, pinned=held))
        case "fem":
            return cloth(FEM(fem.NeoHookean(500.0, 1e6, 0.3), pinned=held, thickness=2e-3))
        case "mpm":
            return particles(MPM(Corotated(1000.0, 1e5, 0.3)))
        case _:
            return particles(SPH(15.0, viscosity=2.0))


@jax.jit
def advanced(world: Any, state: Any, steps: int) -> Any:
    return jax.lax.fori_loop(0, steps, lambda _, s: world.step(s), state)


@jax.jit
def felt(world: Any, state: Any) -> Any:
    """Acceleration in the world's axes, and force, of each world."""
    found = world.observe(state, SPEC)
    return rotate(state.rigid.qpos[:, 3:7], found[:, :3]), found[:, 6:]


@pytest.mark.parametrize("solver", ["pbd", "fem", "mpm", "sph"])
def test_a_ball_feels_what_it_touches(solver: str):
    """Its accelerometer reads how its velocity changed, gravity added, and the contact sensor the force of that."""
    world = worlds(solver)
    start = world.init()
    before = advanced(world, start, 30)
    after = advanced(world, before, 1)
    world.check(after)
    h = world.model.opt.timestep[0]
    expected = (after.rigid.qvel - before.rigid.qvel)[:, :3] / h + jnp.asarray([[0, 0, 9.81]])
    assert float(expected[0, 2]) > 1
    acceleration, force = felt(world, after)
    np.testing.assert_allclose(acceleration, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(force, MASS * expected, rtol=1e-9, atol=1e-9)


def test_a_body_that_matter_does_not_push_feels_it_nonetheless():
    """The force is what the cloth's momentum, which nothing else has, lost; the accelerometer falls freely: nothing."""
    world = cloth(PBD(0.5, stretch=1e-5, bend=1e-4), pushed=False)
    mass = 0.5 * 0.4**2
    start = world.init()
    start = start.replace(rigid=start.rigid.replace(qvel=start.rigid.qvel.at[:, 2].set(-1.0)))
    before = advanced(world, start, 4)
    after = advanced(world, before, 1)
    world.check(after)
    weights = pbd.masses(world.filling.media_in(world.model)[0].params, after.pbd[0].x.dtype)
    gained = (weights[..., None] * (after.pbd[0].v - before.pbd[0].v)).sum(1)
    expected = mass * jnp.asarray([[0, 0, -9.81]]) - gained / world.model.opt.timestep[0]
    assert float(expected[0, 2]) > 1
    acceleration, force = felt(world, after)
    np.testing.assert_allclose(force, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(acceleration, 0, atol=1e-9)


def test_worlds_that_are_held_or_reset():
    """One that is held keeps what it felt, one that is reset feels nothing, and the others are as without them."""
    world = worlds("pbd")
    before = advanced(world, world.init(), 30)
    cloth, *_ = before.pbd
    broken = advanced(world, before.replace(pbd=(cloth.replace(x=cloth.x.at[1].set(jnp.nan)),)), 1)
    whole = advanced(world, before, 1)
    np.testing.assert_array_equal(broken.wrench[0], whole.wrench[0])
    np.testing.assert_array_equal(broken.wrench[1], before.wrench[1])
    force = felt(world, broken)[1]
    np.testing.assert_array_equal(force[0], felt(world, whole)[1][0])
    assert np.isfinite(force).all()
    again = world.reset(whole, np.array([False, True]))
    np.testing.assert_array_equal(again.wrench[0], whole.wrench[0])
    assert not again.wrench[1].any() and whole.wrench[1].any()


def test_gradients_of_what_is_felt():
    world = worlds("pbd")
    state = advanced(world, world.init(), 30)

    def loss(velocity: Any) -> Any:
        rigid = state.rigid.replace(qvel=state.rigid.qvel + velocity)
        return (world.observe(world.step(state.replace(rigid=rigid)), SPEC)[:, jnp.array([2, 8])] ** 2).sum()

    check_grads(jax.jit(loss), (0.1 * jnp.ones((2, 6)),), tol=1e-5, directions=1)
