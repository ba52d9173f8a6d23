"""Momentum given is momentum taken: bodies and matter together keep what they have."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys import coupling
from fphys.particles import mpm

from .scenes import SCENES, STEP, Scene, ball, grid, in_mpm, in_pbd, momenta, rolled


def after(scene: Scene, steps: int) -> Scene:
    """The scene some steps later, without a fault."""
    state, matter = jax.jit(lambda *now: rolled(scene._replace(state=now[0], matter=now[1]), steps)[1:4:2])(
        scene.state, scene.matter
    )
    assert not any(np.asarray(m.status).any() for m in (state, *matter))
    return scene._replace(state=state, matter=matter)


def changes(scene: Scene, end: Scene) -> tuple[float, float]:
    """How much linear and angular momentum change, relative to what the ball has at first."""
    ball = np.linalg.norm(np.asarray(scene.state.qvel)[0, :3]) * float(scene.model.body.mass[0, 1])
    return tuple(float(np.abs(b - a).max()) / ball for a, b in zip(momenta(scene), momenta(end), strict=True))  # type: ignore[return-value]


@pytest.mark.parametrize("name", SCENES)
def test_a_ball_gives_what_its_matter_takes(name: str, full: bool):
    """Both momenta to rounding; XPBD and implicit Euler keep the angular one only to first order in the step."""
    scene = SCENES[name]()
    end = after(scene, 1000 if full and name == "mpm" else 60)
    linear, angular = changes(scene, end)
    assert linear < 1e-12
    assert name in ("pbd", "fem") or angular < 1e-12
    assert jnp.linalg.norm(end.state.qvel[0, :3]) < 0.8 * jnp.linalg.norm(scene.state.qvel[0, :3])


def test_angular_momentum_closes_at_the_contacts_of_vertices():
    """Of a cloth without stiffness, whose vertices only meet the ball."""
    scene = in_pbd(stretch=1e9)
    end = after(scene, 30)
    assert max(changes(scene, end)) < 1e-12
    assert np.abs(np.asarray(end.state.qvel - scene.state.qvel)[0, 3:]).max() > 1e-3


@pytest.mark.parametrize(("name", "density"), [("mpm", 1.0), ("sph", 50.0), ("pbd", 0.2), ("fem", 1.0)])
def test_light_balls_do_not_gain_energy(name: str, density: float):
    """A thousandth of the matter's density (an explicit exchange with SPH: a twentieth)."""
    scene = SCENES[name](density=density)
    end = after(scene, 60)
    assert jnp.linalg.norm(end.state.qvel[0, :3]) < 1.05 * jnp.linalg.norm(scene.state.qvel[0, :3])


def jelly(parts: int, density: float, pos: str, gravity: float, velocity: float, top: float) -> Scene:
    """A ball in or on a jelly, which is given as a single medium or in layers, each a medium of its own."""
    model, state = ball(pos, (0.0,) * 6, density, 1.0, gravity)
    walls, pull = mpm.Walls("separate"), (0.0, 0.0, gravity)
    params = mpm.Params(mpm.NeoHookean(1000.0, 2e4, 0.3), STEP / 4, pull, cell=0.05, shape=(20, 20, 20), walls=walls)
    x = grid((0.2, 0.2, 0.0), (0.8, 0.8, top), 0.025)
    x = x[np.linalg.norm(x - np.asarray(state.qpos[0, :3]), axis=1) > 0.11]
    layers = np.array_split(x[np.argsort(x[:, 2], kind="stable")], parts)
    moving = lambda a: jnp.broadcast_to(jnp.asarray([velocity, 0.0, 0.0]), (1, *a.shape))  # noqa: E731
    matter = tuple(mpm.init(params, jnp.asarray(a)[None], moving(a), volume=0.025**3) for a in layers)
    media = (coupling.MPM(params, (0,), contact="sticky" if velocity else "separate"),) * parts
    return Scene(model, state, media, matter, 4)


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_a_light_ball_goes_with_all_the_media_that_it_touches(parts: int):
    """Each is given the body as the one before left it: two by two they would throw it back and forth."""
    end = after(jelly(parts, 5.0, "0.5 0.5 0.3", 0.0, 0.3, 0.6), 20)
    assert abs(float(end.state.qvel[0, 0]) - 0.3) < 2e-3
    assert abs(float(end.state.qpos[0, 0]) - 0.5 - 0.3 * 20 * STEP) < 1e-3


def test_a_light_ball_rests_on_a_jelly():
    """A five-hundredth of its density: contacts that come and go give it no energy."""
    scene = jelly(1, 2.0, "0.5 0.5 0.34", -9.81, 0.0, 0.22)

    def advance(carry: Any, _: None) -> tuple[Any, Any]:
        state, matter = coupling.step(scene.model, carry[0], scene.media, carry[1], substeps=4)
        return (state, matter), (state.qvel[0], jnp.abs(matter[0].v).max())

    _, (velocity, fastest) = jax.jit(lambda c: jax.lax.scan(advance, c, None, 100))((scene.state, scene.matter))
    assert jnp.linalg.norm(velocity[:, :3], axis=1).max() < 1.1 * fastest.max()
    assert jnp.linalg.norm(velocity[:, 3:], axis=1).max() < 10.0


def test_steps_that_do_not_add_up_are_refused():
    scene = in_pbd()
    with pytest.raises(ValueError, match=r"timestep is 0.001 s, and 5 of them are not the model's step of 0.004 s"):
        rolled(scene._replace(substeps=5), 1)
    forever = scene.media[0].replace(params=scene.media[0].params.replace(timestep=np.inf))
    with pytest.raises(ValueError, match=r"timestep is inf s, but bodies move in time, .* equilibrium: give 0.001 s"):
        rolled(scene._replace(media=(forever,)), 1)
    with pytest.raises(ValueError, match="1 media have 2 states"):
        rolled(scene._replace(matter=scene.matter * 2), 1)


def test_a_world_with_a_fault_is_held_as_a_whole():
    """Its neighbour goes on, bit for bit as if it were alone."""
    one = in_mpm()
    two = jax.tree.map(lambda a: jnp.concatenate([a, a]), (one.state, one.matter))
    state = two[0].replace(qvel=two[0].qvel.at[1, 2].set(jnp.nan))
    end = rolled(one._replace(state=state, matter=two[1]), 3)
    alone = rolled(one, 3)
    assert end.state.status.tolist() == [0, 1]
    for held, given in zip(jax.tree.leaves(end.matter), jax.tree.leaves(two[1]), strict=True):
        np.testing.assert_array_equal(held[1], given[1])
    for a, b in zip(
        jax.tree.leaves((end.state, end.matter)), jax.tree.leaves((alone.state, alone.matter)), strict=True
    ):
        np.testing.assert_array_equal(a[0], b[0])
