"""Checks of the material point method: what is refused before anything runs, and what a step finds to be wrong."""

import dataclasses
import operator
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ..worlds import Status
from .arguments import EMPTY, OVERFLOW, expect_fields, known, row
from .contact import Contact
from .materials import column
from .mpm_stages import Between
from .response import DISAGREED
from .transfer import Apic, Transfer

if TYPE_CHECKING:
    from .mpm import Params, State

Array = jax.Array

COURANT = 0.5
"""Largest Courant number that :func:`.mpm.init` accepts: time step times speed of sound over cell."""

DIFFUSION = 0.35
"""Largest kinematic viscosity times time step over cell squared that it accepts: at 0.45 motion grows without bound."""

_RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("density", "young", "bulk", "gamma", "strength"), (0.0, np.inf)),
    **dict.fromkeys(("viscosity", "stretch", "hardening", "cohesion"), (-1e-300, np.inf)),
    "compression": (-1e-300, 1.0),
    "poisson": (-1.0, 0.5),
    "friction": (-1e-300, np.pi / 2),
}
"""Open intervals that a material's numbers must lie in."""


def expect_layout(shape: Any, cell: Any, lower: Any, parts: Any) -> None:
    """Refuse an invalid domain; ValueError."""
    try:
        good = len(shape) in (2, 3) and all(operator.index(n) > 0 for n in shape)
    except TypeError:
        good = False
    if not good:
        raise ValueError(
            f"params.shape is {shape!r}: give the number of cells of each axis, (64, 64) in a plane, (64, 64, 64) in "
            "space"
        )
    if np.ndim(cell) or not (cell > 0 and np.isfinite(cell)):
        raise ValueError(f"params.cell is {cell!r}: the edge of a cell [m] must be one number, positive and finite")
    if len(lower) not in (0, len(shape)):
        raise ValueError(f"params.lower has {len(lower)} numbers, the domain {len(shape)} axes: give one for each axis")
    if parts < 0:
        raise ValueError(f"params.parts is {parts}: give how many, or 0 for one a thread")


def lower_of(params: "Params") -> tuple[float, float, float]:
    """The lower corner of the domain [m]; in a plane the third number is zero."""
    x, y, z = (*map(float, params.lower or (0.0,) * params.dim), 0.0)[:3]
    return x, y, z


def bounds(params: "Params") -> tuple[np.ndarray, np.ndarray]:
    """Where particles may be [m]: half a cell beyond the domain."""
    lower = np.array(lower_of(params))[: params.dim]
    return lower - params.cell / 2, lower + params.cell * (np.array(params.shape) + 0.5)


def periodic(params: "Params") -> tuple[int, ...]:
    """The periodic axes; ValueError: one is so short that a node would have two images."""
    axes = params.walls.around(params.dim)
    if short := [axis for axis in axes if params.shape[axis] < 4]:
        raise ValueError(f"params.shape is {params.shape}: a periodic axis needs four cells, axis {short[0]} has fewer")
    return axes


def expect_state(params: "Params", state: "State") -> None:
    """Refuse a state whose fields belong to different particles, because kernels would read beyond them.

    Raises:
        ValueError: a shape. TypeError: a dtype.
    """
    dim = state.x.shape[-1]
    if state.x.ndim != 3 or dim != params.dim:
        raise ValueError(f"state.x has {dim} axes, params.shape has {params.dim}: {params.shape}")
    matrix = (3, 3)
    tails = {"v": (dim,), "C": matrix, "F": matrix, "history": (), "volume": (), "material": ()}
    expect_fields(state, tails, ("material",), "mpm.init")
    if state.time.shape != state.x.shape[:1]:
        raise ValueError(f"state.time has shape {state.time.shape}, needs {state.x.shape[:1]}, one for each world")


def expect_worlds(params: "Params", size: tuple[int, int], **rows: Array) -> None:
    """Refuse a parameter with a different number of worlds, or of particles; ValueError by name."""
    worlds, particles = size
    shapes = {f"{type(m).__name__}.{name}": np.shape(getattr(m, name)) for m in params.materials for name in _fields(m)}
    shapes |= {name: value.shape[:1] for name, value in rows.items()}
    for name, shape in shapes.items():
        if len(shape) == 2 and shape[0] in (1, worlds) and shape[1] in (1, particles):
            continue
        if len(shape) == 2:
            raise ValueError(
                f"{name} has the shape {shape}, there are {worlds} worlds of {particles} particles: a field of numbers "
                "has the shape (1, n) or (num_worlds, n)"
            )
        if shape not in ((), (1,), (worlds,)):
            raise ValueError(
                f"{name} has the shape {shape}, there are {worlds} worlds: give a number, or an array of (1,) or "
                "(num_worlds,)"
            )


