"""Actors of Ray: processes that may come and go, to which one learner hands out work and from which it gathers results.

An actor keeps a compiled function and nothing else. What it works on is an argument, and what it finds is a result, so
that an actor which dies takes nothing with it: Ray starts another, which does the same work again. Only what is too
large to travel, a replay memory, may be kept (``keep``), and is lost with its actor.
"""

import contextlib
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import MissingDependencyError, install
from .processes import ProcessError, on_host


class Actors:
    """Actors that call one pure function, a core each; use it as ``with Actors(work, 2) as actors:``.

    ``actors(shared, parts)`` is ``[work(shared, part) for part in parts]``, part i by actor i. Without waiting for all,
    :meth:`ask` gives work to one, and :meth:`first` is the result that comes first. They run in the Ray of this
    process, or in one of their own: see :func:`cluster`. They compute on CPUs, in float64 if this process does, and a
    key draws there what it draws here.

    Attributes:
        puts: objects that were written to Ray's store so far: one for ``shared``, one a part, one a result. On one
            machine all read them where they stand.
        sent, received: bytes of arrays that went to the actors (``shared`` counts once) and came from them.
    """

    def __init__(
        self,
        work: Callable[..., Any],
        number: int,
        *,
        keep: Callable[[], Any] | None = None,
        address: str | None = None,
        restarts: int = 3,
        patience: float = 600.0,
    ) -> None:
        """Start the actors.

        Args:
            work: ``work(shared, part) -> result``, a function of trees that can be compiled and pickled.
            number: how many actors; 0 does the work in this process, without Ray.
            keep: what an actor keeps, as it begins: then ``work(shared, part, kept) -> result, kept``.
            address: as for :func:`cluster`.
            restarts: how often each actor is replaced after it has died.
            patience: seconds that a call may take, with what it compiles and the start of actors.

        Raises:
            ValueError, TypeError: a number does not fit. And the errors of :func:`cluster`.
        """
        for name, value in (("number", number), ("restarts", restarts)):
            if not isinstance(value, int | np.integer):
                raise TypeError(f"{name} is {value!r}, must be a whole number")
            if value < 0:
                raise ValueError(f"{name} is {value}, must be 0 or more")
        if not patience > 0:
            raise ValueError(f"patience is {patience}, must be positive")
        self.number, self.restarts, self.patience = number, restarts, patience
        self.puts = self.sent = self.received = 0
        self._actors, self._stack = [], contextlib.ExitStack()
        self._asked: list[tuple[int, Any]] = []  # not yet answered: number, and reference or what to do
        self._here, self._closed = None if number else _Worker(work, keep), False
        if number:
            with contextlib.ExitStack() as stack:
                stack.enter_context(cluster(number, address=address))
                self._actors = [_kind(work, keep, restarts).remote() for _ in range(number)]
                self._stack = stack.pop_all()

    def __call__(self, shared: Any, parts: Sequence[Any]) -> list[Any]:
        """``work(shared, part)`` of every part, in order. ``shared`` is written to the store once.

        Returns:
            Trees of NumPy arrays, which may not be written to. No gradient flows.

        Raises:
            ProcessError: an actor failed, died more often than ``restarts``, or was not ready in time; the message
                names it. ValueError: they are closed.
        """
        self._expect_open()
        if self._here:
            return [self._here.work(shared, part) for part in parts]
        import ray

        where = self._put(shared)
        asked = [self._send(i % self.number, where, part) for i, part in enumerate(parts)]
        _, late = ray.wait(asked, num_returns=len(asked), timeout=self.patience)
        if late:
            raise self._late({asked.index(one) % self.number for one in late})
        return [self._result(i % self.number, one) for i, one in enumerate(asked)]

    def ask(self, number: int, shared: Any, part: Any) -> None:
        """Give ``work(shared, part)`` to an actor, and do not wait. With 0 actors, this process is actor 0.

        Raises:
            ValueError: there is no such actor, or they are closed.
        """
        self._expect_open()
        if not 0 <= number < max(self.number, 1):
            raise ValueError(f"there is no actor {number}: {self.number} actors are numbered from 0")
        asked = (shared, part) if self._here else self._send(number, self._put(shared), part)
        self._asked.append((number, asked))

    def first(self) -> tuple[int, Any]:
        """The first result of what was asked, and the number of its actor. Each is given once.

        Raises:
            ProcessError: as for a call; all actors at work are named if none answers.
            ValueError: nothing was asked that was not given yet, or they are closed.
        """
        self._expect_open()
        if not self._asked:
            raise ValueError("first(): no actor is at work: ask(number, shared, part) gives it some")
        if self._here:
            number, work = self._asked.pop(0)
            return number, self._here.work(*work)
        import ray

        ready, _ = ray.wait([one for _, one in self._asked], timeout=self.patience)
        if not ready:
            raise self._late({number for number, _ in self._asked})
        (place,) = [i for i, (_, one) in enumerate(self._asked) if one == ready[0]]
        number, one = self._asked.pop(place)
        return number, self._result(number, one)

    @property
    def busy(self) -> bool:
        """Whether anything was asked and not yet given."""
        return bool(self._asked)

    def _expect_open(self) -> None:
        if self._closed:
            raise ValueError("these actors are closed: use them inside `with Actors(...) as actors:`")

    def _put(self, shared: Any) -> Any:
        """Write what all share to the store: where it is."""
        import ray

        shared = on_host(shared)
        self.puts += 1
        self.sent += _bytes(shared)
        return ray.put(shared)

    def _send(self, number: int, where: Any, part: Any) -> Any:
        part = on_host(part)
        self.puts += 2
        self.sent += _bytes(part)
        return self._actors[number].work.remote(where, part)

    def _late(self, numbers: set[int]) -> ProcessError:
        import ray

        return ProcessError(
            f"actor {', '.join(map(str, sorted(numbers)))} of {self.number} has not answered for {self.patience:g} s: "
            f"it hangs, is slow, or waits for a core (the cluster has {ray.cluster_resources().get('CPU', 0):g}); "
            "patience= is this time"
        )

    def close(self) -> None:
        """End the actors, and Ray if it was started or joined for them."""
        for actor in self._actors:
            import ray

            ray.kill(actor)
        self._actors, self._asked, self._closed = [], [], True
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _result(self, number: int, asked: Any) -> Any:
        import ray
        from ray.exceptions import ActorDiedError, RayError, RayTaskError

        name = f"actor {number} of {self.number}"
        try:
            found = ray.get(asked)
            self.received += _bytes(found)
            return found
        except RayTaskError as cause:
            raise ProcessError(f"{name} failed: {cause.cause}") from cause
        except ActorDiedError as cause:
            again = f"and was replaced {self.restarts} times before" if self.restarts else "and restarts is 0"
            raise ProcessError(f"{name} died {again}: see whether memory is short, or raise restarts=") from cause
        except RayError as cause:
            raise ProcessError(f"{name}: its result is lost ({type(cause).__name__}: {cause})") from cause


