"""Quantities: numbers that know what they are, checked while JAX traces, gone when it compiles.

A quantity is an SI number with a *kind*. The kind has a dimension and says what the dimension does not: a torque and
an energy are both kg m^2/s^2, and neither passes for the other. Products find their kind by the laws of mechanics, or
by their dimension where one kind alone has it; what stays ambiguous, as force times length, has none until it is
named: ``units.energy(force * length)``. Kinds are static, so that programs with units compile to those without.

The dimensions are those of the SI (BIPM 2019), an angle's being one; inches, pounds and their like are exact by the
agreement of 1959.
"""

from ..errors import UnitError
from .calculus import cos, cross, dot, grad, norm, sin, sqrt, value_and_grad, wrench
from .kinds import (
    Kind,
    acceleration,
    angle,
    angular_acceleration,
    angular_damping,
    angular_momentum,
    angular_stiffness,
    angular_velocity,
    area,
    damping,
    density,
    duration,
    energy,
    force,
    frequency,
    inertia,
    length,
    mass,
    momentum,
    number,
    power,
    pressure,
    stiffness,
    time,
    torque,
    velocity,
    viscosity,
    volume,
)
from .quantity import Quantity, Reading, bare, settle, si
from .text import parse

__all__ = [
    "Kind",
    "Quantity",
    "Reading",
    "UnitError",
    "acceleration",
    "angle",
    "angular_acceleration",
    "angular_damping",
    "angular_momentum",
    "angular_stiffness",
    "angular_velocity",
    "area",
    "bare",
    "cos",
    "cross",
    "damping",
    "density",
    "dot",
    "duration",
    "energy",
    "force",
    "frequency",
    "grad",
    "inertia",
    "length",
    "mass",
    "momentum",
    "norm",
    "number",
    "parse",
    "power",
    "pressure",
    "settle",
    "si",
    "sin",
    "sqrt",
    "stiffness",
    "time",
    "torque",
    "value_and_grad",
    "velocity",
    "viscosity",
    "volume",
    "wrench",
]
