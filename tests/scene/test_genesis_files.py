"""What Genesis makes of files and of the beginning of a world, as the native back end does; and what it refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fphys.errors import UnsupportedError
from fphys.scene import MJCF, Scene

PROGRAM = Path(__file__).with_name("genesis_files_program.py")
ROD = '<geom size=".1" mass="1"/>'


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the program measured natively and in Genesis."""
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
    measured = json.loads((folder / "found.json").read_text())
    return measured["native"], measured["genesis"]


def among(columns: list[str], *starts: str) -> list[int]:
    return [i for i, name in enumerate(columns) if name.startswith(starts)]


def both(found: Any, what: str, *columns: str) -> tuple[np.ndarray, np.ndarray]:
    native, genesis = found
    which = among(native["columns"], *columns)
    return np.array(native[what])[..., which], np.array(genesis[what])[..., which]


def in_genesis(test: Any) -> Any:
    return pytest.mark.slow(pytest.mark.extra("genesis", "torch")(test))


@in_genesis
def test_a_joint_begins_where_its_ref_says(found):
    """A hinge with ref 0.5 at 1 turns by half a radian; a slide likewise; a spring and a limit know it too."""
    native, genesis = both(found, "begun", "arm/")
    assert genesis == pytest.approx(native, abs=1e-5)
    native, genesis = both(found, "swing", "arm/j:position", "arm/slide:position")
    assert genesis == pytest.approx(native, abs=1e-3) and np.ptp(native[:, 0]) > 0.1


@in_genesis
def test_targets_and_uneven_limits_of_joints_with_a_ref(found):
    native, genesis = both(found, "driven", "arm/j:", "arm/slide:")
    assert genesis == pytest.approx(native, abs=2e-3)


@in_genesis
def test_an_imu_that_is_turned_on_a_link_that_turns(found):
    native, genesis = both(found, "driven", "imu:")
    assert genesis == pytest.approx(native, abs=0.01) and np.abs(native[3:]).min() > 0.02


@in_genesis
@pytest.mark.parametrize("when", ["begun", "begun again"])
def test_sensors_at_the_beginning_are_those_of_the_beginning(found, when):
    for sensor, error in (("imu:", 0.01), ("falls:", 0.01), ("touch:", 1e-3), ("rays:", 1e-3)):
        native, genesis = both(found, when, sensor)
        assert genesis == pytest.approx(native, abs=error), sensor
    assert both(found, when, "rays:")[0] == pytest.approx([1.0, 20.0])


@in_genesis
def test_weight_that_is_held_up(found):
    native, genesis = both(found, "swing", "held/")
    assert genesis == pytest.approx(native, abs=1e-3) and np.ptp(native[:, 0]) > 0.05


@in_genesis
def test_a_plane_of_a_file_has_no_end(found):
    native, genesis = (np.array(one["ends"]) for one in found)
    assert genesis == pytest.approx(native, abs=1e-3)
    assert genesis[[2, 15]] == pytest.approx(0.1, abs=1e-3)


@in_genesis
def test_a_file_that_disables_gravity_does_so_for_the_scene(found):
    for one in found:
        assert one["weightless"][2] == pytest.approx(1.0, abs=1e-6)


@in_genesis
def test_a_mesh_weighs_and_touches_as_its_hull(found):
    """Also the mesh of a file in another folder. The hull of the L is a square less the triangle beyond x + y = 1.2."""
    native, genesis = (np.array(one["stones"]) for one in found)
    assert genesis[[2, 15, 28]] == pytest.approx(native[[2, 15, 28]], abs=1e-3)
    assert native[[15, 28]] == pytest.approx([0.66, 0.46], abs=1e-3)
    assert genesis[-1] == pytest.approx(native[-1], rel=1e-3)
    assert native[-1] == pytest.approx((1 - 0.8**2 / 2) * 0.4 * 0.3**3 * 500 * 9.81, rel=1e-3)


@pytest.mark.parametrize(
    ("inside", "after", "words"),
    [
        (
            f'<joint/>{ROD}<body gravcomp="1"><joint axis="1 0 0"/>{ROD}</body>',
            "",
            "gravcomp 0 of 'm/b', 1 of 'm/body2'",
        ),
        (f'<joint name="j" stiffness="5" springref="60"/>{ROD}', "", "joint 'm/j': springref 1.0472, ref 0"),
        (f'<joint name="j" stiffness="5" ref="60"/>{ROD}', "", "joint 'm/j': springref 0, ref 1.0472"),
        (f'<joint name="j" type="ball" range="0 30"/>{ROD}', "", "joint 'm/j': a ball with a limit"),
        (f"<freejoint/>{ROD}", '<option density="800"/>', "a medium around the bodies"),
        (f"<freejoint/>{ROD}", '<option viscosity="1"/>', "a medium around the bodies"),
        (f'<joint damping="1"/>{ROD}', '<option><flag damper="disable"/></option>', '<flag damper="disable"/>'),
        (f'<joint range="0 9"/>{ROD}', '<option><flag constraint="disable"/></option>', '<flag constraint="disable"/>'),
        (
            f'<joint name="j"/>{ROD}',
            '<tendon><fixed stiffness="5"><joint joint="j" coef="1"/></fixed></tendon>',
            "1 tendons with springs",
        ),
        (
            f'<joint name="j"/>{ROD}',
            '<tendon><fixed range="-.2 .2"><joint joint="j" coef="1"/></fixed></tendon>',
            "1 tendons with springs, damping, limits",
        ),
        (
            '<freejoint/><geom name="g" size=".1"/></body><body><freejoint/><geom name="h" size=".1"/>',
            '<contact><pair geom1="g" geom2="h"/></contact>',
            "1 contact pairs",
        ),
    ],
)
def test_what_genesis_lacks_is_refused_by_name(inside, after, words):
    """Before Genesis is so much as imported."""
    scene = Scene()
    scene.add(MJCF(f'<mujoco><worldbody><body name="b">{inside}</body></worldbody>{after}</mujoco>'), name="m")
    scene.build(1)
    with pytest.raises(UnsupportedError, match=rf"'genesis' cannot simulate this scene:\n(.|\n)*{words}"):
        scene.build(1, backend="genesis")
