"""One program in several processes: they join by ``jax.distributed``, and XLA carries what they send each other."""

import contextlib
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
from .sharding import WORLD, expect_worlds, mesh, split

T = TypeVar("T")

COORDINATOR, PROCESSES, RANK, PULSE = "FPHYS_COORDINATOR", "FPHYS_PROCESSES", "FPHYS_RANK", "FPHYS_PULSE"
"""Environment variables: address of rank 0, number of processes, number of this one, where it says that it lives."""
HOST = "FPHYS_HOST"
"""Environment variable: the address at which this process listens."""
LOOPBACK = "127.0.0.1"
BEAT = 1.0
"""Seconds between two signs of life."""


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

    Raises:
        ValueError: as for :func:`split`.
    """
    if jax.process_count() == 1:
        return split(tree)
    found = jax.sharding.get_mesh()
    expect_worlds(tree, found.local_mesh.shape[WORLD])
    from jax.experimental import multihost_utils

    spec = jax.sharding.PartitionSpec(WORLD)
    return multihost_utils.host_local_array_to_global_array(tree, found, spec)


def meet(where: str) -> None:
    """Wait until all processes are here."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(where)


def is_first() -> bool:
    """Whether this process is rank 0, which writes files."""
    return jax.process_index() == 0


def on_host(tree: T) -> T:
    """The tree as NumPy arrays, of which every process has all numbers; keys stay JAX's."""
    return jax.tree.map(_host, tree)


def _host(x: jax.Array) -> np.ndarray | jax.Array:
    from jax.experimental import multihost_utils

    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(_host(jax.random.key_data(x))), impl=jax.random.key_impl(x))
    if getattr(x, "is_fully_addressable", True) or x.is_fully_replicated:
        return np.asarray(x)
    return multihost_utils.process_allgather(x, tiled=True)


def group() -> contextlib.AbstractContextManager[object]:
    """Inside, worlds are spread over all devices of all processes, if this process has joined any."""
    return jax.set_mesh(mesh()) if private.in_a_group() else contextlib.nullcontext()


def _beat(pipe: int) -> None:
    """Say now, and then every second, that this process lives, to the one that started it; end with it."""
    while True:
        try:
            os.write(pipe, b".")
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
