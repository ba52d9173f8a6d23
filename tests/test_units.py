"""Quantities: what they refuse, which kinds products get, and that jit compiles them away."""

import copy
import math
import operator
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fphys import units
from fphys.errors import UnitError
from fphys.testing import check_grads
from fphys.units.kinds import _LAWS

KINDS = {name: value for name in units.__all__ if isinstance(value := getattr(units, name), units.Kind)}
FORCE, LEVER = np.array([0.0, 2.0, 0.0]), np.array([3.0, 0.0, 0.0])


def test_every_kind_has_its_name():
    assert len(KINDS) == 27
    for name, kind in KINDS.items():
        assert kind.name.replace(" ", "_") == name
        assert kind(2.0) == 2.0 if kind == units.number else kind(2.0).kind == kind


@pytest.mark.parametrize(
    ("made", "kind", "si"),
    [
        (units.parse("2.5 cm"), units.length, 0.025),
        (units.parse("-1e3 mm"), units.length, -1.0),
        (units.parse("90 deg"), units.angle, math.pi / 2),
        (units.parse("1 rev"), units.angle, 2 * math.pi),
        (units.parse("60 rpm"), units.angular_velocity, 2 * math.pi),
        (units.parse("180 deg/s^2"), units.angular_acceleration, math.pi),
        (units.parse("50 Hz"), units.frequency, 50.0),
        (units.parse("50/s"), units.frequency, 50.0),
        (units.parse("36 km/h"), units.velocity, 10.0),
        (units.parse("9.81 m/s²"), units.acceleration, 9.81),
        (units.parse("9.81 m s^-2"), units.acceleration, 9.81),
        (units.parse("1 kg·m/s"), units.momentum, 1.0),
        (units.parse("2 kPa"), units.pressure, 2000.0),
        (units.parse("1 mPa s"), units.viscosity, 1e-3),
        (units.parse("1 g/cm^3"), units.density, 1000.0),
        (units.parse("1 lbf/in^2"), units.pressure, 6894.757293168361),
        (units.parse("1 psi"), units.pressure, 6894.757293168361),
        (units.parse("5 \u00b5m"), units.length, 5e-6),
        (units.parse("5 \u03bcm"), units.length, 5e-6),
        (units.parse("3 N m/rad"), units.angular_stiffness, 3.0),
        (units.parse("180 N m s/deg"), units.angular_damping, 180 * 180 / math.pi),
        (units.parse("1 slug"), units.mass, 14.593902937206364),
        (units.parse("1 hp"), units.power, 745.6998715822702),
        (units.parse("3 kW h"), units.energy, 1.08e7),
        (units.length(3, "ft"), units.length, 0.9144),
        (units.length("3 ft"), units.length, 0.9144),
        (units.torque("1 lbf ft"), units.torque, 1.3558179483314003),
        (units.torque(np.float64(2), "N m"), units.torque, 2.0),
        (units.energy("2 N m"), units.energy, 2.0),
        (units.damping("2 N s/m"), units.damping, 2.0),
        (units.angular_stiffness("1 N m/deg"), units.angular_stiffness, 180 / math.pi),
        (units.inertia("2 kg m^2"), units.inertia, 2.0),
        (units.time("3 ms"), units.time, 3e-3),
        (units.volume("1 cm^3"), units.volume, 1e-6),
        (units.acceleration("1 N/kg"), units.acceleration, 1.0),
    ],
)
def test_units_in(made, kind, si):
    assert made.kind == kind
    assert made.value == pytest.approx(si, rel=1e-15)


def test_a_number_is_a_bare_value():
    assert units.parse("2.5") == 2.5 and units.number(np.float64(2)) == 2.0
    assert units.length(4.0) / units.length(2.0) == 2.0
    assert units.number(units.angle(0.5) * units.angle(2.0)) == 1.0  # small angles squared


