import shutil

import jax
import mujoco
import numpy as np
import pytest

import fphys
from fphys.errors import FphysError
from fphys.experiments import identify
from fphys.experiments.identify import Config
from fphys.identify import RecordingError
from fphys.model.assets import recording

TRUTH = {"mass/upper": 0.62, "mass/lower": 0.37, "damping/shoulder": 0.08, "damping/elbow": 0.035}
HEADER = "time,ctrl0,qpos0,qvel0"
ROWS = ["0,0,1,0", "0.01,0,0.99,-0.1", "0.02,0,0.98,-0.2", "0.03,0,0.97,-0.3"]

SLIDER = """
<mujoco>
  <option timestep="{timestep}"/>
  <worldbody>
    <body name="cart">
      <joint name="rail" type="slide" axis="1 0 0" damping="{damping}"/>
      <geom type="sphere" size="0.1" mass="{mass}"/>
      {load}
    </body>
  </worldbody>
  <actuator><motor joint="rail"/></actuator>
</mujoco>
"""


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_it_finds_the_truth_and_predicts_another_motion(play, full, seed):
    metrics, result = play(identify, Config(seed=seed) if full else Config(seed=seed, windows=(0.5,)))
    assert list(result["names"]) == list(TRUTH)
    np.testing.assert_allclose(np.abs(result["parameters"][0] / list(TRUTH.values()) - 1), 0.5)
    np.testing.assert_allclose(result["parameters"][-1], list(TRUTH.values()), rtol=0.01)
    assert metrics["success"]
    assert metrics["predicted_rms_relative"] < 0.02  # of which the noise of the recording is 0.01
    for name, true in TRUTH.items():
        assert abs(np.log(metrics["found"][name] / true)) < 4 * metrics["standard_deviation"][name]


def test_without_a_search_it_stays_where_it_began(play):
    metrics, _ = play(identify, Config(iterations=0, windows=(0.5,)))
    assert not metrics["success"]
    assert metrics["worst_error"] == pytest.approx(0.5)
    assert metrics["predicted_rms_relative"] > 0.1


@pytest.mark.slow
def test_a_recording_without_truth_begins_at_the_models_values(play, tmp_path):
    copy = tmp_path / "mine.csv"
    shutil.copy(recording("double-pendulum"), copy)
    metrics, _ = play(identify, Config(recording=str(copy), model=fphys.asset("double-pendulum"), windows=(0.5,)))
    assert metrics["began"] == pytest.approx(
        {"mass/upper": 0.5, "mass/lower": 0.5, "damping/shoulder": 0.02, "damping/elbow": 0.02}
    )
    assert metrics["found"] == pytest.approx(TRUTH, rel=0.01)
    assert "error" not in metrics
    assert metrics["fitted_rms_relative"] < 0.02


@pytest.mark.slow
def test_rows_may_lie_several_steps_apart(tmp_path):
    """Every fourth step is recorded."""
    values, _ = fit_slider(tmp_path, SLIDER.format(timestep=0.005, mass=1.0, damping=0.0, load=""), noise=0.0)
    np.testing.assert_allclose(values, [2.0, 0.7], rtol=1e-6)


@pytest.mark.slow
def test_masses_that_only_count_together_have_large_deviations(tmp_path):
    load = '<body name="load"><geom type="sphere" size="0.05" mass="0.5"/></body>'
    model = SLIDER.format(timestep=0.005, mass=1.0, damping=0.1, load=load)
    values, deviations = fit_slider(tmp_path, model, noise=0.01)
    np.testing.assert_allclose([values[0] + values[1], values[2]], [2.0, 0.7], rtol=0.05)
    assert (deviations[:2] > 10).all()
    assert deviations[2] < 0.05


def fit_slider(folder, model, noise):
    """Values and deviations found with a model for the motion of a cart of 2 kg and 0.7 N s/m."""
    true = mujoco.MjModel.from_xml_string(SLIDER.format(timestep=0.005, mass=2.0, damping=0.7, load=""))
    data, rows = mujoco.MjData(true), []
    for k in range(101):
        data.ctrl[:] = np.sin(0.2 * k)
        rows.append([data.time, data.ctrl[0], data.qpos[0], data.qvel[0]])
        mujoco.mj_step(true, data, 4)
    rows = np.array(rows)
    rows[:, 2:] += noise * rows[:, 2:].std(0) * np.random.default_rng(0).standard_normal((len(rows), 2))
    path = folder / "cart.csv"
    np.savetxt(path, rows, delimiter=",", header=HEADER, comments="")
    (folder / "cart.xml").write_text(model)
    with jax.enable_x64(True):
        mechanism = identify.mechanism(str(folder / "cart.xml"))
        motion = identify.recorded(str(path), mechanism)
        step = identify.dynamics(mechanism, motion)
        windows = fphys.identify.windows(*identify.channels(motion), 100, identify.scale(motion))
        estimate = fphys.identify.estimate(step, windows, np.log(identify.guess(mechanism)))
        estimate = jax.jit(lambda now: fphys.identify.least_squares(step, windows, now, 25))(estimate)
        return np.exp(estimate.parameters), np.asarray(fphys.identify.deviations(step, windows, estimate))


def test_a_recording_whose_rows_do_not_fit_the_time_step_is_refused(tmp_path):
    path = tmp_path / "cart.csv"
    path.write_text("\n".join([HEADER, *ROWS]))
    (tmp_path / "cart.xml").write_text(SLIDER.format(timestep=0.003, mass=1.0, damping=0.0, load=""))
    model = identify.mechanism(str(tmp_path / "cart.xml"))
    with pytest.raises(RecordingError, match=r'0\.01 s apart.*0\.003 s.*timestep="0\.01"'):
        identify.dynamics(model, identify.recorded(str(path), model))


def test_a_model_with_a_free_joint_is_refused():
    with pytest.raises(FphysError, match="hinge and slide"):
        identify.mechanism("ant")


def test_a_missing_file_says_so():
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        identify.recorded("nowhere.csv", identify.mechanism("double-pendulum"))
