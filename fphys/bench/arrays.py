"""What arrays cost on this device: products of matrices, a convolution of photographs, and a copy.

The cases ".processor" compute the same on the machine's processor. Next to a GPU their ratio is its speed-up, and
without one it is about one. Numbers are float32, and so are the factors, unless a case says otherwise.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .case import Case, Workload

Array = jax.Array

MATRICES = {"matmul": 1000, "matmul5000": 5000}
"""Rows and columns."""
PHOTO, CHANNELS, WINDOW = 224, 64, 3
COPIES = {"copy": 1 << 24, "copy.large": 1 << 27}
"""Numbers: far more than fit into a processor's caches; and into a GPU's, which copies the others in no time."""
_ROWS = 50  # how many rows of a product are checked
FULL, SHORT = 1e-5, 2e-2
"""Errors that float32 and eight bits allow, relative to the result."""


def array_cases() -> list[Case]:
    """Copies; each product in full float32, beside the processor, and in fewer bits."""
    return [
        *_matmuls("matmul"),
        _copies("copy"),
        *_matmuls("matmul5000", "large"),
        _copies("copy.large", "large"),
        *_convolutions(),
    ]


def _matmuls(name: str, *tags: str) -> list[Case]:
    size = MATRICES[name]
    made: dict[str, Any] = {"steps": 2 * size**3, "unit": "flop", "worlds": (), "tags": ("device", *tags)}
    return _beside(f"device.{name}", functools.partial(product, size), **made)


def _copies(name: str, *tags: str) -> Case:
    count = COPIES[name]
    setup = functools.partial(_copied, count)
    return Case(f"device.{name}", setup, 2 * 4 * count, "B", worlds=(), tags=("device", *tags))


def _convolutions() -> list[Case]:
    """The number of worlds is that of photographs."""
    flops = 2 * PHOTO**2 * CHANNELS**2 * WINDOW**2
    return _beside("device.conv224", convolution, steps=flops, unit="flop", worlds=(8,), tags=("device",))


def _beside(name: str, setup: Callable[..., Workload], **made: Any) -> list[Case]:
    """A case in full float32; the same on the processor; with as many bits of the factors as XLA keeps by default, on a
    GPU ten; and in bfloat16."""
    kinds: dict[str, dict[str, Any]] = {
        "processor": {"processor": True},
        "default": {"precision": None, "allowed": SHORT},
        "bfloat16": {"precision": None, "allowed": SHORT, "dtype": jnp.bfloat16},
    }
    others = {f"{name}.{kind}": functools.partial(setup, **given) for kind, given in kinds.items()}
    return [Case(name, setup, **made), *(Case(own, work, relative_to=name, **made) for own, work in others.items())]


def product(
    size: int, worlds: int, precision: str | None = "highest", allowed: float = FULL, processor: bool = False,
    dtype: Any = jnp.float32,
) -> Workload:  # fmt: skip
    """The product of two square matrices."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size), np.float32) for _ in range(2))

    def validate(found: Array) -> None:
        rows = np.linspace(0, size - 1, _ROWS).astype(int)
        _expect(found[rows], a[rows].astype(float) @ b.astype(float), allowed)

    return Workload(lambda a, b: jnp.matmul(a, b, precision=precision), _on((a, b), processor, dtype), validate)


def convolution(
    worlds: int, precision: str | None = "highest", allowed: float = FULL, processor: bool = False,
    dtype: Any = jnp.float32,
) -> Workload:  # fmt: skip
    """Photographs with 64 channels, through 64 windows of 3 x 3, with a margin of zeros."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((worlds, PHOTO, PHOTO, CHANNELS), np.float32)
    kernel = rng.standard_normal((WINDOW, WINDOW, CHANNELS, CHANNELS), np.float32)

    def fn(x: Array, kernel: Array) -> Array:
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout, precision=precision)

    def validate(found: Array) -> None:
        """The middle row of all photographs."""
        i = PHOTO // 2
        rows = np.pad(x[:, i - 1 : i + 2].astype(float), ((0, 0), (0, 0), (1, 1), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(rows, WINDOW, axis=2)  # world, row, place, channel, column
        _expect(found[:, i], np.einsum("wrpci,rico->wpo", windows, kernel.astype(float), optimize=True), allowed)

    return Workload(fn, _on((x, kernel), processor, dtype), validate)


def _on(arrays: tuple[np.ndarray, ...], processor: bool, dtype: Any) -> tuple[Array, ...]:
    """The arrays on the device that computes: where they are, so is the program."""
    device = jax.devices("cpu" if processor else None)[0]
    return tuple(jax.device_put(x.astype(dtype), device) for x in arrays)


def _expect(found: Array, wanted: np.ndarray, allowed: float) -> None:
    error = np.linalg.norm(np.asarray(found, np.float64) - wanted) / np.linalg.norm(wanted)
    if not error < allowed:
        raise ValueError(f"the result is off by {error:.1e}, allowed {allowed:.0e}: its factors had fewer bits")


def _copied(count: int, worlds: int) -> Workload:
    x = np.arange(count, dtype=np.float32)

    def validate(y: Array) -> None:
        if not np.array_equal(np.asarray(y), x + 1):
            raise ValueError("the result is not x + 1")

    return Workload(lambda x: x + 1, (x,), validate)
