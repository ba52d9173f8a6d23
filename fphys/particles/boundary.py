"""What particles collide with: the walls of the domain, and moving colliders.

Both act on the nodes of the grid, by one of four contacts. *sticky*: matter in contact moves with the surface (at a
face of the domain the field itself is held, half a cell from the nearest nodes, so that no whole layer is held).
*slip*: it moves only along the surface. *separate*: it may also leave. *open*: nothing happens. With friction, for slip
and separate, the surface changes the normal velocity and reduces the tangential velocity by at most that change times
the coefficient (Coulomb's law for an impulse).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import units
from ..errors import UnsupportedError
from ..math import quat_unit, rotate
from ..tree import Tree, pytree, static
from .arguments import array, known, row

Array = jax.Array

CONTACTS = ("open", "sticky", "slip", "separate")
PERIODIC = "periodic"
"""Of the faces of a domain only."""
AT_FACE = len(CONTACTS)
"""The kernels' number of a wall that slips at its face; one more where it separates."""
SHAPES = ("plane", "sphere", "box", "capsule", "field")
ENDLESS = 1e6
"""Half edge of a box along the axis that points out of a planar scene [m]."""


@pytree
class Walls(Tree):
    """The faces of the domain, in the order -x, +x, -y, +y (, -z, +z). An open face holds nothing: a particle that is
    half a cell outside it stops, and is reported. Of two "periodic" faces, what leaves by one enters by the other; a
    collider acts where it lies in the domain, and one that reaches such a face is given twice, a period apart."""

    contact: str | tuple[str, ...] = static(default="slip")  # of all faces, or of each
    friction: Any = 0.0  # Coulomb's coefficient, shape (), (face,) or (1 | world, face)
    velocity: Any = 0.0  # of the faces [m/s], shape (), (face, dim) or (1 | world, face, dim)
    hold: str = static(default="nodes")  # what slip and separate hold: "nodes" half a cell inside, or the "face" itself

    def kinds(self, dim: int) -> tuple[int, ...]:
        """The number of each face's contact type.

        Raises:
            ValueError: an unknown contact, or not one for each face; or nothing that can be held; or one periodic face.
        """
        given = (self.contact,) * (2 * dim) if isinstance(self.contact, str) else tuple(self.contact)
        if len(given) != 2 * dim:
            raise ValueError(f"walls.contact has {len(given)} entries, the domain has {2 * dim} faces")
        if self.hold not in ("nodes", "face"):
            raise ValueError(f"walls.hold is {self.hold!r}: it is 'nodes', half a cell inside, or 'face'")
        around = [kind == PERIODIC for kind in given]
        if around[::2] != around[1::2]:
            raise ValueError(f"walls.contact is {given}: both faces of an axis are periodic, or none")
        given = tuple("open" if kind == PERIODIC else kind for kind in given)
        numbers, slip = tuple(map(contact_number, given)), contact_number("slip")
        return tuple(AT_FACE + k - slip if self.hold == "face" and k >= slip else k for k in numbers)

    def around(self, dim: int) -> tuple[int, ...]:
        """The periodic axes."""
        given = (self.contact,) * (2 * dim) if isinstance(self.contact, str) else self.contact
        return tuple(axis for axis in range(dim) if given[2 * axis] == PERIODIC)


