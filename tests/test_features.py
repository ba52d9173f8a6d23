"""The table of features says what the tests do."""

import pytest

from .features import PAGE, table


@pytest.mark.extra("gymnasium")
def test_the_table_is_current():
    assert PAGE.read_text() == table(), "write it anew: python -m tests.features"
