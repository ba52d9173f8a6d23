"""Poses and motions of a few places on a mechanism, computed only from the bodies that they hang on."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...bridge import WarpOp, kernels, warp_op
from ...math import quat_unit
from ...model import Model, State
from ...model.structure import Structure
from .. import stages

Array = jax.Array


class Links(NamedTuple):
    """Links with a fixed displacement and at most one joint each, from the root outwards; the places come last."""

    parent: np.ndarray  # the link that it hangs on; -1 is the world
    body: np.ndarray  # the body whose displacement it has, or -1: no displacement, or a place's own
    joint: np.ndarray  # or -1


def links(structure: Structure, body: tuple[int, ...]) -> Links:
    """The links that lead to places on bodies."""
    s, needed = structure, set(body)
    for b in range(s.nbody - 1, 0, -1):
        if b in needed:
            needed.add(int(s.body.parent[b]))
    found, last = [], {0: -1}
    for b in sorted(needed - {0}):
        owner, parent = b, last[int(s.body.parent[b])]
        for joint in np.flatnonzero(s.joint.body == b) if (s.joint.body == b).any() else [-1]:
            found.append((parent, owner, joint))
            owner, parent = -1, len(found) - 1
        last[b] = parent
    found += [(last[b], -1, -1) for b in body]
    return Links(*np.array(found, np.int32).T.copy())


class Places(NamedTuple):
    """Where places are and how they move, world axes."""

    pos: Array  # [m], (world, place, 3)
    quat: Array  # (world, place, 4)
    velocity: Array  # [m/s], (world, place, 3)
    spin: Array  # angular velocity [rad/s], (world, place, 3)
    acceleration: Array | None = None  # gravity included, as an upward one [m/s^2], (world, place, 3)
    spin_rate: Array | None = None  # angular acceleration [rad/s^2], (world, place, 3)


def places(
    model: Model, state: State, body: Sequence[int], offset: Array, turn: Array, qacc: Array | None = None
) -> Places:
    """Places that are fixed to bodies: poses and velocities, and accelerations if those of the dofs are given.

    Args:
        body: of each place.
        offset: of a place from its body's origin, in the body's axes [m], shape (1 | world, place, 3).
        turn: unit quaternions from the body's axes, shape (1 | world, place, 4).
        qacc: accelerations of the dofs [m/s^2 or rad/s^2], shape (world, nv).

    Gradients flow to positions, velocities, accelerations, gravity, geometry, offset and turn.
    """
    body = tuple(int(b) for b in body)
    owner = links(model.structure, body).body[: -len(body)]
    mocap = np.where(owner < 0, -1, model.structure.body.mocap[owner])
    fixed = _displacements(model.body.pos, state.mocap_pos, np.zeros(3), owner, mocap)
    fixed_turn = _displacements(quat_unit(model.body.quat), state.mocap_quat, np.eye(4)[0], owner, mocap)
    return _operation(body)(model, state, _beside(fixed, offset), _beside(fixed_turn, turn), qacc)


def _displacements(own: Array, held: Array, none: np.ndarray, owner: np.ndarray, mocap: np.ndarray) -> Array:
    """Displacement of each link: its body's, a mocap body's from the state, or none, (1 | world, link, ...)."""
    out = jnp.where((owner < 0)[None, :, None], jnp.asarray(none, own.dtype), own[:, owner])
    if (mocap >= 0).any():
        out = jnp.where((mocap >= 0)[None, :, None], held[:, mocap], out)
    return out


def _beside(a: Array, b: Array) -> Array:
    """Two arrays of links joined along the link axis; either may be shared by all worlds."""
    worlds = max(a.shape[0], b.shape[0])
    return jnp.concatenate([jnp.broadcast_to(x, (worlds, *x.shape[1:])) for x in (a, b)], 1)


@functools.lru_cache
def _operation(body: tuple[int, ...]) -> WarpOp:
    def launch_chain(launch: Any, model: Model, state: State, offset: Any, turn: Any, qacc: Any, out: Places) -> None:
        s, t, found = model.structure, stages.types(state.qpos), links(model.structure, body)
        k, inner = kernels(state.qpos.dtype, "rigid.tree.chain"), (launch.worlds, found.parent.size - len(body))
        structure = [found.parent, found.joint, s.joint.type, s.joint.qpos, s.joint.dof]
        given = [offset, turn, model.joint.pos, model.joint.axis, model.qpos0, state.qpos, state.qvel]
        pos, quat, linear, angular = (launch.scratch(inner, kind) for kind in (t.vec3, t.quat, t.vec3, t.vec3))
        outputs = [pos, quat, linear, angular, out.pos, out.quat, out.velocity, out.spin]
        launch(k.chain_places, dim=launch.worlds, inputs=structure + given, outputs=outputs)
        if out.acceleration is not None:
            launch(
                k.chain_accelerations,
                dim=launch.worlds,
                inputs=[*structure, stages.gravity(launch, model, state), *given, qacc, quat, angular],
                outputs=[launch.scratch(inner, t.vec3), launch.scratch(inner, t.vec3), out.acceleration, out.spin_rate],
            )

    def shapes(model: Model, state: State, offset: Any, turn: Any, qacc: Any) -> Places:
        sizes = (3, 4, 3, 3) if qacc is None else (3, 4, 3, 3, 3, 3)
        return Places(*(stages.numbers(state, len(body), n) for n in sizes))

    return warp_op(launch_chain, shapes, zeroed=False, name="places")
