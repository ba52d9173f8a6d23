"""Actuators: the launches of their transmissions and forces, and the quantities derived from them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...bridge import warp_op
from ...math import einsum
from ...model import Model, State
from ...model.structure import JointType, Structure, memo
from .. import stages
from ..tree import topology
from . import gravcomp, tendon

Array = jax.Array
Buffer = Any

SLIDER_CRANK, TENDON, SITE, BODY = 2, 3, 4, 5
"""MuJoCo's mjtTrn; 0 and 1 are a joint, in its own and in its parent's frame. BODY is adhesion."""
FIXED, AFFINE = 0, 1
"""MuJoCo's mjGAIN_FIXED and mjBIAS_AFFINE."""


class SiteActuators(NamedTuple):
    """Actuators that act on sites."""

    actuator: np.ndarray  # (n,)
    body: np.ndarray  # (n, 2) bodies of the site and of the reference site, or the world
    number: np.ndarray  # (nu,) index of each actuator among these, or -1


@memo
def site_actuators(structure: Structure) -> SiteActuators:
    a = structure.actuator
    own = np.isin(a.transmission, (SLIDER_CRANK, SITE))
    index = np.flatnonzero(own).astype(np.int32)
    site, reference = structure.site.body[a.target[index]], a.reference[index]
    base = np.where(reference >= 0, structure.site.body[reference], 0) if index.size else site
    number = np.where(own, np.cumsum(own) - 1, -1)
    return SiteActuators(index, np.stack([site, base], 1).astype(np.int32), number.astype(np.int32))


class Moments(NamedTuple):
    """The sparsity pattern of the actuators' moments."""

    pattern: topology.Pattern
    tendon: np.ndarray  # (entry,) for an actuator on a tendon, the entry of the tendon's Jacobian
    column_adr: np.ndarray  # (nv + 1,) entries of dof d are column[column_adr[d]:column_adr[d + 1]]
    column: np.ndarray  # (entry,)


@memo
def moments(structure: Structure) -> Moments:
    """Which dofs move which actuator."""
    s, a, own = structure, structure.actuator, site_actuators(structure)
    moves, pulled = topology.ancestry(s).astype(bool), tendon.pattern(s)
    mask = np.zeros((s.nu, s.nv), bool)
    for i, (kind, target) in enumerate(zip(a.transmission, a.target, strict=True)):
        if kind == TENDON:
            mask[i, pulled.dof[pulled.adr[target] : pulled.adr[target + 1]]] = True
        elif own.number[i] >= 0:
            ends = moves[own.body[own.number[i]]]
            # MuJoCo drops the dofs that move a site and its reference site alike
            mask[i] = ends.any(0) & ~ends.all(0) if kind == SITE else ends.any(0)
        elif kind != BODY:  # its moments are those of its contacts
            mask[i] = s.dof.joint == target
    pattern = topology.make_pattern(mask)
    where = {(t, d): e for e, (t, d) in enumerate(zip(pulled.row, pulled.dof, strict=True))}
    entry = [where.get((a.target[i], d), -1) for i, d in zip(pattern.row, pattern.dof, strict=True)]
    order = np.argsort(pattern.dof, kind="stable").astype(np.int32)
    adr = np.concatenate([[0], np.cumsum(mask.sum(0))]).astype(np.int32)
    return Moments(pattern, np.array(entry, np.int32), adr, order)


@memo
def turning(structure: Structure) -> np.ndarray:
    """Servos for rotations, whose setpoint counts whole turns: 1 by ball joint, 2 by reference site, 0 for others."""
    a = structure.actuator
    servo = (a.gain == FIXED) & (a.bias == AFFINE) & (a.dynamics == 0)
    joint = a.transmission < SLIDER_CRANK
    ball = joint & (structure.joint.type[np.where(joint, a.target, 0)] == JointType.BALL) if joint.any() else joint
    site = (a.transmission == SITE) & (a.reference >= 0)
    return np.where(servo & ball, 1, np.where(servo & site, 2, 0)).astype(np.int32)


def _ints(values: np.ndarray) -> np.ndarray:
    return values.astype(np.int32)


