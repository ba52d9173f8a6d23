"""Particles in a scene: they fill shapes, rest on bodies are moved by them, and what is not simulated is refused."""

import jax
import numpy as np
import pytest

from fphys.deformables import fem
from fphys.errors import ModelError, UnsupportedError
from fphys.particles.materials import Corotated
from fphys.scene import (
    MPM,
    SPH,
    Box,
    Capsule,
    Cylinder,
    Domain,
    ObservationSpec,
    Plane,
    Rigid,
    Scene,
    Sphere,
)
from fphys.scene.lattice import placed
from fphys.testing import check_grads

JELLY = MPM(Corotated(density=1000.0, young=2e4, poisson=0.3))
ROOM = Domain((0.0, 0.0, 0.0), (0.8, 0.8, 0.8), spacing=0.05)


def jelly(domain=ROOM, **body) -> Scene:
    """A jelly cube on a table, and a heavy ball falling beside or on it."""
    scene = Scene(timestep=0.002, domain=domain)
    scene.add(Plane(pos=(0, 0, 0.1)))
    scene.add(Box((0.2, 0.2, 0.2), pos=(0.4, 0.4, 0.2)), JELLY, name="jelly")
    scene.add(Sphere(0.1, pos=(0.4, 0.4, 0.42)), Rigid(**body), name="ball")
    return scene


@pytest.mark.parametrize(
    ("morph", "volume"),
    [
        (Box((0.4, 0.3, 0.2), pos=(1, 2, 3), quat=(1, 1, 0, 0)), 0.024),
        (Sphere(0.3), 4 / 3 * np.pi * 0.027),
        (Cylinder(0.2, 0.4, quat=(1, 0, 1, 0)), 0.016 * np.pi),
        (Capsule(0.2, 0.4), 0.016 * np.pi + 4 / 3 * np.pi * 0.008),
    ],
)
def test_a_shape_is_filled(morph, volume):
    """The lattice has the shape's volume, its centre, and lies within it."""
    points = placed(morph, 0.02)
    assert len(points) * 0.02**3 == pytest.approx(volume, rel=0.03)
    assert points.mean(0) == pytest.approx(morph.pos, abs=1e-9)
    if isinstance(morph, Box):  # turned by a quarter about x: y is z
        assert np.ptp(points, axis=0) + 0.02 == pytest.approx([0.4, 0.2, 0.3])


def test_a_reset_takes_bodies_and_particles_back():
    """Of the worlds that are named, and of no other."""
    world = jelly(pushed=False, mass=5.0).build(2)
    start = world.init()
    after = jax.jit(lambda s: jax.lax.fori_loop(0, 20, lambda _, s: world.step(s), s))(start)
    again = world.reset(after, np.array([False, True]))
    for name, found, old, new in (
        ("qpos", again.rigid.qpos, after.rigid.qpos, start.rigid.qpos),
        ("x", again.mpm.x, after.mpm.x, start.mpm.x),
        ("time", again.rigid.time, after.rigid.time, start.rigid.time),
    ):
        np.testing.assert_array_equal(found[0], old[0], err_msg=name)
        np.testing.assert_array_equal(found[1], new[1], err_msg=name)
        assert (old[1] != new[1]).any()
    with pytest.raises(ValueError, match=r"reset needs \(2,\) of bool"):
        world.reset(after, None)


def test_a_ball_rests_on_the_jelly_that_it_presses():
    """Light, it is held up; heavy, it sinks deeper: each world has its own mass."""
    world = jelly(mass=(0.5, 20.0)).build(2)
    move = jax.jit(lambda s: jax.lax.fori_loop(0, 200, lambda _, s: world.step(s), s))
    after = move(world.init())
    world.check(after)
    light, heavy = world.observe(after, ObservationSpec(links=("ball",)))[:, 2]
    assert 0.2 < heavy < 0.3 < light - 0.03 < 0.42  # without the jelly they would have fallen by 0.8 m


def test_a_body_may_declare_that_particles_do_not_push_it():
    """A ball falls as if alone, and the jelly under it gives way; beside the ball it would stand."""
    world = jelly(pushed=False, mass=5.0).build(2)
    assert world.filling.substeps == 1 and world.particles(world.init(), "jelly").shape == (2, 64, 3)
    move = jax.jit(lambda s: jax.lax.fori_loop(0, 80, lambda _, s: world.step(s), s))
    after = move(world.init())
    world.check(after)
    z = world.observe(after, ObservationSpec(links=("ball",)))[:, 2]
    assert np.allclose(z, 0.42 - 0.5 * 9.81 * 0.16 * 0.162, atol=1e-9)
    x = world.particles(after, "jelly")
    start = world.particles(world.init(), "jelly")
    top = np.argmax(start[0, :, 2] - np.hypot(start[0, :, 0] - 0.4, start[0, :, 1] - 0.4))
    assert x[0, top, 2] < start[0, top, 2] - 0.03  # under the ball
    centre = np.linalg.norm(np.asarray(x) - np.array([0.4, 0.4, float(z[0])]), axis=-1)
    assert float(centre.min()) > 0.1 - 0.06  # a cell is 0.1
    assert float(x[..., 2].min()) > 0.1 - 0.03  # nothing falls through the table


