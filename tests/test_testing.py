"""Tests of the checks: they pass what is right and fail what is wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_batching import custom_vmap

from fphys.testing import check_grads, check_order, check_transforms


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


# Gradients ---------------------------------------------------------------------------------------


def spring(x, parameters):
    """Force and energy of a stiffening spring with damping."""
    k, c = parameters["stiffness"], parameters["damping"]
    return {"force": -k * jnp.sin(x) * jnp.exp(x) - c * x**3, "energy": 0.5 * k * x**2, "count": jnp.int32(3)}


ARGS = (normal(4), {"stiffness": np.abs(normal(4, seed=1)), "damping": np.abs(normal(4, seed=2))})


def wrong_spring(stiffness_factor=1.0, damping_factor=1.0):
    """The spring, with gradients by its parameters multiplied by a factor."""

    @jax.custom_vjp
    def fn(x, parameters):
        return {"force": spring(x, parameters)["force"]}

    def save(x, parameters):
        return fn(x, parameters), (x, parameters)

    def pull(saved, cotangent):
        _, vjp = jax.vjp(lambda *args: {"force": spring(*args)["force"]}, *saved)
        x, parameters = vjp(cotangent)
        factors = {"stiffness": stiffness_factor, "damping": damping_factor}
        return x, {name: factors[name] * grad for name, grad in parameters.items()}

    fn.defvjp(save, pull)
    return fn


@pytest.mark.parametrize("elementwise", [False, True])
def test_right_gradients_pass(elementwise):
    assert check_grads(spring, ARGS, elementwise=elementwise) < 1e-6
    assert check_grads(lambda x, p: jnp.sum(spring(x, p)["force"]), ARGS, elementwise=elementwise) < 1e-6


@pytest.mark.parametrize("elementwise", [False, True])
@pytest.mark.parametrize("factor", [0.0, 1.0 + 1e-5, -1.0])
def test_a_wrong_gradient_fails_and_is_named(factor, elementwise):
    check_grads(wrong_spring(), ARGS)
    with pytest.raises(AssertionError, match=r"args\[1\]\['damping'\]") as caught:
        check_grads(wrong_spring(damping_factor=factor), ARGS, elementwise=elementwise)
    assert "stiffness" not in str(caught.value)
    assert all(column in str(caught.value) for column in ("direction", "g.d", "fd", "error"))


def test_argnums_selects():
    fn = wrong_spring(damping_factor=0.0)
    check_grads(fn, ARGS, argnums=0)
    with pytest.raises(AssertionError):
        check_grads(fn, ARGS, argnums=(-1,))


def test_one_wrong_element_of_many_fails():
    @jax.custom_vjp
    def fn(x):
        return jnp.sin(x)

    fn.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (g * jnp.cos(x).at[17].multiply(1.01),))
    with pytest.raises(AssertionError, match=r"\[17\]") as caught:
        check_grads(fn, (normal(100),), elementwise=True)
    assert str(caught.value).startswith("1 of 100 ")
    with pytest.raises(AssertionError, match="random"):
        check_grads(fn, (normal(100),))


def test_the_error_is_the_one_defined():
    """g.d = 1.5 d against fd = d: |1.5 d - d| / max(|d|, 1e-3 * 1.5 |d|) = 0.5."""

    @jax.custom_vjp
    def fn(x):
        return x

    fn.defvjp(lambda x: (x, None), lambda _, g: (1.5 * g,))
    assert check_grads(fn, (np.float64(2.0),), tol=0.6) == pytest.approx(0.5, rel=1e-6)


def test_nan_fails():
    with pytest.raises(AssertionError, match="nan"):
        check_grads(lambda x: jnp.sqrt(x**2), (np.zeros(3),))
    with pytest.raises(AssertionError, match="nan"):
        check_grads(jnp.log, (-np.ones(3),))


def test_an_input_without_effect_passes_and_a_false_gradient_for_it_fails():
    assert check_grads(lambda x, y: jnp.sin(x) + 0.0 * y, (normal(3), normal(3))) < 1e-6

    @jax.custom_vjp
    def fn(x, y):
        return jnp.sin(x)

    fn.defvjp(lambda x, y: (jnp.sin(x), x), lambda x, g: (g * jnp.cos(x), 1e-9 * g))
    with pytest.raises(AssertionError, match=r"args\[1\]"):
        check_grads(fn, (normal(3), normal(3)))
    check_grads(fn, (normal(3), normal(3)), atol=1e-6)


def test_float32_is_refused():
    with pytest.raises(TypeError, match=r"args\[0\] is float32"):
        check_grads(jnp.sin, (np.ones(3, np.float32),))
    with pytest.raises(TypeError, match="returns float32"):
        check_grads(lambda x: x.astype(jnp.float32), (np.ones(3),))
    with jax.enable_x64(False), pytest.raises(TypeError, match="jax_enable_x64"):
        check_grads(jnp.sin, (np.ones(3),))


def test_nothing_to_check_is_refused():
    with pytest.raises(ValueError, match="no input"):
        check_grads(lambda n: n, (np.arange(3),))
    with pytest.raises(TypeError, match="no floating-point"):
        check_grads(lambda x: x > 0, (np.ones(3),))


def test_directions_along_a_manifold():
    """The gradient of a function defined only on the circle; off the circle its values are wrong."""

    @jax.custom_vjp
    def height(c):
        return c[1] / jnp.sqrt(jnp.sum(c**2))

    height.defvjp(lambda c: (height(c), None), lambda _, g: (g * jnp.array([0.0, 1.0]),))
    point = np.array([np.cos(0.3), np.sin(0.3)])

    def turn(args, direction, step):
        angle = step * direction[0][0]
        c, s = jnp.cos(angle), jnp.sin(angle)
        return (jnp.stack([c * args[0][0] - s * args[0][1], s * args[0][0] + c * args[0][1]]),)

    assert check_grads(height, (point,), retract=turn) < 1e-6
    with pytest.raises(AssertionError):
        check_grads(height, (point,))
    with pytest.raises(AssertionError):
        check_grads(lambda c: 1.001 * height(c) - 0.001 * jax.lax.stop_gradient(height(c)), (point,), tol=1e-9)


# Transforms --------------------------------------------------------------------------------------


def forces(x, parameters, mass):
    """Stiffening springs between particles of the same world. x (world, n), mass (world | 1, n)."""
    tension = parameters["stiffness"] * x + parameters["damping"] * x**3
    return {"acceleration": (tension[:, ::-1] - tension) / mass, "long": x > 0.5}


WORLDS = (
    normal(3, 4),
    {"stiffness": 1 + normal(1, 1) ** 2, "damping": 1 + normal(3, 1, seed=1) ** 2},
    np.full((1, 4), 2.0),
)


def test_a_right_operation_passes_every_transform():
    report = check_transforms(forces, WORLDS)
    assert set(report) >= {
        "worlds",
        "grad of worlds",
        "jit",
        "vmap",
        "vmap of grad",
        "grad of vmap",
        "scan",
        "grad of scan",
    }
    assert set(report) >= {"checkpoint", "grad of checkpoint", "nested vmap", "nested vmap of grad"}
    assert report["patterns"] == 11  # 7 of whole arguments; each half of the second alone, or all but it
    assert max(error for name, error in report.items() if "patterns" not in name) < 1e-14


def test_float32_passes():
    check_transforms(forces, jax.tree.map(lambda x: x.astype(np.float32), WORLDS), batches=(3,), max_patterns=2)


def batched(rule, fn=None):
    """An operation on (x, y) with its own vmap rule."""
    plain = fn or (lambda x, y: jnp.roll(x, 1, axis=1) * y)
    op = custom_vmap(plain)

    @op.def_vmap
    def _(size, mapped, x, y):
        return rule(plain, size, mapped, x, y), True

    return lambda x, y: op(x, y)


def right_rule(plain, size, mapped, x, y):
    return jax.vmap(plain, in_axes=tuple(0 if m else None for m in mapped), axis_size=size)(x, y)


def gathers_across_the_batch(plain, size, mapped, x, y):
    """The error of Warp's own rule: the mapped axis is flattened, and neighbours are read across its seams."""
    x, y = (a if m else jnp.broadcast_to(a, (size, *a.shape)) for a, m in zip((x, y), mapped, strict=True))
    flat = jnp.roll(x.reshape(size * x.shape[1], -1).ravel(), 1).reshape(x.shape)
    return flat * y


