"""Faults 34, 36, 37 and 45: forks, races for the kernel cache, broken caches, exits and threads.

Every case runs in processes of its own under a time limit. A process that hangs is killed and fails the test.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

OPERATION = """
import sys, threading
import jax, jax.numpy as jnp, numpy as np
import warp as wp
from fphys.bridge import warp_op
from fphys.errors import BridgeError

@wp.kernel
def cube_kernel(x: wp.array2d(dtype=wp.float32), y_out: wp.array2d(dtype=wp.float32)):
    world, i = wp.tid()
    y_out[world, i] = x[world, i] * x[world, i] * x[world, i]

def launch_cube(launch, x, y):
    launch(cube_kernel, dim=x.shape, inputs=[x], outputs=[y])

cube = warp_op(launch_cube, outputs=lambda x: x)
gradient = jax.grad(lambda x: cube(x).sum())

def right(x):
    x = np.asarray(x, np.float32)
    return bool(np.allclose(cube(x), x**3, rtol=1e-6) and np.allclose(gradient(x), 3 * x**2, rtol=1e-6))
"""


@pytest.fixture
def script(tmp_path):
    """Write ``script(body)``, a program with an operation defined, and return its command."""
    (tmp_path / "operation.py").write_text(OPERATION)

    def write(body: str) -> list[str]:
        (tmp_path / "program.py").write_text("from operation import *\n\n" + body)
        return [sys.executable, str(tmp_path / "program.py")]

    return write


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"NPROC": "32", "JAX_PLATFORMS": "cpu"} | more


def output(command: list[str], timeout: float = 60, **env: str) -> str:
    """Standard output. Fails with standard error if the program fails or runs longer than ``timeout`` seconds."""
    done = subprocess.run(command, env=environment(**env), timeout=timeout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


# Fault 36: forks


FORK = """
import os, signal, warnings
import fphys
warnings.simplefilter("ignore")
model = fphys.load(fphys.asset("double-pendulum"))
state, ctrl = fphys.init(model, 2), jnp.zeros((2, 2))
x = np.ones((1, 2), "float32")
assert right([[1, 2]])
run, plain = jax.jit(lambda x: cube(x) + 1), jax.jit(lambda x: x + 1)
run(x), plain(x), fphys.step(model, state, ctrl)
device = jax.devices()[0]
placed, placed_state = jax.device_put((x, state), device)
placed_step = jax.jit(lambda s: fphys.step(model, s, ctrl).qvel)
placed_step(placed_state), plain(placed)
ahead = jax.jit(lambda x: cube(x) + 3).lower(x).compile()
ahead(x)

def inside(attempt):
    with jax.default_device(device):
        attempt()

attempts = [
    lambda: cube(x),
    lambda: run(x),
    lambda: plain(x),
    lambda: jax.jit(lambda x: cube(x) + 2)(x),
    lambda: jax.jit(lambda x: x + 2)(x),
    lambda: jnp.ones(3),
    lambda: fphys.load(fphys.asset("double-pendulum")),
    lambda: fphys.init(model, 2),
    lambda: fphys.init(model, 3),
    lambda: model.replace({"body.mass": 2 * model.body.mass}),
    lambda: fphys.step(model, state, ctrl),
    lambda: jax.jit(lambda s: fphys.step(model, s, ctrl).qvel)(state),
    lambda: cube(placed),
    lambda: run(placed),
    lambda: plain(placed),
    lambda: placed * 3,
    lambda: placed_step(placed_state),
    lambda: fphys.step(model, placed_state, ctrl),
    lambda: jax.jit(lambda x: x + 4)(placed),
    lambda: ahead(x),
    lambda: inside(lambda: jnp.ones(5) + 1),
    lambda: inside(lambda: fphys.init(model, 4)),
    lambda: inside(lambda: fphys.load(fphys.asset("double-pendulum"))),
]
"""


@pytest.mark.parametrize("where", ["", "with jax.default_device(device): "])
def test_a_forked_child_is_told_to_use_spawn(script, where):
    """Whatever it runs: compiled before or not, of fphys or of JAX, on any device. The parent goes on."""
    program = script(
        FORK
        + """
children = []
for attempt in attempts:
    WHEREchildren.append(os.fork())
    if children[-1] == 0:
        signal.alarm(20)
        try:
            WHEREattempt()
        except Exception as error:
            told = str(error) + type(error).__name__
            os._exit(7 if "BridgeError" in told and 'get_context("spawn")' in told else 1)
        os._exit(0)
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children], right([[3, 4]]))
""".replace("WHERE", where)
    )
    assert output(program) == f"{[7] * 23} True\n"


def test_a_fork_while_another_thread_starts_jax(script):
    program = script(
        """
import os, signal, warnings
from jax._src import xla_bridge
warnings.simplefilter("ignore")
assert not xla_bridge.backends_are_initialized()
starting = threading.Thread(target=lambda: jnp.ones(3))
starting.start()
while not xla_bridge._backend_lock.locked() and not xla_bridge._backends:
    pass
