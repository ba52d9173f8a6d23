"""Without OpenGL everything except images works, and the error says what to install."""

import subprocess
import sys

NO_OPENGL = """
import ctypes, ctypes.util
find, init = ctypes.util.find_library, ctypes.CDLL.__init__
def hide(name):
    return "EGL" in str(name) or "OSMesa" in str(name) or "libGL" in str(name) or str(name) in ("GL", "OpenGL")
def refuse(self, name, *args, **kwargs):
    if hide(name):
        raise OSError(f"{name}: cannot open shared object file")
    init(self, name, *args, **kwargs)
ctypes.util.find_library = lambda name: None if hide(name) else find(name)
ctypes.CDLL.__init__ = refuse
"""


def test_a_run_goes_on_without_a_video(tmp_path):
    script = (
        NO_OPENGL
        + f"""
import json
from fphys.render.canvas import gl_context
from fphys.runs import Run
with Run("fall", root={str(tmp_path)!r}) as run:
    assert run.video("fall", lambda: gl_context(8, 8)) is None
content = json.loads((run.path / "metrics.json").read_text())
assert content["status"] == "ok" and content["video"] is None
assert "libegl1 libegl-mesa0 libgl1-mesa-dri" in content["video_reason"]
"""
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "no video" in done.stderr
    assert "apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri" in done.stderr
