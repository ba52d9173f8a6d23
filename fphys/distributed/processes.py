"""One program in several processes: they join by ``jax.distributed``, and XLA carries what they send each other."""

import atexit
import contextlib
import functools
import math
import os
import sys
import threading
import time
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import private
from ..errors import FphysError
from .sharding import FIRST, WORLD, everywhere, expect_worlds, mesh, specs, split

T = TypeVar("T")

COORDINATOR, PROCESSES, RANK, PULSE = "FPHYS_COORDINATOR", "FPHYS_PROCESSES", "FPHYS_RANK", "FPHYS_PULSE"
"""Environment variables: address of rank 0, number of processes, number of this one, where it says that it lives."""
HOST = "FPHYS_HOST"
"""Environment variable: the address at which this process listens."""
LOOPBACK = "127.0.0.1"
BEAT = 1.0
"""Seconds between two signs of life."""
AT_THE_END = 3600
"""Seconds that processes which are watched wait for each other at their end: the first may still write files."""
WORKS, WAITS, ENDS = b".", b"-", b"!"
"""Signs of life: this process has used its core since the last one, or has not; its Python is about to end."""


class ProcessError(FphysError, RuntimeError):
    """A process of a group died, hangs, or could not join; the message names its rank."""


def initialize(
    coordinator: str | None = None,
    processes: int | None = None,
    rank: int | None = None,
    *,
    host: str | None = None,
    patience: float = 60.0,
) -> None:
    """Join this process to its group, before JAX is used. Then :func:`fphys.distributed.mesh` spans all of them.

    What is not given comes from FPHYS_COORDINATOR, FPHYS_PROCESSES and FPHYS_RANK, which ``fphys train --processes``
    sets, and otherwise from what JAX itself detects: SLURM, Open MPI, Kubernetes. On CPUs, gloo carries the messages;
    on GPUs, NCCL.

    Args:
        coordinator: address of rank 0, "host:port".
        processes: how many there are.
        rank: which this is, from 0.
        host: the address at which this process listens, by default FPHYS_HOST or else loopback. Other machines reach
            only an address of the network.
        patience: seconds to wait for the others to join, and after which one that is silent ends all the others.

    Raises:
        ProcessError: JAX has already started, this process has already joined, or not all processes came.
        ValueError: a rank or number does not fit.
    """
    coordinator = coordinator or os.environ.get(COORDINATOR)
    processes = _number(PROCESSES, processes)
    rank = _number(RANK, rank)
    host = host or os.environ.get(HOST, LOOPBACK)
    if processes is not None and (processes < 1 or not 0 <= (rank if rank is not None else 0) < processes):
        raise ValueError(f"rank {rank} of {processes} processes: ranks go from 0 to processes - 1")
    if private.in_a_group():
        raise ProcessError("this process has already joined a group: call fphys.distributed.initialize once")
    if private.jax_has_started():
        raise ProcessError("JAX has already started: call fphys.distributed.initialize first, before any array is made")
    if pulse := os.environ.get(PULSE):
        threading.Thread(target=_beat, args=(int(pulse),), name="fphys-pulse", daemon=True).start()
        _leave_on_errors()
        _tell_of_the_end(int(pulse))
    private.gather_at(host)
    port = f"{host}:{coordinator.rpartition(':')[2]}" if coordinator and rank == 0 else None
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            rank,
            local_device_ids=[rank] if pulse and rank is not None else None,  # of one machine each takes a GPU
            initialization_timeout=round(patience),
            heartbeat_timeout_seconds=max(10, round(patience)),
            shutdown_timeout_seconds=AT_THE_END if pulse else 300,  # whoever watches all knows when it hangs
            coordinator_bind_address=port,
        )
    except (RuntimeError, ValueError) as cause:
        raise ProcessError(
            f"rank {rank} could not join {processes} processes at {coordinator}: {str(cause).splitlines()[0]}. Start "
            f"all of them with the same address, within {patience:g} s"
        ) from cause


def shard() -> tuple[int, int]:
    """This process's part of the data, for ``fphys.data.loader(..., shard=...)``: its rank, and how many there are."""
    return jax.process_index(), jax.process_count()


def joined(tree: T) -> T:
    """Each process's rows of a batch, as one batch over all devices: its first axis has the rows of all, by rank.

    All processes give equally many rows. Arrays of leading size 1 beside others and scalars are the same in all, and go
    to every device.

    Raises:
        ValueError: as for :func:`split`; the processes have different numbers of rows, or no mesh is set.
    """
    if jax.process_count() == 1:
        return split(tree)
    found = jax.sharding.get_mesh()
    if WORLD not in found.axis_names:
        raise ValueError(
            f"joined: the mesh has the axes {found.axis_names}, needs one named {WORLD!r}: put "
            "`with jax.set_mesh(fphys.distributed.mesh()):` around the training"
        )
    devices = found.local_mesh.shape[WORLD]
    if (rows := expect_worlds(tree, devices)) % devices:
        raise ValueError(f"joined: one row does not divide among the {devices} devices of a process: give more rows")
    _expect_rows_of_all(rows)
    join = lambda spec, part: _join(part, found) if spec == FIRST else everywhere(part)  # noqa: E731
    return jax.tree.map(join, specs(tree, min(rows, 2)), tree, is_leaf=lambda x: isinstance(x, type(FIRST)))


