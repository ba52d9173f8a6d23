"""The tests that a change touches: ``make check`` runs what this prints.

These are the test files that changed, those that import a changed module by its own name, and those named for it or
for a module that uses it. The rules of the house are always among them. Without a change in the working tree, the last
commit counts.
"""

import ast
import subprocess
from pathlib import Path

from tests.test_house import ROOT, graph, imports, modules, room

ALWAYS = ("test_house.py", "test_api.py", "test_kernel_style.py")
LONG = ("test_notebooks.py", "test_readme.py")
"""They run the whole documentation: only if they changed themselves."""


def listed(command: str) -> list[Path]:
    """The files that a git command lists."""
    found = subprocess.run(["git", *command.split()], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in found.stdout.splitlines()]


def changed() -> list[Path]:
    """The files that differ from the last commit, or if there are none, those that it changed."""
    own = listed("diff --name-only HEAD") + listed("ls-files --others --exclude-standard")
    return own or listed("show --name-only --format= HEAD")


def users(modules: set[str], steps: int = 4) -> set[str]:
    """Modules and those that use them, up to some steps away, in the same room: kernels and what launches them."""
    used_by, found = graph(), set(modules)
    for step in range(steps):
        near = {user for user, used in used_by.items() if used & found}
        found |= {user for user in near if step == 0 or room(user) in {room(module) for module in found}}
    return found


def touched(paths: list[Path], tests: list[Path]) -> list[Path]:
    """The test files to run for changed files."""
    known = {path: module for module, path in modules().items()}
    headers = {path.name for path in paths if path.suffix == ".h"}
    paths = [*paths, *(path for path in known if any(name in path.read_text() for name in headers))]
    changed = {known[path] for path in paths if path in known}
    stems = {name.rpartition(".")[2] for name in users(changed)} | {path.stem for path in paths if path in known}
    found = []
    for test in tests:
        named = any(f"{test.stem}_".startswith((f"test_{stem}_", f"test_{stem}s_")) for stem in stems)
        names = {name for name, _ in imports(test, ast.parse(test.read_text()))}
        used = (names | {name.rpartition(".")[0] for name in names}) & changed
        if test in paths or test.name in ALWAYS or (test.name not in LONG and (named or used)):
            found.append(test)
    return found


if __name__ == "__main__":
    every = sorted((ROOT / "tests").rglob("test_*.py"))
    print(*(test.relative_to(ROOT) for test in touched(changed(), every)))
