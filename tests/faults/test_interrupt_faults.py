"""Fault 42: signals while compiled programs run.

No result is ever wrong, no interrupt is lost, and the next call works. Every case runs in its own process.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..pace import in_time

STORM = """
import json, os, random, signal, sys, threading, time
import jax, jax.numpy as jnp, numpy as np
import fphys
from fphys.bridge import interruptible

count, seed, gradient, inside = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "gradient", sys.argv[4] == "inside"
model = fphys.load(fphys.asset("ant"))
start, ctrl = fphys.init(model, 4), jnp.zeros((4, 8))

def roll(qvel):
    step = lambda state, _: (fphys.step(model, state, ctrl), None)
    return jax.lax.scan(step, start.replace(qvel=qvel), None, length=60 if gradient else 300)[0].qpos

run = jax.jit(jax.grad(lambda qvel: roll(qvel).sum()) if gradient else roll)
right = np.asarray(run(start.qvel))
begun = time.perf_counter()
run(start.qvel)
seconds = time.perf_counter() - begun

class Raised(Exception):
    pass

def raise_it(number, frame):
    raise Raised(number)

signal.signal(signal.SIGALRM, raise_it)  # as pytest-timeout does
signal.signal(signal.SIGTERM, raise_it)
signals = [signal.SIGINT] if inside else [signal.SIGINT, signal.SIGALRM, signal.SIGTERM]
draw, sent, waits, delivered, lost, wrong = random.Random(seed), [0.0], [], 0, 0, 0

def send(number, delay):
    time.sleep(delay)
    sent[0] = time.perf_counter()
    os.kill(os.getpid(), number)

for k in range(count):
    result, came = None, False
    thread = threading.Thread(target=send, args=(signals[k % len(signals)], draw.random() * 1.2 * seconds))
    try:
        thread.start()
        if inside:
            with interruptible():
                result = run(start.qvel)
        else:
            result = run(start.qvel)
        for _ in range(1000):
            time.sleep(0.001)  # the handler raises here at the latest; a signal just before a sleep waits for its end
    except (KeyboardInterrupt, Raised) as error:
        waits.append(time.perf_counter() - sent[0])
        came = type(error) is (KeyboardInterrupt if k % len(signals) == 0 else Raised)
    thread.join()
    delivered, lost = delivered + came, lost + (not came)
    wrong += result is not None and not np.array_equal(result, right)
    wrong += not np.array_equal(run(start.qvel), right)
print(json.dumps(dict(delivered=delivered, lost=lost, wrong=wrong, longest=max(waits), seconds=seconds)))
"""

LONG = """
import os, signal, threading, time
import jax, jax.numpy as jnp
import fphys

model = fphys.load(fphys.asset("ant"))
start, ctrl = fphys.init(model, 4), jnp.zeros((4, 8))
roll = lambda state, n: jax.lax.scan(lambda s, _: (fphys.step(model, s, ctrl), None), state, None, length=n)[0]
run, short = jax.jit(lambda state: roll(state, 10**7)), jax.jit(lambda state: roll(state, 10))
expected = short(start).qpos
run.lower(start).compile()
"""


def environment() -> dict[str, str]:
    return os.environ | {"NPROC": "32", "JAX_PLATFORMS": "cpu"}


# Background jobs of a shell ignore interrupts, and so would the programs that they start.
HEED = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


def python(program: str, *arguments: str, timeout: float = 120) -> str:
    command = [sys.executable, "-c", HEED + program, *arguments]
    done = subprocess.run(command, env=environment(), timeout=timeout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("where", ["outside", "inside"])
@pytest.mark.parametrize("what", ["rollout", "gradient"])
def test_a_storm_of_signals(what: str, where: str, full: bool):
    """Each signal is delivered once, as its handler's exception. Results before, between and after keep their bits."""
    told = json.loads(python(STORM, str(250 if full else 50), "7", what, where, timeout=900).splitlines()[-1])
    assert told["lost"] == told["wrong"] == 0
    assert told["delivered"] == (250 if full else 50)
    assert told["longest"] < told["seconds"] * 5 + 1.0  # a busy machine may slow down one call


