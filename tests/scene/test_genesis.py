"""The back end of Genesis: what one run of ``genesis_program.py`` measured, held against the native one and theory."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.extra("genesis", "torch")]
WORLDS = 16
MASS, FRICTION = np.linspace(4.0, 10.0, WORLDS), np.linspace(0.2, 0.9, WORLDS)  # the program's
PROGRAM = Path(__file__).with_name("genesis_program.py")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program measured, in float32. Genesis's kernels take minutes to compile the first time."""
    folder = tmp_path_factory.mktemp("genesis")
    child = subprocess.run(
        [sys.executable, str(PROGRAM), "found.json"],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "XLA_FLAGS"},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert child.returncode == 0, child.stderr + child.stdout
    return json.loads((folder / "found.json").read_text())


def test_names_are_those_of_the_native_back_end(found):
    assert found["columns"]
    assert found["joints"][:9] == [*(f"franka/joint{i}" for i in range(1, 8)), "arm/shoulder", "arm/elbow"]
    assert found["joints"][9:11] == ["lift/lift", "lift/shoulder_pan"]


def test_the_same_scene_moves_the_same_way(found):
    """Free fall and a double pendulum for half a second within 1 %, the resting height within 1 mm."""
    native, genesis = np.array(found["fall"])
    assert np.abs(genesis / native - 1).max() < 0.01
    assert native == pytest.approx(np.full(WORLDS, 0.5 * 9.81 * 0.04), rel=0.02)
    assert found["swing"] < 0.01
    native, genesis = np.array(found["height"])
    assert np.abs(native - genesis).max() < 1e-3 and np.abs(genesis - 0.1).max() < 1e-3


def test_every_morph_stands_where_the_native_back_end_has_it(found):
    """A capsule, a ball, a cylinder, the tip of a URDF, a ball on a terrain, a mesh."""
    native, genesis = np.array(found["solids"])
    assert np.abs(native - genesis)[:4, 2].max() < 1e-3
    assert np.abs(native - genesis)[1:3, :2].max() < 1e-3
    assert np.array([native, genesis])[:, 4:, 2] == pytest.approx(np.array([[0.5, 0.0]] * 2), abs=2e-3)


def test_sensors(found):
    assert np.allclose(found["imu"], [[0, 0, 9.81]] * WORLDS, atol=0.05)
    assert np.allclose(found["touch"], 9.81 * MASS, rtol=0.01)
    assert np.allclose(found["rays"], [1.0, 1.85], atol=2e-3)
    assert np.allclose(*found["scans"], atol=2e-3) and np.allclose(found["scans"][0], [0.7, 0.99, 0.75], atol=0.03)


def test_friction_of_each_world(found):
    """A box sent off at 1 m/s slides v^2 / (2 mu g)."""
    assert np.allclose(found["slid"], 1.0 / (2 * 9.81 * FRICTION), rtol=0.05, atol=0.01)


def test_a_jitted_policy_drives_a_franka(found):
    assert found["franka"] < 0.03


@pytest.mark.parametrize(("mode", "error"), [("torque", 0.03), ("position", 0.03), ("velocity", 0.2)])
def test_an_action_tracks_its_target(found, mode, error):
    assert found[mode] < error


def test_a_picture(found):
    """A green box of 0.3 m, its face 2.85 m away."""
    side = 240 / np.tan(np.radians(15.0)) * 0.3 / 2.85
    assert found["shape"] == [480, 640, 3]
    assert found["pixels"] == pytest.approx(side**2, rel=0.1)
    assert found["depth"] == pytest.approx(2.85, rel=0.01)
    below = 895.7 * 0.35 * (1 / 4.85 - 1 / 5.15)  # from a link's camera, half a metre lower, its lower face shows too
    assert found["mounted"] == pytest.approx(55.4 * (55.4 + below), rel=0.1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("old", "StateError: this state is number"),
        ("old observation", "StateError: this state is number"),
        ("foreign", "TypeError: state is NoneType"),
        ("jit", "TypeError: control is traced: Genesis is neither pure nor differentiable"),
        ("ticket", "TypeError"),
        ("shape", "ValueError: control has shape (3, 2)"),
        ("dtype", "TypeError: control is float16, Genesis runs in float32"),
        ("nan", "StateError: a control was not finite in worlds [3]"),
        ("world", "UnsupportedError: world is 1"),
    ],
)
def test_it_cannot_be_mistaken_for_pure(found, call, words):
    assert found["faults"][call].startswith(words)


def test_a_wrapped_step_costs_what_a_step_costs(found):
    assert found["wrapped"] <= 1.10 * found["raw"]
