"""States: create them, reset worlds, and check them on the host."""

import functools
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from .. import worlds
from ..units import si
from ..worlds import HUGE, Status, largest_velocity
from .arguments import expect, expect_model, whole_number
from .kinds import kinds
from .model import Model
from .pairs import capacity
from .state import State
from .structure import JointType, Structure

Array = jax.Array

_COORDINATES = {JointType.FREE: 7, JointType.BALL: 4}
_CAUSES = {
    Status.NONFINITE: (
        "the state was or became NaN, infinite or larger than 1e10, or in float32 a joint came farther than 84 km or "
        "became faster than 2.6e6 m/s or rad/s: look at what fphys.init was given, then try a smaller "
        "model.opt.timestep, or more damping"
    ),
    Status.BADCTRL: "control, wrench or force was NaN or infinite: look at what computes them; "
    "fphys.check(state, model, ctrl) names the actuator",
    Status.BADPARAM: (
        "a parameter of the world's model was not finite, a friction negative, or a mass or time step not positive: "
        "look at what model.replace was given"
    ),
    Status.UNCONVERGED: "the constraint solver stopped at its iteration limit: raise iterations in <option>",
    Status.CONTACT_OVERFLOW: "more contacts than max_contacts={0}: raise max_contacts in fphys.init",
    Status.CONSTRAINT_OVERFLOW: "more constraint rows than max_constraints={1}: raise max_constraints in fphys.init",
}


def init(
    model: Model,
    num_worlds: int,
    qpos: Any = None,
    qvel: Any = None,
    max_contacts: int | None = None,
    max_constraints: int | None = None,
) -> State:
    """The state of many worlds at rest; traceable, with ``num_worlds`` and the capacities static.

    Args:
        qpos: generalised position, shape (nq,), (1, nq) or (num_worlds, nq); default the model's ``qpos0``.
        qvel: generalised velocity, shape (nv,), (1, nv) or (num_worlds, nv); default zero. Both may be quantities
            (:mod:`fphys.units`) where all joints are hinges, or all slides.
        max_contacts: contacts that a world can hold; by default all that planes can make, 16 for each geom with each
            height field, and for the other pairs all or, if that is less, 4 to 28 per geom: 4 for spheres and capsules,
            12 if flat sides may meet, 28 for boxes among boxes. Further contacts are dropped and reported in the
            status. Zero is refused if geoms may touch.
        max_constraints: constraint rows that a world can hold; by default all that these contacts, the limits, the
            equalities and dry friction need.

    Raises:
        ValueError: a shape or number does not fit, or one that is known on the host is not finite. TypeError: a type
            does not fit; UnitError: a kind.
    """
    expect_model(model)
    s, num_worlds = model.structure, whole_number("num_worlds", num_worlds)
    if num_worlds < 1:
        raise ValueError(f"num_worlds is {num_worlds}, must be at least 1")
    asked = None if max_contacts is None else _whole("max_contacts", max_contacts)
    contacts, contact_rows = capacity(s, asked)
    if asked == 0 and capacity(s)[0]:
        raise ValueError(
            "max_contacts is 0, but geoms of the model may touch: give it room, or switch contact off by "
            'fphys.load(..., disable=("contact",))'
        )
    real = model.qpos0.dtype
    qpos, qvel = si(qpos, kinds(s, "qpos"), "qpos"), si(qvel, kinds(s, "qvel"), "qvel")
    for name, value in (("qpos", qpos), ("qvel", qvel)):
        _expect_finite(name, value)
    order = np.argsort(s.body.mocap[s.body.mocap >= 0])
    mocap = np.flatnonzero(s.body.mocap >= 0)[order]
    values = {
        "qpos": _checked("qpos", model.qpos0 if qpos is None else qpos, num_worlds, s.nq, real, _coordinates(s)),
        "qvel": np.zeros((1, s.nv), real) if qvel is None else _checked("qvel", qvel, num_worlds, s.nv, real),
        "mocap_pos": _checked("body.pos", _rows(model.body.pos, mocap), num_worlds, (len(mocap), 3), real),
        "mocap_quat": _checked("body.quat", _rows(model.body.quat, mocap), num_worlds, (len(mocap), 4), real),
    }
    return State(
        **_in_worlds(values, num_worlds, s.na),
        max_contacts=contacts,
        max_constraints=s.nrow + contact_rows
        if max_constraints is None
        else _whole("max_constraints", max_constraints),
    )


def reset(model: Model, state: State, mask: Array, start: State | None = None) -> State:
    """Reset the worlds where ``mask`` (num_worlds,) is true to ``start``, and clear their fault bits.

    By default, ``start`` is the default of :func:`init`. Gradients flow through the worlds that stay, and in the others
    to ``start``, or by default to ``model.qpos0`` [m, rad or unit quaternion].

    Raises:
        ValueError: the mask is not bool of that shape. TypeError: not a model or not a state.
    """
    expect(model, state)
    if start is None:
        sizes = {"max_contacts": state.max_contacts, "max_constraints": state.max_constraints}
        start = init(model, state.qpos.shape[0], **sizes)
    return worlds.reset(state, mask, start)


