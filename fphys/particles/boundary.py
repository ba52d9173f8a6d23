"""What particles meet: the walls of the domain, and colliders that move.

Both act on the nodes of the grid, by one of four contacts. *sticky*: what touches moves with the surface (at a face
of the domain the field itself is held, half a cell from the nearest nodes, so that no whole layer is). *slip*: it moves
along the surface only. *separate*: it may also leave. *open*: nothing happens. Where friction is given, what the
surface takes of the velocity along its normal, it also takes, times the coefficient, along itself (Coulomb's law for
an impulse), on slip and separate.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from .. import units
from ..tree import Tree, pytree, static
from .arguments import array, known, row

CONTACTS = ("open", "sticky", "slip", "separate")
SHAPES = ("plane", "sphere", "box", "capsule", "field")


@pytree
class Walls(Tree):
    """The faces of the domain, in the order -x, +x, -y, +y (, -z, +z). An open face holds nothing: half a cell outside
    it a particle stops, and is reported."""

    contact: str | tuple[str, ...] = static(default="slip")  # of all faces, or of each
    friction: Any = 0.0  # Coulomb's coefficient, shape (), (face,) or (1 | world, face)
    velocity: Any = 0.0  # of the faces [m/s], shape (), (face, dim) or (1 | world, face, dim)

    def kinds(self, dim: int) -> tuple[int, ...]:
        """The number of each face's contact.

        Raises:
            ValueError: an unknown contact, or not one for each face.
        """
        given = (self.contact,) * (2 * dim) if isinstance(self.contact, str) else tuple(self.contact)
        if len(given) != 2 * dim:
            raise ValueError(f"walls.contact has {len(given)} entries, the domain has {2 * dim} faces")
        return tuple(map(contact_number, given))


@pytree
class Collider(Tree):
    """A rigid shape that holds particles out, at a pose and with a velocity that the caller gives at each step.

    Make one with ``plane``, ``sphere``, ``box``, ``capsule`` or ``field``. Vectors are (3,), in a plane also (2,), or
    have a world axis first; the spin in a plane may be a number. It acts on nodes inside the shape or at most half a
    cell away: which these are has no derivative, what happens to them has, by pose, velocity and friction. A size
    decides only which nodes, so that its gradient is zero, but for a capsule's half length.
    """

    pos: Any  # Position of its origin [m], shape (3,).
    quat: Any  # Orientation (w, x, y, z), shape (4,).
    size: Any  # [m], shape (3,): normal of a plane; radius; half edges; radius and half length; spacing of samples.
    velocity: Any = 0.0  # of its origin [m/s], shape (3,)
    spin: Any = 0.0  # angular velocity [rad/s], shape (3,)
    friction: Any = 0.0  # Coulomb's coefficient, shape ()
    samples: Any = 0.0  # of a field: signed distance [m], shape (1 | world, sample)
    shape: str = static(default="sphere")
    contact: str = static(default="separate")
    count: tuple[int, int, int] = static(default=(1, 1, 1))  # samples per axis of a field


_KINDS = {"pos": units.length, "velocity": units.velocity, "spin": units.angular_velocity, "samples": units.length}


def plane(point: Any, normal: Any, contact: str = "separate", friction: Any = 0.0, velocity: Any = 0.0) -> Collider:
    """The half space behind a plane; ``normal`` points out of it and need not have unit length."""
    return Collider(point, _upright(), normal, velocity, 0.0, friction, shape="plane", contact=contact)


def sphere(pos: Any, radius: Any, contact: str = "separate", friction: Any = 0.0, **motion: Any) -> Collider:
    """A ball, in a plane a disk. ``motion``: velocity, spin."""
    size = _stacked(units.si(radius, units.length, "radius"), 0.0, 0.0)
    return Collider(pos, _upright(), size, friction=friction, shape="sphere", contact=contact, **motion)


def box(
    pos: Any, half: Any, quat: Any = None, contact: str = "separate", friction: Any = 0.0, **motion: Any
) -> Collider:
    """A box of half edges ``half``, in a plane a rectangle."""
    quat = _upright() if quat is None else quat
    half = units.si(half, units.length, "half")
    return Collider(pos, quat, half, friction=friction, shape="box", contact=contact, **motion)


def capsule(
    pos: Any,
    radius: Any,
    half_length: Any,
    quat: Any = None,
    contact: str = "separate",
    friction: Any = 0.0,
    **motion: Any,
) -> Collider:
    """A capsule along its own z axis; ``half_length`` without the caps."""
    quat = _upright() if quat is None else quat
    radius, half_length = units.si(radius, units.length, "radius"), units.si(half_length, units.length, "half_length")
    size = _stacked(radius, half_length, 0.0)
    return Collider(pos, quat, size, friction=friction, shape="capsule", contact=contact, **motion)


def field(
    samples: Any,
    spacing: float,
    pos: Any,
    quat: Any = None,
    contact: str = "separate",
    friction: Any = 0.0,
    **motion: Any,
) -> Collider:
    """A shape given by samples of its signed distance [m], shape (nx, ny, nz) or (nx, ny); ``pos`` is sample (0, 0, 0).

    Between samples it is interpolated linearly; outside of them there is no shape.

    Raises:
        ValueError: samples of another number of axes.
    """
    quat = _upright() if quat is None else quat
    samples, spacing = units.si(samples, units.length, "samples"), units.si(spacing, units.length, "spacing")
    if np.ndim(samples) not in (2, 3):
        raise ValueError(f"samples have shape {np.shape(samples)}, need (nx, ny) or (nx, ny, nz)")
    nx, ny, nz = (*samples.shape, 1)[:3]
    size = (spacing,) * 3
    values = jnp.reshape(samples, (1, -1))
    return Collider(
        pos, quat, size, friction=friction, samples=values, shape="field", contact=contact, count=(nx, ny, nz), **motion
    )


def prepared(collider: Collider, number: int, dtype: Any, dim: int, worlds: int) -> Collider:
    """A collider as the kernels take it, every array with the world axis first.

    Raises:
        ValueError, TypeError: a field that does not fit, by name.
    """
    name = f"colliders[{number}]"
    if not isinstance(collider, Collider):
        raise TypeError(f"{name} is a {type(collider).__name__}: make one with boundary.sphere, plane, box, capsule")
    collider = units.bare(collider, _KINDS, name)
    shape_number(collider.shape)
    contact_number(collider.contact)
    if dim == 2:
        collider = collider.replace(spin=_about_z(collider.spin, dtype))
    samples = array(f"{name}.samples", collider.samples, dtype)
    found = {
        key: row(f"{name}.{key}", _padded(f"{name}.{key}", collider, key, dim, dtype), (3,), dtype, vector=True)
        for key in ("pos", "size", "velocity", "spin")
    } | {
        "quat": row(f"{name}.quat", collider.quat, (4,), dtype, vector=True),
        "friction": row(f"{name}.friction", collider.friction, (), dtype),
        "samples": samples.reshape(1, 1) if samples.ndim == 0 else samples,
    }
    for key, value in found.items():
        if value.shape[0] not in (1, worlds):
            raise ValueError(
                f"{name}.{key} is of {value.shape[0]} worlds, there are {worlds}: give one for all, or each"
            )
    _refuse(name, collider.shape, found)
    return collider.replace(**found)


def _refuse(name: str, shape: str, found: dict[str, Any]) -> None:
    """Refuse what can be seen to be no shape; ValueError."""
    values = {key: value[0] for key, x in found.items() if (value := known(x)) is not None}
    for key, value in values.items():
        if not np.isfinite(value).all():
            raise ValueError(f"{name}.{key} is {value[0]}: it must be finite")
    used = {"sphere": 1, "capsule": 2, "box": 3, "field": 3}.get(shape, 0)
    if "size" in values and not (values["size"][:, :used] > 0).all():
        raise ValueError(f"{name}.size of a {shape} is {values['size'][0, :used]} m: every length must be positive")
    for key in ("size",) * (shape == "plane") + ("quat",):
        if key in values and not np.linalg.norm(values[key], axis=-1).all():
            raise ValueError(f"{name}: its {'normal' if key == 'size' else 'quaternion'} has no length")
    if "friction" in values and not (values["friction"] >= 0).all():
        raise ValueError(f"{name}.friction is {values['friction'].min()}: it must not be negative")


def contact_number(name: str) -> int:
    """The kernels' number of a contact; ValueError where there is no such."""
    if name not in CONTACTS:
        raise ValueError(f"there is no contact {name!r}: it is one of {', '.join(CONTACTS)}")
    return CONTACTS.index(name)


