"""The proportional-derivative law."""

import jax

Array = jax.Array


def pd(
    target: Array,
    position: Array,
    velocity: Array,
    kp: Array | float,
    kd: Array | float,
    limit: Array | float | None = None,
) -> Array:
    """Proportional-derivative control: u = kp (target - position) - kd velocity, clipped to the limit.

    Args:
        target: desired joint positions [m or rad], shape (..., joint).
        position: joint positions, the same shape.
        velocity: joint velocities [m/s or rad/s], the same shape.
        kp: stiffness [N/m or N m/rad], a number or shape (joint,).
        kd: damping [N s/m or N m s/rad], a number or shape (joint,).
        limit: largest magnitude of the force or torque [N or N m]; None for no limit.

    Returns:
        Forces or torques [N or N m], shape (..., joint). Gradients flow to every argument; where the
        force is clipped, only to the limit.
    """
    force = kp * (target - position) - kd * velocity
    return force if limit is None else jax.numpy.clip(force, -limit, limit)
