"""Kinds of quantities, and the laws by which two kinds give a third."""

import dataclasses
import functools
from fractions import Fraction
from typing import Any

from ..errors import UnitError


@dataclasses.dataclass(frozen=True)
class Kind:
    """What a quantity is. A kind is callable: ``length(2.5)``, ``length("2.5 cm")``, ``length(array, "ft")``.

    ``torque(force * lever)`` names an ambiguous product.
    """

    name: str  # Empty if only the dimension is known.
    dims: tuple[int | Fraction, ...]  # Exponents of metre, kilogram and second.
    unit: str

    def __call__(self, value: Any, unit: str | None = None) -> Any:
        """Make a quantity of this kind, stored in SI units.

        Args:
            value: a number or array of any shape, in ``unit`` or by default in SI units; a text such as "2.5 cm"; or a
                quantity of this kind, or of this dimension without a kind. Gradients flow to it. Arrays of integers
                become floating-point.

        Raises:
            UnitError: the value has another dimension or kind; or a text has no unit, or another power of angle than
                the kind's unit.
        """
        from .quantity import made  # imported late: quantity imports this module

        return made(self, value, unit)


number = Kind("number", (0, 0, 0), "1")
angle = Kind("angle", (0, 0, 0), "rad")
length = Kind("length", (1, 0, 0), "m")
area = Kind("area", (2, 0, 0), "m^2")
volume = Kind("volume", (3, 0, 0), "m^3")
mass = Kind("mass", (0, 1, 0), "kg")
time = Kind("time", (0, 0, 1), "s")  # a point in time; the difference of two is a duration
duration = Kind("duration", (0, 0, 1), "s")
frequency = Kind("frequency", (0, 0, -1), "Hz")
velocity = Kind("velocity", (1, 0, -1), "m/s")
angular_velocity = Kind("angular velocity", (0, 0, -1), "rad/s")
acceleration = Kind("acceleration", (1, 0, -2), "m/s^2")
angular_acceleration = Kind("angular acceleration", (0, 0, -2), "rad/s^2")
force = Kind("force", (1, 1, -2), "N")
torque = Kind("torque", (2, 1, -2), "N m")
energy = Kind("energy", (2, 1, -2), "J")
power = Kind("power", (2, 1, -3), "W")
momentum = Kind("momentum", (1, 1, -1), "kg m/s")
angular_momentum = Kind("angular momentum", (2, 1, -1), "kg m^2/s")
inertia = Kind("inertia", (2, 1, 0), "kg m^2")
density = Kind("density", (-3, 1, 0), "kg/m^3")
pressure = Kind("pressure", (-1, 1, -2), "Pa")
viscosity = Kind("viscosity", (-1, 1, -1), "Pa s")
stiffness = Kind("stiffness", (0, 1, -2), "N/m")
angular_stiffness = Kind("angular stiffness", (2, 1, -2), "N m/rad")
damping = Kind("damping", (0, 1, -1), "N s/m")
angular_damping = Kind("angular damping", (2, 1, -1), "N m s/rad")

_ALONE = {
    kind.dims: kind
    for kind in (length, area, volume, mass, duration, velocity, acceleration, force, power, momentum, inertia)
    + (density, pressure, viscosity)
}
"""Kinds that a product gets from its dimension alone."""

_LAWS = (
    (energy, torque, angle),
    (energy, power, duration),
    (power, torque, angular_velocity),
    (torque, inertia, angular_acceleration),
    (torque, angular_stiffness, angle),
    (torque, angular_damping, angular_velocity),
    (angular_momentum, torque, duration),
    (angular_momentum, inertia, angular_velocity),
    (angle, angular_velocity, duration),
    (angular_velocity, angular_acceleration, duration),
    (angular_velocity, angle, frequency),
    (number, frequency, duration),
    (force, stiffness, length),
    (force, damping, velocity),
)
"""(c, a, b): c = a b, and therefore a = c / b and b = c / a."""

