"""Launches that do not fit, inputs that do not match, kernels that do not compile: one clear error each.

Faults 14, 16, 17, 18, 22, 35 and 38. Faults that the shapes show are refused while the operation is
traced, before anything is launched.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp

import fphys
from fphys.bridge import ffi, warp_op
from fphys.errors import BridgeError

f32, f64 = wp.float32, wp.float64


@wp.kernel
def double(x: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    y_out[world, i] = f64(2.0) * x[world, i]


@wp.kernel
def triple(x: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    y_out[world, i] = f64(3.0) * x[world, i]


@wp.kernel
def add(x: wp.array2d(dtype=f64), y: wp.array2d(dtype=f64), z_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    z_out[world, i] = x[world, i] + y[world, i]


@wp.kernel
def scale(x: wp.array2d(dtype=f64), factor: f64, y_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    y_out[world, i] = factor * x[world, i]


@wp.kernel
def lengths(v: wp.array2d(dtype=wp.vec3d), y_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    y_out[world, i] = wp.length(v[world, i])


@wp.func_native("return x +;")
def not_cpp(x: f64) -> f64:  # type: ignore[empty-body]
    ...


@wp.kernel(module="unique")
def does_not_compile(x: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    y_out[world, i] = not_cpp(x[world, i])


X = np.arange(8.0).reshape(2, 4)


@pytest.fixture
def may_run():
    """For tests of faults that appear later."""


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch, request):
    """No XLA call may start in a test of an early refusal."""
    if "may_run" not in request.fixturenames:
        monkeypatch.setattr("fphys.bridge.op._call", lambda *_: pytest.fail("an operation was launched"))


def wrap(fn: Any, outputs: Any = lambda *args: args[0], **options: Any) -> Any:
    return warp_op(fn, outputs, name="op", **options)


def launching(kernel: Any = double, dim: Any = None, inputs: Any = None, outputs: Any = None) -> Any:
    """An operation of one launch, correct except for the given arguments."""
    return wrap(
        lambda launch, x, y: launch(
            kernel,
            dim=x.shape if dim is None else dim,
            inputs=[x] if inputs is None else inputs(x),
            outputs=[y] if outputs is None else outputs(x, y),
        )
    )


# Fault 14: a launch that does not fit its arrays


@pytest.mark.parametrize(
    ("dim", "why"),
    [
        ((2, 8), r"launched over \[2, 8\], but no array has size 8 on axis 1 \(sizes there: \[4\]\)"),
        ((8, 4), r"launched over \[8, 4\], but the operation has 2 worlds"),
        ((2, 4, 3), r"launched over \[2, 4, 3\], but no array has size 3 on axis 2"),
        (8, r"launched over \[8\], but the operation has 2 worlds"),
    ],
)
def test_a_launch_larger_than_its_arrays(dim, why):
    with pytest.raises(BridgeError, match=rf"op: kernel double is {why}"):
        launching(dim=dim)(X)
    with pytest.raises(BridgeError, match=why):
        jax.jit(jax.grad(lambda x: jnp.sum(launching(dim=dim)(x))))(X)


def test_the_right_launch_is_not_refused():
    with pytest.raises(pytest.fail.Exception, match="was launched"):
        launching()(X)


def test_an_array_smaller_than_the_others():
    """Each launch axis fits one of the arrays, but must fit all arrays that the kernel indexes with it."""

    def launch_add(launch, x, y, z):
        launch(add, dim=x.shape, inputs=[x, y], outputs=[z])

    with pytest.raises(BridgeError, match="would run past"):
        wrap(launch_add)(np.ones((4, 8)), np.ones((4, 2)))


def test_scratch_for_fewer_worlds():
    def launch_add(launch, x, z):
        launch(add, dim=x.shape, inputs=[x, launch.scratch((2, 8), f64, zeroed=True)], outputs=[z])

    with pytest.raises(BridgeError, match="4 worlds"):
        wrap(launch_add)(np.ones((4, 8)))


# Fault 16: arguments that do not match the kernel's signature


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        (lambda x: [], r"takes 2 arguments \(x, y_out\), the launch passes 1"),
        (lambda x: [x, x], r"takes 2 arguments \(x, y_out\), the launch passes 3"),
        (lambda x: [3.0], "argument x is an array, got float"),
        (lambda x: [np.ones((2, 4), np.int64)], "argument x is float64, got int64"),
        (lambda x: [np.ones((2, 4), np.float32)], "argument x is float64, got float32"),
        (lambda x: [np.ones(4)], "argument x has shape nxn, got"),
    ],
)
def test_arguments_that_do_not_match(inputs, why):
    with pytest.raises(BridgeError, match=rf"op: kernel double:? {why}"):
        launching(inputs=inputs)(X)


def test_an_array_for_a_scalar():
    with pytest.raises(BridgeError, match="argument factor is a scalar, the launch passes an array"):
        launching(scale, inputs=lambda x: [x, x])(X)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int64"])
def test_inputs_are_never_cast(dtype):
    op = wrap(
        lambda launch, x, y: launch(double, dim=(2, 4), inputs=[x], outputs=[y]),
        outputs=lambda x: jax.ShapeDtypeStruct((2, 4), np.float64),
    )
    with pytest.raises(TypeError, match=rf"argument x is float64, got {dtype} \(input \[0\] {dtype}\[2, 4\]\)"):
        op(X.astype(dtype))


def test_another_number_of_axes():
    with pytest.raises(BridgeError, match=r"argument x has shape nxn, got input \[0\] float64\[2, 4, 1\]"):
        launching(dim=(2, 4))(X[..., None])


def test_elements_of_another_length():
    op = wrap(
        lambda launch, v, y: launch(lengths, dim=v.shape[:2], inputs=[v], outputs=[y]),
        outputs=lambda v: jax.ShapeDtypeStruct(v.shape[:2], v.dtype),
    )
    with pytest.raises(BridgeError, match=r"argument v has shape nxnx3, got input \[0\] float64\[2, 4, 2\]"):
        op(np.ones((2, 4, 2)))


def test_mixed_precisions_name_both():
    op = wrap(lambda launch, p, z: launch(add, dim=z.shape, inputs=[p["x"], p["y"]], outputs=[z]), lambda p: p["x"])
    with pytest.raises(TypeError) as error:
        op({"x": X, "y": X.astype(np.float32)})
    for part in ("op", "['y']", "float32", "float64"):
        assert part in str(error.value)


def test_launch_needs_a_kernel():
    with pytest.raises(BridgeError, match=r"needs a @wp\.kernel"):
        launching(lambda x: x)(X)


# Fault 17: float64 while JAX has it off


def test_float64_needs_x64(x32):
    with pytest.raises((TypeError, ValueError), match="jax_enable_x64"):
        fphys.load(fphys.asset("double-pendulum"), dtype=np.float64)


def test_a_float64_kernel_under_x32_says_what_it_got(x32):
    with pytest.raises(
        TypeError, match=r"""argument x is float64, got float32 .*: cast the array by .astype\("float64"""
    ):
        launching()(X)