def test_inside_the_context_a_long_program_is_abandoned():
    """Ten million steps take minutes. A second interrupt arrives when the program is gone. Other programs go on."""
    out = python(
        LONG
        + """
for _ in range(3):
    timers = [threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT)) for delay in (0.5, 0.6)]
    begun = time.perf_counter()
    try:
        for timer in timers:
            timer.start()
        with fphys.bridge.interruptible():
            run(start)
    except KeyboardInterrupt:
        seconds = time.perf_counter() - begun
    try:
        for timer in timers:
            timer.join()
        time.sleep(0.1)
    except KeyboardInterrupt:
        pass
    print(seconds < 1.5, bool((short(start).qpos == expected).all()), signal.set_wakeup_fd(-1))
"""
    )
    assert out == "True True -1\n" * 3


def test_the_context_passes_signals_on():
    """asyncio in a notebook listens to a file to which Python writes signals. The user's own handler stays, too."""
    out = python(
        LONG
        + """
reader, writer = os.pipe()
os.set_blocking(reader, False), os.set_blocking(writer, False)
signal.set_wakeup_fd(writer)
signal.signal(signal.SIGUSR1, lambda *_: print("handled", flush=True))
try:
    with fphys.bridge.interruptible():
        for number in (signal.SIGUSR1, signal.SIGINT):
            threading.Timer(0.3, os.kill, (os.getpid(), number)).start()
        run(start)
except KeyboardInterrupt:
    passed_on = sorted(os.read(reader, 100)) == [signal.SIGINT, signal.SIGUSR1]
    print("interrupted", passed_on, signal.set_wakeup_fd(-1) == writer)
signal.signal(signal.SIGINT, lambda *_: print("own", flush=True))
with fphys.bridge.interruptible():
    threading.Timer(0.001, os.kill, (os.getpid(), signal.SIGINT)).start()
    print(bool((short(start).qpos == expected).all()))
    time.sleep(0.1)
"""
    )
    assert sorted(out.split("\n")) == sorted(["handled", "interrupted True True", "own", "True", ""])


def test_an_interrupt_at_the_entrance_leaves_nothing_behind(full: bool):
    """Python may raise anywhere in the context's own code. The file that listens to signals still listens then."""
    out = python(
        LONG
        + """
import sys
reader, writer = os.pipe()
os.set_blocking(reader, False), os.set_blocking(writer, False)
with fphys.bridge.interruptible():
    pass
came, kept, asked, over = 0, 0, threading.Event(), threading.Event()

def send():
    while not over.is_set():
        if asked.wait(0.1):
            asked.clear()
            time.sleep(0.0005)
            os.kill(os.getpid(), signal.SIGINT)

sender = threading.Thread(target=send)
sender.start()
for _ in range(int(sys.argv[1])):
    signal.set_wakeup_fd(writer)
    try:
        asked.set()
        while True:
            with fphys.bridge.interruptible():
                pass
    except KeyboardInterrupt:
        came += 1
    kept += signal.set_wakeup_fd(-1) == writer
over.set()
sender.join()
with fphys.bridge.interruptible():
    print(came, kept, bool((short(start).qpos == expected).all()))
""",
        count := str(4000 if full else 500),
    )
    assert out == f"{count} {count} True\n"


def test_an_interrupt_that_python_loses_is_found_again():
    """Python prints and forgets exceptions in a generator's end. The program's own error then reports the interrupt."""
    out = python(
        LONG
        + """
def forever():
    try:
        while True:
            yield
    finally:
        for _ in range(100):
            pass

came, run = [], jax.jit(lambda state, n: jax.lax.fori_loop(0, n, lambda _, s: fphys.step(model, s, ctrl), state))
run(start, 1)  # or JAX looks for the program, in Python, which does not lose interrupts
for _ in range(10):
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        with fphys.bridge.interruptible():
            for _ in forever():
                run(start, 10**7)
    except BaseException as error:
        came.append(type(error).__name__)
try:
    with fphys.bridge.interruptible():  # an error of the user's own stays what it is
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            try:
                run(start, 10**7)
            finally:
                time.sleep(1)
        except KeyboardInterrupt:
            raise LookupError("mine") from None
except LookupError as error:
    came.append(str(error))
print(came)
"""
    )
    assert out == f"{['KeyboardInterrupt'] * 10 + ['mine']}\n"


