"""MuJoCo's answers in states along its own trajectories: what ours are compared with, by a command and by tests.

A model is set so that MuJoCo's solution depends on nothing but the state: tolerance 0, no warm start, no islands.
"""

import copy
import functools
import time
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fphys

from .model.pairs import met
from .rigid.collide.pairs import geoms_of

HOLD = 10
"""For how many steps an action is held."""
GIVEN = ("qpos", "qvel", "act", "ctrl", "mocap_pos")
"""What makes a state."""
GRAZING = 1e-12
"""A contact so near the distance at which it is made is there or not by rounding [m]."""
FASTEST = 1e3
"""A trajectory ends where a velocity is larger [m/s, rad/s]: it has blown up."""


class Touch(NamedTuple):
    """MuJoCo's contacts in a state."""

    geom: np.ndarray
    distance: np.ndarray
    pos: np.ndarray
    frame: np.ndarray
    force: np.ndarray


class Row(NamedTuple):
    """A state along a trajectory, and MuJoCo's answers there."""

    qpos: np.ndarray
    qvel: np.ndarray
    act: np.ndarray
    ctrl: np.ndarray
    mocap_pos: np.ndarray
    qacc: np.ndarray
    after: np.ndarray  # velocity after a step
    contacts: Touch
    active: bool  # whether a contact force acts; any constraint's force where nothing can touch


def strict(source: Any) -> Any:
    """MuJoCo's model with the tightest solver there is; ``source`` is a model of ours, or what :func:`load` takes."""
    import mujoco

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of deprecated attributes, and of solvers other than Newton
        model = source if isinstance(source, fphys.Model) else fphys.load(source)
    m = copy.copy(model.structure.source)
    m.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    m.opt.tolerance, m.opt.ls_tolerance = 0, 1e-10
    m.opt.iterations, m.opt.ls_iterations = 100, 200
    m.opt.ccd_tolerance, m.opt.ccd_iterations = 1e-15, 500
    m.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_WARMSTART | mujoco.mjtDisableBit.mjDSBL_ISLAND)
    return m


def episode(m: Any) -> int:
    """Steps of one trajectory: 200, and long enough to fall from a height of half a metre."""
    return max(200, round(0.4 / m.opt.timestep))


