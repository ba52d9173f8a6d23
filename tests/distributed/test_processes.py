"""Several processes on this machine: equal results, checkpoints of all, and an end in a stated time if one is lost."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from fphys import cli, data, distributed, optim, train
from fphys.distributed import ProcessError, launch, processes
from fphys.rl import program

from ..conftest import QUICK
from .group import uninterrupted
from .left import LOOPBACK, listening, lives

pytestmark = pytest.mark.alone
GROUP = Path(__file__).with_name("group.py")
SILENCE = 6.0
START = f"""
import sys
from fphys.distributed import ProcessError, launch
try:
    launch([sys.executable, *sys.argv[3:]], int(sys.argv[1]), restarts=int(sys.argv[2]), silence={SILENCE})
except ProcessError as error:
    sys.exit(f"error: {{error}}")
"""


class Group:
    """A launcher and its processes."""

    def __init__(self, folder: Path, count: int, steps: int, pause: float = 0.0, restarts: int = 0, full: int = -1):
        self.folder, self.count = folder, count
        for old in folder.glob("pid-*"):
            old.unlink()
        program = [
            sys.executable,
            "-c",
            START,
            str(count),
            str(restarts),
            str(GROUP),
            str(folder),
            str(steps),
            str(pause),
            str(full),
        ]
        env = os.environ | {"XLA_FLAGS": QUICK, "NPROC": "32"}
        self.out, self.err = (folder / f"{name}.txt" for name in ("out", "err"))
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(program, env=env, stdout=out, stderr=err)

    def wait_for(self, text: str, seconds: float = 200) -> None:
        end = time.monotonic() + seconds
        while text not in self.out.read_text():
            assert self.process.poll() is None, self.err.read_text()[-3000:]
            assert time.monotonic() < end, self.err.read_text()[-3000:]
            time.sleep(0.05)

    def pid(self, rank: int) -> int:
        return int((self.folder / f"pid-{rank}").read_text())

    def end(self, seconds: float = 200) -> tuple[int, str, str]:
        return self.process.wait(seconds), self.out.read_text(), self.err.read_text()

    def gone(self) -> bool:
        return not any(lives(self.pid(rank)) for rank in range(self.count))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[object]:
    groups: list[Group] = []

    def begin(*args: float, **options: float) -> Group:
        groups.append(Group(tmp_path, *args, **options))  # type: ignore[arg-type]
        return groups[-1]

    yield begin
    for group in groups:
        group.close()


def last(text: str) -> list[float]:
    """Parameters and the sum of all worlds, which a group prints at its end."""
    line = next(line for line in text.splitlines() if line.startswith("end "))
    return [float(x.strip("[],")) for x in line.split()[1:]]


def test_two_processes_do_what_one_does_and_another_number_goes_on_from_their_checkpoint(start):
    group = start(2, 10)
    status, out, err = group.end()
    assert status == 0, err[-3000:]
    assert {path.name for path in (group.folder / "checkpoints").iterdir()} == {"5", "10"}  # whole ones only
    status, out, err = start(1, 15).end()
    assert status == 0 and "resumed 10" in out, err[-3000:]
    np.testing.assert_allclose(last(out), uninterrupted(15), rtol=1e-12)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_process_is_named_and_all_start_again_from_the_newest_checkpoint(start, rank):
    group = start(2, 10, 0.2, restarts=1)
    group.wait_for("saved 5")
    first = [group.pid(0), group.pid(1)]
    os.kill(first[rank], signal.SIGKILL)
    status, out, err = group.end()
    assert status == 0, err[-3000:]
    assert f"rank {rank} of 2 was killed by SIGKILL" in err and "resumed 5" in out
    np.testing.assert_allclose(last(out), uninterrupted(10), rtol=1e-12)
    assert not any(map(lives, first)) and group.gone()


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_full_disk_of_one_process_is_named_and_the_checkpoint_before_is_whole(start, rank):
    """A limit on the size of its files stands for the disk. With room again, all go on from what was saved."""
    group = start(2, 10, full=rank)
    status, _, err = group.end()
    assert status == 1 and f"rank {rank} of 2 failed with status 1" in err, err[-3000:]
    folder = group.folder / "checkpoints"
    assert f"could not save step 10 in {folder}" in err and "step 5 can still be loaded" in err
    assert re.search(r"The disk at / has \d+ MB free\. .* Make room there, or choose another folder", err)
    assert train.Checkpoints(folder).steps == [5] and group.gone()
    status, out, err = start(2, 10).end()
    assert status == 0 and "resumed 5" in out, err[-3000:]
    np.testing.assert_allclose(last(out), uninterrupted(10), rtol=1e-12)


def test_a_straggler_is_waited_for(start):
    """A process that stands still for less than the stated time changes nothing."""
    group = start(2, 10, 0.2)
    group.wait_for("saved 5")
    os.kill(group.pid(1), signal.SIGSTOP)
    time.sleep(SILENCE / 2)
    assert group.process.poll() is None and "saved 10" not in group.out.read_text()
    os.kill(group.pid(1), signal.SIGCONT)
    status, out, err = group.end()
    assert status == 0 and "resumed" not in out, err[-3000:]
    np.testing.assert_allclose(last(out), uninterrupted(10), rtol=1e-12)


def test_a_process_that_hangs_ends_all_within_the_stated_time(start):
    group = start(2, 1000, 0.05)
    group.wait_for("saved 5")
    ports = listening([group.pid(0), group.pid(1)])
    assert ports and {address for address, _ in ports} <= LOOPBACK
    os.kill(group.pid(1), signal.SIGSTOP)
    begun = time.monotonic()
    status, _, err = group.end(60)
    assert time.monotonic() - begun < SILENCE + 10
    assert status == 1 and "rank 1 of 2 has not answered for" in err
    assert group.gone() and not ports & listening()


def test_the_processes_end_with_the_one_that_started_them(start):
    group = start(2, 1000, 0.05)
    group.wait_for("saved 5")
    group.process.kill()
    end = time.monotonic() + 20
    while not group.gone():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.slow
def test_the_command_line_trains_in_two_processes(tmp_path):
    sizes = "--num-envs 8 --steps 256 --horizon 8 --epochs 1 --minibatches 2 --hidden 4 --processes 2"
    command = [sys.executable, "-m", "fphys.cli", "train", "ppo", "inverted-pendulum", *sizes.split()]
    subprocess.run([*command, "--out", str(tmp_path)], check=True, timeout=600)
    (metrics,) = tmp_path.glob("ppo-*/*/metrics.json")  # of rank 0 alone
    assert json.loads(metrics.read_text())["steps"] == 256
    (last,) = tmp_path.glob("ppo-*/checkpoints-*/4/state/ocdbt.process_1")
    assert last.is_dir()


def test_what_cannot_be_spread_is_refused():
    with pytest.raises(ValueError, match="sac keeps its replay in one process"):
        program.expect_spread("sac", 8, 2)
    with pytest.raises(ValueError, match="--num-envs 9 does not divide"):
        program.expect_spread("ppo", 9, 2)


EARLY = """
import contextlib, os, signal, sys, time
from fphys import cli, distributed
rank = int(os.environ["FPHYS_RANK"])
"""


def run(program: str, silence: float = SILENCE) -> None:
    launch([sys.executable, "-c", EARLY + program], 2, silence=silence)


def test_a_process_that_hangs_as_soon_as_it_has_joined_is_named():
    stop = "os.kill(os.getpid(), signal.SIGSTOP) if rank else time.sleep(30)"
    with pytest.raises(ProcessError, match=r"rank 1 of 2 has not answered for .* s: it hangs"):
        run(f"distributed.initialize()\n{stop}\nsys.exit(3)")


def test_a_process_that_does_not_join_is_named():
    with pytest.raises(ProcessError, match=r"rank 1 of 2 has not joined .* s after the first"):
        run("time.sleep(60 * rank)\ndistributed.initialize(patience=40)", silence=5)


@pytest.mark.parametrize(
    ("failure", "status", "told"),
    [
        ("raise RuntimeError('boom')", 1, "RuntimeError: boom"),
        ("pass\n    with contextlib.suppress(SystemExit): sys.exit(4)\n    sys.exit(3)", 3, ""),
        ("sys.exit('the data are missing')", 1, "the data are missing"),
        ("sys.argv = ['fphys', 'train', 'ppo', 'boom']; sys.exit(cli.main())", 2, "no environment 'boom'"),
    ],
)
def test_an_error_of_one_process_ends_all_at_once(failure, status, told, tmp_path, capfd):
    failed = tmp_path / "failed"
    fail = f"open({str(failed)!r}, 'w').close(); {failure}"
    program = f"distributed.initialize()\ndistributed.meet('here')\nif rank:\n    {fail}\ndistributed.meet('there')"
    with pytest.raises(ProcessError, match=f"rank 1 of 2 failed with status {status}"):
        run(program)
    assert time.time() - failed.stat().st_mtime < 15  # JAX's barrier takes 30 s and more
    err = capfd.readouterr().err
    assert told in err and err.count("Traceback") == ("raise" in failure)  # nothing of the other rank


BATCHES = """
import sys
import jax, jax.numpy as jnp, numpy as np, pytest
from fphys import data, distributed
from tests.distributed.test_processes import fit