def reads_the_first(plain, size, mapped, x, y):
    """Takes a mapped second argument from the first element of the batch."""
    y = jnp.broadcast_to(y[:1], y.shape) if mapped[1] else y
    return right_rule(plain, size, mapped, x, y)


def swaps_batch_and_world(plain, size, mapped, x, y):
    out = right_rule(plain, size, mapped, x, y)
    return out.swapaxes(0, 1).reshape(out.shape)


PAIR = (normal(3, 4), normal(3, 4, seed=1))


def test_a_right_vmap_rule_passes():
    check_transforms(batched(right_rule), PAIR, differentiable=False)


@pytest.mark.parametrize("rule", [gathers_across_the_batch, reads_the_first, swaps_batch_and_world])
def test_a_wrong_vmap_rule_fails_and_is_named(rule):
    with pytest.raises(AssertionError, match=r"^vmap.*batch .*in_axes"):
        check_transforms(batched(rule), PAIR, differentiable=False)


def test_a_rule_that_fails_only_for_a_shared_argument_fails():
    def rule(plain, size, mapped, x, y):
        if not all(mapped):
            raise NotImplementedError("unmapped arguments")
        return right_rule(plain, size, mapped, x, y)

    with pytest.raises(AssertionError, match=r"vmap.*None.* raised NotImplementedError: unmapped arguments"):
        check_transforms(batched(rule), PAIR, differentiable=False)


