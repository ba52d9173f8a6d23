"""Equality constraints: the rows of the solve, and their virtual power."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import kernels, warp_op
from ..model import Model, State
from ..model.structure import CONNECT, EQUALITY_ROWS, JOINT, TENDON, WELD
from . import launches as L

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


def _weld_arguments(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Bodies of each connection or weld, and its rows."""
    s, which = model.structure, _which(model, CONNECT, WELD)
    objects, site = s.equality.object[which], s.equality.site[which, None] != 0
    body = np.where(site, s.site.body[np.where(site, objects, 0)], objects) if site.any() else objects
    return body.astype(np.int32), np.array([EQUALITY_ROWS[int(t)] for t in s.equality.type[which]], np.int32)


def equality_rows(
    launch: Any,
    model: Model,
    state: State,
    given: Bonds,
    motions: tuple[L.Frames, Any, Any, Any],
    tendons: L.Tendons,
    moment: Any,
    out: L.Rows,
) -> None:
    """Write the rows of all equalities, in the file's order; ``motions``: frames, dofs' axes, velocity, bias."""
    s, start = model.structure, _starts(model)
    k = kernels(state.qpos.dtype, "rigid.equality")
    welded, coupled, tied = equality_sizes(model)
    h, refsafe = model.opt.timestep, L.refsafe(model)
    if welded:
        frames, axes, velocity, bias = motions
        body, rows = _weld_arguments(model)
        structure = [body, rows, start[_which(model, CONNECT, WELD)], s.body.frame, L.body_origin(model)]
        structure += [L.last_dof(model), s.dof.parent, L.dof_origin(model), refsafe]
        inputs = [*structure, *given.weld, model.body.invweight0, h, *frames, axes, velocity, bias]
        launch(k.weld_rows, dim=(launch.worlds, welded), inputs=inputs, outputs=list(out))
    if coupled:
        which = _which(model, JOINT)
        structure = [s.equality.object[which], start[which], s.joint.qpos, s.joint.dof, refsafe]
        inputs = [*structure, *given.joint, model.dof.invweight0, model.qpos0, h, state.qpos, state.qvel]
        launch(k.joint_coupling_rows, dim=(launch.worlds, coupled), inputs=inputs, outputs=list(out))
    if tied:
        which = _which(model, TENDON)
        parameters = [*given.tendon, model.tendon.invweight0, model.tendon.length0, h]
        inputs = [s.equality.object[which], start[which], refsafe, *parameters, *tendons, moment]
        launch(k.tendon_coupling_rows, dim=(launch.worlds, tied), inputs=inputs, outputs=list(out))


def _weld_loads(
    launch: Any, model: Model, state: State, given: Welds, motions: tuple[L.Frames, Any, Any], out: Any
) -> None:
    """Wrenches on the first bodies of all connections and welds; ``motions``: frames, velocity, acceleration."""
    frames, *moved = motions
    structure = [*_weld_arguments(model), model.structure.body.frame, L.body_origin(model), L.refsafe(model)]
    launch(
        kernels(state.qpos.dtype, "rigid.equality").weld_loads,
        dim=(launch.worlds, equality_sizes(model)[0]),
        inputs=[*structure, *given, model.body.invweight0, model.opt.timestep, *frames, *moved],
        outputs=[out],
    )


def equality_power(
    launch: Any,
    model: Model,
    state: State,
    given: Bonds,
    motions: tuple[L.Frames, Any, Any, Any],
    dofs: tuple[Any, Any],
    tendons: L.Tendons,
    rates: Any,
    outs: list[Any],
) -> None:
    """Virtual power of the equalities; ``motions``: frames, velocity, acceleration, trial; ``dofs``: qacc, trial."""
    s = model.structure
    k = kernels(state.qpos.dtype, "rigid.equality")
    welded, coupled, tied = equality_sizes(model)
    h, refsafe = model.opt.timestep, L.refsafe(model)
    if welded:
        frames, *moved, trial = motions
        load = launch.scratch((launch.worlds, welded), L.types(state.qpos).wrench)
        _weld_loads(launch, model, state, given.weld, (frames, *moved), load)
        inputs = [_weld_arguments(model)[0], s.body.frame, L.body_origin(model), *given.weld[:2], load, *frames, trial]
        launch(k.weld_power, dim=(launch.worlds, welded), inputs=inputs, outputs=[outs.pop(0)])
    if coupled:
        structure = [s.equality.object[_which(model, JOINT)], s.joint.qpos, s.joint.dof, refsafe]
        inputs = [*structure, *given.joint, model.dof.invweight0, model.qpos0, h, state.qpos, state.qvel, *dofs]
        launch(k.joint_coupling_power, dim=(launch.worlds, coupled), inputs=inputs, outputs=[outs.pop(0)])
    if tied:
        parameters = [*given.tendon, model.tendon.invweight0, model.tendon.length0, h]
        inputs = [s.equality.object[_which(model, TENDON)], refsafe, *parameters, *tendons, *rates]
        launch(k.tendon_coupling_power, dim=(launch.worlds, tied), inputs=inputs, outputs=[outs.pop(0)])


class Pulls(NamedTuple):
    """What connections and welds do to their first bodies; the second bodies feel the opposite."""

    body: np.ndarray  # (weld, 2)
    anchor: tuple[Array, Array]  # where, in either body's frame, each (1 | world, weld, 3) [m]
    torque: Array  # world axes, (world, weld, 3) [N m]
    force: Array  # world axes, (world, weld, 3) [N]


def _pull(launch: Any, model: Model, state: State, given: Welds, acceleration: Any, out: Any) -> None:
    frames = L.frame_poses(launch, model, state)
    velocity = L.frame_motion(launch, model, state, L.dof_axes(launch, model, state, frames), state.qvel)
    _weld_loads(launch, model, state, given, (frames, velocity, acceleration), out)


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
    return Pulls(_weld_arguments(model)[0], (given.anchor1, given.anchor2), load[..., :3], load[..., 3:])