distributed.initialize()
jax.config.update("jax_enable_x64", True)
rank, _ = distributed.shard()
keys = jax.random.split(jax.random.key(rank), 2)
with pytest.raises(ValueError, match=r"the mesh has the axes \\(\\), needs one named 'world'"):
    distributed.joined(np.ones(2))
with jax.set_mesh(distributed.mesh()):
    for rows in (2, 1):
        found = distributed.joined({"x": np.full((rows, 3), rank), "rate": np.float32(2), "key": keys[:rows]})
        assert found["rate"].shape == () and distributed.on_host(found["x"])[:, 0].tolist() == [0] * rows + [1] * rows
        drawn = distributed.on_host(jax.jit(jax.vmap(jax.random.normal))(found["key"]))
        np.testing.assert_array_equal(drawn[rank * rows : (rank + 1) * rows], jax.vmap(jax.random.normal)(keys[:rows]))
    found = distributed.joined({"x": np.ones((2, 3)), "scale": np.ones((1, 3))})
    assert found["x"].shape == (4, 3) and found["scale"].shape == (1, 3)
    with pytest.raises(ValueError, match=r"different numbers of rows in a batch \\(rank 0 has 5, rank 1 has 3\\)"):
        distributed.joined(np.ones(5 - 2 * rank))
    fit(4, 6, sys.argv[1])
    if rank == 0:
        print("fitted", file=sys.stderr)
    fit(2, 3 + 2 * rank)
