"""Every public name says what it takes: shapes, units, errors, gradients, as far as they apply to it."""

import ast
import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import fphys

LEARNING = {"data", "errors", "export", "losses", "metrics", "nn", "optim", "tensor", "train", "typing"}
"""Rooms whose numbers have no unit, and which say of gradients what is not plain."""

ROOMS = [
    "fphys",
    *sorted(f"fphys.{name}" for name in fphys.__all__ if isinstance(getattr(fphys, name), ModuleType)),
    *(f"fphys.particles.{name}" for name in ("mpm", "sph", "boundary", "materials")),
    "fphys.nn.models",
    "fphys.render",
    "fphys.runs",
    "fphys.config",
]
SHAPE = re.compile(r"\([^()]*[,|][^()]*\)|shape|scalar|a number")
UNIT = re.compile(r"\[[^\]]+\]|actuators' units")
ERROR = re.compile(r"[Rr]aise|Error|refuse|as :func:")


def public(room: str) -> Iterator[tuple[str, Any]]:
    """A room's own classes and functions; what is passed on from jax, flax or optax is documented there."""
    module = importlib.import_module(room)
    names = getattr(module, "__all__", None)
    for name in names or [name for name in vars(module) if not name.startswith("_")]:
        value = getattr(module, name)
        home = getattr(value, "__module__", None) or ""
        ours = home.startswith("fphys.") and (names is not None or home == room)
        if ours and (inspect.isclass(value) or inspect.isfunction(value)):
            yield name, value


NAMES = {f"{room}.{name}": value for room in ROOMS for name, value in public(room)}


def lacks(room: str, value: Any) -> list[str]:
    """What the documentation of a class or function leaves out."""
    text = inspect.getdoc(value) if value.__doc__ else None
    if not text:
        return ["a docstring"]
    if inspect.isclass(value):
        return _fields(value, text) if dataclasses.is_dataclass(value) else []
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


def _fields(cls: type, text: str) -> list[str]:
    """Array fields of a class without a comment or docstring of their own."""
    source = textwrap.dedent(inspect.getsource(cls))
    (tree,), lines, found = ast.parse(source).body, source.splitlines(), []
    assert isinstance(tree, ast.ClassDef)
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or "ClassVar" in ast.unparse(node.annotation):
            continue
        name, kind = ast.unparse(node.target), ast.unparse(node.annotation)
        if re.search(r"\b(Array|Any)\b", kind) and "Callable" not in kind:
            said = "#" in "\n".join(lines[node.lineno - 2 : node.end_lineno]) or isinstance(after, ast.Expr)
            found += [] if said or f"``{name}``" in text else [f"field {name}"]
    return found


def test_the_public_names_are_found():
    assert len(NAMES) > 200
    assert {
        "fphys.step",
        "fphys.Model",
        "fphys.particles.mpm.Params",
        "fphys.units.cross",
        "fphys.nn.init",
    } <= NAMES.keys()


@pytest.mark.parametrize("room", ROOMS)
def test_every_name_is_documented(room):
    assert inspect.getdoc(importlib.import_module(room)) or room == "fphys.particles"
    found = {name: lacks(room, value) for name, value in NAMES.items() if name.rpartition(".")[0] == room}
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


def test_what_lacks_is_found():
    assert lacks("fphys.rigid", bad) == ["errors", "shapes", "units", "gradients"]
    assert lacks("fphys.nn", bad) == ["errors", "shapes"]
    assert lacks("fphys.rigid", good) == [] and lacks("fphys", bare) == ["a docstring"]
