"""The quadruped, the humanoid and the hand: they have the published figures, and stand or hold in MuJoCo."""

import mujoco
import numpy as np
import pytest

import fphys


def load(name: str) -> tuple[mujoco.MjModel, mujoco.MjData]:
    model = mujoco.MjModel.from_xml_path(fphys.asset(name))
    return model, mujoco.MjData(model)


CONSTRAINTS = ("contact", "limit", "equality", "frictionloss")


@pytest.mark.parametrize("name", ["quadruped", "humanoid", "hand"])
def test_robots_load_without_their_constraints(name):
    model = fphys.load(fphys.asset(name), disable=CONSTRAINTS)
    counts = {"quadruped": (19, 18, 12), "humanoid": (28, 27, 21), "hand": (24, 24, 20)}[name]
    assert (model.structure.nq, model.structure.nv, model.structure.nu) == counts
    m, _ = load(name)
    keys = np.asarray(model.key.qpos)
    for pose in keys:  # within the ranges of the joints
        joints = pose[-m.njnt :] if name == "hand" else pose[7:]
        assert np.all(m.jnt_limited[-joints.size :])
        assert np.all((joints >= m.jnt_range[-joints.size :, 0] - 0.01) & (joints <= m.jnt_range[-joints.size :, 1]))


def at_home(name: str) -> tuple[mujoco.MjModel, mujoco.MjData]:
    model, data = load(name)
    mujoco.mj_resetDataKeyframe(model, data, model.key("home").id)
    mujoco.mj_forward(model, data)
    return model, data


def hold(model: mujoco.MjModel, data: mujoco.MjData, stiffness: float, damping: float, seconds: float) -> None:
    """Keep the joints where they are by springs in the motors, within their limits, and dampers."""
    home = data.qpos[7:].copy()
    model.dof_damping[6:] += damping
    for _ in range(round(seconds / model.opt.timestep)):
        torque = stiffness * (home - data.qpos[7:])
        data.ctrl[:] = np.clip(torque / model.actuator_gear[:, 0], *model.actuator_ctrlrange.T)
        mujoco.mj_step(model, data)


@pytest.mark.parametrize(
    ("name", "stiffness", "damping", "height", "feet"),
    [("quadruped", 80, 2, 0.28, "foot"), ("humanoid", 600, 20, 0.918, "foot")],
)
def test_walkers_stand_for_two_seconds(name, stiffness, damping, height, feet):
    model, data = at_home(name)
    assert data.ncon > 0
    assert data.contact.dist.min() > -1e-3
    hold(model, data, stiffness, damping, 2.0)
    assert data.qpos[2] == pytest.approx(height, abs=2e-3)
    assert data.qpos[3] > 0.9999
    assert np.abs(data.qvel).max() < 2e-3
    touching = {model.geom(int(g)).name for g in data.contact.geom.ravel()}
    assert {t.removesuffix(f"_{feet}").split("_")[-1] for t in touching} <= {"floor", "left", "right"}


def test_quadruped_has_the_published_masses_and_lengths():
    model, data = load("quadruped")
    assert model.body_mass.sum() == pytest.approx(3.3 + 4 * (0.54 + 0.634 + 0.064) + 12 * 0.055, rel=1e-6)
    gears = np.tile([6, 6, 9.33], 4)
    np.testing.assert_allclose(model.dof_armature[6:], gears**2 * 63e-6, rtol=1e-4)
    np.testing.assert_allclose(model.actuator_ctrlrange[:, 1], np.tile([18, 18, 28], 4), rtol=1e-3)
    mujoco.mj_kinematics(model, data)
    places = {n: data.body(n).xpos - data.body("trunk").xpos for n in ("front_left_abad", "front_left_shank")}
    np.testing.assert_allclose(places["front_left_abad"], [0.19, 0.049, 0], atol=1e-12)
    np.testing.assert_allclose(places["front_left_shank"], [0.19, 0.049 + 0.062, -0.209], atol=1e-12)
    lowest = data.geom("front_left_foot").xpos[2] - model.geom("front_left_foot").size[0] - data.body("trunk").xpos[2]
    assert lowest == pytest.approx(-0.209 - 0.195, abs=1e-12)
    # The shank's inertia, which has no rotor, and a thigh's centre of mass with one.
    np.testing.assert_allclose(np.sort(model.body("back_right_shank").inertia), [6e-6, 245e-6, 248e-6], rtol=1e-5)
    np.testing.assert_allclose(
        model.body("back_right_thigh").ipos, np.array([0, -0.016, -0.02]) * 0.634 / 0.689, rtol=1e-5
    )


