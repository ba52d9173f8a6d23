"""Explicit steps of finite elements: leapfrog, whose time step is bounded by the fastest wave across an element.

    x_half = x + h v / 2,   v' = v + h (M^-1 (f + f_elastic(x_half)) + g - c (v + v') / 2),   x' = x_half + h v' / 2

c being the damping by mass. Of second order; without c symplectic, and both momenta stay, to rounding. A body's highest
frequency is at most that of its stiffest element alone, so steps below 2 / w are stable at small strain, with

    w^2 = max_e corners (dim max(lambda, 0) + 2 mu) / rho sum_a |g_a|^2

where g_a are the slopes of the shape functions (Hughes 1987, "The finite element method", chapter 9).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import kernels, warp_op
from ..implicit import recomputed
from .fem_solve import Layout, Setting
from .mesh import measures, shared

Array = jax.Array


def _held(still: Array, layout: Layout, setting: Setting, start: Array) -> tuple[Layout, Setting, Array]:
    """Arguments for which these worlds stay at rest."""
    rows = still[:, None, None]
    x, v = jnp.where(rows, setting.rest, setting.x), jnp.where(rows, 0, setting.v)
    return layout, setting._replace(x=x, v=v), jnp.where(rows, 0, start)


@recomputed(lambda result: None, _held)
def leap(_: None, layout: Layout, setting: Setting, start: Array) -> tuple[tuple[Array, Array], None]:
    """Places [m] and velocities [m/s] after a step, (world, vertex, 3).

    ``start`` [m] holds the displacement of pinned vertices, which move in a straight line.
    """
    elements, h, held = layout.topology.elements, setting.timestep[:, None, None], np.array(layout.pinned, int)
    size = measures(setting.rest[..., : elements.shape[1] - 1], elements)
    mass = shared(setting.density * size, elements, layout.topology.num_vertices)
    middle = setting.x + 0.5 * h * setting.v
    middle = middle.at[:, held].set((setting.x + 0.5 * start)[:, held])
    force = setting.force + _force_op(layout, setting.rest, setting.mu, setting.lam, setting.muscle, middle)
    drag = 0.5 * h * setting.damping[:, None, None]
    v = ((1 - drag) * setting.v + h * (setting.gravity[:, None] + force / mass[..., None])) / (1 + drag)
    v = v.at[:, held].set((start / h)[:, held])
    return (middle + 0.5 * h * v, v), None


def courant(rest: Array, elements: np.ndarray, mu: Array, lam: Array, density: Array) -> Array:
    """The longest stable step [s], (1 | world,); ``rest`` [m] has vectors of three numbers."""
    corners = elements.shape[1]
    o, *tips = (rest[:, elements[:, k]] for k in range(corners))
    up = jnp.broadcast_to(jnp.array([0.0, 0.0, 1.0], rest.dtype)[None, None], o.shape)
    a, b, c = (*(tip - o for tip in tips), up)[:3]
    sides = jnp.stack(
        [jnp.cross(b, c), jnp.cross(c, a), jnp.cross(a, b)][: corners - 1]
    )  # slopes times the determinant
    square = ((sides**2).sum((0, -1)) + (sides.sum(0) ** 2).sum(-1)) / (a * sides[0]).sum(-1) ** 2
    modulus = (corners - 1) * jnp.maximum(lam, 0) + 2 * mu
    return 2 / jnp.sqrt((corners * modulus / density * square).max(1))


def _force(launch: Any, layout: Layout, rest: Any, mu: Any, lam: Any, muscle: Any, x: Any, out: Any) -> None:
    elements, k = layout.topology.elements, kernels(x.dtype, "deformables.force")
    each = launch.scratch((launch.worlds, *elements.shape), kernels(x.dtype, "_precision").vec3)
    inputs = [layout.law, elements, rest, mu, lam, muscle, x]
    launch(k.element_force, dim=(launch.worlds, len(elements)), inputs=inputs, outputs=[each])
    inputs = [elements, *layout.topology.incidence, each]
    launch(k.vertex_force, dim=x.shape[:2], inputs=inputs, outputs=[out])


_force_op = warp_op(_force, lambda *args: args[-1], zeroed=False, name="fem.step: force")