child = os.fork()
if child == 0:
    signal.alarm(20)
    try:
        jnp.ones(3)
    except Exception as error:
        os._exit(7 if 'get_context("spawn")' in str(error) else 1)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )
    assert output(program) == "7\n"


def test_a_fork_before_jax_is_used_is_free(script):
    program = script("""
import os
child = os.fork()
if child == 0:
    os._exit(7 if right([[1, 2]]) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), right([[3, 4]]))
""")
    assert output(program) == "7 True\n"


def test_spawned_workers_compute(script):
    program = script("""
import multiprocessing
if __name__ == "__main__":
    assert right([[1, 2]])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(right, [[[1, 2]], [[3, 4, 5]]], chunksize=2))
""")
    assert output(program) == "[True, True]\n"


# Fault 37: the kernel cache

CASE = "print(right([[1, 2], [3, 4]]))"


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A kernel cache with the operation and the bridge's own driver."""
    folder = tmp_path_factory.mktemp("filled")
    (folder / "operation.py").write_text(OPERATION)
    (folder / "program.py").write_text("from operation import *\n\n" + CASE)
    assert output([sys.executable, str(folder / "program.py")], WARP_CACHE_PATH=str(folder / "cache")) == "True\n"
    return folder / "cache"


def objects(cache: Path, name: str = "") -> dict[Path, int]:
    """Compiled kernels and their sizes [bytes]."""
    return {file: file.stat().st_size for file in sorted(cache.rglob("*.o")) if name in file.name}


