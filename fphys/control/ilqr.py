"""The iterative linear-quadratic regulator: Gauss-Newton steps on the controls of a whole motion."""

from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from ..errors import ModelError
from ..math import einsum, matmul
from ..model import Model, State
from ..model.arguments import expect, whole_number
from ..rigid.linearize import linearize
from ..rigid.step import step
from ..rollout import rollout, scan
from ..worlds import idle

Array = jax.Array

LENGTHS = 8  # step lengths tried at once: 1, 1/2, 1/4, ...
FLAT = 4.0  # |z| at which tanh is as good as 1
DAMPING = (1e-6, 1e6)


class Cost(NamedTuple):
    """What :func:`ilqr` minimises. The last row of the weights says what the end of the motion is worth."""

    state: Array  # Weights w of the squared deviations of (qpos, qvel) from the target, shape (T, nq + nv).
    control: Array  # Weights r of the squares of z, which is about ctrl / limit where that is small, shape (nu,).
    limit: Array  # Largest control in magnitude [the actuators' units], positive, shape (nu,).
    target: Array | float = 0.0  # Wanted (qpos, qvel) [m or rad, m/s or rad/s], a number or shape (T, nq + nv).


class Plan(NamedTuple):
    """Controls, and the motion that they lead to. Make one with :func:`plan`."""

    ctrl: Array  # Controls [the actuators' units], shape (T, world, nu).
    x: Array  # (qpos, qvel) after each step [m or rad, m/s or rad/s], shape (T, world, nq + nv).
    value: Array  # Cost, shape (world,); infinite in a world whose simulation fails.
    z: Array  # The variable of the search, ctrl = limit tanh(z), shape (T, world, nu).
    damping: Array  # Added to the curvature of z, shape (world,).


def plan(model: Model, state: State, cost: Cost, ctrl: Array) -> Plan:
    """The plan that plays some controls, from which :func:`ilqr` begins.

    Args:
        model: a mechanism of hinge and slide joints, whose actuators have no activation.
        state: where the motion starts.
        cost: what the motion is judged by.
        ctrl: first guess of the controls [the actuators' units], shape (T, world, nu). Values beyond 0.9993 of the
            limit are reduced to that.

    Returns:
        The plan. Gradients of its value and motion flow to model, state, cost and controls.

    Raises:
        ModelError: the model has other joints, or actuators with activation. ValueError: a shape does not fit, or a
            limit is not positive. TypeError: a dtype does not fit.
    """
    _expect(model, state, cost)
    _expect_motion(cost, state, ctrl=ctrl)
    z = jnp.clip(jnp.arctanh(jnp.clip(ctrl / cost.limit[None, None], -1.0, 1.0)), -FLAT, FLAT)
    ctrl = _controls(cost, z)
    states = rollout(model, state, ctrl)
    x = _vector(states)
    value = jnp.where(idle(states.status[-1]), jnp.inf, _evaluate(cost, x, z))
    return Plan(ctrl, x, value, z, jnp.ones_like(value))


def ilqr(model: Model, state: State, cost: Cost, plan: Plan, iterations: int = 1) -> Plan:
    """Improve a plan by the iterative linear-quadratic regulator.

    For every world it minimises

        sum_t  d_t . (w_t * d_t)  +  r . (z_t * z_t),     d_t = x_t - target_t,
        x_t = step(x_{t-1}, u_t),     u_t = limit * tanh(z_t),

    where x = (qpos, qvel). The search is in z, so no control exceeds its limit. An iteration has three parts:

    1. It takes the derivatives of all steps at once (:func:`fphys.linearize`), all steps of all worlds as one batch.
    2. It carries the gradient and the Gauss-Newton curvature of the cost back in time. This gives a step and a gain.
    3. It simulates steps of eight lengths at once, as extra worlds, and keeps the best if the cost falls.

    W. Li and E. Todorov, "Iterative linear quadratic regulator design for nonlinear biological movement systems",
    ICINCO 2004 (the method). Y. Tassa, T. Erez, E. Todorov, "Synthesis and stabilization of complex behaviors through
    online trajectory optimization", IROS 2012: equations 5 and 6 (expansion and step, without the second derivatives of
    the dynamics), 9 (damping of the controls), 11 (cost-to-go of a damped step) and 12 (line search). The limits in the
    variable are not theirs.

    ``plan.ctrl`` are controls for an open loop: a rollout of them from ``state`` gives ``plan.x``. A world that finds
    no better plan in an iteration keeps the one it has, and is damped more; so no iteration makes a plan worse.

    >>> cost = fphys.control.Cost(weights, jnp.full(nu, 1e-3), model.actuator.ctrlrange[0, :, 1])
    >>> first = fphys.control.plan(model, state, cost, jnp.zeros((steps, num_worlds, nu)))
    >>> best = jax.jit(fphys.control.ilqr, static_argnums=4)(model, state, cost, first, 40)

    Args:
        model: a mechanism of hinge and slide joints, whose actuators have no activation.
        state: where the motion starts, the same as for :func:`plan`.
        cost: what the motion is judged by, of the plan's length.
        plan: of :func:`plan`, or of an earlier call.
        iterations: how many to take, known when the function is compiled.

    Returns:
        The improved plan, in the units [m or rad, ...] of :class:`Plan`. No gradients flow through a search: its
        derivatives cannot be differentiated again. At the optimum the value does not depend on the controls, so its
        gradient by model or state is that of :func:`plan` with ``plan.ctrl``.

    Raises:
        ModelError: the model has other joints, or actuators with activation. ValueError: a shape does not fit, a limit
            is not positive, or ``iterations`` is negative. TypeError: a dtype does not fit, or ``plan`` is no plan.
    """
    _expect(model, state, cost)
    if not isinstance(plan, Plan):
        kind = type(plan).__name__
        raise TypeError(f"plan is of type {kind}: make one with fphys.control.plan(model, state, cost, ctrl)")
    _expect_motion(cost, state, **{"plan.x": plan.x, "plan.z": plan.z})
    if whole_number("iterations", iterations) < 0:
        raise ValueError(f"iterations is {iterations}, must be 0 or more")
    return jax.lax.fori_loop(0, iterations, lambda _, now: _improve(model, state, cost, now), plan)


