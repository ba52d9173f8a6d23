"""Arrays with a kind, and the functions that check the kind and remove it."""

import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from ..errors import UnitError
from ..tree import Tree, pytree, static
from .kinds import Kind, article, compared, fits, minus, naming, number, over, plus, power_of, times

_NUMBERS = (int, float, complex, np.ndarray, np.generic, jax.Array)


def _binary(op: Callable[..., Any], kind: Callable[[Kind, Kind], Kind], *, swap: bool = False) -> Any:
    def method(self: "Quantity", other: Any) -> Any:
        if other is None or isinstance(other, str | Reading | list | tuple | dict):
            return NotImplemented  # not a number
        a, b = (other, self) if swap else (self, other)
        return labelled(op(value_of(a), value_of(b)), kind(kind_of(a), kind_of(b)))

    return method


def _equality(op: Callable[..., Any]) -> Any:
    compare = _binary(op, compared)

    def method(self: "Quantity", other: Any) -> Any:
        found = compare(self, other)
        if found is NotImplemented and other is not None:  # Python would compare the identities
            raise UnitError(f"{article(self.kind)} cannot be compared with {other!r}: make a quantity of it first")
        return found

    return method


def made(kind: Kind, value: Any, unit: str | None) -> Any:
    """Make a quantity of a kind."""
    from .text import one, parse, turns  # imported late: text imports this module

    given = parse(value) if isinstance(value, str) else value
    given = jnp.asarray(given) if isinstance(given, list | tuple) else given
    if not (isinstance(given, int | float | complex | Quantity | Reading) or hasattr(given, "dtype")):
        like = f'"2.5 {kind.unit}"'
        raise UnitError(f"{value!r} is not {article(kind)}: give a number, an array, a quantity, or a text like {like}")
    given = given if unit is None else _floating(given) * one(unit)
    if isinstance(given, Reading):
        raise UnitError(f"{given} is a reading, for display only: make {article(kind)} of the original quantity")
    if not isinstance(given, Quantity) and isinstance(value, str) and kind != number:
        raise UnitError(f"{value!r} has no unit, {article(kind)} needs one, such as [{kind.unit}]")
    if isinstance(given, Quantity) and not fits(given.kind, kind):
        text = repr(value) if isinstance(value, str) else _show(given)
        raise UnitError(f"{text} is {article(given.kind)}, not {article(kind)}")
    texts = [text for text in (value, unit) if isinstance(text, str)]
    if texts and kind.name and not isinstance(value, Quantity):
        angles, wanted = sum(map(turns, texts)), turns(kind.unit)
        if angles != wanted:
            raise UnitError(
                f"{' '.join(texts)!r} has the power {angles} of angle (rad, deg, rev, rpm), {article(kind)} "
                f"[{kind.unit}] has {wanted}"
            )
    return labelled(value_of(given), kind)


