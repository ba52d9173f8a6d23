"""Identification: parameters of a system from a recorded motion."""

from .least_squares import Estimate, Step, Windows, deviations, estimate, least_squares, simulate, windows
from .recording import Recording, RecordingError, read

__all__ = [
    "Estimate",
    "Recording",
    "RecordingError",
    "Step",
    "Windows",
    "deviations",
    "estimate",
    "least_squares",
    "read",
    "simulate",
    "windows",
]