def test_cold_processes_compile_into_one_cache(script, tmp_path, full):
    program, cache = script(CASE), tmp_path / "cache"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    workers = [
        subprocess.Popen(program, env=environment(WARP_CACHE_PATH=str(cache)), **pipes) for _ in range(6 if full else 3)
    ]
    try:
        results = [worker.communicate(timeout=120) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [out for out, _ in results] == ["True\n"] * len(workers), results
    assert sum("compiling" in err for _, err in results) >= 1
    assert len(objects(cache)) == 2


@pytest.mark.parametrize("name", ["operation", "driver"])
@pytest.mark.parametrize(
    "damage", ["half", "flipped", *(pytest.param(d, marks=pytest.mark.slow) for d in ("empty", "zeros"))]
)
def test_a_broken_binary_is_built_again(script, filled, tmp_path, name, damage):
    cache = shutil.copytree(filled, tmp_path / "cache")
    whole, ours = objects(cache), objects(cache, name)
    assert len(whole) == 2 and len(ours) == 1
    for file, size in ours.items():
        content = file.read_bytes()
        third = size // 3
        flipped = content[:third] + bytes(255 - byte for byte in content[third : 2 * third]) + content[2 * third :]
        damaged = {"half": content[: size // 2], "flipped": flipped, "empty": b"", "zeros": bytes(size)}
        file.write_bytes(damaged[damage])
    for _ in range(2):
        assert output(script(CASE), WARP_CACHE_PATH=str(cache)) == "True\n"
        assert objects(cache) == whole


def test_a_broken_binary_without_a_checksum_is_built_again(script, filled, tmp_path):
    """Its process seals a binary soon after building it, so an older one without a seal was left behind."""
    cache = shutil.copytree(filled, tmp_path / "cache")
    whole = objects(cache)
    for file, size in whole.items():
        next(file.parent.glob("*.checksum")).unlink()
        file.write_bytes(bytes(255 - byte for byte in file.read_bytes()))
        os.utime(file, (0, time.time() - 100))
        assert file.stat().st_size == size
    assert output(script(CASE), WARP_CACHE_PATH=str(cache)) == "True\n"
    assert objects(cache) == whole and len(list(cache.rglob("*.checksum"))) == 2


def test_a_killed_build_is_repeated(script, filled, tmp_path):
    """Its leftovers, sources without a binary, do no harm."""
    cache = shutil.copytree(filled, tmp_path / "cache")
    whole = objects(cache)
    for file in whole:
        file.unlink()
    assert output(script(CASE), WARP_CACHE_PATH=str(cache)) == "True\n"
    assert objects(cache) == whole


def test_a_cache_that_cannot_be_written_is_read(script, filled, tmp_path):
    """Its content is used. Missing kernels go to a temporary folder, and a warning says why and what to do."""
    cache = shutil.copytree(filled, tmp_path / "cache")
    for file in objects(cache, "operation"):
        shutil.rmtree(file.parent)
    before = sorted(cache.rglob("*"))
    program = script(CASE)
    for folder in (cache, tmp_path):
        folder.chmod(0o755)
    for path in cache.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    done = subprocess.run(
        [sys.executable, "-c", READ_ONLY + RUN, program[1]],
        env=environment(WARP_CACHE_PATH=str(cache), TMPDIR=str(tmp_path)),
        timeout=120, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout == "True\n", done.stderr
    assert f"the kernel cache {cache}" in done.stderr and "WARP_CACHE_PATH" in done.stderr
    assert re.findall(r"compiling .*", done.stderr) == ["compiling 1/1 operation"]
    assert sorted(cache.rglob("*")) == before and not list(tmp_path.glob("fphys-kernels-*"))


READ_ONLY = """
import tempfile
honest = tempfile.TemporaryFile

def refuse(*args, dir=None, **more):  # as on a read-only disk, for root too
    if dir is not None and "fphys-kernels-" not in str(dir):
        raise OSError(30, "Read-only file system", str(dir))
    return honest(*args, **more)

tempfile.TemporaryFile = refuse
"""


@pytest.mark.parametrize("home", ["", "/proc/nowhere"])
def test_kernels_compile_without_a_home(script, tmp_path, home):
    """HOME is unset, or its folder cannot be made."""
    program = script("import fphys.bridge.start as start\nstart.start_warp()\nprint('ok')")
    environ = {k: v for k, v in environment(TMPDIR=str(tmp_path)).items() if k not in ("HOME", "WARP_CACHE_PATH")}
    environ |= {"XDG_CACHE_HOME": home, "HOME": home} if home else {}
    done = subprocess.run(program, env=environ, timeout=60, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout == "ok\n", done.stderr
    assert ("cannot be used" in done.stderr and "WARP_CACHE_PATH" in done.stderr) == bool(home)


@pytest.mark.parametrize(("folder", "told"), [("/proc/nowhere", "nowhere"), (None, "MiB are free")])
def test_without_any_folder_a_full_cache_works_and_an_empty_one_says_so(script, filled, tmp_path, folder, told):
    """There is no folder for temporary files, or the disk is full. The compiler would end the process."""
    disturb = f"import tempfile\ntempfile.tempdir = {folder!r}\n" if folder else FULL_DISK
    program = [sys.executable, "-c", disturb + RUN, script(CASE)[1]]
    assert output(program, WARP_CACHE_PATH=str(filled)) == "True\n"
    env = environment(WARP_CACHE_PATH="/proc/none/cache" if folder else str(tmp_path / "empty"))
    done = subprocess.run(program, env=env, timeout=60, capture_output=True, text=True, check=False)
    (error,) = (line for line in done.stderr.splitlines() if line.startswith("fphys.errors.BridgeError"))
    assert done.returncode == 1 and "WARP_CACHE_PATH" in error and told in error, done.stderr


RUN = """
import runpy, sys
sys.path.insert(0, sys.argv[1].rsplit("/", 1)[0])
runpy.run_path(sys.argv[1], run_name="__main__")
"""
FULL_DISK = """
import collections, shutil
shutil.disk_usage = lambda path: collections.namedtuple("usage", "total used free")(10**9, 10**9, 0)
"""


# Fault 34: threads and exits


def test_exit_with_an_operation_in_flight(script, full):
    """The interpreter exits without hanging, every time."""
    program = script("""
x = jnp.ones((512, 64), "float32")
run = jax.jit(lambda x: jax.lax.scan(lambda x, _: (cube(x), None), x, None, length=2000)[0])
run(x)
run(x + 1)
print("end", flush=True)
""")
    for _ in range(5 if full else 2):
        assert output(program, timeout=30) == "end\n"


def test_threads_call_operations_side_by_side(script):
    """Every thread has different data. One operation is split into ranges of worlds, one is not."""
    program = script("""
run = jax.jit(lambda x: (cube(x), gradient(x)))
failures, calls = [], []

def work(seed):
    rng = np.random.default_rng(seed)
    for k in range(50):
        x = rng.uniform(0.5, 2.0, ((3, 300)[k % 2], 4)).astype("float32")
        value, grad = run(x)
        if not (np.allclose(value, x**3, rtol=1e-5) and np.allclose(grad, 3 * x**2, rtol=1e-5)):
            failures.append((seed, k))
        calls.append(seed)

threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(calls), failures)
""")
    assert output(program, FPHYS_THREADS="2") == "200 []\n"


def test_shard_map_over_two_devices_with_a_gradient(script):
    program = script("""
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("world",))
x = np.random.default_rng(0).uniform(0.5, 2.0, (512, 4)).astype("float32")
sharded = jax.device_put(x, NamedSharding(mesh, P("world")))

def roll(x):
    return jax.lax.scan(lambda x, _: (0.5 * cube(x), None), x, None, length=20)[0]

both = jax.shard_map(lambda x: (cube(x), jax.grad(lambda x: roll(x).sum())(x)), mesh=mesh,
                     in_specs=P("world"), out_specs=P("world"))
value, grad = jax.jit(both)(sharded)
cubes = jax.shard_map(cube, mesh=mesh, in_specs=P("world"), out_specs=P("world"))
through = jax.jit(jax.grad(lambda x: cubes(x).sum()))(sharded)
print(len(jax.devices()), len(value.sharding.device_set))
print(np.allclose(value, x**3, rtol=1e-5), np.allclose(through, 3 * x**2, rtol=1e-5))
print(np.array_equal(np.asarray(grad), np.asarray(jax.jit(jax.grad(lambda x: roll(x).sum()))(x))))
""")
    out = output(program, timeout=60, XLA_FLAGS="--xla_force_host_platform_device_count=2", FPHYS_THREADS="2")
    assert out == "2 2\nTrue True\nTrue\n"