def check(state: State, model: Model | None = None, ctrl: Any = None, wrench: Any = None, force: Any = None) -> None:
    """Raise StateError on the host if a world is faulty: which, why, and what to change.

    Given the model and the inputs of the last step (as for :func:`fphys.step`, [N or N m]), it names the actuator,
    joint or body whose input is at fault.
    """
    if not isinstance(state, State):
        kind = type(state)
        scenes = "; world.check looks at a scene's" if kind.__name__ == "State" else ""
        raise TypeError(f"state is of type {kind.__module__}.{kind.__name__}, must be a fphys.State{scenes}")

    def cause(world: int, bit: Status) -> str:
        where = _nonfinite(state, world) if bit is Status.NONFINITE else ""
        if bit is Status.BADCTRL and model is not None:
            where = _uncontrolled(model, {"ctrl": ctrl, "wrench": wrench, "force": force}, world)
        return _CAUSES.get(bit, "").format(state.max_contacts, state.max_constraints) + where

    worlds.report(state.status, cause, "fphys.reset")


@functools.partial(jax.jit, static_argnums=(1, 2), inline=True)  # eagerly, every line would compile programs of its own
def _in_worlds(values: dict[str, Array], worlds: int, na: int) -> dict[str, Array]:
    """Copies of the values in all worlds, and zeros."""
    real, nv = values["qpos"].dtype, values["qvel"].shape[-1]
    return {name: jnp.broadcast_to(jnp.array(v), (worlds, *v.shape[1:])) for name, v in values.items()} | {
        "act": jnp.zeros((worlds, na), real),
        "time": jnp.zeros(worlds, real),
        "status": jnp.zeros(worlds, jnp.uint32),
        "warmstart": jnp.zeros((worlds, nv), real),
    }


def _rows(leaf: Array, bodies: np.ndarray) -> Any:
    return leaf[:, bodies] if len(bodies) else np.zeros((1, 0, leaf.shape[-1]), leaf.dtype)


def _checked(name: str, value: Any, worlds: int, size: int | tuple[int, ...], real: Any, why: str = "") -> Any:
    """A value of shape (*size), (1, *size) or (world, *size), as one of shape (1 or world, *size)."""
    size = (size,) if isinstance(size, int) else size
    typed = isinstance(value, jax.Array | np.ndarray)
    given = value if typed else np.asarray(value)
    wrong = isinstance(value, jax.Array) and given.dtype != real
    if given.dtype.kind not in ("f" if typed else "fiu") or wrong:
        raise TypeError(f"{name} is {given.dtype}, the model is {real}: convert it with {name}.astype({str(real)!r})")
    if given.shape not in (size, (1, *size), (worlds, *size)):
        needs = ", ".join(map(str, ("num_worlds", *size)))
        why = f", num_worlds = {worlds}" if given.shape[1:] == size else why
        raise ValueError(f"{name} has shape {given.shape}, the model needs ({needs}){why}")
    given = given if isinstance(given, jax.Array) else np.array(given, real)  # a copy: JAX would alias NumPy's memory
    return given[None] if given.shape == size else given


def _expect_finite(name: str, value: Any) -> None:
    """Refuse numbers that are known on the host and that no world can begin with."""
    if value is None or isinstance(value, jax.core.Tracer):
        return
    given = np.asarray(value)
    for at in np.argwhere(~np.isfinite(given)) if given.dtype.kind == "f" else ():
        raise ValueError(f"{name}{at.tolist()} is {given[tuple(at)]}: a world begins with finite numbers")


def _coordinates(structure: Structure) -> str:
    """How many numbers the joints take, for joints that take more than one."""
    kinds = [kind for kind in _COORDINATES if (structure.joint.type == kind).any()]
    return "".join(f": a {kind.name.lower()} joint takes {_COORDINATES[kind]} numbers" for kind in kinds[:1])


def _whole(name: str, asked: int) -> int:
    if whole_number(name, asked) < 0:
        raise ValueError(f"{name} is {asked}, must not be negative")
    return int(asked)


def _uncontrolled(model: Model, loads: dict[str, Any], world: int) -> str:
    """The first entry of a step's inputs that is at fault in a world, with the name of what it acts on."""
    for name, load in loads.items():
        values = np.zeros(0) if load is None else np.asarray(load)[world]
        for at in np.argwhere(~(np.abs(values) <= HUGE)):
            kind = {"ctrl": "actuator", "wrench": "body", "force": "joint"}[name]
            index = int(model.structure.dof.joint[at[0]] if name == "force" else at[0])
            return f" ({name}{at.tolist()}, of {kind} {model.names(kind)[index] or index!r}, is {values[tuple(at)]})"
    return ""


def _nonfinite(state: State, world: int) -> str:
    for name in ("qpos", "qvel", "act"):
        values = np.asarray(getattr(state, name))[world]
        for i in np.flatnonzero(~(np.abs(values) <= (largest_velocity(values.dtype) if name == "qvel" else HUGE))):
            return f" ({name}[{i}] is {values[i]})"
    return ""
