"""Returns and advantages along trajectories, time on the first axis."""

import jax
import jax.numpy as jnp

Array = jax.Array


def finite(x: Array) -> Array:
    """float32, with 0 for what a fault left behind: one such number would spoil every batch that it is in.

    Gradients flow to the numbers that are finite.
    """
    return jnp.nan_to_num(x.astype(jnp.float32), nan=0, posinf=0, neginf=0)


def gae(
    reward: Array, value: Array, next_value: Array, terminated: Array, done: Array, discount: float, lam: float
) -> tuple[Array, Array]:
    """Generalised advantage estimation (Schulman et al. 2015), with a bootstrap at time limits.

    delta_t = r_t + gamma v(s_{t+1}) - v(s_t), A_t = delta_t + gamma lambda A_{t+1}: no value follows where the task
    terminated, and no advantage flows back where an episode is done.

    Args:
        reward, value: of step t, shape (time, world).
        next_value: of the state after step t, before any reset, shape (time, world).
        terminated: the task ended at step t. done: the episode ended, also by a time limit; bool (time, world).
        discount, lam: gamma and lambda.

    Returns:
        Advantages, and targets for the value, ``advantage + value``; no gradient flows.
    """
    delta = reward + discount * jnp.where(terminated, 0, next_value) - value

    def back(ahead: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        step, ends = now
        advantage = step + discount * lam * jnp.where(ends, 0, ahead)
        return advantage, advantage

    _, advantage = jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, done), reverse=True)
    return jax.lax.stop_gradient((advantage, advantage + value))


def vtrace(
    reward: Array,
    value: Array,
    next_value: Array,
    terminated: Array,
    done: Array,
    log_ratio: Array,
    discount: float,
    lam: float,
    most: float = 1.0,
) -> tuple[Array, Array]:
    """Advantages and targets of a policy from what another one did: V-trace (Espeholt et al. 2018, equation 1).

    With rho_t = min(most, pi / mu) and c_t = lambda min(1, pi / mu), e_t = rho_t delta_t + gamma c_t e_{t+1}. The
    target is v_t + e_t, the advantage rho_t (delta_t + gamma lambda e_{t+1}). If both policies are one, this is
    :func:`gae`.

    Args:
        value, next_value: as for :func:`gae`, of the policy that learns.
        log_ratio: log pi(a|s) - log mu(a|s) of step t: pi learns, mu acted; shape (time, world).
        most: largest weight of a step.

    Returns:
        As :func:`gae`; no gradient flows.
    """
    delta = reward + discount * jnp.where(terminated, 0, next_value) - value
    ratio = jnp.exp(log_ratio)
    rho, trace = jnp.minimum(most, ratio), lam * jnp.minimum(1, ratio)

    def back(ahead: Array, now: tuple[Array, Array, Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        step, weight, kept, ends = now
        ahead = jnp.where(ends, 0, ahead)
        error = weight * step + discount * kept * ahead
        return error, (error, weight * (step + discount * lam * ahead))

    _, (error, advantage) = jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, rho, trace, done), reverse=True)
    return jax.lax.stop_gradient((advantage, value + error))


def td_lambda(reward: Array, next_value: Array, terminated: Array, done: Array, discount: float, lam: float) -> Array:
    """TD(lambda) targets, G_t = r_t + gamma ((1 - lambda) v(s_{t+1}) + lambda G_{t+1}) (Sutton 1988).

    Arguments as for :func:`gae`. At the end of an episode and of the trajectory, the value alone follows.
    Shape (time, world); no gradient flows.
    """
    ahead = jnp.where(terminated, 0, next_value)

    def back(target: Array, now: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        gain, value, ends = now
        target = gain + discount * jnp.where(ends, value, (1 - lam) * value + lam * target)
        return target, target

    _, targets = jax.lax.scan(back, ahead[-1], (reward, ahead, done), reverse=True)
    return jax.lax.stop_gradient(targets)
