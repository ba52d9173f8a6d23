"""Limits of joints and tendons: the rows of the solve, their virtual power, and the readings of limit sensors."""

from typing import Any, NamedTuple

import jax

from ...bridge import kernels, warp_op
from ...model import Model, State
from .. import stages, team
from ..forces import tendon
from ..tree import topology


def limit_sizes(model: Model) -> list[int]:
    """Numbers of joint limits and of tendon limits."""
    return [model.structure.limit.joint.size, model.structure.limit.tendon.size]


class Power(NamedTuple):
    """Virtual power of the limits of joints and of tendons; None where there are none."""

    joint: Any
    tendon: Any


def _of_joints(model: Model) -> list[Any]:
    s, j = model.structure, model.joint
    limits = {"joint": s.limit.joint, "side": s.limit.side, "type": s.joint.type, "qpos": s.joint.qpos}
    limits |= {"dof": s.joint.dof, "range": j.range, "margin": j.margin, "invweight0": model.dof.invweight0}
    return [limits, stages.soft(model, j.solref, j.solimp)]


def _of_tendons(model: Model) -> list[Any]:
    s, t = model.structure, model.tendon
    limits = {"tendon": s.limit.tendon, "side": s.limit.tendon_side}
    limits |= {"range": t.range, "margin": t.margin, "invweight0": t.invweight0}
    return [limits, stages.soft(model, t.solref_lim, t.solimp_lim)]


def limit_rows(
    launch: Any, model: Model, state: State, ten: tendon.Tendons, moment: Any, first: int, out: stages.Rows
) -> None:
    """Write the rows of the active limits, first joints', then tendons', from row ``first``."""
    k = kernels(state.qpos.dtype, "rigid.solve.limit")
    joints, ends = limit_sizes(model)
    if joints:
        lanes, column = team.lanes(launch, joints), topology.columns(model, model.structure.joint.dof)
        inputs = [lanes, first, column, *_of_joints(model), state.qpos, state.qvel]
        launch(k.joint_limit_rows, dim=(launch.worlds, lanes), inputs=inputs, outputs=[out])
    if ends:
        lanes = team.lanes(launch, ends)
        inputs = [lanes, first + joints, *_of_tendons(model), ten.length, ten.velocity, moment]
        launch(k.tendon_limit_rows, dim=(launch.worlds, lanes), inputs=inputs, outputs=[out])


def limit_power(
    launch: Any,
    model: Model,
    state: State,
    rates: stages.Rates,
    ten: tendon.Tendons,
    ten_rates: stages.Rates | None,
    out: Power,
) -> None:
    """Virtual power of the limits."""
    k = kernels(state.qpos.dtype, "rigid.solve.limit")
    joints, ends = (team.lanes(launch, n) for n in limit_sizes(model))
    if out.joint is not None:
        inputs = [joints, *_of_joints(model), state.qpos, state.qvel, *rates]
        launch(k.joint_limit_power, dim=(launch.worlds, joints), inputs=inputs, outputs=[out.joint])
    if out.tendon is not None and ten_rates is not None:
        inputs = [ends, *_of_tendons(model), ten.length, ten.velocity, *ten_rates]
        launch(k.tendon_limit_power, dim=(launch.worlds, ends), inputs=inputs, outputs=[out.tendon])


def limit_parts(model: Model, state: State) -> Power:
    """What :func:`limit_power` writes."""
    return Power(*(stages.part(state, n) for n in limit_sizes(model)))


class Readings(NamedTuple):
    """Readings of active limits, zero for the others, each (world, limit)."""

    violation: Any  # distance to the limit minus its margin, negative [m or rad]
    rate: Any  # of the distance [m/s or rad/s]
    force: Any  # restoring force [N or N m]


class Measured(NamedTuple):
    """Readings of the limits of joints and of tendons; None where there are none."""

    joint: Readings | None
    tendon: Readings | None


def _measure(launch: Any, model: Model, state: State, tendons: Any, qacc: Any, out: Measured) -> None:
    k = kernels(_used(model, tendons, qacc).dtype, "rigid.solve.limit")
    if out.joint is not None:
        inputs = [*_of_joints(model), state.qpos, state.qvel, qacc]
        launch(k.joint_limit_readings, dim=out.joint.force.shape, inputs=inputs, outputs=list(out.joint))
    if out.tendon is not None:
        inputs = [*_of_tendons(model), *tendons]
        launch(k.tendon_limit_readings, dim=out.tendon.force.shape, inputs=inputs, outputs=list(out.tendon))


def _used(model: Model, tendons: Any, qacc: Any) -> Any:
    """An argument that the kernels read: the others may be missing."""
    return qacc if limit_sizes(model)[0] else tendons[0]


def _shapes(model: Model, state: State, tendons: Any, qacc: Any) -> Measured:
    like = _used(model, tendons, qacc)
    shapes = [jax.ShapeDtypeStruct((like.shape[0], n), like.dtype) for n in limit_sizes(model)]
    return Measured(*(Readings(shape, shape, shape) if shape.shape[1] else None for shape in shapes))


_measure_op = warp_op(_measure, _shapes, name="readings of limits")


def limit_readings(model: Model, state: State, tendons: tuple[Any, Any, Any], qacc: Any) -> Measured:
    """Readings of the limits of joints and of tendons at given accelerations.

    Args:
        tendons: length [m], velocity [m/s] and J qacc [m/s^2] of the tendons, each (world, ntendon).
        qacc: accelerations, (world, nv); with those of :func:`fphys.forward` the forces are the solution's.

    Returns:
        In the order of ``structure.limit``. Gradients flow to all arguments, through the active limits.
    """
    return _measure_op(model, state, tendons, qacc)
