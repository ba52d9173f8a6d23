"""Neighbours against brute force: everywhere, in every precision, on open and periodic axes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.particles.neighbors import make_grid, neighbors

R = 0.1


def brute_force(x: np.ndarray, radius: float, periodic: tuple) -> list[set[int]]:
    """Who is nearer than the radius to whom, in the precision of x."""
    d = x[:, None] - x[None]
    for axis, ends in enumerate(periodic):
        if ends is not None:
            length = x.dtype.type(ends[1] - ends[0])
            d[..., axis] -= length * np.round(d[..., axis] / length)
    near = (d**2).sum(-1) < x.dtype.type(radius) ** 2
    np.fill_diagonal(near, False)
    return [set(np.flatnonzero(row)) for row in near]


def found(x: np.ndarray, periodic: tuple, capacity: int = 64, extent: float = 1.0) -> tuple[list[set[int]], int]:
    grid = make_grid(R, periodic, [extent] * x.shape[-1], x.shape[1])
    index, number, needed = jax.jit(lambda x: neighbors(grid, x, capacity))(jnp.asarray(x))
    index = np.asarray(index)
    assert (np.asarray(number) == (index >= 0).sum(-1)).all() or int(needed.max()) > capacity
    return [set(row[row >= 0]) for world in index for row in world], int(needed.max())


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_neighbors_are_those_of_brute_force(dim: int, dtype: str):
    x = np.random.default_rng(0).uniform(0, 0.8, (2, 300, dim)).astype(dtype)
    open_axes = (None,) * dim
    assert found(x, open_axes, 128)[0] == [row for world in x for row in brute_force(world, R, open_axes)]


@pytest.mark.parametrize("periodic", [((0.0, 0.8), (-0.3, 0.7)), ((0.0, 0.31), None), ((0.0, 0.5), None, (-1.0, -0.2))])
def test_periodic_axes(periodic: tuple):
    ends = [e or (-0.4, 0.4) for e in periodic]
    x = np.random.default_rng(1).uniform([e[0] for e in ends], [e[1] for e in ends], (1, 400, len(ends)))
    x[0, 0] = [e[0] for e in ends]
    assert found(x, periodic, 200)[0] == brute_force(x[0], R, periodic)


def test_space_is_wound_around_the_cells():
    """Two clouds far apart, in a grid made for neither: folded onto one another, and told apart."""
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.uniform(-5, 5, (200, 2)), rng.uniform(6e4, 6e4 + 0.5, (200, 2))])[None]
    assert found(x, (None, None), 128, extent=0.3)[0] == brute_force(x[0], R, (None, None))


def test_a_short_period_is_refused():
    with pytest.raises(ValueError, match="less than three times the radius"):
        make_grid(R, ((0.0, 0.25), None), (0, 1), 10)
