"""How Sphinx builds the site: guides in Markdown, and a reference written from the docstrings of every public name."""

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(Path(__file__).parent))

import reference

import fphys

project = "fphys"
version = release = fphys.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "docs/api/*.rst", "notebooks/*.md", "notebooks/*.ipynb", "benchmarks/*.md"]
exclude_patterns = ["**/.*", "build/**", "runs/**"]
suppress_warnings = ["myst.header"]  # GitHub's pages may begin at any level
html_theme = "furo"
html_title = "fphys"
html_theme_options = {"light_css_variables": {"code-font-size": "75%"}}  # so that most lines of code fit
html_show_copyright = False
html_copy_source = False
nb_execution_mode = "off"  # outputs are stored: docs/notebooks.py
nb_merge_streams = True
copybutton_exclude = ".linenos, .gp, .go"
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]
highlight_language = "none"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
nitpicky = True  # what the docstrings refer to must exist
nitpick_ignore_regex = [("py:(class|data|obj|exc)", ".*")]  # types of other packages

MENU = {
    "Start": "/README\ngallery\nguide\ncheat-sheet\nconcepts\nexperiments\nassets\n/notebooks/README",
    "Physics": "features\ncontact-gradients\nmpm\nsph\nfem\npbd\ncoupling\nscene\nscene-support\nengines"
    "\nunits\nbridges",
    "Learning": "envs\ntensor\nnn\ndata\ntrain\ndevices\nscaling\nexport",
    "Help": "migration\ntroubleshooting\nreliability\ncompatibility\ngpu",
    "Reference": "api/index",
    "Project": "/CHANGELOG\n/CONTRIBUTING\n/SECURITY\ndecisions/README\n/benchmarks/README",
}
"""The menu; a page that is missing from it fails the build."""

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
LITERAL = re.compile(r"(``.+?``|:\w+:`[^`]+`|\S*://\S*|(?<!\w)\*\w+(?: \w+)*\*(?!\w))", re.DOTALL)


def plain_links(app: Any, name: str, text: list[str]) -> None:
    """On the site, folders and sources of the repository are named without a link; pages and pictures keep theirs."""
    folder = (ROOT / name).parent
    if (ROOT / f"{name}.ipynb").is_file():
        text[0] = opened(name, text[0])
        return

    def replaced(match: re.Match[str]) -> str:
        words, target = match[1], match[2].partition("#")[0]
        page = "://" in target or not target or (target.endswith((".md", ".ipynb")) and (folder / target).exists())
        return match[0] if page else words

    text[0] = LINK.sub(replaced, text[0])
    if name == root_doc:
        text[0] += "".join(
            f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{pages}\n```\n" for title, pages in MENU.items()
        )
    if name == "notebooks/README":
        text[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"
    if name == "docs/decisions/README":
        text[0] += "\n```{toctree}\n:glob:\n\n0*\n```\n"


def opened(name: str, text: str) -> str:
    """A notebook with links under its title: to open it in Colab where the site knows its repository."""
    notebook, where = json.loads(text), repository()
    note = f"The program: `{name}.py`."
    if where:
        colab = f"https://colab.research.google.com/github/{where}/blob/HEAD/{name}.ipynb"
        install = f'%pip install "fphys @ git+https://github.com/{where}" mediapy'
        note = f"[Open in Colab]({colab}); there, first run `{install}`. {note}"
    first = notebook["cells"][0]
    title, _, rest = "".join(first["source"]).partition("\n")
    first["source"] = f"{title}\n\n{note}\n{rest}"
    return json.dumps(notebook)


def repository() -> str | None:
    """OWNER/NAME on GitHub, from who builds the site or from git; None if it is elsewhere."""
    asked = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    told = os.environ.get("READTHEDOCS_GIT_CLONE_URL") or os.environ.get("GITHUB_REPOSITORY")
    address = told or subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    found = re.fullmatch(r"(?:.*github\.com[:/])?([\w.-]+/[\w.-]+?)(?:\.git)?/?", address.strip())
    return found[1] if found else None


def escaped(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are prose with ``literals`` and roles; their stars, bars and underscores mean themselves."""
    if reference.is_data(value) and f"{value.__module__}".startswith("fphys"):
        fields = reference.fields(value)
        lines += [
            "",
            *(f"* **{name}** (``{kind}``)" + (f": {text}" if text else "") for name, kind, text in fields),
            "",
        ]
    code = False
    for i, line in enumerate(lines):
        code = (code and (not line.strip() or line.startswith("    "))) or line.lstrip().startswith(">>>")
        if re.match(r"\* \*\*|:(param|type|returns?|raises?|rtype)|\s*>>>", line) or code:
            head, mark, tail = line.partition(": ") if not code else (line, "", "")
            lines[i] = head + mark + _escape(tail)
        else:
            lines[i] = _escape(line)


def short(app: Any, what: str, name: str, value: Any, options: Any, signature: str, returns: str) -> tuple[str, str]:
    """Signatures without the place where JAX keeps its array."""
    plain = (text and re.sub(r"(jax\.)?jaxlib\._jax\.Array", "Array", text) for text in (signature, returns))
    return next(plain), next(plain)


def _escape(text: str) -> str:
    parts = LITERAL.split(text)
    return "".join(part if i % 2 else re.sub(r"([*|`]|_(?=\W|$))", r"\\\1", part) for i, part in enumerate(parts))


