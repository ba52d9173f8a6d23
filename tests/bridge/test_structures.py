"""Kernels that take a ``wp.struct`` of arrays: matched by name, differentiable, shared by worlds, refused in time."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp

from fphys.bridge import warp_op
from fphys.errors import BridgeError
from fphys.testing import check_grads

f64 = wp.float64
KIND = np.array([1, 2, 3, 1], np.int32)


@wp.struct
class Spring:
    stiffness: wp.array2d(dtype=f64)
    ends: wp.array2d(dtype=wp.vec2d)


@wp.struct
class Body:
    spring: Spring
    mass: wp.array2d(dtype=f64)
    kind: wp.array(dtype=wp.int32)
    factor: f64


@wp.struct
class Work:
    length: wp.array2d(dtype=f64)
    running: wp.array2d(dtype=f64)


@wp.func
def stretch(s: Spring, world: int, i: int) -> f64:
    return s.ends[world, i][1] - s.ends[world, i][0]


@wp.kernel
def measure(b: Body, work_out: Work):
    """The kernel that writes the running product also reads it."""
    world = wp.tid()
    for i in range(b.mass.shape[1]):
        work_out.length[world, i] = stretch(b.spring, world, i)
    work_out.running[world, 0] = b.mass[world, 0]
    for i in range(1, b.mass.shape[1]):
        work_out.running[world, i] = wp.sin(work_out.running[world, i - 1]) * b.mass[world, i]


@wp.kernel
def energy(b: Body, work: Work, energy_out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    x = work.length[world, i]
    scale = b.factor * f64(b.kind[i]) * b.spring.stiffness[world, i]
    energy_out[world, i] = scale * x * x + work.running[world, i] * b.mass[world, i] * stretch(b.spring, world, i)


class Given(NamedTuple):
    stiffness: Any  # (world, 4)
    mass: Any  # (world, 4)
    ends: Any  # (world, 4, 2)


def launches(launch: Any, given: Given, out: Any) -> None:
    body = {"spring": given, "mass": given.mass, "kind": KIND, "factor": 0.5}  # Given has a spring's fields and others
    work = {name: launch.scratch((launch.worlds, 4), f64) for name in ("length", "running")}
    launch(measure, dim=launch.worlds, inputs=[body], outputs=[work])
    launch(energy, dim=(launch.worlds, 4), inputs=[body, work], outputs=[out])


operation = warp_op(launches, outputs=lambda given: jax.ShapeDtypeStruct(given.ends.shape[:2], jnp.float64))


def plain(given: Given) -> jax.Array:
    length = given.ends[..., 1] - given.ends[..., 0]
    mass = jnp.broadcast_to(given.mass, length.shape)
    running = [mass[:, 0]]
    for i in range(1, 4):
        running.append(jnp.sin(running[-1]) * mass[:, i])
    return 0.5 * KIND[None] * given.stiffness * length**2 + jnp.stack(running, 1) * mass * length


def given(shared: bool, worlds: int = 3) -> Given:
    rng, rows = np.random.default_rng(0), 1 if shared else worlds
    return Given(*(jnp.asarray(rng.normal(size=shape)) for shape in ((rows, 4), (rows, 4), (worlds, 4, 2))))


@pytest.mark.parametrize("worlds", [3, 500])
@pytest.mark.parametrize("shared", [False, True])
def test_values_and_gradients(shared: bool, worlds: int):
    """Nested structures, constants, numbers, scratch. Five hundred worlds are split into blocks for threads."""
    values, weights = given(shared, worlds), np.random.default_rng(1).normal(size=(worlds, 4))
    np.testing.assert_allclose(jax.jit(operation)(values), plain(values), rtol=1e-13, atol=1e-14)  # sums cancel
    ours = jax.jit(jax.grad(lambda v: (weights * operation(v)).sum()))(values)
    for one, other in zip(ours, jax.grad(lambda v: (weights * plain(v)).sum())(values), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_gradients_by_differences_and_under_vmap():
    values = given(False)
    check_grads(lambda *v: operation(Given(*v)), tuple(values))
    many = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), values)
    np.testing.assert_array_equal(jax.vmap(operation)(many)[1], operation(jax.tree.map(lambda x: x[1], many)))


def test_the_gradient_of_one_field_alone():
    """The other fields, which need no gradient, get no memory for one."""
    values = given(True)
    ours = jax.grad(lambda mass: operation(values._replace(mass=mass)).sum())(values.mass)
    np.testing.assert_allclose(ours, jax.grad(lambda m: plain(values._replace(mass=m)).sum())(values.mass), rtol=1e-12)


# Refused before anything is launched


@wp.kernel
def overwrite(work: Work, out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    work.length[world, i] = f64(1.0)
    out[world, i] = work.running[world, i]


@wp.func
def squared(work: Work, world: int, i: int) -> f64:
    return work.length[world, i] * work.length[world, i]


@wp.func_grad(squared)
def adj_squared(work: Work, world: int, i: int, adj_ret: f64):
    wp.adjoint[work.length][world, i] += f64(2.0) * adj_ret * work.length[world, i]


@wp.kernel
def by_hand(work: Work, out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    out[world, i] = squared(work, world, i) + work.length[world, i]


@wp.kernel
def lengths(work: Work, out: wp.array2d(dtype=f64)):
    world, i = wp.tid()
    out[world, i] = work.length[world, i]


@pytest.mark.parametrize(
    ("kernel", "work", "dim", "told"),
    [
        (lengths, lambda x: {"length": x}, 4, "argument work is a Work, and the dict passed for it has no running"),
        (lengths, lambda x: x, 4, "argument work is a Work, and the Buffer passed for it has no length"),
        (lengths, lambda x: {"length": x, "running": KIND}, 4, "argument work.running"),
        (lengths, lambda x: {"length": x, "running": x}, 5, "no array has size 5 on axis 1"),
        (overwrite, lambda x: {"length": x, "running": x}, 4, "writes work.length, which the launch passes among its"),
        (by_hand, lambda x: {"length": x, "running": x}, 4, "adjoint by hand of squared writes to wp.adjoint"),
    ],
)
def test_mismatches_are_refused_by_name(kernel: Any, work: Any, dim: int, told: str):
    bad = warp_op(
        lambda launch, x, y: launch(kernel, dim=(launch.worlds, dim), inputs=[work(x)], outputs=[y]),
        outputs=lambda x: x,
        name="springs",
    )
    with pytest.raises((BridgeError, TypeError), match=told):
        bad(jnp.ones((3, 4)))


def test_a_field_has_one_writer():
    def twice(launch: Any, x: Any, ends: Any, y: Any) -> None:
        work = {"length": y, "running": launch.scratch((3, 4), f64)}
        body = {"spring": {"stiffness": x, "ends": ends}, "mass": x, "kind": KIND, "factor": 0.5}
        for _ in range(2):
            launch(measure, dim=3, inputs=[body], outputs=[work])

    with pytest.raises(BridgeError, match=r"writes output 0 .*, which measure wrote before"):
        warp_op(twice, outputs=lambda x, ends: x)(jnp.ones((3, 4)), jnp.ones((3, 4, 2)))