@contextlib.contextmanager
def cluster(cores: int, *, address: str | None = None) -> Iterator[None]:
    """Ray, inside: the one that this process has joined, that of the address, or else one of this machine.

    One that starts here listens on loopback alone, reports no usage, and ends with the block or with this process.

    Args:
        cores: how many actors it can have at once, if it starts here.
        address: "host:port" of a cluster; RAY_ADDRESS by default.

    Raises:
        MissingDependencyError: Ray is not installed. ConnectionError: there is no cluster at this address.
        ProcessError: Ray did not start on this machine, for which it allows itself half a minute.
    """
    try:
        import ray
    except ImportError as cause:
        raise MissingDependencyError(f"actors need Ray: {install('ray')}") from cause
    address = address or os.environ.get("RAY_ADDRESS")
    if ray.is_initialized():
        yield
        return
    with contextlib.ExitStack() as stack:
        if address:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
        else:
            prefix = "fphys-ray-"
            _start(cores, stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)))
        stack.callback(ray.shutdown)
        yield


def _start(cores: int, folder: str) -> None:
    import ray
    from ray._private import ray_constants

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    networked, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False  # or it is not on loopback
    try:
        with warnings.catch_warnings():
            # Ray's servers are forked, and at once become other programs: they never come back to JAX.
            warnings.filterwarnings("ignore", r"os.fork\(\) was called", RuntimeWarning)
            quiet: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
            ray.init("local", num_cpus=cores, _temp_dir=folder, **quiet)
    except Exception as cause:  # Ray has no type of its own for it
        raise ProcessError(
            f"Ray did not start on this machine: {str(cause).splitlines()[0]} See whether it is too busy"
        ) from cause
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = networked


class _Worker:
    """What an actor does, wherever it is."""

    def __init__(self, work: Callable[..., Any], keep: Callable[[], Any] | None) -> None:
        self._keeps = keep is not None
        self._work = jax.jit(work, donate_argnums=2 if keep else ())
        self._kept = jax.jit(keep)() if keep else None

    def work(self, shared: Any, part: Any) -> Any:
        if not self._keeps:
            return on_host(self._work(shared, part))
        found, self._kept = self._work(shared, part, self._kept)
        return on_host(found)


def _kind(work: Callable[..., Any], keep: Callable[[], Any] | None, restarts: int) -> Any:
    """The class of actors. Ray keeps it, and ``work`` with it, for those that replace others."""
    import ray

    class Actor(_Worker):
        def __init__(self) -> None:
            super().__init__(work, keep)

    x64 = str(int(jnp.zeros(()).dtype == jnp.float64))
    environ = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": x64, "FPHYS_THREADS": "1"}
    environ["JAX_THREEFRY_PARTITIONABLE"] = str(int(jax.threefry_partitionable.value))
    options: dict[str, Any] = {"num_cpus": 1, "max_restarts": restarts, "max_task_retries": restarts}
    return ray.remote(**options, runtime_env={"env_vars": environ})(Actor)


def _bytes(tree: Any) -> int:
    return sum(x.nbytes for x in jax.tree.leaves(tree) if isinstance(x, np.ndarray))
