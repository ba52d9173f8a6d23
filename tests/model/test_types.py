"""MuJoCo's enumerations, ours, and the constants of the kernels have the same numbers."""

import mujoco
import pytest
from fphys.kernels.rigid.collide import shapes
from fphys.kernels.rigid.tree import kinematics

import fphys  # noqa: F401
from fphys.model.structure import GeomType, Integrator, JointType


@pytest.mark.parametrize(
    ("ours", "prefix", "theirs"),
    [
        (GeomType, "mjGEOM_", mujoco.mjtGeom),
        (JointType, "mjJNT_", mujoco.mjtJoint),
        (Integrator, "mjINT_", mujoco.mjtIntegrator),
    ],
)
def test_numbers_are_mujocos(ours, prefix, theirs):
    assert {t.name: int(t) for t in ours} == {t.name: int(getattr(theirs, prefix + t.name)) for t in ours}


@pytest.mark.parametrize(("module", "ours"), [(shapes, GeomType), (kinematics, JointType)])
def test_kernels_use_the_same(module, ours):
    shared = {t.name: int(t) for t in ours if hasattr(module, t.name)}
    assert len(shared) >= 3
    assert shared == {name: getattr(module, name) for name in shared}
