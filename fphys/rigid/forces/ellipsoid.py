"""Forces of the medium on geoms whose drag is that of an ellipsoid: the launches, and what it carries with it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...bridge import kernels
from ...model import Model, State
from ...model.structure import GeomType, Structure
from .. import stages, team
from ..tree import topology


class Hydrofoils(NamedTuple):
    """Geoms on which the medium acts, as kernels take them."""

    geom: np.ndarray  # (n,)
    kind: np.ndarray  # (n,) GeomType
    body: np.ndarray  # (n,)
    first: np.ndarray  # (nbody + 1,) those of body b are first[b] to first[b + 1]
    pos: Any
    quat: Any
    size: Any
    fluid: Any


def count(structure: Structure) -> int:
    """How many geoms the medium acts on."""
    return structure.geom.fluid.size


def _inputs(launch: Any, model: Model, state: State) -> list[Any]:
    """Bodies, medium and geoms."""
    s, own = model.structure, model.geom
    body = s.geom.body[s.geom.fluid]  # in ascending order
    first = np.searchsorted(body, np.arange(s.nbody + 1)).astype(np.int32)
    foils = Hydrofoils(s.geom.fluid, s.geom.type[s.geom.fluid], body, first, own.pos, own.quat, own.size, own.fluid)
    return [stages.masses(model), stages.medium(launch, model, state), foils]


def _module(state: State) -> Any:
    return kernels(state.qpos.dtype, "rigid.forces.ellipsoid")


def add_loads(launch: Any, model: Model, state: State, frames: stages.Frames, velocity: Any, load: Any) -> Any:
    """The bodies' loads, (world, nbody, 6), less the medium's forces on their geoms."""
    if not count(model.structure):
        return load
    lanes = team.lanes(launch, model.structure.nbody)
    out = launch.scratch((launch.worlds, model.structure.nbody), stages.types(state.qpos).wrench)
    launch(
        _module(state).add_ellipsoid_loads,
        dim=(launch.worlds, lanes),
        inputs=[lanes, *_inputs(launch, model, state), frames, velocity, load],
        outputs=[out],
    )
    return out


def power(launch: Any, model: Model, state: State, motions: stages.Motions, out: Any) -> None:
    """Virtual power of the medium's forces, (world, geom)."""
    inputs = [*_inputs(launch, model, state), motions.frames, motions.velocity, motions.trial]
    launch(_module(state).ellipsoid_power, dim=out.shape, inputs=inputs, outputs=[out])


def add_damping(
    launch: Any, model: Model, state: State, frames: stages.Frames, velocity: Any, axes: Any, matrix: Any
) -> Any:
    """M - h d(force)/d(velocity), packed."""
    if not count(model.structure):
        return matrix
    out = launch.scratch(matrix.shape, stages.types(state.qpos).real)
    launch(
        _module(state).add_ellipsoid_damping,
        dim=launch.worlds,
        inputs=[topology.last_dof(model), model.structure.dof.parent, *_inputs(launch, model, state)]
        + [model.opt.timestep, frames, velocity, axes, matrix],
        outputs=[out],
    )
    return out


def lone_twists(
    launch: Any,
    model: Model,
    state: State,
    lone: tuple[np.ndarray, np.ndarray],
    poses: tuple[stages.Frames, Any],
) -> Any:
    """What ``add_damping`` leaves out for lone bodies: the antisymmetric part, (world, lone, 6, 6)."""
    s, (body, dof) = model.structure, lone
    out = launch.scratch((launch.worlds, body.size), stages.types(state.qpos).mat66, zeroed=not count(s))
    if count(s):
        frames, axes = poses
        velocity = stages.frame_motion(launch, model, axes, state.qvel)
        inputs = [dof, _of_lone(s, body), *_inputs(launch, model, state), model.opt.timestep, frames, velocity, axes]
        launch(_module(state).lone_twists, dim=(launch.worlds, body.size), inputs=inputs, outputs=[out])
    return out


