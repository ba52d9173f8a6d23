"""Run notebooks and keep them with their outputs, for the site: ``python docs/notebooks.py NAME...``; all by default.

``notebooks/NAME.py`` is the source; ``notebooks/NAME.ipynb`` is made from it. A test compares their cells.
"""

import base64
import io
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
COLORS = 64  # of a stored plot, which is a third as large then


def executed(source: Path) -> Any:
    """The notebook with its outputs; nbclient raises what a cell raises."""
    import jupytext
    import nbclient

    notebook: Any = jupytext.read(source)
    nbclient.NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(FOLDER)}}).execute()
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
        cell.metadata.clear()
        outputs = cell.get("outputs", [])
        cell["outputs"] = [kept for output in outputs if (kept := slim(output))]
        if cell.cell_type != "code":
            del cell["outputs"]
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    return notebook


def slim(output: Any) -> Any:
    """An output without what the machine and the day add, and with small plots; None for warnings and bars."""
    from PIL import Image

    if output.output_type == "stream":
        return None if output.name == "stderr" else output
    output.pop("metadata", None)
    output["metadata"] = {}
    if png := output.get("data", {}).get("image/png"):
        small = io.BytesIO()
        with Image.open(io.BytesIO(base64.b64decode(png))) as picture:
            picture.convert("RGB").quantize(COLORS).save(small, "png", optimize=True)
        output.data = {"image/png": base64.b64encode(small.getvalue()).decode()}
    return output


if __name__ == "__main__":
    import nbformat

    for name in sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.py")):
        made = FOLDER / f"{name}.ipynb"
        nbformat.write(executed(FOLDER / f"{name}.py"), made)
        print(f"{made.name}: {made.stat().st_size // 1024} KiB", flush=True)
