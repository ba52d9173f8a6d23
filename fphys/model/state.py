"""The state of many worlds: a pytree in which every array has the world axis first."""

import jax

from ..tree import Tree, pytree, static

Array = jax.Array


@pytree
class State(Tree):
    """Positions, velocities and whatever else the next step needs. Make one with :func:`fphys.init`."""

    qpos: Array  # Generalised position [m, rad or unit quaternion (w, x, y, z)], shape (world, nq).
    qvel: Array  # Generalised velocity [m/s or rad/s], shape (world, nv).
    act: Array  # Actuator activation, shape (world, na).
    time: Array  # Simulated time [s], shape (world,).
    status: Array  # Fault bits (Status), uint32, shape (world,); no gradient.
    mocap_pos: Array  # Position of mocap bodies [m], shape (world, nmocap, 3).
    mocap_quat: Array  # Orientation of mocap bodies (w, x, y, z), shape (world, nmocap, 4).
    warmstart: (
        Array  # Acceleration of the last step, from which the constraint solver starts; no gradient, shape (world, nv).
    )
    max_contacts: int = static(default=0)  # Contacts that a world can hold.
    max_constraints: int = static(default=0)  # Constraint rows that a world can hold.
