"""Quantities: numbers with a kind, checked while JAX traces and free of cost once it has compiled.

A quantity is an SI number with a *kind*. The kind has a dimension, and also says what the dimension does not: torque
and energy are both kg m^2/s^2, but neither is accepted as the other. A product's kind follows from the laws of
mechanics, or from its dimension if only one kind has it. An ambiguous product, such as force times length, has no kind
until you name it: ``units.energy(force * length)``. Kinds are static, so units do not change the compiled program.

Dimensions are those of the SI (BIPM 2019), in which an angle is dimensionless. Inches, pounds and related units are
exact by the 1959 agreement.
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
