"""Kernels of smooth forces: joints, tendons, actuators, muscles, the medium."""
