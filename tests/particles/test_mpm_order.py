"""The order in which particles are summed, against Warp's deterministic mode, bit by bit."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp

from fphys.particles import materials, mpm, mpm_stages

from .mpm_scenes import scene

f64 = wp.float64


@wp.kernel(module="unique", module_options={"deterministic": wp.DeterministicMode.RUN_TO_RUN}, enable_backward=False)
def spread_plainly(
    place: wp.array(dtype=wp.vec3d),
    value: wp.array(dtype=wp.vec4d),
    nodes: wp.vec3i,
    grid_out: wp.array(dtype=wp.vec4d),
):
    """sum(w q) by atomic sums, one particle a thread; places in cells, nodes counted from the outermost."""
    p = wp.tid()
    base = wp.vec3i(int(place[p][0] - f64(0.5)), int(place[p][1] - f64(0.5)), int(place[p][2] - f64(0.5)))
    w = wp.matrix(shape=(3, 3), dtype=f64)
    for a in range(3):
        f = place[p][a] - f64(base[a])
        w[a, 0] = f64(0.5) * (f64(1.5) - f) * (f64(1.5) - f)
        w[a, 1] = f64(0.75) - (f - f64(1.0)) * (f - f64(1.0))
        w[a, 2] = f64(0.5) * (f - f64(0.5)) * (f - f64(0.5))
    for i in range(3):
        for j in range(3):
            for k in range(3):
                node = ((base[0] + i) * nodes[1] + base[1] + j) * nodes[2] + base[2] + k
                wp.atomic_add(grid_out, node, (w[0, i] * w[1, j] * w[2, k]) * value[p])


def spread(order: np.ndarray) -> tuple[Any, Any]:
    """Ours and Warp's, of particles in some order.

    Places are eighths of a cell and values have 24 bits, so that every product is exact: only sums round.
    """
    rng = np.random.default_rng(3)
    place = rng.integers(16, 40, (len(order), 3)) / 8
    mass = 2.0 ** rng.integers(-12, 12, (len(order), 1))
    value = mass * np.append(rng.normal(size=(len(order), 3)).astype(np.float32).astype(float), np.ones_like(mass), 1)
    place, mass, value = place[order], mass[order], value[order]
    params, state = scene("corotated", 3, n=len(order))
    rest = jnp.broadcast_to(jnp.eye(3), state.F.shape)
    state = state.replace(F=rest, C=0.0 * rest, volume=jnp.asarray(mass.T), status=None)
    state = state.replace(x=jnp.asarray((place - 1.5) * params.cell)[None], v=jnp.asarray(value[:, :3] / mass)[None])
    layout = mpm_stages.Layout((0,), params.walls.kinds(3), params.cell, params.shape, (0.0, 0.0, 0.0), False)
    params = params.replace(material=mpm.Corotated(1.0, 0.0, 0.0))  # without stress
    rows, *_ = mpm._rows(params, (1, len(order)), jnp.float64)
    setting = mpm.Setting(materials.table(params.materials, jnp.float64, state.material), **rows)
    given = state, jnp.zeros((1, 1, 3)), jnp.zeros((1, 1, 3, 3)), mpm_stages.NO_MARKS
    ours = mpm_stages.scattering(layout, setting, *given).momentum[0]
    grid = wp.zeros(len(ours), dtype=wp.vec4d, device="cpu")
    given = [wp.array(place, dtype=wp.vec3d, device="cpu"), wp.array(value, dtype=wp.vec4d, device="cpu")]
    wp.launch(spread_plainly, dim=len(order), inputs=[*given, wp.vec3i(*layout.nodes)], outputs=[grid], device="cpu")
    return np.asarray(ours), grid.numpy()


@pytest.mark.parametrize("n", [5, 64, 1003])
def test_sums_are_those_of_warps_deterministic_mode(n: int):
    """In the particles' own order, also where a batch is not full; in another order they round otherwise."""
    ours, plain = spread(np.arange(n))
    assert np.array_equal(ours, plain) and np.abs(plain).max() > 0
    if n == 1003:
        assert not np.array_equal(spread(np.arange(n)[::-1])[0], plain)