def _ctrllimited(structure: Structure) -> np.ndarray:
    limited = structure.actuator.ctrllimited
    return _ints(limited & ("clampctrl" not in structure.disabled))


def transmission(
    launch: Any, model: Model, state: State, frames: stages.Frames, axes: Buffer, ten: tendon.Tendons
) -> tuple[Buffer, Buffer]:
    """Lengths of the actuators that act on sites, (world, n), and the entries of all moments, (world, entry)."""
    s, m, own = model.structure, moments(model.structure), site_actuators(model.structure)
    k, t, w = stages.modules(state.qpos).transmission, stages.types(state.qpos), launch.worlds
    a, joint = s.actuator, s.joint
    dim = (w, own.actuator.size)
    length, pull = launch.scratch(dim, t.real), launch.scratch((*dim, 2), t.wrench)
    if own.actuator.size:
        launch(
            k.site_transmissions,
            dim=dim,
            inputs=[own.actuator, a.transmission, a.target, a.reference, topology.body_origin(model)[own.body]]
            + [s.body.frame[s.site.body], model.site.pos, model.site.quat, model.actuator.gear]
            + [model.actuator.cranklength, *frames],
            outputs=[length, pull],
        )
    moment = launch.scratch((w, m.pattern.row.size), t.real)
    if m.pattern.row.size:
        launch(
            k.actuator_moments,
            dim=w,
            inputs=[m.pattern.row, m.pattern.dof, m.tendon, a.transmission, a.target, own.number, own.body]
            + [topology.ancestry(s), joint.type, joint.qpos, joint.dof, model.actuator.gear, state.qpos]
            + [ten.jacobian, pull, axes],
            outputs=[moment],
        )
    return length, moment


def actuator_lengths(
    launch: Any, model: Model, state: State, ten: tendon.Tendons, site_length: Buffer, out: Buffer | None = None
) -> Buffer:
    s = model.structure
    length = out or launch.scratch((launch.worlds, s.nu), stages.types(state.qpos).real)
    launch(
        stages.modules(state.qpos).transmission.actuator_lengths,
        dim=(launch.worlds, s.nu),
        inputs=[s.actuator.transmission, s.actuator.target, site_actuators(s).number, s.joint.type, s.joint.qpos]
        + [model.actuator.gear, state.qpos, ten.length, site_length],
        outputs=[length],
    )
    return length


class Drives(NamedTuple):
    """Moments, signals and forces of all actuators."""

    moment: Buffer  # (world, entry)
    signal: Buffer  # control or activation, (world, nu)
    length: Buffer  # (world, nu)
    velocity: Buffer  # (world, nu)
    force: Buffer  # within all limits, (world, nu)
    total: Buffer  # unlimited forces summed over each tendon, if some tendon has a range, (world, ntendon)
    weight: Buffer  # that they carry besides, (world, dof)


def drives(
    launch: Any,
    model: Model,
    state: State,
    ctrl: Buffer,
    frames: stages.Frames,
    axes: Buffer,
    ten: tendon.Tendons,
    out: Buffer | None = None,
) -> Drives:
    """Moments and forces of every actuator; ``out`` receives the forces."""
    s, a, p = model.structure, model.structure.actuator, model.actuator
    k, real, dim = stages.modules(state.qpos), stages.types(state.qpos).real, (launch.worlds, s.nu)
    signal = launch.scratch(dim, real)
    out = out or launch.scratch(dim, real)
    ranged = ranged_tendon(s)
    limited = a.forcelimited.any() or ranged.max(initial=-1) >= 0
    force = launch.scratch(dim, real) if limited else out
    total = launch.scratch((launch.worlds, s.ntendon if ranged.max(initial=-1) >= 0 else 0), real)
    launch(
        k.activation.actuator_signals,
        dim=launch.worlds,
        inputs=[a.act, _ints(a.actearly), a.dynamics, _ctrllimited(s), _ints(a.actlimited)]
        + [p.dynprm, p.ctrlrange, p.actrange, model.opt.timestep, state.act, ctrl],
        outputs=[signal],
    )
    site_length, moment = transmission(launch, model, state, frames, axes, ten)
    length = velocity = signal  # with fixed gains and no bias, length and velocity are not read
    if a.gain.any() or a.bias.any():
        length = actuator_lengths(launch, model, state, ten, site_length)
        velocity = stages.row_products(launch, moments(s).pattern, moment, state.qvel)
    launch(
        k.actuation.actuator_forces,
        dim=launch.worlds,
        inputs=[a.gain, a.bias, turning(s), p.gear, p.gainprm, p.biasprm, p.lengthrange, p.acc0]
        + [signal, length, velocity],
        outputs=[force],
    )
    if ranged.max(initial=-1) >= 0:
        launch(k.actuation.tendon_totals, dim=total.shape, inputs=[ranged, force], outputs=[total])
    if limited:
        ranges = [
            _if_used(launch, force, ranged, model.tendon.actfrcrange),
            _if_used(launch, force, _ints(a.forcelimited) - 1, p.forcerange),
        ]
        inputs = [ranged, _ints(a.forcelimited), *ranges, total, force]
        launch(k.actuation.limited_forces, dim=dim, inputs=inputs, outputs=[out])
    weight = gravcomp.weights(launch, model, state, frames, axes)
    return Drives(moment, signal, length, velocity, out, total, weight)


