"""Requirements on a compiled MuJoCo model: it must be finite, physical, and within the whitelist."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..errors import ModelError, UnsupportedError
from .pairs import met, of_kinds
from .structure import MUSCLE, GeomType, JointType
from .whitelist import DEFAULT, LEAVES, numeric_fields

CONSTRAINTS = ("contact", "limit", "equality", "frictionloss")

DISABLE_BITS = {
    "constraint": 1,
    "equality": 2,
    "frictionloss": 4,
    "limit": 8,
    "contact": 16,
    "spring": 32,
    "damper": 64,
    "gravity": 128,
    "clampctrl": 256,
    "warmstart": 512,
    "filterparent": 1024,
    "actuation": 2048,
    "refsafe": 4096,
    "eulerdamp": 32768,
    "island": 262144,
    "multiccd": 524288,
}
"""Flags of MuJoCo -> bit of opt.disableflags."""

FRICTIONS = ("geom.friction", "pair.friction", "dof.frictionloss", "tendon.frictionloss")
"""Leaves that may not be negative."""
MINIMUM = 1e-15  # MuJoCo's mjMINVAL
_KINDS = {"jnt": "joint", "eq": "equality", "cam": "camera", "mat": "material", "tex": "texture"}
_ENABLED = {1: "override", 8: "invdiscrete", 32: "diagexact", 64: "ipc", 128: "speculative"}
_INTEGRATORS = {2: "implicit", 4: "discrete"}
_TRANSMISSIONS = {6: "so3"}
_DYNAMICS = {5: "dcmotor", 6: "pid", 7: "user"}
_GAINS = {3: "dcmotor", 4: "so3", 5: "pid", 6: "user"}
_BIASES = {3: "dcmotor", 4: "so3", 5: "user"}
_EQUALITIES = {4: "flex", 5: "flexvert", 6: "flexstrain", 7: "distance"}
_SLEEP, _NEWTON = 16, 2  # mjENBL_SLEEP, mjSOL_NEWTON
_ASLEEP = 5  # mjSLEEP_INIT
_INTEGRATED = 1  # mjDYN_INTEGRATOR
_BODY = 5  # mjTRN_BODY


def require_finite(m: Any, label: str) -> None:
    """Raise ModelError naming every element with a number that is NaN or infinite."""
    faults = []
    for name, values in numeric_fields(m).items():
        if values.dtype.kind != "f" or np.isfinite(values).all():
            continue
        rows = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1)) if values.ndim else [None]
        faults += [f"{leaf_title(m, name, row)} is {_first_bad(values, row)}" for row in rows]
    _raise(faults, f"{label}: every number of a model must be finite")


def require_physical(m: Any, label: str) -> None:
    """Raise ModelError naming every body with an impossible mass or inertia, and everything else that is impossible."""
    numbers = {name: getattr(m.opt, name) for name in ("timestep", "impratio")}
    faults = [f"option {name} is {value}, must be positive" for name, value in numbers.items() if not value > 0]
    faults += body_faults(m, m.body_mass, m.body_inertia, solid=True)
    for name in (LEAVES[path] for path in FRICTIONS):
        values = getattr(m, name)
        faults += [
            f"{leaf_title(m, name, row)} is {values[row].min()}, must not be negative"
            for row in np.unique(np.argwhere(values < 0)[:, 0])
        ]
    for kind, name in (("body", "quat"), ("body", "iquat"), ("geom", "quat"), ("site", "quat")):
        off = np.abs(np.linalg.norm(getattr(m, f"{kind}_{name}"), axis=1) - 1) > 1e-6
        faults += [f"{_element(m, kind, i)}: {name} is not of unit length" for i in np.flatnonzero(off)]
    off = np.abs(np.linalg.norm(m.jnt_axis, axis=1) - 1) > 1e-6
    faults += [
        f"{_element(m, 'joint', i)}: axis is not of unit length" for i in np.flatnonzero(off & (m.jnt_type >= 2))
    ]
    _raise(faults or list(_lost_inertia(m)), f"{label}: the model is not physical")


def _lost_inertia(m: Any) -> Iterator[str]:
    """Degrees of freedom whose inertia is lost to rounding in MuJoCo's mass matrix, and constants that became negative.

    MuJoCo adds inertias up about the centre of the whole tree. If bodies are far apart, the inertia of light ones is
    lost.
    """
    for name in ("dof_M0", "dof_invweight0"):
        for row in np.flatnonzero(getattr(m, name) <= 0):
            yield f"{leaf_title(m, name, row)} is {getattr(m, name)[row]}, must be positive"
    for name in ("body_invweight0", "tendon_invweight0", "actuator_acc0"):
        for row in np.unique(np.argwhere(getattr(m, name) < 0)[:, 0]):
            yield f"{leaf_title(m, name, row)} is {getattr(m, name)[row].min()}, must not be negative"
    if m.nv and not m.stat.meaninertia > 0:
        yield f"statistic meaninertia is {m.stat.meaninertia}, must be positive"
    pos, turn = np.zeros((m.nbody, 3)), np.tile(np.eye(3), (m.nbody, 1, 1))
    moves = np.zeros((m.nbody, m.nv), bool)
    for b in range(1, m.nbody):
        parent, first = m.body_parentid[b], m.body_dofadr[b]
        pos[b] = pos[parent] + turn[parent] @ m.body_pos[b]
        turn[b] = turn[parent] @ _rotation(m.body_quat[b])
        moves[b] = moves[parent]
        moves[b, first : first + m.body_dofnum[b]] = True
    centre = pos + np.einsum("bij,bj->bi", turn, m.body_ipos)
    axes = np.einsum("bij,bjk->bik", turn, [_rotation(quat) for quat in m.body_iquat])
    for d in range(m.nv):
        joint, moved = m.dof_jntid[d], moves[:, d]
        body, k = m.jnt_bodyid[joint], d - m.jnt_dofadr[joint]
        kind = m.jnt_type[joint]
        if kind == JointType.SLIDE or (kind == JointType.FREE and k < 3):
            continue  # a mass: adding it up loses nothing
        axis = turn[body] @ (m.jnt_axis[joint] if kind == JointType.HINGE else np.eye(3)[k % 3])
        arm = np.cross(axis, centre[moved] - (pos[body] + turn[body] @ m.jnt_pos[joint]))
        own = np.einsum("bij,i->bj", axes[moved], axis)
        inertia = (m.body_mass[moved] * (arm**2).sum(1)).sum() + (m.body_inertia[moved] * own**2).sum()
        inertia += m.dof_armature[d]
        tree = (m.body_rootid == m.body_rootid[body]) & (m.body_weldid != 0)
        mass, at = m.body_mass[tree], centre[tree]
        whole = (mass * ((at - mass @ at / max(mass.sum(), MINIMUM)) ** 2).sum(1)).sum()
        if whole * np.finfo(float).eps > 1e-3 * inertia:
            yield (
                f"{_element(m, 'joint', int(joint))}: its inertia {inertia:.3g} is lost in rounding beside that of the "
                f"whole mechanism, {whole:.3g}: bring bodies that are far away nearer"
            )


def _rotation(quat: np.ndarray) -> np.ndarray:
    """The matrix of a unit quaternion."""
    w, x, y, z = quat
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def body_faults(m: Any, mass: np.ndarray, inertia: np.ndarray, solid: bool = False) -> Iterator[str]:
    """Bodies of one world with impossible mass or inertia; ``solid``: also those whose inertia no solid body has."""
    sound = (mass >= MINIMUM) & (inertia >= MINIMUM).all(axis=1)
    for body in range(1, m.nbody):
        low, middle, high = np.sort(inertia[body])
        text = f"{_element(m, 'body', body)}: mass {mass[body]:g}, inertia {[float(low), float(middle), float(high)]}"
        if mass[body] < 0 or low < 0:
            yield f"{text}: neither may be negative"
        elif m.body_jntnum[body] and not sound[m.body_weldid == body].any():
            yield f"{text}: a moving body needs both"
        elif solid and low + middle < high * (1 - 1e-6):
            yield (
                f"{_element(m, 'body', body)}: principal inertia {[float(low), float(middle), float(high)]} breaks the "
                "triangle inequality A + B >= C: no solid has it; balanceinertia in the file's <compiler> mends it"
            )


def require_supported(m: Any, disabled: frozenset[str], label: str) -> None:
    """Raise UnsupportedError naming every feature of the model that is not simulated."""
    faults = [*_not_default(m), *_options(m), *_actuation(m)]
    constraints = {
        "contact": list(_contacts(m, disabled)),
        "equality": [
            f"{_element(m, 'equality', i)}: {_EQUALITIES[int(m.eq_type[i])]}"
            for i in range(m.neq)
            if int(m.eq_type[i]) in _EQUALITIES
        ],
    }
    wanted = [name for name, found in constraints.items() if found and name not in disabled]
    for name in wanted:
        faults += constraints[name]
    words = ", ".join(f'"{name}"' for name in wanted) + ("," if len(wanted) == 1 else "")
    hint = f"\nTo simulate it without these constraints, load it with disable=({words})." if wanted else ""
    _raise(faults, f"{label}: the model uses what fphys does not simulate", hint, UnsupportedError)


def read_otherwise(m: Any, disabled: frozenset[str]) -> Iterator[str]:
    """Set options of a compiled model to the only value that fphys has, and say so where the result may differ."""
    if m.opt.solver != _NEWTON and not disabled.issuperset(CONSTRAINTS):
        yield "solver PGS or CG is read as Newton"
    m.opt.solver = _NEWTON
    if m.opt.enableflags & _SLEEP:
        yield "nothing sleeps here: MuJoCo halts what is slower than sleep_tolerance"
        m.opt.enableflags &= ~_SLEEP


def _not_default(m: Any) -> Iterator[str]:
    for name, default in DEFAULT.items():
        owner, _, bare = name.rpartition(".")
        values = np.asarray(getattr(getattr(m, owner) if owner else m, bare))
        if (values == default).all():
            continue
        rows = np.flatnonzero((values != default).reshape(len(values), -1).any(axis=1)) if values.ndim else [None]
        yield from (leaf_title(m, name, row) for row in rows)


def _options(m: Any) -> Iterator[str]:
    if m.opt.integrator in _INTEGRATORS:
        yield f'option integrator="{_INTEGRATORS[m.opt.integrator]}": choose implicitfast, Euler or RK4'
    for bit, name in _ENABLED.items():
        if m.opt.enableflags & bit:
            yield f'option flag {name}="enable"'
    if m.opt.enableflags & _SLEEP:
        for tree in np.flatnonzero(m.tree_sleep_policy == _ASLEEP):
            yield f'{_element(m, "body", int(m.tree_bodyadr[tree]))}: sleep="init", for it would fall'


def _actuation(m: Any) -> Iterator[str]:
    for i in range(m.nactuator):
        title = _element(m, "actuator", i)
        for what, types, names in (
            ("transmission", m.actuator_trntype, _TRANSMISSIONS),
            ("dynamics", m.actuator_dyntype, _DYNAMICS),
            ("gain", m.actuator_gaintype, _GAINS),
            ("bias", m.actuator_biastype, _BIASES),
        ):
            if int(types[i]) in names:
                yield f"{title}: {what} {names[int(types[i])]}"
        short = {
            "dynprm": m.actuator_dyntype[i] not in _DYNAMICS,
            "gainprm": m.actuator_gaintype[i] < MUSCLE,
            "biasprm": m.actuator_biastype[i] < MUSCLE,
        }
        for name in short:
            if short[name] and getattr(m, f"actuator_{name}")[i, 3:].any():
                yield f"{title}: {name} beyond the first three"
        if m.actuator_trntype[i] == _BODY:
            if m.actuator_gaintype[i] or m.actuator_biastype[i]:
                yield f"{title}: adhesion with a gain or bias by velocity"
            if m.jnt_actfrclimited.any():
                yield f"{title}: adhesion beside a joint's actuatorfrcrange"
        if m.actuator_dyntype[i] == _INTEGRATED and _is_rotational_servo(m, i):
            yield f"{title}: integrated setpoint of a rotation (integrate it in the controller, and use position)"


def _is_rotational_servo(m: Any, i: int) -> bool:
    """Whether MuJoCo takes an actuator's setpoint modulo whole turns."""
    target, reference = m.actuator_trnid[i]
    servo = m.actuator_gaintype[i] == 0 and m.actuator_biastype[i] == 1
    ball = m.actuator_trntype[i] in (0, 1) and m.jnt_type[target] == 1
    turned = m.actuator_trntype[i] == 4 and reference >= 0 and not m.actuator_gear[i, :3].any()
    return servo and m.actuator_gainprm[i, 0] == -m.actuator_biasprm[i, 1] and (ball or turned)


