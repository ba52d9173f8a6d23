"""The table of faults has every fault, and names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
NAMED = r"`(?:tests/)?((?:\w+/)*test_\w+)(?:\.py)?`(?:: ((?:`\w+`(?:, )?)+))?"


def test_every_test_that_the_page_names_exists():
    found = re.findall(NAMED, PAGE)
    assert len(found) > 40
    for file, names in found:
        path = ROOT / "tests" / f"{file}.py" if "/" in file else ROOT / "tests" / "faults" / f"{file}.py"
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"`(\w+)`", names):
            assert f"def test_{name}(" in text, f"{path} has no test_{name}"


def test_every_fault_is_in_a_table():
    numbers = [int(n) for row in re.findall(r"^\| ([\d, ]+) \|", PAGE, re.M) for n in row.split(",")]
    assert sorted(numbers) == list(range(1, 52))
