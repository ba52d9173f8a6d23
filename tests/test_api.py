"""Every public name documents shapes, units, errors and gradients, as far as they apply."""

import ast
import importlib
import importlib.util
import inspect
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def load(path: Path) -> Any:
    """Import a file outside the package as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference, check_links = load(ROOT / "docs/reference.py"), load(ROOT / "docs/check_links.py")
LEARNING = {"data", "errors", "export", "losses", "metrics", "nn", "rl", "optim", "tensor", "train", "typing"}
"""Packages whose numbers have no unit, and whose gradients need no remark if they are obvious."""

NAMES = {f"{room}.{name}": value for room in reference.ROOMS for name, value in reference.public(room)}
WHOLE = (
    "fphys.scene.World",
    "fphys.scene.ticket.Engine",
    "fphys.distributed.actors.Actors",
    "fphys.envs.sb3.SharedWorlds",
)
"""Classes whose methods are checked as well: users call little else of these rooms."""

NAMES |= {
    f"{name}.{method}": value
    for name in WHOLE
    for method, value in vars(NAMES[name]).items()
    if not method.startswith("_") and inspect.isfunction(value)
}
SHAPE = re.compile(r"\([^()]*[,|][^()]*\)|shape|scalar|a number")
UNIT = re.compile(r"\[[^\]]+\]|actuators' units")
ERROR = re.compile(r"[Rr]aise|Error|refuse|as :func:")


def lacks(room: str, value: Any) -> list[str]:
    """What the docstring of a class or function lacks."""
    text = inspect.getdoc(value) if value.__doc__ else None
    if not text:
        return ["a docstring"]
    if inspect.isclass(value):
        fields = reference.fields(value) if reference.is_data(value) else ()
        names = [name for name, kind, said in fields if re.search(r"\b(Array|Any)\b", kind) and not said]
        return [f"field {name}" for name in names if f"``{name}``" not in text]
    function = inspect.unwrap(value)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    kinds = [str(p.annotation) for p in inspect.signature(function).parameters.values()]
    arrays = any("Array" in kind for kind in kinds)
    shaped = "[Array, " in str(kinds) or "jaxtyping" in str(kinds)  # the signature says it
    physics = room.partition(".")[2].partition(".")[0] not in LEARNING
    found = {
        "errors": any(isinstance(node, ast.Raise) for node in ast.walk(tree)) and not ERROR.search(text),
        "shapes": arrays and not shaped and not SHAPE.search(text),
        "units": arrays and physics and not UNIT.search(text),
        "gradients": arrays and physics and not re.search(r"radient|ifferentia", text),
    }
    return [what for what, missing in found.items() if missing]


def room_of(name: str) -> str:
    """The room that documents a name; a method's is that of its class."""
    room = name.rpartition(".")[0]
    return room.rpartition(".")[0] if room in WHOLE else room


def test_the_public_names_are_found():
    assert len(NAMES) > 200
    assert {
        "fphys.step",
        "fphys.Model",
        "fphys.particles.mpm.Params",
        "fphys.units.cross",
        "fphys.nn.init",
        "fphys.rl.ppo.train",
        "fphys.rl.apg.Config",
        "fphys.rl.shards.train",
        "fphys.scene.World.step",
        "fphys.data.augment.random_crop",
        "fphys.envs.sb3.sb3_env",
        "fphys.live.live",
        "fphys.tree.pytree",
    } <= NAMES.keys()
    assert list(reference.constants("fphys.nn.transformer")) == ["SPLIT"]


@pytest.mark.parametrize("room", reference.ROOMS)
def test_every_name_is_documented(room):
    assert inspect.getdoc(importlib.import_module(room)) or room == "fphys.particles"
    found = {name: lacks(room, value) for name, value in NAMES.items() if room_of(name) == room}
    assert {name: missing for name, missing in found.items() if missing} == {}


def bad(x: "jax.Array", y: float = 1.0):  # noqa: F821
    """Twice."""
    if y < 0:
        raise ValueError
    return 2 * x


def good(x: "jax.Array", y: float = 1.0):  # noqa: F821
    """Twice a length [m], shape (world,); gradients flow to x.

    Raises:
        ValueError: y is negative.
    """
    if y < 0:
        raise ValueError
    return 2 * x


def bare(x):
    return x


def test_missing_documentation_is_found():
    assert lacks("fphys.rigid", bad) == ["errors", "shapes", "units", "gradients"]
    assert lacks("fphys.nn", bad) == ["errors", "shapes"]
    assert lacks("fphys.rigid", good) == [] and lacks("fphys", bare) == ["a docstring"]


def test_broken_links_are_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="top"></h1><a href="b.html#here">b</a><a href="#top">a</a><img src="x.png">'
    )
    (tmp_path / "b.html").write_text('<p id="here"></p><a href="https://example.org">far</a><a href="a.html#no">a</a>')
    assert check_links.faults(tmp_path) == ["a.html: x.png leads nowhere", "b.html: a.html#no leads nowhere"]


def test_every_page_is_in_the_menu_and_the_index():
    """The site's build, which takes a minute, would say so only in full size."""
    conf, index = ((ROOT / "docs" / name).read_text() for name in ("conf.py", "index.md"))
    pages = [path for path in (ROOT / "docs").glob("*.md") if path.name != "index.md"]
    assert [p.name for p in pages if f"({p.name})" not in index or not re.search(rf'["n]{p.stem}[\\"]', conf)] == []


@pytest.mark.parametrize(
    ("variable", "value", "where"),
    [
        ("GITHUB_REPOSITORY", "some-one/fphys", "some-one/fphys"),
        ("READTHEDOCS_GIT_CLONE_URL", "https://github.com/some-one/fphys.git", "some-one/fphys"),
        ("READTHEDOCS_GIT_CLONE_URL", "git@github.com:some-one/fphys", "some-one/fphys"),
        ("READTHEDOCS_GIT_CLONE_URL", "https://example.org/git/some-one/fphys", None),
    ],
)
def test_a_notebook_on_the_site_says_where_to_open_it(monkeypatch, variable, value, where):
    conf = load(ROOT / "docs/conf.py")
    for name in ("GITHUB_REPOSITORY", "READTHEDOCS_GIT_CLONE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)
    assert conf.repository() == where
    notebook = {"cells": [{"cell_type": "markdown", "source": ["# A title\n", "\n", "Words."]}]}
    (first,) = json.loads(conf.opened("notebooks/first_step", json.dumps(notebook)))["cells"]
    assert first["source"].startswith("# A title\n\n") and first["source"].endswith("\n\nWords.")
    link = "https://colab.research.google.com/github/some-one/fphys/blob/HEAD/notebooks/first_step.ipynb"
    assert (link in first["source"]) == bool(where) and "`notebooks/first_step.py`" in first["source"]


@pytest.mark.slow
@pytest.mark.extra("sphinx", "myst_nb", "furo", "sphinx_copybutton")
def test_the_site_is_built_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-E", "-c", "docs", "-b", "html"]
    child = subprocess.run(
        [*command, "-d", tmp_path / "trees", ".", tmp_path / "site"], cwd=ROOT, capture_output=True, text=True
    )
    assert child.returncode == 0, child.stderr
    assert check_links.faults(tmp_path / "site") == []
