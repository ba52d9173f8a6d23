"""Parameters of a dynamical system by least squares over a recorded motion.

The recording is cut into windows, and the state at the start of each is unknown too (multiple shooting), so that
the simulation cannot run away from the data before the parameters are right:

    minimise  sum_w sum_t | (x_wt - y_wt) / scale |^2   over parameters p and starts x_w0,
    x_w,t+1 = step(p, x_wt, u_wt).

Levenberg-Marquardt: reverse mode gives the derivatives of all steps at once, sensitivities follow forward through
time, and the starts are eliminated from the normal equations window by window.

H. G. Bock, "Recent advances in parameter identification techniques for ODE", 1983; D. W. Marquardt, "An algorithm
for least-squares estimation of nonlinear parameters", 1963.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array
Step = Callable[[Array, Array, Array], Array]
"""(parameters (batch, P), x (batch, n), u (batch, nu)) -> the next x (batch, n); each of the batch on its own."""


class Windows(NamedTuple):
    u: Array  # Inputs, shape (T, window, nu).
    y: Array  # Measured states, shape (T + 1, window, n).
    scale: Array  # Of each channel, shape (n,).


class Estimate(NamedTuple):
    parameters: Array  # Of order one, as logarithms are, shape (P,).
    start: Array  # First state of each window, shape (window, n).
    cost: Array  # Sum of squared residuals, a scalar.
    damping: Array  # Levenberg-Marquardt's, a scalar.


def cut(u: Array, y: Array, length: int, scale: Array) -> Windows:
    """Windows of ``length`` steps of a recording, u (rows, nu) and y (rows, n); what is left at the end is dropped."""
    count = (len(y) - 1) // length
    first = length * jnp.arange(count)
    inside = first + jnp.arange(length + 1)[:, None]
    return Windows(u[inside[:-1]], y[inside], scale)


def begin(step: Step, windows: Windows, parameters: Array) -> Estimate:
    """Parameters as guessed, starts as measured."""
    start = windows.y[0]
    cost = (_residuals(windows, simulate(step, parameters, start, windows.u)) ** 2).sum()
    return Estimate(parameters, start, cost, jnp.full((), 1e-2, cost.dtype))


def improve(step: Step, windows: Windows, now: Estimate) -> Estimate:
    """One iteration: kept where the cost falls; otherwise the damping grows. No parameter moves by more than 1."""
    h, coupling, g, own, rest = _normal_equations(step, windows, now)
    schur, right, back = _eliminate(_damped(h, now.damping), coupling, g, _damped(own, now.damping), rest)
    change = -jnp.linalg.solve(schur, right)
    change = change / jnp.maximum(jnp.abs(change).max(), 1.0)
    parameters = now.parameters + change
    start = now.start - back[..., -1] - back[..., :-1] @ change
    cost = (_residuals(windows, simulate(step, parameters, start, windows.u)) ** 2).sum()
    better, worse = Estimate(parameters, start, cost, now.damping / 5), now._replace(damping=now.damping * 5)
    return jax.tree.map(lambda a, b: jnp.where(cost < now.cost, a, b), better, worse)


def deviations(step: Step, windows: Windows, now: Estimate) -> Array:
    """Standard deviations of the parameters, the noise taken from the residuals, shape (P,).

    Very large for those that the data do not tell apart.
    """
    schur, _, _ = _eliminate(*_normal_equations(step, windows, now))
    freedom = windows.y.size - now.parameters.size - now.start.size
    values, vectors = jnp.linalg.eigh(schur)
    values = jnp.maximum(values, 1e-12 * values[-1])
    return jnp.sqrt((vectors**2 / values).sum(1) * now.cost / freedom)


def simulate(step: Step, parameters: Array, start: Array, u: Array) -> Array:
    """States (T + 1, window, n) from ``start`` (window, n) under u (T, window, nu); parameters (P,) or (window, P)."""
    shared = jnp.broadcast_to(parameters, (len(start), parameters.shape[-1]))

    def advance(x: Array, u: Array) -> tuple[Array, Array]:
        x = step(shared, x, u)
        return x, x

    return jnp.concatenate([start[None], jax.lax.scan(advance, start, u)[1]])


def _residuals(windows: Windows, x: Array) -> Array:
    return (x - windows.y) / windows.scale


def _normal_equations(step: Step, windows: Windows, now: Estimate) -> tuple[Array, Array, Array, Array, Array]:
    """Of the parameters (P, P), between parameters and starts (window, P, n), their gradients (P,), of the starts
    (window, n, n), and their gradients (window, n)."""
    x = simulate(step, now.parameters, now.start, windows.u)
    residual = _residuals(windows, x)
    by_parameters, by_start = (s / windows.scale[:, None] for s in _sensitivities(step, windows.u, now.parameters, x))
    return (
        jnp.einsum("twip,twiq->pq", by_parameters, by_parameters),
        jnp.einsum("twip,twix->wpx", by_parameters, by_start),
        jnp.einsum("twip,twi->p", by_parameters, residual),
        jnp.einsum("twix,twiy->wxy", by_start, by_start),
        jnp.einsum("twix,twi->wx", by_start, residual),
    )


def _sensitivities(step: Step, u: Array, parameters: Array, x: Array) -> tuple[Array, Array]:
    """Derivatives of all states by the parameters (T + 1, window, n, P) and the starts (T + 1, window, n, n)."""
    steps, count, n = x[:-1].shape
    every = jnp.broadcast_to(parameters, (steps * count, parameters.size))
    inputs = u.reshape(steps * count, -1)
    _, pull = jax.vjp(lambda p, x: step(p, x, inputs), every, x[:-1].reshape(steps * count, n))
    rows = jnp.broadcast_to(jnp.eye(n, dtype=x.dtype)[:, None], (n, steps * count, n))
    p, a = (jnp.moveaxis(d, 0, 1).reshape(steps, count, n, -1) for d in jax.vmap(pull)(rows))

    def advance(before: Any, here: Any) -> Any:
        a, p = here
        after = (a @ before[0] + p, a @ before[1])
        return after, after

    still = jnp.zeros((count, n, parameters.size), x.dtype)
    first = (still, jnp.broadcast_to(jnp.eye(n, dtype=x.dtype), (count, n, n)))
    _, later = jax.lax.scan(advance, first, (a, p))
    return jax.tree.map(lambda start, rest: jnp.concatenate([start[None], rest]), first, later)


def _eliminate(h: Array, coupling: Array, g: Array, own: Array, rest: Array) -> tuple[Array, Array, Array]:
    """The equations of the parameters alone, (P, P) and (P,), and what gives the starts back (window, n, P + 1)."""
    back = jnp.linalg.solve(own, jnp.concatenate([coupling.mT, rest[..., None]], -1))
    through = jnp.einsum("wpx,wxq->pq", coupling, back)
    return h - through[:, :-1], g - through[:, -1], back


def _damped(h: Array, damping: Array) -> Array:
    diagonal = jnp.diagonal(h, axis1=-2, axis2=-1)
    floor = 1e-9 * diagonal.max(-1, keepdims=True)  # holds what the data say nothing about
    return h + damping * jnp.maximum(diagonal, floor)[..., None] * jnp.eye(h.shape[-1], dtype=h.dtype)
