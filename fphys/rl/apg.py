"""Analytic policy gradient: the policy climbs the exact gradient of a motion's rewards, and no value follows it.

This is :mod:`fphys.rl.shac` without its critic, over longer motions; for tasks without contact, in which gradients stay
small (Freeman et al. 2021, "Brax").
"""

import dataclasses

from . import shac
from .shac import expect, init, policy, train, update

__all__ = ["Config", "expect", "init", "policy", "train", "update"]


@dataclasses.dataclass(frozen=True)
class Config(shac.Config):
    horizon: int = 100
    bootstrap: bool = False
    critic_epochs: int = 1
    """A value is learned for the logs; the policy does not see it."""
