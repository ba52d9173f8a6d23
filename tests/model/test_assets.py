"""Our own models: the figures they state are the published ones, and their recordings can be identified."""

import importlib.util
import json
from pathlib import Path

import mujoco
import numpy as np
import pytest

from fphys.errors import ModelError
from fphys.model.assets import asset, recording

MODELS = (
    *("ant", "arm-urdf", "ball", "cartpole", "double-pendulum", "franka", "hand", "hand-cube", "humanoid"),
    *("pourer", "puck", "quadrotor", "quadruped"),
)
TOUCHING = {"ball", "ant", "hand", "hand-cube", "humanoid", "pourer", "quadruped"}


def load(name: str) -> tuple[mujoco.MjModel, mujoco.MjData]:
    model = mujoco.MjModel.from_xml_path(asset(name))
    return model, mujoco.MjData(model)


def mass_matrix(model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    full = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, full)
    return full


@pytest.mark.parametrize("name", MODELS)
def test_loads_with_physical_inertias(name):
    model, data = load(name)
    mujoco.mj_forward(model, data)
    assert model.nv > 0
    moving = model.body_weldid > 0
    inertia = np.sort(model.body_inertia[moving], axis=1)
    assert np.all(model.body_mass[moving] > 0)
    assert np.all(inertia[:, 0] > 0)
    assert np.all(inertia[:, 0] + inertia[:, 1] >= inertia[:, 2] * (1 - 1e-9))
    assert np.linalg.eigvalsh(mass_matrix(model, data)).min() > 0


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"arm-urdf"}))  # URDF has no cameras
def test_has_an_overview_camera(name):
    assert load(name)[0].camera("overview").id >= 0


@pytest.mark.parametrize("name", sorted(set(MODELS) - TOUCHING))
def test_nothing_can_touch_where_contact_is_not_meant(name):
    model, _ = load(name)
    assert not model.geom_contype.any()
    assert not model.geom_conaffinity.any()


def test_unknown_names_list_what_there_is():
    with pytest.raises(ModelError, match=r"no model called 'panda'.*double-pendulum, franka"):
        asset("panda")
    with pytest.raises(ModelError, match=r"no recording called 'ant'.*double-pendulum, double-pendulum-2"):
        recording("ant")


def test_the_list_of_models_is_complete():
    folder = Path(asset("franka")).parent
    assert tuple(sorted(p.stem for p in folder.iterdir() if p.suffix in (".xml", ".urdf"))) == MODELS


# --- franka -----------------------------------------------------------------------------------------------------------

HALF_PI = np.pi / 2
CRAIG = np.array(  # a, d, alpha of joints 1 to 7 and the flange
    [
        (0, 0.333, 0),
        (0, 0, -HALF_PI),
        (0, 0.316, HALF_PI),
        (0.0825, 0, HALF_PI),
        (-0.0825, 0.384, -HALF_PI),
        (0, 0, HALF_PI),
        (0.088, 0, HALF_PI),
        (0, 0.107, 0),
    ]
)


def craig(a: float, d: float, alpha: float, theta: float) -> np.ndarray:
    """Rot_x(alpha) Trans_x(a) Rot_z(theta) Trans_z(d), shape (4, 4)."""
    ca, sa, ct, st = np.cos(alpha), np.sin(alpha), np.cos(theta), np.sin(theta)
    return np.array([[ct, -st, 0, a], [st * ca, ct * ca, -sa, -d * sa], [st * sa, ct * sa, ca, d * ca], [0, 0, 0, 1]])


def test_franka_forward_kinematics_equal_the_published_table():
    model, data = load("franka")
    rng = np.random.default_rng(0)
    for _ in range(20):
        data.qpos[:] = rng.uniform(*model.jnt_range.T)
        mujoco.mj_kinematics(model, data)
        pose = np.eye(4)
        for i, (row, q) in enumerate(zip(CRAIG, [*data.qpos, 0.0], strict=True)):
            pose = pose @ craig(*row, q)
            there = data.body(f"link{i + 1}") if i < 7 else data.site("end_effector")
            np.testing.assert_allclose(there.xpos, pose[:3, 3], rtol=0, atol=1e-12)
            np.testing.assert_allclose(there.xmat.reshape(3, 3), pose[:3, :3], rtol=0, atol=1e-12)


