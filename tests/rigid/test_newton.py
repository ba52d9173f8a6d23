"""Newton's method for eight worlds at once against the one for one world, on problems without a mechanism."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.bridge import kernels, warp_op
from fphys.model import Status
from fphys.rigid.solve.constraint import SolverReport
from fphys.rigid.stages import Rows

N, FIRST, CONTACTS, WORLDS = 14, 9, 6, 29
ROWS = FIRST + 4 * CONTACTS + 10
LIMIT, LINE = 100, 50  # iterations


def problem(seed: int, dtype: str) -> list[jax.Array]:
    """Random convex problems; what belongs to a row that does not act is not a number."""
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(WORLDS, N, N))
    matrix = half @ half.swapaxes(1, 2) / N + np.eye(N)
    force, start = 10 * rng.normal(size=(2, WORLDS, N))
    jacobian = rng.normal(size=(WORLDS, ROWS, N)) * (rng.random((WORLDS, ROWS, N)) < 0.5)
    contacts = rng.integers(0, CONTACTS + 1, WORLDS)
    weight = np.zeros((WORLDS, ROWS))
    weight[:, :FIRST] = 20 * (rng.random((WORLDS, FIRST)) < 0.3)
    weight[:, FIRST:] = 30 * (np.arange(ROWS - FIRST) < 4 * contacts[:, None])
    bound = np.broadcast_to([-1e30, 0.0], (WORLDS, ROWS, 2)).copy()
    bound[:, :3] = [-2.0, 2.0]
    idle = weight == 0
    reference = np.where(idle, np.nan, 3 * rng.normal(size=(WORLDS, ROWS)))
    jacobian[idle] = np.nan
    floats = (matrix[:, *np.tril_indices(N)], force, start, jacobian, weight, reference, bound)
    held = np.arange(CONTACTS) < contacts[:, None]
    pair = np.where(held, 0, -1).astype(np.int32)
    row = np.where(held, 4 * np.arange(CONTACTS), 0).astype(np.int32)
    return [*(jnp.asarray(x, dtype) for x in floats), jnp.asarray(pair), jnp.asarray(row)]


def _shapes(tolerance, inertia, matrix, *rest):
    w, real, shape = matrix.shape[0], matrix.dtype, jax.ShapeDtypeStruct
    rates = [shape((w, n), real) for n in (N, N * (N + 1) // 2)]
    return (*rates, *(shape((w,), kind) for kind in (real, jnp.int32, jnp.uint32)))


def _alone(launch, tolerance, inertia, *rest):
    """One world at a time."""
    (matrix, force, start, *rows, pair, row), (qacc, factor, *found) = rest[:9], rest[9:]
    w, types = launch.worlds, kernels(qacc.dtype, "_precision")
    real, integer = types.real, types.integer
    vectors = {name: launch.scratch((w, N), real) for name in ("gradient", "search", "net", "change_net")}
    work = {name: launch.scratch((w, ROWS), kind) for name, kind in (("active", integer), ("inside", integer))}
    work |= {name: launch.scratch((w, ROWS), real) for name in ("error", "change", "force")}
    work |= {"cone": launch.scratch((w, CONTACTS), integer), "slope": launch.scratch((w, 2, N), real)}
    friction = launch.scratch((w, 1, 5), real, zeroed=True)
    cones = {"elliptic": 0, "first": FIRST, "pair": pair, "row": row, "dim": np.zeros(1, np.int32)}
    cones |= {"friction": friction, "impratio": inertia}
    launch(
        kernels(qacc.dtype, "rigid.solve.newton").newton,
        dim=(w, 1),
        inputs=[1, LIMIT, LINE, tolerance, inertia, matrix, force, start, Rows(*rows), cones],
        outputs=[qacc, factor, SolverReport(*found), vectors, work],
    )


def _side_by_side(limit, launch, tolerance, inertia, *rest):
    launch(
        kernels(rest[0].dtype, "rigid.solve.newton_lanes").newton_lanes,
        dim=launch.worlds,
        inputs=[limit, LINE, FIRST, tolerance, inertia, *rest[:9]],
        outputs=list(rest[9:]),
    )


def _solver(fn, *bound):
    op = jax.jit(warp_op(functools.partial(fn, *bound), _shapes, differentiable=False, name=fn.__name__))
    return lambda args, tolerance: op(*(jnp.full((1,), x, args[0].dtype) for x in (tolerance, 1.0)), *args)


alone, side_by_side, stopped = _solver(_alone), _solver(_side_by_side, LIMIT), _solver(_side_by_side, 3)


@pytest.mark.parametrize("seed", range(5))
def test_eight_worlds_at_once_are_solved_as_each_alone(seed):
    args = problem(seed, "float64")
    for x, y in zip(side_by_side(args, 1e-9), alone(args, 1e-9), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-11)


def test_float32_is_as_near_as_its_digits():
    exact = np.asarray(alone(problem(7, "float64"), 1e-9)[0])
    found, _, _, _, status = side_by_side(problem(7, "float32"), 1e-6)
    scale = np.abs(exact).max(1, keepdims=True)
    assert not np.any(status) and (np.abs(np.asarray(found) - exact) / scale).max() < 1e-5


def test_who_stands_beside_a_world_does_not_matter():
    """Bit by bit: others, their number, one that is not a number."""
    args = problem(3, "float64")
    whole = side_by_side(args, 1e-9)
    for first, last in ((0, 1), (3, 6), (5, WORLDS), (8, 24)):
        part = side_by_side([x[first:last] for x in args], 1e-9)
        for x, y in zip(part, whole, strict=True):
            np.testing.assert_array_equal(x, y[first:last])
    spoilt = [x.at[9].set(jnp.nan) for x in args[:3]] + args[3:]
    for x, y in zip(side_by_side(spoilt, 1e-9), whole, strict=True):
        np.testing.assert_array_equal(np.delete(x, 9, 0), np.delete(y, 9, 0))


def test_a_world_that_does_not_converge_says_so_and_the_others_do_not():
    *_, residual, iterations, status = stopped(problem(3, "float64"), 1e-9)
    unsolved = np.asarray(residual) > 1e-9
    assert 0 < unsolved.sum() < WORLDS and np.all(np.asarray(iterations)[unsolved] == 3)
    np.testing.assert_array_equal(status, np.where(unsolved, Status.UNCONVERGED, 0))