def simulable(table: Array, kinds: int, timestep: Array, rest: tuple[Array, ...], state: "State") -> Array:
    """Worlds whose numbers can be simulated, bool, (1 | world,): the others stand still, and their status says so."""
    table, timestep = jax.lax.stop_gradient((table, timestep))
    young, poisson = table[..., 1], table[..., 2]  # for a liquid its bulk modulus, and zero
    modulus = young * (1 - poisson) / ((1 + poisson) * (1 - 2 * poisson))
    fine = ((table[..., 0] > 0) & (modulus > 0) & jnp.isfinite(modulus)).all(1) & jnp.isfinite(table).all((1, 2))
    fine = fine & (timestep > 0) & jnp.isfinite(timestep)
    for value in jax.lax.stop_gradient(rest):
        fine = fine & jnp.isfinite(value).all(tuple(range(1, value.ndim)))
    volume = jax.lax.stop_gradient(state.volume)
    particles = (volume >= 0) & jnp.isfinite(volume) & (state.material >= 0) & (state.material < kinds)
    particles = particles | (state.material == EMPTY)
    return fine & particles.all(1)


def refuse(params: "Params", x: Array, number: Array, volume: Array, bounds: tuple[np.ndarray, np.ndarray]) -> None:
    """Refuse values that are known to be wrong before anything runs; ValueError."""
    kinds = params.materials
    for name, value in (("volume", volume), ("walls.friction", params.walls.friction)):
        if (given := known(value)) is not None:
            numbers = np.ravel(given[0])
            if (wrong := numbers[~((numbers >= 0) & np.isfinite(numbers))]).size:
                raise ValueError(f"{name} is {wrong[0]}: it must be finite and not negative")
    if (given := known(volume, number)) is not None and ((given[0] == 0) & (given[1] != EMPTY)).any():
        raise ValueError("volume is 0: such a particle has no mass; give a positive volume, or the material EMPTY")
    places = known(x, number)
    if places is not None:
        at, numbers = places
        lower, upper = bounds
        outside = ~((at >= lower) & (at < upper)).all(-1) & (numbers != EMPTY)
        if outside.any():
            world, p = np.argwhere(outside)[0]
            raise ValueError(
                f"{outside.sum()} particles are outside the domain, which ends at {upper - params.cell / 2}: the "
                f"first is particle {p} of world {world}, at {at[world, p]}"
            )
        if numbers.min() < EMPTY or numbers.max() >= len(kinds):
            wrong = numbers.min() if numbers.min() < EMPTY else numbers.max()
            raise ValueError(f"material names {wrong}, but params.material has {len(kinds)}: 0 to {len(kinds) - 1}")
    step = known(params.timestep)
    if step is not None and not ((step[0] > 0) & np.isfinite(step[0])).all():
        raise ValueError(f"params.timestep is {step[0]}: it must be positive and finite")
    for m in kinds:
        numbers = numbers_of(m)
        if step is None or any(value is None for value in numbers.values()):
            continue
        given = {field: column(value[0]) for field, value in numbers.items() if value}
        _refuse_long(params, type(m).__name__, m.replace(**given), step[0].max(), given)


def numbers_of(material: Any) -> dict[str, Any]:
    """A material's numbers by name, on the host, None if traced; ValueError: one that cannot be simulated."""
    name, numbers = type(material).__name__, {field: known(getattr(material, field)) for field in _fields(material)}
    for field, value in numbers.items():
        low, high = (-1e-300, np.inf) if (name, field) == ("VonMises", "hardening") else _RANGES[field]
        given = np.zeros(0) if value is None else np.asarray(value[0], float)  # float32 has no -1e-300
        if (wrong := given[~((given > low) & (given < high))]).size:
            least = f"above {low:g}" if low in (0.0, -1.0) else "not negative"
            most = f"below {high:.4g}" if high < np.inf else "finite"
            raise ValueError(f"{name}.{field} is {wrong.flat[0]}: it must be {least} and {most}")
    return numbers


def _refuse_long(params: "Params", name: str, material: Any, step: float, numbers: dict[str, np.ndarray]) -> None:
    """Refuse a time step above the Courant limit, by sound and by viscosity."""
    speed = np.sqrt(np.asarray(material.modulus()) / numbers["density"]).max()
    courant = step * speed / params.cell
    if not courant <= COURANT:
        raise ValueError(
            f"the time step is {step:.3g} s, too long for {name}: sound travels at {speed:.3g} m/s, {courant:.2g} "
            f"cells a step, and the limit is {COURANT}. Take {COURANT * params.cell / speed:.2g} s at most, or larger "
            "cells, or a softer material"
        )
    diffused = step * (numbers.get("viscosity", np.zeros(1)) / numbers["density"]).max() / params.cell**2
    if not diffused <= DIFFUSION:
        raise ValueError(
            f"the time step is {step:.3g} s, too long for {name}: its viscosity spreads momentum over {diffused:.3g} "
            f"cells' areas a step, and the limit is {DIFFUSION}. Take {DIFFUSION / diffused * step:.2g} s at most, or "
            "larger cells, or a thinner liquid"
        )