@pytree
class Quantity(Tree):
    """An array with a kind: a pytree with one leaf. Make one with ``units.force(3.0)`` or ``units.parse("3 N")``.

    Sums and comparisons need equal kinds; products and quotients get a kind of their own. Use ``jax.tree.map(jnp.mean,
    quantity)`` for functions that keep the kind (a sum, a mean, a reshape). Arithmetic without a meaning raises
    UnitError at trace time. Gradients flow as through the bare array.
    """

    value: Any  # In SI units, any shape.
    kind: Kind = static()

    __array_ufunc__ = None  # NumPy leaves arithmetic to this class
    __add__ = _binary(operator.add, plus)
    __radd__ = _binary(operator.add, plus, swap=True)
    __sub__ = _binary(operator.sub, minus)
    __rsub__ = _binary(operator.sub, minus, swap=True)
    __mul__ = _binary(operator.mul, times)
    __rmul__ = _binary(operator.mul, times, swap=True)
    __truediv__ = _binary(operator.truediv, over)
    __rtruediv__ = _binary(operator.truediv, over, swap=True)
    __lt__ = _binary(operator.lt, compared)
    __le__ = _binary(operator.le, compared)
    __gt__ = _binary(operator.gt, compared)
    __ge__ = _binary(operator.ge, compared)
    __eq__ = _equality(operator.eq)
    __ne__ = _equality(operator.ne)
    __hash__ = None  # type: ignore[assignment]

    def __pow__(self, exponent: int) -> Any:
        return labelled(self.value**exponent, power_of(self.kind, operator.index(exponent)))

    def __neg__(self) -> "Quantity":
        return Quantity(-self.value, self.kind)

    def __abs__(self) -> "Quantity":
        return Quantity(abs(self.value), self.kind)

    def __getitem__(self, index: Any) -> "Quantity":
        return Quantity(self.value[index], self.kind)

    def __iter__(self) -> Any:
        return (Quantity(value, self.kind) for value in self.value)

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape."""
        return np.shape(self.value)

    @property
    def ndim(self) -> int:
        """The array's number of axes."""
        return len(self.shape)

    def to(self, unit: str) -> "Reading":
        """Convert to another unit for display: ``angle.to("deg").value``.

        Raises:
            UnitError: the unit is of another kind.
        """
        from .text import one, turns  # imported late: text imports this module

        scale, kind = value_of(one(unit)), kind_of(one(unit))
        if not fits(kind, self.kind) or (self.kind.name and turns(unit) != turns(self.kind.unit)):
            raise UnitError(f"{article(self.kind)} [{self.kind.unit}] cannot be read in {unit}, {article(kind)}")
        return Reading(self.value if scale == 1 else self.value / scale, unit, self.kind)

    def within(self, lo: Any, hi: Any) -> "Quantity":
        """Check that this quantity lies in a range, bounds included, and return it.

        Args:
            lo, hi: quantities of the same kind, or texts such as "10 N"; they broadcast against it.

        Returns:
            The same quantity. Under ``jit`` and ``vmap`` the values are unknown, so those outside become NaN and pass
            no gradient. A step treats NaN as a fault of that world alone, and :func:`fphys.check` names it.

        Raises:
            UnitError: a bound is of another kind. ValueError: outside ``jit``, a value is out of range or NaN.
        """
        lo, hi = (self.kind(end) if isinstance(end, str) else end for end in (lo, hi))
        inside = (self >= lo) & (self <= hi)
        if isinstance(inside, jax.core.Tracer):
            return Quantity(jnp.where(inside, self.value, jnp.nan), self.kind)
        if not np.all(inside):
            first = tuple(map(int, np.argwhere(~np.asarray(inside))[0]))
            at = f" at {first}" if first else ""
            bad = np.broadcast_to(jax.lax.stop_gradient(self.value), np.shape(inside))[first]
            raise ValueError(
                f"{article(self.kind)} of {bad:g} {self.kind.unit}{at} is outside [{_show(lo)}, {_show(hi)}]: "
                "clip it, or widen the bounds"
            )
        return self

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise UnitError(
            f"{article(self.kind)} cannot be used as a bare number or array: .value holds the SI numbers, "
            f".to({self.kind.unit!r}).value those in a unit"
        )

    __bool__ = __float__ = __int__ = __array__ = _refuse  # otherwise NumPy would make an object array

    def __format__(self, spec: str) -> str:
        """``f"{force:.2f}"``: the SI numbers in this format, and the unit."""
        return f"{_written(self.value, spec)} {self.kind.unit}" if spec else str(self)

    def __repr__(self) -> str:
        return f"<{self.kind.name or 'quantity'} {_show(self)}>"


@pytree
class Reading(Tree):
    """A quantity's value in some unit, to print and plot. It has no arithmetic, and solvers refuse it."""

    value: Any  # In the unit, any shape.
    unit: str = static()  # As the user wrote it.
    kind: Kind = static()

    def __format__(self, spec: str) -> str:
        """``f"{angle.to('deg'):.1f}"``: the numbers in this format, and the unit."""
        return f"{_written(self.value, spec)} {self.unit}" if spec else str(self)

    def __repr__(self) -> str:
        return f"{self.value} {self.unit}"