def with_gradient(pull, forward=lambda x, k: x * k):
    op = jax.custom_vjp(forward)
    op.defvjp(lambda x, k: (forward(x, k), (x, k)), pull)
    return op


SHARED = (normal(3, 4), np.full((1, 4), 2.0))


def test_a_shared_gradient_must_be_summed_over_worlds():
    def summed(saved, g):
        x, k = saved
        return g * k, jnp.sum(g * x, axis=0, keepdims=True) if len(k) == 1 else g * x

    def first_world_only(saved, g):
        x, k = saved
        return g * k, (g * x)[: len(k)]

    check_transforms(with_gradient(summed), SHARED)
    with pytest.raises(AssertionError, match=r"^grad of worlds .*summed.*: gradient by args\[1\]"):
        check_transforms(with_gradient(first_world_only), SHARED)


def test_a_gradient_rule_that_mixes_the_batch_fails():
    @custom_vmap
    def adjoint(x, k, g):
        return g * k

    @adjoint.def_vmap
    def _(size, mapped, x, k, g):
        return jnp.flip(g if mapped[2] else jnp.broadcast_to(g, (size, *g.shape)), axis=0) * k, True

    with pytest.raises(AssertionError, match=r"^(vmap of grad|grad of vmap)"):
        check_transforms(with_gradient(lambda saved, g: (adjoint(*saved, g), g * saved[0])), PAIR)


def test_worlds_that_leak_into_each_other_fail():
    with pytest.raises(AssertionError, match=r"^worlds.*: output"):
        check_transforms(lambda x: x + 1e-6 * jnp.roll(x, 1, axis=0), (normal(3, 4),))


def test_a_wrong_result_of_jit_fails():
    with pytest.raises(AssertionError, match="jit"):
        check_transforms(lambda x: x if isinstance(x, jax.core.Tracer) else 2 * x, (normal(3, 4),))


