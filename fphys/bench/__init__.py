"""Benchmarks: cases as data, one harness, every result validated before it is timed."""

from .case import Case, Workload
from .run import main

__all__ = ["Case", "Workload", "main"]
