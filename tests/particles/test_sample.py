"""Points that fill shapes: how many, where, how far apart, and how even they are."""

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.spatial import KDTree

from fphys.particles import mpm, sample, sph

TETRAHEDRON = SimpleNamespace(
    vertices=np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]),
    faces=np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]),
)
SHAPES: dict[str, Any] = {
    "rectangle": (lambda s, seed: sample.box((1.0, 2.0), (2.0, 2.5), s, seed), 0.5, 2),
    "box": (lambda s, seed: sample.box((0, 0, 0), (1.0, 0.5, 0.5), s, seed), 0.25, 3),
    "disk": (lambda s, seed: sample.ball((1.0, 1.0), 0.5, s, seed), np.pi / 4, 2),
    "ball": (lambda s, seed: sample.ball((0, 0, 0), 0.5, s, seed), np.pi / 6, 3),
    "tetrahedron": (lambda s, seed: sample.mesh(TETRAHEDRON, s, seed), 1 / 6, 3),
}


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("name", SHAPES)
def test_points_fill_the_shape(name: str, seed: int | None):
    """As many as cubes fit into its volume, in it, centred as it is, and none close together."""
    make, volume, dim = SHAPES[name]
    spacing = 0.05 if dim == 3 else 0.025
    x = make(spacing, seed)
    assert x.shape[1] == dim and x.dtype == float
    assert len(x) * spacing**dim == pytest.approx(volume, rel=0.05)
    middle = {"rectangle": (1.5, 2.25), "box": (0.5, 0.25, 0.25), "disk": (1, 1), "tetrahedron": (0.25,) * 3}
    np.testing.assert_allclose(x.mean(0), middle.get(name, (0, 0, 0)), atol=0.2 * spacing)
    distance = KDTree(x).query(x, 2)[0][:, 1]
    assert distance.min() >= (0.5 * spacing if seed is not None else spacing * (1 - 1e-9))
    np.testing.assert_array_equal(x, make(spacing, seed))
    if name == "tetrahedron":
        assert (x > 0).all() and (x.sum(1) < 1).all()
    if name in ("disk", "ball"):
        assert np.linalg.norm(x - middle.get(name, 0.0), axis=1).max() <= 0.5


def test_blue_noise_has_no_long_waves_and_no_rows():
    """The power of random points is 1 at all wave numbers; of blue noise it is small for long waves, and it has no
    peaks of a lattice's height, the number of points."""
    spacing = 1 / 32
    points = {"blue": sample.box((0, 0), (1, 1), spacing, seed=3), "lattice": sample.box((0, 0), (1, 1), spacing)}
    points["random"] = np.random.default_rng(0).uniform(size=(1024, 2))
    k = np.stack(np.meshgrid(np.arange(-40, 41), np.arange(-40, 41), indexing="ij"), -1).reshape(-1, 2)
    size = np.linalg.norm(k, axis=1)
    power = {key: np.abs(np.exp(-2j * np.pi * x @ k.T).sum(0)) ** 2 / len(x) for key, x in points.items()}
    long = (size > 0) & (size <= 8)
    assert power["random"][long].mean() == pytest.approx(1.0, abs=0.3)
    assert power["blue"][long].mean() < 0.05
    assert power["lattice"][size > 0].max() == pytest.approx(1024)
    assert power["blue"][size > 0].max() < 0.2 * 1024
    assert np.abs(sample.box((0, 0), (1, 1), spacing, seed=4) - points["blue"]).max() > spacing  # seeds differ


@pytest.mark.extra("trimesh")
def test_files_of_meshes(tmp_path: Path):
    trimesh = importlib.import_module("trimesh")
    path = tmp_path / "cube.stl"
    trimesh.creation.box((1.0, 1.0, 1.0)).export(path)
    np.testing.assert_allclose(sample.mesh(path, 0.25), sample.box((-0.5,) * 3, (0.5,) * 3, 0.25), atol=1e-12)
    np.testing.assert_array_equal(sample.mesh(str(path), 0.25), sample.mesh(trimesh.load(path), 0.25))


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: sample.box((0, 0), (1, 1), 0.0), ValueError, "spacing is 0.0 m: it must be positive"),
        (lambda: sample.box((0, 0), (1, -1), 0.1), ValueError, "no room for particles 0.1 m apart"),
        (lambda: sample.box((0, 0), (1, 1, 1), 0.1), ValueError, r"shapes \(2,\) and \(3,\)"),
        (lambda: sample.ball((0, 0), 0.01, 0.1), ValueError, "no room"),
        (lambda: sample.mesh("nowhere.stl", 0.1), FileNotFoundError, "nowhere.stl: there is no such file"),
        (
            lambda: sample.mesh(SimpleNamespace(vertices=TETRAHEDRON.vertices, faces=TETRAHEDRON.faces[:, ::-1]), 0.1),
            ValueError,
            "inside out",
        ),
        (
            lambda: sample.mesh(SimpleNamespace(vertices=TETRAHEDRON.vertices, faces=TETRAHEDRON.faces[:3]), 0.1),
            ValueError,
            "the surface is open: 3 edges lack a triangle",
        ),
        (lambda: sample.box((0, 0), (1, 1), 0.1, seed=1.5), ValueError, "seed is 1.5: give a whole number"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_filled_is_refused(make: Any, error: type[Exception], says: str):
    with pytest.raises(error, match=says):
        make()


def test_particles_begin_from_them():
    """With the volume that each point stands for."""
    x = sample.ball((0.5, 0.5), 0.2, 1 / 32, seed=0)
    params = mpm.Params(mpm.Liquid(1e3, 1e4), 1e-3, cell=1 / 16, shape=(16, 16))
    state = mpm.init(params, x[None], volume=(1 / 32) ** 2)
    assert float(state.volume.sum()) == pytest.approx(np.pi * 0.04, rel=0.02)
    assert not mpm.step(params, state).status.any()
    fluid = sph.Params(spacing=1 / 32, timestep=1e-4, sound_speed=10.0)
    assert sph.init(fluid, x[None]).x.shape == x[None].shape