@pytree
class Collider(Tree):
    """A rigid shape that keeps particles out, with a pose and a velocity that the caller gives at each step.

    Make one with ``plane``, ``sphere``, ``box``, ``capsule`` or ``field``. Vectors are (3,), in two dimensions also
    (2,), or have a world axis first; in two dimensions the spin may be a number. It acts on nodes inside the shape or
    at most half a cell away. The choice of these nodes has no derivative; the effect on them is differentiable by pose,
    velocity and friction. Sizes only decide which nodes, so their gradients are zero, except a capsule's half length.

    In two dimensions matter is at z = 0. A sphere about a point there is a disk; a box has no end along the axis of its
    own that points out of the plane most; a capsule along z is a disk, one turned into the plane a rectangle with round
    ends.

    With a ``width``, in MPM, its effect fades: a node whose velocity a contact would change by dv is changed by b dv.
    b falls from 1 to 0, as 6 s^5 - 15 s^4 + 10 s^3 with s = 1/2 + (cell / 2 - d) / width, while the distance d grows.
    Edges of a box are round over the width, the ends of a capsule's axis too, and normals of a field are linear between
    samples, which must reach half a cell and half a width beyond it. The motion is another one, and depends on the time
    step, as b acts once a step. It is differentiable by pose, size, samples and width; obstacles to be optimised need
    three cells or four. A width of zero is none. A box thinner than its width has no inside.
    """

    pos: Any  # Position of its origin [m], shape (3,).
    quat: Any  # Orientation (w, x, y, z), shape (4,).
    size: Any  # [m], shape (3,): normal of a plane; radius; half edges; radius and half length; spacing of samples.
    velocity: Any = 0.0  # of its origin [m/s], shape (3,)
    spin: Any = 0.0  # angular velocity [rad/s], shape (3,)
    friction: Any = 0.0  # Coulomb's coefficient, shape ()
    samples: Any = 0.0  # for a field: signed distance [m], shape (1 | world, sample)
    width: Any = None  # over which its effect fades [m], shape (); None: it ends half a cell outside its surface
    shape: str = static(default="sphere")
    contact: str = static(default="separate")
    count: tuple[int, int, int] = static(default=(1, 1, 1))  # samples per axis of a field


_KINDS = dict.fromkeys(("pos", "samples", "width"), units.length) | {
    "velocity": units.velocity,
    "spin": units.angular_velocity,
}


def plane(
    point: Any, normal: Any, contact: str = "separate", friction: Any = 0.0, velocity: Any = 0.0, width: Any = None
) -> Collider:
    """The half space behind a plane; ``normal`` points out of it and need not have unit length."""
    return Collider(point, _upright(), normal, velocity, 0.0, friction, width=width, shape="plane", contact=contact)


def sphere(pos: Any, radius: Any, contact: str = "separate", friction: Any = 0.0, **motion: Any) -> Collider:
    """A ball, in two dimensions a disk. ``motion``: velocity, spin; and width."""
    size = _stacked(units.si(radius, units.length, "radius"), 0.0, 0.0)
    return Collider(pos, _upright(), size, friction=friction, shape="sphere", contact=contact, **motion)


