import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from fphys.errors import MissingDependencyError
from fphys.runs import Run


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 7
    rate: float = 0.5


def metrics(run):
    return json.loads((run.path / "metrics.json").read_text())


def test_a_run_leaves_everything_in_its_folder(tmp_path, capsys):
    with Run("fit", root=tmp_path, config=Config()) as run:
        for i in run.progress(5, "fit"):
            run.log(i, loss=1.0 / (i + 1))
        run.save(x=np.arange(3))
        run.plot("loss", lambda axes: run.curves(axes, "loss"))
        run.video("fit", np.zeros((2, 16, 16, 3), np.uint8))
        run.metrics(final=run.history["loss"][-1])
    names = {file.name.split(".")[0] for file in run.path.iterdir()}
    assert names == {"events", "fit", "loss", "metrics", "result"}
    out = capsys.readouterr().out
    assert "fit: ok" in out
    for name in ("metrics.json", "result.npz", "loss.png", "fit.mp4"):
        assert name in out
    content = metrics(run)
    assert content["status"] == "ok"
    assert content["error"] is None
    assert content["metrics"] == {"final": 0.2}
    assert content["config"] == {"seed": 7, "rate": 0.5}
    assert content["seed"] == 7
    assert content["video"] == "fit.mp4"
    assert content["versions"]["jax"]
    assert content["device"] == "cpu"
    with np.load(run.path / "result.npz") as result:
        np.testing.assert_array_equal(result["x"], [0, 1, 2])
        np.testing.assert_allclose(result["history/loss"], 1 / np.arange(1, 6))
        np.testing.assert_array_equal(result["history/loss/step"], np.arange(5))


def test_a_motion_is_saved_with_its_scene(tmp_path):
    import jax
    import jax.numpy as jnp

    import fphys

    model = fphys.load(fphys.asset("double-pendulum"))
    states = jax.jit(fphys.rollout)(model, fphys.init(model, 2, qpos=np.array([0.1, 0.2])), jnp.zeros((3, 2, 2)))
    run = Run("fall", root=tmp_path, quiet=True)
    run.motion(states.time[:, 0], model, states, radius=0.1)
    drawn = fphys.load(run.path / "scene.xml")
    assert drawn.structure.nq == 2 and drawn.structure.ngeom == model.structure.ngeom and not drawn.structure.nu
    with np.load(run.path / "result.npz") as result:
        assert set(result) == {"time", "qpos", "radius"}
        np.testing.assert_array_equal(result["qpos"], states.qpos)
    with pytest.raises(ValueError, match=r"time has shape \(2,\), must be 3 numbers \[s\] that never fall"):
        run.motion(states.time[:2, 0], model, states)
    with pytest.raises(ValueError, match=r"shapes \{'qpos': \(3, 2, 2\), 'x': \(3, 4, 5, 3\)\}: .*as many worlds"):
        run.motion(states.time[:, 0], model, states, x=np.zeros((3, 4, 5, 2)))
    with pytest.raises(ValueError, match="nothing moves"):
        run.motion(states.time[:, 0], model)


def resting(model, times, worlds):
    import jax

    import fphys

    return jax.tree.map(lambda a: np.broadcast_to(a, (times, *a.shape)), fphys.init(model, worlds))


def test_what_is_saved_is_a_copy(tmp_path):
    run = Run("fit", root=tmp_path, quiet=True)
    a, x = np.zeros(2), np.zeros((3, 1, 4, 3))
    run.save(a=a)
    run.motion(np.arange(3.0), x=x)
    a += 1
    x += 1
    run.save(b=a)
    with np.load(run.path / "result.npz") as result:
        assert result["a"].max() == result["x"].max() == 0


@pytest.mark.parametrize("name", ["file", "allow_pickle"])
def test_names_that_savez_means_otherwise_are_refused(tmp_path, name):
    run = Run("fit", root=tmp_path, quiet=True)
    with pytest.raises(ValueError, match=rf"called \['{name}'\].*rename"):
        run.save(**{name: np.zeros(2)})
    run.save(a=np.zeros(2))
    with np.load(run.path / "result.npz") as result:
        assert set(result) == {"a"}