def test_units_out():
    assert units.angle("90 deg").to("deg").value == pytest.approx(90, rel=1e-15)
    assert str(units.length("2.5 cm").to("cm")) == "2.5 cm"
    assert units.torque(1.0).to("lbf in").value == pytest.approx(8.850745791, rel=1e-9)
    with pytest.raises(UnitError, match=r"a torque \[N m\] cannot be read in J, an energy"):
        units.torque(1.0).to("J")
    with pytest.raises(UnitError, match=r"a frequency \[Hz\] cannot be read in rad/s, an angular velocity"):
        units.frequency(1.0).to("rad/s")
    for quantity, unit in ((units.angular_stiffness(1.0), "N m"), (units.torque(1.0), "N m/rad")):
        with pytest.raises(UnitError, match=f"cannot be read in {unit}, a"):
            quantity.to(unit)


def test_a_format_is_of_the_number():
    assert f"{units.length('2.5 cm'):.2f}" == "0.03 m" and f"{units.length(2.0)}" == "<length 2 m>"
    assert f"{units.force([1.0, 2.5]):.2f}" == "[1.00 2.50] N"
    assert f"{units.angle('90 deg').to('deg'):.1f}" == "90.0 deg"
    shown = []
    jax.jit(lambda q: shown.append(f"{q:.2f}"))(units.length(1.0))
    assert shown[0].endswith(" m")


def test_a_second_derivative_is_shown():
    """``jax.hessian`` gives a quantity of quantities."""
    curvature = jax.hessian(lambda x: (0.5 * units.stiffness(3.0) * x**2).value)(units.length(2.0))
    assert curvature.value.value == 3.0
    assert repr(curvature) == "<length <length 3 m> m>" and f"{curvature:.2f}" == "<length 3 m> m"


@pytest.mark.parametrize("take", [float, int, math.sin, np.asarray, lambda q: np.asarray([q, q], float)])
def test_a_quantity_is_not_a_bare_number(take):
    with pytest.raises(UnitError, match=r"a length cannot be used as a bare number or array: \.value holds the SI"):
        take(units.length(1.0))


@given(st.floats(-1e6, 1e6), st.sampled_from(["cm", "ft", "mi", "nm", "yd"]))
def test_conversion_to_a_unit_and_back(x, unit):
    assert units.length(units.length(x).to(unit).value, unit).value == pytest.approx(x, rel=1e-14)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cm", "does not begin with a number"),
        ("2.5 furlong", "unknown unit 'furlong'"),
        ("2.5 Nm", "unknown unit 'Nm'"),
        ("2.5 N m/", "unknown unit '/'"),
        (3, "3 is not a text"),
    ],
)
def test_text_that_cannot_be_parsed(text, message):
    with pytest.raises(UnitError, match=message):
        units.parse(text)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: units.torque("3 N m/rad"), "is an angular stiffness, not a torque"),
        (lambda: units.torque("3 N m/deg"), "is an angular stiffness, not a torque"),
        (lambda: units.torque(np.ones(2), "N m/rad"), "is an angular stiffness, not a torque"),
        (lambda: units.length("3 m deg"), r"'3 m deg' has the power 1 of angle .*, a length \[m\] has 0"),
        (lambda: units.length("3 m", "deg"), "'3 m deg' has the power 1 of angle"),
        (lambda: units.mass("3 kg rpm s"), "has the power 1 of angle"),
        (lambda: units.angular_stiffness("3 N m"), r"the power 0 of angle .*, an angular stiffness \[N m/rad\] has -1"),
        (lambda: units.angular_acceleration("3 s^-2"), "the power 0 of angle"),
        (lambda: units.angular_velocity("3 /s"), "is a frequency, not an angular velocity"),
        (lambda: units.angle("3"), "'3' has no unit, an angle needs one"),
        (lambda: units.angle("3 rad^2"), "the power 2 of angle"),
        (lambda: units.length(None), r'None is not a length: give a number, .* or a text like "2.5 m"'),
        (lambda: units.length(3.0, 2), "2 is not a unit"),
    ],
)
def test_values_that_a_kind_refuses(make, message):
    with pytest.raises(UnitError, match=message):
        make()


