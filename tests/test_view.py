"""fphys view shows the right motion; the page is served, scrubbed and played, and inspected in a browser."""

import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import cli, page, view
from fphys.deformables import mesh
from fphys.errors import ModelError
from fphys.model.structure import GeomType
from fphys.runs import Run


@pytest.fixture(scope="module")
def pendulum():
    model = fphys.load(fphys.asset("double-pendulum"))
    state = fphys.init(model, 2, qpos=np.array([[0.5, 0.0], [1.0, -1.0]]))
    return model, jax.jit(fphys.rollout)(model, state, jnp.zeros((20, 2, 2)))


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_the_motion_is_the_rollouts(pendulum):
    model, states = pendulum
    particles = np.random.default_rng(0).uniform(size=(20, 7, 2))
    shown = view.motion(model, states.qpos, particles, world=1)
    poses = jax.jit(jax.vmap(fphys.kinematics, (None, 0)))(model, states).geom
    np.testing.assert_allclose(shown.pos, poses.pos[:, 1], atol=1e-12)
    np.testing.assert_allclose(shown.mat, poses.mat[:, 1].reshape(shown.mat.shape), atol=1e-12)
    assert (shown.particles[..., [0, 2]] == particles).all() and (shown.particles[..., 1] == 0).all()
    assert view.motion(model).pos.shape == shown.pos[:1].shape


