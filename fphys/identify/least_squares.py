"""Parameters of a dynamical system by least squares over a recorded motion."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from ..math import einsum, matmul
from ..model.arguments import whole_number

Array = jax.Array
Step = Callable[[Array, Array, Array], Array]
"""(parameters (batch, P), x (batch, n), u (batch, nu)) -> the next x (batch, n); each of the batch on its own."""


class Windows(NamedTuple):
    """A recording in windows. Make them with :func:`windows`."""

    u: Array  # Inputs [the system's units], shape (T, window, nu).
    y: Array  # Measured states [the system's units], shape (T + 1, window, n).
    scale: Array  # What a deviation of each channel is divided by [its unit], shape (n,).


class Estimate(NamedTuple):
    """What is known of the parameters. Make one with :func:`estimate`."""

    parameters: Array  # Of order one, as logarithms are, shape (P,).
    start: Array  # First state of each window [the system's units], shape (window, n).
    cost: Array  # Sum of squared residuals [-], a scalar.
    damping: Array  # Of Levenberg and Marquardt, relative to the diagonal, a scalar.


def windows(u: Array, y: Array, length: int, scale: Array) -> Windows:
    """Cut a recording into windows; what is left at its end is dropped.

    Args:
        u: inputs [the system's units], shape (rows, nu); those of a row act from that row to the next.
        y: measured states [the system's units], shape (rows, n).
        length: steps of a window, at least 1.
        scale: what a deviation of each channel is divided by, its noise for instance, shape (n,).

    Returns:
        The windows. Gradients flow to all arrays.

    Raises:
        ValueError: a shape does not fit, the recording is shorter than a window or not finite, or a scale is not
            positive. TypeError: ``length`` is traced or no whole number, or ``y`` is not of floating-point numbers.
    """
    if jnp.ndim(u) != 2 or jnp.ndim(y) != 2 or len(u) != len(y):
        raise ValueError(f"u has shape {jnp.shape(u)}, y {jnp.shape(y)}: they must be (rows, nu) and (rows, n)")
    if jnp.shape(scale) != jnp.shape(y)[1:]:
        raise ValueError(f"scale has shape {jnp.shape(scale)}, needs {jnp.shape(y)[1:]}: one for each column of y")
    if not 1 <= whole_number("length", length) < len(y):
        raise ValueError(f"length is {length}: a window of {len(y)} rows has 1 to {len(y) - 1} steps")
    _expect_real("y", y)
    for name, array in (("u", u), ("y", y)):
        if _known(array) and (gaps := np.argwhere(~np.isfinite(array))).size:
            row, column = gaps[0]
            value = np.asarray(array)[row, column]
            raise ValueError(f"{name}[{row}, {column}] is {value}: cut the recording there, or fill the gap")
    if _known(scale) and not (np.asarray(scale) > 0).all():
        raise ValueError(
            f"scale is {scale}, must be positive: leave out columns of y that do not change, or give noise"
        )
    count = (len(y) - 1) // length
    inside = length * jnp.arange(count)[None] + jnp.arange(length + 1)[:, None]
    return Windows(jnp.asarray(u)[inside[:-1]], jnp.asarray(y)[inside], jnp.asarray(scale))


def estimate(step: Step, windows: Windows, parameters: Array) -> Estimate:
    """The estimate with parameters as guessed and starts as measured, from which :func:`least_squares` begins.

    Args:
        step: ``step(parameters, x, u)`` gives the next states [the system's units]: pure and differentiable, its
            arguments of shapes (batch, P), (batch, n) and (batch, nu), each of the batch on its own.
        windows: the recording.
        parameters: the guess, shape (P,); choose the variable so that a change of 1 is large, as of a logarithm.

    Returns:
        The estimate. Gradients flow to parameters and windows.

    Raises:
        ValueError: the parameters are not of shape (P,), or the cost of the guess is not finite. TypeError: they are
            not floating-point numbers.
    """
    _expect_real("parameters", parameters)
    parameters = jnp.asarray(parameters)
    if parameters.ndim != 1 or not parameters.size:
        raise ValueError(f"parameters have shape {parameters.shape}, must be (P,) with P at least 1")
    start = windows.y[0]
    cost = _cost(step, windows, parameters, start)
    if _known(cost) and not np.isfinite(cost):
        raise ValueError(
            f"the guess has a cost of {cost}: the simulation runs away; guess others, or cut shorter windows"
        )
    return Estimate(parameters, start, cost, jnp.full((), 1e-2, cost.dtype))


def least_squares(step: Step, windows: Windows, estimate: Estimate, iterations: int = 1) -> Estimate:
    """Improve an estimate by the method of Levenberg and Marquardt.

    The recording is cut into windows. The state at the start of each window is unknown, too (multiple shooting), so the
    simulation cannot run away from the data before the parameters are right:

        minimise  sum_w sum_t | (x_wt - y_wt) / scale |^2   over the parameters p and the starts x_w0,
        x_w,t+1 = step(p, x_wt, u_wt).

    An iteration of Levenberg-Marquardt has four parts:

    1. Reverse mode gives the derivatives of all steps at once.
    2. The sensitivities of the states by parameters and starts follow forward in time.
    3. The starts are eliminated from the normal equations, window by window.
    4. The damped equations give the change. It is kept if the cost falls; otherwise the damping grows.

    H. G. Bock, "Recent advances in parameter identification techniques for O.D.E.", in "Numerical Treatment of Inverse
    Problems in Differential and Integral Equations", 1983 (multiple shooting). D. W. Marquardt, "An algorithm for
    least-squares estimation of nonlinear parameters", SIAM Journal 11, 1963 (damping in proportion to the diagonal).

    No iteration raises the cost. No parameter moves by more than 1 in an iteration.

    >>> motion = fphys.identify.windows(u, y, 50, y.std(0))
    >>> first = fphys.identify.estimate(step, motion, jnp.log(guess))
    >>> found = jax.jit(lambda e: fphys.identify.least_squares(step, motion, e, 20))(first)

    Args:
        step: ``step(parameters, x, u)`` gives the next states [the system's units], as for :func:`estimate`.
        windows: the recording.
        estimate: of :func:`estimate`, or of an earlier call; for other windows make a new one from its parameters.
        iterations: how many to take, known when the function is compiled.

    Returns:
        The improved estimate. Gradients do not flow through a search of fphys's own steps: they would be second
        derivatives, which these steps do not have.

    Raises:
        ValueError: ``iterations`` is negative, or the starts are not those of these windows. TypeError: ``estimate`` is
            no estimate, or ``iterations`` is traced or no whole number.
    """
    _expect(windows, estimate)
    if whole_number("iterations", iterations) < 0:
        raise ValueError(f"iterations is {iterations}, must be 0 or more")
    return jax.lax.fori_loop(0, iterations, lambda _, now: _improve(step, windows, now), estimate)


def deviations(step: Step, windows: Windows, estimate: Estimate) -> Array:
    """Standard deviations of the parameters, with the noise taken from the residuals.

    They are the roots of the diagonal of s² H⁻¹, where H are the normal equations without the starts and s² is the cost
    over the degrees of freedom. They are very large for parameters that the data do not tell apart, and infinite for
    one that changes nothing.

    Args:
        step: as for :func:`estimate`.
        windows: the recording.
        estimate: of :func:`least_squares`, at the minimum.

    Returns:
        Shape (P,), in the units of the parameters [-]. Gradients do not flow through fphys's own steps.

    Raises:
        ValueError: there are no more measured values than unknowns. TypeError: ``estimate`` is no estimate.
    """
    _expect(windows, estimate)
    freedom = windows.y.size - estimate.parameters.size - estimate.start.size
    if freedom < 1:
        raise ValueError(f"{windows.y.size} measured values for {windows.y.size - freedom} unknowns: record more")
    h, *others = _normal_equations(step, windows, estimate)
    schur, _, _ = _eliminate(h, *others)
    size = jnp.sqrt(jnp.diagonal(h))  # how much the data depend on each parameter, whatever its unit
    scaled = schur / jnp.where(jnp.outer(size, size) > 0, jnp.outer(size, size), 1.0)
    values, vectors = jnp.linalg.eigh(scaled)
    values = jnp.maximum(values, 1e-12)
    return jnp.sqrt((vectors**2 / values[None]).sum(1) * estimate.cost / freedom) / size


def simulate(step: Step, parameters: Array, start: Array, u: Array) -> Array:
    """The states that a system goes through.

    Args:
        step: ``step(parameters, x, u)`` gives the next states [the system's units], as for :func:`estimate`.
        parameters: shape (P,), or (window, P) for others in each window.
        start: first states, shape (window, n).
        u: inputs, shape (T, window, nu).

    Returns:
        The first states and those after each step, shape (T + 1, window, n). Gradients flow to all arrays.
    """
    shared = jnp.broadcast_to(parameters, (len(start), parameters.shape[-1]))

    def advance(x: Array, u: Array) -> tuple[Array, Array]:
        x = step(shared, x, u)
        return x, x

    return jnp.concatenate([start[None], jax.lax.scan(advance, start, u)[1]])


def _known(value: Any) -> bool:
    return not isinstance(value, jax.core.Tracer)


def _expect_real(name: str, value: Any) -> None:
    if not jnp.issubdtype(kind := jnp.asarray(value).dtype, jnp.floating):
        raise TypeError(f"{name} is of {kind}, must be of floating-point numbers: derivatives are taken by them")


def _expect(windows: Windows, estimate: Any) -> None:
    if not isinstance(estimate, Estimate):
        kind = type(estimate).__name__
        raise TypeError(f"estimate is of type {kind}: make one with fphys.identify.estimate(step, windows, parameters)")
    if estimate.start.shape != windows.y.shape[1:]:
        raise ValueError(
            f"estimate.start has shape {estimate.start.shape}, the windows need {windows.y.shape[1:]}: for other "
            "windows make a new one, fphys.identify.estimate(step, windows, estimate.parameters)"
        )


def _improve(step: Step, windows: Windows, now: Estimate) -> Estimate:
    h, coupling, g, own, rest = _normal_equations(step, windows, now)
    schur, right, back = _eliminate(_damped(h, now.damping), coupling, g, _damped(own, now.damping), rest)
    change = -jnp.linalg.solve(schur, right)
    change = change / jnp.maximum(jnp.abs(change).max(), 1.0)
    parameters = now.parameters + change
    start = now.start - back[..., -1] - matmul(back[..., :-1], change)
    cost = _cost(step, windows, parameters, start)
    better, worse = Estimate(parameters, start, cost, now.damping / 5), now._replace(damping=now.damping * 5)
    falls = (cost < now.cost) | (jnp.isfinite(cost) & ~jnp.isfinite(now.cost))
    return jax.tree.map(lambda a, b: jnp.where(falls, a, b), better, worse)


def _cost(step: Step, windows: Windows, parameters: Array, start: Array) -> Array:
    return (_residuals(windows, simulate(step, parameters, start, windows.u)) ** 2).sum()


def _residuals(windows: Windows, x: Array) -> Array:
    return (x - windows.y) / windows.scale[None, None]


def _normal_equations(step: Step, windows: Windows, now: Estimate) -> tuple[Array, Array, Array, Array, Array]:
    """Of the parameters (P, P), between parameters and starts (window, P, n), their gradients (P,), of the starts
    (window, n, n), and their gradients (window, n)."""
    x = simulate(step, now.parameters, now.start, windows.u)
    residual = _residuals(windows, x)
    scale = windows.scale[None, None, :, None]
    by_parameters, by_start = (s / scale for s in _sensitivities(step, windows.u, now.parameters, x))
    return (
        einsum("twip,twiq->pq", by_parameters, by_parameters),
        einsum("twip,twix->wpx", by_parameters, by_start),
        einsum("twip,twi->p", by_parameters, residual),
        einsum("twix,twiy->wxy", by_start, by_start),
        einsum("twix,twi->wx", by_start, residual),
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
        after = (matmul(a, before[0]) + p, matmul(a, before[1]))
        return after, after

    still = jnp.zeros((count, n, parameters.size), x.dtype)
    first = (still, jnp.broadcast_to(jnp.eye(n, dtype=x.dtype), (count, n, n)))
    _, later = jax.lax.scan(advance, first, (a, p))
    return jax.tree.map(lambda start, rest: jnp.concatenate([start[None], rest]), first, later)


def _eliminate(h: Array, coupling: Array, g: Array, own: Array, rest: Array) -> tuple[Array, Array, Array]:
    """The equations of the parameters alone, (P, P) and (P,), and what gives the starts back (window, n, P + 1)."""
    back = jnp.linalg.solve(own, jnp.concatenate([coupling.mT, rest[..., None]], -1))
    through = einsum("wpx,wxq->pq", coupling, back)
    return h - through[:, :-1], g - through[:, -1], back


def _damped(h: Array, damping: Array) -> Array:
    diagonal = jnp.diagonal(h, axis1=-2, axis2=-1)
    floor = 1e-9 * diagonal.max(-1, keepdims=True)  # holds what the data say nothing about
    eye = jnp.broadcast_to(jnp.eye(h.shape[-1], dtype=h.dtype), h.shape)
    return h + damping * jnp.maximum(diagonal, floor)[..., None] * eye