def _if_used(launch: Any, force: Buffer, index: np.ndarray, ranges: Buffer) -> Buffer:
    """Force ranges that an index refers to, (world, n, 2), or an empty buffer if the index is -1 everywhere."""
    if index.max(initial=-1) >= 0:
        return ranges
    return launch.scratch((launch.worlds, 0), stages.types(force).vec2)


def ranged_tendon(structure: Structure) -> np.ndarray:
    """The tendon that each actuator acts on if that tendon limits the sum of its actuators' forces, or -1."""
    a, limited = structure.actuator, np.flatnonzero(structure.tendon.actfrclimited)
    return np.where((a.transmission == TENDON) & np.isin(a.target, limited), a.target, -1).astype(np.int32)


def ranged_joint(structure: Structure) -> np.ndarray:
    """The joint that each actuator acts on if that joint limits the sum of its actuators' forces, or -1."""
    a, limited = structure.actuator, np.flatnonzero(structure.joint.actfrclimited)
    return np.where((a.transmission < SLIDER_CRANK) & np.isin(a.target, limited), a.target, -1).astype(np.int32)


def _drive_arguments(launch: Any, model: Model, drive: Drives) -> list[Any]:
    s, m = model.structure, moments(model.structure)
    limited = np.where(s.joint.actfrclimited[s.dof.joint], s.dof.joint, -1).astype(np.int32)
    ranges = _if_used(launch, drive.force, limited, model.joint.actfrcrange)
    structure = [m.column_adr, m.column, m.pattern.row, limited, gravcomp.numbers(s)]
    return [*structure, ranges, drive.moment, drive.force, drive.weight]


def joint_drives(launch: Any, model: Model, drive: Drives) -> Buffer:
    """Generalised force of all actuators, with the weight that they carry, within the ranges of joints, (world, nv)."""
    out = launch.scratch((launch.worlds, model.structure.nv), stages.types(drive.force).real)
    kernel = stages.modules(drive.force).actuation.joint_drives
    launch(kernel, dim=launch.worlds, inputs=_drive_arguments(launch, model, drive), outputs=[out])
    return out


def drive_power(launch: Any, model: Model, drive: Drives, trial: Buffer, out: Buffer) -> None:
    """Virtual power of all actuators, (world, nv)."""
    kernel = stages.modules(drive.force).actuation.drive_power
    launch(kernel, dim=launch.worlds, inputs=[*_drive_arguments(launch, model, drive), trial], outputs=[out])


def damping(launch: Any, model: Model, drive: Drives) -> Buffer:
    """-d(force)/d(velocity) of every actuator, (world, nu)."""
    s, a, p = model.structure, model.structure.actuator, model.actuator
    out = launch.scratch((launch.worlds, s.nu), stages.types(drive.force).real)
    ranged, joint = ranged_tendon(s), ranged_joint(s)
    at_joints = joint_drives(launch, model, drive) if joint.max(initial=-1) >= 0 else drive.force  # else not read
    launch(
        stages.modules(drive.force).actuation.actuator_damping,
        dim=(launch.worlds, s.nu),
        inputs=[a.gain, a.bias, _ints(a.forcelimited), ranged, joint, s.joint.dof]
        + [p.gainprm, p.biasprm, p.lengthrange, p.acc0, p.forcerange]
        + [_if_used(launch, drive.force, ranged, model.tendon.actfrcrange)]
        + [_if_used(launch, drive.force, joint, model.joint.actfrcrange)]
        + [drive.signal, drive.length, drive.velocity, drive.force, drive.total, at_joints],
        outputs=[out],
    )
    return out