# Fault 18: batches that do not match


def adding() -> Any:
    return wrap(lambda launch, x, y, z: launch(add, dim=z.shape, inputs=[x, y], outputs=[z]))


@pytest.mark.parametrize("sizes", [(4, 5), (5, 4), (4, 2)])
def test_world_axes_that_differ_are_named(sizes):
    x, y = (np.ones((n, 3)) for n in sizes)
    with pytest.raises(ValueError, match=rf"input \[1\] has shape \({sizes[1]}, 3\): axis 0 .* size {sizes[0]}, or 1"):
        adding()(x, y)
    with pytest.raises(ValueError, match="axis 0"):
        jax.jit(adding())(x, y)


def test_no_worlds():
    with pytest.raises(BridgeError, match="at least one world"):
        adding()(np.ones((0, 3)), np.ones((0, 3)))


def test_no_world_axis():
    with pytest.raises((BridgeError, ValueError), match="world axis"):
        adding()(np.float64(1), np.float64(1))


@pytest.mark.usefixtures("may_run")
def test_vmap_over_an_empty_batch():
    with pytest.raises((BridgeError, ValueError), match="world"):
        jax.vmap(adding())(np.ones((0, 2, 3)), np.ones((0, 2, 3)))


# Fault 22: arrays overwritten on a differentiated path


def test_writing_an_input():
    with pytest.raises(BridgeError, match=r"kernel double writes input \[0\].*inputs are immutable"):
        launching(outputs=lambda x, y: [x])(X)


def test_the_eighth_power_by_overwriting_is_refused():
    def power(launch, x, y):
        launch(add, dim=x.shape, inputs=[x, x], outputs=[y])
        for _ in range(3):
            launch(double, dim=x.shape, inputs=[y], outputs=[y])

    with pytest.raises(BridgeError, match=r"kernel double writes output 0 .*which add wrote before"):
        wrap(power)(X)


def test_writing_scratch_twice():
    def twice(launch, x, y):
        between = launch.scratch(x.shape, f64)
        for _ in range(2):
            launch(double, dim=x.shape, inputs=[x], outputs=[between])
        launch(double, dim=x.shape, inputs=[between], outputs=[y])

    with pytest.raises(BridgeError, match=r"writes scratch0 .*which double wrote before"):
        wrap(twice)(X)


