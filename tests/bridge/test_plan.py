"""Where scratch memory is: arrays needed at the same time do not overlap, in every block and on every thread."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import warp as wp
from hypothesis import given
from hypothesis import strategies as st

from fphys.bridge import warp_op
from fphys.bridge.plan import Arena, plan_forward
from fphys.bridge.record import Buffer, Recorder

LIVES = st.tuples(st.integers(-1, 20), st.integers(0, 10)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(st.lists(st.tuples(st.integers(0, 40), LIVES), min_size=1, max_size=20))
def test_arrays_needed_at_the_same_time_do_not_overlap(wanted: list[tuple[int, tuple[int, int]]]):
    arena, found = Arena(0), []
    for numbers, life in wanted:
        buffer = Buffer("", "scratch", (5, numbers), np.dtype(np.float32))
        start = arena.place(buffer, life).offset
        found.append((start, start + buffer.row_bytes, life))
        assert start % 64 == 0 and start + buffer.row_bytes <= arena.row_bytes
    for i, (first, end, life) in enumerate(found):
        for start, last, other in found[:i]:
            assert end <= start or last <= first or life[1] < other[0] or other[1] < life[0]


@wp.kernel
def widen(x: wp.array2d(dtype=float), y: wp.array2d(dtype=float)):
    world, i = wp.tid()
    y[world, i] = x[world, i % x.shape[1]] + 1.0


@wp.kernel
def count(x: wp.array2d(dtype=float), zero: wp.array2d(dtype=float), y: wp.array2d(dtype=float)):
    world, i = wp.tid()
    y[world, i] = x[world, i % x.shape[1]] + zero[world, i % zero.shape[1]]


WIDTHS = (3, 50, 1, 200, 7, 31, 64)


def chain(launch, x, y):
    """Ones added along arrays of different widths, the last sum with one that is initially zero."""
    zero = launch.scratch((launch.worlds, 5), wp.float32, zeroed=True)
    for width in WIDTHS:
        x, last = launch.scratch((launch.worlds, width), wp.float32), x
        launch(widen, dim=(launch.worlds, width), inputs=[last], outputs=[x])
    launch(count, dim=y.shape, inputs=[x, zero], outputs=[y])


def test_successive_arrays_share_memory_and_are_right(monkeypatch):
    """Seventy thousand worlds make many blocks, of two sizes, on three threads."""
    monkeypatch.setenv("FPHYS_THREADS", "3")
    op = warp_op(chain, lambda x: x, zeroed=False)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(70003, 2)), jnp.float32)
    expected = x
    for width in WIDTHS:
        expected = jnp.take(expected, jnp.arange(width) % expected.shape[1], axis=1) + 1
    run = jax.jit(op)
    assert all((run(x) == expected[:, :2]).all() for _ in range(20))


def test_a_chain_needs_two_arrays_at_a_time():
    record = Recorder("chain", 4)
    x, y = (Buffer(name, role, (4, 2), np.dtype(np.float32)) for name, role in (("x", "input"), ("y", "output")))
    chain(record, x, y)
    _, size = plan_forward(record, [x], [y])
    most = max(a + b for a, b in itertools.pairwise(WIDTHS))
    assert size <= 4 * (4 * (most + 5) + 3 * 63)  # including alignment
