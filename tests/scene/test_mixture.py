"""Matter of several kinds in one scene: particles, and the meshes that hold them."""

import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.deformables import fem, mesh
from fphys.errors import ModelError, UnsupportedError
from fphys.live import Things
from fphys.particles import mpm
from fphys.scene import (
    FEM,
    MPM,
    PBD,
    SPH,
    Box,
    Cloth,
    Domain,
    Drain,
    Mesh,
    ObservationSpec,
    Plane,
    Rays,
    Rigid,
    Rope,
    Scene,
    Source,
    Sphere,
)

SHEET = mesh.cloth((8, 8), (0.4, 0.4)).vertices
RIM = tuple(np.flatnonzero(np.abs(SHEET[:, :2] - 0.2).max(1) > 0.199).tolist())
LAW = fem.NeoHookean(1000.0, 1e5, 0.3)
WATER = {"mpm": MPM(mpm.Liquid(1000.0, 1e5, gamma=7.0)), "sph": SPH(15.0)}


def hammock(water: str = "mpm", **more) -> Scene:
    """A cloth that is held at its rim, water that falls into it, and a ball that falls into the water."""
    scene = Scene(timestep=0.004, domain=Domain((0, 0, 0), (0.4, 0.4, 0.6), spacing=0.05))
    scene.add(Plane())
    cloth = PBD(0.5, stretch=1e-5, damping=2.0, thickness=0.02, pinned=RIM, substeps=8)
    scene.add(Cloth((0.4, 0.4), (8, 8), pos=(0.2, 0.2, 0.25)), cloth, name="sheet")
    scene.add(Box((0.2, 0.2, 0.1), pos=(0.2, 0.2, 0.33)), WATER[water], name="water")
    scene.add(Sphere(0.06, pos=(0.2, 0.2, 0.48)), Rigid(mass=0.5), name="ball")
    return scene


@pytest.mark.parametrize("water", WATER)
def test_a_cloth_holds_water_in_which_a_ball_falls(water: str):
    world = hammock(water).build(2)
    state = jax.jit(lambda s: jax.lax.fori_loop(0, 60, lambda _, s: world.step(s), s))(world.init())
    world.check(state)
    drops, sheet = world.particles(state, "water"), world.vertices(state, "sheet")
    assert drops.shape == (2, 32, 3) and sheet.shape == (2, len(SHEET), 3)
    assert sheet[..., 2].min() < 0.246 and drops[..., 2].min() > sheet[..., 2].min()
    alone = hammock(water)
    del alone.parts[[part.name for part in alone.parts].index("sheet")]
    alone = alone.build(1)
    fallen = jax.jit(lambda s: jax.lax.fori_loop(0, 60, lambda _, s: alone.step(s), s))(alone.init())
    assert alone.particles(fallen, "water")[..., 2].min() < 0.17  # without the cloth nothing holds it
    assert world.alive(state, "water").all() and len(world.filling.flexes(state, 0)) == 2
    again = world.reset(state, jnp.array([True, False]))
    np.testing.assert_array_equal(again.pbd[0].x[0], world.init().pbd[0].x[0])
    np.testing.assert_array_equal(world.particles(again, "water")[1], drops[1])


def test_its_gradient_agrees_with_differences():
    """Of where water, cloth and ball are, by the ball's velocity and the cloth's."""
    world = hammock("mpm").build(1, dtype=jnp.float64)
    begun = jax.jit(lambda s: jax.lax.fori_loop(0, 40, lambda _, s: world.step(s), s))(world.init())

    @jax.jit
    def places(speeds: jax.Array) -> jax.Array:
        rigid, (sheet,) = begun.rigid, begun.pbd
        rigid = rigid.replace(qvel=rigid.qvel.at[:, 2].add(speeds[0]))
        state = begun.replace(rigid=rigid, pbd=(sheet.replace(v=sheet.v + speeds[1]),))
        state, _ = jax.lax.scan(lambda s, _: (world.step(s), None), state, length=3)
        return sum((x**2).sum() for x in (state.mpm.x, state.pbd[0].x, state.rigid.qpos))

    slope = jax.jit(jax.grad(places))(jnp.zeros(2))
    for i, h in ((0, 1e-5), (1, 1e-6)):
        step = h * np.eye(2)[i]
        np.testing.assert_allclose(slope[i], (places(step) - places(-step)) / (2 * h), rtol=1e-4)


def test_worlds_do_not_see_each_other():
    world = hammock().build(2)
    state = world.init()
    moved = state.replace(rigid=state.rigid.replace(qvel=state.rigid.qvel.at[1, 0].set(1.0)))
    run = jax.jit(lambda s: jax.lax.fori_loop(0, 30, lambda _, s: world.step(s), s))
    for one, two in zip(jax.tree.leaves(run(state)), jax.tree.leaves(run(moved)), strict=True):
        np.testing.assert_array_equal(one[0], two[0])


