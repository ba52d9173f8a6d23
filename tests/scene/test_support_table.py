"""The table of what back ends simulate agrees with what they refuse."""

import pytest

from fphys.errors import UnsupportedError

from .support_table import PAGE, YES, scenes, table, verdict


def test_the_table_is_current():
    assert PAGE.read_text() == table(), "regenerate it: python -m tests.scene.support_table"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in scenes() if name != "Mesh, as its convex hull"])
def test_the_native_back_end_does_what_it_does_not_refuse(name):
    scene = scenes()[name]
    if verdict(scene, "native") != YES:
        with pytest.raises(UnsupportedError):
            scene.build(2)
    else:
        assert scene.build(2).init().force.shape[0] == 2
