"""The table of features agrees with the tests."""

import pytest

from .features import PAGE, table


@pytest.mark.extra("gymnasium")
def test_the_table_is_current():
    assert PAGE.read_text() == table(), "regenerate it: JAX_ENABLE_X64=1 python -m tests.features"