def test_a_motion_replaces_the_one_before(tmp_path):
    import fphys

    model, run, x = fphys.load(fphys.asset("ball")), Run("fall", root=tmp_path, quiet=True), np.zeros((5, 1, 4, 3))
    run.save(loss=1.0)
    run.motion(np.arange(5.0), x=x, elements=np.array([[0, 1, 2]]), color=np.ones((4, 3)))
    run.motion(np.arange(3.0), model, resting(model, 3, 2))
    with np.load(run.path / "result.npz") as result:
        assert set(result) == {"loss", "time", "qpos"}
    run.motion(np.arange(5.0), x=x)
    with np.load(run.path / "result.npz") as result:
        assert set(result) == {"loss", "time", "x"} and not (run.path / "scene.xml").exists()


POST = '<mujoco><worldbody><body mocap="true"><geom size="0.1"/></body></worldbody></mujoco>'
X = np.zeros((5, 2, 4, 3))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": X, "color": np.ones((3, 3))}, r"color has shape \(3, 3\), must be \(4, 3\)"),
        ({"x": X, "elements": [[0, 1, 9]]}, "elements name vertices 0 to 9, x has 4"),
        ({"x": X, "elements": [[0, 1, 2]], "time": -np.arange(5.0)}, "5 numbers .* that never fall"),
        ({"x": X, "time": [0, 1, np.nan, 3, 4]}, "5 numbers .* that never fall"),
        (
            {"x": np.where(np.arange(4)[:, None] == 1, np.nan, X), "elements": [[0, 1, 2]]},
            "x is not finite from frame 0",
        ),
        ({"x": X + 0j}, "x has dtype complex128, must hold real numbers"),
        (
            {"x": X, "scene": POST, "marks": np.zeros((2, 2, 3))},
            r"mocap_pos has shape \(5, 2, 2, 3\), the model \(1, 3\)",
        ),
        ({"x": X, "scene": POST, "marks": np.zeros((1, 1, 3))}, "as many worlds"),
        ({"marks": np.zeros((1, 1, 3))}, "no scene"),
        ({"states": "ball"}, "no scene"),
        ({"states": "ball", "scene": "ball", "x": X[:, 0, :2]}, "as many worlds"),
    ],
)
def test_what_the_viewer_would_refuse_is_not_saved(tmp_path, given, message):
    import fphys

    run = Run("fall", root=tmp_path, quiet=True)
    if "states" in given:
        given = given | {"states": resting(fphys.load(given["states"]), 5, 2)}
    with pytest.raises(ValueError, match=message):
        run.motion(**({"time": np.arange(5.0)} | given))
    assert not list(run.path.glob("*.npz")) + list(run.path.glob("*.xml"))
    run.motion(np.arange(5.0), x=X)


def test_planar_matter_is_where_planar_bodies_are(tmp_path):
    """In x and y, as in docs/coupling.md. Without bodies, the viewer shows a plane upright."""
    import fphys

    run, model = Run("fall", root=tmp_path, quiet=True), fphys.load("ball")
    for states, last in ((resting(model, 5, 1), 0), (None, 1)):
        run.motion(np.arange(5.0), model, states, x=np.ones((5, 4, 2)))
        with np.load(run.path / "result.npz") as result:
            assert result["x"].shape == (5, 1, 4, 3 if last == 0 else 2) and (result["x"][..., -1] == last).all()


def test_worlds_that_look_unlike_are_saved_one_by_one(tmp_path):
    import fphys
    from fphys.render import outline

    ball, run = fphys.load("ball"), Run("fall", root=tmp_path, quiet=True)
    states, factor = resting(ball, 3, 2), np.array([1.0, 2.0])
    alike = {path: factor[:, None] * leaf for path, leaf in (("body.mass", ball.body.mass), ("qpos0", ball.qpos0))}
    run.motion(np.arange(3.0), ball.replace(alike), states)
    unlike = ball.replace({"geom.size": factor[:, None, None] * ball.geom.size})
    with pytest.raises(ValueError, match=r"differ in \['geom.size'\].*save a world k alone"):
        run.motion(np.arange(3.0), unlike, states)
    run.motion(
        np.arange(3.0), outline(unlike, 1), states.replace(qpos=states.qpos[:, 1:], mocap_pos=states.mocap_pos[:, 1:])
    )
    drawn = fphys.load(run.path / "scene.xml")
    np.testing.assert_allclose(drawn.geom.size[0, -1], 2 * ball.geom.size[0, -1], rtol=1e-5)


