"""Training steps as benchmark cases, compared with eager and compiled torch: one step of Adam in float32.

The number of worlds is the batch size. Both sides have the same weights and batches, and the losses of the first steps
must agree. Both keep training while they are timed. Each uses its own default number of threads, and both run with
:func:`fphys.train.keep_memory`.
"""

import functools
import importlib.util
import shutil
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from .. import losses, nn, optim, train
from .case import Case, Workload
from .training_models import LARGE, MODELS, batch, built, rate
from .training_torch import stepper

STEPS = 5  # how many losses are compared

PEERS = ["torch_eager"] if importlib.util.find_spec("torch") else []
PEERS += ["torch_compile"] if PEERS and shutil.which("c++") else []


def training_cases() -> list[Case]:
    """Each model in fphys; in torch if it is installed; and in compiled torch if there is a C++ compiler."""
    cases = []
    for name in MODELS:
        sizes = (8, 32) if name in LARGE else (64, 256)
        made: dict[str, Any] = {"unit": "examples", "worlds": sizes, "tags": ("train", name)}
        cases += [Case(f"train.{name}.{peer}", _torch(name, peer), **made) for peer in PEERS]
        made |= {"relative_to": f"train.{name}.{PEERS[0]}", "target": 1 / 0.95} if PEERS else {}
        cases.append(Case(f"train.{name}.fphys", _fphys(name), **made))
    return cases


def _fphys(name: str) -> Callable[[int], Workload]:
    def setup(size: int) -> Workload:
        step = learner(built(name), rate(name), batch(name, size))
        return Workload(step, (), same(name, size, step), jit=False)

    return setup


def learner(
    made: tuple[Any, Any, Any], rate: float, pair: tuple[Any, Any], precision: train.Precision = train.AS_IT_IS
) -> Callable[[], float]:
    """A function that takes one step of Adam and returns the loss before it.

    Args:
        made: module, parameters and aux. A module that returns more than scores returns them first.
        rate: the learning rate.
        pair: inputs and labels.
        precision: of the loss.
    """
    module, params, aux = made
    optimizer = optim.Adam(rate)

    def loss_fn(params: Any, aux: Any, pair: Any, key: Any) -> tuple[Any, Any, dict[str, Any]]:
        found, aux = nn.apply(module, params, aux, pair[0], train=True)
        return losses.cross_entropy(found[0] if isinstance(found, tuple) else found, pair[1]), aux, {}

    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        state = train.init(params, optimizer, aux=aux, precision=precision)
        pair = jax.device_put(pair)
        update = (
            jax.jit(
                lambda state, pair: train.step(loss_fn, optimizer, state, pair, precision=precision), donate_argnums=0
            )
            .lower(state, pair)
            .compile(train.compiler_options())
        )

    def step() -> float:
        nonlocal state
        state, row = update(state, pair)
        return float(row["loss"])

    return step


def _torch(name: str, peer: str) -> Callable[[int], Workload]:
    def setup(size: int) -> Workload:
        step = stepper(name, size, compiled=peer == "torch_compile")
        return Workload(step, (), same(name, size, step), jit=False)

    return setup


def same(name: str, size: int, step: Callable[[], float]) -> Callable[[float], None]:
    """Check that the losses of the first steps fall, and agree with eager torch if it is installed."""

    train.keep_memory()

    def validate(first: float) -> None:
        found = [first, *(step() for _ in range(STEPS - 1))]
        if not found[-1] < found[0]:
            raise ValueError(f"the loss does not fall: {found}")
        if PEERS and not np.allclose(found, wanted := reference(name, size), rtol=1e-4, atol=0):
            raise ValueError(f"the losses of the first {STEPS} steps are {found}, torch's {wanted}")

    return validate


@functools.lru_cache
def reference(name: str, size: int) -> list[float]:
    """The losses of the first steps in eager torch."""
    step = stepper(name, size)
    return [step() for _ in range(STEPS)]
