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
CLASSES = {name: value for name, value in NAMES.items() if inspect.isclass(value)}
SHAPE = re.compile(r"\([^()]*[,|][^()]*\)|shape|scalar|a number")
UNIT = re.compile(r"\[[^\]]+\]|actuators' units")
ERROR = re.compile(r"[Rr]aise|Error|refuse|as :func:")


def methods(cls: type) -> dict[str, tuple[Any, str]]:
    """Public functions behind a class's methods and properties, and what it and its bases say of each."""
    ours = [base for base in cls.__mro__ if base.__module__.split(".")[0] == cls.__module__.split(".")[0]]
    found: dict[str, tuple[Any, str]] = {}
    for name in {name: None for base in ours for name in vars(base) if not name.startswith("_")}:
        own = [vars(base)[name] for base in ours if name in vars(base)]
        texts = [inspect.getdoc(value) for value in own if value.__doc__]
        value = next((getattr(own[0], kind) for kind in ("fget", "func", "__func__") if hasattr(own[0], kind)), own[0])
        if inspect.isfunction(inspect.unwrap(value)):
            found[name] = value, "\n".join(texts)
    return found


def lacks(room: str, value: Any, text: str | None = None) -> list[str]:
    """What the docstring of a class or function, or another text about it, lacks."""
    text = inspect.getdoc(value) if text is None and value.__doc__ else text
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
        "fphys.data.augment.random_crop",
        "fphys.envs.sb3.sb3_env",
        "fphys.live.live",
        "fphys.tree.pytree",
    } <= NAMES.keys()
    assert {"reset", "step", "dt", "matter"} <= methods(CLASSES["fphys.envs.FluidManipulation"]).keys()
    assert list(reference.constants("fphys.nn.transformer")) == ["SPLIT"]


@pytest.mark.parametrize("room", reference.ROOMS)
def test_every_name_is_documented(room):
    assert inspect.getdoc(importlib.import_module(room)) or room == "fphys.particles"
    found = {name: lacks(room, value) for name, value in NAMES.items() if name.rpartition(".")[0] == room}
    for name in found.keys() & CLASSES.keys():
        found |= {f"{name}.{method}": lacks(room, *said) for method, said in methods(CLASSES[name]).items()}
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


class Base:
    bad, good, _bare = bad, good, bare


class Heir(Base):
    def good(self, x: "jax.Array"):  # noqa: F821
        return 3 * x

    @property
    def size(self) -> float:
        return 1.0


def test_missing_documentation_is_found():
    assert lacks("fphys.rigid", bad) == ["errors", "shapes", "units", "gradients"]
    assert lacks("fphys.nn", bad) == ["errors", "shapes"]
    assert lacks("fphys.rigid", good) == [] and lacks("fphys", bare) == ["a docstring"]


def test_missing_documentation_of_methods_is_found():
    found = {name: lacks("fphys.rigid", *said) for name, said in methods(Heir).items()}
    assert found == {"bad": ["errors", "shapes", "units", "gradients"], "good": [], "size": ["a docstring"]}


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
