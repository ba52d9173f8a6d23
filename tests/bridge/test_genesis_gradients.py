"""Gradients through Genesis agree with differences, and whatever it would silently return as zero raises.

Genesis compiles for minutes, so its own rollouts (``genesis_rollouts.py``) run in full size only, in their own
processes. Refusals before Genesis is called are tested on a stand-in.
"""

import functools
import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from fphys.bridge.genesis import _checked, _first, _watched, as_jax
from fphys.errors import BridgeError, MissingDependencyError, PrecisionError, UnsupportedError

ROOT = Path(__file__).parents[2]


@functools.cache
def rollouts(kind: str) -> dict[str, Any]:
    child = subprocess.run(
        [sys.executable, "-m", "tests.bridge.genesis_rollouts", kind],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=850,
    )
    assert child.returncode == 0, child.stderr[-3000:]
    return json.loads(child.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.extra("genesis", "torch")
def test_gradients_of_rigid_bodies():
    """Forces and initial velocities of both joints in two worlds, with a policy; jit, vmap and another thread."""
    found = rollouts("rigid")
    for what in ("gradient", "closed loop", "some joints and worlds"):
        assert found[what] < 1e-4, what
    assert found["repeats"] and found["vmap"] < 1e-12 and found["thread"] < 1e-12


@pytest.mark.slow
@pytest.mark.extra("genesis", "torch")
def test_gradients_by_the_pose_of_a_free_body():
    assert rollouts("free")["gradient"] < 1e-4


@pytest.mark.slow
@pytest.mark.extra("genesis", "torch")
@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("not built", "UnsupportedError: the scene is not built"),
        ("no tape", "UnsupportedError: the scene was built without a tape"),
        ("SPH", "UnsupportedError: the scene has SPHSolver"),
        ("one force for all worlds", "control_dofs_force: force has shape (2,), needs (2, 2)"),
        ("one row for all worlds", "control_dofs_force: force has shape (1, 2), needs (2, 2)"),
        ("one column for all joints", "control_dofs_force: force has shape (2, 1), needs (2, 2)"),
        ("one velocity for all worlds", "set_dofs_velocity: velocity has shape (2,), needs (2, 2)"),
        ("float32", "force is torch.float32, the scene computes in torch.float64"),
        ("accelerations", "the result depends on dofs_acc"),
        ("accelerations among others", "the result depends on dofs_acc"),
        ("a getter", "its results are cut off from its arguments"),
        ("a getter among others", "its results are cut off from its arguments"),
        ("velocities set again", "set_dofs_velocity: called between steps"),
        ("positions set", "set_dofs_position: Genesis has no gradient by joint positions"),
        ("an argument that is not used", "argument 1 does not reach the results"),
        ("targets of PD", "Gradients with respect to PD control targets are not supported"),
    ],
)
def test_every_silent_zero_raises(what, text):
    assert text in rollouts("rigid")["raised"][what]


@pytest.mark.slow
@pytest.mark.extra("genesis", "torch")
def test_gradients_of_mpm():
    found = rollouts("mpm")
    assert found["particles"] > 8 and found["gradient"] < 1e-4
    assert found["stopped by the floor"] > 0.5  # m/s: the gradient passes through contact
    assert "its results are cut off from its arguments" in found["raised"]["a getter"]
    assert "set_velocity: called between steps" in found["raised"]["velocities set again"]


# Refused before Genesis is called


class Scene:
    """The part of Genesis's scene that fphys uses."""

    is_built, requires_grad, n_envs = True, True, 3

    def __init__(self, *solvers: str, dofs: int = 2):
        made = [type(name, (), {"n_dofs": dofs, "entities": []})() for name in solvers]
        self.sim = types.SimpleNamespace(active_solvers=made, cur_step_global=0)


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    monkeypatch.setitem(sys.modules, "genesis", types.SimpleNamespace(Scene=Scene, tc_float=torch.float64))


@pytest.mark.parametrize(
    ("scene", "text"),
    [
        (Scene("SPHSolver"), "has SPHSolver: .*no gradient"),
        (Scene("RigidSolver", "FEMSolver"), "has FEMSolver"),
        (Scene("RigidSolver", "PBDSolver", "SFSolver"), "has PBDSolver, SFSolver"),
        (Scene("RigidSolver", "MPMSolver"), "both MPM and rigid bodies that move"),
    ],
)
def test_solvers_without_a_right_gradient(scene, text):
    with pytest.raises(UnsupportedError, match=text):
        as_jax(scene, lambda x: x)


def test_scenes_that_have_one():
    for scene in (Scene("RigidSolver"), Scene("MPMSolver"), Scene("RigidSolver", "MPMSolver", dofs=0)):
        as_jax(scene, lambda x: x)


