"""Processes that stay, and run the same programs alone or together: what ``fphys bench distributed`` times.

Each has a core of its own if ``pinned``. They wait asleep for the next request, so that one may run while the others
rest.
"""

import atexit
import contextlib
import dataclasses
import functools
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from .. import distributed, envs
from ..distributed.messages import Message, messages
from ..distributed.processes import RANK, ProcessError
from ..rl import actors, ppo, shac
from ..train import keep_memory

PATIENCE = 600.0
"""Seconds that a request may take, with what it compiles."""
HORIZON = 32
"""Environment steps of a call."""
TASK = "HalfCheetah-v5"
TIMES = 20
"""All-reduces of a call of "reduce"."""


@dataclasses.dataclass(frozen=True)
class Request:
    """A program and its size."""

    program: str  # a name of PROGRAMS, "NAME messages" for what it sends, "reduce" for float32 numbers of each process
    worlds: int  # of all processes together
    processes: int = 1  # that run it together: the first ones


@dataclasses.dataclass(frozen=True)
class Answer:
    """What rank 0 found."""

    scalars: dict[str, float]
    sent: dict[Message, int]  # the program's messages, and how many of each


class Group:
    """Processes that run requests. They end with this one.

    Raises:
        ProcessError: a process failed or is late.
    """

    def __init__(self, processes: int, pinned: bool = True):
        self._folder = tempfile.TemporaryDirectory(prefix="fphys-bench-")
        path = str(Path(self._folder.name, "socket"))
        x64 = jnp.zeros(()).dtype == jnp.float64
        program = f"from fphys.bench import group; group.serve({path!r}, {pinned}, {x64})"
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._launch, args=(program, processes), daemon=True)
        self._ranks: dict[int, Connection] = {}
        self.pids: dict[int, int] = {}
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen()
            server.settimeout(0.5)
            self._thread.start()
            atexit.register(self.close)
            end = time.monotonic() + PATIENCE
            while len(self._ranks) < processes:
                self._expect_well(end)
                with contextlib.suppress(TimeoutError):
                    found = Connection(server.accept()[0].detach())
                    rank, pid = found.recv()
                    self._ranks[rank], self.pids[rank] = found, pid

    def __call__(self, request: Request) -> Answer:
        """Run a request."""
        asked = [self._ranks[rank] for rank in range(request.processes)]
        end = time.monotonic() + PATIENCE
        try:
            for rank in asked:
                rank.send(request)
            while not all(rank.poll(0.2) for rank in asked):
                self._expect_well(end)
            first, *_ = [rank.recv() for rank in asked]
        except (EOFError, ConnectionError):  # the launcher says why, once it has ended all
            self._thread.join(60)
            self._expect_well(end)
            raise
        return first

    def close(self) -> None:
        """End the processes."""
        for rank in self._ranks.values():
            rank.close()
        self._thread.join(20)
        self._folder.cleanup()

    def _launch(self, program: str, processes: int) -> None:
        try:
            distributed.launch([sys.executable, "-c", program], processes)
        except Exception as failure:
            self._failure = failure

    def _expect_well(self, end: float) -> None:
        if self._failure or not self._thread.is_alive():
            raise ProcessError(f"a process of the benchmark has ended: {self._failure}") from self._failure
        if time.monotonic() > end:
            raise ProcessError(f"a process of the benchmark has not answered for {PATIENCE:g} s")


def serve(path: str, pinned: bool, x64: bool) -> None:
    """A process of the group: answer requests until the other side ends."""
    cores, rank = sorted(os.sched_getaffinity(0)), int(os.environ[RANK])
    if pinned:
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    os.environ["FPHYS_THREADS"] = "1"
    jax.config.update("jax_enable_x64", x64)
    distributed.initialize(patience=PATIENCE)
    jax.devices()  # all processes start together
    keep_memory()
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(path)
        parent = Connection(stream.detach())
    parent.send((rank, os.getpid()))
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            program, args = compiled(parent.recv())
            result = jax.block_until_ready(program(*args))
            parent.send(Answer(_scalars(result), messages(program)))


def _scalars(result: Any) -> dict[str, float]:
    *_, scalars = result
    if isinstance(scalars, dict):
        return {name: float(value) for name, value in scalars.items()}
    return {str(i): float(np.mean(x.addressable_data(0))) for i, x in enumerate(result)}


