"""Equality constraints: the rows of the solve, and their virtual power."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...bridge import kernels, warp_op
from ...model import Model, State
from ...model.structure import CONNECT, EQUALITY_ROWS, JOINT, TENDON, WELD
from .. import stages
from ..forces import tendon
from ..tree import topology

Array = jax.Array


class Welds(NamedTuple):
    """Connections and welds between two bodies, in the bodies' frames, each (1 | world, weld, ...)."""

    anchor1: Any
    anchor2: Any
    turn1: Any  # orientations that a weld aligns
    turn2: Any
    torquescale: Any
    solref: Any
    solimp: Any


class Couplings(NamedTuple):
    """Polynomials that couple two joints or two tendons, each (1 | world, coupling, ...)."""

    coefficients: Any
    solref: Any
    solimp: Any


class Power(NamedTuple):
    """Virtual power of the equalities, by kind; None where there are none."""

    weld: Any
    joint: Any
    tendon: Any


class Bonds(NamedTuple):
    """Parameters of the active equalities, by kind."""

    weld: Welds
    joint: Couplings
    tendon: Couplings


def _which(model: Model, *types: int) -> np.ndarray:
    """Indices of the active equalities of some types."""
    return np.flatnonzero(np.isin(model.structure.equality.type, types))


def _starts(model: Model) -> np.ndarray:
    """First row of each active equality."""
    rows = [EQUALITY_ROWS[int(t)] for t in model.structure.equality.type]
    return np.cumsum([0, *rows])[:-1].astype(np.int32)


def equality_sizes(model: Model) -> list[int]:
    """Numbers of connections and welds, of coupled joints and of coupled tendons."""
    return [_which(model, CONNECT, WELD).size, _which(model, JOINT).size, _which(model, TENDON).size]


def tied(model: Model) -> np.ndarray:
    """The two tendons of each coupling of tendons, the second -1 where there is none, (coupling, 2)."""
    return model.structure.equality.object[_which(model, TENDON)]


def bonds(model: Model) -> Bonds:
    """Parameters of the active equalities; gradients flow to ``model.equality`` and to the sites they name."""
    index, e = model.structure.equality.index, model.equality

    def couplings(kind: int) -> Couplings:
        i = index[_which(model, kind)]
        return Couplings(e.data[:, i, :5], e.solref[:, i], e.solimp[:, i])

    return Bonds(_welds(model), couplings(JOINT), couplings(TENDON))


def _welds(model: Model) -> Welds:
    """Anchors from a constraint's data, or from the sites that it names."""
    s, which = model.structure, _which(model, CONNECT, WELD)
    which_sites, objects = s.equality.site[which] != 0, s.equality.object[which]
    index = s.equality.index[which]
    data = model.equality.data[:, index]
    weld, site = (x[None, :, None] for x in (s.equality.type[which] == WELD, which_sites))
    identity = jnp.broadcast_to(jnp.array([1.0, 0.0, 0.0, 0.0], data.dtype), (*data.shape[:2], 4))
    hold: list[Array] = [
        jnp.where(weld, data[..., 3:6], data[..., 0:3]),
        jnp.where(weld, data[..., 0:3], data[..., 3:6]),
        jnp.where(weld, data[..., 6:10], identity),
        identity,
    ]
    if site.any():
        first, second = (np.where(which_sites, objects[:, side], 0) for side in range(2))
        sites = model.site
        theirs = [sites.pos[:, first], sites.pos[:, second], sites.quat[:, first], sites.quat[:, second]]
        hold = [jnp.where(site, a, b) for a, b in zip(theirs, hold, strict=True)]
    anchor1, anchor2, turn1, turn2 = hold
    e = model.equality
    return Welds(anchor1, anchor2, turn1, turn2, data[..., 10], e.solref[:, index], e.solimp[:, index])


