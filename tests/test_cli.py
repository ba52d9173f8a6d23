import dataclasses
import importlib
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import fphys
from fphys import cli, doctor, errors, experiments

EXPERIMENT = '''
"""Fit a number."""
import dataclasses, time

@dataclasses.dataclass(frozen=True)
class Config:
    """Options of the fit."""
    seed: int = 0
    """Of the random numbers."""
    learning_rate: float = 0.5
    """Step size [-]."""
    steps: int = 3
    """Steps to take."""
    pause: float = 0.0
    """Time between steps [s]."""

def main(config, run):
    x = 1.0
    for i in run.progress(config.steps, "fit"):
        x -= config.learning_rate * x
        run.log(i, loss=x)
        time.sleep(config.pause)
    return {"final": x, "seed": config.seed}
'''


@pytest.fixture
def experiment(monkeypatch, tmp_path):
    """A small experiment in place of swing-up."""
    (tmp_path / "experiment.py").write_text(EXPERIMENT)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "experiment", raising=False)
    module = importlib.import_module("experiment")
    monkeypatch.setattr(experiments, "load", lambda name: module)


def command(*arguments, **kwargs):
    return subprocess.run(
        [sys.executable, "-m", "fphys.cli", *arguments], capture_output=True, text=True, timeout=120, **kwargs
    )


def processor_time(*arguments):
    """Processor time [s] of a Python program, which does not depend on other load, and its output."""
    start = os.times()
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=True)
    end = os.times()
    return end.children_user + end.children_system - start.children_user - start.children_system, done.stdout


@pytest.mark.alone
def test_help_names_the_commands_and_is_quick():
    """Relative to JAX's own import, because machines differ by a factor of two: 2 s if that takes 0.87 s."""
    helps, jaxes = [], []
    for _ in range(5):
        seconds, out = processor_time("-m", "fphys.cli", "--help")
        helps.append(seconds)
        jaxes.append(processor_time("-c", "import jax")[0])
        for name in ("run", "simulate", "view", "check", "doctor", "bench"):
            assert name in out
    assert min(helps) < 2.3 * min(jaxes), (helps, jaxes)


def test_help_imports_no_learning_and_no_rendering():
    slow = ("flax", "optax", "orbax", "mujoco", "imageio", "torch", "viser", "genesis")
    script = f"""
        import sys
        from fphys import cli
        try:
            cli.main(["--help"])
        except SystemExit:
            pass
        print("imported:", *(name for name in {slow} if name in sys.modules))
    """
    _, out = processor_time("-c", textwrap.dedent(script))
    assert out.splitlines()[-1] == "imported:"


def test_help_of_run_names_the_experiments(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert all(name in out for name in experiments.EXPERIMENTS)


def test_an_unknown_experiment_is_refused_with_those_that_exist(capsys):
    assert cli.main(["run", "swing-down"]) == 2
    captured = capsys.readouterr()
    assert "swing-up" in captured.out + captured.err


def test_an_experiment_takes_its_own_options(experiment, tmp_path, capsys):
    assert cli.main(["run", "swing-up", "--learning-rate", "0.25", "--seed", "4", "--out", str(tmp_path)]) == 0
    (folder,) = (tmp_path / "swing-up").iterdir()
    content = json.loads((folder / "metrics.json").read_text())
    assert content["status"] == "ok"
    assert content["config"] == {"seed": 4, "learning_rate": 0.25, "steps": 3, "pause": 0.0}
    assert content["metrics"] == {"final": 0.75**3, "seed": 4}
    assert "swing-up: ok" in capsys.readouterr().out


def test_a_run_keeps_its_memory(experiment, monkeypatch, tmp_path):
    kept = []
    monkeypatch.setattr("fphys.train.keep_memory", lambda: kept.append(True))
    monkeypatch.setattr(experiments.load("swing-up"), "main", lambda config, run: {"kept": list(kept)})
    assert cli.main(["run", "swing-up", "--out", str(tmp_path)]) == 0
    assert kept == [True]


def test_a_missed_goal_is_reported_and_sets_the_exit_code(experiment, monkeypatch, tmp_path, capsys):
    module = experiments.load("swing-up")
    monkeypatch.setattr(module, "main", lambda config, run: {"success": False})
    assert cli.main(["run", "swing-up", "--out", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert "did not reach its goal" in printed.err
    assert "swing-up: missed its goal in" in printed.out and "ok" not in printed.out


@pytest.mark.parametrize("option", ["--duration", "--goals", "--timestep", "--iterations"])
def test_a_number_that_cannot_be_is_refused_before_there_is_a_folder(option, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "push", option, "-1", "--out", str(tmp_path)])
    assert ended.value.code == 2 and f"{option} is -1" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--num-envs", "0"], "--num-envs is 0"),
        (["--horizon", "0"], "horizon is 0"),
        (["--resume", "nowhere"], "nowhere has no checkpoints"),
    ],
)
def test_a_training_that_cannot_be_leaves_no_folder(options, says, tmp_path, capsys):
    assert cli.main(["train", "shac", "inverted-pendulum", *options, "--out", str(tmp_path)]) == 2
    assert says in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"fphys {fphys.__version__}\n"


