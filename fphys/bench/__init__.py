"""Benchmarks: cases as data, one harness, and every result validated before it is timed."""

from .case import Case, Workload
from .run import main

__all__ = ["Case", "Workload", "main"]
