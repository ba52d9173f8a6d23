"""How many threads share the items of a world: one on a CPU, many on a GPU."""

from typing import Any

WARP = 32
"""Threads of a GPU that advance together."""


def lanes(launch: Any, count: int) -> int:
    """Number of threads that share ``count`` items of a world: one on a CPU, where a launch spends some 40 ns on each
    thread, even an idle one; on a GPU one per item."""
    return 1 if launch.platform == "cpu" else count


def shared(launch: Any, kernel: Any, inputs: list[Any], outputs: list[Any]) -> None:
    """Launch a kernel that gives each world to a team of threads: a warp on a GPU, one thread on a CPU."""
    team = 1 if launch.platform == "cpu" else WARP
    launch(kernel, dim=(launch.worlds, team), inputs=[team, *inputs], outputs=outputs)
