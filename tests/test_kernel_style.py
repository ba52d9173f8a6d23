"""A lint for the signature of every kernel, and tests of the lint.

Arguments are grouped under comments (``# Model:``, ``# State in:``, ``# Out:``), with outputs last. Whatever a
kernel writes ends in ``_out`` and is in a group of outputs. The body starts ``world, body = wp.tid()``.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

KERNELS = sorted((Path(__file__).parents[1] / "kernels").rglob("*.py"))
GROUP = re.compile(r"\s*# ([A-Z][\w ]*):$")
OUT = re.compile(r"(?:.* )?out", re.IGNORECASE)
FLOATING = re.compile(r"float|wp\.(float\d+|(vec[2-6]|mat[2-6]{2}|quat|transform|spatial_(vector|matrix))[fdh]?)")
STORE = re.compile(r"wp\.array|[A-Z]\w*$")
ATOMIC = re.compile(r"wp\.atomic_\w+")


def faults(source: str, types: bool = True) -> Iterator[str]:
    """The faults of a file of kernels, one line each. ``types``: whether the file must import them."""
    tree, lines = ast.parse(source), source.splitlines()
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (f"imports {alias.name}" for alias in node.names if alias.name != "warp")
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield f"imports {node.module}"
        elif types and isinstance(node, (ast.Attribute, ast.Name)) and FLOATING.fullmatch(ast.unparse(node)):
            yield f"line {node.lineno}: {ast.unparse(node)} has one precision: take the type from _precision"
        elif isinstance(node, ast.Call) and re.fullmatch(r"real\([\d.e-]+ [-+*/] [\d.e-]+\)", ast.unparse(node)):
            yield f"line {node.lineno}: {ast.unparse(node)} is computed in float32: make each number a real"
    for function in functions:
        decorators = {ast.unparse(d.func if isinstance(d, ast.Call) else d) for d in function.decorator_list}
        if decorators & {"wp.kernel", "wp.func"} and not ast.get_docstring(function):
            yield f"{function.name}: says nothing of what it computes"
        if "wp.kernel" in decorators:
            yield from (f"{function.name}: {fault}" for fault in signature(function, lines))
            yield from (f"{function.name}: {fault}" for fault in body(function))


def signature(function: ast.FunctionDef, lines: list[str]) -> Iterator[str]:
    """Faults in the argument list."""
    group, above, last = None, function.lineno, None
    for argument in function.args.args:
        found = [match[1] for line in lines[above - 1 : argument.lineno] if (match := GROUP.match(line))]
        group, above = found[-1] if found else group, argument.lineno
        if group is None:
            yield f"{argument.arg}: is in no group such as '# Model:'"
            return
        out = bool(OUT.fullmatch(group))
        if out != argument.arg.endswith("_out"):
            yield f"{argument.arg}: an output ends in _out and is under '# Out:'; nothing else is"
        if out and not STORE.match(ast.unparse(argument.annotation or ast.Constant(None))):
            yield f"{argument.arg}: an output is an array or a structure"
        if last and not out:
            yield f"{argument.arg}: stands after the output {last}"
        last = argument.arg if out else None
    if last is None:
        yield "has no outputs"


def body(function: ast.FunctionDef) -> Iterator[str]:
    """Faults in the code: how it starts, and what it writes."""
    code = function.body[1:] if ast.get_docstring(function) else function.body
    if not code or not re.match(r"\(?world(, \w+)*\)? = wp\.tid\(\)$", ast.unparse(code[0])):
        yield "does not start with world, ... = wp.tid()"
    names = {argument.arg for argument in function.args.args}
    for node in ast.walk(function):
        written = None
        if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            written = node.value
            while isinstance(written, (ast.Subscript, ast.Attribute)):
                written = written.value
        elif isinstance(node, ast.Call) and ATOMIC.fullmatch(ast.unparse(node.func)):
            written = node.args[0]
        if isinstance(written, ast.Name) and written.id in names and not written.id.endswith("_out"):
            yield f"line {node.lineno}: writes to {written.id}, an input"


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: str(path.relative_to(path.parents[1])))
def test_kernels(path):
    assert list(faults(path.read_text(), types=path.name != "_precision.py")) == []


def test_only_these_files_add_in_any_order():
    """docs/decisions/0020: on a GPU what is added by atomics repeats to rounding, and all other states bit for bit."""
    root = Path(__file__).parents[1] / "kernels"
    sources = [path for kind in ("*.py", "*.h") for path in root.rglob(kind)]
    found = {str(path.relative_to(root)) for path in sources if re.search(r"\batomic_\w+\(", path.read_text())}
    native = {f"{name}.h" for name in ("native/warp", "particles/native/grid", "particles/native/stencil")}
    assert found == {"particles/collider.py"} | native


def test_there_are_kernels():
    assert sum(path.read_text().count("@wp.kernel") for path in KERNELS) > 5


GOOD = '''
import warp as wp

from ._precision import real, vec3


@wp.func
def square(x: real) -> real:
    """x squared."""
    return x * x


@wp.kernel(enable_backward=False)
def fall(
    # Model:
    gravity: wp.array2d(dtype=vec3),
    limit: int,
    # State in:
    velocity: wp.array2d(dtype=vec3),
    # Out:
    velocity_out: wp.array2d(dtype=vec3),
    total_out: wp.array(dtype=real),
):
    """v + g."""
    world, body = wp.tid()
    total = vec3()
    total[0] = square(velocity[world, body][0])
    velocity_out[world, body] = velocity[world, body] + gravity[world % gravity.shape[0], 0]
    wp.atomic_add(total_out, world, total[0])
'''


def test_good_code_passes():
    assert list(faults(GOOD)) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("import warp as wp", "import numpy as np", "imports numpy"),
        ("import warp as wp", "from jax import numpy", "imports jax"),
        ("x: real", "x: wp.float32", "wp.float32 has one precision"),
        ("x: real", "x: float", "float has one precision"),
        ("return x * x", "return x * real(1.0 / 3.0)", "is computed in float32"),
        ("gravity: wp.array2d(dtype=vec3)", "gravity: wp.array2d(dtype=wp.vec3d)", "wp.vec3d has one precision"),
        ("    # Model:\n", "", "in no group"),
        ("    # Out:\n", "", "velocity_out: an output ends in _out"),
        ("    # State in:\n", "    # Out:\n", "velocity: an output ends in _out"),
        ("# Model:", "# Out:", "gravity: an output ends in _out"),
        ("total_out: wp.array(dtype=real)", "total_out: real", "total_out: an output is an array or a structure"),
        ("),\n):", "),\n    # In:\n    late: int,\n):", "late: stands after the output total_out"),
        ('"""v + g."""', "pass", "says nothing"),
        ('"""x squared."""', "pass", "says nothing"),
        ("world, body = wp.tid()", "body, world = wp.tid()", "does not start with world"),
        ("world, body = wp.tid()", "world = 0", "does not start with world"),
        ("    total = vec3()", "    velocity[world, body] = vec3()", "writes to velocity, an input"),
        ("    total = vec3()", "    velocity[world, body][0] += real(1.0)", "writes to velocity, an input"),
        ("wp.atomic_add(total_out", "wp.atomic_add(velocity", "writes to velocity, an input"),
    ],
)
def test_bad_code_is_found(old, new, fault):
    assert old in GOOD
    assert any(fault in found for found in faults(GOOD.replace(old, new)))
