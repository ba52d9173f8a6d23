"""The table of features says what the tests do."""

from .features import PAGE, table


def test_the_table_is_current():
    assert PAGE.read_text() == table(), "write it anew: python -m tests.features"
