"""Stop when a metric no longer improves."""

import dataclasses
import math
import sys


@dataclasses.dataclass(frozen=True)
class EarlyStop:
    """Stop after ``patience`` evaluations in a row without an improvement of more than ``delta``.

    ``metric`` is a name that ``evaluate`` returns, or one of the training step's metrics. NaN counts as no
    improvement.
    """

    metric: str = "loss"
    patience: int = 5
    delta: float = 0.0
    maximise: bool = False

    def __post_init__(self) -> None:
        if self.patience < 1 or self.delta < 0:
            raise ValueError(f"patience={self.patience}, delta={self.delta}: must be at least 1 and at least 0")

    def init(self) -> tuple[float, int]:
        """The best value so far, and the number of evaluations since then."""
        return (-math.inf if self.maximise else math.inf), 0

    def update(self, state: tuple[float, int], value: float) -> tuple[float, int]:
        """The state after another value."""
        best, waited = state
        better = value > best + self.delta if self.maximise else value < best - self.delta
        return (value, 0) if better else (best, waited + 1)

    def done(self, state: tuple[float, int]) -> bool:
        """Whether ``patience`` evaluations in a row brought no improvement."""
        return state[1] >= self.patience


NEVER = EarlyStop(patience=sys.maxsize)
