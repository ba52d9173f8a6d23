"""Sensors: the measurements that a model's file defines, as MuJoCo's ``sensordata``.

There is one rule for each type of sensor, applied to all sensors of that type at once.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..bridge import worldwise
from ..errors import UnsupportedError
from ..math import einsum, matmul, quat_mul, quat_unit, rotate
from ..model import Model, State
from ..model.sensors import SensorType
from .camera_sensor import projections, ranges
from .collide.rays import Met, inside, ray_lengths, shapes
from .contact_sensor import contact_readings
from .distance_sensor import distances, normals, segments
from .forces.actuation import generalized_force
from .forward import check_inputs, screen
from .measure import Placed, Scene, hanging
from .stages import Loads, actuated

Array = jax.Array
Rule = Callable[[Scene, np.ndarray], Array]

_TENDON = 3  # mjtTrn
_TINY = 1e-15


@worldwise
def sensors(
    model: Model,
    state: State,
    ctrl: Array | None = None,
    wrench: Array | None = None,
    force: Array | None = None,
    *,
    names: Sequence[str] | None = None,
) -> Array:
    """Readings of the model's sensors: MuJoCo's ``sensordata``, without noise.

    Lengths in m, angles in rad, velocities in m/s and rad/s, accelerations in m/s^2 and rad/s^2, forces in N, torques
    in N m, angular momentum in kg m^2/s, energies in J, the clock in s. Accelerations include gravity as an upward
    acceleration: an accelerometer at rest reads +9.81 along the vertical. Force and torque are the interaction between
    the subtree of the site's body and its parent, in the site's frame: wrenches, contacts, connections, welds and the
    pull of spatial tendons come from outside. For a site on the world body it is that of all trees,
    with torques about the site (MuJoCo adds up torques about each tree's own centre of mass). A rangefinder without a
    hit reads -1. A distance is negative where two things overlap: the least way that parts them. A sensor's ``cutoff``
    bounds its readings. They are computed whenever this is called, also if the file says
    ``<flag sensor="disable"/>``. A faulty world reads as if it were at the reference position, at rest.

    Args:
        model, state, ctrl, wrench, force: as in :func:`fphys.step`; loads affect only accelerations and forces.
        names: the sensors to read, in this order; by default all, in the order of the file.

    Returns:
        Shape (world, nsensordata) [each sensor's unit]; :meth:`fphys.Model.sensor_slice` gives a sensor's columns.
        Gradients flow from every reading to everything that it depends on: those of accelerations, forces, torques and
        touch through the implicit rule of :func:`fphys.forward`, at a frozen contact set, those of limits through the
        active limits. They do not flow through insidesite, nor through the choice of the contacts that lie in a touch
        sensor's volume or that a contact sensor reports. A rangefinder's gradients are those of the geom that it hits,
        a distance's those of the parts that are nearest to each other.
        A contact sensor without a reduction takes the first contacts in the order of this model's pairs, not MuJoCo's.

    Raises:
        UnsupportedError: a requested sensor is not simulated (tactile and user sensors, plug-ins, delays, cameras
            that follow a body); the error names all of them. Loading such a model raises no error.
        ModelError: there is no sensor of that name.
    """
    loads = check_inputs(model, state, Loads(ctrl, wrench, force))
    count = model.structure.sensor.type.size
    wanted = tuple(range(count)) if names is None else tuple(model.id("sensor", n) for n in names)
    _require_simulated(model, wanted)
    return _readings(model, state, loads, wanted)


@functools.partial(jax.jit, static_argnames="numbers")
def _readings(model: Model, state: State, loads: Loads, numbers: tuple[int, ...]) -> Array:
    """Of the sensors with these numbers, in their order."""
    model, state, loads, _ = screen(model, state, loads)
    s, wanted = model.structure.sensor, np.array(numbers, int)
    scene = Scene(model, state, loads, wanted)
    columns: dict[int, int] = {}
    found, count = [jnp.zeros((scene.worlds, 0), scene.real)], 0
    for kind in np.unique(s.type[wanted]):
        which = np.unique(wanted[s.type[wanted] == kind])
        found.append(RULES[SensorType(int(kind))](scene, which).reshape(scene.worlds, -1))
        for i in which:
            columns[int(i)] = count
            count += int(s.dim[i])
    order = [columns[int(i)] + k for i in wanted for k in range(s.dim[i])]
    readings = jnp.concatenate(found, 1)[:, np.array(order, int)]
    low, high = (np.repeat(bound[wanted], s.dim[wanted]) for bound in (s.low, s.high))
    if np.isinf(low).all() and np.isinf(high).all():
        return readings
    return jnp.clip(readings, jnp.asarray(low, scene.real)[None], jnp.asarray(high, scene.real)[None])


def _require_simulated(model: Model, wanted: Iterable[int]) -> None:
    s, names = model.structure.sensor, model.names("sensor")
    faults = []
    for i in filter(lambda i: s.missing[i], wanted):
        title = f'"{names[i]}"' if names[i] else str(i)
        faults.append(f"  sensor {title}, {SensorType(int(s.type[i])).name.lower()}: {s.missing[i]}")
    if faults:
        raise UnsupportedError(
            "the model has sensors that fphys does not simulate:\n"
            + "\n".join(faults)
            + "\nTo read the others, name them: fphys.sensors(model, state, ctrl, names=[...])"
        )


# --- frames -------------------------------------------------------------------------------------


def _frame_position(scene: Scene, which: np.ndarray) -> Array:
    at, reference = _frames(scene, which)
    return reference.local(at.pos - reference.pos)


def _frames(scene: Scene, which: np.ndarray) -> tuple[Placed, Placed]:
    """Frames of the sensors and their references."""
    rows = scene.rows(which)
    return scene.attached[rows], scene.reference[rows]


def _frame_quaternion(scene: Scene, which: np.ndarray) -> Array:
    at, reference = _frames(scene, which)
    return quat_mul(reference.conjugate, at.quat)


def _frame_axis(axis: int) -> Rule:
    def rule(scene: Scene, which: np.ndarray) -> Array:
        at, reference = _frames(scene, which)
        along = jnp.broadcast_to(scene.constant(np.eye(3)[axis]), at.pos.shape)
        return reference.local(rotate(at.quat, along))

    return rule


def _frame_linear_velocity(scene: Scene, which: np.ndarray) -> Array:
    """Linear velocity as seen from the reference frame, which may rotate."""
    at, reference = _frames(scene, which)
    turned = jnp.cross(reference.spin, at.pos - reference.pos)
    return reference.local(at.velocity - reference.velocity - turned)


def _frame_angular_velocity(scene: Scene, which: np.ndarray) -> Array:
    at, reference = _frames(scene, which)
    return reference.local(at.spin - reference.spin)


def _in_world(motion: str) -> Rule:
    return lambda scene, which: getattr(_frames(scene, which)[0], motion)


def _in_own_axes(motion: str) -> Rule:
    def rule(scene: Scene, which: np.ndarray) -> Array:
        at, _ = _frames(scene, which)
        return at.local(getattr(at, motion))

    return rule


def _magnetometer(scene: Scene, which: np.ndarray) -> Array:
    at, _ = _frames(scene, which)
    return at.local(jnp.broadcast_to(scene.leaf(scene.model.opt.magnetic)[:, None], at.pos.shape))


# --- joints, tendons, actuators -----------------------------------------------------------------


def _joints(array: str, start: str, count: int) -> Rule:
    """Consecutive entries of qpos or qvel."""

    def rule(scene: Scene, which: np.ndarray) -> Array:
        s = scene.model.structure
        first = getattr(s.joint, start)[s.sensor.target[which]]
        return getattr(scene.state, array)[:, first[:, None] + np.arange(count)]

    return rule


def _ball_quaternion(scene: Scene, which: np.ndarray) -> Array:
    return quat_unit(_joints("qpos", "qpos", 4)(scene, which))


def _targets(values: Callable[[Scene], Array]) -> Rule:
    """Entries of an array, at the indices of the elements that sensors are attached to."""
    return lambda scene, which: values(scene)[:, scene.model.structure.sensor.target[which]]


def _rates(scene: Scene, jacobian: Array) -> Array:
    return einsum("wij,wj->wi", jacobian, scene.state.qvel)


def _actuator_velocity(scene: Scene) -> Array:
    """Rates of the actuators' lengths; zero where actuation is disabled, as in MuJoCo."""
    if "actuation" in scene.model.structure.disabled:
        return jnp.zeros((scene.worlds, scene.model.structure.nu), scene.real)
    return _rates(scene, scene.transmissions.moment)


def _joint_actuator_force(scene: Scene, which: np.ndarray) -> Array:
    s, joint = scene.model.structure, scene.model.structure.sensor.target[which]
    if not actuated(scene.model, scene.loads):
        return scene.constant(np.zeros((scene.worlds, which.size)))
    moment, force = scene.transmissions.moment, scene.actuator_force
    return generalized_force(scene.model, scene.state, moment, force)[:, s.joint.dof[joint]]


def _tendon_actuator_force(scene: Scene, which: np.ndarray) -> Array:
    a, target = scene.model.structure.actuator, scene.model.structure.sensor.target[which]
    pulls = (a.transmission == _TENDON) & (a.target == target[:, None])
    return einsum("ki,wi->wk", scene.constant(pulls), scene.actuator_force)


def _limit(kind: int, name: str) -> Rule:
    """Reading of the first active side of a joint's (kind 0) or tendon's (1) limit; 0 if none is active."""

    def rule(scene: Scene, which: np.ndarray) -> Array:
        s = scene.model.structure
        owner = (s.limit.joint, s.limit.tendon)[kind]
        out = []
        for target in s.sensor.target[which]:
            value = jnp.zeros((scene.worlds,), scene.real)
            for i in np.flatnonzero(owner == target)[::-1]:
                found: Any = scene.limits[kind]
                value = jnp.where(found.violation[:, i] < 0, getattr(found, name)[:, i], value)
            out.append(value)
        return jnp.stack(out, 1)

    return rule


# --- bodies and subtrees ------------------------------------------------------------------------


def _subtree_means(scene: Scene, which: np.ndarray) -> tuple[Array, Array, Array]:
    """Membership times mass (world, k, body), mean position and mean velocity (world, k, 3)."""
    body, b = scene.model.structure.sensor.target[which], scene.bodies
    weight = scene.constant(hanging(scene.model.structure, body))[None] * b.mass[:, None]
    total = weight.sum(-1)
    empty = total < _TINY
    share = weight / jnp.where(empty, 1.0, total)[..., None]
    centre = jnp.where(empty[..., None], b.frame.pos[:, body], matmul(share, b.frame.pos))
    return weight, centre, matmul(share, b.frame.velocity)


def _subtree_com(scene: Scene, which: np.ndarray) -> Array:
    return _subtree_means(scene, which)[1]


def _subtree_velocity(scene: Scene, which: np.ndarray) -> Array:
    return _subtree_means(scene, which)[2]


def _subtree_angular_momentum(scene: Scene, which: np.ndarray) -> Array:
    """Angular momentum about the subtree's centre of mass."""
    weight, centre, mean = _subtree_means(scene, which)
    b, member = scene.bodies, hanging(scene.model.structure, scene.model.structure.sensor.target[which])
    arm, relative = b.frame.pos[:, None] - centre[:, :, None], b.frame.velocity[:, None] - mean[:, :, None]
    return (weight[..., None] * jnp.cross(arm, relative)).sum(2) + matmul(scene.constant(member), b.turning)


def _interaction(scene: Scene, which: np.ndarray) -> tuple[Array, Array]:
    """Force and torque about the site that the parent exerts on the site's body, in the site's frame, (world, k, 3).

    Newton-Euler for the site's body and its subtree, minus the external loads on these bodies.
    """
    at, b = scene.attached[scene.rows(which)], scene.bodies
    assert b.frame.acceleration is not None and b.frame.spin_rate is not None
    force = b.mass[..., None] * b.frame.acceleration
    torque = scene.turn_inertia(b.frame, b.frame.spin_rate) + jnp.cross(b.frame.spin, b.turning)
    if scene.loads.wrench is not None:
        force, torque = force - scene.loads.wrench[..., :3], torque - scene.loads.wrench[..., 3:]
    member = hanging(scene.model.structure, at.body)
    member[:, 0] = False  # loads on the world body do not count
    share = scene.constant(member)
    total = matmul(share, force)
    # moments about the site: each body's own, and that of its force
    arm = b.frame.pos[:, None] - at.pos[:, :, None]
    moment = jnp.cross(arm, jnp.broadcast_to(force[:, None], arm.shape))
    moments = matmul(share, torque) + (share[None, :, :, None] * moment).sum(2)
    if scene.contacts is not None:
        c = scene.contacts
        sign = jnp.moveaxis(share[:, c.body[..., 1]] - share[:, c.body[..., 0]], 0, 1)[..., None]
        arm = c.pos[:, None] - at.pos[:, :, None]
        moment = c.torque[:, None] + jnp.cross(arm, jnp.broadcast_to(c.force[:, None], arm.shape))
        total, moments = total - (sign * c.force[:, None]).sum(2), moments - (sign * moment).sum(2)
    if scene.bonds is not None:
        c, on = scene.bonds, scene.constant(member[:, scene.bonds.body])
        arm = c.pos[:, None] - at.pos[:, :, None]
        moment = c.torque[:, None] + jnp.cross(arm, jnp.broadcast_to(c.force[:, None], arm.shape))
        total, moments = total - matmul(on, c.force), moments - (on[None, :, :, None] * moment).sum(2)
    return at.local(total), at.local(moments)


# --- contacts and rays --------------------------------------------------------------------------


def _touch(scene: Scene, which: np.ndarray) -> Array:
    """Normal forces of the contacts of the site's body whose outward normal hits the site's volume."""
    c = scene.contacts
    if c is None:
        return jnp.zeros((scene.worlds, which.size), scene.real)
    at, _ = _frames(scene, which)
    first, second = (c.body[:, None, :, side] == jnp.asarray(at.body)[None, :, None] for side in (0, 1))
    outward = jnp.where(second[..., None], -c.normal[:, None], c.normal[:, None])
    s, model, (k, slots) = scene.model.structure, scene.model, outward.shape[1:3]
    site, size = s.sensor.target[which], scene.constant(s.sensor.zone_size[which])[None]
    zones = shapes(model, s.sensor.zone[which], at.body, model.site.pos[:, site], model.site.quat[:, site], size)
    rays = (jnp.broadcast_to(x, outward.shape).reshape(-1, k * slots, 3) for x in (c.pos[:, None], outward))
    zone = jnp.broadcast_to(jnp.repeat(jnp.arange(k, dtype=jnp.int32), slots)[None], (scene.worlds, k * slots))
    met = Met(zone, jnp.zeros_like(zone), jnp.zeros(zone.shape, scene.real))
    meets = ray_lengths(model, scene.state, zones, met, *jax.lax.stop_gradient(tuple(rays))).reshape(-1, k, slots) >= 0
    return jnp.where((first | second) & meets, jnp.maximum(c.pressing, 0.0)[:, None], 0.0).sum(2)


def _by_zone(scene: Scene, which: np.ndarray, test: Callable[..., Array], *vectors: Array) -> Array:
    """A test against the volume of each sensor's site; vectors in the site's frame, (world, k, ..., 3)."""
    s = scene.model.structure.sensor
    zone, out = s.zone[which], []
    order = np.argsort(zone, kind="stable")
    for shape in np.unique(zone):
        rows = np.flatnonzero(zone == shape)
        size = scene.constant(s.zone_size[which[rows]]).reshape(1, rows.size, *[1] * (vectors[0].ndim - 3), 3)
        out.append(test(int(shape), size, *(x[:, rows] for x in vectors)))
    return jnp.concatenate(out, 1)[:, np.argsort(order, kind="stable")]


def _inside_site(scene: Scene, which: np.ndarray) -> Array:
    at, zone = _frames(scene, which)
    point = zone.local(at.pos - zone.pos)
    return _by_zone(scene, which, inside, point).astype(scene.real)


def _of_world(value: Callable[[Scene], Array]) -> Rule:
    return lambda scene, which: jnp.broadcast_to(value(scene)[:, None], (scene.worlds, which.size))


RULES: dict[SensorType, Rule] = {
    SensorType.JOINTPOS: _joints("qpos", "qpos", 1),
    SensorType.JOINTVEL: _joints("qvel", "dof", 1),
    SensorType.BALLQUAT: _ball_quaternion,
    SensorType.BALLANGVEL: _joints("qvel", "dof", 3),
    SensorType.TENDONPOS: _targets(lambda scene: scene.transmissions.tendon_length),
    SensorType.TENDONVEL: _targets(lambda scene: _rates(scene, scene.transmissions.tendon_jacobian)),
    SensorType.ACTUATORPOS: _targets(lambda scene: scene.transmissions.length),
    SensorType.ACTUATORVEL: _targets(_actuator_velocity),
    SensorType.ACTUATORFRC: _targets(lambda scene: scene.actuator_force),
    SensorType.JOINTACTUATORFRC: _joint_actuator_force,
    SensorType.TENDONACTUATORFRC: _tendon_actuator_force,
    SensorType.FRAMEPOS: _frame_position,
    SensorType.FRAMEQUAT: _frame_quaternion,
    SensorType.FRAMEXAXIS: _frame_axis(0),
    SensorType.FRAMEYAXIS: _frame_axis(1),
    SensorType.FRAMEZAXIS: _frame_axis(2),
    SensorType.FRAMELINVEL: _frame_linear_velocity,
    SensorType.FRAMEANGVEL: _frame_angular_velocity,
    SensorType.FRAMELINACC: _in_world("acceleration"),
    SensorType.FRAMEANGACC: _in_world("spin_rate"),
    SensorType.VELOCIMETER: _in_own_axes("velocity"),
    SensorType.GYRO: _in_own_axes("spin"),
    SensorType.ACCELEROMETER: _in_own_axes("acceleration"),
    SensorType.FORCE: lambda scene, which: _interaction(scene, which)[0],
    SensorType.TORQUE: lambda scene, which: _interaction(scene, which)[1],
    SensorType.MAGNETOMETER: _magnetometer,
    SensorType.SUBTREECOM: _subtree_com,
    SensorType.SUBTREELINVEL: _subtree_velocity,
    SensorType.SUBTREEANGMOM: _subtree_angular_momentum,
    SensorType.TOUCH: _touch,
    SensorType.INSIDESITE: _inside_site,
    SensorType.CONTACT: contact_readings,
    SensorType.RANGEFINDER: ranges,
    SensorType.CAMPROJECTION: projections,
    SensorType.DISTANCE: distances,
    SensorType.NORMAL: normals,
    SensorType.FROMTO: segments,
    SensorType.CLOCK: _of_world(lambda scene: scene.state.time),
    SensorType.E_POTENTIAL: _of_world(lambda scene: scene.energy[0]),
    SensorType.E_KINETIC: _of_world(lambda scene: scene.energy[1]),
    SensorType.JOINTLIMITPOS: _limit(0, "violation"),
    SensorType.JOINTLIMITVEL: _limit(0, "rate"),
    SensorType.JOINTLIMITFRC: _limit(0, "force"),
    SensorType.TENDONLIMITPOS: _limit(1, "violation"),
    SensorType.TENDONLIMITVEL: _limit(1, "rate"),
    SensorType.TENDONLIMITFRC: _limit(1, "force"),
}
"""For each type, the readings of all its sensors: (scene, sensors (k,)) to arrays (world, ...), sensor by sensor."""