def test_franka_reach_is_that_of_the_data_sheet():
    model, data = load("franka")
    reach = 0.0
    for data.qpos[3] in np.linspace(*model.jnt_range[3], 61):
        for data.qpos[5] in np.linspace(*model.jnt_range[5], 61):
            mujoco.mj_kinematics(model, data)
            reach = max(reach, np.linalg.norm(data.site("end_effector").xpos - data.body("link1").xpos))
    assert reach == pytest.approx(0.855, abs=0.004)


def test_franka_limits_are_the_published_ones():
    model, _ = load("franka")
    assert model.jnt_limited.all()
    np.testing.assert_array_equal(model.jnt_range[:, 1], [2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973])
    np.testing.assert_array_equal(
        model.jnt_range[:, 0], [-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973]
    )
    for limits in (model.actuator_ctrlrange, model.actuator_forcerange):
        np.testing.assert_array_equal(limits[:, 1], [87, 87, 87, 87, 12, 12, 12])
        np.testing.assert_array_equal(limits[:, 0], -limits[:, 1])
    assert not model.dof_frictionloss.any()


def test_franka_mass_is_the_published_sum():
    model, _ = load("franka")
    published = [4.970684, 0.646926, 3.228604, 3.587895, 1.225946, 1.666555, 0.735522]
    assert model.body_mass.sum() == pytest.approx(sum(published), rel=1e-12)


