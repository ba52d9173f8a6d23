"""What the reference documents: every public name of every room, and the fields of its classes."""

import ast
import dataclasses
import importlib
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import fphys

ROOMS = [
    "fphys",
    *sorted(f"fphys.{name}" for name in fphys.__all__ if isinstance(getattr(fphys, name), ModuleType)),
    *(f"fphys.bridge.{name}" for name in ("dlpack", "torch", "genesis")),
    *(
        f"fphys.particles.{name}"
        for name in ("boundary", "files", "flow", "materials", "mpm", "response", "sample", "sph", "transfer")
    ),
    *(f"fphys.deformables.{name}" for name in ("fem", "materials", "mesh", "pbd", "rod")),
    *(f"fphys.distributed.{name}" for name in ("actors", "failures", "messages", "scaling")),
    *(f"fphys.rl.{name}" for name in ("ppo", "sac", "dqn", "shac", "sapo", "apg", "off_policy")),
    *(f"fphys.rl.{name}" for name in ("actors", "asynchronous", "shards")),
    *(f"fphys.scene.{name}" for name in ("ticket", "genesis", "physx")),
    "fphys.data.augment",
    "fphys.envs.sb3",
    "fphys.rigid.last",
    "fphys.model.model",
    "fphys.model.leaves",
    "fphys.nn.models",
    "fphys.nn.transformer",
    "fphys.nn.weights",
    "fphys.tree",
    "fphys.live",
    "fphys.loggers",
    "fphys.runs",
    "fphys.config",
]


def named(room: str) -> Iterator[tuple[str, Any]]:
    """A room's public names and what they name, modules left out."""
    module = importlib.import_module(room)
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == room
    ]
    values = ((name, getattr(module, name)) for name in names)
    return ((name, value) for name, value in values if not isinstance(value, ModuleType))


def public(room: str) -> Iterator[tuple[str, Any]]:
    """A room's own classes and functions; what is passed on from jax, flax or optax is documented there."""
    for name, value in named(room):
        ours = (getattr(value, "__module__", None) or "").startswith("fphys.")
        if ours and (inspect.isclass(value) or inspect.isfunction(inspect.unwrap(value))):
            yield name, value


def constants(room: str) -> Iterator[str]:
    """A room's own constants of ``__all__`` that have a docstring, which stands below where they are assigned."""
    module = importlib.import_module(room)
    body = ast.parse(inspect.getsource(module)).body
    for node, after in itertools.pairwise(body):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            yield from (name for name in names if name in getattr(module, "__all__", ()))


def fields(cls: type) -> Iterator[tuple[str, str, str]]:
    """Name, type and what the source says beside it, of each field of a dataclass or named tuple."""
    source = textwrap.dedent(inspect.getsource(cls))
    (tree,), lines = ast.parse(source).body, source.splitlines()
    assert isinstance(tree, ast.ClassDef)
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or "ClassVar" in ast.unparse(node.annotation):
            continue
        beside = " ".join(re.findall(r"#\s*(.*)", "\n".join(lines[node.lineno - 1 : node.end_lineno])))
        above = lines[node.lineno - 2].strip()
        said = [above.lstrip("# ")] if above.startswith("#") else []
        said += [beside] if beside else []
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            said.append(" ".join(str(after.value.value).split()))
        yield ast.unparse(node.target), ast.unparse(node.annotation), " ".join(said)


def is_data(value: Any) -> bool:
    """Whether a name is a dataclass or a named tuple, whose fields are part of what is public."""
    return inspect.isclass(value) and (dataclasses.is_dataclass(value) or is_tuple(value))


def is_tuple(value: Any) -> bool:
    """Whether a name is a named tuple."""
    return inspect.isclass(value) and issubclass(value, tuple) and hasattr(value, "_fields")