def write_reference(app: Any) -> None:
    """A page for each room, under docs/api/, which git ignores."""
    folder = ROOT / "docs/api"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.rst"):
        old.unlink()
    written: dict[int, str] = {}  # where what a room passes on is documented
    for room in reference.ROOMS:
        own = {name: value for name, value in reference.public(room) if id(value) not in written}
        written |= {id(value): f"{room}.{name}" for name, value in own.items()}
        lines = [
            room,
            "=" * len(room),
            "",
            f".. automodule:: {room}",
            "   :no-members:",
            "",
            f".. currentmodule:: {room}",
        ]
        for name, value in own.items():
            kind = "exception" if inspect.isclass(value) and issubclass(value, BaseException) else None
            kind = kind or ("class" if inspect.isclass(value) else "function")
            lines += ["", f".. auto{kind}:: {name}"] + (["   :members:"] if kind == "class" else [])
            if reference.is_data(value):
                lines += [f"   :exclude-members: {', '.join(name for name, *_ in reference.fields(value))}"]
        constants = list(reference.constants(room))
        for name in constants:
            lines += ["", f".. autodata:: {name}", "   :no-value:"]
        shown = {*own, *constants}
        others = {name: written.get(id(value)) for name, value in reference.named(room) if name not in shown}
        if others:
            links = (f":py:obj:`{name} <{where}>`" if where else f"``{name}``" for name, where in others.items())
            lines += ["", ".. rubric:: Also here", "", ", ".join(links)]
        (folder / f"{room}.rst").write_text("\n".join(lines) + "\n")
    rooms = "\n".join(f"   {room}" for room in reference.ROOMS)
    title = "Reference\n=========\n\nEvery public name, room by room.\n\n.. toctree::\n   :maxdepth: 1\n\n"
    (folder / "index.rst").write_text(title + rooms + "\n")


def write_entrance(app: Any, error: Exception | None) -> None:
    """The page that opens where the site is served leads to the first one."""
    first = f"{root_doc}.html"
    page = f'<!doctype html><title>fphys</title><meta http-equiv="refresh" content="0; url={first}">'
    (Path(app.outdir) / "index.html").write_text(f'{page}<a href="{first}">fphys</a>\n')


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", write_reference)
    app.connect("source-read", plain_links)
    app.connect("autodoc-process-docstring", escaped)
    app.connect("autodoc-process-signature", short)
    app.connect("build-finished", write_entrance)