"""


def fit(rows: int, steps: int, folder: str | None = None) -> float:
    """A parameter after so many batches, of so many rows in each process."""
    batches = data.loader(data.Arrays(x=np.linspace(0.5, 2.5, 64)), rows, seed=1, shard=distributed.shard())
    checkpoints = train.Checkpoints(folder) if folder else None
    loss = lambda params, aux, batch, key: (((params * batch["x"] - 1) ** 2).mean(), aux, {})  # noqa: E731
    result = train.fit(loss, jnp.ones(()), optim.SGD(1e-2), batches, steps=steps, checkpoints=checkpoints)
    return distributed.on_host(result.params).item()


def test_batches_are_joined_and_one_process_goes_on_but_who_has_fewer_is_named(tmp_path, capfd, monkeypatch):
    """The first goes on alone to its end, where the other waits for it: named after three times the silence."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("XLA_FLAGS", QUICK)
    with pytest.raises(ProcessError, match=r"rank 0 of 2 ended, and rank 1 waits for a message, .* for 9 s"):
        launch([sys.executable, "-c", BATCHES, str(tmp_path)], 2, silence=3)
    assert "fitted" in (err := capfd.readouterr().err), err
    with pytest.raises(ValueError, match=r"the checkpoint has batches of .*\[8\].*the data gives .*\[4\]"):
        fit(4, 12, str(tmp_path))
    np.testing.assert_allclose(fit(8, 12, str(tmp_path)), fit(8, 12), rtol=1e-5)


@pytest.mark.slow
def test_the_first_process_may_go_on_alone_as_long_as_it_works():
    run("distributed.initialize()\nend = time.time() + 20\nwhile not rank and time.time() < end:\n    pass", silence=4)


def test_impossible_numbers_of_processes_and_restarts_are_refused(tmp_path):
    for processes_, restarts in ((2, -1), (0, 0)):
        with pytest.raises(ValueError, match="at least 1 process and 0 restarts"):
            launch([sys.executable, "-c", ""], processes_, restarts=restarts)
        command = f"train ppo hopper --processes {processes_} --restarts {restarts} --out {tmp_path}"
        with pytest.raises(ValueError, match="at least 1 process and 0 restarts"):
            cli.main([*command.split(), "--debug"])


def test_a_process_that_fails_is_named():
    with pytest.raises(ProcessError, match="rank 0 of 1 failed with status 3"):
        launch([sys.executable, "-c", "raise SystemExit(3)"], 1)


def test_wrong_numbers_and_a_late_call_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="ranks go from 0"):
        processes.initialize("127.0.0.1:1", 2, 2)
    monkeypatch.setenv(processes.RANK, "one")
    with pytest.raises(ValueError, match="FPHYS_RANK is 'one'"):
        processes.initialize("127.0.0.1:1", 2)
    monkeypatch.setenv(processes.RANK, "0")
    import jax

    jax.devices()
    with pytest.raises(ProcessError, match="JAX has already started"):
        processes.initialize("127.0.0.1:1", 2)
