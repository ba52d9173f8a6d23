"""Deformable things in a scene: cloth and ropes on rigid things, finite elements, cameras, and what is refused."""

import ctypes.util
from typing import Any

import jax
import numpy as np
import pytest

import fphys
from fphys.deformables import fem, mesh
from fphys.errors import ModelError, UnsupportedError
from fphys.scene import (
    FEM,
    MPM,
    PBD,
    Box,
    Camera,
    Cloth,
    Domain,
    Mesh,
    Plane,
    Rays,
    Rigid,
    Rope,
    Scene,
    Sphere,
    Surface,
)
from fphys.testing import check_grads

CLOTH = PBD(0.2, stretch=1e-4, bend=2e-5, damping=1.0, substeps=10)
LAW = fem.NeoHookean(1000.0, 2e5, 0.4)


def draped(**ball) -> Scene:
    """A small cloth above a ball, and a rope beside it."""
    scene = Scene(timestep=0.01)
    scene.add(Plane())
    scene.add(Sphere(0.1, pos=(0, 0, 0.1), **ball), Rigid(friction=0.5, pushed=False), name="ball")
    cloth = Cloth((0.4, 0.4), (8, 9), pos=(0, 0, 0.22))
    scene.add(cloth, CLOTH, Surface((0.0, 0.0, 1.0)), name="cloth")
    scene.add(Rope(0.8, 8, pos=(0, 0.5, 0.6)), PBD(0.1, damping=2.0, pinned=(0, 8)), name="rope")
    return scene


def hung(material) -> Any:
    scene = Scene()
    scene.add(Cloth((1, 1), (2, 2)), material, name="cloth")
    return scene.build(1)


@pytest.fixture(scope="module")
def rested():
    """The scene after it came to rest, in two worlds, seen by a camera."""
    scene = draped(fixed=True)
    scene.add_sensor(Camera((0, 0, 2.0), lookat=(0, 0, 0), up=(0, 1, 0), width=80, height=80), name="above")
    world = scene.build(2)
    move = jax.jit(lambda s: jax.lax.fori_loop(0, 60, lambda _, s: world.step(s), s))
    return world, move(world.init())


def test_cloth_lies_on_a_ball_and_a_rope_hangs(rested):
    world, after = rested
    world.check(after)
    x = np.asarray(world.vertices(after, "cloth"))
    assert x.shape == (2, mesh.cloth((8, 9), (1, 1)).vertices.shape[0], 3)
    assert (np.linalg.norm(x - [0, 0, 0.1], axis=-1) > 0.1).all() and (x[..., 2] > 0).all()
    assert x[..., 2].max() > 0.2 and x[..., 2].min() < 0.1
    rope = np.asarray(world.vertices(after, "rope"))
    assert np.allclose(rope[:, [0, -1]], [[-0.4, 0.5, 0.6], [0.4, 0.5, 0.6]])
    assert (rope[:, 1:-1, 2] < 0.6).all() and np.allclose(rope[..., 1], 0.5)


def test_a_reset_takes_them_back(rested):
    world, after = rested
    again, start = world.reset(after, np.array([False, True])), world.init()
    for name in ("cloth", "rope"):
        found, old, new = (world.vertices(s, name) for s in (again, after, start))
        np.testing.assert_array_equal(found[0], old[0])
        np.testing.assert_array_equal(found[1], new[1])


def test_cameras_see_them(rested):
    if ctypes.util.find_library("EGL") is None:
        pytest.skip("needs OpenGL")
    world, after = rested
    image = world.render(after, "above").astype(int)
    blue = (image[..., 2] > 60) & (image[..., 2] > 2 * image[..., 0])
    assert blue[40, 40] and 0.02 < blue.mean() < 0.3
    assert world.depth(after, "above")[40, 40] == pytest.approx(2 - 0.205, abs=0.02)


def test_a_ball_that_moves_takes_the_cloth_along():
    """And gradients flow from the cloth to the ball's velocity."""
    scene = Scene(timestep=0.02)
    scene.add(Sphere(0.1, pos=(0, 0, 0.1)), Rigid(pushed=False), name="ball")
    scene.add(Cloth((0.2, 0.2), (3, 3), pos=(0, 0, 0.22)), PBD(0.2, stretch=1e-4), name="cloth")
    world = scene.build(1)
    start = world.init()

    def height(speed):
        rigid = start.rigid.replace(qvel=start.rigid.qvel.at[:, 2].set(speed))
        s = start.replace(rigid=rigid)
        s, _ = fphys.scan(lambda s, _: (world.step(s), None), s, None, length=3)
        return (world.vertices(s, "cloth")[..., 2] ** 2).sum()

    height = jax.jit(height)
    assert float(height(np.array(2.0))) > float(height(np.array(0.0))) + 1e-3
    check_grads(height, (np.array(2.0),), tol=1e-5)


