"""Units by name: SI with prefixes, imperial, degrees."""

import functools
import math
import re
from typing import Any

from ..errors import UnitError
from .kinds import (
    Kind,
    angle,
    angular_damping,
    angular_stiffness,
    angular_velocity,
    duration,
    energy,
    force,
    frequency,
    length,
    mass,
    number,
    power,
    pressure,
    velocity,
)
from .quantity import kind_of, labelled, value_of

_PREFIXED: dict[str, tuple[float, Kind]] = {
    "m": (1.0, length), "g": (1e-3, mass), "s": (1.0, duration), "rad": (1.0, angle), "Hz": (1.0, frequency),
    "N": (1.0, force), "J": (1.0, energy), "W": (1.0, power), "Pa": (1.0, pressure), "bar": (1e5, pressure),
}  # fmt: skip
_OTHERS = {
    "t": (1e3, mass), "lb": (0.45359237, mass), "oz": (0.028349523125, mass),
    "slug": (4.4482216152605 / 0.3048, mass), "in": (0.0254, length), "ft": (0.3048, length), "yd": (0.9144, length),
    "mi": (1609.344, length), "min": (60.0, duration), "h": (3600.0, duration), "deg": (math.pi / 180, angle),
    "°": (math.pi / 180, angle), "rev": (2 * math.pi, angle), "rpm": (2 * math.pi / 60, angular_velocity),
    "mph": (0.44704, velocity), "lbf": (4.4482216152605, force), "psi": (4.4482216152605 / 0.0254**2, pressure),
    "hp": (550 * 0.3048 * 4.4482216152605, power), "atm": (101325.0, pressure), "1": (1.0, number),
}  # fmt: skip
_PREFIXES = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "c": 1e-2, "d": 0.1, "h": 100.0, "k": 1e3, "M": 1e6, "G": 1e9}
_LISTED = f"{', '.join(_PREFIXED)} with or without one of {' '.join(_PREFIXES)}, and {', '.join(_OTHERS)}"
_PREFIXES["\u03bc"] = _PREFIXES["\u00b5"]  # the Greek letter and the micro sign look the same
_UNITS = {prefix + unit: (x * y, kind) for unit, (y, kind) in _PREFIXED.items() for prefix, x in _PREFIXES.items()}
_UNITS |= _PREFIXED | _OTHERS | {"kg": (1.0, mass), "mg": (1e-6, mass)}
_TURNS = {angle: 1, angular_velocity: 1}  # powers of angle; other units have none
_BY_TURNS = {(kind.dims, -1): kind for kind in (angular_stiffness, angular_damping)}  # otherwise nameless
_TEXT = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*")
_FACTOR = re.compile(r"\s*([*·/]?)\s*([^\W\d²³]+|°|1)(?:(?:\^|\*\*)?([+-]?\d+)|([²³]))?")


def parse(text: str) -> Any:
    """Parse ``"2.5 cm"``, ``"9.81 m/s^2"`` or ``"30 deg"`` into a quantity; without a unit, into a number.

    Units are separated by a space, ``*`` or ``·``. Each ``/`` applies only to the unit right after it.

    Raises:
        UnitError: the text is not a number and units, or a unit is unknown.
    """
    if not isinstance(text, str):
        raise UnitError(f'{text!r} is not a text like "2.5 cm": call a kind to make a quantity, as units.length(...)')
    found = _TEXT.fullmatch(text)
    if not found:
        raise UnitError(f'{text!r} does not begin with a number: write it as "2.5 cm" or "3 N m"')
    return float(found[1]) * one(found[2]) if found[2] else float(found[1])


def one(text: str) -> Any:
    """One unit as a quantity; 1 deg is 0.0174 rad. A product of units has the kind of the product."""
    return _read(text)[0]


def turns(text: str) -> int:
    """The power of angle in a unit, with or without a number: 1 in "rad/s", -1 in "3 N m/deg", 0 in "m"."""
    found = _TEXT.fullmatch(text)
    return _read(found[2] if found else text)[1]


@functools.cache
def _read(text: str) -> tuple[Any, int]:
    """A unit as a quantity, and its power of angle, which the dimension lacks. The power gives N m/rad its kind."""
    if not isinstance(text, str):
        raise UnitError(f'{text!r} is not a unit such as "cm" or "N m"')
    result, angles, at = 1.0, 0, 0
    while at < len(text):
        found = _FACTOR.match(text, at)
        if not found or found[2] not in _UNITS:
            what = found[2] if found else text[at:]
            raise UnitError(f"{text!r}: unknown unit {what!r}; known are {_LISTED}")
        scale, kind = _UNITS[found[2]]
        exponent = int(found[3] or {"²": 2, "³": 3}.get(found[4], 1)) * (-1 if found[1] == "/" else 1)
        for _ in range(abs(exponent)):  # one at a time, so that rad/s^2 is an angular acceleration
            factor = labelled(scale, kind)
            result = result * factor if exponent > 0 else result / factor
        angles += exponent * _TURNS.get(kind, 0)
        at = found.end()
    kind = kind_of(result)
    kind = kind if kind.name else _BY_TURNS.get((kind.dims, angles), kind)
    return labelled(value_of(result), kind), angles
