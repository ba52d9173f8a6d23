"""Training: ``fit``, and its building blocks if you write your own loop.

::

    state = train.init(params, optimizer)
    advance = jax.jit(functools.partial(train.step, loss_fn, optimizer), compiler_options=train.compiler_options())
    for batch in data:
        state, metrics = advance(state, batch)
"""

from .checkpoint import CheckpointError, Checkpoints
from .compiling import compiler_options
from .fit import Result, TrainingError, fit
from .memory import keep_memory
from .precision import AS_IT_IS, BFLOAT16, FLOAT16, FLOAT32, Precision
from .scale import LossScale
from .step import TrainState, init, step
from .stop import EarlyStop

__all__ = [
    "AS_IT_IS",
    "BFLOAT16",
    "FLOAT16",
    "FLOAT32",
    "CheckpointError",
    "Checkpoints",
    "EarlyStop",
    "LossScale",
    "Precision",
    "Result",
    "TrainState",
    "TrainingError",
    "compiler_options",
    "fit",
    "init",
    "keep_memory",
    "step",
]
