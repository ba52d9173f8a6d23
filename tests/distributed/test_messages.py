"""What programs send is counted, and `fphys bench distributed` runs in processes that end with it."""

import functools
import json
import os
import signal
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from fphys import distributed
from fphys.bench import group, main, spread
from fphys.distributed import ProcessError
from fphys.distributed.messages import Message, messages

MESH = distributed.mesh()


def compiled(fn: Any, *args: Any) -> Any:
    spread = jax.shard_map(fn, mesh=MESH, in_specs=P("world"), out_specs=P("world"))
    return jax.jit(spread).lower(*args).compile()


def test_messages_count_as_often_as_loops_turn():
    vary = functools.partial(jax.lax.pcast, axis_name="world", to="varying")

    def each(x: Any, y: Any) -> Any:
        def inner(_: Any, x: Any) -> Any:
            return vary(jax.lax.psum(x, "world")) / 2

        def outer(x: Any, _: Any) -> tuple[Any, None]:
            return jax.lax.fori_loop(0, 3, inner, x), None

        x, _ = jax.lax.scan(outer, x, None, 5)
        return x, jax.lax.all_gather(y, "world", tiled=True)[:2]

    found = messages(compiled(each, jnp.ones(8, jnp.float32), jnp.ones((4, 3), jnp.float64)))
    assert found == {Message("all-reduce", 16): 15, Message("all-gather", 4 * 3 * 8): 1}
    assert messages(jax.jit(lambda x: 2 * x).lower(jnp.ones(3)).compile()) == {}


def test_a_message_of_many_arrays_is_one():
    """As the gradient of a network is, if XLA adds it: of as many arrays as there are parameters."""
    loss = lambda params, x: sum(jnp.tanh(x @ p).sum() for p in params)  # noqa: E731
    params = [jnp.ones((3, n), jnp.float32) for n in range(1, 9)]
    with jax.set_mesh(MESH):
        rows = distributed.split(jnp.ones((4, 3), jnp.float32))
        found = messages(jax.jit(jax.grad(loss)).lower(params, rows).compile())
    assert found == {Message("all-reduce", 4 * 3 * sum(range(1, 9)), arrays=8): 1}


def test_a_loop_of_unknown_length_is_refused():
    def each(x: Any) -> Any:
        step = lambda x: jax.lax.pcast(jax.lax.psum(x, "world"), "world", to="varying")  # noqa: E731
        return jax.lax.while_loop(lambda x: jax.lax.psum(x.sum(), "world") < 100, step, x)

    with pytest.raises(ValueError, match="how often it turns"):
        messages(compiled(each, jnp.ones(8)))


def test_messages_alone_are_those_of_the_program():
    """A program that sends the same, no more and no less, and gives back what it gets."""
    sent = {Message("all-gather", 64): 2, Message("all-reduce", 40): 7, Message("all-reduce", 52, arrays=5): 3}
    with jax.set_mesh(MESH):
        fn, args = group.exchange(sent, 2)
        program = jax.jit(fn).lower(*args).compile()
        assert messages(program) == sent
        assert all((x == 1).all() for x in program(*args))
        with pytest.raises(ValueError, match="all-to-all"):
            group.exchange({Message("all-to-all", 4): 1}, 2)


def test_the_cases_have_the_bars_of_the_project():
    cases = {case.name: case for case in spread.distributed_cases()}
    bars = {name: case.target for name, case in cases.items() if case.target}
    assert bars == {
        "distributed.worlds.two": 1 / 0.95,
        "distributed.ppo.two": 1 / 0.9,
        "distributed.shac.two": 1 / 0.9,
        **({"distributed.rollout.actor": 1.05} if "distributed.rollout.actor" in cases else {}),
    }


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch):
    """Two processes, that are ended."""
    monkeypatch.setenv("XLA_FLAGS", "")
    made = group.Group(2)
    monkeypatch.setattr(spread, "processes", lambda count, pinned=True: made)
    yield made
    made.close()


@pytest.mark.alone
def test_it_measures_what_two_processes_send_each_other(two: group.Group, tmp_path: Any, capsys: pytest.CaptureFixture):
    cases = [case for case in spread.distributed_cases() if case.name == "distributed.reduce"]
    code = main(cases=cases, quick=True, json_path=tmp_path / "bench.json")
    (row,) = json.loads((tmp_path / "bench.json").read_text())["results"]
    assert code == 0 and row["valid"], row["error"]
    assert row["steps_per_s"] == pytest.approx(64 * 4 * group.TIMES / row["median_s"])
    assert two(group.Request("reduce messages", 128, 2)).sent == {Message("all-reduce", 256): group.TIMES}
    pid = two.pids[1]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ProcessError, match="rank 1 of 2 was killed by SIGKILL"):
        two(group.Request("reduce messages", 64, 2))
    assert "distributed.reduce" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.extra("ray")
def test_all_cases_run(tmp_path: Any):
    path = tmp_path / "bench.json"
    assert main("distributed", quick=True, json_path=path) == 0
    rows = {row["case"]: row for row in json.loads(path.read_text())["results"]}
    assert rows.keys() == {case.name for case in spread.distributed_cases() if "large" not in case.tags}
    assert rows["distributed.ppo.messages"]["sent"] and rows["distributed.rollout.actor"]["ratio"]
