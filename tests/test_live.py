"""The live viewer steps fphys, and does what a page tells it, headless: a client of its websocket is the browser."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import cli
from fphys.live import FPS, Bodies, Live, live, pulled

pytestmark = pytest.mark.extra("viser")

SCENE = """<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <geom type="plane" size="2 2 0.1"/>
    <body name="ball" pos="0 0 0.5"><freejoint/><geom type="sphere" size="0.1" mass="2" pos="0 0.05 0"/></body>
    <body name="arm" pos="1 0 1">
      <joint name="hinge" axis="0 1 0" damping="0.1"/><geom size="0.05" pos="0.3 0 0"/>
    </body>
  </worldbody>
  <actuator><motor name="motor" joint="hinge" ctrlrange="-3 3" ctrllimited="true"/></actuator>
  <keyframe><key name="high" qpos="0 0 1.5 1 0 0 0 0"/></keyframe>
</mujoco>"""


@pytest.fixture(scope="module")
def page():
    viewer = live(fphys.load(SCENE), 2, 0)
    yield viewer
    viewer.stop()


@pytest.fixture(autouse=True)
def begun(request):
    if "page" in request.fixturenames:
        viewer = request.getfixturevalue("page")
        viewer.speed.value, viewer.contacts.value, viewer.start.value = 1.0, False, "default"
        viewer.sliders[0].value = 0.0
        viewer.reset()
        viewer.draw()


def test_it_steps_fphys(page):
    assert page.advance(0.095) == 9 and page.advance(0.095) == 10  # the rest is kept
    model = page.model
    state, step = fphys.init(model, 2), jax.jit(fphys.step)
    for _ in range(19):
        state = step(model, state, jnp.zeros((2, 1)))
    np.testing.assert_allclose(page.state.qpos, state.qpos, rtol=1e-12)
    page.draw()
    ball = page._geoms[1].batched_positions
    np.testing.assert_allclose(ball - page._apart, fphys.kinematics(model, state).geom.pos[:, 1], atol=1e-6)
    assert np.ptp(ball[:, 1]) > 1  # worlds are side by side
    page.speed.value = 0.5
    assert page.advance(0.1) == 5


def test_sliders_reset_and_start(page):
    page.sliders[0].value = 2.5
    page.advance(0.2)
    assert (page.state.qvel[:, 6] > 0.5).all() and (page.control() == 2.5).all()
    page.reset()
    assert (page.state.time == 0).all() and (page.state.qpos == page.model.qpos0).all()
    page.start.value = "high"
    deadline = time.monotonic() + 20
    while not (page.state.qpos[:, 2] == 1.5).all():  # viser calls back in a thread
        assert time.monotonic() < deadline
    with pytest.raises(ValueError, match="--live takes a model"):
        cli.main(["--debug", "view", "cartpole", "result.npz", "--live"])


def test_contacts_are_drawn_with_their_forces(page):
    page.contacts.value = True
    for _ in range(15):
        page.advance(0.1)
    page.draw()
    assert page._arrows.visible and page._arrows.points.shape == (2, 2, 3)  # a ball on the floor in each world
    begin, end = page._arrows.points.transpose(1, 0, 2)
    assert np.abs(begin[:, 2]).max() < 0.01 and (end[:, 2] > 0).all() and np.abs((end - begin)[:, :2]).max() < 0.01
    force = np.asarray(page._touches(page.state, page.control(), page._pull)[1]).sum(1)
    np.testing.assert_allclose(force, [[0, 0, 2 * 9.81]] * 2, atol=0.05)


def test_a_pull_is_the_wrench_of_a_spring(page):
    model = page.model
    state = fphys.init(model, 2)
    grip, target = np.array([0.0, 0.15, 0.0]), np.array([0.0, 0.15, 0.7])
    wrench = pulled(model, state, page._numbers(1, 1, grip, target, 100.0, 5.0))
    np.testing.assert_allclose(wrench[1, 1], [0, 0, 20, 2, 0, 0], atol=1e-12)  # 0.2 m of 100 N/m, at 0.1 m
    assert (wrench[0] == 0).all() and (wrench[1, 2] == 0).all()
    moving = state.replace(qvel=state.qvel.at[1, 2].set(1.0))
    slower = pulled(model, moving, page._numbers(1, 1, grip, target, 100.0, 5.0))
    np.testing.assert_allclose(slower[1, 1, 2], 15.0)


def test_the_mouse_moves_a_body(page):
    """A client says that the ball of the second world is dragged; then the page is told that it is elsewhere."""
    import msgspec
    import viser
    import zstandard
    from viser import _messages as messages
    from websockets.sync.client import connect

    own = page.address.removeprefix("http://")
    types = [f"viser-v{viser.__version__}"]

    def received(browser):
        """Names of scene nodes whose batched positions came in a frame."""
        data = browser.recv(timeout=30)
        size = int.from_bytes(data[8:16], "little")
        unpacked = zstandard.ZstdDecompressor().decompress(data[16 : 16 + size])
        content = msgspec.msgpack.decode(unpacked)["messages"]
        return [
            m["name"] for m in content if m["type"] == "SceneNodeUpdateMessage" and "batched_positions" in m["updates"]
        ]

    def drag(phase, at, to):
        message = messages.SceneNodeDragMessage(
            phase, page._geoms[1].name, 1, tuple(at), (0.5, 0.5), tuple(to), (0.5, 0.5), "left", "shift"
        )
        browser.send(msgspec.msgpack.encode(message.as_serializable_dict()))

    def until(condition):
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, "the page does not answer"
            time.sleep(0.01)

    with connect(f"ws://{own}", origin=f"http://{own}", subprotocols=types, max_size=None) as browser:
        unit, place = (1.0, 0.0, 0.0, 0.0), (0.0, -3.0, 1.0)
        camera = messages.ViewerCameraMessage(unit, place, 1.0, 0.1, 100.0, 600, 800, (0.0, 0.0, 0.5), (0.0, 0.0, 1.0))
        browser.send(msgspec.msgpack.encode(camera.as_serializable_dict()))
        until(lambda: page.server.get_clients())
        at = page._geoms[1].batched_positions[1].astype(float)
        drag("start", at, at)
        until(lambda: page._pull.stiffness > 0)
        drag("update", at, at + [0.5, 0, 0.6])
        until(lambda: page._pull.target[2] > 1)
        for _ in range(20):
            page.advance(0.1)
        page.draw()
        assert page._string.visible
        while page._geoms[1].name not in received(browser):
            pass
        moved = page._geoms[1].batched_positions
        np.testing.assert_allclose(moved[1], at + [0.5, 0, 0.6 - 9.81 / 60], atol=0.02)  # held, where its weight hangs
        assert moved[0, 2] < 0.2  # the ball of the first world fell
        drag("end", at, at)
        until(lambda: page._pull.stiffness == 0)
    page.draw()
    assert not page._string.visible


def test_a_fault_is_told_and_the_page_goes_on(page):
    page.state = page.state.replace(qvel=page.state.qvel.at[0, 0].set(jnp.nan))
    page.play(0.3)
    assert "world 0: NONFINITE" in page.status.content
    page.reset()
    page.play(0.2)
    assert "NONFINITE" not in page.status.content and float(page.state.time[0]) > 0


def test_particles_and_surfaces_of_a_scene_are_shown():
    from fphys.scene import PBD, Cloth, Plane, Rope

    scene = fphys.Scene(timestep=0.01)
    scene.add(Plane())
    scene.add(Cloth((0.3, 0.3), (3, 3), pos=(0, 0, 0.5)), PBD(0.2), name="cloth")
    scene.add(Rope(0.4, cells=4, pos=(0.5, 0, 0.6)), PBD(0.1), name="rope")
    viewer = live(scene.build(num_worlds=2), 1, 0)
    try:
        cloth, rope = (viewer._matter[name] for name in ("cloth", "rope"))
        before, above = cloth.vertices.copy(), rope.points.copy()
        viewer.advance(0.1)
        viewer.draw()
        assert (cloth.vertices[:, 2] < before[:, 2] - 0.03).all() and (rope.points[:, 2] < above[:, 2] - 0.03).all()
        assert len(rope.points) == 2 * 5 and cloth.faces.max() == len(cloth.vertices) - 1
        worlds = [np.concatenate(pair) for pair in zip(np.split(before, 2), np.split(above, 2), strict=True)]
        low, high = (f(worlds[0], axis=0) for f in (np.min, np.max))
        assert worlds[0][:, 1].max() < worlds[1][:, 1].min()  # side by side, and the camera looks at their middle
        apart = viewer._apart[1] / 2
        np.testing.assert_allclose(viewer.server.initial_camera.look_at, (low + high) / 2 + apart, atol=1e-6)
    finally:
        viewer.stop()


def test_the_page_shows_what_has_come_from_a_source_and_nothing_else():
    """At the start, all slots of a source lie in one place, and hold nothing."""
    from fphys.particles.materials import Liquid
    from fphys.scene import MPM, Domain, Source

    scene = fphys.Scene(timestep=0.002, domain=Domain((0, 0, 0), (0.8, 0.8, 1.2), spacing=0.1))
    scene.add(Source(0.04, 1.0, 5, pos=(0.4, 0.4, 0.9)), MPM(Liquid(1000.0, 1e4)), name="jet")
    world = scene.build(num_worlds=2)
    viewer = live(world, 1, 0)
    try:
        jet = viewer._matter["jet"]
        assert jet.point_size == pytest.approx(0.1) and len(jet.points) == 0
        np.testing.assert_allclose(viewer._apart[1], [0, 2.4, 0])  # a domain is 1.2 m high
        np.testing.assert_allclose(viewer.server.initial_camera.look_at, [0.4, 0.4 + 1.2, 0.6], atol=1e-6)
        viewer.advance(0.01)
        viewer.draw()
        there = int(world.alive(viewer.state, "jet").sum())
        assert 0 < there < 2 * 5 and len(jet.points) == there and np.isfinite(jet.points).all()
        filling, mpm = world.filling, viewer.state.mpm
        assert filling is not None and len(filling.flexes(viewer.state, 0)) == 1
        lost = viewer.state.replace(mpm=mpm.replace(x=mpm.x.at[0].set(jnp.nan)))
        assert not filling.flexes(lost, 0) and len(filling.flexes(lost, 1)) == 1  # the rest of the scene is drawn
    finally:
        viewer.stop()


def test_a_policy_acts_in_the_page():
    from fphys import envs
    from fphys.live import Agent

    env = envs.make("InvertedPendulum-v5", 2)
    apart = jnp.array([[1.0], [-1.0]], env.action_spec.dtype)  # a push forwards in one world, backwards in the other
    viewer = Live(Agent(env, lambda observation: apart), 0)
    try:
        begun = np.asarray(viewer._now["time"])
        assert viewer.advance(float(env.dt[0]) * 3.01) == 3 and not viewer.sliders
        viewer.draw()
        np.testing.assert_allclose(viewer._now["time"] - begun, 3 * float(env.dt[0]), rtol=1e-5)
        cart = viewer.state[0].physics.qvel[:, 0]
        assert cart[0] > 0.5 and cart[1] < -0.5
    finally:
        viewer.stop()


class Cloud(Bodies):
    """Twenty thousand particles that drift, whose step takes as long as it is told."""

    pause = 0.0

    def points(self, state):
        number = jnp.arange(20_000, dtype=state.time.dtype)[None]
        angle, radius = number * 2.399963 + state.time[:, None], jnp.sqrt(number / 20_000)
        return {"cloud": jnp.stack([radius * jnp.cos(angle), radius * jnp.sin(angle), 0.3 + 0 * angle], -1)}

    def step(self, state, ctrl, pull):
        waited = jax.pure_callback(self.wait, jax.ShapeDtypeStruct((), state.time.dtype), state.time)
        return super().step(state, ctrl, pull).replace(time=state.time + self.timestep + 0 * waited)

    def wait(self, now):
        time.sleep(self.pause)
        return np.asarray(now.sum())


@pytest.mark.alone
def test_a_slow_solver_moves_slowly_and_pictures_still_come():
    cloud = Cloud(fphys.load(SCENE))
    cloud.pause = 0.01  # as long as it simulates, of which a picture's steps may take three fifths
    viewer, drawn = Live(cloud, 0), []
    try:
        viewer.play(3.0)  # what is compiled, and the first guesses
        own = viewer.draw
        viewer.draw = lambda: (drawn.append(float(viewer.state.time[0])), own())
        viewer.play(2.0)
        assert len(drawn) >= 0.8 * 2.0 * FPS
        assert 0.3 < drawn[-1] - drawn[0] < 1.6
    finally:
        viewer.stop()


def in_browser(viewer, tmp_path, *task):
    """What a real browser prints of the page while it plays."""
    playing = threading.Thread(target=viewer.play, daemon=True)
    playing.start()
    program = [sys.executable, Path(__file__).parent / "browser.py", viewer.address, tmp_path / "page.png", *task]
    try:
        child = subprocess.run(list(map(str, program)), capture_output=True, text=True, timeout=200)
    finally:
        viewer._stopped.set()
        playing.join(20)
    assert child.returncode == 0, child.stderr[-2000:]
    return child.stdout


@pytest.mark.browser
@pytest.mark.alone
def test_twenty_thousand_particles_at_thirty_pictures_a_second(tmp_path):
    """They are sent at that rate while a browser shows them, each as one array, which reaches its graphics card."""
    viewer, drawn = Live(Cloud(fphys.load(SCENE)), 0), []
    own = viewer.draw
    viewer.draw = lambda: (drawn.append(time.perf_counter()), own())
    try:
        uploads = float(in_browser(viewer, tmp_path, "uploads", 20_000 * 3 * 4))
    finally:
        viewer.stop()
    watched = np.asarray(drawn) - drawn[-1] > -8.0
    assert uploads > 0 and watched.sum() >= 0.9 * 8.0 * FPS


@pytest.mark.browser
def test_the_mouse_of_a_browser_lifts_a_body(tmp_path):
    model = SCENE.replace('<geom type="sphere"', '<geom rgba="1 0.5 0 1" type="sphere"')
    viewer = live(fphys.load(model), 1, 0)
    viewer.server.initial_camera.position, viewer.server.initial_camera.look_at = (0, -2.0, 0.6), (0, 0, 0.5)
    heights, own = [], viewer.draw
    viewer.draw = lambda: (heights.append(float(viewer.state.qpos[0, 2])), own())
    try:
        in_browser(viewer, tmp_path, "drag", 255, 150, 50)
    finally:
        viewer.stop()
    rested = next(k for k, height in enumerate(heights) if height < 0.12)
    assert max(heights[rested:]) > 0.5  # m: it lay on the floor, and was lifted