DE_LEVA = {  # mass [%], length [m], centre of mass [%], radii of gyration [%]: sagittal, transverse, longitudinal
    "pelvis": (11.17, 0.1457, 61.15, 61.5, 55.1, 58.7),
    "abdomen": (16.33, 0.2155, 45.02, 48.2, 38.3, 46.8),
    "thorax": (15.96, 0.1707, 29.99, 71.6, 45.4, 65.9),
    "head": (6.94, 0.2033, 59.76, 36.2, 37.6, 31.2),
    "left_upper_arm": (2.71, 0.2817, 57.72, 28.5, 26.9, 15.8),
    "right_forearm": (1.62, 0.2689, 45.74, 27.6, 26.5, 12.1),
    "left_hand": (0.61, 0.0862, 79.00, 62.8, 51.3, 40.1),
    "right_thigh": (14.16, 0.4222, 40.95, 32.9, 32.9, 14.9),
    "left_shank": (4.33, 0.4340, 44.59, 25.5, 24.9, 10.3),
    "right_foot": (1.37, 0.2581, 44.15, 25.7, 24.5, 12.4),
}


def test_humanoid_has_the_segments_of_de_leva():
    model, data = load("humanoid")
    assert model.body_mass.sum() == pytest.approx(73.0, rel=1e-9)
    mujoco.mj_forward(model, data)
    for name, (mass, length, centre, *radii) in DE_LEVA.items():
        body = model.body(name)
        assert body.mass[0] == pytest.approx(0.73 * mass, rel=1e-6)
        moments = [body.mass[0] * (r / 100 * length) ** 2 for r in radii]
        np.testing.assert_allclose(np.sort(body.inertia), np.sort(moments), rtol=1e-5)
        if "arm" in name or "thigh" in name or "shank" in name:
            assert body.ipos[2] == pytest.approx(-centre / 100 * length, rel=1e-6)
    top = data.geom("head").xpos[2] + model.geom("head").size[:2].sum()
    sole = data.geom("left_foot").xpos[2] - model.geom("left_foot").size[2]
    assert top - sole == pytest.approx(1.741, abs=1e-3)


SHADOW = {  # degrees
    "WR1": (-40, 28), "WR2": (-28, 10), "LF5": (0, 45),
    "TH1": (-15, 90), "TH2": (-40, 40), "TH3": (-12, 12), "TH4": (0, 70), "TH5": (-60, 60),
} | {
    f"{finger}{joint}": limits
    for finger in ("FF", "MF", "RF", "LF")
    for joint, limits in {1: (0, 90), 2: (0, 90), 3: (-15, 90), 4: (-20, 20)}.items()
}  # fmt: skip


def test_hand_has_the_published_ranges_and_reach():
    model, data = load("hand")
    assert {model.joint(j).name for j in range(model.njnt)} == set(SHADOW)
    for name, limits in SHADOW.items():
        np.testing.assert_allclose(np.degrees(model.joint(name).range), limits, atol=1e-5)
    mujoco.mj_kinematics(model, data)

    def at(name: str) -> np.ndarray:
        palm = data.body("palm")
        return palm.xmat.reshape(3, 3).T @ (data.site(name).xpos - palm.xpos)

    np.testing.assert_allclose(at("MF_tip"), [0.011, 0, 0.099 + 0.045 + 0.025 + 0.026], atol=1e-9)
    np.testing.assert_allclose(at("LF_tip"), [-0.033, 0, 0.0865 + 0.045 + 0.025 + 0.026], atol=1e-9)
    reach = (0.038 + 0.032 + 0.0275) / np.sqrt(2)
    np.testing.assert_allclose(at("TH_tip"), [0.034 + reach, -0.00858, 0.029 + reach], atol=1e-9)


def test_hand_closes_on_a_ball_and_holds_it_upside_down():
    """Also that the loop of tendon keeps each finger's last joint from bending farther than the one before."""
    spec = mujoco.MjSpec.from_file(fphys.asset("hand"))
    home, fist = (np.array(spec.key(name).ctrl) for name in ("home", "fist"))
    start = np.array(spec.key("home").qpos)
    for key in list(spec.keys):
        spec.delete(key)
    ball = spec.worldbody.add_body(name="ball", pos=[0.31, -0.008, 0.345])
    ball.add_freejoint()
    ball.add_geom(name="ball", type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.03, 0, 0], mass=0.06, condim=4)
    model = spec.compile()
    data = mujoco.MjData(model)
    data.qpos[:24] = start
    for step in range(2000):  # at rest, close in a second, turn gravity around after two
        data.ctrl[:] = home + (fist - home) * np.clip(step * model.opt.timestep - 0.3, 0, 1)
        model.opt.gravity[2] = -9.81 if step < 1000 else 9.81
        mujoco.mj_step(model, data)
    assert np.linalg.norm(data.body("ball").xpos - [0.31, 0, 0.34]) < 0.01
    assert np.abs(data.qvel[24:27]).max() < 0.02
    ball_contacts = [g for g in data.contact.geom if model.geom("ball").id in g]
    assert len(ball_contacts) >= 4
    assert data.ten_length[1::2].min() > -0.02
