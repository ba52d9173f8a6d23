"""The documents are correct: their code runs, their links work, their commands exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"(<!-- no-run -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def blocks(path: Path) -> list[tuple[bool, str, str]]:
    """Every code block: whether it is to run, its language, its text."""
    return [(not skip, language, text) for skip, language, text in BLOCK.findall(path.read_text())]


BLOCKS = [(str(path.relative_to(ROOT)), *block) for path in PAGES for block in blocks(path)]
RUN = "import runpy, sys\nfor name in sys.argv[1:]:\n    runpy.run_path(name, run_name='__main__')"


def programs(page: str) -> list[str]:
    """A page's programs. A block that begins with an import starts a program; other blocks continue it."""
    found: list[str] = []
    for where, run, language, text in BLOCKS:
        if (where, run, language) == (page, True, "python"):
            if text.startswith("import "):
                found.append("")
            found[-1] += text + "\n\n"
    return found


PROGRAMS = {page: found for page in dict.fromkeys(page for page, *_ in BLOCKS) if (found := programs(page))}


def test_every_block_is_run_or_marked():
    assert {"README.md", "docs/guide.md"} <= PROGRAMS.keys() and len(PROGRAMS["README.md"]) == 3
    assert [(page, language) for page, run, language, _ in BLOCKS if run != (language == "python")] == []


NEEDS = {
    "docs/bridges.md": ("torch",),
    "docs/export.md": ("jax2onnx", "onnxruntime", "torch"),
    "docs/train.md": ("sklearn",),
}
"""What a page's programs need beyond the core packages."""


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.extra(*NEEDS.get(page, ()))) for page in PROGRAMS]
)
def test_programs(page, tmp_path, environment):
    """Each in its own namespace, but all in one process, because starting JAX takes longer than running them."""
    names = [f"program{i}.py" for i in range(len(PROGRAMS[page]))]
    for name, text in zip(names, PROGRAMS[page], strict=True):
        (tmp_path / name).write_text(text)  # a file, because Warp reads the source of kernels
    child = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN, *names],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert child.returncode == 0, child.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_commands_exist():
    shell = "".join(text for _, _, language, text in BLOCKS if language == "sh")
    makefile, cli = (ROOT / "Makefile").read_text(), (ROOT / "fphys/cli.py").read_text()
    assert {"demo", "test"} <= set(re.findall(r"^make (\w+)", shell, re.MULTILINE))
    assert set(re.findall(r"^make (\w+)", shell, re.MULTILINE)) <= set(re.findall(r"^(\w+):", makefile, re.MULTILINE))
    assert set(re.findall(r"^fphys (\w+)", shell, re.MULTILINE)) <= set(re.findall(r"^def (\w+)", cli, re.MULTILINE))
