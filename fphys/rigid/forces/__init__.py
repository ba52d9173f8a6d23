"""Smooth forces: actuators, tendons, damping, adhesion."""
