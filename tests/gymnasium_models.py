"""Gymnasium's MuJoCo models, which the parity tests use."""

import importlib.util
import os
from pathlib import Path


def gymnasium_models() -> dict[str, Path]:
    """Name -> file; empty in the bare environment, which may lack Gymnasium."""
    found = importlib.util.find_spec("gymnasium")
    if found is None and os.environ.get("FPHYS_BARE"):
        return {}
    assert found is not None and found.origin is not None, "Gymnasium is missing: pip install -e .[test]"
    files = sorted((Path(found.origin).parent / "envs" / "mujoco" / "assets").glob("*.xml"))
    assert len(files) == 14, f"Gymnasium's assets changed: {files}"
    return {f"gymnasium-{path.stem}": path for path in files}