def test_torque_is_not_energy():
    lever, force = units.length(LEVER), units.force(FORCE)
    torque, energy = units.cross(lever, force), units.dot(force, lever)
    assert torque.kind == units.torque and torque.value.tolist() == [0.0, 0.0, 6.0]
    assert energy.kind == units.energy and energy.value == 0.0
    product = units.force(2.0) * units.length(3.0)
    assert product.kind not in KINDS.values()
    assert units.torque(product).kind == units.torque and units.energy(product).kind == units.energy
    for wrong in (
        lambda: torque + energy,
        lambda: torque < energy,
        lambda: units.torque(energy),
        lambda: units.energy("3 N m") - units.torque("3 N m"),
        lambda: product + energy,
        lambda: units.cross(force, lever) + torque,  # the other order has the other sign
    ):
        with pytest.raises(UnitError):
            wrong()


@pytest.mark.parametrize("law", _LAWS, ids=lambda law: " = ".join(kind.name for kind in law[:1]))
def test_laws_and_their_inverses(law):
    c, a, b = (kind(x) for kind, x in zip(law, (6.0, 2.0, 3.0), strict=True))
    kind_of = lambda x: getattr(x, "kind", units.number)  # noqa: E731
    assert [kind_of(x) for x in (a * b, b * a, c / a, c / b)] == [law[0], law[0], law[2], law[1]]
    assert [x + y for x, y in zip(law[1].dims, law[2].dims, strict=True)] == list(law[0].dims)


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (units.force(6.0) / units.mass(2.0), units.acceleration),
        (units.mass(2.0) * units.acceleration(3.0), units.force),
        (units.mass(2.0) * units.velocity(3.0), units.momentum),
        (units.force(2.0) * units.velocity(3.0), units.power),
        (units.length(2.0) / units.duration(3.0), units.velocity),
        (units.force(2.0) * units.duration(3.0), units.momentum),
        (units.force(2.0) / units.area(3.0), units.pressure),
        (units.mass(2.0) / units.length(3.0) ** 3, units.density),
        (units.mass(2.0) * units.length(3.0) ** 2, units.inertia),
        (units.pressure(2.0) * units.duration(3.0), units.viscosity),
        (units.angular_velocity(2.0) * units.length(3.0), units.velocity),
        (units.angle(2.0) * units.length(3.0), units.length),
        (units.force(2.0) / units.length(3.0), units.stiffness),
        (units.torque(2.0) / units.length(3.0), units.force),
        (1 / units.duration(2.0), units.frequency),
        (units.sqrt(units.velocity(3.0) ** 2), units.velocity),
        (units.dot(units.momentum(LEVER), units.velocity(LEVER)), units.energy),
        (units.cross(units.length(LEVER), units.momentum(FORCE)), units.angular_momentum),
        (units.cross(units.angular_velocity(FORCE), units.length(LEVER)), units.velocity),
        (units.norm(units.force(FORCE)), units.force),
        (units.time(3.0) - units.time(1.0), units.duration),
        (units.time(3.0) + units.duration(1.0), units.time),
        (units.length(3.0) / units.time(1.0), units.velocity),
        (-abs(units.force(-3.0)), units.force),
        (sum([units.force(FORCE)[1:], units.force(FORCE)[:2]], start=units.force(0.0)), units.force),
    ],
)
def test_kinds_follow(result, kind):
    assert result.kind == kind


