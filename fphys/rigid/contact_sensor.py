"""Contact sensors: which contacts of two things a sensor reports, and what of them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..math import einsum
from .collide.collision import Contacts
from .collide.pairs import geoms_of
from .collide.rays import inside
from .measure import BODY, GEOM, SITE, XBODY, Scene, hanging

Array = jax.Array

FIELDS = {"found": 1, "force": 3, "torque": 3, "distance": 1, "pos": 3, "normal": 3, "tangent": 3}
"""What can be reported of a contact, and how many numbers each is; the bits of MuJoCo's ``mjtConDataField``."""
ANY, CLOSEST, STRONGEST, NET = range(4)
"""Which contacts fill the slots: the first ones, those of least distance, those of most force, or the sum of all."""
TINY = 1e-15
"""MuJoCo's mjMINVAL."""


class Matched(NamedTuple):
    """The contacts of a sensor's things, among all."""

    there: Array  # whether a contact is between them, bool, (world, contact)
    sign: Array  # -1 where its normal points towards the sensor's first thing, else 1, (world, contact)


def contact_readings(scene: Scene, which: np.ndarray) -> Array:
    """The readings of contact sensors (k,), one after the other, (world, number)."""
    return jnp.concatenate([_reading(scene, int(i)) for i in which], 1)


def _reading(scene: Scene, i: int) -> Array:
    sensor = scene.model.structure.sensor
    bits, reduction = sensor.contact[i]
    wanted = [name for k, name in enumerate(FIELDS) if bits >> k & 1]
    slots = int(sensor.dim[i]) // sum(FIELDS[name] for name in wanted)
    if scene.touching is None:
        values = {name: jnp.zeros((scene.worlds, 1, size), scene.real) for name, size in FIELDS.items()}
    else:
        contacts, force = scene.touching
        matched = _matched(scene, contacts, i)
        values = (
            _sum(scene, contacts, force, matched)
            if reduction == NET
            else _each(contacts, force, matched, reduction, slots)
        )
    rows = jnp.concatenate([values[name] for name in wanted], -1)
    rows = jnp.pad(rows, ((0, 0), (0, max(slots - rows.shape[1], 0)), (0, 0)))
    return rows[:, :slots].reshape(scene.worlds, -1)


def _matched(scene: Scene, contacts: Contacts, i: int) -> Matched:
    """The contacts between a sensor's things. The first geom of a contact is that from which its normal points."""
    s = scene.model.structure
    geoms = geoms_of(s, contacts.pair)
    there = contacts.pair >= 0
    if s.sensor.kind[i] == SITE:
        site = scene.attached[scene.rows(np.array([i]))]
        at = site.local((contacts.pos - site.pos)[:, None])[:, 0]
        there &= inside(int(s.sensor.zone[i]), scene.constant(s.sensor.zone_size[i])[None, None], at)
    first, second = (_owned(scene, int(kind), int(index))[geoms] for kind, index in _things(scene, i))
    there &= first.any(-1) & second.any(-1)
    forwards, backwards = first[..., 0] & second[..., 1], first[..., 1] & second[..., 0]
    named = [kind != 0 for kind, _ in _things(scene, i)]
    if all(named):
        there, turned = there & (forwards | backwards), ~forwards
    else:
        turned = ~first[..., 0] if named[0] else ~second[..., 1] if named[1] else jnp.zeros_like(there)
    return Matched(there, jnp.where(turned, -1.0, 1.0).astype(scene.real))


def _things(scene: Scene, i: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Kind (mjtObj; 0: anything) and index of both things of a sensor."""
    s = scene.model.structure.sensor
    return (s.kind[i], s.target[i]), (s.reference_kind[i], s.reference[i])


def _owned(scene: Scene, kind: int, index: int) -> Array:
    """The geoms of a thing: one geom, those of a body, those of a body and of all that hang from it; else all."""
    s = scene.model.structure
    if kind == GEOM:
        found = np.arange(s.ngeom) == index
    elif kind == BODY:
        found = s.geom.body == index
    elif kind == XBODY:
        found = hanging(s, np.array([index]))[0, s.geom.body]
    else:
        found = np.ones(s.ngeom, bool)
    return jnp.asarray(found)


def _each(contacts: Contacts, force: Array, matched: Matched, reduction: int, slots: int) -> dict[str, Array]:
    """Of the first contacts in the order of the reduction, (world, slot, n), forces in their own frames."""
    order = {
        ANY: jnp.broadcast_to(jnp.arange(force.shape[1], dtype=force.dtype)[None], force.shape[:2]),
        CLOSEST: contacts.distance,
        STRONGEST: -(force[..., :3] ** 2).sum(-1),
    }[int(reduction)]
    best = jnp.argsort(jax.lax.stop_gradient(jnp.where(matched.there, order, jnp.inf)), axis=1)[:, :slots, None]

    def pick(values: Array) -> Array:
        values = jnp.where(matched.there[..., None], values, 0)
        return jnp.take_along_axis(values, best, 1)

    sign = matched.sign[..., None]
    turned = jnp.concatenate([jnp.ones_like(sign), jnp.ones_like(sign), sign], -1)  # a frame about its last axis
    number = matched.there.sum(1).astype(force.dtype)
    parts = jnp.pad(force, ((0, 0), (0, 0), (0, 6 - force.shape[-1])))
    return {
        "found": pick(jnp.ones_like(sign)) * number[:, None, None],
        "force": pick(parts[..., :3] * turned),
        "torque": pick(parts[..., 3:] * turned),
        "distance": pick(contacts.distance[..., None]),
        "pos": pick(contacts.pos),
        "normal": pick(sign * contacts.frame[..., 0, :]),
        "tangent": pick(sign * contacts.frame[..., 1, :]),
    }


def _sum(scene: Scene, contacts: Contacts, force: Array, matched: Matched) -> dict[str, Array]:
    """Net force and its torque about the mean of the points, weighted by force; world axes, (world, 1, n)."""
    there, sign = matched.there[..., None], matched.sign[..., None]
    parts = jnp.where(there, sign * jnp.pad(force, ((0, 0), (0, 0), (0, 6 - force.shape[-1]))), 0)
    square = (parts[..., :3] ** 2).sum(-1, keepdims=True)
    weight = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
    pos = jnp.where(there, contacts.pos, 0)
    point = (weight * pos).sum(1, keepdims=True) / jnp.maximum(weight.sum(1, keepdims=True), TINY)
    number = matched.there.sum(1).astype(scene.real)[:, None, None]
    axes = jnp.where(number > 0, jnp.eye(3, dtype=scene.real)[None], 0)  # those of the world
    pull, turn = (einsum("wcij,wci->wcj", contacts.frame, x) for x in (parts[..., :3], parts[..., 3:]))
    return {
        "found": number,
        "force": pull.sum(1, keepdims=True),
        "torque": (turn + jnp.cross(pos - point, pull)).sum(1, keepdims=True),
        "distance": jnp.zeros((scene.worlds, 1, 1), scene.real),
        "pos": point,
        "normal": axes[:, :1],
        "tangent": axes[:, 1:2],
    }