def is_above_limits(params: "Params", timestep: Array) -> Array:
    """Worlds whose time step is above a limit that :func:`.mpm.init` has, bool, (1 | world,). NaN is not above."""
    above, slack = jnp.zeros(1, bool), 1 + 1e-4  # rounding of a step at the limit
    for m in params.materials:
        numbers = {field: column(jnp.asarray(getattr(m, field), timestep.dtype)) for field in _fields(m)}
        numbers, step = jax.lax.stop_gradient((numbers, timestep[:, None] / params.cell))
        sound = step**2 * m.replace(**numbers).modulus() / numbers["density"]
        diffused = step / params.cell * numbers.get("viscosity", jnp.zeros_like(step)) / numbers["density"]
        above = above | ((sound > (slack * COURANT) ** 2) | (diffused > slack * DIFFUSION)).any(1)
    return above


def share_kept(params: "Params", dtype: Any) -> Array | None:
    """What a particle keeps of its own velocity, shape (1 | world,); None with APIC; TypeError, ValueError by name."""
    if not isinstance(params.transfer, Transfer):
        raise TypeError(f"params.transfer is a {type(params.transfer).__name__}: give mpm.Apic() or mpm.AffineFlip()")
    if isinstance(params.transfer, Apic):
        return None
    keep = row("params.transfer.keep", params.transfer.keep, (), dtype)
    if (given := known(keep)) is not None and not ((given[0] >= 0) & (given[0] <= 1)).all():
        raise ValueError(f"params.transfer.keep is {given[0]}: it must lie between 0 (APIC) and 1 (FLIP)")
    return keep


def between(params: "Params", dtype: Any) -> Between | None:
    """What is between bodies; None if there is one grid; TypeError, ValueError by name."""
    contact = params.contact
    if contact is None:
        return None
    if not isinstance(contact, Contact):
        raise TypeError(f"params.contact is a {type(contact).__name__}: give mpm.Contact((400, 300), friction)")
    friction = row("params.contact.friction", contact.friction, (), dtype)
    normal = row("params.contact.normal", contact.normal, (len(contact.sizes),), dtype)
    for name, value in (("friction", friction), ("normal", normal)):
        if (given := known(value)) is not None and not ((given[0] >= 0) & np.isfinite(given[0])).all():
            raise ValueError(f"params.contact.{name} is {given[0]}: it must be finite and not negative")
    if (given := known(normal)) is not None and not has_normals(given[0]).all():
        raise ValueError(
            f"params.contact.normal is {given[0]}: two bodies without a share have no normal between them, and would "
            "pass through each other; leave at most one of them zero, (0.0, 1.0)"
        )
    return Between(friction, normal)


def has_normals(shares: Any) -> Any:
    """Worlds in which any two bodies have a normal between them, from their shares, (1 | world, body)."""
    return (shares > 0).sum(1) >= shares.shape[1] - 1


def sizes_of(params: "Params", n: int) -> tuple[int, ...]:
    """Particles of each body; ValueError: they are not all."""
    sizes = (n,) if params.contact is None else params.contact.sizes
    if sum(sizes) != n:
        raise ValueError(
            f"params.contact.sizes is {sizes}, {sum(sizes)} particles together, the state has {n}: give the number of "
            "particles of each body, in their order"
        )
    return sizes


CAUSES = {
    Status.NONFINITE: "particles became NaN, infinite or huge{}; lower params.timestep",
    Status.BADCTRL: "force or actuation was not finite; the particle took no part in that step",
    Status.OOB: "particles left the domain{}; enlarge params.shape, close params.walls, or lower params.timestep",
    Status.BADPARAM: (
        "a number is not one to simulate: all must be finite, time step, densities and stiffnesses positive, "
        "Poisson's ratio between -1 and 0.5, volumes, friction and widths not negative, materials "
        "among those of params.material"
    ),
    Status.INVERTED: (
        "particles were inside out{}, det F <= 0, or stretched beyond what the precision can tell from flat, "
        "where stress is not that of the material; lower "
        "params.timestep, or take a stiffer material or a smaller load"
    ),
    Status.UNCONVERGED: DISAGREED,
    Status.THROUGH: (
        "particles passed through a box that is too thin to hold them: make it at least two cells thick, or the cells "
        "smaller"
    ),
    Status.SLOT_OVERFLOW: OVERFLOW,
    Status.CFL: (
        "sound or a particle crossed too much of a cell in a step, or viscosity spread too far; lower params.timestep, "
        "enlarge params.cell, or take a softer or thinner material; or a source is to give more than a layer a call of "
        "flow.step"
    ),
}
"""What each fault bit means, and what to change."""


def is_solid(F: np.ndarray) -> np.ndarray:
    """Whether deformations are neither inverted nor too flat for their precision, by the same test as the kernel."""
    values, eps = np.linalg.svd(F.astype(float), compute_uv=False), np.finfo(F.dtype).eps
    with np.errstate(divide="ignore", invalid="ignore"):
        flatness = np.linalg.norm(values, axis=-1) * np.linalg.norm(1 / values, axis=-1)
    least = 8 * eps * np.linalg.norm(values, axis=-1) ** 3
    return (np.linalg.det(F.astype(float)) > least) & (flatness < eps**-0.5)


def some(which: np.ndarray) -> str:
    """How many are meant, and the first of them."""
    found = np.flatnonzero(which)
    return f" ({len(found)}, the first is {found[0]})" if len(found) else ""


def _fields(material: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(material))
