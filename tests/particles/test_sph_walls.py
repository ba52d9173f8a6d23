"""Walls that repel: what splashes stays before their faces, and what rests does not notice."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys import scan
from fphys.errors import StateError
from fphys.particles import sph
from fphys.testing import check_grads
from fphys.worlds import Status

from .sph_scenes import lattice, pool, run

SPACING, SOUND, WIDE = 0.05, 20.0, 16


def block(dim: int, smoothing: float, dtype: str, repulsion: float, speed: float) -> tuple[Any, sph.State, int]:
    """A block of four particles along each edge, a spacing above a floor, jostled and thrown at it; six worlds."""
    rng, wide = np.random.default_rng(0), WIDE * SPACING
    deep = np.ceil(2 * smoothing) * SPACING
    floor = lattice([-wide] * (dim - 1) + [-deep], [wide] * (dim - 1) + [0.0], SPACING)
    fluid = lattice([-2 * SPACING] * (dim - 1) + [SPACING], [2 * SPACING] * (dim - 1) + [5 * SPACING], SPACING)
    x = np.concatenate([np.repeat(points[None], 6, 0) for points in (fluid, floor)], 1)
    x[:, : len(fluid)] += 0.05 * SPACING * rng.standard_normal((6, *fluid.shape))
    x[:, : len(fluid), :-1] += rng.uniform(0, SPACING, (6, 1, dim - 1))  # above, beside and between wall particles
    v = np.zeros_like(x)
    v[:, : len(fluid), -1] = -speed
    gravity = np.array([0.0] * (dim - 1) + [-9.81])
    params = sph.Params(SPACING, 1.0, SOUND, gravity=gravity, artificial=0.1, repulsion=repulsion, smoothing=smoothing)
    params = params.replace(timestep=0.9 * float(sph.limit(params, speed + 2).min()))
    kind = np.repeat([sph.FLUID, sph.WALL], [len(fluid), len(floor)])
    return params, sph.init(params, x.astype(dtype), v.astype(dtype), kind), len(fluid)


@pytest.mark.parametrize(("dim", "smoothing"), [(2, 1.0), (2, 1.5), (3, 1.0)])
def test_a_block_thrown_at_a_fifth_of_sound_stays_before_the_face(dim: int, smoothing: float):
    """On the floor no particle is nearer to its face than a tenth of a spacing; without repulsion some nearly touch."""
    held, free = (nearest(*block(dim, smoothing, "float32", repulsion, SOUND / 5)) for repulsion in (1.0, 0.0))
    assert held > 0.1 and free < 0.06


def nearest(params: Any, state: sph.State, count: int) -> float:
    """How near to the face of the floor fluid above the floor comes in a quarter of a second, in spacings."""

    def one(s: sph.State, _: None) -> Any:
        s = sph.step(params, s)
        x = s.x[:, :count]
        return s, jnp.where((jnp.abs(x[..., :-1]) < (WIDE - 2) * SPACING).all(-1), x[..., -1], 1.0).min()

    last, lowest = jax.jit(lambda s: jax.lax.scan(one, s, None, length=round(0.25 / params.timestep)))(state)
    sph.check(params, last)
    return float(lowest.min()) / SPACING


def test_what_is_a_spacing_away_does_not_notice():
    params, state = pool(noise=0.0)
    calm = sph.forces(params.replace(repulsion=0 * params.repulsion), state)
    assert np.allclose(sph.forces(params, state), calm, rtol=1e-12, atol=1e-9)
    params, state = pool(noise=0.2)
    close = sph.forces(params.replace(repulsion=0 * params.repulsion), state)
    extra = np.asarray(sph.forces(params, state) - close)
    assert np.abs(extra).max() > 0.1 * float(jnp.abs(close).max())
    assert np.abs(extra.sum(1)).max() < 1e-12 * np.abs(extra).sum(1).max()  # the walls take up the momentum


def test_gradients_through_an_impact(full: bool):
    """By how hard walls push, by velocity and by position, over the steps in which a block is thrown back."""
    params, state, count = block(2, 1.5, "float64", 1.0, SOUND / 5)
    state = jax.tree.map(lambda leaf: leaf[:1], state)

    def thrown(repulsion: Any, x: Any, v: Any) -> Any:
        start = state.replace(x=state.x.at[:, :count].set(x), v=state.v.at[:, :count].set(v))
        last, _ = scan(lambda s, _: (sph.step(params.replace(repulsion=repulsion), s), None), start, jnp.arange(24))
        return last.x[:, :count], last.v[:, :count], last.rho[:, :count] / 1000

    args = (jnp.array([1.0]), state.x[:, :count], state.v[:, :count])
    by = jax.jit(jax.grad(lambda *a: jnp.sum(thrown(*a)[1] ** 2)))(*args)
    assert np.abs(by) > 1e-3  # it was felt
    check_grads(thrown, args, tol=1e-6, directions=16 if full else 2)


def in_box(method: str, layers: int, wide: float, high: float) -> tuple[Any, np.ndarray, np.ndarray, float]:
    """Params of water of 2 cm, its particles, those of a box of walls around it, and the spacing."""
    s = 0.02
    params = sph.Params(s, 1.0, 20.0, gravity=(0.0, -9.81), artificial=0.1, method=method)
    params = params.replace(timestep=0.9 * float(sph.limit(params, 2.0).min()))
    box = lattice([-layers * s, -3 * s], [wide + layers * s, high + 0.1], s)
    box = box[(box[:, 0] < 0) | (box[:, 0] > wide) | (box[:, 1] < 0)]
    return params, lattice([0.0, 0.0], [wide, high], s), box, s


def test_what_gets_through_a_floor_is_reported():
    """Floors of one layer, of two, and of three that are loose: a spacing and a half apart; water of 0.3 m falls."""
    params, water, box, s = in_box("wcsph", 3, 0.3, 0.3)
    sides, row = box[(box[:, 0] < 0) | (box[:, 0] > 0.3)], box[box[:, 1] > -s]
    row = row[(row[:, 1] < 0) & (row[:, 0] > 0) & (row[:, 0] < 0.3)]
    loose, away = row * [1.5, 1.0], row + [0.0, -1.0]
    loose = np.where(loose[:, :1] < 0.3, loose, loose + [0.0, -1.0])
    under = [0.0, -s]
    floors = [[row, away, away + under], [row, row + under, away], [loose, loose + under, loose + 2 * np.array(under)]]
    x = np.stack([np.concatenate([water, sides, *floor]) for floor in floors])
    kind = np.repeat([sph.FLUID, sph.WALL], [len(water), x.shape[1] - len(water)])
    state = sph.init(params, x.astype("float32"), material=kind)
    state = run(params, state, round(0.6 / params.timestep))
    below = (np.asarray(state.x[:, : len(water), 1]) < -3 * s).sum(1)
    said = (np.asarray(state.status) & int(Status.THROUGH)) > 0
    assert (below > 0).tolist() == said.tolist() == [True, False, True]
    with pytest.raises(StateError, match=r"(?s)fluid went into or through a wall: .*two layers"):
        sph.check(params, state)


@pytest.mark.parametrize("method", ["wcsph", "dfsph"])
def test_what_is_crushed_is_not_lost_silently(method: str):
    """A lid of three layers comes down into a box, which has no room for the water in the end."""
    params, water, box, s = in_box(method, 3, 0.2, 0.1)
    lid, speed = lattice([0.0, 0.105], [0.2, 0.165], s), 0.5
    x = np.concatenate([water, box, lid])[None]
    v = np.zeros_like(x)
    v[:, -len(lid) :, 1] = -speed
    kind = np.repeat([sph.FLUID, sph.WALL], [len(water), len(box) + len(lid)])
    state, n = sph.init(params, x, v, material=kind, max_neighbors=200), len(water)

    def one(now: sph.State, _: None) -> Any:
        now = sph.step(params, now)
        at, low = now.x[0, :n], now.x[0, -1, 1] - 2.5 * s
        out = (at[:, 1] > low + 1.5 * s) | (at < -1.5 * s).any(1) | (at[:, 0] > 0.2 + 1.5 * s)  # beyond two layers
        return now, (out.any(), (now.status[0] & jnp.uint32(Status.THROUGH)) > 0)

    _, (lost, said) = jax.jit(lambda s: jax.lax.scan(one, s, None, round(0.15 / params.timestep)))(state)
    lost, said = np.asarray(lost), np.asarray(said)
    assert lost[-1] and not said[0] and (said | ~lost).all()