def _welded(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Bodies of each connection or weld, and its number of rows."""
    s, which = model.structure, _which(model, CONNECT, WELD)
    objects, site = s.equality.object[which], s.equality.site[which, None] != 0
    body = np.where(site, s.site.body[np.where(site, objects, 0)], objects) if site.any() else objects
    return body.astype(np.int32), np.array([EQUALITY_ROWS[int(t)] for t in s.equality.type[which]], np.int32)


def of_welds(model: Model, given: Welds) -> list[Any]:
    """Connections and welds, and how soft they are, as kernels take them."""
    body, rows = _welded(model)
    welds = given._asdict() | {"body": body, "rows": rows, "invweight0": model.body.invweight0}
    return [welds, stages.soft(model, given.solref, given.solimp)]


def _of_couplings(model: Model, kind: int, given: Couplings, invweight0: Any) -> list[Any]:
    pair = model.structure.equality.object[_which(model, kind)]
    couplings = {"pair": pair, "coefficients": given.coefficients, "invweight0": invweight0}
    return [couplings, stages.soft(model, given.solref, given.solimp)]


def _of_joints(model: Model, given: Bonds) -> list[Any]:
    return [*_of_couplings(model, JOINT, given.joint, model.dof.invweight0), model.qpos0]


def _of_tendons(model: Model, given: Bonds) -> list[Any]:
    return [*_of_couplings(model, TENDON, given.tendon, model.tendon.invweight0), model.tendon.length0]


def equality_rows(
    launch: Any,
    model: Model,
    state: State,
    given: Bonds,
    motions: stages.Motions,
    ten: tendon.Tendons,
    moment: Any,
    out: stages.Rows,
) -> None:
    """Write the rows of all equalities, in the file's order; ``motions.acceleration`` is that of dofs at rest."""
    s, start = model.structure, _starts(model)
    k = kernels(state.qpos.dtype, "rigid.solve.equality")
    welded, coupled, tied = equality_sizes(model)
    columns, second = topology.columns(model, s.joint.dof), int(s.sparse)
    if welded:
        inputs = [start[_which(model, CONNECT, WELD)], topology.bodies(model), *of_welds(model, given.weld)]
        inputs += [motions.frames, motions.axes, motions.velocity, motions.acceleration]
        launch(k.weld_rows, dim=(launch.worlds, welded), inputs=inputs, outputs=[out])
    if coupled:
        inputs = [start[_which(model, JOINT)], s.joint.qpos, s.joint.dof, columns, second]
        inputs += _of_joints(model, given)
        inputs += [state.qpos, state.qvel]
        launch(k.joint_coupling_rows, dim=(launch.worlds, coupled), inputs=inputs, outputs=[out])
    if tied:
        inputs = [start[_which(model, TENDON)], second, *_of_tendons(model, given), ten.length, ten.velocity, moment]
        launch(k.tendon_coupling_rows, dim=(launch.worlds, tied), inputs=inputs, outputs=[out])


def _weld_loads(launch: Any, model: Model, state: State, given: Welds, motions: stages.Motions, out: Any) -> None:
    """Wrenches on the first bodies of all connections and welds."""
    launch(
        kernels(state.qpos.dtype, "rigid.solve.equality").weld_loads,
        dim=(launch.worlds, equality_sizes(model)[0]),
        inputs=[topology.bodies(model), *of_welds(model, given)]
        + [motions.frames, motions.velocity, motions.acceleration],
        outputs=[out],
    )


def equality_power(
    launch: Any,
    model: Model,
    state: State,
    given: Bonds,
    motions: stages.Motions,
    rates: stages.Rates,
    ten: tendon.Tendons,
    ten_rates: stages.Rates | None,
    out: Power,
) -> None:
    """Virtual power of the equalities."""
    s = model.structure
    k = kernels(state.qpos.dtype, "rigid.solve.equality")
    if out.weld is not None:
        load = launch.scratch(out.weld.shape, stages.types(state.qpos).wrench)
        _weld_loads(launch, model, state, given.weld, motions, load)
        inputs = [topology.bodies(model), of_welds(model, given.weld)[0], load, motions.frames, motions.trial]
        launch(k.weld_power, dim=out.weld.shape, inputs=inputs, outputs=[out.weld])
    if out.joint is not None:
        inputs = [s.joint.qpos, s.joint.dof, *_of_joints(model, given), state.qpos, state.qvel, *rates]
        launch(k.joint_coupling_power, dim=out.joint.shape, inputs=inputs, outputs=[out.joint])
    if out.tendon is not None and ten_rates is not None:
        inputs = [*_of_tendons(model, given), ten.length, ten.velocity, *ten_rates]
        launch(k.tendon_coupling_power, dim=out.tendon.shape, inputs=inputs, outputs=[out.tendon])


def equality_parts(model: Model, state: State) -> Power:
    """What :func:`equality_power` writes."""
    return Power(*(stages.part(state, n) for n in equality_sizes(model)))


class Pulls(NamedTuple):
    """What connections and welds do to their first bodies; the second bodies feel the opposite."""

    body: np.ndarray  # (weld, 2)
    anchor: tuple[Array, Array]  # where, in either body's frame, each (1 | world, weld, 3) [m]
    torque: Array  # world axes, (world, weld, 3) [N m]
    force: Array  # world axes, (world, weld, 3) [N]


def _pull(launch: Any, model: Model, state: State, given: Welds, acceleration: Any, out: Any) -> None:
    frames = stages.frame_poses(launch, model, state)
    axes = stages.dof_axes(launch, model, frames)
    velocity = stages.frame_motion(launch, model, axes, state.qvel)
    motions = stages.Motions(frames, axes, velocity, acceleration=acceleration)
    _weld_loads(launch, model, state, given, motions, out)


def _pull_shape(model: Model, state: State, given: Welds, acceleration: Any) -> Any:
    return jax.ShapeDtypeStruct((acceleration.shape[0], equality_sizes(model)[0], 6), acceleration.dtype)


_pull_op = warp_op(_pull, _pull_shape, zeroed=False, name="loads of welds")


def weld_pulls(model: Model, state: State, acceleration: Array) -> Pulls | None:
    """Forces and torques of the active connections and welds, or None if the model has none.

    Args:
        acceleration: of every frame, (world, frame, 6), with or without gravity; with the accelerations of
            :func:`fphys.forward` the forces are the solution's.

    Returns:
        Gradients flow to all arguments.
    """
    if not equality_sizes(model)[0]:
        return None
    given = _welds(model)
    load = _pull_op(model, state, given, acceleration)
    return Pulls(_welded(model)[0], (given.anchor1, given.anchor2), load[..., :3], load[..., 3:])
