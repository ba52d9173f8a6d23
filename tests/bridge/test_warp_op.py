"""Wrapped operations against ``jnp``: values, gradients, precisions, shared inputs, threads and pytrees."""

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp

import fphys
from fphys.bridge import kernels, warp_op
from fphys.testing import check_grads

f64 = wp.float64


@wp.kernel
def relu32(x: wp.array2d(dtype=wp.float32), y_out: wp.array2d(dtype=wp.float32)):
    world, i = wp.tid()
    y_out[world, i] = wp.max(x[world, i], 0.0)


@wp.kernel
def relu64(x: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    y_out[world, i] = wp.max(x[world, i], f64(0.0))


@wp.kernel
def scaled_sine(x: wp.array2d(dtype=f64), scale: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    y_out[world, i] = scale[world, i] * wp.sin(scale[world, 0] * x[world, i])


@wp.kernel
def square(x: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    y_out[world, i] = x[world, i] * x[world, i]


@wp.kernel
def product(x: wp.array2d(dtype=f64), y: wp.array2d(dtype=f64), z_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    z_out[world, i] = x[world, i] * y[world, i]


@wp.kernel
def guarded(x: wp.array2d(dtype=f64), k: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    if i < k.shape[1]:
        y_out[world, i] = k[world, i] * x[world, i + 1]


@wp.kernel
def left_early(x: wp.array2d(dtype=f64), k: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    if i >= k.shape[1]:
        return
    y_out[world, i] = k[world, i] * x[world, i + 1]


@wp.kernel
def in_one_line(x: wp.array2d(dtype=f64), k: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    y_out[world, i] = k[world, i] * x[world, i + 1] if i < k.shape[1] else f64(0.0)


@wp.kernel
def unguarded(x: wp.array2d(dtype=f64), k: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    if world > 0:
        y_out[world, i] = k[world, i] * x[world, i]


@wp.kernel
def guarded_too_late(x: wp.array2d(dtype=f64), k: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    stiffness = k[world, i]
    if i < k.shape[1]:
        y_out[world, i] = stiffness * x[world, i]


@wp.kernel
def running_product(x: wp.array2d(dtype=f64), y_out: wp.array2d(dtype=f64)):
    """Every lane is computed from the previous one, which this kernel has just written."""
    world = wp.tid()
    y_out[world, 0] = x[world, 0]
    for i in range(1, x.shape[1]):
        y_out[world, i] = wp.sin(y_out[world, i - 1]) * x[world, i]


@wp.kernel
def scatter(x: wp.array2d(dtype=f64), target: wp.array(dtype=wp.int32), y_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    wp.atomic_add(y_out, world, target[i], x[world, i])


@wp.kernel
def select(x: wp.array2d(dtype=f64), index: wp.array2d(dtype=wp.int32), y_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    y_out[world, i] = x[world, index[world, i]] * x[world, i]


@wp.kernel
def dot(u: wp.array2d(dtype=wp.vec3d), v: wp.array2d(dtype=wp.vec3d), y_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    y_out[world, i] = wp.dot(u[world, i], v[world, i])


def elementwise(kernel: Any, **options: Any) -> Any:
    """``kernel(*inputs, y)`` over all elements of the first input."""

    def launch_kernel(launch, *args):
        launch(kernel, dim=args[0].shape, inputs=list(args[:-1]), outputs=[args[-1]])

    return warp_op(launch_kernel, outputs=lambda *args: args[0], **options)


def normal(*shape: int, seed: int = 0, dtype: Any = np.float64) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def close(value: Any, wanted: Any, tol: float = 1e-14) -> None:
    value, wanted = np.asarray(value), np.asarray(wanted)
    assert value.shape == wanted.shape and value.dtype == wanted.dtype
    assert np.max(np.abs(value - wanted), initial=0.0) <= tol * max(1.0, np.max(np.abs(wanted), initial=0.0))


def run_script(script: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120, env=os.environ | env, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def sine(x: Any, scale: Any) -> jax.Array:
    return scale * jnp.sin(scale[:, :1] * x)


# Precision


@pytest.mark.extra("torch")
@pytest.mark.parametrize(("kernel", "dtype"), [(relu32, np.float32), (relu64, np.float64)])
def test_relu_is_torchs_in_value_and_gradient(kernel, dtype):
    import torch

    relu = elementwise(kernel)
    x = normal(3, 5, dtype=dtype)
    x[0, 0] = -0.5
    weights = normal(3, 5, seed=1, dtype=dtype)
    value, grad = jax.jit(jax.value_and_grad(lambda x: jnp.sum(weights * relu(x))))(x)
    theirs = torch.tensor(x, requires_grad=True)
    out = torch.relu(theirs)
    out.backward(torch.tensor(weights))
    assert theirs.grad is not None
    np.testing.assert_array_equal(relu(x), out.detach().numpy())
    np.testing.assert_array_equal(grad, theirs.grad.numpy())
    assert relu(x).dtype == grad.dtype == value.dtype == dtype


def test_one_kernel_folder_two_precisions():
    single, double = kernels("float32", "relu"), kernels(np.float64, "relu")
    assert single is not double and single is kernels(jnp.float32, "relu")
    assert single.real is wp.float32 and double.real is wp.float64
    for module, dtype in ((single, np.float32), (double, np.float64)):
        x = normal(2, 3, dtype=dtype)
        np.testing.assert_array_equal(elementwise(module.relu)(x), np.maximum(x, 0))


def test_kernels_have_no_other_precision():
    with pytest.raises(TypeError, match="float32 or float64, got float16"):
        kernels(np.float16, "relu")


def test_x64_switched_on_after_the_first_call(tmp_path):
    (tmp_path / "late.py").write_text("""
import jax, jax.numpy as jnp
from fphys.bridge import kernels, warp_op

def rectify(launch, x, y):
    launch(kernels(x.dtype, "relu").relu, dim=x.shape, inputs=[x], outputs=[y])

relu = warp_op(rectify, outputs=lambda x: x)
run = jax.jit(jax.value_and_grad(lambda x: jnp.sum(x * relu(x))))
for x64 in (False, True, False):
    jax.config.update("jax_enable_x64", x64)
    value, grad = run(jnp.asarray([[-1.0, 2.0 + 1e-12]]))
    print(value.dtype, float(value), grad.dtype, grad.tolist())
""")
    lines = run_script(str(tmp_path / "late.py")).splitlines()
    single = "float32 4.0 float32 [[0.0, 4.0]]"
    assert lines == [single, "float64 4.000000000004 float64 [[0.0, 4.000000000002]]", single]


# Arrays: scratch, zeroed outputs, constants, vectors, chains of launches


def test_scratch_between_two_launches():
    def cube(launch, x, y):
        between = launch.scratch(x.shape, f64)
        launch(square, dim=x.shape, inputs=[x], outputs=[between])
        launch(product, dim=x.shape, inputs=[between, x], outputs=[y])

    op, x = warp_op(cube, outputs=lambda x: x), normal(3, 4)
    close(op(x), x**3)
    close(jax.grad(lambda x: jnp.sum(op(x)))(x), 3 * x**2)


@pytest.mark.parametrize("worlds", [1, 3, 300])
def test_scatter_into_zeroed_arrays_starts_afresh_at_every_call(worlds):
    target = np.array([2, 0, 2, 1, 2], np.int32)

    def fold(launch, x, y):
        between = launch.scratch((x.shape[0], 3), f64, zeroed=True)
        launch(scatter, dim=x.shape, inputs=[x, target], outputs=[between])
        launch(square, dim=y.shape, inputs=[between], outputs=[y])

    op = warp_op(fold, outputs=lambda x: jax.ShapeDtypeStruct((x.shape[0], 3), x.dtype))
    direct = warp_op(
        lambda launch, x, y: launch(scatter, dim=x.shape, inputs=[x, target], outputs=[y]),
        outputs=lambda x: jax.ShapeDtypeStruct((x.shape[0], 3), x.dtype),
    )
    run, grad = jax.jit(op), jax.jit(jax.grad(lambda x: jnp.sum(op(x))))
    for seed in range(3):
        x = normal(worlds, 5, seed=seed)
        sums = np.zeros((worlds, 3))
        np.add.at(sums, (slice(None), target), x)
        close(direct(x), sums)
        close(run(x), sums**2)
        close(grad(x), 2 * sums[:, target])


def test_elements_may_be_vectors():
    op = warp_op(
        lambda launch, u, v, y: launch(dot, dim=u.shape[:2], inputs=[u, v], outputs=[y]),
        outputs=lambda u, v: jax.ShapeDtypeStruct(u.shape[:2], u.dtype),
    )
    u, v = normal(3, 2, 3), normal(1, 2, 3, seed=1)
    close(op(u, v), np.sum(u * v, axis=-1))
    du, dv = jax.grad(lambda u, v: jnp.sum(op(u, v)), argnums=(0, 1))(u, v)
    close(du, np.broadcast_to(v, u.shape))
    close(dv, u.sum(axis=0, keepdims=True))


def test_an_output_read_by_a_later_launch_collects_both_cotangents():
    def powers(launch, x, y, z):
        launch(square, dim=x.shape, inputs=[x], outputs=[y])
        launch(product, dim=x.shape, inputs=[x, y], outputs=[z])

    op, x = warp_op(powers, outputs=lambda x: (x, x)), normal(3, 4)
    a, b = normal(3, 4, seed=1), normal(3, 4, seed=2)
    close(op(x)[0], x**2)
    close(op(x)[1], x**3)
    for wy, wz in ((a, b), (a, 0 * b), (0 * a, b)):
        grad = jax.grad(lambda x: jnp.sum(wy * op(x)[0]) + jnp.sum(wz * op(x)[1]))(x)  # noqa: B023
        close(grad, 2 * wy * x + 3 * wz * x**2)
    close(jax.grad(lambda x: jnp.sum(a * op(x)[0]))(x), 2 * a * x)  # one cotangent is a symbolic zero


@pytest.mark.parametrize("worlds", [1, 3, 300])
def test_a_kernel_that_reads_its_own_output(worlds):
    op = warp_op(
        lambda launch, x, y: launch(running_product, dim=x.shape[0], inputs=[x], outputs=[y]),
        outputs=lambda x: x,
        zeroed=False,
    )

    def reference(x):
        ys = [x[:, 0]]
        for i in range(1, x.shape[1]):
            ys.append(jnp.sin(ys[-1]) * x[:, i])
        return jnp.stack(ys, axis=1)

    x, weights = normal(worlds, 5), normal(worlds, 5, seed=1)
    close(op(x), reference(x))
    close(*(jax.grad(lambda x, f=f: jnp.sum(weights * f(x)))(x) for f in (op, reference)))


@pytest.mark.parametrize("kernel", [guarded, left_early, in_one_line])
def test_an_access_under_a_condition_on_its_thread_is_accepted(kernel):
    op, x, k = elementwise(kernel), normal(3, 5), normal(1, 4, seed=1)

    def reference(x, k):
        return jnp.pad(k * x[:, 1:], ((0, 0), (0, 1)))

    close(op(x, k), reference(x, k))
    ours, theirs = (jax.grad(lambda x, k, f=f: jnp.sum(f(x, k) ** 2), argnums=(0, 1))(x, k) for f in (op, reference))
    jax.tree.map(close, ours, theirs)


@pytest.mark.parametrize("kernel", [unguarded, guarded_too_late])
def test_an_access_without_one_is_refused_with_the_way_out(kernel):
    why = r"has 5 threads on axis 1, and k has size 4 on axis 1, which is indexed by i: .* `if i < k.shape\[1\]`, or"
    with pytest.raises(fphys.errors.BridgeError, match=why):
        jax.vmap(elementwise(kernel), (0, None))(normal(2, 3, 5), normal(1, 4))


# Worlds: shared inputs, thread ranges, vmap


@pytest.mark.parametrize("worlds", [1, 4, 64, 128, 300])
def test_a_shared_input_acts_on_all_worlds_and_its_gradient_is_summed(worlds):
    op = elementwise(scaled_sine)
    x, scale, weights = normal(worlds, 3), normal(1, 3, seed=1), normal(worlds, 3, seed=2)
    close(op(x, scale), sine(x, scale))
    ours, theirs = (
        jax.jit(jax.grad(lambda x, s, f=f: jnp.sum(weights * f(x, s)), argnums=(0, 1)))(x, scale) for f in (op, sine)
    )
    close(ours[0], theirs[0])
    close(ours[1], theirs[1], 1e-13)
    full = np.broadcast_to(scale, x.shape).copy()  # the same numbers, one row per world
    np.testing.assert_array_equal(op(x, full), op(x, scale))


def test_gradients_with_several_worlds_against_differences():
    assert check_grads(elementwise(scaled_sine), (normal(130, 3), normal(1, 3, seed=1)), directions=4) < 1e-7


@pytest.mark.parametrize("worlds", [128, 300])
def test_the_number_of_threads_does_not_change_a_bit(worlds, monkeypatch):
    x, scale, weights = normal(worlds, 3), normal(worlds, 3, seed=1), normal(worlds, 3, seed=2)

    def results(threads):
        monkeypatch.setenv("FPHYS_THREADS", threads)
        op = elementwise(scaled_sine)
        return op(x, scale), *jax.grad(lambda x, s: jnp.sum(weights * op(x, s)), argnums=(0, 1))(x, scale)

    one = results("1")
    close(one[0], sine(x, scale))
    for threads in ("2", "3", "64"):
        jax.tree.map(np.testing.assert_array_equal, results(threads), one)


def test_threads_are_chosen_by_the_environment(tmp_path):
    """As users set it. Every run prints the same bits, whatever the number of threads."""
    (tmp_path / "threads.py").write_text("""
import threading
import jax, jax.numpy as jnp, numpy as np
from fphys.bridge import kernels, warp_op

def rectify(launch, x, y):
    launch(kernels(x.dtype, "relu").relu, dim=x.shape, inputs=[x], outputs=[y])

relu = warp_op(rectify, outputs=lambda x: x)
x = jnp.asarray(np.random.default_rng(0).standard_normal((300, 4)), "float32")
value, grad = relu(x), jax.grad(lambda x: jnp.sum(x * relu(x)))(x)
print(hash(np.asarray(value).tobytes()), hash(np.asarray(grad).tobytes()))
print(sum(t.name.startswith("fphys-") for t in threading.enumerate()))
""")
    outs = {n: run_script(str(tmp_path / "threads.py"), FPHYS_THREADS=n, PYTHONHASHSEED="0") for n in ("1", "3")}
    (one, started), (three, started_too) = (out.splitlines() for out in outs.values())
    assert one == three
    assert (started, started_too) == ("0", "2")


@pytest.mark.parametrize("in_axes", [(0, 0), (0, None), (None, 0)])
@pytest.mark.parametrize(("worlds", "shared"), [(1, True), (3, True), (3, False)])
def test_vmap_with_mapped_and_shared_arguments(worlds, shared, in_axes):
    op = elementwise(scaled_sine)
    size = 4
    shapes = (worlds, 3), (1 if shared else worlds, 3)
    args = [normal(*((size,) if a == 0 else ()), *s, seed=i) for i, (a, s) in enumerate(zip(in_axes, shapes))]
    weights = normal(size, worlds, 3, seed=5)
    close(jax.vmap(op, in_axes)(*args), jax.vmap(sine, in_axes)(*args))
    ours, theirs = (
        jax.grad(lambda *xs, f=f: jnp.sum(weights * jax.vmap(f, in_axes)(*xs)), argnums=(0, 1))(*args)
        for f in (op, sine)
    )
    jax.tree.map(close, ours, theirs)
    one = normal(worlds, 3, seed=6)
    ours, theirs = (
        jax.vmap(jax.grad(lambda *xs, f=f: jnp.sum(one * f(*xs)), argnums=(0, 1)), in_axes)(*args) for f in (op, sine)
    )
    jax.tree.map(close, ours, theirs)


def test_vmap_over_other_axes_and_twice():
    scale = normal(1, 3, seed=1)
    x = normal(2, 5, 4, 3)  # world, inner, outer, lane
    op, reference = (jax.vmap(jax.vmap(f, (1, None)), (2, None), out_axes=1) for f in (elementwise(scaled_sine), sine))
    close(op(x, scale), reference(x, scale))


# Pytrees and gradients on request


def launch_select(launch, p, y):
    launch(select, dim=p["x"].shape, inputs=[p["x"], p["index"]], outputs=[y])


selected = warp_op(launch_select, outputs=lambda p: p["x"])


def test_unused_integer_and_absent_leaves():
    index = np.array([[1, 0, 2], [2, 2, 0]], np.int32)
    x, unused = normal(2, 3), normal(7)  # the unused leaf needs no world axis
    tree = {"x": x, "index": index, "unused": unused, "half": np.float16(1), "none": None, "flag": True}

    def reference(p):
        return jnp.take_along_axis(p["x"], p["index"], axis=1) * p["x"]

    close(selected(tree), reference(tree))
    del tree["flag"]  # JAX cannot differentiate a bool
    ours, theirs = (jax.grad(lambda p, f=f: jnp.sum(f(p)), allow_int=True)(tree) for f in (selected, reference))
    close(ours["x"], theirs["x"])
    np.testing.assert_array_equal(ours["unused"], np.zeros(7))
    assert ours["index"].dtype == jax.dtypes.float0 and ours["none"] is None


def test_vjp_gives_the_wanted_gradients_only():
    op = elementwise(scaled_sine)
    x, scale, cotangent = normal(3, 2), normal(1, 2, seed=1), normal(3, 2, seed=2)
    dx, dscale = jax.vjp(sine, x, scale)[1](cotangent)
    both = op.vjp((x, scale), (cotangent,))
    close(both[0], dx)
    close(both[1], dscale)
    first, nothing = op.vjp((x, scale), (cotangent,), wanted=(True, False))
    close(first, dx)
    assert nothing is None
    assert op.vjp((x, scale), (cotangent,), wanted=(False, False)) == (None, None)
    tree = {"index": np.zeros((3, 2), np.int32), "unused": x, "x": x}
    (grads,) = selected.vjp((tree,), (cotangent,))
    assert grads["index"] is None and grads["unused"] is None
    close(grads["x"], jax.grad(lambda x: jnp.sum(cotangent * x[:, :1] * x))(x))


def test_an_operation_without_a_gradient_says_so():
    op, x = elementwise(square, differentiable=False), normal(2, 3)
    close(jax.vmap(op)(x[None]), x[None] ** 2)
    with pytest.raises(TypeError, match="differentiable=False has none at all"):
        jax.grad(lambda x: jnp.sum(op(x)))(x)


def test_it_is_public():
    assert fphys.bridge.warp_op is warp_op


def test_a_kernel_defined_later_in_the_module_does_not_unload_the_first(tmp_path):
    """Warp recompiles a module when it gains a kernel, which a notebook does at every cell."""
    program = """
import jax.numpy as jnp, warp as wp, fphys

def op(kernel):
    return fphys.bridge.warp_op(
        lambda launch, x, y: launch(kernel, dim=x.shape, inputs=[x], outputs=[y]), outputs=lambda x: x)

@wp.kernel
def double(x: wp.array2d(dtype=float), y: wp.array2d(dtype=float)):
    world, i = wp.tid()
    y[world, i] = 2.0 * x[world, i]

doubled, x = op(double), jnp.ones((2, 3), jnp.float32)
assert (doubled(x) == 2).all()

@wp.kernel
def triple(x: wp.array2d(dtype=float), y: wp.array2d(dtype=float)):
    world, i = wp.tid()
    y[world, i] = 3.0 * x[world, i]

assert (op(triple)(x) == 3).all() and (doubled(x) == 2).all()
"""
    path = tmp_path / "program.py"
    path.write_text(program)
    subprocess.run([sys.executable, str(path)], check=True, timeout=120)