def _expect(model: Model, state: State, cost: Cost) -> None:
    expect(model, state)
    s = model.structure
    if s.nq != s.nv or s.na:
        raise ModelError(
            "iLQR takes hinge and slide joints and actuators without activation; the model has "
            f"nq = {s.nq}, nv = {s.nv}, na = {s.na}"
        )
    rows = jnp.shape(cost.state)[:1]
    wanted = {"state": (*rows, s.nq + s.nv), "control": (s.nu,), "limit": (s.nu,)}
    if jnp.ndim(cost.target):
        wanted["target"] = wanted["state"]
    for name, shape in wanted.items():
        value, axes = getattr(cost, name), "(T, nq + nv)" if len(shape) > 1 else "(nu,)"
        if jnp.shape(value) != shape or not shape[0]:
            raise ValueError(f"cost.{name} has shape {jnp.shape(value)}, the model needs {axes} = {shape}")
        if value.dtype != state.qpos.dtype:
            raise TypeError(f"cost.{name} is {value.dtype}, the state is {state.qpos.dtype}: nothing is cast silently")
    if not isinstance(cost.limit, jax.core.Tracer) and not (np.asarray(cost.limit) > 0).all():
        raise ValueError(f"cost.limit is {cost.limit}, every limit must be positive")


def _expect_motion(cost: Cost, state: State, **motions: Any) -> None:
    for name, value in motions.items():
        size, axis = (cost.state.shape[1], "nq + nv") if name.endswith("x") else (len(cost.limit), "nu")
        wanted = (len(cost.state), len(state.qpos), size)
        if jnp.shape(value) != wanted:
            raise ValueError(f"{name} has shape {jnp.shape(value)}, needs (T, num_worlds, {axis}) = {wanted}")


def _improve(model: Model, state: State, cost: Cost, plan: Plan) -> Plan:
    feedforward, feedback = _backward(cost, plan, *_derivatives(model, state, cost, plan))
    x, z, failed = _search(model, state, cost, plan, feedforward, feedback)
    value = jnp.where(failed, jnp.inf, jax.vmap(_evaluate, (None, 1, 1))(cost, x, z))  # (LENGTHS, world)
    best, better = value.argmin(0), value.min(0) < plan.value
    less, more = jnp.maximum(plan.damping / 2, DAMPING[0]), jnp.minimum(plan.damping * 4, DAMPING[1])

    def choose(tried: Array, old: Array) -> Array:
        found = jnp.take_along_axis(tried, best[None, None, :, None], 1)[:, 0]
        return jnp.where(better[None, :, None], found, old)

    z = choose(z, plan.z)
    value, damping = jnp.where(better, value.min(0), plan.value), jnp.where(better, less, more)
    return Plan(_controls(cost, z), choose(x, plan.x), value, z, damping)


def _controls(cost: Cost, z: Array) -> Array:
    """u = limit * tanh(z), shape (..., nu)."""
    return jnp.broadcast_to(cost.limit, z.shape) * jnp.tanh(z)


def _evaluate(cost: Cost, x: Array, z: Array) -> Array:
    """Cost of motions x (T, world, nq + nv) and z (T, world, nu), shape (world,)."""
    value = einsum("ti,twi->w", cost.state, _deviation(cost, x) ** 2) + einsum("j,twj->w", cost.control, z**2)
    return jnp.where(jnp.isfinite(value), value, jnp.inf)