def stepping(worlds: int) -> tuple[Callable[..., Any], Any]:
    """Environment steps under random actions."""
    env = envs.make(TASK, worlds, dtype=jnp.float32)
    spec = env.action_spec
    shape = (worlds, *spec.shape)

    def run(state: Any, key: Any) -> tuple[Any, dict[str, Any]]:
        def act(state: Any, key: Any) -> tuple[Any, Any]:
            action = jax.random.uniform(key, shape, spec.dtype, spec.low, spec.high)
            state, _, reward, *_ = env.step(state, distributed.split(action))
            return state, reward

        state, reward = jax.lax.scan(act, state, jax.random.split(key, HORIZON))
        return state, {"reward": reward.mean(), "faults": state.faults.sum(dtype=jnp.float32)}

    state = jax.jit(lambda key: distributed.split(env.reset(key)[0]))(jax.random.key(0))
    return run, (state, jax.random.key(1))


def _learning(agent: Any, config: Any, worlds: int) -> tuple[Callable[..., Any], Any]:
    env = envs.make(TASK, worlds, dtype=jnp.float32)
    module, state = jax.jit(functools.partial(agent.init, env, config))(jax.random.key(0))
    return functools.partial(agent.update, env, config, module), (state,)


def rollout(worlds: int) -> tuple[Callable[..., Any], Any]:
    """What an actor of PPO does, and its arguments."""
    env = envs.make(TASK, worlds, dtype=jnp.float32)
    config = ppo.Config(steps=worlds * HORIZON, horizon=HORIZON, minibatches=1, normalize=False)
    module, state = jax.jit(functools.partial(ppo.init, env, config))(jax.random.key(0))
    shared = state.learner.params, state.moments, jax.random.key(1)
    return functools.partial(actors.act, env, config, module), (shared, (state.env, state.observation, jnp.int32(0)))


def _rollout(worlds: int) -> tuple[Callable[..., Any], Any]:
    fn, args = rollout(worlds)

    def run(*args: Any) -> tuple[Any, dict[str, Any]]:
        found = fn(*args)
        return found, {"reward": found[2].reward.mean()}

    return run, args


PROGRAMS: dict[str, Callable[[int], tuple[Callable[..., Any], Any]]] = {
    "worlds": stepping,
    "ppo": lambda n: _learning(ppo, ppo.Config(steps=n * HORIZON, horizon=HORIZON, epochs=4, minibatches=8), n),
    "shac": lambda n: _learning(shac, shac.Config(steps=n * HORIZON, horizon=HORIZON, critic_minibatches=4), n),
    "rollout": _rollout,
}
"""``program(worlds) -> fn, args``, inside the mesh of those that run it."""


@functools.cache
def compiled(request: Request) -> tuple[Any, Any]:
    """The program of a request, and its arguments."""
    name, _, of = request.program.partition(" ")
    with jax.set_mesh(distributed.mesh(jax.devices()[: request.processes])) if request.processes > 1 else _alone():
        if name == "reduce":
            fn, args = exchange({Message("all-reduce", 2 * request.worlds): TIMES}, request.processes)
        elif of:
            fn, args = exchange(messages(compiled(dataclasses.replace(request, program=name))[0]), request.processes)
        else:
            fn, args = PROGRAMS[name](request.worlds)
        return jax.jit(fn).lower(*args).compile(), args


_alone = contextlib.nullcontext


def exchange(sent: dict[Message, int], processes: int) -> tuple[Callable[..., Any], Any]:
    """A program of these messages alone. It returns the ones that it is given.

    Raises:
        ValueError: it does not know a kind of message.
    """
    if other := {message.kind for message in sent} - {"all-reduce", "all-gather"}:
        raise ValueError(f"the program sends {', '.join(sorted(other))}, which this measurement does not know")

    def again(message: Message, count: int, arrays: list[Any]) -> Any:
        def send(_: Any, arrays: list[Any]) -> Any:
            if message.kind == "all-gather":
                return [jax.lax.all_gather(x, distributed.WORLD, tiled=True)[-len(x) :] for x in arrays]
            means = [x / processes for x in jax.lax.psum(arrays, distributed.WORLD)]
            return [jax.lax.pcast(x, distributed.WORLD, to="varying") for x in means]

        return jax.lax.fori_loop(0, count, send, arrays)

    def each(*given: list[Any]) -> Any:
        return [x for message, arrays in zip(sent, given, strict=True) for x in again(message, sent[message], arrays)]

    def ones(message: Message) -> list[Any]:
        size = max(message.arrays, message.bytes // 4 // (processes if message.kind == "all-gather" else 1))
        lengths = [size // message.arrays + (i < size % message.arrays) for i in range(message.arrays)]
        return [jnp.ones(n * processes, jnp.float32) for n in lengths]

    args = jax.jit(lambda: [list(map(distributed.split, ones(message))) for message in sent])()
    world = P(distributed.WORLD)
    return jax.shard_map(each, mesh=jax.sharding.get_mesh(), in_specs=world, out_specs=world), args