@pytest.mark.extra("meshio")
def test_finite_elements_from_a_file(tmp_path):
    """A beam, turned and scaled, held at one end: it sags as the solver's own."""
    import meshio

    body = mesh.box((4, 1, 1), (400.0, 100.0, 100.0))
    meshio.write_points_cells(tmp_path / "beam.vtk", body.vertices, [("tetra", body.elements)])
    held = tuple(np.flatnonzero(body.vertices[:, 0] == 0).tolist())
    scene = Scene()
    scene.add(Mesh(tmp_path / "beam.vtk"), FEM(LAW, thickness=1e-3), name="beam")
    with pytest.raises(ModelError, match=r"'beam': params\.thickness is for sheets"):
        scene.build(1)
    scene = Scene(timestep=0.01)
    turned = Mesh(tmp_path / "beam.vtk", scale=1e-3, pos=(0, 0, 1), quat=(1, 0, 0, 1))
    scene.add(turned, FEM(LAW, damping=1.0, pinned=held), name="beam")
    world = scene.build(1)
    after = jax.jit(lambda s: jax.lax.fori_loop(0, 20, lambda _, s: world.step(s), s))(world.init())
    world.check(after)
    params = fem.Params(mesh.build(1e-3 * body.vertices, body.elements), LAW, 0.01, (0, 0, -9.81), 1.0, held)
    own = jax.jit(lambda s: jax.lax.fori_loop(0, 20, lambda _, s: fem.step(params, s), s))(fem.init(params))
    x, y, z = np.moveaxis(np.asarray(own.x), -1, 0)
    np.testing.assert_allclose(world.vertices(after, "beam"), np.stack([-y, x, z + 1], -1), atol=1e-9)
    assert z.min() < -0.01


def test_a_sheet_of_finite_elements():
    """Cloth, held at a corner: it hangs as the solver's own."""
    scene = Scene(timestep=0.02)
    scene.add(Cloth((0.4, 0.4), (2, 2), pos=(0.2, 0.2, 1)), FEM(LAW, 1.0, (0,), thickness=2e-3, bending=1e-4), name="c")
    world = scene.build(1)
    after = jax.jit(lambda s: jax.lax.fori_loop(0, 5, lambda _, s: world.step(s), s))(world.init())
    world.check(after)
    cloth = mesh.cloth((2, 2), (0.4, 0.4))
    params = fem.Params(cloth, LAW, 0.02, (0, 0, -9.81), 1.0, (0,), thickness=2e-3, bending=1e-4)
    own = jax.jit(lambda s: jax.lax.fori_loop(0, 5, lambda _, s: fem.step(params, s), s))(fem.init(params))
    np.testing.assert_allclose(world.vertices(after, "c"), np.asarray(own.x) + np.array([0, 0, 1]), atol=1e-9)
    assert own.x[0, -1, 2] < -0.02


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: draped(fixed=False).build(1, backend="genesis"), "'cloth', PBD: deformable things are simulated nat"),
        (lambda: Scene().add(Cloth((1, 1), (2, 2))), "Cloth is made of PBD"),
        (lambda: Scene().add(Box((1, 1, 1)), CLOTH), "PBD takes Cloth, Rope or Mesh, not Box"),
        (lambda: Scene().add(Rope(1.0, 4), FEM(LAW)), "FEM takes a Mesh"),
        (lambda: Scene().add(Cloth((1, 1), (2, 2)), FEM(LAW)), "needs its thickness"),
        (lambda: Scene().add(Rope(1.0, 4, fixed=True), CLOTH), "pinned"),
        (lambda: Cloth((1, 1), (2,)), "Cloth: size"),  # pyright: ignore
        (lambda: Cloth((1, 1), (0, 2)), "Cloth: cells is 0, must be a whole number, at least 1"),
        (lambda: Cloth((1, 1), (4.0, 2)), "Cloth: cells is 4.0, must be a whole number"),  # pyright: ignore
        (lambda: Rope(1.0, 2.5), "Rope: cells is 2.5, must be a whole number"),  # pyright: ignore
        (lambda: PBD(1.0, pinned=3), "PBD: pinned: vertices are given as 3"),  # pyright: ignore
        (lambda: hung(PBD(1.0, stretch=np.nan)), r"'cloth': params\.stretch is nan"),
        (lambda: hung(FEM(fem.NeoHookean(1.0, np.nan, 0.3), thickness=0.1)), r"'cloth': NeoHookean\.young is nan"),
        (lambda: FEM(MPM), "law is type"),  # pyright: ignore
        (lambda: PBD(0.0), "density is 0.0"),
    ],
)
def test_what_cannot_be_is_refused(make, fault):
    with pytest.raises(ModelError, match=fault):
        make()


def test_things_that_deform_and_are_in_each_others_way_are_named_in_a_warning():
    """They would pass through each other: what is above another, wherever down is; not what is beside it."""
    for gravity, pos in (((0, 0, -9.81), (0.3, 0, 0.5)), ((1, 0, 1), (1.5, 0.1, 1.5)), ((0, 0, 0), (0.2, 0, 0))):
        scene = Scene(gravity=gravity)
        scene.add(Cloth((0.4, 0.4), (2, 2)), PBD(0.2), name="table")
        scene.add(Cloth((0.4, 0.4), (2, 2), pos=pos), FEM(LAW, thickness=1e-3), name="falls")
        scene.add(Rope(0.4, 2, pos=(0, 3, 0)), PBD(0.1))
        with pytest.warns(UserWarning, match="'table' and 'falls' are in each other's way") as told:
            scene.build(1)
        assert len(told) == 1 and told[0].filename == __file__


def test_what_the_native_back_end_lacks_beside_deformable_things():
    from fphys.particles.materials import Corotated

    scene = Scene(domain=Domain((-1, -1, -1), (1, 1, 1), 0.1))
    scene.add(Sphere(0.1), name="ball")
    scene.add(Rope(1.0, 4), CLOTH, name="rope")
    scene.add(Box((0.4, 0.4, 0.4)), MPM(Corotated(1000.0, 1e4, 0.3)))
    scene.add_sensor(Rays(((0, 0, 1),)), name="rays")
    with pytest.raises(UnsupportedError, match=r"'rope', Rope: it would not feel the particles(.|\n)*'rays', Rays"):
        scene.build(1)