def test_a_source_feeds_what_a_cloth_holds():
    scene = hammock()
    scene.add(Source(0.05, 1.0, 64, pos=(0.2, 0.2, 0.4), quat=(0, 1, 0, 0)), WATER["mpm"], name="tap")
    scene.add(Box((0.4, 0.4, 0.1), pos=(0.2, 0.2, 0.05)), Drain(), name="sink")
    world = scene.build(1)
    state = jax.jit(lambda s: jax.lax.fori_loop(0, 30, lambda _, s: world.step(s), s))(world.init())
    assert 0 < world.alive(state, "tap").sum() == state.flow.born.sum() - state.flow.removed.sum()


def test_particles_of_two_solvers_and_a_cloth():
    scene = hammock("sph")
    scene.add(Box((0.1, 0.1, 0.1), pos=(0.1, 0.1, 0.1)), WATER["mpm"], name="jelly")
    with pytest.warns(UserWarning, match=r"MPM \('jelly'\) and SPH \('water'\) do not feel each other"):
        world = scene.build(1)
    state = jax.jit(world.step)(world.init())
    world.check(state)
    assert world.particles(state, "jelly").shape == (1, 8, 3) and world.particles(state, "water").shape == (1, 32, 3)


def test_names_and_states_that_do_not_fit_are_refused():
    world, other = hammock().build(1), hammock("sph").build(1)
    state = world.init()
    with pytest.raises(ModelError, match="no thing of particles 'sheet': the scene has 'water'"):
        world.particles(state, "sheet")
    with pytest.raises(ModelError, match="no deformable thing 'water': the scene has 'sheet'"):
        world.vertices(state, "water")
    with pytest.raises(ValueError, match=r"another scene: it has .*mpm 32, pbd 85, this world .*sph"):
        other.step(state)


def test_what_would_not_be_felt_is_refused():
    scene = hammock()
    scene.add(Rope(0.3, cells=6, pos=(0.2, 0.2, 0.5)), PBD(0.1), name="string")
    with pytest.raises(UnsupportedError, match="'string', Rope: it would not feel the particles"):
        scene.build(1)
    scene = hammock("sph")
    scene.add(Box((0.1, 0.1, 0.1), pos=(0.1, 0.1, 0.1)), WATER["mpm"], name="jelly")
    scene.add(Box((0.4, 0.4, 0.1), pos=(0.2, 0.2, 0.05)), Drain(), name="sink")
    with pytest.raises(UnsupportedError, match="MPM and SPH in one scene with sources or drains"):
        scene.build(1)


def test_rays_see_both():
    scene = hammock()
    scene.add_sensor(Rays(((0, 0, -1), (0, 0, -1)), origins=((0.125, 0.125, 0.6), (0.02, 0.2, 0.6))), "rays")
    world = scene.build(1)
    water, sheet = world.observe(world.init(), ObservationSpec(sensors=("rays",)))[0]
    np.testing.assert_allclose(water, 0.6 - 0.355 - 0.025, atol=2e-3)  # balls of half a spacing, the highest at 0.355
    np.testing.assert_allclose(sheet, 0.6 - 0.25, atol=1e-5)


def test_a_live_page_shows_all_of_it():
    world = hammock().build(1)
    shown = Things(world)
    assert set(shown.points(world.init())) == {"water", "sheet"}
    assert shown.sizes == {"water": 0.05} and list(shown.surfaces) == ["sheet"]


IN_CUBE = [
    pytest.param(*given, marks=pytest.mark.extra("meshio"))
    for given in ((0.43, "cube", 0), (0.39, "cube", 16), (0.3, "cube", 32))
]


@pytest.mark.parametrize(
    ("height", "body", "count"), [(0.33, "sheet", 0), (0.29, "sheet", 16), (0.26, "sheet", 16), *IN_CUBE]
)
def test_particles_that_begin_in_a_mesh_are_warned_of(height: float, body: str, count: int, tmp_path: Path):
    """Water 0.1 m high about a height, at a cloth at 0.25 m or in a soft cube up to 0.35 m, which is larger."""
    scene = Scene(timestep=0.004, domain=Domain((0, 0, 0), (0.4, 0.4, 0.6), spacing=0.05))
    if body == "sheet":
        scene.add(Cloth((0.4, 0.4), (8, 8), pos=(0.2, 0.2, 0.25)), PBD(0.5, pinned=RIM), name="sheet")
    else:
        import meshio

        cube = mesh.box((2, 2, 2), (0.3, 0.3, 0.3))
        meshio.Mesh(cube.vertices, [("tetra", cube.elements)]).write(tmp_path / "cube.vtk")
        scene.add(Mesh(tmp_path / "cube.vtk", pos=(0.05, 0.05, 0.05)), FEM(LAW), name="cube")
    scene.add(Box((0.2, 0.2, 0.1), pos=(0.2, 0.2, height)), WATER["mpm"], name="water")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        scene.build(1)
    said = [str(w.message) for w in found if "begin inside" in str(w.message)]
    assert [f"{count} particles of 'water' begin inside {body!r}" in text for text in said] == [True] * bool(count)