def test_nested_contexts_and_programs_in_deletions():
    """The outermost context decides, in whatever order they were made. Python prints exceptions in deletions."""
    out = python(
        LONG
        + """
import contextlib

def at_its_end():
    try:
        yield
    finally:
        run(start)

def deleted():
    with fphys.bridge.interruptible():
        generator = at_its_end()
        next(generator)
        del generator
        print("goes on")

def stacked():
    with contextlib.ExitStack() as stack:
        stack.enter_context(fphys.bridge.interruptible())
        run(start)

def nested():
    outer, inner = fphys.bridge.interruptible(), fphys.bridge.interruptible()
    with outer:
        with inner:
            short(start)
        run(start)

for case in (deleted, stacked, nested):
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        case()
    except KeyboardInterrupt:
        print(case.__name__, bool((short(start).qpos == expected).all()), signal.set_wakeup_fd(-1))
"""
    )
    assert out == "goes on\ndeleted True -1\nstacked True -1\nnested True -1\n"


def test_many_other_signals_do_not_delay_an_interrupt():
    """Ten thousand alarms of a profiler arrived in the context before the program began."""
    out = python(
        LONG
        + """
alarms = [0]
signal.signal(signal.SIGALRM, lambda *_: alarms.__setitem__(0, alarms[0] + 1))
signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
try:
    with fphys.bridge.interruptible():
        while alarms[0] < 10000:
            pass
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        begun = time.perf_counter()
        run(start)
except KeyboardInterrupt:
    print(time.perf_counter() - begun < 1.5)
signal.setitimer(signal.ITIMER_REAL, 0)
"""
    )
    assert out == "True\n"


def test_a_second_thread_goes_on(full: bool):
    """Interrupts of the main thread do not affect a call of another thread, nor, where possible, inside the context."""
    out = python(
        """
import os, signal, threading, time
import jax, jax.numpy as jnp, numpy as np
import fphys

model = fphys.load(fphys.asset("ant"))
start, ctrl = fphys.init(model, 4), jnp.zeros((4, 8))
run = jax.jit(lambda state: jax.lax.scan(lambda s, _: (fphys.step(model, s, ctrl), None), state, None, length=50)[0])
right, failures, calls, end = run(start).qpos, [], [], threading.Event()

def work():
    while not end.is_set():
        calls.append(1)
        if not np.array_equal(run(start).qpos, right):
            failures.append(1)

other = threading.Thread(target=work)
other.start()
came = 0
for _ in range(30):
    try:
        threading.Timer(0.005, os.kill, (os.getpid(), signal.SIGINT)).start()
        for _ in range(100):
            run(start)
        time.sleep(5)
    except KeyboardInterrupt:
        came += 1
end.set()
other.join()
print(came, failures, len(calls) > 30)
"""
    )
    assert out == "30 [] True\n"


# The commands end within two seconds and keep their results so far.


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., tuple[int, str, float]]]:
    """Start ``fphys ...``, interrupt it after it printed a text, and again after ``again`` seconds.

    Returns its exit status, its output, and the seconds until it ended.
    """
    running: list[subprocess.Popen[str]] = []

    def interrupt(*arguments: str, after: str, again: float = 0.0) -> tuple[int, str, float]:
        told = tmp_path / "told"
        with told.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, "-c", f"{HEED}from fphys.cli import main; sys.exit(main())", *arguments],
                env=environment() | {"PYTHONUNBUFFERED": "1"},
                cwd=tmp_path,
                stdout=file,
                stderr=file,
                text=True,
                start_new_session=True,
            )
        running.append(process)
        end = time.monotonic() + 240
        while not re.search(after, told.read_text()) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.5)
        begun = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        if again:
            time.sleep(again)
            os.killpg(process.pid, signal.SIGINT)
        status = process.wait(60)
        return status, told.read_text(), time.monotonic() - begun

    yield interrupt
    for process in running:
        process.kill()