def _of_lone(structure: Structure, lone: np.ndarray) -> np.ndarray:
    """The number of the lone body that each of the geoms is on, or -1."""
    root = structure.body.root[structure.geom.body[structure.geom.fluid]]
    number = np.full(structure.nbody, -1, np.int32)
    number[lone] = np.arange(lone.size)
    return number[root]


def damping_power(launch: Any, model: Model, state: State, lone: np.ndarray, motions: stages.Motions, out: Any) -> None:
    """-l . h d(force)/d(velocity) a, (world, geom); ``lone``: bodies of which not only the symmetric part counts."""
    inputs = [_of_lone(model.structure, lone), *_inputs(launch, model, state), model.opt.timestep]
    inputs += [motions.frames, motions.velocity, motions.linear, motions.trial]
    launch(_module(state).ellipsoid_damping_power, dim=out.shape, inputs=inputs, outputs=[out])


def _semi_axes(structure: Structure, size: jax.Array) -> jax.Array:
    """Semi-axes of the ellipsoids, (1 | world, n, 3), from MuJoCo's sizes."""
    first, second, _ = jnp.moveaxis(size, 2, 0)
    third = {GeomType.SPHERE: first, GeomType.CAPSULE: first + second, GeomType.CYLINDER: second}
    kind = structure.geom.type[structure.geom.fluid][None, :, None]
    for shape, last in third.items():
        size = jnp.where(kind == shape, jnp.stack([first, first, last], -1), size)
    return size


def _carried(axes: jax.Array) -> jax.Array:
    """Volume of the medium that an ellipsoid carries along each axis [m^3], and its second moments [m^5], (..., 6).

    Lamb 1932, Hydrodynamics, sections 114 and 115; the integrals over lambda by Gauss's rule for
    lambda = (s0 s1 s2)^(2/3) x^3 / (1 - x)^2, to rounding where axes differ by less than a factor of ten. MuJoCo's
    rule has 15 points and an error of up to 1e-5.
    """
    node, weight = np.polynomial.legendre.leggauss(64)
    x = 0.5 * (node + 1)
    parameter, slope = x**3 / (1 - x) ** 2, (3 * x**2 * (1 - x) + 2 * x**3) / (1 - x) ** 3
    product = axes.prod(-1, keepdims=True)
    scale = product ** (2.0 / 3.0)
    square = axes**2
    f = square[..., None] + scale[..., None] * jnp.asarray(parameter, axes.dtype)[None, None, None]
    step = product * scale * jnp.asarray(0.5 * weight * slope, axes.dtype)[None, None] / jnp.sqrt(f.prod(-2))
    j, k = np.array([1, 2, 0]), np.array([2, 0, 1])
    whole = (step[..., None, :] / f).sum(-1)
    cross = (step[..., None, :] / (f[..., j, :] * f[..., k, :])).sum(-1)
    difference, total = square[..., j] - square[..., k], square[..., j] + square[..., k]
    volume = 4.0 / 3.0 * np.pi * product
    moments = volume / 5.0 * difference**2 * cross / (2.0 - total * cross)
    return jnp.concatenate([volume * whole / (2.0 - whole), moments], -1)


def derived_fluid(model: Model) -> jax.Array:
    """``geom.fluid`` for the geoms' sizes: what the file's had, and the change of what ellipsoids carry since."""
    s, own = model.structure, model.structure.geom.fluid
    given = jnp.asarray(s.source.geom_fluid[None, own, 6:], model.geom.size.dtype)
    before = jnp.asarray(s.source.geom_size[None, own], model.geom.size.dtype)
    change = _carried(_semi_axes(s, model.geom.size[:, own])) - _carried(_semi_axes(s, before))
    worlds = max(len(change), len(model.geom.fluid))
    fluid = jnp.broadcast_to(model.geom.fluid, (worlds, *model.geom.fluid.shape[1:]))
    return fluid.at[:, own, 6:].set(given + change)
