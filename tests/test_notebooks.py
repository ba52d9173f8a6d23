"""Every notebook runs from top to bottom and ends in an assertion."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))
CELL = 100  # seconds after which a cell is stopped; 250 in full size, or if another worker runs beside it
NEEDS = {"from_torch": ("torch", "sklearn"), "from_genesis": ("genesis", "torch")}
"""What a notebook needs beyond the core packages."""
RUN = """
import sys
import jupytext, nbclient
nbclient.NotebookClient(jupytext.read(sys.argv[1]), timeout=float(sys.argv[2])).execute()
"""
LONG = {"from_genesis", "hover", "shape_a_breakwater", "train_an_ant", "balance", "learn_the_rest", "steer_a_fluid"}
LONG |= {"friction_of_a_slide", "track_a_circle", "soft_matter", "identify", "analytic_policy"}
"""Notebooks that run in full size only, because they take long: the others show the same parts of fphys."""


def marked(path: Path):
    """A notebook and what its test needs."""
    marks = [pytest.mark.extra(*NEEDS.get(path.stem, ())), *([pytest.mark.slow] if path.stem in LONG else [])]
    return pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.parametrize("source", [marked(path) for path in NOTEBOOKS])
@pytest.mark.extra("jupytext", "nbclient", "ipykernel", "mediapy")
def test_notebook_runs(source, tmp_path, full, environment):
    import jupytext

    last = [cell for cell in jupytext.read(source).cells if cell.cell_type == "code"][-1]
    assert "assert " in last.source, "a notebook ends in a numeric assertion"
    limit = 250 if full or "PYTEST_XDIST_WORKER" in os.environ else CELL
    child = subprocess.run(
        [sys.executable, "-c", RUN, str(source), str(limit)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=2 * limit,
    )
    assert child.returncode == 0, child.stderr[-4000:]


@pytest.mark.parametrize("made", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
@pytest.mark.extra("jupytext")
def test_what_is_stored_is_the_program_and_its_output(made):
    """The site shows it. ``python docs/notebooks.py NAME`` makes it again."""
    import jupytext

    source, stored = jupytext.read(made.with_suffix(".py")), json.loads(made.read_text())
    assert [("".join(c["source"]), c["cell_type"]) for c in stored["cells"]] == [
        (c.source, c.cell_type) for c in source.cells
    ]
    outputs = [output for cell in stored["cells"] for output in cell.get("outputs", [])]
    kinds = {output["output_type"] for output in outputs}
    pictures = sum("image/png" in output.get("data", {}) for output in outputs)
    films = sum("video/mp4" in "".join(output.get("data", {}).get("text/html", "")) for output in outputs)
    assert kinds <= {"stream", "display_data", "execute_result"}
    assert (pictures, films) == tuple(
        sum(call in cell.source for cell in source.cells if cell.cell_type == "code")
        for call in ("plt.show()", "mediapy.show_video")
    )
    assert made.stat().st_size < 400 * 1024


def test_every_program_is_a_notebook_on_the_page_of_notebooks():
    page = (ROOT / "notebooks/README.md").read_text()
    names = {path.stem for path in NOTEBOOKS}
    assert {"first_step", "from_torch", "from_mujoco", "from_genesis"} <= names
    assert names == {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert [name for name in sorted(names) if page.count(f"[`{name}`]({name}.") != 1] == []
