"""Soft analytic policy optimisation (Xing et al. 2025, arXiv:2412.12089): SHAC that also climbs the policy's entropy.

The entropy keeps the policy from settling early. It is weighed by a temperature, which is learned so that a wanted
entropy stays. Two values are learned against overestimation, as in soft actor-critic. All of it is in
:mod:`fphys.rl.shac`; these are its figures.
"""

import dataclasses

from . import shac
from .shac import expect, init, policy, train, update

__all__ = ["Config", "expect", "init", "policy", "train", "update"]


@dataclasses.dataclass(frozen=True)
class Config(shac.Config):
    horizon: int = 12
    """Steps through which a gradient passes. An ant's derivatives grow by a factor e in four steps."""
    learning_rate: float = 1e-3
    critic_rate_end: float = 0.05
    critics: int = 2
    temperature: float = 1.0
    temperature_rate: float = 5e-3
