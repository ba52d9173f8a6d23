"""Sums in a fixed order on a GPU, so that they repeat bit for bit.

They are taken so where XLA is told to take its own so: with ``XLA_FLAGS=--xla_gpu_deterministic_ops=true``. Where
threads of a world would add to the same number by atomics, in whatever order they come, one thread then takes the whole
world: in all backward passes, and forward where a kernel adds by atomics, or a launch says that its C++ does
(``adds=True``). That is slow for a world of many threads. Values that worlds share have a gradient for each world, and
XLA adds these up.
"""

import ast
import dataclasses
import functools
import inspect
import os
import re
from typing import TYPE_CHECKING, Any

import warp as wp

from ..errors import BridgeError

if TYPE_CHECKING:
    from .record import Launch

_FLAG = re.compile(r"--xla_gpu_(deterministic_ops|exclude_nondeterministic_ops)(?:=(\w*))?(?=\s|$)")


def ordered(platform: str) -> bool:
    """Whether sums are taken in a fixed order on a platform, "cpu" or "cuda". A processor's always are."""
    return platform == "cuda" and _asked()


@functools.cache
def _asked() -> bool:
    """Whether XLA's flags ask for it. XLA reads them once, so nobody can change that later."""
    flags = dict(_FLAG.findall(os.environ.get("XLA_FLAGS", "")))
    return any(value.lower() in ("", "1", "true") for value in flags.values())


def in_order(launch: "Launch") -> "Launch":
    """The launch with one thread for each world, which does what the world's threads did, in their order."""
    if len(launch.dim) == 1:
        return launch
    return dataclasses.replace(
        launch, kernel=_one_by_one(launch.kernel), dim=launch.dim[:1], args=(*launch.args, *launch.dim[1:])
    )


@functools.cache
def _one_by_one(kernel: Any) -> Any:
    """The kernel with loops in place of all threads but the worlds': their numbers are its last arguments."""
    definition = ast.parse(ast.unparse(kernel.adj.tree)).body[0]
    assert isinstance(definition, ast.FunctionDef)
    asks = (i for i, s in enumerate(definition.body) if isinstance(s, ast.Assign) and ast.unparse(s).endswith("tid()"))
    at = next(asks, None)
    if at is None or any(isinstance(node, ast.Return) for node in ast.walk(definition)):
        raise BridgeError(
            f"kernel {kernel.key} cannot take its threads one by one, as XLA's flag for deterministic operations asks: "
            "let it begin with `world, i = wp.tid()`, and not return early"
        )
    statement = definition.body[at]
    body: list[ast.stmt] = definition.body[at + 1 :]
    assert isinstance(statement, ast.Assign)
    world, *threads = ast.unparse(statement.targets[0]).strip("()").split(", ")
    counts = [f"number_of_{thread}" for thread in threads]
    for thread, count in reversed(list(zip(threads, counts, strict=True))):
        (loop,) = ast.parse(f"for {thread} in range({count}): pass").body
        assert isinstance(loop, ast.For)
        loop.body = body
        body = [loop]
    statement.targets = [ast.Name(world, ast.Store())]
    definition.body[at + 1 :] = body
    definition.args.args += [ast.arg(count) for count in counts]
    for argument in definition.args.args:
        argument.annotation = None
    definition.decorator_list = []
    return _kernel(kernel, ast.unparse(ast.fix_missing_locations(definition)), counts)


def _kernel(like: Any, source: str, counts: list[str]) -> Any:
    """A kernel of other source, with integers as further arguments, that knows the names which the first one knows."""
    names = {**like.func.__globals__, **inspect.getclosurevars(like.func).nonlocals}
    exec(compile(source, like.func.__code__.co_filename, "exec"), names)
    function = names[like.func.__name__]
    function.__annotations__ = {a.label: a.type for a in like.adj.args} | dict.fromkeys(counts, int)
    module = wp.get_module(f"{like.module.name}.{like.key}.in_order")
    module.options.update(like.module.options)
    return wp.Kernel(function, f"{like.key}_in_order", module, dict(like.options), source=source)