def shape_number(name: str) -> int:
    """The kernels' number of a shape; ValueError where there is no such."""
    if name not in SHAPES:
        raise ValueError(f"there is no shape {name!r}: it is one of {', '.join(SHAPES)}")
    return SHAPES.index(name)


def _upright() -> tuple[float, float, float, float]:
    return (1.0, 0.0, 0.0, 0.0)


def _stacked(*numbers: Any) -> Any:
    """Numbers as one vector along the last axis; those that are arrays may have a world axis."""
    if all(isinstance(x, int | float) for x in numbers):
        return numbers
    dtype = next(x.dtype for x in numbers if hasattr(x, "dtype"))
    return jnp.stack(jnp.broadcast_arrays(*(jnp.asarray(x, dtype) for x in numbers)), -1)


def _about_z(spin: Any, dtype: Any) -> Any:
    """In a plane the spin may be a number."""
    spin = spin if hasattr(spin, "ndim") else jnp.asarray(spin, dtype)
    return spin if spin.ndim else jnp.zeros(3, spin.dtype).at[2].set(spin)


def _padded(name: str, collider: Collider, key: str, dim: int, dtype: Any) -> Any:
    """A vector of a plane scene in space, where a box goes on for ever."""
    value, endless = getattr(collider, key), key == "size" and collider.shape == "box"
    if isinstance(value, tuple | list):
        value = jnp.stack([jnp.asarray(x, dtype) for x in value], -1)
    if not hasattr(value, "ndim") or not value.ndim or value.shape[-1] != 2:
        return value
    if dim == 3:
        raise ValueError(f"{name} has shape {value.shape}, the scene is in space: give three numbers")
    return jnp.pad(value, [(0, 0)] * (value.ndim - 1) + [(0, 1)], constant_values=1e6 if endless else 0.0)