def test_help_of_an_experiment_explains_its_options(experiment, capsys):
    with pytest.raises(SystemExit):
        cli.main(["run", "swing-up", "--help"])
    out = capsys.readouterr().out
    for text in ("--learning-rate", "Step size", "--device", "--out"):
        assert text in out


def test_help_of_an_agent_is_without_markup(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "ppo", "hopper", "--help"])
    out = capsys.readouterr().out
    assert "train calls it until" in out and "fphys.envs.auto_adapt" in out and not re.search(":(func|mod):", out)


OPTIONS = {
    "autoencode": "--latent INT",
    "classify": "--model {mlp,cnn}",
    "classify-image": "--weights STR",
    "contact-gradients": "--width FLOAT",
    "dqn": "--goal FLOAT",
    "generate-text": "--model {lstm,gpt}",
    "identify": "--recording STR",
    "train-resnet": "--workers INT",
}


@pytest.mark.parametrize("name", experiments.EXPERIMENTS)
def test_every_experiment_explains_every_option(name, capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["run", name, "--help"])
    out = capsys.readouterr().out
    assert OPTIONS.get(name, "--device") in out and "--out PATH" in out
    module = experiments.load(name)
    assert module.__doc__.partition("\n")[0] in " ".join(out.split())
    source = inspect.getsource(module.Config)
    fields = dataclasses.fields(module.Config)
    assert source.count('"""') == 2 * len(fields), "a docstring for each field, and none else"


def test_there_is_a_module_for_every_experiment_and_a_section_about_it():
    page = Path(experiments.__file__).parents[2] / "docs/experiments.md"
    assert re.findall(r"^## `([\w-]+)`$", page.read_text(), re.MULTILINE) == [*experiments.EXPERIMENTS]
    modules = {name.replace("-", "_") for name in experiments.EXPERIMENTS}
    assert {path.stem for path in Path(experiments.__file__).parent.glob("*.py")} == {*modules, "__init__", *HELPERS}


HELPERS = {"film", "lattice"}
"""Modules of the folder that are no experiments."""


