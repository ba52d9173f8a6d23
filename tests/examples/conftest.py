"""Examples run as users run them: float32, nothing strict."""

import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

from ..rigid.quick import quick_compilation

__all__ = ["quick_compilation"]
FOLDER = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(x32: None) -> Iterator[Callable[[str], Callable[..., Any]]]:
    """``example("classify")(epochs=1)``: the example's ``main`` with these options."""

    def found(name: str) -> Callable[..., Any]:
        module = runpy.run_path(str(FOLDER / f"{name}.py"))
        return lambda **options: module["main"](module["Config"](quiet=True, **options))

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield found
