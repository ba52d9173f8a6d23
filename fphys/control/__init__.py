"""Control: a feedback law, and the controls of a whole motion."""

from .ilqr import Cost, Plan, ilqr, plan
from .pd import pd

__all__ = ["Cost", "Plan", "ilqr", "pd", "plan"]