def si(value: Any, kinds: Kind | tuple[Kind, ...], name: str) -> Any:
    """The SI value of an argument, or a tuple of them for a list or tuple. Bare values pass unchanged.

    Args:
        kinds: the allowed kinds; empty if only bare arrays make sense.
        name: the argument's name, for the message.

    Raises:
        UnitError: a quantity of another kind, or a reading.
    """
    if isinstance(value, list | tuple):
        numbers = tuple(si(x, kinds, name) for x in value)
        return value if all(x is y for x, y in zip(numbers, value, strict=True)) else numbers
    if not isinstance(value, Quantity | Reading):
        return value
    kinds = (kinds,) if isinstance(kinds, Kind) else kinds
    if not kinds:
        raise UnitError(f"{name} is {article(value.kind)}, must be a bare array in SI units: its entries differ")
    wanted = " or ".join(f"{article(kind)} [{kind.unit}]" for kind in kinds)
    if isinstance(value, Reading):
        fix = f"give the quantity itself, without .to({value.unit!r})"
        raise UnitError(f"{name} is a reading in {value.unit}, must be {wanted}: {fix}")
    if value.kind not in kinds:
        hint = naming(value.kind, kinds[0])
        raise UnitError(f"{name} is {article(value.kind)} [{value.kind.unit}], must be {wanted}{hint}")
    return value.value


def settle(thing: Any, **kinds: Kind | tuple[Kind, ...]) -> None:
    """Replace a frozen dataclass's quantities by SI numbers and tuples. For use in its ``__post_init__``."""
    for name, kind in kinds.items():
        given = getattr(thing, name)
        found = si(given, kind, f"{type(thing).__name__}.{name}")
        if found is not given:
            numbers = np.asarray(found)
            object.__setattr__(thing, name, tuple(numbers.tolist()) if numbers.ndim == 1 else numbers[()])


def bare(tree: Any, kinds: dict[str, Kind], name: str) -> Any:
    """A dataclass with its quantities replaced by their SI values. ``kinds`` gives the allowed kinds by field."""
    values = {field.name: getattr(tree, field.name) for field in dataclasses.fields(tree)}
    given = {key: value for key, value in values.items() if isinstance(value, Quantity | Reading)}
    changes = {key: si(value, kinds.get(key, ()), f"{name}.{key}") for key, value in given.items()}
    return dataclasses.replace(tree, **changes) if changes else tree


def labelled(value: Any, kind: Kind) -> Any:
    """A quantity; or the bare array if the kind is a number."""
    return value if kind == number else Quantity(_floating(value), kind)


def _floating(value: Any) -> Any:
    """The value, an array of integers as floats: in uint8 1 m - 2 m is 255 m."""
    whole = hasattr(value, "dtype") and jnp.issubdtype(value.dtype, jnp.integer)
    return value.astype(float) if whole else value


def value_of(x: Any) -> Any:
    """The bare array of a quantity or array."""
    return x.value if isinstance(x, Quantity) else x


def kind_of(x: Any) -> Kind:
    """The kind of a quantity; ``number`` for a bare array."""
    return x.kind if isinstance(x, Quantity) else number


def _show(q: Quantity) -> str:
    return f"{_written(q.value, 'g' if np.shape(q.value) == () else '')} {q.kind.unit}"


def _written(value: Any, spec: str) -> str:
    """Format numbers. Values without a format (traced, or a second derivative's quantity) are shown as they are."""
    if not spec or isinstance(value, jax.core.Tracer) or not isinstance(value, _NUMBERS):
        return str(value)
    numbers, one = np.asarray(value), lambda x: format(x, spec)
    return np.array2string(numbers, formatter={"all": one}) if numbers.ndim else one(numbers)
