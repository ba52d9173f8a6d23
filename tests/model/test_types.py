"""MuJoCo's enumerations, ours, and the constants of the kernels have the same numbers."""

import re

import mujoco
import pytest
from fphys.kernels.particles import materials
from fphys.kernels.rigid.collide import shapes
from fphys.kernels.rigid.tree import kinematics

import fphys  # noqa: F401
from fphys.model.structure import GeomType, Integrator, JointType
from fphys.particles import mpm


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


def test_kernels_number_materials_alike():
    public = (getattr(mpm, name) for name in mpm.__all__)
    laws = [
        law for law in public if isinstance(law, type) and issubclass(law, mpm.Material) and law is not mpm.Material
    ]
    numbers = {re.sub(r"(?<!^)(?=[A-Z])", "_", law.__name__).upper(): law.kind for law in laws}
    assert len(numbers) >= 7
    assert {name: getattr(materials, name) for name in numbers} == numbers