def box(
    pos: Any, half: Any, quat: Any = None, contact: str = "separate", friction: Any = 0.0, **motion: Any
) -> Collider:
    """A box with half edges ``half``; in two dimensions a rectangle, whose third number, if given, has no effect."""
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
    """A capsule along its own z axis; ``half_length`` does not include the caps."""
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

    Between samples the distance is linear; of finite elements it is the cubic through them (Catmull-Rom). There is no
    shape outside of them.

    Raises:
        ValueError: the samples have another number of axes, or one sample along an axis.
    """
    quat = _upright() if quat is None else quat
    samples, spacing = units.si(samples, units.length, "samples"), units.si(spacing, units.length, "spacing")
    if np.ndim(samples) not in (2, 3) or min(np.shape(samples)[:2]) < 2:
        raise ValueError(
            f"samples have shape {np.shape(samples)}, need (nx, ny) or (nx, ny, nz), two or more along x and y"
        )
    nx, ny, nz = (*samples.shape, 1)[:3]
    size = (spacing,) * 3
    values = jnp.reshape(samples, (1, -1))
    return Collider(
        pos, quat, size, friction=friction, samples=values, shape="field", contact=contact, count=(nx, ny, nz), **motion
    )


def prepared(
    collider: Collider, number: int, dtype: Any, dim: int, worlds: int, fades: bool = False, kind: str = "colliders"
) -> Collider:
    """A collider in the form that the kernels take, every array with the world axis first.

    Args:
        fades: the solver has colliders with a width.
        kind: what it is called in messages.

    Raises:
        ValueError, TypeError: a field that does not fit, by name; in two dimensions also a field with samples along z.
            UnsupportedError: a width, which the solver lacks.
    """
    name = f"{kind}[{number}]"
    if not isinstance(collider, Collider):
        raise TypeError(f"{name} is a {type(collider).__name__}: make one with boundary.sphere, plane, box, capsule")
    collider = units.bare(collider, _KINDS, name)
    shape_number(collider.shape)
    contact_number(collider.contact)
    if dim == 2:
        collider = collider.replace(spin=_about_z(collider.spin, dtype))
    if collider.width is not None and not fades:
        raise UnsupportedError(f"{name}.width is given: only colliders of MPM fade; leave it out")
    samples = array(f"{name}.samples", collider.samples, dtype)
    found = {
        key: row(f"{name}.{key}", _padded(f"{name}.{key}", collider, key, dim, dtype), (3,), dtype, vector=True)
        for key in ("pos", "size", "velocity", "spin")
    } | {
        "quat": row(f"{name}.quat", collider.quat, (4,), dtype, vector=True),
        "friction": row(f"{name}.friction", collider.friction, (), dtype),
        "samples": samples.reshape(1, 1) if samples.ndim == 0 else samples,
    }
    if collider.width is not None:
        found["width"] = row(f"{name}.width", collider.width, (), dtype)
    for key, value in found.items():
        if value.shape[0] not in (1, worlds):
            raise ValueError(
                f"{name}.{key} is of {value.shape[0]} worlds, there are {worlds}: give one for all, or each"
            )
    if dim == 2:
        found |= _in_plane(name, collider, found)
    _refuse(name, collider.shape, found)
    return collider.replace(**found)


def _in_plane(name: str, collider: Collider, found: dict[str, Array]) -> dict[str, Array]:
    """The size that a prepared box has in a planar scene; ValueError: a field has samples along z."""
    size, quat = found["size"], found["quat"]
    if collider.count[2] > 1:
        raise ValueError(f"{name} has {collider.count[2]} samples along z, the scene is planar: give samples (nx, ny)")
    return {"size": endless(size, quat)} if collider.shape == "box" else {}


def endless(half: Array, quat: Array) -> Array:
    """Half edges of boxes in a planar scene [m], (1 | world, 3): no end along the axis that points out of it most.

    Gradients flow to the other two.

    Args:
        half: half edges [m], (1 | world, 3). quat: orientation, of any length, (1 | world, 4).
    """
    w, x, y, z = (quat[:, i] for i in range(4))
    out = jnp.stack([2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z], -1)
    most = jnp.argmax(jnp.abs(out), -1)
    return jnp.where(most[:, None] == jnp.arange(3)[None], jnp.asarray(ENDLESS, half.dtype), half)


def _refuse(name: str, shape: str, found: dict[str, Any]) -> None:
    """Refuse what can be seen not to be a shape; ValueError."""
    values = {key: value[0] for key, x in found.items() if (value := known(x)) is not None}
    for key, value in values.items():
        if len(faulty := np.argwhere(~np.isfinite(value))):
            raise ValueError(f"{name}.{key} is {value[faulty[0][0]]}: it must be finite")
    used = {"sphere": 1, "capsule": 2, "box": 3, "field": 3}.get(shape, 0)
    if "size" in values and not (values["size"][:, :used] > 0).all():
        raise ValueError(f"{name}.size of a {shape} is {values['size'][0, :used]} m: every length must be positive")
    for key in ("size",) * (shape == "plane") + ("quat",):
        if key in values and not np.linalg.norm(values[key], axis=-1).all():
            raise ValueError(f"{name}: its {'normal' if key == 'size' else 'quaternion'} has no length")
    for key in ("friction", "width"):
        if key in values and not (values[key] >= 0).all():
            raise ValueError(f"{name}.{key} is {values[key].min()}: it must not be negative")


def local(pos: Array, quat: Array, x: Array) -> Array:
    """Positions x, (world, n, dim), in the axes of one pose for each world [m], shape (world, n, 3).

    Gradients flow to every argument.

    Args:
        pos, quat: the pose, its quaternion of length one, shapes (1 | world, 3) and (1 | world, 4).
    """
    x = jnp.pad(x, ((0, 0), (0, 0), (0, 3 - x.shape[-1])))
    back = quat[:, None] * jnp.asarray([[[1, -1, -1, -1]]], x.dtype)
    return rotate(jnp.broadcast_to(back, (*x.shape[:2], 4)), x - pos[:, None])


def is_inside(shape: Collider, x: Array) -> Array:
    """Which places are inside a prepared shape, bool, shape (world, n); without gradients.

    Args:
        x: places [m], shape (world, n, dim).

    Raises:
        UnsupportedError: the shape is a field.
    """
    if shape.shape == "field":
        raise UnsupportedError("a field of samples does not say what is inside: give a plane, sphere, box or capsule")
    size, turned = shape.size[:, None], shape.shape in ("box", "capsule")
    d = local(shape.pos, quat_unit(shape.quat) if turned else jnp.eye(1, 4, dtype=x.dtype), x)
    if shape.shape == "plane":
        return (d * size).sum(-1) < 0
    if shape.shape == "sphere":
        return (d**2).sum(-1) < size[..., 0] ** 2
    if shape.shape == "box":
        return (jnp.abs(d) < size).all(-1)
    beyond = jnp.maximum(jnp.abs(d[..., 2]) - size[..., 1], 0)  # the ends of a capsule's axis
    return d[..., 0] ** 2 + d[..., 1] ** 2 + beyond**2 < size[..., 0] ** 2


def contact_number(name: str) -> int:
    """The kernels' number of a contact; ValueError if there is no such contact."""
    if name not in CONTACTS:
        raise ValueError(f"there is no contact {name!r}: it is one of {', '.join(CONTACTS)}")
    return CONTACTS.index(name)


