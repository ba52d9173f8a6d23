"""Threads in any order and teams of 32: the solvers do not depend on them, and mistakes that do are noticed."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import warp as wp

from fphys.bridge import warp_op
from fphys.bridge.ordered import ordered
from fphys.bridge.precision import kernels

from ..bridge import test_ordered
from ..conftest import programs
from . import threads
from .stand_in import standing_in

ROOT = Path(__file__).parents[2]
LANES = 32
team = kernels("float64", "rigid.team")


@wp.kernel
def sent_on(
    lanes: int, x: wp.array2d(dtype=wp.float64), seen: wp.array2d(dtype=wp.float64), y: wp.array2d(dtype=wp.float64)
):
    """What the next thread has, and the sum of all: the threads wait for each other."""
    world, lane = wp.tid()
    seen[world, lane] = x[world, lane]
    team.wait(lanes)
    y[world, lane] = seen[world, (lane + 1) % lanes] + team.total(lanes, x[world, lane])


@wp.kernel
def snatched(
    lanes: int, x: wp.array2d(dtype=wp.float64), seen: wp.array2d(dtype=wp.float64), y: wp.array2d(dtype=wp.float64)
):
    """The same without waiting."""
    world, lane = wp.tid()
    seen[world, lane] = x[world, lane]
    y[world, lane] = seen[world, (lane + 1) % lanes]
    y[world, lane] += team.total(lanes, x[world, lane])


@wp.kernel
def shuffled(
    lanes: int, x: wp.array2d(dtype=wp.float64), seen: wp.array2d(dtype=wp.float64), y: wp.array2d(dtype=wp.float64)
):
    """The threads meet in a sum, which is no promise that they see each other's numbers."""
    world, lane = wp.tid()
    seen[world, lane] = x[world, lane]
    total = team.total(lanes, x[world, lane])
    y[world, lane] = seen[world, (lane + 1) % lanes] + total


@wp.kernel
def set_by_all(x: wp.array2d(dtype=wp.float64), seen: wp.array2d(dtype=wp.float64), y: wp.array2d(dtype=wp.float64)):
    """All threads write the same number, and it is the same number."""
    world, lane = wp.tid()
    seen[world, 0] = x[world, 0]
    y[world, lane] = x[world, lane]


@wp.kernel
def parted(
    lanes: int, x: wp.array2d(dtype=wp.float64), seen: wp.array2d(dtype=wp.float64), y: wp.array2d(dtype=wp.float64)
):
    """One thread goes a way of its own."""
    world, lane = wp.tid()
    if lane != 3:
        y[world, lane] = team.total(lanes, x[world, lane])


def outcomes(kernel: Any) -> list[np.ndarray]:
    """What each order of threads gives."""
    x = np.random.default_rng(0).normal(size=(5, LANES))
    found = []
    for order in threads.ORDERS:
        threads.order(order)
        seen, y = (wp.zeros(x.shape, wp.float64, device="cpu") for _ in range(2))
        given = [LANES, wp.array(x, dtype=wp.float64, device="cpu"), seen, y]
        wp.launch(kernel, x.shape, given, device="cpu")
        found.append(y.numpy() - (np.roll(x, -1, 1) + x.sum(1, keepdims=True)))
    return found


def waiting() -> None:
    assert all(np.abs(error).max() < 1e-13 for error in outcomes(sent_on))


def racing() -> None:
    wrong = [np.abs(error).max() > 1e-3 for error in outcomes(snatched)]
    assert any(wrong), "no order shows that threads do not wait"


def touching() -> None:
    """Two threads that touch the same number, also where no order of theirs shows it."""
    jax.config.update("jax_enable_x64", True)
    x = np.random.default_rng(0).normal(size=(5, LANES))
    for kernel, lanes in ((sent_on, [LANES]), (snatched, [LANES]), (shuffled, [LANES]), (set_by_all, [])):

        def work(launch: Any, x: Any, seen: Any, y: Any, kernel: Any = kernel, lanes: list[int] = lanes) -> None:
            launch(kernel, dim=x.shape, inputs=[*lanes, x], outputs=[seen, y])

        op = warp_op(work, lambda x: (x, x), differentiable=False)
        found = ""
        try:
            with standing_in():
                jax.block_until_ready(jax.jit(op)(x))
        except AssertionError as error:
            found = str(error)
        assert ("touch a number of output" in found) == (kernel is not sent_on), (kernel.key, found)


def parting() -> None:
    outcomes(parted)


def adding() -> None:
    """Where threads add to the same numbers, the last bits depend on their order, unless sums are in a fixed order."""
    jax.config.update("jax_enable_x64", True)
    found = []
    for order in threads.ORDERS:
        threads.order(order)
        with standing_in():
            found.append(jax.tree.leaves(test_ordered.results()))
    same = all(np.array_equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))
    assert same == ordered("cuda"), found


def run(what: Callable[[], None], flags: str = "") -> subprocess.CompletedProcess[str]:
    """A function in a process whose kernels run as on a GPU."""
    command = [sys.executable, "-m", __spec__.name, what.__name__, str(programs().with_name("kernels"))]
    environment = os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("what", [waiting, racing, touching])
def test_threads_that_do_not_wait_are_noticed(what: Callable[[], None]):
    done = run(what)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("flags", ["", "--xla_gpu_deterministic_ops=true"])
def test_sums_are_in_a_fixed_order_if_xlas_are(flags: str):
    done = run(adding, flags)
    assert done.returncode == 0, done.stderr


def test_a_thread_that_goes_its_own_way_ends_the_process():
    done = run(parting)
    assert done.returncode < 0 and "Traceback" not in done.stderr, done.stderr


def test_solvers_take_the_way_of_a_gpu():
    """Contacts, cones, teams of 32, material points, and gradients are the processor's in three orders of threads."""
    scenes = "test_an_ant[float64]", "test_rigid[elliptic cone, condim 6-float64]", "test_matter[mpm, sticky-float64]"
    tests = [f"tests/gpu/test_gpu_solvers.py::{scene}" for scene in scenes]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"FPHYS_STAND_IN": "1"}, capture_output=True, text=True, check=False
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr


if __name__ == "__main__":
    threads.compile_as_for_a_gpu(sys.argv[2])
    globals()[sys.argv[1]]()