def test_one_array_twice_in_one_launch():
    with pytest.raises(BridgeError, match="writes output 0"):
        launching(add, inputs=lambda x: [x], outputs=lambda x, y: [y, y])(X)


# Fault 35: Python errors become one typed error with the original text


def test_an_error_in_the_function_keeps_its_text():
    def broken(launch, x, y):
        raise KeyError("no such spring")

    with pytest.raises(BridgeError, match=r"op: KeyError: 'no such spring'") as error:
        wrap(broken)(X)
    assert "in broken" in str(error.value)  # where it happened
    assert isinstance(error.value.__cause__, KeyError)
    with pytest.raises(BridgeError, match="no such spring"):
        jax.jit(jax.vmap(wrap(broken)))(X[None])


def test_an_error_in_outputs_keeps_its_text():
    with pytest.raises(BridgeError, match=r"op: AttributeError: input \[0\] .* has no lanes"):
        wrap(lambda launch, x, y: None, outputs=lambda x: x.lanes)(X)


def test_launching_nothing():
    with pytest.raises(BridgeError, match="op launched nothing: call the `launch` given as first argument"):
        wrap(lambda launch, x, y: None)(X)


def test_calling_warps_own_launch():
    def wrong(launch, x, y):
        wp.launch(double, dim=x.shape, inputs=[x], outputs=[y])

    with pytest.raises(BridgeError, match="op: "):
        wrap(wrong)(X)


@pytest.mark.usefixtures("may_run")
def test_an_error_inside_xla_keeps_its_text(monkeypatch):
    """XLA calls Python for a program that was traced for another platform. An error raised there is reported."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")  # nothing is packed while it is traced
    honest = ffi.plans().prepare

    def fail(number: int) -> None:
        raise OSError("the pool has drained")

    op = launching(triple)
    monkeypatch.setattr(ffi.plans(), "prepare", fail)
    for _ in range(2):
        with pytest.raises((ValueError, RuntimeError), match=r"fphys\.BridgeError: OSError: the pool has drained"):
            jax.block_until_ready(jax.jit(op)(X))
    monkeypatch.setattr(ffi.plans(), "prepare", honest)
    np.testing.assert_array_equal(jax.jit(op)(X), 3 * X)


def test_a_program_of_another_process_is_refused():
    """The plan is not in this process."""
    unknown = jax.ffi.ffi_call(ffi.TARGET, jax.ShapeDtypeStruct(X.shape, X.dtype))
    with pytest.raises((ValueError, RuntimeError), match=r"fphys\.BridgeError: .* another process"):
        jax.jit(lambda x: unknown(x, plan=np.int64(12345)))(X)


# Fault 38: a kernel that does not compile


@pytest.mark.usefixtures("may_run")
def test_every_launch_of_a_kernel_that_does_not_compile_raises():
    op = launching(does_not_compile)
    for call in (op, jax.jit(op), op, launching(does_not_compile)):
        with pytest.raises(BridgeError, match=r"op: kernel module .* does not compile"):
            call(X)
    np.testing.assert_array_equal(launching()(X), 2 * X)  # other operations still work


@wp.kernel
def in_place(x: wp.array2d(dtype=wp.float64), y: wp.array2d(dtype=wp.float64)):
    world, i = wp.tid()
    x[world, i] = wp.float64(2.0) * x[world, i]
    y[world, i] = x[world, i]


def test_a_kernel_that_writes_its_input_is_refused():
    """It would change an array that JAX assumes to be immutable."""
    op = fphys.bridge.warp_op(
        lambda launch, x, y: launch(in_place, dim=x.shape, inputs=[x], outputs=[y]), outputs=lambda x: x
    )
    x = jnp.ones((2, 3))
    with pytest.raises(fphys.errors.BridgeError, match="writes x, which the launch passes among its inputs"):
        op(x)
    assert (x == 1).all()


# What a launch function must not do


@pytest.mark.parametrize(
    "inputs",
    [lambda x: [x * 2], lambda x: [1.0 - x], lambda x: [x[0]], lambda x: [np.asarray(x)]],
)
def test_symbols_have_no_values(inputs):
    with pytest.raises(
        BridgeError, match=r"op: TypeError: input \[0\] float64\[2, 4\] cannot be computed with: .* kernel"
    ):
        launching(inputs=inputs)(X)
    with pytest.raises(BridgeError, match=r"has no reshape: .* symbols with shape, dtype and ndim"):
        launching(inputs=lambda x: [x.reshape(4, 2)])(X)


def test_a_launch_without_outputs():
    with pytest.raises(BridgeError, match=r"kernel double is launched without outputs: .* outputs=\[\.\.\.\]"):
        wrap(lambda launch, x, y: launch(double, dim=x.shape, inputs=[x, y]))(X)