@pytest.mark.parametrize(
    "result",
    [
        units.velocity(1.0) / units.length(1.0),  # could be a frequency, a strain rate or an angular velocity
        units.stiffness(1.0) / units.mass(1.0),
        units.torque(1.0) * units.frequency(1.0),  # not a power: 2 pi is missing
        units.torque(1.0) / units.duration(1.0),
        units.angular_stiffness(1.0) * units.angle(1.0) ** 2,
        units.mass(1.0) * units.velocity(1.0) ** 2,
        units.mass(1.0) / units.duration(1.0),
    ],
)
def test_ambiguous_products_have_no_kind(result):
    assert result.kind.name == ""
    with pytest.raises(UnitError, match=r"without a kind .*: its dimension fits, so name it, units"):
        units.si(result, next(kind for kind in KINDS.values() if kind.dims == result.kind.dims), "x")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: units.force(1.0) + 1.0,
        lambda: 1.0 - units.force(1.0),
        lambda: jnp.ones(2) + units.force(1.0),
        lambda: np.ones(2) + units.force(1.0),
        lambda: units.angle(1.0) + 1.0,
        lambda: units.time(1.0) + units.time(1.0),
        lambda: units.duration(1.0) - units.time(1.0),
        lambda: units.frequency(1.0) + units.angular_velocity(1.0),
        lambda: units.angular_velocity("3 Hz"),
        lambda: units.length("3 kg"),
        lambda: units.length("3"),
        lambda: units.angle(3.0, "ft"),
        lambda: units.length(units.length(1.0).to("ft")),
        lambda: units.sin(units.length(1.0)),
        lambda: units.force(1.0) == units.torque(1.0),
        lambda: units.force(1.0) + [1.0, 2.0],
        lambda: units.force(1.0) * "N",
        lambda: units.length(1.0).to("ft") * 2.0,
        lambda: jnp.sin(units.angle(1.0)),
        lambda: units.length(2.0) ** 0.5,
    ],
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(TypeError):  # UnitError is a TypeError
        wrong()


def test_arrays_on_either_side():
    for array in (np.ones(2), jnp.ones(2), np.float64(1), 1, 1.0):
        for q in (array * units.force(2.0), units.force(2.0) * array, units.force(2.0) / array):
            assert q.kind == units.force and np.all(q.value == 2.0)
    assert units.force([1.0, 2.0]).shape == (2,) and len(list(units.force([1.0, 2.0]))) == 2
    assert (units.force(1.0) == None) is False  # noqa: E711


def oscillator(x, v, m, k, h):
    """One step, plus a torque and an energy: the same program for quantities and bare arrays."""
    a = -k * x / m
    v = v + a * h
    x = x + v * h
    return x, v, units.dot(v, v) * m * 0.5, units.cross(x, k * x), units.norm(v)


ARGUMENTS = (LEVER, FORCE, 2.0, 3.0, 0.01)
QUANTITIES = tuple(
    kind(x)
    for kind, x in zip(
        (units.length, units.velocity, units.mass, units.stiffness, units.duration), ARGUMENTS, strict=True
    )
)


def test_jit_compiles_units_away():
    assert str(jax.make_jaxpr(oscillator)(*QUANTITIES)) == str(jax.make_jaxpr(oscillator)(*ARGUMENTS))

    def energy(x, v, m, k):
        return (0.5 * k * x * x + 0.5 * m * v**2).sum() if not isinstance(x, units.Quantity) else total(x, v, m, k)

    def total(x, v, m, k):
        return jax.tree.map(jnp.sum, units.energy(0.5 * k * x * x) + units.energy(0.5 * m * v**2))

    bare = jax.make_jaxpr(jax.grad(energy, (0, 1, 2, 3)))(*map(jnp.asarray, ARGUMENTS[:4]))
    with_units = jax.make_jaxpr(units.grad(energy, (0, 1, 2, 3)))(*jax.tree.map(jnp.asarray, QUANTITIES[:4]))
    operations = lambda jaxpr: [equation.primitive.name for equation in jaxpr.eqns]  # noqa: E731
    assert operations(with_units) == operations(bare)