@pytest.mark.alone
def test_simulate_ends_and_says_how_far_it_came(command):
    status, told, seconds = command("simulate", "humanoid", "--steps", "100000000", after=r"simulate: .*\d\.\d\dk")
    assert status == 130 and in_time(seconds, 2), (status, seconds, told)
    assert "then interrupted" in told and "energy" in told


@pytest.mark.alone
def test_simulate_films_the_part_so_far(command, tmp_path):
    """A hundred seconds of motion would take a hundred seconds to draw. A second interrupt gives up the video."""
    arguments = ("simulate", "humanoid", "--steps", "100000000", "--out", "film.mp4")
    status, told, seconds = command(*arguments, after=r"simulate: .*[2-9]\d\.\dk")
    assert status == 130 and in_time(seconds, 2), (status, seconds, told)
    assert "film.mp4, a time lapse" in told and (tmp_path / "film.mp4").exists()
    status, told, seconds = command(*arguments[:-1], "none.mp4", after=r"simulate: .*[2-9]\d\.\dk", again=0.3)
    assert status == 130 and in_time(seconds, 2), (status, seconds, told)
    assert "no video: interrupted" in told and "energy" in told and not (tmp_path / "none.mp4").exists()


@pytest.mark.alone
@pytest.mark.parametrize("again", [0.0, 0.02, 0.05, 0.2])
def test_run_ends_and_keeps_its_folder(command, tmp_path, again):
    """Torques are optimised with gradients through 500 steps; each gradient is one program."""
    status, told, seconds = command("run", "swing-up", after=r"swing-up:.* [1-9]\d*/", again=again)
    assert status == 130 and in_time(seconds, 2), (status, seconds, told)
    (metrics,) = tmp_path.glob("runs/swing-up/*/metrics.json")
    assert json.loads(metrics.read_text())["status"] == "interrupted"
    assert (metrics.parent / "result.npz").exists()


@pytest.mark.alone
def test_bench_ends_and_keeps_the_results_so_far(command, tmp_path):
    arguments = ("bench", "relu", "--worlds", "64", "4096", "--json", "results.json")
    status, told, seconds = command(*arguments, after=r"(?m)^\S*relu.* 64 ")
    assert status == 130 and in_time(seconds, 2), (status, seconds, told)
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["results"] and not results["complete"]


@pytest.mark.alone
@pytest.mark.extra("viser")
def test_view_ends(command):
    status, told, seconds = command("view", "double-pendulum", "--port", "0", after="http://")
    assert status == 130 and in_time(seconds, 2), (status, seconds, told)


def test_fit_ends_after_the_update_and_saves_it(tmp_path):
    """A training resumed from there ends, bit for bit, where an uninterrupted one ends."""
    out = python(
        """
import os, signal, sys
import jax, jax.numpy as jnp, numpy as np, optax
from fphys import data, train

def loss_fn(params, aux, batch, key):
    return ((batch["x"] @ params - batch["y"]) ** 2).mean(), aux, {}

rng = np.random.default_rng(0)
source = [{"x": rng.normal(size=3).astype("f4"), "y": np.float32(i % 2)} for i in range(40)]

def fit(folder, evaluate=None):
    return train.fit(loss_fn, jnp.zeros(3), optax.adam(0.1), data.loader(source, 8, seed=1), steps=30, every=1,
                     checkpoints=train.Checkpoints(folder, every=10), evaluate=evaluate)

def interrupt(params, aux):
    calls.append(1)
    if len(calls) == 17:
        os.kill(os.getpid(), signal.SIGINT)
    return {}

calls, whole = [], fit(sys.argv[1] + "/whole").params
try:
    fit(sys.argv[1] + "/parts", interrupt)
except KeyboardInterrupt:
    restored = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    print(train.Checkpoints(sys.argv[1] + "/parts").steps, restored)
print(np.array_equal(fit(sys.argv[1] + "/parts").params, whole))
""",
        str(tmp_path),
    )
    assert out == "[10, 17] True\nTrue\n"
