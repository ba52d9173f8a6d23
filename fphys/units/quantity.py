"""Arrays with a kind, and the borders at which the kind is checked and left behind."""

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
            return NotImplemented  # what is no number
        a, b = (other, self) if swap else (self, other)
        return labelled(op(value_of(a), value_of(b)), kind(kind_of(a), kind_of(b)))

    return method


def made(kind: Kind, value: Any, unit: str | None) -> Any:
    """What a kind returns when it is called."""
    from .text import one, parse, turns  # stands above

    given = parse(value) if isinstance(value, str) else value
    given = jnp.asarray(given) if isinstance(given, list | tuple) else given
    if not (isinstance(given, int | float | complex | Quantity | Reading) or hasattr(given, "dtype")):
        like = f'"2.5 {kind.unit}"'
        raise UnitError(f"{value!r} is not {article(kind)}: give a number, an array, a quantity, or a text as {like}")
    given = given if unit is None else given * one(unit)
    if isinstance(given, Reading):
        raise UnitError(f"{given} is a reading, for people: make {article(kind)} of the quantity it was read of")
    if not isinstance(given, Quantity) and isinstance(value, str) and kind != number:
        raise UnitError(f"{value!r} has no unit, {article(kind)} needs one, as [{kind.unit}]")
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
    """An array with a kind: a pytree of one leaf. Kinds make them: ``units.force(3.0)``, ``units.parse("3 N")``.

    Sums and comparisons want one kind, products and quotients have theirs. Whatever keeps the kind of an array (a sum,
    a mean, a new shape) is ``jax.tree.map(jnp.mean, quantity)``. Arithmetic that makes no sense raises UnitError while
    it is traced; gradients flow as through the bare array.
    """

    value: Any  # In SI units, of any shape.
    kind: Kind = static()

    __array_ufunc__ = None  # NumPy leaves arithmetic to us
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
    __eq__ = _binary(operator.eq, compared)
    __ne__ = _binary(operator.ne, compared)
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
        """How many axes the array has."""
        return len(self.shape)

    def to(self, unit: str) -> "Reading":
        """What it reads in a unit, for people to look at: ``angle.to("deg").value``.

        Raises:
            UnitError: the unit is another kind's.
        """
        from .text import one, turns  # stands above

        scale, kind = value_of(one(unit)), kind_of(one(unit))
        if not fits(kind, self.kind) or (self.kind.name and turns(unit) != turns(self.kind.unit)):
            raise UnitError(f"{article(self.kind)} [{self.kind.unit}] cannot be read in {unit}, {article(kind)}")
        return Reading(self.value if scale == 1 else self.value / scale, unit, self.kind)

    def within(self, lo: Any, hi: Any) -> "Quantity":
        """This quantity, which must lie in a range, the ends included.

        Args:
            lo, hi: quantities of the same kind, or texts such as "10 N", which broadcast against it.

        Returns:
            The same quantity. Under ``jit`` and ``vmap``, where the numbers are not known, those outside become NaN
            and pass no gradient: a step takes NaN for a fault of that world alone, and :func:`fphys.check` names it.

        Raises:
            UnitError: bounds of another kind. ValueError: a number is outside, or NaN, where that is known.
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
            f"{article(self.kind)} does not pass for a bare number or array: .value has the SI numbers, "
            f".to({self.kind.unit!r}).value those in a unit"
        )

    __float__ = __int__ = __array__ = _refuse  # NumPy would make an array of one object

    def __format__(self, spec: str) -> str:
        """``f"{force:.2f}"``: SI numbers so, and the unit."""
        return f"{_written(self.value, spec)} {self.kind.unit}" if spec else str(self)

    def __repr__(self) -> str:
        return f"<{self.kind.name or 'quantity'} {_show(self)}>"


@pytree
class Reading(Tree):
    """What a quantity reads in some unit: to print and to plot. There is no arithmetic, and solvers refuse it."""

    value: Any  # In the unit, of any shape.
    unit: str = static()  # As it was written.
    kind: Kind = static()

    def __format__(self, spec: str) -> str:
        """``f"{angle.to('deg'):.1f}"``: numbers so, and the unit."""
        return f"{_written(self.value, spec)} {self.unit}" if spec else str(self)

    def __repr__(self) -> str:
        return f"{self.value} {self.unit}"


def si(value: Any, kinds: Kind | tuple[Kind, ...], name: str) -> Any:
    """The SI number of an argument, or a tuple of those in a list or tuple; whatever is no quantity passes unchanged.

    Args:
        kinds: what the argument may be; none at all where only bare arrays make sense.
        name: the argument's, for the message.

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
        raise UnitError(f"{name} is {article(value.kind)}, must be a bare array in SI units: it has no one kind")
    wanted = " or ".join(f"{article(kind)} [{kind.unit}]" for kind in kinds)
    if isinstance(value, Reading):
        fix = f"give the quantity itself, as it was before .to({value.unit!r})"
        raise UnitError(f"{name} is a reading in {value.unit}, must be {wanted}: {fix}")
    if value.kind not in kinds:
        hint = naming(value.kind, kinds[0])
        raise UnitError(f"{name} is {article(value.kind)} [{value.kind.unit}], must be {wanted}{hint}")
    return value.value


def settle(thing: Any, **kinds: Kind | tuple[Kind, ...]) -> None:
    """Put SI numbers and tuples in the place of a frozen dataclass's quantities; for its ``__post_init__``."""
    for name, kind in kinds.items():
        given = getattr(thing, name)
        found = si(given, kind, f"{type(thing).__name__}.{name}")
        if found is not given:
            numbers = np.asarray(found)
            object.__setattr__(thing, name, tuple(numbers.tolist()) if numbers.ndim == 1 else numbers[()])


def bare(tree: Any, kinds: dict[str, Kind], name: str) -> Any:
    """A dataclass whose fields may be quantities, with their SI numbers in place; ``kinds`` by field."""
    values = {field.name: getattr(tree, field.name) for field in dataclasses.fields(tree)}
    given = {key: value for key, value in values.items() if isinstance(value, Quantity | Reading)}
    changes = {key: si(value, kinds.get(key, ()), f"{name}.{key}") for key, value in given.items()}
    return dataclasses.replace(tree, **changes) if changes else tree


def labelled(value: Any, kind: Kind) -> Any:
    """A quantity, or of a number the bare array."""
    return value if kind == number else Quantity(value, kind)


def value_of(x: Any) -> Any:
    """The array, of a quantity or bare."""
    return x.value if isinstance(x, Quantity) else x


def kind_of(x: Any) -> Kind:
    """The kind; of a bare array, a number."""
    return x.kind if isinstance(x, Quantity) else number


def _show(q: Quantity) -> str:
    return f"{_written(q.value, 'g' if np.shape(q.value) == () else '')} {q.kind.unit}"


def _written(value: Any, spec: str) -> str:
    """Numbers by a format specification; what has none (traced, or a second derivative's own quantity) as it is."""
    if not spec or isinstance(value, jax.core.Tracer) or not isinstance(value, _NUMBERS):
        return str(value)
    numbers, one = np.asarray(value), lambda x: format(x, spec)
    return np.array2string(numbers, formatter={"all": one}) if numbers.ndim else one(numbers)
