"""Every solver on a GPU makes what the processor makes: states and gradients, in both precisions.

``pytest -m gpu`` runs these; without a GPU, ``FPHYS_STAND_IN=1 pytest -m gpu`` runs them with a stand-in for CUDA, and
its threads in three orders.
"""

import fnmatch
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.bridge.ordered import ordered

from . import ordered_kernels, scenes

pytestmark = pytest.mark.gpu

TOL = {"float64": 1e-10, "float32": 1e-4}
"""Of the largest entry. Sums are taken in another order, and sines and roots are those of another library."""

SOLVED = "sph, incompressible*"
"""Pressures are solved for until rounding decides, which their matrix makes ten times larger."""


def worst(found: list[Any], wanted: list[Any]) -> float:
    """The largest difference, relative to the largest entry of its array; integers must be equal."""
    errors = [0.0]
    for a, b in zip(found, wanted, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if b.dtype.kind != "f":
            np.testing.assert_array_equal(a, b)
        elif b.size:
            assert np.isfinite(b).all(), "the processor's own result is not finite"
            assert np.isfinite(a).all(), "a result is not finite, and the processor's is"
            gap = float(np.max(np.abs(a.astype(float) - b)))
            errors.append(gap / max(float(np.max(np.abs(b))), 1e-30) if gap else 0.0)
    return max(errors)


ADDED = ("mpm*", "coupled *", "surface *")
"""Scenes whose states threads add up in any order, as they do all gradients, unless that is to be in a fixed order.
Other states are always sums in a fixed order."""


def repeats(name: str, kind: str) -> bool:
    """Whether values or gradients of a scene are the same bits in each run."""
    return ordered("cuda") or (kind == "values" and not any(fnmatch.fnmatch(name, pattern) for pattern in ADDED))


@pytest.fixture
def check(expected, gpu, on_gpu, runs, record_property):
    """Compare a scene's states and gradients with the processor's."""

    def compare(name: str, dtype: str) -> None:
        scene, wanted = expected(name, dtype)
        tol = TOL[dtype] * (10 if fnmatch.fnmatch(name, SOLVED) else 1)
        with on_gpu():
            found = [scenes.result(scene, gpu) for _ in runs(1)]
        for run, one in enumerate(found):
            errors = {kind: worst(*pair) for kind, *pair in zip(one._fields, one, wanted, strict=True)}
            for kind, error in errors.items():
                record_property(f"{kind}_error", error)
            assert max(errors.values()) <= tol, (run, errors)
        for kind in filter(functools.partial(repeats, name), found[0]._fields):
            assert all(worst(getattr(one, kind), getattr(found[0], kind)) == 0 for one in found), kind

    return compare


@pytest.mark.parametrize("dtype", scenes.DTYPES)
def test_an_ant(dtype, check):
    check("ant", dtype)


@pytest.mark.parametrize("dtype", scenes.DTYPES)
@pytest.mark.parametrize("name", [name for name in scenes.RIGID if name != "ant"])
def test_rigid(name, dtype, check):
    check(name, dtype)


@pytest.mark.parametrize("dtype", scenes.DTYPES)
@pytest.mark.parametrize("name", [*scenes.MATTER, *scenes.TASKS])
def test_matter(name, dtype, check):
    check(name, dtype)


@pytest.mark.parametrize("worlds", [1, 3, 33, 257])
def test_no_world_depends_on_how_many_there_are(worlds, gpu, on_gpu):
    """Teams fill whole warps however many worlds there are; the last block of threads is partly empty."""
    scene = scenes.SCENES["elliptic cone, condim 6"]("float64")
    alone = jax.tree.map(lambda x: x[:1], scene.moved)
    model, state = scene.fixed

    many = jax.tree.map(lambda x: jnp.repeat(jnp.asarray(x), worlds, 0), alone)
    states = jax.tree.map(lambda x: jnp.repeat(jnp.asarray(x)[:1], worlds, 0), state)
    with on_gpu():
        values = jax.jit(scene.fn)((model, states), many)
        one = jax.jit(scene.fn)((model, jax.tree.map(lambda x: x[:1], state)), alone)
    for a, b in zip(jax.tree.leaves(values), jax.tree.leaves(one), strict=True):
        np.testing.assert_array_equal(a, np.repeat(np.asarray(b), worlds, 0))


@pytest.fixture
def check_repeats(gpu, on_gpu, runs, record_property):
    """Compare ten runs of a scene: bit for bit, or, where threads add in any order, to rounding."""

    def compare(name: str, scene: scenes.Scene) -> None:
        with on_gpu():
            first, *others = (scenes.result(scene, gpu) for _ in runs(10))
        for kind, rounding in (("values", 1e-5), ("gradients", 1e-4)):
            error = max(worst(getattr(other, kind), getattr(first, kind)) for other in others)
            record_property(f"{kind}_spread", error)
            assert error <= (0.0 if repeats(name, kind) else rounding), kind

    return compare


@pytest.mark.parametrize("name", ordered_kernels.REPEATED)
def test_ten_runs_repeat(name, check_repeats):
    check_repeats(name, scenes.SCENES[name]("float32"))


@pytest.mark.parametrize("name", ordered_kernels.SHARED)
def test_gradients_by_what_worlds_share_repeat(name, check_repeats):
    check_repeats(name, scenes.by_all(scenes.SCENES[name]("float64")))
