"""Rigid bodies in MuJoCo's coordinates: a :class:`fphys.worlds.Solver`, whose params are a model."""

from ..model import Model, State, init, reset
from ..model import check as _check
from .step import step

__all__ = ["check", "init", "reset", "step"]


def check(model: Model, state: State) -> None:
    """Raise StateError on the host if a world is faulty, like :func:`fphys.check`; the model is not read."""
    _check(state)
