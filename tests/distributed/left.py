"""What processes leave behind: others that they started, and ports at which something listens."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}
"""127.0.0.1, and the same in IPv6, as the kernel writes them."""


def descendants(pid: int) -> list[int]:
    children = [int(x) for task in Path(f"/proc/{pid}/task").iterdir() for x in (task / "children").read_text().split()]
    return children + [x for child in children for x in descendants(child)]


def lives(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def listening(pids: Iterable[int] | None = None) -> set[tuple[str, str]]:
    """Addresses and ports, in hexadecimal, at which these processes listen, or all of this machine."""
    rows = [row.split() for name in ("tcp", "tcp6") for row in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    sockets = None if pids is None else {link for pid in pids for link in _links(pid)}
    found = [row[1] for row in rows if row[3] == "0A" and (sockets is None or f"socket:[{row[9]}]" in sockets)]
    return {(address, port) for address, _, port in (each.partition(":") for each in found)}


def _links(pid: int) -> Iterable[str]:
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            yield os.readlink(fd)