@functools.cache  # asked once for each number: each time would stop all processes
def _expect_rows_of_all(rows: int) -> None:
    from jax.experimental import multihost_utils

    text = f"rank {jax.process_index()} waits with its first batch of {rows} rows until all have one: do they?"
    told = threading.Timer(30, print, [text], {"file": sys.stderr, "flush": True})
    told.daemon = True
    told.start()
    counts = multihost_utils.process_allgather(np.int32(rows)).tolist()
    told.cancel()
    if len(set(counts)) > 1:
        listed = ", ".join(f"rank {rank} has {count}" for rank, count in enumerate(counts))
        raise ValueError(
            f"the processes have different numbers of rows in a batch ({listed}), which make no common one: give each "
            "as many records, as fphys.data.loader(..., shard=fphys.distributed.shard()) does"
        )


def _join(x: Any, mesh: Any) -> jax.Array:
    from jax.experimental import multihost_utils

    if is_key(x):
        mine = np.asarray(jax.random.key_data(x))  # on the host: inside set_mesh, JAX puts it on all devices
        return jax.random.wrap_key_data(_join(mine, mesh), impl=jax.random.key_impl(x))
    return multihost_utils.host_local_array_to_global_array(x, mesh, FIRST)


def meet(where: str) -> None:
    """Wait until all processes are here."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(where)


def is_first() -> bool:
    """Whether this process is rank 0, which writes files."""
    return jax.process_index() == 0


def on_host(tree: T) -> T:
    """The tree as NumPy arrays, of which every process has all numbers; keys stay JAX's, and numbers Python's."""
    return jax.tree.map(_host, tree)


def _host(x: Any) -> Any:
    from jax.experimental import multihost_utils

    if not hasattr(x, "dtype"):
        return x
    if is_key(x):
        return jax.random.wrap_key_data(jnp.asarray(_host(jax.random.key_data(x))), impl=jax.random.key_impl(x))
    if getattr(x, "is_fully_addressable", True) or x.is_fully_replicated:
        return np.asarray(x)
    return multihost_utils.process_allgather(x, tiled=True)


def is_key(x: Any) -> bool:
    """Whether this is an array of random keys."""
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def group() -> contextlib.AbstractContextManager[object]:
    """Inside, worlds are spread over all devices of all processes, if this process has joined any."""
    return jax.set_mesh(mesh()) if private.in_a_group() else contextlib.nullcontext()


def _beat(pipe: int) -> None:
    """Say now, and then every second, that this process lives, and whether it works, to the one that started it.

    End with it.
    """
    used = -math.inf
    while True:
        before, used = used, time.process_time()
        try:
            os.write(pipe, WORKS if used - before > 0.05 * BEAT else WAITS)
        except OSError:
            os._exit(1)
        time.sleep(BEAT)


def _leave_on_errors() -> None:
    """Let an uncaught exception end this process at once: at a usual end, JAX first waits for the others.

    An error of JAX or of gloo, or one that it caused, may be the echo of a lost peer. It waits for the launcher, which
    then ends this process and names the peer.
    """
    show = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if _may_be_an_echo(error):
            time.sleep(5 * BEAT)
        show(kind, error, trace)
        if not isinstance(error, KeyboardInterrupt):  # then the others are interrupted too, and all save
            leave(1)

    sys.excepthook = hook


class _Exit(SystemExit):
    """What ``sys.exit`` raises. It notes its status when Python itself asks for it, as it ends."""

    last: Any = None

    @property
    def code(self) -> Any:
        status = self.args[0] if self.args else None
        if sys._getframe().f_back is None:  # no function asks, which might go on
            _Exit.last = status
        return status


def _tell_of_the_end(pipe: int) -> None:
    """Let ``sys.exit`` with a failure end this process at once, and tell any other end before JAX waits for all."""

    def leave_by(status: Any = None) -> None:
        raise _Exit(status)

    def end() -> None:
        if _Exit.last not in (None, 0):
            leave(_Exit.last if isinstance(_Exit.last, int) else 1)
        with contextlib.suppress(OSError):
            os.write(pipe, ENDS)

    sys.exit = leave_by
    atexit.register(end)


def _may_be_an_echo(error: BaseException | None) -> bool:
    if error is None:
        return False
    told = isinstance(error, jax.errors.JaxRuntimeError) or "Gloo" in str(error)  # some come as ValueError
    return told or _may_be_an_echo(error.__cause__)


def leave(status: int) -> None:
    """End this process now, if a launcher watches it, without a word to the other processes."""
    if PULSE in os.environ:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _number(name: str, given: int | None) -> int | None:
    text = os.environ.get(name)
    if given is not None or text is None:
        return given
    if not text.isdecimal():
        raise ValueError(f"{name} is {text!r}, must be a whole number")
    return int(text)