def shape_number(name: str) -> int:
    """The kernels' number of a shape; ValueError if there is no such shape."""
    if name not in SHAPES:
        raise ValueError(f"there is no shape {name!r}: it is one of {', '.join(SHAPES)}")
    return SHAPES.index(name)


def _upright() -> tuple[float, float, float, float]:
    return (1.0, 0.0, 0.0, 0.0)


def _stacked(*numbers: Any) -> Any:
    """Numbers as one vector along the last axis; arrays among them may have a world axis."""
    if all(isinstance(x, int | float) for x in numbers):
        return numbers
    dtype = next(x.dtype for x in numbers if hasattr(x, "dtype"))
    return jnp.stack(jnp.broadcast_arrays(*(jnp.asarray(x, dtype) for x in numbers)), -1)


def _about_z(spin: Any, dtype: Any) -> Any:
    """The spin as a vector: in two dimensions it may be a number, about z."""
    spin = array("spin", spin, dtype)
    return spin if spin.ndim else jnp.zeros(3, spin.dtype).at[2].set(spin)


def _padded(name: str, collider: Collider, key: str, dim: int, dtype: Any) -> Any:
    """A vector of a two-dimensional scene, padded to three dimensions, in which a box extends without end."""
    value, third = getattr(collider, key), ENDLESS if key == "size" and collider.shape == "box" else 0.0
    if isinstance(value, tuple | list):
        value = jnp.stack([jnp.asarray(x, dtype) for x in value], -1)
    if not hasattr(value, "ndim") or not value.ndim or value.shape[-1] != 2:
        return value
    if dim == 3:
        raise ValueError(f"{name} has shape {value.shape}, the scene is in space: give three numbers")
    return jnp.pad(value, [(0, 0)] * (value.ndim - 1) + [(0, 1)], constant_values=third)
