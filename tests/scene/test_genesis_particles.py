"""Particles in the back end of Genesis: what one run of ``genesis_particles_program.py`` measured; what is refused."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fphys.errors import UnsupportedError
from fphys.particles.materials import Corotated, Liquid, Sand, Snow, VonMises
from fphys.scene import MPM, SPH, Box, Domain, Plane, Rays, Rigid, Scene
from fphys.scene.genesis_particles import substeps
from fphys.scene.support import refuse

PROGRAM = Path(__file__).with_name("genesis_particles_program.py")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program measured, in float32. Genesis's kernels take minutes to compile the first time."""
    folder = tmp_path_factory.mktemp("genesis_particles")
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


@pytest.mark.slow
@pytest.mark.extra("genesis", "torch")
def test_particles_fill_the_same_lattice_and_fall_alike(found):
    """The very positions of the native back end, also after a second init; a fall of 0.1 s within 1 % for each law."""
    assert np.allclose(found["start genesis"], found["start native"], atol=1e-6)
    assert found["again"] == 0.0
    fallen = 0.3 - np.array([found["fallen native"], found["fallen genesis"]])
    assert np.allclose(fallen[1:], fallen[:1], rtol=0.01)
    assert np.allclose(fallen, 0.5 * 9.81 * 0.1**2, rtol=0.05)


@pytest.mark.slow
@pytest.mark.extra("genesis", "torch")
def test_cubes_of_every_law_come_to_rest_alike(found):
    """Heights of their centres, to a cell of 0.1 m: by parts of one, both grids keep things from the floor."""
    native, genesis = np.array(found["rest native"]), np.array(found["rest genesis"])
    assert np.abs(native - genesis)[1:].max() < 0.1  # the first carries a ball in Genesis alone


@pytest.mark.slow
@pytest.mark.extra("genesis", "torch")
def test_particles_push_a_ball(found):
    """It rests on the cube that it fell on."""
    ball, top = found["ball"]
    assert top - 0.05 < ball < top + 0.15


@pytest.mark.slow
@pytest.mark.extra("genesis", "torch")
def test_water_stays_in_its_tank_with_its_volume(found):
    """After 1.2 s its centre is near half its depth of 0.3 m, and none of it has left.

    Genesis's walls have no particles, so that its water is denser there: 0.124 m were measured, and 0.166 m of ours,
    which still sloshes.
    """
    for backend in ("native", "genesis"):
        height, *corners = found[f"water {backend}"]
        assert height == pytest.approx(0.15, abs=0.03), backend
        lower, upper = np.array(corners[:3]), np.array(corners[3:])
        assert (lower > -0.025).all() and (upper < np.array([0.825, 0.425, 0.6])).all(), backend


@pytest.mark.slow
@pytest.mark.extra("genesis", "torch")
def test_a_camera_sees_particles(found):
    """A cube of 0.4 m, its face 2 m away, drawn as balls."""
    side = 120 / np.tan(np.radians(15.0)) * 0.4 / 2.0
    assert found["pixels"] == pytest.approx(side**2, rel=0.15)


def scene(*substances: Any, **body: Any) -> Scene:
    made = Scene(timestep=0.01, domain=Domain((0, 0, 0), (1, 1, 1), 0.05))
    for i, substance in enumerate(substances):
        made.add(Box((0.1, 0.1, 0.1), pos=(0.1 + 0.2 * i, 0.5, 0.5)), substance, name=f"thing{i}")
    made.add(Plane(), Rigid(**body), name="ground")
    return made


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        (scene(MPM(Liquid(1000.0, 1e4, viscosity=1.0))), "'thing0', MPM\\(Liquid\\): viscosity is 0 in Genesis"),
        (scene(MPM(Snow(hardening=5.0))), "hardening is 10 in Genesis"),
        (scene(MPM(Sand(cohesion=0.1))), "cohesion is 0"),
        (scene(MPM(VonMises(1000.0, 1e4, 0.3, 1e3, 1e2))), "hardening is 0"),
        (scene(MPM(Corotated(1000.0, np.array([1e4, 2e4]), 0.3))), "the same numbers in all worlds"),
        (scene(MPM(Snow()), friction=(0.5, 1.0)), "'ground', Rigid: beside particles"),
        (scene(MPM(Snow()), SPH(10.0)), "they would not feel each other"),
        (scene(SPH(10.0), SPH(12.0)), "a scene has one fluid"),
    ],
)
def test_what_genesis_lacks_is_refused(asked, fault):
    with pytest.raises(UnsupportedError, match=fault):
        refuse(asked, "genesis")


def test_rays_would_not_see_particles():
    """Only native ones do."""
    asked = scene(SPH(10.0))
    asked.add_sensor(Rays((0, 0, -1)), name="sonar")
    with pytest.raises(UnsupportedError, match="'sonar', Rays: they would not see"):
        refuse(asked, "genesis")
    refuse(asked, "native")


def test_substeps_are_short_enough_for_sound():
    """Sound crosses at most 0.4 cells of MPM, and 0.2 supports of SPH, in a substep."""
    assert substeps(Scene()) == 1
    speed = math.sqrt(Corotated(1000.0, 2e5, 0.3).modulus() / 1000.0)
    for asked, c, reach in ((scene(MPM(Corotated(1000.0, 2e5, 0.3))), speed, 0.04), (scene(SPH(20.0)), 20.0, 0.02)):
        count = substeps(asked)
        assert 0.01 / count * c <= reach < 0.01 / (count - 1) * c
