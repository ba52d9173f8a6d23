"""Cylinders that stand upright on a plane: MuJoCo's answer once more, with their rims where they are.

MuJoCo has the height r sin t of a rim's lowest point from (1 - cos² t) / sin t, whose numerator is known to 1e-16.
Where the tilt t is 1e-9 the rim is 1e-8 off, or perfectly level, and accelerations are off by up to 1e-3.
"""

import mujoco
import numpy as np

from fphys.model.pairs import CYLINDER, PLANE
from fphys.oracle import Row, Touch, forces

UPRIGHT = 1e-4
"""A sine of the tilt below which rounding of the heights counts; at 0 nothing is divided, and MuJoCo is right."""
ROUNDING = 64 * np.finfo(float).eps
"""What rounding may have done to 1 - cos² t."""


def at(m: mujoco.MjModel, row: Row) -> mujoco.MjData:
    """MuJoCo in a state."""
    d = mujoco.MjData(m)
    for name in ("qpos", "qvel", "act", "ctrl", "mocap_pos"):
        getattr(d, name)[:] = getattr(row, name)
    mujoco.mj_forward(m, d)
    return d


def levelled(m: mujoco.MjModel, row: Row) -> tuple[Row, float]:
    """The answer with the heights of such rims computed without cancellation, and by how much that moved one [m]."""
    d, moved = at(m, row), 0.0
    for i, (plane, cylinder) in enumerate(d.contact.geom):
        if (m.geom_type[plane], m.geom_type[cylinder]) != (PLANE, CYLINDER):
            continue
        normal, turn = d.geom_xmat[plane].reshape(3, 3)[:, 2], d.geom_xmat[cylinder].reshape(3, 3)
        n, radius, half = turn.T @ normal, *m.geom_size[cylinder, :2]
        sine = np.hypot(n[0], n[1])
        if not 0 < sine < UPRIGHT:
            continue
        centre, axis = d.geom_xpos[cylinder], np.array([0, 0, -np.sign(n[2])])
        lowest = np.array([-n[0], -n[1], 0]) / sine
        across = np.sqrt(0.75) * np.cross(lowest, axis)
        rim = half * axis + radius * np.array([lowest, across - 0.5 * lowest, -across - 0.5 * lowest])
        theirs = d.contact.pos[i] + 0.5 * d.contact.dist[i] * normal
        k = np.linalg.norm(centre + rim @ turn.T - theirs, axis=1).argmin()
        level = (centre - d.geom_xpos[plane]) @ normal - half * abs(n[2])
        distance = level + radius * sine * (-1.0, 0.5, 0.5)[k]
        assert abs(distance - d.contact.dist[i]) <= radius * ROUNDING / sine, "more than rounding"
        moved = max(moved, abs(distance - d.contact.dist[i]))
        d.contact.dist[i], d.contact.pos[i] = distance, centre + turn @ rim[k] - 0.5 * distance * normal
    return (solved_again(m, d, row), moved) if moved else (row, 0.0)


def solved_again(m: mujoco.MjModel, d: mujoco.MjData, row: Row) -> Row:
    """MuJoCo's answer with the contacts that ``d`` now holds."""
    assert m.opt.integrator == mujoco.mjtIntegrator.mjINT_EULER
    for part in (mujoco.mj_makeConstraint, mujoco.mj_projectConstraint, mujoco.mj_referenceConstraint):
        part(m, d)
    mujoco.mj_fwdConstraint(m, d)
    c = d.contact
    contacts = Touch(c.geom.copy(), c.dist.copy(), c.pos.copy(), c.frame.reshape(-1, 3, 3).copy(), forces(m, d))
    qacc = d.qacc.copy()
    mujoco.mj_Euler(m, d)
    return row._replace(qacc=qacc, after=d.qvel.copy(), contacts=contacts)