def test_tensorboard_reads_what_was_logged(tmp_path):
    from tensorboardX.proto.event_pb2 import Event

    with Run("fit", root=tmp_path, quiet=True) as run:
        run.log(3, loss=0.25)
    (events,) = run.path.glob("events.*")
    data, found = events.read_bytes(), {}  # records of length, checksum, event, checksum
    while data:
        size = int.from_bytes(data[:8], "little")
        event = Event.FromString(data[12 : 12 + size])
        found |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
        data = data[16 + size :]
    assert found == {("loss", 3): 0.25}


def test_runs_in_the_same_second_get_their_own_folders(tmp_path):
    assert len({Run("fit", root=tmp_path, quiet=True).path for _ in range(5)}) == 5


def test_the_bar_shows_what_is_logged(tmp_path, capsys):
    with Run("fit", root=tmp_path) as run:
        for i in run.progress(["a", "b"], "letters"):
            run.log(0 if i == "a" else 1, loss=0.125)
    err = capsys.readouterr().err
    assert "letters" in err
    assert "2/2" in err
    assert "loss=0.125" in err


def test_quiet_is_silent(tmp_path, capsys):
    with Run("fit", root=tmp_path, quiet=True) as run:
        for _ in run.progress(2):
            pass
        assert run.video("fit", lambda: (_ for _ in ()).throw(MissingDependencyError("no OpenGL"))) is None
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_a_failure_is_recorded_and_goes_on(tmp_path, capsys):
    run = Run("fit", root=tmp_path)

    def experiment():
        with run:
            run.log(0, loss=1.0)
            run.metrics(best=3)
            raise ValueError("diverged")

    with pytest.raises(ValueError, match="diverged"):
        experiment()
    content = metrics(run)
    assert content["status"] == "failed"
    assert content["error"] == "ValueError: diverged"
    assert content["metrics"] == {"best": 3}
    assert "ValueError: diverged" in capsys.readouterr().out
    with np.load(run.path / "result.npz") as result:
        np.testing.assert_array_equal(result["history/loss"], [1.0])


def test_an_interruption_keeps_partial_results(tmp_path):
    run = Run("fit", root=tmp_path, quiet=True)

    def experiment():
        with run:
            run.save(x=np.ones(2))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        experiment()
    assert metrics(run)["status"] == "interrupted"
    with np.load(run.path / "result.npz") as result:
        np.testing.assert_array_equal(result["x"], [1, 1])


def test_without_opengl_the_run_goes_on(tmp_path, capsys):
    def frames():
        raise MissingDependencyError("apt-get install libegl1")

    with Run("fit", root=tmp_path) as run:
        assert run.video("fit", frames) is None
    content = metrics(run)
    assert content["status"] == "ok"
    assert content["video"] is None
    assert content["video_reason"] == "apt-get install libegl1"
    assert "no video: apt-get install libegl1" in capsys.readouterr().err


def test_values_are_written_as_json(tmp_path):
    import jax.numpy as jnp

    from fphys import units

    some = {"e": (True, -np.inf), "q": units.length(2.0)}
    with Run("fit", root=tmp_path, quiet=True) as run:
        run.metrics(a=np.float32(0.5), b=jnp.arange(2), c=float("nan"), d=some, f=np.bool_(True))
    some = {"e": [True, "-inf"], "q": "<length 2 m>"}
    assert metrics(run)["metrics"] == {"a": 0.5, "b": [0, 1], "c": "nan", "d": some, "f": True}


def test_a_full_disk_leaves_the_old_result(tmp_path):
    script = f"""
import resource, signal
import numpy as np
from fphys.runs import Run
run = Run("fit", root={str(tmp_path)!r}, quiet=True)
run.save(x=np.arange(10))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    run.save(y=np.random.default_rng(0).normal(size=100_000))
except OSError as error:
    print("refused", error.errno)
print(sorted(file.name for file in run.path.iterdir()))
print(np.load(run.path / "result.npz")["x"].tolist())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["refused 27", "['result.npz']", str(list(range(10)))]
