"""One scene on several engines: what is compared, and that the numbers are those of theory."""

import sys

import numpy as np
import pytest

from fphys.errors import ModelError
from fphys.scene import PBD, ActionSpec, Cloth, Scene, Sphere, compare
from fphys.scene.compare import Comparison

from . import engines
from .things import alone

ENGINES = ("native", "physx")


@pytest.mark.extra("ovphysx", "ovstage")
def test_a_fall_on_two_engines():
    """Energy is kept until the ground takes it; the contacts' impulse is what falling and resting take."""
    found = engines.fall(backends=ENGINES)
    assert found.joints == () and found.links == ("ball",) and tuple(found.motions) == ENGINES
    mass = 1000 * 4 / 3 * np.pi * 0.1**3
    for motion in found.motions.values():
        assert motion.energy[0] == pytest.approx(mass * 9.81 * 1.1, rel=1e-5)
        assert motion.energy[200] == pytest.approx(motion.energy[0], rel=0.01)
        assert motion.energy[-1] == pytest.approx(mass * 9.81 * 0.1, rel=0.01)
        assert motion.force[:, 0, 2].sum() * 0.002 == pytest.approx(mass * 9.81 * 1.0, rel=0.02)
        assert motion.times[-1] == pytest.approx(1.0) and motion.seconds > 0
    gaps = found.difference("physx")
    assert 0 < gaps["links"] < 0.05 and gaps["positions"] == 0 and gaps["impulse"] < 0.05 * mass * 9.81
    assert found.difference("native") == dict.fromkeys(gaps, 0.0)
    assert [axes.get_ylabel() for axes in found.figure().axes] == [
        "heights [m]",
        "energy [J]",
        "contact forces [N]",
        "a step [ms]",
    ]


@pytest.mark.extra("ovphysx", "ovstage")
def test_a_pendulum_on_two_engines():
    """The energy of a rod with inertia, and the drift of each engine: PhysX gains 2 % in four seconds at 2 ms."""
    found = engines.pendulum(backends=ENGINES)
    start = 9.81  # a rod of 1 kg, a metre above zero
    drift = {name: motion.energy[-1] / start - 1 for name, motion in found.motions.items()}
    assert abs(drift["native"]) < 0.002 and 0.01 < drift["physx"] < 0.03
    assert found.difference("physx")["links"] < 1e-4 and 0.05 < found.difference("physx")["positions"] < 0.5
    assert found.figure().axes[0].get_ylabel() == "joints [rad or m]"


def test_engines_that_cannot_are_absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "genesis", None)
    monkeypatch.setitem(sys.modules, "ovphysx", None)
    scene = alone()
    control = np.tile([[0.1, -0.1]], (5, 1))
    found = compare(scene, control, positions=(0.2, 0.1), action=ActionSpec("position"))
    assert tuple(found.motions) == ("native",) and set(found.absent) == {"genesis", "physx"}
    assert "pip install" in found.absent["physx"] and "pip install" in found.absent["genesis"]
    motion = found.motions["native"]
    assert motion.positions.shape == motion.velocities.shape == (6, 2) and motion.links.shape == (6, 2, 13)
    assert motion.positions[0] == pytest.approx([0.2, 0.1])
    with pytest.raises(ModelError, match=r"control has shape \(5, 2\), needs \(steps, controls\) with 7 steps"):
        compare(scene, control, 7)
    with pytest.raises(ModelError, match="0 steps: give one at least"):
        compare(scene, np.zeros((0, 2)))
    for pair in (("physx",), ("native", "genesis")):
        with pytest.raises(ModelError, match=r"did not run: .*pip install.*; these did: native"):
            found.difference(*pair)
    with pytest.raises(ModelError, match="'native' did not run: it was not among the backends; these did: physx"):
        Comparison({"physx": motion}, {}, found.joints, found.links).difference("physx")
    assert tuple(compare(scene, steps=1, backends="native").motions) == ("native",)
    soft = Scene()
    soft.add(Cloth((1.0, 1.0), (2, 2)), PBD(0.2))
    soft.add(Sphere(0.1, pos=(0, 0, 1)))
    with pytest.raises(ModelError, match="no engine runs this scene:\n  physx: the back end 'physx' cannot simulate"):
        compare(soft, steps=1, backends=("physx",))
