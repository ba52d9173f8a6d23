"""The tests that a change touches: ``make check`` runs what this prints.

These are the test files that changed, those that import a changed module by its own name, and those that have its name
in theirs. The rules of the house are always among them. Without a change in the working tree, the last commit counts.
"""

import ast
import subprocess
from pathlib import Path

from test_house import ROOT, imports

ALWAYS = ("test_house.py", "test_api.py", "test_kernel_style.py")
LONG = ("test_notebooks.py", "test_readme.py")
"""They run the whole documentation: only if they changed themselves."""


def changed() -> list[Path]:
    """The files that differ from the last commit, or that it changed."""
    for command in ("git diff --name-only HEAD", "git show --name-only --format= HEAD"):
        others = "git ls-files --others --exclude-standard" if "diff" in command else "true"
        found = [subprocess.run(c.split(), cwd=ROOT, capture_output=True, text=True).stdout for c in (command, others)]
        if paths := [ROOT / name for name in "".join(found).splitlines()]:
            return paths
    return []


def touched(paths: list[Path], tests: list[Path]) -> list[Path]:
    """The test files to run for changed files."""
    sources = [p for p in paths if p.suffix == ".py" and p.relative_to(ROOT).parts[0] in ("fphys", "kernels")]
    modules = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for p in sources}
    modules |= {f"fphys.{name}" for name in modules if name.startswith("kernels.")}
    stems = {p.stem for p in sources} - {"__init__"}
    found = []
    for test in tests:
        named = any(f"{test.stem}_".startswith(f"test_{stem}_") for stem in stems)
        used = {name for name, _ in imports(test, ast.parse(test.read_text()))} & modules
        if test in paths or test.name in ALWAYS or (test.name not in LONG and (named or used)):
            found.append(test)
    return found


if __name__ == "__main__":
    every = sorted((ROOT / "tests").rglob("test_*.py"))
    print(*(test.relative_to(ROOT) for test in touched(changed(), every)))
