"""Limits of joints and tendons: the rows of the solve, their virtual power, and the readings of limit sensors."""

from typing import Any, NamedTuple

import jax

from ..bridge import kernels, warp_op
from ..model import Model, State
from . import launches as L


def limit_sizes(model: Model) -> list[int]:
    """Numbers of joint limits and of tendon limits."""
    return [model.structure.limit.joint.size, model.structure.limit.tendon.size]


def _joint_arguments(model: Model) -> tuple[list[Any], list[Any]]:
    s, j = model.structure, model.joint
    structure = [s.limit.joint, s.limit.side, s.joint.type, s.joint.qpos, s.joint.dof, L.refsafe(model)]
    invweight0 = model.dof.invweight0
    return structure, [j.range, j.margin, j.solref, j.solimp, invweight0, model.opt.timestep]


def _tendon_arguments(model: Model) -> tuple[list[Any], list[Any]]:
    s, t = model.structure, model.tendon
    structure = [s.limit.tendon, s.limit.tendon_side, L.refsafe(model)]
    return structure, [t.range, t.margin, t.solref_lim, t.solimp_lim, t.invweight0, model.opt.timestep]


def limit_rows(
    launch: Any, model: Model, state: State, tendons: L.Tendons, moment: Any, first: int, out: L.Rows
) -> None:
    """Write the rows of the active limits, first joints', then tendons', from row ``first``."""
    k = kernels(state.qpos.dtype, "rigid.limit")
    joints, ends = limit_sizes(model)
    if joints:
        structure, parameters = _joint_arguments(model)
        structure.insert(-1, L.columns(model, model.structure.joint.dof))
        inputs = [L.lanes(launch, joints), *structure, first, *parameters, state.qpos, state.qvel]
        launch(k.joint_limit_rows, dim=(launch.worlds, L.lanes(launch, joints)), inputs=inputs, outputs=list(out))
    if ends:
        structure, parameters = _tendon_arguments(model)
        inputs = [L.lanes(launch, ends), *structure, first + joints, *parameters, *tendons, moment]
        launch(k.tendon_limit_rows, dim=(launch.worlds, L.lanes(launch, ends)), inputs=inputs, outputs=list(out))


def limit_power(
    launch: Any, model: Model, state: State, motion: tuple[Any, Any], tendons: L.Tendons, rates: Any, outs: list[Any]
) -> None:
    """Virtual power of the limits; ``motion`` is (qacc, trial), ``rates`` the same for the tendons."""
    k = kernels(state.qpos.dtype, "rigid.limit")
    joints, ends = limit_sizes(model)
    if joints:
        structure, parameters = _joint_arguments(model)
        inputs = [L.lanes(launch, joints), *structure, *parameters, state.qpos, state.qvel, *motion]
        launch(k.joint_limit_power, dim=(launch.worlds, L.lanes(launch, joints)), inputs=inputs, outputs=[outs.pop(0)])
    if ends:
        structure, parameters = _tendon_arguments(model)
        inputs = [L.lanes(launch, ends), *structure, *parameters, *tendons, *rates]
        launch(k.tendon_limit_power, dim=(launch.worlds, L.lanes(launch, ends)), inputs=inputs, outputs=[outs.pop(0)])


class Readings(NamedTuple):
    """Readings of active limits, zero for the others, each (world, limit)."""

    violation: Any  # distance to the limit minus its margin, negative [m or rad]
    rate: Any  # of the distance [m/s or rad/s]
    force: Any  # restoring force [N or N m]


def _measure(launch: Any, model: Model, state: State, tendons: Any, qacc: Any, *outs: Any) -> None:
    k = kernels(state.qpos.dtype, "rigid.limit")
    joints, ends = limit_sizes(model)
    if joints:
        structure, parameters = _joint_arguments(model)
        inputs = [*structure, *parameters, state.qpos, state.qvel, qacc]
        launch(k.joint_limit_readings, dim=(launch.worlds, joints), inputs=inputs, outputs=list(outs[:3]))
    if ends:
        structure, parameters = _tendon_arguments(model)
        inputs = [*structure, *parameters, *tendons]
        launch(k.tendon_limit_readings, dim=(launch.worlds, ends), inputs=inputs, outputs=list(outs[3:]))


def _shapes(model: Model, state: State, tendons: Any, qacc: Any) -> tuple[Any, ...]:
    return tuple(jax.ShapeDtypeStruct((qacc.shape[0], n), qacc.dtype) for n in limit_sizes(model) for _ in range(3))


_measure_op = warp_op(_measure, _shapes, name="readings of limits")


def limit_readings(model: Model, state: State, tendons: tuple[Any, Any, Any], qacc: Any) -> tuple[Readings, Readings]:
    """Readings of the limits of joints and of tendons at given accelerations.

    Args:
        tendons: length [m], velocity [m/s] and J qacc [m/s^2] of the tendons, each (world, ntendon).
        qacc: accelerations, (world, nv); with those of :func:`fphys.forward` the forces are the solution's.

    Returns:
        In the order of ``structure.limit``. Gradients flow to all arguments, through the active limits.
    """
    found = _measure_op(model, state, tendons, qacc)
    return Readings(*found[:3]), Readings(*found[3:])