def test_control_c_keeps_the_partial_result(tmp_path):
    script = tmp_path / "program.py"
    (tmp_path / "experiment.py").write_text(EXPERIMENT)
    script.write_text(
        textwrap.dedent("""
        import signal, sys
        import experiment
        from fphys import cli, experiments
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored
        experiments.load = lambda name: experiment
        sys.exit(cli.main(["run", "swing-up", "--steps", "10000", "--pause", "0.05", "--out", sys.argv[1]]))
    """)
    )
    with subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "runs")], stderr=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("runs/swing-up/*/events*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert err.rstrip().endswith("interrupted")
    (folder,) = (tmp_path / "runs" / "swing-up").iterdir()
    assert json.loads((folder / "metrics.json").read_text())["status"] == "interrupted"
    with np.load(folder / "result.npz") as result:
        assert len(result["history/loss"]) >= 1


def test_nobody_reads_the_output():
    """As in `fphys envs | head -0`: no error is worth a word."""
    command = "from fphys.cli import main; raise SystemExit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", command, "envs"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_simulate_takes_the_steps_asked_for(capsys, tmp_path):
    film = tmp_path / "made" / "film.mp4"
    arguments = ["--steps", "10", "--worlds", "3", "--ctrl", "random", "--out", str(film)]
    assert cli.main(["simulate", "double-pendulum", *arguments]) == 0
    assert film.parent.is_dir(), "made before the steps, whether there is OpenGL for the film or not"
    out = capsys.readouterr().out
    assert "10 steps of 3 worlds: 0.100 s simulated" in out
    assert "steps/s of all worlds" in out and "J (world 0)" in out
    assert "nothing moved" not in out


def test_simulate_says_that_nothing_moved(capsys):
    """A double pendulum is in equilibrium upright: its video would be a still image."""
    assert cli.main(["simulate", "double-pendulum", "--steps", "10"]) == 0
    assert "nothing moved: it is in equilibrium; try --ctrl random, or --keyframe hanging" in capsys.readouterr().out
    assert cli.main(["simulate", "ball", "--steps", "10"]) == 0
    assert "nothing moved" not in capsys.readouterr().out


def test_extras_are_installed_as_fphys_was(monkeypatch, tmp_path):
    assert errors.install("view") == 'pip install -e ".[view]" in a checkout of fphys'
    monkeypatch.setattr(errors, "_CHECKOUT", tmp_path)
    assert errors.install("view").startswith('pip install "fphys[view] @ git+URL"')


def test_simulate_starts_and_ends_where_mujoco_does():
    import mujoco

    import fphys
    from fphys.simulate import simulate

    m = mujoco.MjModel.from_xml_path(str(fphys.asset("franka")))
    m.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
    m.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_LIMIT
    d = mujoco.MjData(m)
    mujoco.mj_resetDataKeyframe(m, d, 0)
    mujoco.mj_forward(m, d)
    start = d.energy.sum()
    mujoco.mj_step(m, d, 50)
    mujoco.mj_forward(m, d)
    assert abs(d.energy.sum() - start) > 0.1
    summary = simulate("franka", 50, keyframe=m.key(0).name, disable=("contact", "limit"))
    assert summary.energy == pytest.approx((start, d.energy.sum()), rel=1e-9)


def test_a_keyframe_without_a_name_is_chosen_by_its_number(tmp_path, capsys):
    body = '<body><joint type="slide" axis="0 0 1"/><geom size="0.1" mass="2"/></body>'
    keys = '<key qpos="0"/><key qpos="3"/><key name="high" qpos="5"/>'
    model = tmp_path / "falling.xml"
    model.write_text(f"<mujoco><worldbody>{body}</worldbody><keyframe>{keys}</keyframe></mujoco>")
    for key, height in (("1", 3), ("2", 5), ("high", 5)):
        assert cli.main(["simulate", str(model), "--steps", "1", "--keyframe", key]) == 0
        assert f"energy     {2 * 9.81 * height:.6g} J" in capsys.readouterr().out
    assert cli.main(["simulate", str(model), "--keyframe", "3"]) == 2
    assert "no keyframe '3'; the model has ['0', '1', 'high']" in capsys.readouterr().err


def test_simulate_takes_usd(tmp_path, capsys):
    from .model.usd_text import body, joint, write

    assert cli.main(["simulate", write(tmp_path, body("arm") + joint("Revolute", None, "arm")), "--steps", "1"]) == 0
    assert "1 steps of 1 world" in capsys.readouterr().out
    for command in ("simulate", "view"):
        with pytest.raises(SystemExit):
            cli.main([command, "--help"])
        assert "MJCF, URDF or USD file" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nowhere.xml"], "nowhere.xml"),
        (["no-such-asset"], "double-pendulum"),
        (["double-pendulum", "--steps", "0"], "at least 1"),
        (["double-pendulum", "--keyframe", "sitting"], "hanging"),
        (["double-pendulum", "--camera", "sideways"], "overview"),
        (["double-pendulum", "--ctrl", "keyframe"], "--keyframe NAME"),
        (["double-pendulum", "--out", "film.gif"], "must end in .mp4"),
        (["double-pendulum", "--out", f"{__file__}/film.mp4"], "test_cli.py"),
    ],
)
def test_an_error_is_printed_without_a_traceback(arguments, text, capsys):
    assert cli.main(["simulate", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert text in captured.err
    assert "Traceback" not in captured.err


NAMES = [b"\xff", "é".encode(), "模型".encode()]
"""Names of folders: invalid UTF-8, and characters that ASCII lacks."""
ASCII = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "LANG": "C"}
NAMED = """
    import os, sys
    from pathlib import Path
    import jax.numpy as jnp
    import numpy as np
    import fphys
    from fphys import cli, export, nn, view

    for folder in map(os.fsencode, sys.argv[1:]):
        path = lambda name: os.path.join(os.fsdecode(folder), name)
        assert fphys.load(path("a.xml")).structure.ngeom == fphys.load(path("a.urdf")).structure.ngeom == 1
        tree = {"w": jnp.ones(3, jnp.float32)}
        assert export.load_weights(export.save_weights(path("w"), tree), tree)["w"].sum() == 3
        assert export.load_program(export.save_program(path("p"), jnp.sin, np.ones(3)))(np.zeros(3)).sum() == 0
        nn.write_weights(path("n.safetensors"), tree, {})
        assert nn.read_weights(path("n.safetensors"))["w"].sum() == 3
        np.savez(path("run.npz"), qpos=np.zeros((3, 7)))
        assert view._arrays(Path(path("run.npz")))["qpos"].shape == (3, 7)
        assert cli.main(["simulate", path("a.xml"), "--steps", "2"]) == 0
        assert cli.main(["simulate", path("\\u20ac.xml")]) == 2
    gone = "\\u20ac/a.safetensors"
    for act in (
        lambda: fphys.load(gone), lambda: view._arrays(Path(gone)), lambda: nn.write_weights(gone, tree, {}),
        lambda: export.save_weights(gone, tree), lambda: export.load_weights(gone, tree),
        lambda: export.save_program(gone, jnp.sin, np.ones(3)), lambda: export.load_program(gone),
    ):
        try:
            act()
        except fphys.errors.FphysError as error:
            print(error)
        else:
            raise AssertionError("there is no such folder")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="where a name is bytes")
@pytest.mark.parametrize("environment", [{}, ASCII, {"PYTHONIOENCODING": "ascii:strict"}], ids=["utf-8", "C", "ascii"])
def test_names_may_be_any_bytes_in_any_locale(tmp_path, environment):
    mesh = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
    mjcf = """<mujoco><asset><mesh name="m" file="m.obj"/></asset><worldbody><body><freejoint/>
        <geom type="mesh" mesh="m"/></body></worldbody></mujoco>"""
    urdf = """<robot name="r"><link name="base"/><link name="l"><inertial><mass value="1"/><inertia ixx="1" iyy="1"
        izz="1" ixy="0" ixz="0" iyz="0"/></inertial><collision><geometry><mesh filename="package://r/m.obj"/></geometry>
        </collision></link><joint name="j" type="floating"><parent link="base"/><child link="l"/></joint></robot>"""
    folders = [os.path.join(os.fsencode(tmp_path), name) for name in NAMES]
    for folder in folders:
        os.mkdir(folder)
        for name, text in ((b"m.obj", mesh), (b"a.xml", mjcf), (b"a.urdf", urdf)):
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(NAMED), *folders],
        capture_output=True,
        timeout=300,
        env=os.environ | environment,
        cwd=tmp_path,
    )
    assert child.returncode == 0, child.stderr.decode(errors="replace")


def test_unsupported_features_can_be_disabled(tmp_path, capsys):
    model = tmp_path / "distances.xml"
    model.write_text("""<mujoco><asset><mesh name="m" vertex="1 0 0 0 1 0 0 0 1 0 0 0"/></asset><worldbody>
        <geom type="plane" size="1 1 1"/><body pos="0 0 3"><freejoint/><geom type="sdf" mesh="m"/></body>
        </worldbody></mujoco>""")
    assert cli.main(["simulate", str(model), "--steps", "1"]) == 2
    assert "On the command line: --disable" in capsys.readouterr().err
    assert cli.main(["simulate", str(model), "--steps", "1", "--disable", "contact"]) == 0


def test_debug_shows_where_an_error_comes_from():
    from fphys.errors import FphysError

    with pytest.raises(FphysError):
        cli.main(["simulate", "no-such-asset", "--debug"])


def test_doctor_reports_on_everything(capsys):
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    titles = "System Versions Configuration Devices Precision Rendering Extras".split()
    assert all(f"\n{title}\n" in f"\n{out}" for title in [*titles, "First step", "Kernel cache"])
    assert "The core works." in out


def test_doctor_says_how_to_get_what_is_missing(monkeypatch):
    real = doctor.importlib.metadata.version

    def version(name):
        if name == "torch":
            raise doctor.importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(doctor.importlib.metadata, "version", version)
    rows = dict(doctor._extras())
    assert 'missing torch: pip install -e ".[torch]"' in rows["torch"]


def test_doctor_describes_every_extra():
    assert set(doctor.importlib.metadata.metadata("fphys").get_all("Provides-Extra")) == set(doctor.GIVES)


def test_doctor_survives_broken_parts(monkeypatch, capsys):
    def broken():
        raise OSError("cache is read-only")

    monkeypatch.setattr(doctor, "_first_step", broken)
    assert cli.main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "broken  OSError: cache is read-only" in out
    assert "Extras" in out


def test_importing_the_command_initialises_no_device():
    script = "import fphys.cli; from jax._src import xla_bridge; assert not xla_bridge._backends"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=os.environ)
    assert done.returncode == 0, done.stderr


def test_bench_passes_its_options_on(monkeypatch):
    from fphys import bench

    given = {}
    monkeypatch.setattr(bench, "main", lambda pattern, **options: given.update(pattern=pattern, **options) or 0)
    assert cli.main(["bench", "ant.*", "--quick", "--worlds", "1", "64", "--json", "b.json"]) == 0
    assert (given["pattern"], given["quick"], given["worlds"]) == ("ant.*", True, (1, 64))
    assert (str(given["json_path"]), given["list_only"], given["profile"]) == ("b.json", False, False)