def _deviation(cost: Cost, x: Array) -> Array:
    return x - (cost.target[:, None] if isinstance(cost.target, Array) and cost.target.ndim else cost.target)


def _vector(state: State) -> Array:
    """(qpos, qvel), shape (..., world, nq + nv)."""
    return jnp.concatenate([state.qpos, state.qvel], -1)


def _copies(model: Model, state: State, count: int) -> tuple[Model, State]:
    """``count`` copies of all worlds, one after the other; what the worlds share of the model stays as it is."""

    def tile(leaf: Array) -> Array:
        return jnp.tile(leaf, (count,) + (1,) * (leaf.ndim - 1))

    return jax.tree.map(lambda leaf: leaf if len(leaf) == 1 else tile(leaf), model), jax.tree.map(tile, state)


def _derivatives(model: Model, state: State, cost: Cost, plan: Plan) -> tuple[Array, Array]:
    """A (T, world, n, n) and B (T, world, n, nu), the latter by z: all steps as one batch of worlds."""
    steps, worlds, nu = plan.z.shape
    before = jnp.concatenate([_vector(state)[None], plan.x[:-1]]).reshape(steps * worlds, -1)
    nq = model.structure.nq
    models, points = _copies(model, state, steps)
    points = points.replace(qpos=before[:, :nq], qvel=before[:, nq:])
    a, b = linearize(models, points, plan.ctrl.reshape(steps * worlds, nu))
    slope = jnp.broadcast_to(cost.limit, plan.z.shape) * (1 - jnp.tanh(plan.z) ** 2)
    shape = (steps, worlds, before.shape[1])
    return a.reshape(*shape, -1), b.reshape(*shape, nu) * slope[:, :, None]


def _backward(cost: Cost, plan: Plan, a: Array, b: Array) -> tuple[Array, Array]:
    """Step k (T, world, nu) and feedback K (T, world, nu, n) that minimise the quadratic model: z + k + K (x' - x)."""
    worlds, n = plan.x.shape[1:]
    curvature = 2 * jnp.diag(cost.control)[None]
    damping = plan.damping[:, None, None] * jnp.eye(len(cost.control), dtype=plan.z.dtype)[None]

    def back(ahead: Any, here: Any) -> Any:
        a, b, off, z, weight = here
        slope = ahead[0] + 2 * weight[None] * off
        hessian = ahead[1] + 2 * jnp.diag(weight)[None]
        at, bt = a.mT, b.mT
        gx, gz = _apply(at, slope), _apply(bt, slope) + 2 * cost.control[None] * z
        hxx, hzx, hzz = _product(at, hessian, a), _product(bt, hessian, a), _product(bt, hessian, b) + curvature
        solution = -jnp.linalg.solve(hzz + damping, jnp.concatenate([gz[..., None], hzx], -1))
        k, gain = solution[..., 0], solution[..., 1:]
        slope = gx + _apply(gain.mT, _apply(hzz, k) + gz) + _apply(hzx.mT, k)
        hessian = hxx + _product(gain.mT, hzz, gain) + matmul(gain.mT, hzx) + matmul(hzx.mT, gain)
        return (slope, (hessian + hessian.mT) / 2), (k, gain)

    last = (jnp.zeros((worlds, n), plan.x.dtype), jnp.zeros((worlds, n, n), plan.x.dtype))
    return jax.lax.scan(back, last, (a, b, _deviation(cost, plan.x), plan.z, cost.state), reverse=True)[1]


def _search(model: Model, state: State, cost: Cost, plan: Plan, k: Array, gain: Array) -> tuple[Array, Array, Array]:
    """Steps of several lengths: states (T, LENGTHS, world, n), z (T, LENGTHS, world, nu), and which of them fail."""
    worlds = len(state.qpos)
    length = 0.5 ** jnp.arange(LENGTHS, dtype=k.dtype)
    models, many = _copies(model, state, LENGTHS)
    reference = jnp.concatenate([_vector(state)[None], plan.x[:-1]])

    def forward(now: State, planned: Any) -> Any:
        x, z, k, gain = planned
        off = _vector(now).reshape(LENGTHS, worlds, -1) - x[None]
        z = z[None] + length[:, None, None] * k[None] + einsum("wji,swi->swj", gain, off)
        z = jnp.clip(z, -FLAT, FLAT)
        now = step(models, now, _controls(cost, z).reshape(LENGTHS * worlds, -1))
        return now, (_vector(now).reshape(LENGTHS, worlds, -1), z)

    last, (x, z) = scan(forward, many, (reference, plan.z, k, gain))
    return x, z, idle(last.status).reshape(LENGTHS, worlds)


def _apply(matrix: Array, x: Array) -> Array:
    return matmul(matrix, x[..., None])[..., 0]


def _product(a: Array, b: Array, c: Array) -> Array:
    return matmul(matmul(a, b), c)