@pytest.mark.parametrize(
    ("qpos", "x", "world", "message"),
    [
        (np.zeros((5, 3)), None, 0, r"qpos has shape \(5, 3\), the model \(2,\)"),
        (np.zeros((5, 4, 2)), None, 4, "world is 4, qpos has worlds 0 to 3"),
        (np.zeros(2), None, 0, "qpos has shape .*time axis first"),
        (np.zeros((5, 2)), np.zeros((4, 3, 3)), 0, "'qpos': 5, 'x': 4} times: must be as many"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(pendulum, qpos, x, world, message):
    with pytest.raises(ModelError, match=message):
        view.motion(pendulum[0], qpos, x, world)


@pytest.mark.parametrize(
    ("kind", "size", "volume"),
    [
        (GeomType.BOX, [0.1, 0.2, 0.3], 8 * 0.1 * 0.2 * 0.3),
        (GeomType.CYLINDER, [0.1, 0.2, 0.0], np.pi * 0.1**2 * 0.4),
        (GeomType.SPHERE, [0.1, 0.0, 0.0], 4 / 3 * np.pi * 0.1**3),
        (GeomType.ELLIPSOID, [0.1, 0.2, 0.3], 4 / 3 * np.pi * 0.1 * 0.2 * 0.3),
        (GeomType.CAPSULE, [0.1, 0.2, 0.0], np.pi * 0.1**2 * (0.4 + 4 / 3 * 0.1)),
    ],
)
def test_shapes_are_closed_and_face_outwards(kind, size, volume):
    vertices, faces = page.shape(kind, np.array(size), None, -1)
    a, b, c = vertices[faces].transpose(1, 0, 2)
    found = np.einsum("fi,fi->", a, np.cross(b, c)) / 6  # the divergence theorem: wrong if a triangle is flipped
    assert found == pytest.approx(volume, rel=0.03)  # round shapes have 24 sides
    edges = np.sort(faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), 1)
    assert (np.unique(edges, axis=0, return_counts=True)[1] == 2).all()


@pytest.mark.extra("viser")
def test_a_page_is_served_scrubbed_and_played(pendulum, port, tmp_path):
    model, states = pendulum
    np.savez(tmp_path / "result.npz", qpos=states.qpos, x=np.zeros((20, 5, 3)))
    viewer = view.view("double-pendulum", tmp_path / "result.npz", port, world=1)
    try:
        with urllib.request.urlopen(viewer.address, timeout=20) as page:
            assert page.status == 200 and b"<html" in page.read()
        viewer.playing.value = False
        for frame in (0, 13):
            viewer.show(frame)
            for index, handle in viewer._geoms.items():
                np.testing.assert_allclose(handle.position, viewer.motion.pos[frame, index], atol=1e-6)
                turned = fphys.math.rotation(jnp.asarray(handle.wxyz, jnp.float64))
                np.testing.assert_allclose(turned, viewer.motion.mat[frame, index], atol=1e-6)
        assert viewer._geoms.keys() == set(range(model.structure.ngeom))
        viewer.play(0.1)
        assert viewer.time.value == 13  # paused
        viewer.playing.value, viewer.speed.value = True, 0.5
        viewer.play(0.1)
        assert viewer.time.value != 13
    finally:
        viewer.stop()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(viewer.address, timeout=5)


@pytest.mark.extra("viser")
def test_particles_alone_and_a_model_alone(port, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).uniform(size=(3, 2, 10, 2)))
    for source in (str(tmp_path / "x.npz"), "ball"):
        viewer = view.view(source, None, port)
        assert (viewer._cloud is None) == (source == "ball") and len(viewer.motion.pos) >= 3
        viewer.stop()


@pytest.mark.extra("viser")
def test_a_folder_is_enough(port, tmp_path):
    with pytest.raises(ModelError, match=r"has no result\.npz, nor has a folder in it"):
        view.view(str(tmp_path), None, port)
    scene = '<mujoco><worldbody><body mocap="true"><geom size="0.1"/></body></worldbody></mujoco>'
    x, marks = np.zeros((5, 2, 3, 2)), np.array([[[1.0, 2.0, 3.0]], [[4.0, 5.0, 6.0]]])
    for _ in range(2):  # the newest is shown
        x = x + np.arange(5.0)[:, None, None, None]
        run = Run("fall", root=tmp_path, quiet=True)
        run.motion(0.1 * np.arange(1, 6), scene, x=x, marks=marks, color=np.eye(3), radius=0.2)
    viewer = view.view(str(tmp_path / "fall"), None, port)
    try:
        assert viewer.motion.timestep == pytest.approx(0.1)
        viewer.show(4)
        assert (viewer._cloud.points[:, 0] == 8).all() and viewer._cloud.point_size == pytest.approx(0.4)
        assert (viewer._cloud.colors == 255 * np.eye(3)).all()
        for world in range(2):
            viewer.world.value = world
            np.testing.assert_allclose(viewer._geoms[0].position, marks[world, 0])
    finally:
        viewer.stop()


@pytest.mark.extra("viser")
@pytest.mark.parametrize("corners", [3, 4])
def test_a_mesh_is_shown_by_its_surface(port, tmp_path, corners):
    body = mesh.cloth((3, 3), (1.0, 1.0)) if corners == 3 else mesh.box((2, 2, 2), (1.0, 1.0, 1.0))
    x = body.vertices + np.arange(4.0)[:, None, None, None]
    np.savez(tmp_path / "x.npz", x=x, elements=body.elements)
    viewer = view.view(str(tmp_path / "x.npz"), None, port)
    try:
        assert viewer._cloud is None and len(viewer.motion.faces) == (len(body.elements) if corners == 3 else 48)
        viewer.show(3)
        np.testing.assert_allclose(viewer._surface.vertices, x[3, 0], atol=1e-6)
    finally:
        viewer.stop()
    with pytest.raises(ModelError, match=r"elements name vertices 0 to .*, x has 2"):
        view.motion(None, None, x[:, :, :2], elements=body.elements)


@pytest.mark.extra("viser")
def test_particles_that_are_not_there_are_hidden(port, tmp_path):
    x = np.random.default_rng(0).uniform(size=(4, 2, 5, 3))
    x[np.arange(5) >= np.arange(4)[:, None, None] + [[0], [-9]]] = np.nan  # frame k shows k in world 0, none in world 1
    color = np.arange(15).reshape(5, 3) / 15
    run = Run("jet", root=tmp_path, quiet=True)
    for look in ({"color": color}, {}):
        run.motion(np.arange(4.0), x=x, **look)
        viewer = view.view(str(run.path), None, port)
        try:
            for frame in (3, 0, 2):
                viewer.show(frame)
                np.testing.assert_allclose(viewer._cloud.points, x[frame, 0, :frame], atol=1e-6)
                assert not look or (viewer._cloud.colors == (255 * color[:frame]).astype(np.uint8)).all()
            assert viewer._cloud.point_size > 0 and np.isfinite(viewer.server.initial_camera.position).all()
            viewer.world.value = 1
            assert not len(viewer._cloud.points)
        finally:
            viewer.stop()
    viewer = view.view(str(run.path), None, port, world=1)  # begins with nothing to see
    viewer.stop()
    assert np.isfinite(viewer.server.initial_camera.position).all()


@pytest.mark.extra("viser")
@pytest.mark.parametrize("corners", [3, 4])
def test_points_that_are_not_of_the_mesh_are_a_cloud(port, tmp_path, corners):
    body = mesh.cloth((3, 3), (1.0, 1.0)) if corners == 3 else mesh.box((2, 2, 2), (1.0, 1.0, 1.0))
    drops = np.array([[2.0, 0, 0], [np.nan, 0, 0], [3.0, 0, 0]])
    n, x = len(body.vertices), np.concatenate([drops[:2], body.vertices, drops[2:]])
    run = Run("rain", root=tmp_path, quiet=True)
    run.motion(np.arange(2.0), x=np.stack([x, x + 1])[:, None], elements=2 + body.elements)
    viewer = view.view(str(run.path), None, port)
    try:
        viewer.show(1)
        np.testing.assert_allclose(viewer._cloud.points, drops[[0, 2]] + 1, atol=1e-6)
        np.testing.assert_allclose(viewer._surface.vertices, body.vertices + 1, atol=1e-6)
        assert np.unique(viewer._surface.faces).max() == n - 1
    finally:
        viewer.stop()


@pytest.mark.extra("viser")
def test_frames_are_shown_at_their_times(port, tmp_path):
    """Also where a world stood still for a step, and all the time."""
    x, run = np.zeros((6, 1, 2, 3)), Run("fall", root=tmp_path, quiet=True)
    for time, played in (
        (np.array([1.0, 1.1, 1.2, 1.2, 1.4, 9.0]), ((0, 3, 3), (0, 5, 4), (3, 1, 3))),
        (np.ones(6), ((0, 1, 5),)),
    ):
        run.motion(time, x=x)
        viewer = view.view(str(run.path), None, port)
        try:
            viewer.speed.value = 4.0
            for begin, tenths, end in played:  # of a second of the motion
                viewer.show(begin)
                viewer.play((tenths - 0.5) / 40, fps=40)
                assert viewer.time.value == end
        finally:
            viewer.stop()


@pytest.mark.extra("viser")
def test_marks_alone_are_a_motion(port, tmp_path):
    model = fphys.load('<mujoco><worldbody><body mocap="true"><geom size="0.1"/></body></worldbody></mujoco>')
    states = jax.tree.map(lambda a: np.broadcast_to(a, (3, *a.shape)), fphys.init(model, 2))
    states = states.replace(mocap_pos=np.arange(18.0).reshape(3, 2, 1, 3))
    run = Run("mark", root=tmp_path, quiet=True)
    run.motion(np.arange(3.0), model, states)
    viewer = view.view(str(run.path), None, port)
    try:
        viewer.show(2)
        for world in range(2):
            viewer.world.value = world
            np.testing.assert_allclose(viewer._geoms[0].position, states.mocap_pos[2, world, 0])
    finally:
        viewer.stop()


def test_without_viser_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "viser", None)
    assert cli.main(["view", "double-pendulum"]) == 2
    assert 'pip install -e ".[view]"' in capsys.readouterr().err


@pytest.mark.extra("viser")
def test_a_file_without_motion(tmp_path, capsys):
    np.savez(tmp_path / "other.npz", loss=np.zeros(3))
    assert cli.main(["view", "double-pendulum", str(tmp_path / "other.npz")]) == 2
    assert "holds 'loss', must hold qpos, x or mocap_pos to be shown" in capsys.readouterr().err


@pytest.mark.browser
def test_it_is_seen_in_a_browser(port, tmp_path):
    model = "<mujoco><worldbody><body><geom size='1' rgba='1 0.5 0 1'/></body></worldbody></mujoco>"
    (tmp_path / "ball.xml").write_text(model)
    viewer = view.view(str(tmp_path / "ball.xml"), None, port)
    look = [sys.executable, Path(__file__).parent / "browser.py", viewer.address, tmp_path / "page.png", "look"]
    try:
        child = subprocess.run([*map(str, look), "255", "150", "50"], capture_output=True, text=True, timeout=200)
    finally:
        viewer.stop()
    assert child.returncode == 0, child.stderr[-2000:]
