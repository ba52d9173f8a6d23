"""Sources and drains of particles in a scene."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.errors import ModelError, UnsupportedError
from fphys.particles.materials import Liquid
from fphys.scene import MPM, PBD, SPH, Box, Domain, Drain, Plane, Rigid, Scene, Source, Sphere

ROOM = Domain((0.0, 0.0, 0.0), (0.8, 0.4, 0.4), spacing=0.05)
ALONG_X = np.array([[1.0, 0.0, 0.0]])
ALONG = (1.0, 0.0, 1.0, 0.0)  # its z axis points along x


def pipe(substance, speed=(1.0, 2.0), most: int = 80) -> Scene:
    scene = Scene(timestep=0.005, gravity=(0.0, 0.0, 0.0), domain=ROOM)
    scene.add(Source(0.08, speed, most, stop=0.15, pos=(0.2, 0.2, 0.2), quat=ALONG), substance, name="jet")
    scene.add(Box((0.3, 0.4, 0.4), pos=(0.65, 0.2, 0.2)), Drain(), name="sink")
    scene.add(Sphere(0.05, pos=(0.05, 0.05, 0.05)), Rigid(mass=1.0), name="ball")
    return scene


def test_a_jet_enters_and_leaves_by_a_drain():
    world = pipe(SPH(15.0, viscosity=2.0)).build(2)
    move = jax.jit(lambda s, n: jax.lax.fori_loop(0, n, lambda _, s: world.step(s), s))
    start = world.init()
    assert world.particles(start, "jet").shape == (2, 80, 3) and not world.alive(start, "jet").any()
    state = move(start, 20)
    balance = np.asarray(state.flow.born[:, 0] - state.flow.removed[:, 0])
    assert np.array_equal(world.alive(state, "jet").sum(1), balance) and (balance > 0).all()
    layer = len(world.filling.sources[0].points)
    assert np.asarray(state.flow.born)[:, 0].tolist() == [2 * layer, 4 * layer]
    state = move(state, 80)
    world.check(state)
    assert not world.alive(state, "jet").any() and (state.flow.removed == state.flow.born).all()
    assert np.asarray(state.flow.born)[:, 0].tolist() == [3 * layer, 6 * layer]  # 0.15 s, layers 0.05 m apart
    again = world.reset(state, jnp.array([True, False]))
    assert not again.flow.born[0].any() and again.flow.born[1].any()


def test_nothing_enters_a_world_whose_bodies_are_held():
    world = pipe(MPM(Liquid(1000.0, 1e4))).build(2)
    start = world.init()
    broken = start.replace(rigid=start.rigid.replace(qpos=start.rigid.qpos.at[0, 0].set(jnp.nan)))
    state = jax.jit(lambda s: jax.lax.fori_loop(0, 3, lambda _, s: world.step(s), s))(broken)
    assert np.asarray(world.alive(state, "jet").any(1)).tolist() == [False, True]
    assert not state.flow.born[0].any() and state.flow.born[1].any()
    moved = jax.jit(jax.grad(lambda x: world.step(state.replace(mpm=state.mpm.replace(x=x))).mpm.x.sum()))
    slope = np.asarray(moved(state.mpm.x))
    assert not slope[0].any() and slope[1].any()


def test_gradients_reach_the_speed_of_a_source():
    world = pipe(MPM(Liquid(1000.0, 1e4)), speed=1.03).build(1)

    @jax.jit
    @jax.value_and_grad
    def mean(speed):
        (source,), filling = world.filling.sources, world.filling
        own = world.replace(filling=filling.replace(sources=(source.replace(velocity=speed * ALONG_X),)))
        state, _ = fphys.scan(lambda s, _: (own.step(s), None), own.init(), None, length=12)
        return jnp.where(own.alive(state, "jet")[..., None], own.particles(state, "jet"), 0).sum()

    (_, slope), (high, _), (low, _) = mean(1.03), mean(1.03 + 1e-6), mean(1.03 - 1e-6)
    assert slope > 0.1
    np.testing.assert_allclose(slope, (high - low) / 2e-6, rtol=1e-7)


def test_what_does_not_fit_is_refused():
    water, scene = SPH(15.0), Scene(domain=ROOM)
    with pytest.raises(ModelError, match="out of a Source come particles"):
        scene.add(Source(0.1, 1.0, 10), PBD(1.0))
    with pytest.raises(ModelError, match="a Drain is a Plane, Box, Sphere or Capsule, not Source"):
        scene.add(Source(0.1, 1.0, 10), Drain())
    faults: Any = (
        ({"speed": -1.0}, "speed is -1"),
        ({"most": 0}, "most is 0"),
        ({"start": 2.0, "stop": 1.0}, "it starts"),
    )
    for wrong, match in faults:
        with pytest.raises(ModelError, match=match):
            dataclasses.replace(Source(0.1, 1.0, 10), **wrong)
    dry = Scene()
    dry.add(Box((0.3, 0.4, 0.4)), Drain(), name="sink")
    with pytest.raises(UnsupportedError, match="'sink', Drain: there are no particles that it could remove"):
        dry.build(1)
    scene.add(Source(0.1, (1.0, 2.0, 3.0), 10), water)
    with pytest.raises(ModelError, match="'source': speed has 3 numbers, num_worlds is 2"):
        scene.build(2)
    scene = Scene(domain=ROOM)
    scene.add(Source(0.1, 1.0, 10, pos=(-0.3, 0.2, 0.2)), water)
    with pytest.raises(ModelError, match="'source': 12 of its 12 particles are outside the Domain"):
        scene.build(1)
    scene = Scene(domain=ROOM)
    scene.add(Source(0.1, 1.0, 10), water)
    scene.add(Plane(), Drain(), name="sink")
    born = "particles are born and removed natively only"
    with pytest.raises(UnsupportedError, match=f"'source', Source: {born}\n.*'sink', Drain: {born}"):
        scene.build(1, backend="genesis")


def test_an_opening_of_mpm_needs_room_behind_it():
    """A slip face holds what leaves it, too: of the speed little is left a cell before it, all of it after two."""
    speeds = []
    for x, near in ((0.1, True), (0.2, False)):
        scene = Scene(timestep=0.002, gravity=(0, 0, 0), domain=Domain((0, 0, 0), (0.8, 0.4, 0.4), spacing=0.05))
        jet = Source(0.06, speed=2.0, most=100, pos=(x, 0.2, 0.2), quat=(1, 0, 1, 0))
        scene.add(jet, MPM(Liquid(1000.0, bulk=1e4)), name="jet")
        if near:
            with pytest.warns(UserWarning, match="'jet': the face of the domain behind .* nearer than 0.2 m"):
                world = scene.build(1)
        else:
            world = scene.build(1)
        state = jax.jit(lambda s, w=world: jax.lax.fori_loop(0, 20, lambda _, s: w.step(s), s))(world.init())
        speeds.append(float(state.mpm.v[0, :, 0][world.alive(state, "jet")[0]].mean()))
    assert speeds[0] < 1.5 and speeds[1] == pytest.approx(2.0, rel=0.01)
