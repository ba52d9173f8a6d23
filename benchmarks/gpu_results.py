"""The file of results of ``benchmarks/gpu.sh``: a line of JSON for each."""

import json
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def note(file: Path, line: Line) -> None:
    """Append one result; a line is written whole."""
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(line) + "\n")


def lines(file: Path) -> list[Line]:
    """All results so far. The last line may have been cut off."""
    found = []
    for text in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        try:
            found.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return found
