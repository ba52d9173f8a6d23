"""Large worlds in parts: the same steps and gradients as in one, and the same bits on any number of threads."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.particles import boundary, mpm, mpm_parts
from fphys.particles.mpm_stages import Layout
from tests.compiled import as_users

from .mpm_scenes import MATERIALS

CELL, N = 1 / 8, 96
FLIP = mpm.AffineFlip(0.9)
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "held at faces": {"walls": mpm.Walls("slip", 0.2, hold="face"), "transfer": FLIP},
    "periodic": {"walls": mpm.Walls("periodic"), "transfer": FLIP},
    "contact": {"contact": mpm.Contact((N // 2, N // 2), 0.3, smooth=1), "transfer": FLIP},
    "periodic contact": {"contact": mpm.Contact((N // 2, N // 2), 0.3), "walls": mpm.Walls("periodic")},
}


def scene(dim: int, case: str, lost: bool = False, scattered: bool = False) -> tuple[mpm.Params, mpm.State]:
    """Two crossing clouds of every material far from most of the domain; faulty particles; in any order."""
    rng, shape = np.random.default_rng(2), (41, 22, 13)[:dim]
    params = mpm.Params(
        tuple(MATERIALS.values()), 2e-3, (1.0, *[-2.0] * (dim - 1)), mpm.Walls("slip", 0.2), cell=CELL, shape=shape
    ).replace(**CASES[case])
    x = np.concatenate([rng.uniform(0.01, 0.6, (N // 2, dim)), rng.uniform(0.5, 1.2, (N // 2, dim))])
    if not scattered:
        x = np.concatenate([part[np.lexsort(part.T[::-1])] for part in np.split(x, 2)])
    v = np.repeat([[0.4] * dim, [-0.4] * dim], N // 2, 0) + 0.1 * rng.normal(size=x.shape)
    state = mpm.init(params, x[None], v[None], np.arange(N, dtype=np.int32) % len(MATERIALS))
    flat = np.diag([1.0] * dim + [0.0] * (3 - dim))
    state = state.replace(C=jnp.asarray(flat @ rng.normal(size=state.C.shape) @ flat))
    if lost:
        gone = [(0, np.nan), (31, -1e9), (32, 5.2), (95, np.inf)]  # 5.2: just outside, and first and last of parts
        for p, where in gone:
            state = state.replace(x=state.x.at[0, p, 0].set(where))
    return params, state


def outcome(params: mpm.Params, state: mpm.State, parts: int, colliders: Any = None) -> tuple[Any, Any]:
    """The state after three steps; what a loss of it owes to positions, velocities, rates, stiffness and gravity."""

    def loss(x: Any, v: Any, rate: Any, young: Any, gravity: Any) -> Any:
        first, *rest = params.materials
        given = params.replace(material=(first.replace(young=young), *rest), gravity=gravity, parts=parts)
        end = state.replace(x=x, v=v, C=rate)
        for _ in range(3):
            end = mpm.step(given, end, colliders=colliders)
        return jnp.nansum(jnp.where(jnp.isfinite(end.x), end.v**2 + jnp.sin(end.x), 0.0)) + (end.F**2).sum(), end

    given = state.x, state.v, state.C, jnp.asarray(1e4), jnp.asarray(params.gravity)
    (_, end), slopes = as_users(jax.value_and_grad(loss, argnums=(0, 1, 2, 3, 4), has_aux=True))(*given)
    return end, slopes


def compare(ours: Any, wanted: Any, bar: float) -> None:
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(wanted), strict=True):
        scale = max(1.0, float(np.nanmax(np.where(np.isfinite(b), np.abs(b), 0.0))))
        np.testing.assert_allclose(a, b, rtol=0, atol=bar * scale)


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("case", CASES)
def test_parts_are_the_whole(case: str, dim: int):
    """And their gradients, in every kind of domain, among particles that are lost."""
    params, state = scene(dim, case, lost=case == "plain", scattered=case == "held at faces")
    whole, parts = (outcome(params, state, k) for k in (1, 3))
    compare(parts, whole, 1e-11)
    assert np.isfinite(np.asarray(whole[1][0])).all() and np.abs(whole[1][0]).max() > 1e-3
    assert (int(whole[0].status[0]) != 0) == (case == "plain")


@pytest.mark.parametrize("around", [False, True])
def test_parts_meet_colliders(around: bool):
    params, state = scene(2, "periodic" if around else "plain")
    balls = (
        boundary.sphere((0.5, 0.1), 0.3, friction=0.2),
        boundary.sphere((1.0, 0.6), 0.3, contact="slip", width=CELL),
    )
    whole, parts = (outcome(params, state, k, balls) for k in (1, 4))
    compare(parts, whole, 1e-11)


def test_the_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch):
    """By default: a world is cut by its number of particles."""
    monkeypatch.setattr(mpm_parts, "FEWEST", 16)
    params, state = scene(3, "contact")
    assert [mpm_parts.number(N), mpm_parts.number(N // 2)] == [4, 3]
    found = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("FPHYS_THREADS", threads)
        found.append(jax.tree.leaves(outcome(params, state, 0)))
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))
    one = jax.tree.leaves(outcome(params, state, 1))
    assert not all(np.array_equal(a, b) for a, b in zip(found[0], one, strict=True))


def test_mapped_worlds_in_parts_are_those_alone():
    params, state = scene(2, "held at faces")
    params = params.replace(parts=2)
    pushed = jnp.stack([state.v, 0.5 * state.v, -state.v])

    def end(v: Any) -> Any:
        return (mpm.step(params, state.replace(v=v)).v ** 2).sum()

    together = jax.jit(jax.vmap(jax.value_and_grad(end)))(pushed)
    for world, v in enumerate(pushed):
        compare(jax.tree.map(lambda a, w=world: a[w], together), jax.jit(jax.value_and_grad(end))(v), 1e-13)


@pytest.mark.parametrize("shape", [(9, 300), (13, 7, 141)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_window_is_all_that_its_stencils_reach(shape: tuple[int, ...], dtype: Any):
    """Blocks of four places and two nodes more along each axis: as often as parts see a node, it is added."""
    rng, parts = np.random.default_rng(4), 5
    x = rng.uniform(-0.6, np.array(shape) + 0.6, (parts, 20, len(shape)))
    x[0, 0, -1] = np.nan
    layout = Layout((0,), (0,) * 2 * len(shape), 1.0, shape, (0.0, 0.0, 0.0), False, parts=parts)
    seen = np.zeros((parts, *layout.nodes))
    for part, place in ((k, place + 1.5) for k in range(parts) for place in x[k]):
        on = (place >= 1) & (place < np.array(shape) + 2)  # if it is not, a first block is marked
        first = np.where(on, place - 0.5, 0).astype(int) // 4 * 4
        seen[(part, *(slice(a, a + 6) for a in first))] = 1
    grid = jnp.asarray(rng.integers(1, 9, (1, seen[0].size, 4)), dtype)
    marks = mpm_parts.marking(layout, jnp.asarray(x, dtype))
    found, pull = jax.vjp(lambda g: mpm_parts.joined(layout, marks, mpm_parts.cut(layout, marks, g)), grid)
    wanted = seen.sum(0).reshape(1, -1, 1) * np.asarray(grid)
    assert set(np.unique(seen.sum(0))) >= {0, 1, 2}
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(pull(grid)[0], wanted)


def test_into_how_many_parts():
    """Equal ones, and none too small."""
    sizes = {5: 1, 16383: 1, 16384: 2, 24576: 3, 32769: 3, 40985: 5, 65536: 4, 65537: 1, 10**6: 4}
    assert {n: mpm_parts.number(n) for n in sizes} == sizes
