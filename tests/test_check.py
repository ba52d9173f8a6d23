"""``fphys check``: what it says of right and wrong models, and that a crash or a hang is one model's only."""

import dataclasses
import json
import multiprocessing
from pathlib import Path

import jax
import mujoco
import numpy as np
import pytest

import fphys
from fphys import checking, cli, oracle
from fphys.checking import Report, Step
from fphys.errors import ModelError
from fphys.rigid.solve import constraint

BOX = """<mujoco><worldbody><geom type="plane" size="9 9 1"/><body pos="0 0 0.09"><freejoint/>
  <geom type="box" size="0.1 0.12 0.1" mass="1"/></body></worldbody></mujoco>"""
REFUSED = """<mujoco><option integrator="implicit"/><worldbody><body><joint name="j"/>
  <geom size="0.1"/></body></worldbody></mujoco>"""
CRASHES = '<mujoco><worldbody><geom class="%n%n%n%n%n%n%n%n" size="0.1"/></worldbody></mujoco>'
"""MuJoCo prints the name of an unknown class by printf(name)."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "a/box.xml": BOX,
        "a/crash.xml": CRASHES,
        "a/refused.xml": REFUSED,
        "b/whole.xml": '<mujoco><include file="part.xml"/><worldbody><geom size="0.1"/></worldbody></mujoco>',
        "b/part.xml": '<mujoco><contact><exclude body1="gone" body2="world"/></contact></mujoco>',
        "b/robot.xml": "<launch/>",
        "b/broken.xml": "<mujoco",
        "b/readme.txt": "<mujoco/>",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_folder(folder, capfd):
    """A crash ends nothing but one model; parts and other XML are counted apart; refusals are counted by cause."""
    assert cli.main(["check", str(folder / "a"), "--quick", "--states", "4", "--json", str(folder / "out/x.json")]) == 1
    out = capfd.readouterr().out
    content = json.loads((folder / "out/x.json").read_text())
    box, crash, refused = content["models"]
    assert box["loads"] == "path" and not box["fault"] and max(box["errors"]) <= 1e-10
    assert set(box["touches"]) == {"nothing", "shapes"}
    assert box["wrong"] == 0 and box["speed_1"] is None
    assert crash["fault"] == "crashed while MuJoCo compiled it" and crash["loads"] is None
    assert refused["mujoco"] == "" and refused["loads"] is None and "implicitfast" in refused["refusal"]
    assert "MuJoCo compiles 2; of these, fphys loads 1 of 2 (50.0%), 1 of 2 (50.0%) from the path alone" in out
    assert "    1  option integrator=…: choose implicitfast, Euler or RK4" in out
    assert "2 of 2 (100.0%) to 1e-6" in out


def test_a_good_model_ends_with_zero(capfd, monkeypatch):
    good = Report("x.xml", mujoco="", loads="path", errors=[1e-12, None], touches=["shapes", "shapes"])
    monkeypatch.setattr(checking, "examined", lambda paths, *_: iter([good] * len(paths)))
    assert cli.main(["check", "ant"]) == 0
    for change in ({"wrong": 1}, {"errors": [1e-5, 0.0]}, {"fault": "crashed"}, {"loads": None}):
        bad = Report(**(vars(good) | change))
        monkeypatch.setattr(checking, "examined", lambda paths, *_, bad=bad: iter([bad]))
        assert cli.main(["check", "ant"]) == 1
    assert capfd.readouterr().out.count("1 of 1 (100.0%) to 1e-6") >= 1


def test_what_is_no_model_is_counted_apart(folder):
    found, others = checking.models(str(folder / "b"))
    assert [Path(f).name for f in found] == ["part.xml", "whole.xml"]
    assert [Path(f).name for f in others] == ["broken.xml", "robot.xml"]
    assert checking.inclusions(found) == {str((folder / "b/part.xml").resolve())}
    with pytest.raises(ModelError, match="no MJCF, URDF or USD file"):
        checking.models(str(Path(__file__).parent / "experiments"))


def test_a_hang_is_said_with_what_was_done():
    ours, theirs = multiprocessing.Pipe()
    for message in ("loading", {"loads": "path"}, "timing it"):
        theirs.send(message)
    report = checking._follow(ours, Report("x.xml"), 0.01)
    assert report.loads == "path" and report.fault == "took more than 0.01 s while timing it"
    theirs.close()
    assert checking._follow(ours, report, 1.0).fault == "crashed while starting"


@pytest.fixture(scope="module")
def hard() -> fphys.Model:
    return fphys.load(oracle.strict(BOX))


@pytest.mark.parametrize("integrator", ["Euler", "RK4", "implicitfast"])
def test_a_right_step_is_right_with_every_integrator(integrator):
    """Two links swing, so that accelerations change within a step."""
    link = (
        '<body pos="0 0 -1"><joint axis="0 1 0" damping=".1"/><geom type="capsule" fromto="0 0 0 0 0 -1" size=".05"/>'
    )
    bodies = f"<worldbody>{link}{link}</body></body></worldbody>"
    text = f'<mujoco><option integrator="{integrator}"/>{bodies}</mujoco>'
    model = fphys.load(oracle.strict(text))
    assert max(checking._errors(Step(model, oracle.states(model.structure.source, 4)))) <= 1e-10


def test_a_wrong_step_is_noticed(hard):
    rows = oracle.states(hard.structure.source, 4)
    assert max(e for e in checking._errors(Step(hard, rows)) if e is not None) <= 1e-10
    heavier = hard.replace({"opt.gravity": np.array([[0, 0, -9.82]])})
    assert max(e for e in checking._errors(Step(heavier, rows)) if e is not None) > checking.CLOSE


@pytest.mark.usefixtures("fresh_traces")
def test_a_wrong_gradient_is_noticed(hard, monkeypatch):
    rows = oracle.states(hard.structure.source, 4)
    errors, wrong = Step(hard, rows).gradient_errors()
    assert not wrong.any() and np.nanmax(errors) <= checking.SLOPE
    operation = constraint._back_solve_op

    def too_much(damping):
        def solve(*args):
            found = operation(damping)(*args)
            return found._replace(trial=1.001 * found.trial)

        return solve

    monkeypatch.setattr(constraint, "_back_solve_op", too_much)
    jax.clear_caches()
    errors, wrong = Step(hard, rows).gradient_errors()
    assert wrong.any()


def test_a_switch_is_no_fault():
    """A box that just touches: the slopes to both sides differ, and neither is a wrong gradient."""
    m = oracle.strict(BOX)
    model, d = fphys.load(m), mujoco.MjData(m)
    d.qpos[2] = 0.1
    errors, wrong = Step(model, [oracle.answer(m, d)]).gradient_errors()
    assert np.isnan(errors).all() and not wrong.any()


def test_what_rounding_decides_is_left_out():
    m = oracle.strict(BOX)
    model, d = fphys.load(m), mujoco.MjData(m)
    d.qpos[2] = 0.1
    row = oracle.answer(m, d)
    assert checking._errors(Step(model, [row._replace(qacc=row.qacc + 1)])) == [None]


def test_causes_are_without_names_and_numbers():
    several = 'x.xml: the model uses what fphys does not simulate:\n  actuator "a1": dynamics user\n'
    several += "  actuator 7: dynamics user\n  contact of sdf and box: a - b, c - d\nTo simulate it without"
    assert checking.causes(several) == {"actuator …: dynamics user", "contact of sdf and box"}
    assert checking.causes("a/b.xml:12: <mesh> names 'x.stl', which is 3 MB") == {"<mesh> names …, which is … MB"}
    assert checking.causes("") == set()


@pytest.mark.extra("pxr")
def test_usd_files_are_models(tmp_path):
    """A file and the layer that it is made of, which is a part and no model."""
    from .model.usd_text import body, joint, write

    write(tmp_path, body("arm") + joint("Revolute", None, "arm"), "arm.usda")
    (tmp_path / "robot.usda").write_text('#usda 1.0\ndef "r" (references = @arm.usda@) {}\n')
    found, others = checking.models(str(tmp_path))
    assert [Path(f).name for f in found] == ["arm.usda", "robot.usda"] and not others
    assert checking.inclusions(found) == {str((tmp_path / "arm.usda").resolve())}
    messages = [m for m in checking._examine(found[1], {"states": 2, "worlds": ()}) if isinstance(m, dict)]
    report = Report(found[1])
    for message in messages:
        report = dataclasses.replace(report, **message)
    assert report.mujoco == "MuJoCo reads no USD" and report.loads == "path"
    assert report.errors and max(report.errors) < 1e-10 and report.wrong == 0