def link_parameters(model: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Masses (8,), centres of mass (8, 3) and inertias about them (8, 3, 3), all in the joint frames; row 0 unused."""
    mass, com, inertia = np.zeros(8), np.zeros((8, 3)), np.zeros((8, 3, 3))
    for i in range(1, 8):
        body, rotation = model.body(f"link{i}"), np.zeros(9)
        mujoco.mju_quat2Mat(rotation, body.iquat)
        rotation = rotation.reshape(3, 3)
        mass[i], com[i], inertia[i] = body.mass[0], body.ipos, rotation @ np.diag(body.inertia) @ rotation.T
    return mass, com, inertia


def base_parameters(m: np.ndarray, c: np.ndarray, inertia: np.ndarray) -> dict[str, tuple[float, float]]:
    """What the links' parameters combine to, ours and as published by Gaz et al. 2019: supplementary material,
    table III, column pi(p). J is an inertia about the joint frame; rounded lengths in the expressions are exact here.
    For J5xx - J5yy + ... the column holds the difference, -0.0075, from the least-squares estimate 0.0322 beside it.
    """
    J = inertia + m[:, None, None] * ((c**2).sum(1)[:, None, None] * np.eye(3) - c[:, :, None] * c[:, None, :])
    xx, yy, zz, xy, xz, yz = J[:, 0, 0], J[:, 1, 1], J[:, 2, 2], J[:, 0, 1], J[:, 0, 2], J[:, 1, 2]
    mx, my, mz = (m[:, None] * c).T
    m37, m47, m57, m7 = m[3:].sum(), m[4:].sum(), m[5:].sum(), m[7]
    return {
        "J2yy + J1zz": (yy[2] + zz[1], 0.0373),
        "J2xy": (xy[2], -0.0040),
        "J2xz": (xz[2], 0.0103),
        "J2yz": (yz[2], 0.0008),
        "J3yy + J2zz + 0.316^2 m3..7 + 0.0825^2 m4..7 + 0.632 c3z m3": (
            yy[3] + zz[2] + 0.316**2 * m37 + 0.0825**2 * m47 + 0.632 * mz[3],
            1.0358,
        ),
        "J3xx - J3yy + J4yy - 0.0825^2 m4": (xx[3] - yy[3] + yy[4] - 0.0825**2 * m[4], 0.0116),
        "J3xz": (xz[3], -0.0055),
        "J3yz": (yz[3], -0.0044),
        "J4yy + J3zz + 0.0825^2 (m4 + 2 m5..7)": (yy[4] + zz[3] + 0.0825**2 * (m[4] + 2 * m57), 0.1245),
        "J4xx - J4yy + J5yy + 0.768 c5z m5 + (0.384^2 - 0.0825^2) m5..7": (
            xx[4] - yy[4] + yy[5] + 0.768 * mz[5] + (0.384**2 - 0.0825**2) * m57,
            0.5408,
        ),
        "J4xy + 0.0825 (0.384 m5..7 + c5z m5)": (xy[4] + 0.0825 * (0.384 * m57 + mz[5]), 0.1388),
        "J4xz": (xz[4], 0.0039),
        "J4yz": (yz[4], -0.0016),
        "J5yy + J4zz + (0.384^2 + 0.0825^2) m5..7 + 0.768 c5z m5": (
            yy[5] + zz[4] + (0.384**2 + 0.0825**2) * m57 + 0.768 * mz[5],
            0.6325,
        ),
        "J5xx - J5yy + J6yy + 0.088^2 m7": (xx[5] - yy[5] + yy[6] + 0.088**2 * m7, 0.0322 - 0.0075),
        "J5xy": (xy[5], -0.0015),
        "J5xz": (xz[5], -0.0046),
        "J5yz": (yz[5], 0.0022),
        "J6yy + J5zz + 0.088^2 m7": (yy[6] + zz[5] + 0.088**2 * m7, 0.0276),
        "J6xx - J6yy + J7yy - 0.088^2 m7": (xx[6] - yy[6] + yy[7] - 0.088**2 * m7, -0.0009),
        "J6xy + 0.088 c7z m7": (xy[6] + 0.088 * mz[7], 0.0055),
        "J6yz": (yz[6], -0.0001),
        "J7yy + J6zz + 0.088^2 m7": (yy[7] + zz[6] + 0.088**2 * m7, 0.0304),
        "J7xx - J7yy": (xx[7] - yy[7], 0.0024),
        "J7xy": (xy[7], -0.0004),
        "J7xz": (xz[7], -0.0017),
        "J7yz": (yz[7], -0.0005),
        "J7zz": (zz[7], 0.0049),
        "c2x m2": (mx[2], -0.0020),
        "c2y m2 - 0.316 m3..7 - c3z m3": (my[2] - 0.316 * m37 - mz[3], -3.1043),
        "0.0825 m4..7 + c3x m3": (0.0825 * m47 + mx[3], 0.6842),
        "c3y m3 - c4z m4": (my[3] - mz[4], 0.0282),
        "c4x m4 - 0.0825 m5..7": (mx[4] - 0.0825 * m57, -0.4901),
        "0.384 m5..7 + c4y m4 + c5z m5": (0.384 * m57 + my[4] + mz[5], 1.7207),
        "c5x m5": (mx[5], -0.0147),
        "c5y m5 - c6z m6": (my[5] - mz[6], 0.0824),
        "0.088 m7 + c6x m6": (0.088 * m7 + mx[6], 0.1650),
        "c6y m6 - c7z m7": (my[6] - mz[7], -0.0688),
        "c7x m7": (mx[7], 0.0077),
        "c7y m7": (my[7], -0.0031),
    }


def test_franka_base_parameters_equal_the_published_column():
    """All of them to the table's four decimals, except those that depend on c6z.

    For c6z the paper's table VIII prints -0.010517 (c7x with its sign changed), and so do the manufacturer's
    description and our file; its table III was computed with -0.0192.
    """
    m, c, inertia = link_parameters(load("franka")[0])

    def differing() -> set[str]:
        return {name for name, (ours, paper) in base_parameters(m, c, inertia).items() if abs(ours - paper) > 6e-5}

    assert differing() == {"J5xx - J5yy + J6yy + 0.088^2 m7", "J6yy + J5zz + 0.088^2 m7", "J6yz", "c5y m5 - c6z m6"}
    c[6, 2] = -0.01924
    assert differing() == set()


def test_franka_gravity_and_inertia_agree_with_the_authors_own_model():
    """The closed form that the authors published (FrankaEmikaPandaDynModel), at `home` and at another pose.

    It is built on their unconstrained least-squares coefficients, ours on the feasible link parameters retrieved from
    them: torques differ by up to 0.1 N m of 35, inertias by up to 0.03 kg m^2 of 2.2.
    """
    model, data = load("franka")
    poses = {
        (0, -np.pi / 4, 0, -3 * np.pi / 4, 0, np.pi / 2, np.pi / 4): (
            [0, -1.7388, -0.6683, 18.5240, 0.7158, 1.6714, 0],
            [0.43542, 1.44683, 0.86854, 0.78451, 0.00946, 0.02619, 0.00127],
        ),
        (0.3, 0.4, -0.5, -1.6, 0.7, 1.9, -0.8): (
            [0, -34.6636, -4.4798, 18.9362, 0.6523, 1.4281, -0.0214],
            [1.89277, 2.24648, 1.14707, 0.81377, 0.00991, 0.02366, 0.00127],
        ),
    }
    np.testing.assert_allclose(model.key("home").qpos, next(iter(poses)), rtol=0, atol=1e-15)
    for qpos, (gravity, diagonal) in poses.items():
        data.qpos[:] = qpos
        mujoco.mj_forward(model, data)
        np.testing.assert_allclose(data.qfrc_bias, gravity, rtol=0, atol=0.1)
        np.testing.assert_allclose(np.diag(mass_matrix(model, data)), diagonal, rtol=0, atol=0.03)


def test_franka_motors_hold_the_arm_in_every_pose():
    model, data = load("franka")
    rng = np.random.default_rng(1)
    for _ in range(200):
        data.qpos[:] = rng.uniform(*model.jnt_range.T)
        mujoco.mj_forward(model, data)
        assert np.all(np.abs(data.qfrc_bias) < model.actuator_forcerange[:, 1])


# --- the others -------------------------------------------------------------------------------------------------------


def test_double_pendulum_motors_cannot_lift_it_without_swinging():
    model, data = load("double-pendulum")
    data.qpos[:] = [np.pi / 2, 0]
    mujoco.mj_forward(model, data)
    assert np.all(np.abs(data.qfrc_bias) > model.actuator_ctrlrange[:, 1])
    np.testing.assert_allclose(data.qfrc_bias, [-4.905, -1.22625], rtol=1e-12)


def test_double_pendulum_is_upright_at_zero():
    model, data = load("double-pendulum")
    mujoco.mj_forward(model, data)
    height = data.site("tip").xpos[2]
    mujoco.mj_resetDataKeyframe(model, data, model.key("hanging").id)
    mujoco.mj_forward(model, data)
    assert height - data.site("tip").xpos[2] == pytest.approx(2.0, rel=1e-12)


def test_cartpole_has_the_figures_of_barto_sutton_anderson():
    model, data = load("cartpole")
    mujoco.mj_forward(model, data)
    # M = [[M + m, m l], [m l, 4/3 m l^2]] upright, with M = 1 kg, m = 0.1 kg, l = 0.5 m.
    np.testing.assert_allclose(mass_matrix(model, data), [[1.1, 0.05], [0.05, 0.1 / 3]], rtol=1e-12)
    assert model.actuator_ctrlrange.tolist() == [[-10, 10]]
    assert model.opt.gravity[2] == -9.8
    assert model.dof_damping.tolist() == [0, 2e-6]


def test_ant_stands_on_its_feet():
    model, data = load("ant")
    mujoco.mj_resetDataKeyframe(model, data, model.key("home").id)
    mujoco.mj_forward(model, data)
    assert model.body_mass.sum() == pytest.approx(8.0, rel=1e-12)
    lowest = [
        data.site(f"{leg}_foot").xpos[2] - 0.03 for leg in ("front_left", "front_right", "back_left", "back_right")
    ]
    assert np.ptp(lowest) < 1e-12
    assert 0 < lowest[0] < 0.03
    for _ in range(400):
        mujoco.mj_step(model, data)
    assert data.qpos[2] > 0.25
    assert np.abs(data.qvel).max() < 0.05
    touching = {model.geom(int(g)).name for g in data.contact.geom.ravel()}
    assert touching == {"floor", "front_left_shin", "front_right_shin", "back_left_shin", "back_right_shin"}


def test_ball_and_box_touch_the_floor_and_not_each_other():
    model, data = load("ball")
    assert model.opt.cone == mujoco.mjtCone.mjCONE_PYRAMIDAL
    assert np.all(model.geom_condim == 3)
    data.qpos[7:10] = data.qpos[:3] = [0, 0, 0.05]
    mujoco.mj_forward(model, data)
    assert data.ncon > 0
    assert all(0 in pair for pair in data.contact.geom)
    assert {int(g) for g in data.contact.geom.ravel()} == {0, 1, 2}
    mujoco.mj_resetData(model, data)
    for _ in range(1000):
        mujoco.mj_step(model, data)
    assert data.qpos[2] == pytest.approx(0.1, abs=2e-3)
    assert data.qpos[9] == pytest.approx(0.06, abs=2e-3)


def test_arm_urdf_exercises_the_format():
    model, _ = load("arm-urdf")
    kinds = model.jnt_type.tolist()
    assert kinds.count(mujoco.mjtJoint.mjJNT_HINGE) == 6
    assert kinds.count(mujoco.mjtJoint.mjJNT_SLIDE) == 1
    assert model.body("hand").mass[0] == pytest.approx(0.6 + 0.09)
    assert model.body("tool").mass[0] == pytest.approx(0.3)
    turned = np.abs(model.body_iquat[1:]).max(axis=1) < 1 - 1e-6
    assert turned.all()  # every link has products of inertia
    assert model.nmesh == 0


# --- recordings -------------------------------------------------------------------------------------------------------


def recorder():
    path = Path(recording("double-pendulum")).parent / "make.py"
    spec = importlib.util.spec_from_file_location("make_recordings", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["double-pendulum", "double-pendulum-2"])
def test_recordings_are_what_their_script_makes(name):
    make = recorder()
    rows = np.loadtxt(recording(name), delimiter=",", skiprows=1)
    np.testing.assert_allclose(rows, make.record(make.true_model(), make.RECORDINGS[name]), rtol=1e-7, atol=1e-9)
    assert Path(recording(name)).read_text().splitlines()[0] == make.HEADER
    sidecar = Path(recording("double-pendulum")).with_name("double-pendulum.truth.json")
    assert json.loads(sidecar.read_text()) == make.truth(make.true_model())


@pytest.mark.parametrize("name", ["double-pendulum", "double-pendulum-2"])
def test_recordings_have_one_percent_noise_and_obey_the_limits(name):
    make = recorder()
    model = make.true_model()
    rows = np.loadtxt(recording(name), delimiter=",", skiprows=1)
    states = make.simulate(model, rows[:-1, 1:3])
    noise = (rows[:, 3:] - states).std(axis=0) / states.std(axis=0)
    np.testing.assert_allclose(noise, 0.01, rtol=0.1)
    np.testing.assert_allclose(np.diff(rows[:, 0]), model.opt.timestep, rtol=1e-6)
    assert np.all(np.abs(rows[:, 1:3]) <= model.actuator_ctrlrange[:, 1])


def test_throws_are_what_their_script_makes():
    make = recorder()
    for name, throw in make.THROWS.items():
        rows = np.loadtxt(recording(name), delimiter=",", skiprows=1)
        np.testing.assert_allclose(rows, make.record_puck(make.true_puck(), *throw), rtol=1e-7, atol=1e-9)
        assert Path(recording(name)).read_text().splitlines()[0] == make.PUCK_HEADER
    truth = json.loads(Path(recording("puck")).with_suffix(".truth.json").read_text())
    assert truth == {"pair.friction": {"puck-floor": 0.24}, "pair.damping": {"puck-floor": 45.0}}


def test_the_recording_determines_masses_and_dampings():
    """Least squares over one-second windows, from 50 % off: every parameter within 1 %."""
    make = recorder()
    model = make.true_model()
    mass, inertia, damping = model.body_mass.copy(), model.body_inertia.copy(), model.dof_damping.copy()
    rows = np.loadtxt(recording("double-pendulum"), delimiter=",", skiprows=1)
    ctrl, measured = rows[:-1, 1:3], rows[:, 3:]
    scale, window = measured.std(axis=0), 100
    data = mujoco.MjData(model)

    def residuals(log_ratio: np.ndarray, initial: np.ndarray) -> np.ndarray:
        """(prediction - measurement) / scale of every window, shape (window, 4 (steps + 1))."""
        ratio = np.exp(log_ratio)
        model.body_mass[1:] = mass[1:] * ratio[:2]
        model.body_inertia[1:] = inertia[1:] * ratio[:2, None]
        model.dof_damping[:] = damping * ratio[2:]
        out = []
        for start, state in zip(range(0, len(ctrl), window), initial, strict=True):
            data.qpos[:], data.qvel[:], states = state[:2], state[2:], [state]
            for data.ctrl[:] in ctrl[start : start + window]:
                mujoco.mj_step(model, data)
                states.append(np.concatenate([data.qpos, data.qvel]))
            out.append(((np.stack(states) - measured[start : start + window + 1]) / scale).ravel())
        return np.stack(out)

    log_ratio, initial = np.log([1.5, 0.5, 0.5, 1.5]), measured[0 : len(ctrl) : window].copy()
    for _ in range(8):  # Gauss-Newton in the parameters and each window's initial state
        r = residuals(log_ratio, initial)
        jacobian = np.zeros((*r.shape, 4 + initial.size))
        for k, unit in enumerate(1e-6 * np.eye(4)):
            jacobian[:, :, k] = (residuals(log_ratio + unit, initial) - r) / 1e-6
            change = (residuals(log_ratio, initial + unit) - r) / 1e-6
            for w in range(len(initial)):
                jacobian[w, :, 4 + 4 * w + k] = change[w]
        step = np.linalg.lstsq(jacobian.reshape(r.size, -1), -r.ravel(), rcond=None)[0]
        log_ratio, initial = log_ratio + np.clip(step[:4], -0.7, 0.7), initial + step[4:].reshape(-1, 4)
    np.testing.assert_allclose(np.exp(log_ratio), 1, rtol=0, atol=0.01)
