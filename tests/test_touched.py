"""Which tests a change touches."""

import pytest

from tests.test_house import ROOT
from tests.touched import ALWAYS, touched


@pytest.mark.parametrize(
    ("file", "test"),
    [
        ("tests/train/test_fit.py", "tests/train/test_fit.py"),  # itself
        ("kernels/rigid/solve/newton.py", "tests/rigid/test_newton.py"),  # of its name
        ("kernels/particles/materials.py", "tests/particles/test_mpm.py"),  # of what uses it
        ("kernels/native/elastic.h", "tests/particles/test_mpm.py"),
        ("fphys/implicit.py", "tests/particles/test_sph.py"),
        ("fphys/model/structure.py", "tests/model/test_types.py"),  # imports it
    ],
)
def test_a_change_touches_what_it_may_break(file, test):
    found = touched([ROOT / file], sorted((ROOT / "tests").rglob("test_*.py")))
    assert ROOT / test in found
    assert {path.name for path in found} >= set(ALWAYS)


def test_a_change_of_one_room_leaves_the_others_alone():
    found = touched([ROOT / "fphys/nn/lstm.py"], sorted((ROOT / "tests").rglob("test_*.py")))
    assert ROOT / "tests/particles/test_mpm.py" not in found and len(found) < 12