def states(m: Any, count: int, seed: int = 0, trajectories: int = 200) -> list[Row]:
    """``count`` states, half of them active where the mechanism meets as many on so many trajectories."""
    import mujoco

    rng, d, rows = np.random.default_rng(seed), mujoco.MjData(m), []
    length = episode(m)
    every = max(1, 8 * length // count)
    for _ in range(trajectories):
        start(m, d, rng)
        for t in range(length):
            if t % HOLD == 0:
                d.ctrl[:] = action(m, rng)
            d.mocap_pos[:] += 0.01 * rng.standard_normal((m.nmocap, 3)) + [0.002, 0, 0]
            if t % every == t // every % every:
                rows.append(answer(m, d))
            mujoco.mj_step(m, d)
            if not np.isfinite(d.qpos).all() or np.abs(d.qvel).max(initial=0) > FASTEST:
                break
        active = sum(row.active for row in rows)
        enough = active >= count // 2 and len(rows) >= count
        if (enough and (len(rows) - active >= count // 2 or len(rows) > 3 * count)) or len(rows) > 20 * count:
            break
    return chosen(rows, count)


def chosen(rows: list[Row], count: int) -> list[Row]:
    """Half active, half not; where there are not enough of one kind, more of the other."""
    active = [row for row in rows if row.active]
    idle = [row for row in rows if not row.active]
    most = min(len(active), max(count // 2, count - len(idle)))
    spread = lambda x, n: [x[i] for i in np.linspace(0, len(x) - 1, n).astype(int)] if n else []  # noqa: E731
    return spread(active, most) + spread(idle, min(len(idle), count - most))


def start(m: Any, d: Any, rng: np.random.Generator) -> None:
    """Near the reference position, moving."""
    import mujoco

    mujoco.mj_resetData(m, d)
    if m.nkey:
        mujoco.mj_resetDataKeyframe(m, d, 0)
    mujoco.mj_integratePos(m, d.qpos, 0.15 * rng.standard_normal(m.nv), 1.0)
    d.qvel[:] = 0.5 * rng.standard_normal(m.nv)


def action(m: Any, rng: np.random.Generator) -> np.ndarray:
    """A random control within its range."""
    low, high = np.where(m.actuator_ctrllimited[:, None].astype(bool), m.actuator_ctrlrange, [-1.0, 1.0]).T
    return rng.uniform(low, high)


def answer(m: Any, d: Any) -> Row:
    """MuJoCo's answers in the state of ``d``, an ``MjData`` or a row, from a fresh start."""
    import mujoco

    e = _at(m, d)
    mujoco.mj_forward(m, e)
    c = e.contact
    touch = Touch(c.geom.copy(), c.dist.copy(), c.pos.copy(), c.frame.reshape(-1, 3, 3).copy(), forces(m, e))
    kind = e.efc_type[: e.nefc]
    counted = kind >= int(mujoco.mjtConstraint.mjCNSTR_CONTACT_FRICTIONLESS)
    if not touchable(m):
        counted = kind != int(mujoco.mjtConstraint.mjCNSTR_EQUALITY)
    active = bool((counted & (e.efc_force[: e.nefc] != 0)).any())
    given = {name: np.array(getattr(d, name)) for name in GIVEN}
    qacc = e.qacc.copy()
    mujoco.mj_step(m, e)
    return Row(**given, qacc=qacc, after=e.qvel.copy(), contacts=touch, active=active)


def _at(m: Any, d: Any) -> Any:
    """Fresh data in the state of ``d``."""
    import mujoco

    e = mujoco.MjData(m)
    for name in GIVEN:
        getattr(e, name)[:] = getattr(d, name)
    return e


def forces(m: Any, d: Any) -> np.ndarray:
    """Force and torque of every contact in its frame, shape (contact, 6)."""
    import mujoco

    force = np.zeros((d.ncon, 6))
    for i in range(d.ncon):
        mujoco.mj_contactForce(m, d, i, force[i])
    return force


@functools.cache
def touchable(m: Any) -> bool:
    """Whether any two geoms may touch."""
    return len(met(m, frozenset())[0]) > 0


def to_state(model: fphys.Model, rows: list[Row]) -> tuple[fphys.State, np.ndarray]:
    """The same states for us, and their controls, in the model's precision."""
    stacked = {name: np.array([getattr(row, name) for row in rows], model.qpos0.dtype) for name in GIVEN}
    ctrl = stacked.pop("ctrl")
    return fphys.init(model, len(rows)).replace(**{k: jnp.asarray(v) for k, v in stacked.items()}), ctrl


def grazing(model: fphys.Model, rows: list[Row], state: fphys.State, ctrl: np.ndarray) -> np.ndarray:
    """States in which a contact, ours or MuJoCo's, is made or not by rounding, bool, shape (world,)."""
    contacts = jax.jit(fphys.forward)(model, state, ctrl)[1].contacts
    if contacts is None:
        return np.zeros(len(rows), bool)
    s, reach, found = model.structure, np.asarray(model.geom.margin + model.geom.gap)[0], []
    named = np.asarray(model.pair.margin + model.pair.gap)[0, s.geom.named]
    pairs = s.geom.pair[len(s.geom.pair) - len(named) :]
    special = {tuple(sorted(pair)): x for pair, x in zip(pairs.tolist(), named, strict=True)}

    def limits(geoms: np.ndarray) -> list[float]:
        return [special.get(tuple(sorted(pair)), reach[pair].sum()) for pair in geoms.tolist()]

    everything = contacts.pair, contacts.distance, geoms_of(s, contacts.pair)
    for pair, distance, geoms, row in zip(*map(np.asarray, everything), rows, strict=True):
        ours = distance[pair >= 0] - limits(geoms[pair >= 0])
        theirs = row.contacts.distance - limits(row.contacts.geom)
        found.append(np.abs(np.concatenate([ours, theirs])).min(initial=np.inf) <= GRAZING)
    return np.array(found)


def error(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Largest difference in each row, relative to the row's largest number, of at least one."""
    gap, size = np.abs(found - expected), np.abs(expected)
    return gap.max(1, initial=0) / np.maximum(1, size.max(1, initial=0))


def silence() -> None:
    """Let MuJoCo neither print warnings nor write MUJOCO_LOG.TXT."""
    import mujoco

    mujoco.set_mju_user_warning(lambda _: None)


def refusal(path: str) -> str:
    """Why MuJoCo itself does not compile a file; "" if it does."""
    import mujoco

    try:
        mujoco.MjModel.from_xml_path(path)
    except ValueError as error:
        return str(error).strip() or "MuJoCo gives no reason"
    return ""


def speed(m: Any, row: Row, seconds: float = 0.2) -> float:
    """MuJoCo's steps in a second on one thread, from a state."""
    import mujoco

    d, count = _at(m, row), 0
    begun = time.perf_counter()
    while (spent := time.perf_counter() - begun) < seconds:
        mujoco.mj_step(m, d)
        count += 1
    return count / spent
