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
    with pytest.raises(ValueError, match=r"time has shape \(2,\).*as many times"):
        run.motion(states.time[:2, 0], model, states)
    with pytest.raises(ValueError, match=r"'x': 4, 'qpos': 2.* worlds: must be as many"):
        run.motion(states.time[:, 0], model, states, x=np.zeros((3, 4, 5, 2)))
    with pytest.raises(ValueError, match=r"what moves \{\}"):
        run.motion(states.time[:, 0], model)


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