_AMBIGUOUS = Kind("", power.dims, "kg m^2/s^3")  # these have a power's dimension but need not be one
_PRODUCT = {(torque, frequency): _AMBIGUOUS, (energy, angular_velocity): _AMBIGUOUS}
_QUOTIENT = {(torque, duration): _AMBIGUOUS}
_PRODUCT |= {(a, b): c for c, a, b in _LAWS}
_PRODUCT |= {(b, a): c for (a, b), c in _PRODUCT.items()}
_QUOTIENT |= {(c, a): b for c, a, b in _LAWS} | {(c, b): a for c, a, b in _LAWS}


@functools.cache
def times(a: Kind, b: Kind) -> Kind:
    """The kind of a product."""
    a, b = span(a), span(b)
    if number in (a, b):
        return b if a == number else a
    return _PRODUCT.get((a, b)) or known(tuple(x + y for x, y in zip(a.dims, b.dims, strict=True)))


@functools.cache
def over(a: Kind, b: Kind) -> Kind:
    """The kind of a quotient."""
    a, b = span(a), span(b)
    if a == b or b == number:
        return number if a == b else a
    return _QUOTIENT.get((a, b)) or known(tuple(x - y for x, y in zip(a.dims, b.dims, strict=True)))


def power_of(a: Kind, exponent: int) -> Kind:
    """The kind of a whole power."""
    factors = [a] * abs(exponent)
    return functools.reduce(times, factors, number) if exponent >= 0 else functools.reduce(over, factors, number)


def plus(a: Kind, b: Kind) -> Kind:
    """The kind of a sum."""
    if {a, b} == {time, duration}:
        return time
    return _same(a, b, "added to") if a != time else _differ(a, b, "added to")


def minus(a: Kind, b: Kind) -> Kind:
    """The kind of a difference."""
    if a == time and b in (time, duration):
        return duration if b == time else time
    return _same(a, b, "taken from", backwards=True)


def _same(a: Kind, b: Kind, verb: str, *, backwards: bool = False) -> Kind:
    return a if a == b else _differ(*((b, a) if backwards else (a, b)), verb)


def _differ(a: Kind, b: Kind, verb: str) -> Any:
    raise UnitError(f"{article(a)} cannot be {verb} {article(b)}{naming(a, b) or naming(b, a)}")


def compared(a: Kind, b: Kind) -> Kind:
    """The kind of a comparison."""
    _same(a, b, "compared with")
    return number


def known(dims: tuple[Any, ...]) -> Kind:
    """The only kind with a dimension, or a nameless kind."""
    dims = tuple(int(x) if Fraction(x).denominator == 1 else x for x in dims)
    powers = [("kg", dims[1]), ("m", dims[0]), ("s", dims[2])]
    above = " ".join(_raised(unit, x) for unit, x in powers if x > 0) or "1"
    below = "".join(f"/{_raised(unit, -x)}" for unit, x in powers if x < 0)
    return _ALONE.get(dims) or Kind("", dims, above + below)


def _raised(unit: str, exponent: Any) -> str:
    return unit if exponent == 1 else f"{unit}^{exponent}"


def span(kind: Kind) -> Kind:
    """A time's kind in products: a duration, counted from zero."""
    return duration if kind == time else kind


def fits(given: Kind, wanted: Kind) -> bool:
    """Whether a quantity of one kind may be named as another."""
    return span(given) == span(wanted) or ("" in (given.name, wanted.name) and given.dims == wanted.dims)


def article(kind: Kind) -> str:
    """A kind's name with its article."""
    name = kind.name or f"quantity of {kind.unit} without a kind"
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def naming(given: Kind, wanted: Kind) -> str:
    """Why one kind is not the other, worded as the end of a sentence."""
    if given.dims != wanted.dims:
        return "" if number in (given, wanted) else f": {given.unit} and {wanted.unit} differ in dimension"
    if not given.name and wanted.name:
        return f": its dimension fits, so name it, units.{wanted.name.replace(' ', '_')}(...), if that is what it is"
    return ": both have the same dimension, but they are different kinds"
