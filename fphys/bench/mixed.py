"""Training of a GPT in float32, bfloat16 and float16 as benchmark cases: what mixed precision gains.

It is the model of ``fphys.experiments.generate_text``: as the example has it, and with 76 million parameters, which a
processor would train for minutes. Parameters and optimizer are in float32 in all cases; in float16 the loss has a
dynamic scale. The number of worlds is the batch size.
"""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import nn, train
from .case import Case, Workload
from .training import STEPS, learner

GAIN = 2.0
"""What the project promises of sixteen bits on a GPU, where models are large: steps a second, relative to float32."""
TOLERANCE = 2e-2
"""How far the losses of the first steps may be from those in float32, relative to them."""


class Size(NamedTuple):
    """Of a model of characters."""

    features: int
    depth: int
    heads: int
    length: int
    rate: float
    batch: int


SIZES = {"gpt": Size(64, 2, 4, 64, 3e-3, 32), "gpt1024": Size(1024, 6, 16, 512, 3e-4, 32)}
CHARACTERS = 128
KINDS = {
    "float32": (train.FLOAT32, "highest"),
    "default": (train.FLOAT32, None),
    "bfloat16": (train.BFLOAT16, None),
    "float16": (train.FLOAT16, None),
}
"""The precision, and that of products of float32 factors. XLA's default on a GPU keeps ten bits of each factor."""


def mixed_cases(name: str = "gpt") -> list[Case]:
    """A step of Adam in each precision, relative to full float32."""
    return [_case(name, kind) for kind in KINDS]


def _case(name: str, kind: str) -> Case:
    beside = None if kind == "float32" else f"mixed.{name}.float32"
    target = 1 / GAIN if name != "gpt" and kind in ("bfloat16", "float16") else None
    setup, tags = functools.partial(trained, name, kind), ("train", "mixed")
    return Case(f"mixed.{name}.{kind}", setup, 1, "examples", (SIZES[name].batch,), beside, target, tags)


def trained(name: str, kind: str, batch: int) -> Workload:
    """Steps that go on from each other."""
    step = begun(name, kind, batch)

    def validate(first: float) -> None:
        found = [first, *(step() for _ in range(STEPS - 1))]
        if not found[-1] < found[0]:
            raise ValueError(f"the loss does not fall: {found}")
        if kind == "float32":
            _losses[name, batch] = found
        elif not np.allclose(found, wanted := reference(name, batch), rtol=TOLERANCE, atol=0):
            raise ValueError(f"the losses of the first {STEPS} steps are {found}, in float32 {wanted}")

    train.keep_memory()
    return Workload(step, (), validate, jit=False)


_losses: dict[tuple[str, int], list[float]] = {}
"""Of the first steps in float32, by model and batch size."""


def reference(name: str, batch: int) -> list[float]:
    """The losses of the first steps in float32, which is measured before the others."""
    if (name, batch) not in _losses:
        work = trained(name, "float32", batch)
        work.validate(work.fn())
    return _losses[name, batch]


def begun(name: str, kind: str, batch: int) -> Any:
    """A function that takes one step and returns the loss before it."""
    size, (precision, products) = SIZES[name], KINDS[kind]
    with jax.enable_x64(False):
        made = nn.init(functools.partial(_model, size), jax.random.key(0))
    text = np.random.default_rng(0).integers(0, CHARACTERS, (batch, size.length + 1)).astype(np.int32)
    with jax.default_matmul_precision(products or "default"):
        return learner(made, size.rate, (text[:, :-1], text[:, 1:]), precision=precision)


def _model(size: Size, rngs: Any) -> nn.Module:
    blocks = {"features": size.features, "depth": size.depth, "num_heads": size.heads}
    return nn.models.GPT2(CHARACTERS, size.length, **blocks, dropout=0.0, rngs=rngs)
