"""Kernels of constraints and of the solver."""