def test_gradients_have_their_kind():
    energy = lambda x, k: units.energy(0.5 * k * x**2)  # noqa: E731
    (force, area), value = (
        units.grad(energy, (0, 1))(units.length(2.0), units.stiffness(3.0)),
        energy(units.length(2.0), units.stiffness(3.0)),
    )
    assert (force.kind, force.value) == (units.force, 6.0)
    assert (area.kind, area.value) == (units.area, 2.0)
    value, torque = units.value_and_grad(lambda t: 0.5 * units.angular_stiffness(3.0) * t * t)(units.angle(2.0))
    assert (value.kind, value.value, torque.kind, torque.value) == (units.energy, 6.0, units.torque, 6.0)
    speed = units.grad(lambda t: units.length(3.0) * units.sin(units.angular_velocity(2.0) * t))
    assert speed(units.time(0.0)).kind == units.velocity and speed(units.duration(0.0)).value == 6.0
    assert units.grad(lambda x: x * 3.0)(units.length(1.0)) == 3.0  # a length by a length is a number
    by_number, aux = units.grad(lambda s: (s * units.force(2.0), s), has_aux=True)(1.0)
    assert by_number.kind == units.force and aux == 1.0
    tree = units.grad(lambda t: t["x"].value ** 2)({"x": units.length(3.0), "n": 1.0})
    assert tree["x"].kind.unit == "1/m" and tree["x"].value == 6.0 and tree["n"] == 0.0
    # unlike units.grad, jax.grad keeps the kind of the argument
    assert jax.grad(lambda x: energy(x, units.stiffness(3.0)).value)(units.length(2.0)).kind == units.length


def test_gradients_are_right():
    check_grads(lambda x, k: units.energy(0.5 * k * x**2).value, (units.length(2.0), units.stiffness(3.0)))


def test_transforms():
    x, v, m, k, h = QUANTITIES
    step = lambda x, v: oscillator(x, v, m, k, h)[:2]  # noqa: E731
    for out in (jax.jit(step)(x, v), jax.vmap(step)(*jax.tree.map(lambda a: jnp.stack([a, a]), (x, v)))):
        assert [q.kind for q in out] == [units.length, units.velocity]
    (x, v), speeds = jax.lax.scan(lambda s, _: (step(*s), units.norm(s[1])), (x, v), length=5)
    assert (x.kind, v.kind, speeds.kind, speeds.shape) == (units.length, units.velocity, units.velocity, (5,))
    with pytest.raises(TypeError):  # what was a length comes back as a velocity
        jax.lax.scan(lambda s, _: (step(*s)[::-1], None), (x, v), length=5)
    with pytest.raises(TypeError):
        jax.lax.cond(True, lambda: units.force(1.0), lambda: units.torque(1.0))
    with pytest.raises(ValueError, match="torque"):
        jax.tree.map(lambda *q: jnp.stack(q), units.force(1.0), units.torque(1.0))


def test_bounds():
    force = units.force([1.0, 20.0])
    assert force.within("-20 N", units.force(20.0)) is force
    with pytest.raises(ValueError, match=r"a force of 20 N at \(1,\) is outside \[-10 N, 10 N\]: clip it, or"):
        force.within("-10 N", "10 N")
    with pytest.raises(ValueError, match="nan"):
        units.angle(math.nan).within("-90 deg", "90 deg")
    for lo in ("0 m", units.torque(1.0), 0.0):
        with pytest.raises(UnitError):
            force.within(lo, units.force(20.0))
    held = jax.jit(lambda q: q.within("-10 N", "10 N"))(force)
    assert held.kind == units.force and np.isnan(held.value).tolist() == [False, True]
    square = lambda q: jnp.nansum(q.within("-10 N", "10 N").value ** 2)  # noqa: E731
    with pytest.raises(ValueError, match="20 N"):
        jax.grad(square)(force)  # the numbers are known here
    slope = jax.jit(jax.grad(square))(force)
    assert slope.value.tolist() == [2.0, 0.0]


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (units.force(1.0), units.torque, r"ctrl is a force \[N\], must be a torque \[N m\]: N and N m differ"),
        (units.energy(1.0), units.torque, r"ctrl is an energy \[J\], must be a torque \[N m\]: both have the same dim"),
        (units.angle("90 deg").to("deg"), units.angle, r"ctrl is a reading in deg, must be an angle \[rad\]: give the"),
        (units.length("3 ft").to("ft"), units.length, r"ctrl is a reading in ft, must be a length \[m\]: give the"),
        (units.length(1.0), (units.force, units.torque), r"must be a force \[N\] or a torque \[N m\]"),
        (units.length(1.0), (), "must be a bare array in SI units"),
    ],
)
def test_a_border_refuses_by_name(value, kind, message):
    with pytest.raises(UnitError, match=message):
        units.si(value, kind, "ctrl")