def test_gradients_through_a_body_that_moves_particles(full):
    world = jelly(pushed=False, mass=5.0).build(1)
    start = world.init()
    near = start.rigid.qpos.at[:, 2].set(0.38)

    def loss(height, speed):
        rigid = start.rigid.replace(qpos=near.at[:, 2].add(height), qvel=start.rigid.qvel.at[:, 2].set(speed))
        state = start.replace(rigid=rigid)
        for _ in range(3 if full else 1):
            state = world.step(state)
        return (state.mpm.x**2).sum()

    check_grads(loss, (np.array(0.0), np.array(-1.0)), tol=1e-5)


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: Scene().add(Box((1, 1, 1)), JELLY), "Domain"),
        (lambda: jelly().add(Plane(), JELLY), "particles fill Box"),
        (lambda: Domain((0, 0, 0), (1, 1, 0.1), 0.05), "longer than four"),
        (lambda: Domain((0, 0, 0), (1, 1, np.inf), 0.05), "must be finite"),
        (
            lambda: jelly(Domain((0, 0, 0), (0.8, 0.8, 0.84), 0.05)).build(1),
            r"along z it is 8\.4 cells long, .*each of two spacings, 0\.1 m: end it at 0\.8 or 0\.9 m",
        ),
        (
            lambda: jelly(Domain((0, 0, 0), (0.8, 0.8, 0.28), 0.035)).build(1),
            r"'jelly': 36 of its 216 particles are outside the Domain, the first at \[.*, 0\.2875\] m",
        ),
        (lambda: MPM(Corotated(1000.0, np.nan, 0.3)), r"MPM: law: Corotated\.young is nan: it must be above 0"),
        (lambda: MPM(fem.Corotated(1000.0, 1e4, 0.3)), r"law is fphys\.deformables\.materials\.Corotated"),
        (lambda: SPH(10.0, viscosity=-1.0), "SPH: viscosity is -1.0, must be not negative"),
        (lambda: jelly(pushed=False).build(1, backend="genesis"), "'ball', .*particles push whatever moves"),
    ],
)
def test_what_cannot_be_is_refused(make, fault):
    with pytest.raises(ModelError, match=fault):
        make()


@pytest.mark.parametrize("stuff", [JELLY, SPH(sound_speed=10.0)])
def test_matter_inside_a_body_is_named(stuff):
    scene = Scene(timestep=0.002, domain=ROOM)
    scene.add(Plane(pos=(0, 0, 0.1)), name="table")
    scene.add(Box((0.2, 0.2, 0.2), pos=(0.4, 0.4, 0.15)), stuff, name="stuff")
    with pytest.warns(UserWarning, match=r"'stuff' begins where the body 'table' is: 16 of its 64 particles"):
        scene.build(2)


def test_a_state_of_another_scene_is_refused():
    """With both named by what they are made of."""
    world, bodies = jelly(pushed=False).build(1), Scene()
    bodies.add(Plane())
    other = bodies.build(1)
    with pytest.raises(ValueError, match="another scene: it has qpos 0, qvel 0, this world qpos 7, qvel 6, mpm 64"):
        world.step(other.init())
    with pytest.raises(ValueError, match="another scene: it has qpos 7, qvel 6, mpm 64, this world qpos 0, qvel 0"):
        other.step(world.init())
    with pytest.raises(TypeError, match=r"state is a fphys\.model\.state\.State: make one with world\.init"):
        other.step(other.init().rigid)


def test_what_the_native_back_end_lacks_beside_particles():
    scene = jelly(pushed=False)
    scene.add(Cylinder(0.1, 0.1, fixed=True), name="post")
    with pytest.raises(UnsupportedError, match="geom 'post' of 'post'"):
        scene.build(1)


def water() -> Scene:
    scene = Scene(timestep=0.002, domain=Domain((0, 0, 0), (0.4, 0.4, 0.4), spacing=0.05))
    scene.add(Box((0.4, 0.4, 0.1), pos=(0.2, 0.2, 0.05)), SPH(20.0), name="water")
    return scene


@pytest.mark.parametrize("make", [jelly, water])
def test_matter_has_the_models_gravity_and_time_step(make):
    """And the gradient by the world, a tree of real numbers, reaches both through the matter."""
    world = make().build(1)
    kind = "mpm" if make is jelly else "sph"
    fallen = lambda w: getattr(w.step(w.init()), kind).v[0, :, 2].mean()  # noqa: E731
    pushed = lambda g, h: fallen(world.replace(model=world.model.replace({"opt.gravity": g, "opt.timestep": h})))  # noqa: E731
    gravity, step = world.model.opt.gravity, world.model.opt.timestep
    assert jax.jit(pushed)(0 * gravity, step) == pytest.approx(0, abs=1e-12)
    pressed = 0 if make is jelly else 0.03  # water presses back as it falls, by 2 % of its weight in a step
    assert jax.jit(pushed)(gravity, step / 2) == pytest.approx(float(fallen(world)) / 2, rel=1e-12 + pressed)
    check_grads(pushed, (gravity, step), tol=1e-5)
    by_world = jax.jit(jax.grad(fallen))(world)
    np.testing.assert_allclose(by_world.model.opt.gravity, jax.jit(jax.grad(pushed))(gravity, step), rtol=1e-9)


@pytest.mark.parametrize("make", [jelly, water])
def test_a_world_of_particles_may_be_an_argument(make):
    """Of ``init``, ``step`` and ``reset`` under ``jit``."""
    world = make().build(2)
    start = jax.jit(lambda w: w.init())(world)
    after = jax.jit(lambda w, s: w.step(s))(world, start)
    again = jax.jit(lambda w, s: w.reset(s, np.array([True, False])))(world, after)
    assert (again.rigid.time == np.array([0, 0.002])).all()
    assert jax.tree.structure(start) == jax.tree.structure(world.init())