def test_integer_outputs_are_compared():
    with pytest.raises(AssertionError, match="worlds"):
        check_transforms(lambda x: jnp.argsort(x, axis=0), (normal(3, 4),))


def test_equal_worlds_are_refused():
    equal = np.broadcast_to(normal(1, 4), (3, 4))
    with pytest.raises(ValueError, match=r"args\[1\] holds the same data"):
        check_transforms(lambda x, y: x * y, (normal(3, 4), equal))
    with pytest.raises(ValueError, match="one world"):
        check_transforms(lambda x: x, (normal(1, 4),))
    check_transforms(lambda x, y: x * y, (normal(3, 4), equal), perturb=0.1)


def test_a_wrong_world_axis_is_refused():
    with pytest.raises(ValueError, match=r"args\[1\] has shape \(2, 4\)"):
        check_transforms(lambda x, y: x, (normal(3, 4), normal(2, 4)))
    with pytest.raises(ValueError, match=r"output has shape \(4, 3\)"):
        check_transforms(lambda x: x.T, (normal(3, 4),))


def test_empty_arrays_need_no_world_axis():
    check_transforms(lambda x, keys: x + 0.0 * jnp.sum(keys), (normal(3, 4), np.zeros((0, 4))), batches=(2,))


def test_a_nan_reference_does_not_pass():
    with pytest.raises(AssertionError, match="not finite"):
        check_transforms(jnp.log, (-1 - normal(3, 4) ** 2,))


def test_variants_are_used():
    seen = [(np.full((2, 1), float(k)) + np.arange(2.0)[:, None],) for k in range(4)]
    check_transforms(lambda x: jnp.where(x == jnp.round(x), x, jnp.nan), seen[0], variants=seen[1:])
    with pytest.raises(ValueError, match="must hold 3"):
        check_transforms(lambda x: x, seen[0], variants=seen[1:2])


# Order -------------------------------------------------------------------------------------------


def euler(step):
    """x' = -x from 1, to t = 1."""
    x = 1.0
    for _ in range(round(1 / step)):
        x -= step * x
    return x


def heun(step):
    x = 1.0
    for _ in range(round(1 / step)):
        y = x - step * x
        x -= 0.5 * step * (x + y)
    return np.array([x, 2 * x])


STEPS = (0.02, 0.01, 0.005, 0.0025)


def test_order_with_and_without_the_exact_solution():
    assert check_order(euler, np.exp(-1), STEPS, 1) == pytest.approx(1, abs=0.02)
    assert check_order(heun, np.exp(-1) * np.array([1, 2]), STEPS, 2) == pytest.approx(2, abs=0.03)
    assert check_order(heun, None, STEPS, 2) == pytest.approx(2, abs=0.03)


@pytest.mark.parametrize("exact", [np.exp(-1), None])
@pytest.mark.parametrize("expected", [2, 0.5])
def test_a_wrong_order_fails(exact, expected):
    with pytest.raises(AssertionError, match=r"order is (0\.9|1\.0)\d*, expected"):
        check_order(euler, exact, STEPS, expected)


def test_a_scheme_that_converges_to_something_else_fails():
    with pytest.raises(AssertionError, match="order is"):
        check_order(lambda h: euler(h) + 1e-2, np.exp(-1), STEPS, 1)
    with pytest.raises(AssertionError, match="not finite"):
        check_order(lambda h: np.nan, 1.0, STEPS, 1)


def test_steps_that_show_no_order_are_refused():
    with pytest.raises(ValueError, match="at least 3"):
        check_order(euler, None, (0.1, 0.05), 1)
    with pytest.raises(ValueError, match="same fraction"):
        check_order(euler, None, (0.1, 0.05, 0.04), 1)
    with pytest.raises(ValueError, match="rounding"):
        check_order(lambda h: np.exp(-1), np.exp(-1), STEPS, 1)