def test_a_border_lets_pass():
    array = jnp.ones(3)
    assert units.si(array, units.force, "force") is array and units.si(None, units.force, "force") is None
    assert units.si(units.force(array), (units.torque, units.force), "force") is array
    several = [0.5, units.length(1.0), [units.length("1 ft")]]
    assert units.si(several, units.length, "edges") == (0.5, 1.0, (0.3048,))
    assert units.si(several[:1], units.length, "edges") == [0.5]


def test_a_wrench():
    both = units.wrench(units.force(FORCE), units.cross(units.length(LEVER), units.force(FORCE)))
    assert both.tolist() == [0.0, 2.0, 0.0, 0.0, 0.0, 6.0]
    with pytest.raises(UnitError, match=r"the wrench's torque is a force \[N\], must be a torque"):
        units.wrench(units.force(FORCE), units.force(FORCE))


def test_they_survive_copies():
    q = units.force(np.ones(2))
    for copied in (copy.deepcopy(q), pickle.loads(pickle.dumps(q)), jax.tree.map(lambda a: a, q)):
        assert copied.kind == units.force and (copied == q).all()
    assert copy.deepcopy(units.number)(2.0) * units.force(1.0) == units.force(2.0)
    assert repr(units.force(2.0)) == "<force 2 N>"


@pytest.mark.parametrize("value", [0.0, 1.0, np.ones(2)])
def test_a_quantity_is_not_a_truth(value):
    """``if height:`` would always hold."""
    for take in (bool, lambda q: not q, lambda q: 1 if q else 0):
        with pytest.raises(UnitError, match=r"a length cannot be used as a bare number or array: \.value holds the SI"):
            take(units.length(value))


@pytest.mark.parametrize("other", ["1 m", [1.0], (1.0,), {}, units.length(1.0).to("cm")])
def test_a_quantity_does_not_equal_what_is_none(other):
    """By identity it would be False, whatever is in it."""
    for compare in (operator.eq, operator.ne, operator.lt):
        for pair in ((units.length(1.0), other), (other, units.length(1.0))):
            with pytest.raises(TypeError):
                compare(*pair)
    with pytest.raises(UnitError, match=r"a length cannot be compared with .*: make a quantity of it first"):
        _ = units.length(1.0) == other
    assert (units.length(1.0) != None) is True  # noqa: E711


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.int16, np.int64])
def test_quantities_of_integers_are_floats(dtype):
    """1 m - 2 m would be 255 m in uint8."""
    for array in (np.asarray, jnp.asarray):
        one, two = (units.length(array([n], dtype)) for n in (1, 2))
        assert (one - two).value.tolist() == [-1.0]
        made = (one, array([1], dtype) * units.length(1), units.length(array([100], dtype), "cm"), units.length([1]))
        assert all(jnp.issubdtype(q.value.dtype, jnp.floating) and q.value.tolist() == [1.0] for q in made)
    assert units.length(dtype(1)) - units.length(dtype(2)) == units.length(-1.0)
    assert jax.jit(lambda q: units.length(q) - units.length(2))(jnp.asarray(1, dtype)).value == -1
    assert units.number(np.uint8(3)).dtype == np.uint8