def disable_flags(disable: Iterable[str]) -> int:
    """MuJoCo's disable flags of constraints that are switched off; ModelError for an unknown name."""
    names = (disable,) if isinstance(disable, str) else tuple(disable)
    unknown = sorted(set(names) - set(CONSTRAINTS))
    if unknown:
        raise ModelError(f"disable holds {unknown}: it may hold {list(CONSTRAINTS)}")
    return sum(DISABLE_BITS[name] for name in set(names))


def disabled_by(flags: int) -> frozenset[str]:
    """What MuJoCo's disable flags switch off."""
    names = {name for name, bit in DISABLE_BITS.items() if flags & bit}
    return frozenset(names | set(CONSTRAINTS) if "constraint" in names else names)


def _contacts(m: Any, disabled: frozenset[str]) -> Iterator[str]:
    """Contacts that the model may make but that are not simulated, one line for each kind."""
    found: dict[str, list[str]] = {}
    pair, _ = met(m, disabled)
    for a, b in pair[of_kinds(pair, m.geom_type)[1] == 0]:
        first, second = (GeomType(m.geom_type[g]).name.lower() for g in (a, b))
        kind = f"contact of {first} and {second}"
        names = (_element(m, "geom", i).removeprefix("geom ") for i in (a, b))
        found.setdefault(kind, []).append(" - ".join(names))
    yield from (f"{kind}: {', '.join(names)}" for kind, names in found.items())


