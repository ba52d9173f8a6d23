"""What a compiled program sends: its messages between devices, how large and how often."""

import dataclasses
import re
from collections import Counter
from typing import Any

import numpy as np

KINDS = "all-reduce|all-gather|all-to-all|collective-permute|collective-broadcast|reduce-scatter"
_MESSAGE = re.compile(rf"= (\(?[^=]*?) ({KINDS})(?:-start)?\(")
_ARRAY = re.compile(r"([a-z]\w*?)\[([\d,]*)\]")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .*)?\{$")
_CALLED = re.compile(r"(?:to_apply|body|condition|calls|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_COMMENT = re.compile(r"/\*.*?\*/")  # XLA counts the parts of long tuples
_SIZES = {"pred": 1, "bf16": 2, "c64": 8, "c128": 16} | {f"{k}{n}": n // 8 for k in "fsu" for n in (8, 16, 32, 64)}
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


@dataclasses.dataclass(frozen=True, order=True)
class Message:
    """One kind of message of a program."""

    kind: str
    """XLA's name: "all-reduce", "all-gather", ..."""
    bytes: int
    """Size of what each device has afterwards."""
    arrays: int = 1
    """Of how many arrays it is. On CPUs XLA has gloo send one after the other."""


def messages(compiled: Any) -> dict[Message, int]:
    """The messages of a program, and how often one call of it sends each.

    A loop's messages count as often as it turns. A branch's count as if it were taken.

    Args:
        compiled: the result of ``jax.jit(fn).lower(*args).compile()``.

    Raises:
        ValueError: a loop with a message turns a number of times that is not known before it runs.
    """
    bodies: dict[str, list[str]] = {}
    lines: list[str] = []
    entry = ""
    for line in compiled.as_text().splitlines():
        if begins := _COMPUTATION.match(line):
            lines = bodies.setdefault(begins[2], [])
            entry = begins[2] if begins[1] else entry
        elif line.startswith(" "):
            lines.append(line)
    found: dict[str, Counter[Message]] = {}

    def sent(name: str) -> Counter[Message]:
        if name not in found:
            found[name] = Counter()
            for line in bodies.get(name, ()):
                found[name] += _of_line(line, sent)
        return found[name]

    return dict(sorted(sent(entry).items()))


def _of_line(line: str, sent: Any) -> Counter[Message]:
    if own := _MESSAGE.search(_COMMENT.sub("", line)):
        return Counter({Message(own[2], _bytes(own[1]), len(_ARRAY.findall(own[1]))): 1})
    called = _CALLED.findall(line)
    for branches in _BRANCHES.findall(line):
        called += [name.strip().lstrip("%") for name in branches.split(",")]
    inside = sum(map(sent, called), Counter())
    if " while(" not in line or not inside:
        return inside
    if not (trips := _TRIPS.search(line)):
        raise ValueError(
            "a loop sends messages, and XLA does not know how often it turns: lax.fori_loop or lax.scan instead of "
            "lax.while_loop"
        )
    return Counter({message: count * int(trips[1]) for message, count in inside.items()})


def _bytes(shape: str) -> int:
    return sum(
        _SIZES[kind] * int(np.prod([int(n) for n in dims.split(",") if n], dtype=np.int64))
        for kind, dims in _ARRAY.findall(shape)
    )