@pytest.mark.parametrize(("field", "text"), [("is_built", "not built"), ("requires_grad", "without a tape")])
def test_scenes_without_a_tape(field, text):
    scene = Scene("RigidSolver")
    setattr(scene, field, False)
    with pytest.raises(UnsupportedError, match=text):
        as_jax(scene, lambda x: x)


def test_other_objects_and_a_missing_genesis(monkeypatch):
    with pytest.raises(TypeError, match=r"scene is str, wanted is genesis\.Scene"):
        as_jax("scene", lambda x: x)
    monkeypatch.setitem(sys.modules, "genesis", None)
    with pytest.raises(MissingDependencyError, match=r'install -e "\.\[genesis\]"'):
        as_jax("scene", lambda x: x)


def setting(shape: tuple[int, ...], key: tuple[Any, ...], worlds: int = 3, **options: Any) -> list[Any]:
    """What Genesis's tape receives when a tensor of this shape is set."""
    scene, taped = Scene("RigidSolver"), []
    scene.n_envs = worlds
    name = {"control_dofs_force": "force", "set_dofs_velocity": "velocity", "set_pos": "pos", "set_quat": "quat"}[
        key[0]
    ]
    value = torch.ones(shape, dtype=torch.float64, requires_grad=True, **options)
    _checked(scene, types.SimpleNamespace(n_dofs=4), lambda *args: taped.append(args), key, {name: value})
    return taped


@pytest.mark.parametrize(
    ("shape", "key"),
    [
        ((3, 4), ("control_dofs_force", None, None)),
        ((3, 2), ("set_dofs_velocity", (0, 3), None)),
        ((1, 4), ("control_dofs_force", None, (2,))),
        ((2, 4), ("control_dofs_force", None, (True, False, True))),
        ((2, 2), ("control_dofs_force", slice(0, 2), slice(1, 3))),
        ((3, 3), ("set_pos", None, None)),
        ((3, 4), ("set_quat", None, None)),
    ],
)
def test_tensors_of_the_exact_shape_are_taped(shape, key):
    assert len(setting(shape, key)) == 1
    for other in (shape[1:], (shape[0] + 1, shape[1]), (shape[0], 1), (1, *shape)):
        with pytest.raises(BridgeError, match=rf"{key[0]}: \w+ has shape .*, needs \({shape[0]}, {shape[1]}\)"):
            setting(other, key)


def test_a_scene_without_a_world_axis():
    assert len(setting((4,), ("control_dofs_force", None, None), worlds=0)) == 1
    with pytest.raises(BridgeError, match=r"needs \(4,\)"):
        setting((1, 4), ("control_dofs_force", None, None), worlds=0)


def test_constants_may_be_broadcast():
    taped: list[Any] = []
    arm, key = types.SimpleNamespace(n_dofs=4), ("control_dofs_force", None, None)
    _checked(Scene("RigidSolver"), arm, lambda *args: taped.append(args), key, {"force": torch.ones(4)})
    _checked(Scene("RigidSolver"), arm, lambda *args: taped.append(args), key, {"force": 1.0})
    assert len(taped) == 2


def test_states_are_set_before_the_first_step():
    scene, arm, taped = Scene("RigidSolver"), types.SimpleNamespace(n_dofs=4), []
    for step in (0, 1):
        scene.sim.cur_step_global = step
        _checked(scene, arm, lambda *args: taped.append(args), ("control_dofs_force", None, None), {"force": 1.0})
    for setter in ("set_pos", "set_quat", "set_dofs_velocity"):
        with pytest.raises(BridgeError, match=rf"{setter}: called between steps"):
            _checked(scene, arm, lambda *args: taped.append(args), (setter, None, None), {})
    with pytest.raises(BridgeError, match="set_velocity: called between steps"):
        _first(scene, lambda *args: taped.append(args), "vel", torch.ones(3))
    _first(scene, lambda *args: taped.append(args), "actu", torch.ones(3))
    with torch.no_grad():
        _first(scene, lambda *args: taped.append(args), "vel", torch.ones(3))
    assert len(taped) == 4


def test_another_precision():
    arm = types.SimpleNamespace(n_dofs=4)
    force = torch.ones((3, 4), dtype=torch.float32, requires_grad=True)
    with pytest.raises(PrecisionError, match=r"force is torch.float32, the scene computes in torch.float64"):
        _checked(Scene("RigidSolver"), arm, lambda *_: None, ("control_dofs_force", None, None), {"force": force})


def test_accelerations_refuse_a_gradient():
    x = torch.ones(3, requires_grad=True)
    state = _watched(lambda: types.SimpleNamespace(dofs_acc=x * 2, qpos=x * 3))
    state.qpos.sum().backward()
    (0 * state.dofs_acc).sum().backward()
    with pytest.raises(BridgeError, match="the result depends on dofs_acc"):
        state.dofs_acc.sum().backward()
