"""The iterative linear-quadratic regulator: Gauss-Newton steps on the controls of a whole trajectory.

For every world at once it minimises

    sum_t  x_t . (w_t * x_t)  +  r . (z_t * z_t),      x_{t+1} = step(x_t, u_t),   u_t = limit * tanh(z_t),

where x = (qpos, qvel), so that torques never pass their limits. Each iteration takes the derivatives of all
steps at once (:func:`fphys.linearize`), carries the gradient and the Gauss-Newton curvature of the cost back
through them, and tries steps of several lengths, as extra worlds, forward through the simulator.

W. Li and E. Todorov, "Iterative linear quadratic regulator design for nonlinear biological movement systems",
ICINCO 2004; Y. Tassa, T. Erez, E. Todorov, "Synthesis and stabilization of complex behaviors through online
trajectory optimization", IROS 2012. Here the limits are in the variable, and damping is added to the controls.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import fphys

Array = jax.Array

SEARCH = 8  # step lengths tried at once: 1, 1/2, 1/4, ...
FLAT = 4.0  # |z| at which tanh is as good as 1
DAMPING = (1e-6, 1e6)


class Cost(NamedTuple):
    state: Array  # Weight of each state's square, w, shape (T, nq + nv).
    control: Array  # Weight of each squared z, r, shape (nu,).
    limit: Array  # Largest control in magnitude, shape (nu,).


class Plan(NamedTuple):
    z: Array  # Controls before the limit, shape (T, world, nu).
    x: Array  # The states they lead to, (qpos, qvel), shape (T, world, nq + nv).
    value: Array  # Cost, shape (world,).
    damping: Array  # Added to the controls' curvature, shape (world,).


def controls(cost: Cost, z: Array) -> Array:
    """u = limit * tanh(z)."""
    return cost.limit * jnp.tanh(z)


def evaluate(cost: Cost, x: Array, z: Array) -> Array:
    """Cost of trajectories x (T, world, nq + nv) and z (T, world, nu), shape (world,)."""
    value = jnp.einsum("ti,twi->w", cost.state, x**2) + jnp.einsum("j,twj->w", cost.control, z**2)
    return jnp.where(jnp.isfinite(value), value, jnp.inf)


def begin(model: fphys.Model, state: fphys.State, cost: Cost, z: Array) -> Plan:
    """The plan that plays z (T, world, nu) from a state; joints are hinges and slides."""
    if model.structure.nq != model.structure.nv or model.structure.na:
        raise ValueError("iLQR takes hinge and slide joints and actuators without activation")
    states = fphys.rollout(model, state, controls(cost, z))
    x = vector(states)
    return Plan(z, x, evaluate(cost, x, z), jnp.ones_like(state.time))


def improve(model: fphys.Model, state: fphys.State, cost: Cost, plan: Plan) -> Plan:
    """One iteration. A world that finds no better plan keeps the one it has, and is damped more."""
    feedforward, feedback = _backward(cost, plan, *_derivatives(model, state, cost, plan))
    x, z = _search(model, state, cost, plan, feedforward, feedback)
    value = jax.vmap(evaluate, (None, 1, 1))(cost, x, z)  # (SEARCH, world)
    best, better = value.argmin(0), value.min(0) < plan.value
    less, more = jnp.maximum(plan.damping / 2, DAMPING[0]), jnp.minimum(plan.damping * 4, DAMPING[1])

    def choose(tried: Array, old: Array) -> Array:
        found = jnp.take_along_axis(tried, best[None, None, :, None], 1)[:, 0]
        return jnp.where(better[:, None], found, old)

    return Plan(
        choose(z, plan.z),
        choose(x, plan.x),
        jnp.where(better, value.min(0), plan.value),
        jnp.where(better, less, more),
    )


def vector(state: fphys.State) -> Array:
    """(qpos, qvel), shape (..., world, nq + nv)."""
    return jnp.concatenate([state.qpos, state.qvel], -1)


def _derivatives(model: fphys.Model, state: fphys.State, cost: Cost, plan: Plan) -> tuple[Array, Array]:
    """A (T, world, n, n) and B (T, world, n, nu), the latter with respect to z: all steps as one batch of worlds."""
    steps, worlds, nu = plan.z.shape
    before = jnp.concatenate([vector(state)[None], plan.x[:-1]]).reshape(steps * worlds, -1)
    nq = model.structure.nq
    points = fphys.init(model, steps * worlds, qpos=before[:, :nq], qvel=before[:, nq:])
    a, b = fphys.linearize(model, points, controls(cost, plan.z).reshape(steps * worlds, nu))
    slope = cost.limit * (1 - jnp.tanh(plan.z) ** 2)
    shape = (steps, worlds, before.shape[1])
    return a.reshape(*shape, -1), b.reshape(*shape, nu) * slope[:, :, None]


def _backward(cost: Cost, plan: Plan, a: Array, b: Array) -> tuple[Array, Array]:
    """Step k (T, world, nu) and feedback K (T, world, nu, n) that minimise the quadratic model: z + k + K (x' - x)."""
    worlds, n = plan.x.shape[1:]
    curvature = 2 * jnp.diag(cost.control)
    damping = plan.damping[:, None, None] * jnp.eye(len(cost.control), dtype=plan.z.dtype)

    def back(ahead: Any, here: Any) -> Any:
        a, b, x, z, weight = here
        slope = ahead[0] + 2 * weight * x
        hessian = ahead[1] + 2 * jnp.diag(weight)
        at, bt = a.mT, b.mT
        gx, gz = _apply(at, slope), _apply(bt, slope) + 2 * cost.control * z
        hxx, hzx, hzz = at @ hessian @ a, bt @ hessian @ a, bt @ hessian @ b + curvature
        solution = -jnp.linalg.solve(hzz + damping, jnp.concatenate([gz[..., None], hzx], -1))
        k, gain = solution[..., 0], solution[..., 1:]
        slope = gx + _apply(gain.mT, _apply(hzz, k) + gz) + _apply(hzx.mT, k)
        hessian = hxx + gain.mT @ hzz @ gain + gain.mT @ hzx + hzx.mT @ gain
        return (slope, (hessian + hessian.mT) / 2), (k, gain)

    last = (jnp.zeros((worlds, n), plan.x.dtype), jnp.zeros((worlds, n, n), plan.x.dtype))
    return jax.lax.scan(back, last, (a, b, plan.x, plan.z, cost.state), reverse=True)[1]


def _search(
    model: fphys.Model, state: fphys.State, cost: Cost, plan: Plan, k: Array, gain: Array
) -> tuple[Array, Array]:
    """States (T, SEARCH, world, n) and z (T, SEARCH, world, nu) reached with steps of several lengths."""
    worlds = state.time.shape[0]
    length = 0.5 ** jnp.arange(SEARCH, dtype=k.dtype)
    many = jax.tree.map(lambda leaf: jnp.tile(leaf, (SEARCH,) + (1,) * (leaf.ndim - 1)), state)
    reference = jnp.concatenate([vector(state)[None], plan.x[:-1]])

    def forward(now: fphys.State, planned: Any) -> Any:
        x, z, k, gain = planned
        off = vector(now).reshape(SEARCH, worlds, -1) - x
        z = z + length[:, None, None] * k + jnp.einsum("wji,swi->swj", gain, off)
        z = jnp.clip(z, -FLAT, FLAT)
        now = fphys.step(model, now, controls(cost, z).reshape(SEARCH * worlds, -1))
        return now, (vector(now).reshape(SEARCH, worlds, -1), z)

    return fphys.scan(forward, many, (reference, plan.z, k, gain))[1]


def _apply(matrix: Array, x: Array) -> Array:
    return (matrix @ x[..., None])[..., 0]