# --- operations ---------------------------------------------------------------------------------


class Transmissions(NamedTuple):
    """Lengths and their gradients with respect to the dofs; differentiable."""

    tendon_length: Array  # [m], MuJoCo's ten_length, shape (world, ntendon)
    tendon_jacobian: Array  # MuJoCo's ten_J, shape (world, ntendon, nv)
    length: Array  # of actuators, MuJoCo's actuator_length, shape (world, nu)
    moment: Array  # of actuators, MuJoCo's actuator_moment, shape (world, nu, nv)


def _transmit(
    launch: Any, model: Model, state: State, length: Any, jacobian: Any, actuator_length: Any, moment: Any
) -> None:
    s = model.structure
    frames = stages.frame_poses(launch, model, state)
    axes = stages.dof_axes(launch, model, frames)
    ten = tendon.tendons(launch, model, state, frames, axes, length)
    site_length, entries = transmission(launch, model, state, frames, axes, ten)
    if s.nu:
        actuator_lengths(launch, model, state, ten, site_length, actuator_length)
    stages.dense_rows(launch, tendon.pattern(s), ten.jacobian, jacobian)
    stages.dense_rows(launch, moments(s).pattern, entries, moment)


def _transmit_shapes(model: Model, state: State) -> Any:
    s, (w, _) = model.structure, state.qpos.shape
    sizes = ((s.ntendon,), (s.ntendon, s.nv), (s.nu,), (s.nu, s.nv))
    return tuple(jax.ShapeDtypeStruct((w, *size), state.qpos.dtype) for size in sizes)


_transmissions = warp_op(_transmit, _transmit_shapes, name="transmissions")


def transmissions(model: Model, state: State) -> Transmissions:
    """Lengths and Jacobians of tendons, lengths and moments of actuators.

    Returns:
        Transmissions. Gradients flow to qpos, mocap poses, sites, geoms that tendons wrap around, coefficients, gears
        and the joints' geometry; whether a tendon wraps, and which way, is held fixed.
    """
    return Transmissions(*_transmissions(model, state))


def _act(launch: Any, model: Model, state: State, ctrl: Any, out: Any) -> None:
    frames = stages.frame_poses(launch, model, state)
    axes = stages.dof_axes(launch, model, frames)
    ten = tendon.tendons(launch, model, state, frames, axes)
    drives(launch, model, state, ctrl, frames, axes, ten, out)


_actuator_force = warp_op(_act, lambda m, s, ctrl: ctrl, name="actuator force")


def generalized_force(model: Model, state: State, moment: Array, force: Array) -> Array:
    """The actuators' forces on the dofs [N or N m], shape (world, nv): MuJoCo's ``qfrc_actuator``.

    Args:
        moment: (world, nu, nv), of :class:`Transmissions`.
        force: (world, nu), of :func:`actuator_force`.
    """
    s, joint = model.structure, model.structure.joint
    if not s.nu or "actuation" in s.disabled:
        return jnp.zeros_like(state.qvel)
    total = einsum("wij,wi->wj", moment, force)
    if gravcomp.count(s):
        total = total.at[:, gravcomp.carrying(s)].add(gravcomp.carried_weights(model, state))
    limited = np.flatnonzero(joint.actfrclimited)
    if not limited.size:
        return total
    dof, bounds = joint.dof[limited], model.joint.actfrcrange[:, limited]
    return total.at[:, dof].set(jnp.clip(total[:, dof], bounds[..., 0], bounds[..., 1]))


def actuator_force(model: Model, state: State, ctrl: Array) -> Array:
    """MuJoCo's ``actuator_force`` [N or N m], shape (world, nu). All arguments get gradients."""
    return _actuator_force(model, state, ctrl)