def leaf_title(m: Any, name: str, row: Any) -> str:
    """A field of an element, in words: ``body "torso": mass``."""
    if row is None:
        return name.replace("opt.", "option ").replace("stat.", "statistic ")
    owner, _, bare = name.partition("_")
    if name.startswith("opt."):
        return f"option {name[4:]}"
    if name in ("qpos0", "qpos_spring"):
        return f"{_element(m, 'joint', int(np.searchsorted(m.jnt_qposadr, row, 'right')) - 1)}: {name}"
    if owner == "dof":
        return f"{_element(m, 'joint', int(m.dof_jntid[row]))}: {bare}"
    if name == "wrap_prm":
        return f"{_element(m, 'tendon', int(np.searchsorted(m.tendon_adr, row, 'right')) - 1)}: coef"
    if name == "hfield_data":
        return f"{_element(m, 'hfield', int(np.searchsorted(m.hfield_adr, row, 'right')) - 1)}: data"
    kind = _KINDS.get(owner, owner)
    try:
        return f"{_element(m, kind, row)}: {bare}"
    except (AttributeError, IndexError, TypeError):
        return f"{name}[{row}]"


def _element(m: Any, kind: str, index: Any) -> str:
    name = getattr(m, kind)(int(index)).name
    if name:
        return f'{kind} "{name}"'
    if kind != "geom":
        return f"{kind} {index}"
    body = int(m.geom_bodyid[index])
    owner = m.body(body).name
    return f"geom {index} of body " + (f'"{owner}"' if owner else str(body))


def _first_bad(values: np.ndarray, row: Any) -> str:
    flat = np.ravel(values if row is None else values[row])
    return str(flat[~np.isfinite(flat)][0])


def _raise(faults: list[str], title: str, hint: str = "", error: type[ModelError] = ModelError) -> None:
    if faults:
        raise error(f"{title}:\n" + "\n".join(f"  {fault}" for fault in faults) + hint)
