"""Threads that share one world's algebra: a warp of them on a GPU, one on a CPU.

What is dealt goes to the threads in turn, and whoever reads what another has written waits first. All threads of a team
take the same way through a kernel: what decides is the same number for all.
"""

from .. import _native
from .._precision import real

team_h = _native.header("rigid/native/team.h")


@_native.func_native()
def wait(lanes: int):
    """Wait until every thread of the team has written what comes before."""
    team_h()


@_native.func_native()
def total(lanes: int, x: real) -> real:
    """The sum of the team's values, the same for each of its threads."""
    team_h()
