"""Materials of the material point method, as plain trees: every number is a leaf and gets a gradient.

A number may be a scalar, an array of shape (1 | world,), or a quantity of one (:mod:`fphys.units`); or, for a field of
numbers, an array of shape (1 | world, particle), in which the particles of other materials are not read. Stresses are
gradients of energies, possibly after plastic flow; ``kernels/particles/materials.py`` gives the equations.
"""

import dataclasses
import math
from typing import Any, ClassVar

import jax.numpy as jnp

from .. import units
from ..tree import Tree, pytree

COLUMNS = 6


class Material(Tree):
    """Base of all materials: the fields, in order, are the columns of the kernels' table."""

    density: Any
    kind: ClassVar[int]
    history: ClassVar[float] = 0.0  # initial value of a particle's history variable
    kinds: ClassVar[dict[str, units.Kind]] = {
        "density": units.density,
        **dict.fromkeys(("young", "bulk", "strength"), units.pressure),
        "viscosity": units.viscosity,
    }

    def numbers(self) -> list[Any]:
        """The fields, in order."""
        return [getattr(self, field.name) for field in dataclasses.fields(self)]  # type: ignore[arg-type]

    def modulus(self) -> Any:
        """The modulus of a pressure wave [Pa]: lambda + 2 mu = E (1 - nu) / ((1 + nu) (1 - 2 nu))."""
        young, poisson = self.young, self.poisson  # type: ignore[attr-defined]
        return young * (1.0 - poisson) / ((1.0 + poisson) * (1.0 - 2.0 * poisson))


@pytree
class Corotated(Material):
    """Fixed corotated elasticity (Stomakhin et al. 2012): tau = 2 mu (F - R) F^T + lambda J (J - 1) I."""

    density: Any  # [kg/m^3]
    young: Any  # Young's modulus [Pa]
    poisson: Any  # Poisson's ratio

    kind: ClassVar[int] = 0


@pytree
class NeoHookean(Material):
    """Compressible Neo-Hookean elasticity: tau = mu (F F^T - I) + lambda ln(J) I."""

    density: Any  # [kg/m^3]
    young: Any  # Young's modulus [Pa]
    poisson: Any  # Poisson's ratio

    kind: ClassVar[int] = 1


@pytree
class Liquid(Material):
    """A weakly compressible liquid: p = K / gamma (J^-gamma - 1), and a Newtonian viscosity.

    Its deformation gradient stores only the volume ratio, F = J^(1/3) I; J is kept above 0.1.
    """

    density: Any  # [kg/m^3]
    bulk: Any  # Bulk modulus K [Pa]: density times the square of the speed of sound.
    gamma: Any = 7.0  # Exponent of the equation of state
    viscosity: Any = 0.0  # Dynamic viscosity [Pa s]

    kind: ClassVar[int] = 2

    def numbers(self) -> list[Any]:
        """The fields, in order, with 0 in the place of Poisson's ratio."""
        return [self.density, self.bulk, 0.0, self.gamma, self.viscosity]

    def modulus(self) -> Any:
        """The modulus of a pressure wave [Pa]: K."""
        return self.bulk


@pytree
class Snow(Material):
    """Snow (Stomakhin et al. 2013): fixed corotated, with clamped singular values, harder where compacted.

    mu and lambda grow by exp(hardening (1 - Jp)); a particle's history is Jp, the plastic volume ratio.
    """

    density: Any = 400.0  # [kg/m^3]
    young: Any = 1.4e5  # Young's modulus [Pa]
    poisson: Any = 0.2  # Poisson's ratio
    compression: Any = 2.5e-2  # Singular values stay above 1 - compression ...
    stretch: Any = 7.5e-3  # ... and below 1 + stretch.
    hardening: Any = 10.0  # Exponent, as above

    kind: ClassVar[int] = 3
    history: ClassVar[float] = 1.0


@pytree
class Sand(Material):
    """Sand (Klar et al. 2016): Hencky elasticity, Drucker-Prager cone, no hardening.

    The cone matches Mohr-Coulomb in triaxial compression. In plane shear at constant volume, as where sand spreads in
    layers, it bears more: 46 degrees for an angle of 31; see :class:`MohrCoulomb`, :func:`matched_in_shear`.

    A particle's history is the volume gained while it was separated (Tampubolon et al. 2017): this volume must be lost
    again before the particle carries load.
    """

    density: Any = 1600.0  # [kg/m^3]
    young: Any = 3.5e5  # Young's modulus [Pa]
    poisson: Any = 0.3  # Poisson's ratio
    friction: Any = math.radians(31.0)  # Angle of internal friction [rad]
    cohesion: Any = 0.0  # Volumetric strain that it bears in expansion

    kind: ClassVar[int] = 4
    kinds: ClassVar[dict[str, units.Kind]] = Material.kinds | {"friction": units.angle}


@pytree
class MohrCoulomb(Sand):
    """Sand that yields at its angle of internal friction for any deformation; the parameters are :class:`Sand`'s.

    The Mohr-Coulomb pyramid, s1 - s3 = -(s1 + s3) sin(friction) in the largest and the least principal stress, with
    rounded edges (Podgorski 1985), where it is up to 1.5 % inside. Flow keeps volume and the deviator's direction.
    """

    kind: ClassVar[int] = 6


def matched_in_shear(friction: Any) -> Any:
    """The angle for :class:`Sand` whose cone matches Mohr-Coulomb in plane shear, not in triaxial compression.

    In shear at constant volume, the intermediate stress is the mean of the others. The cone q = M p,
    M = 6 sin(a) / (3 - sin(a)), then yields at the angle of internal friction f if M = sqrt(3) sin(f).

    Args:
        friction: angle of internal friction f, number, array or quantity [rad], any shape.

    Returns:
        The angle a [rad], of the same shape. Gradients flow.
    """
    m = math.sqrt(3.0) * jnp.sin(units.si(friction, units.angle, "friction"))
    return jnp.arcsin(3.0 * m / (6.0 + m))


@pytree
class VonMises(Material):
    """Metal and clay: Hencky elasticity, flow at the von Mises stress sigma_y + hardening times plastic strain.

    A particle's history is its equivalent plastic strain.
    """

    density: Any  # [kg/m^3]
    young: Any  # Young's modulus [Pa]
    poisson: Any  # Poisson's ratio
    strength: Any  # Yield stress in tension, sigma_y [Pa]
    hardening: Any = 0.0  # Its growth [Pa] with the equivalent plastic strain

    kind: ClassVar[int] = 5
    kinds: ClassVar[dict[str, units.Kind]] = Material.kinds | {"hardening": units.pressure}


def table(materials: tuple[Material, ...], dtype: Any, number: Any) -> Any:
    """The kernels' table, shape (1 | world, material, COLUMNS); if a number is of each particle, (world, material +
    particle, COLUMNS), with the particles' own rows after those of the materials.

    Args:
        number: of each particle's material, int32, shape (world, particle).
    """
    rows = []
    for material in materials:
        numbers = [column(jnp.asarray(x, dtype)) for x in material.numbers()]
        numbers += [jnp.zeros((1, 1), dtype)] * (COLUMNS - len(numbers))
        rows.append(jnp.stack(jnp.broadcast_arrays(*numbers), -1))
    if all(row.shape[1] == 1 for row in rows):
        worlds = max(row.shape[0] for row in rows)
        return jnp.concatenate([jnp.broadcast_to(row, (worlds, 1, COLUMNS)) for row in rows], 1)
    shared = jnp.concatenate([jnp.broadcast_to(row[:, :1], (len(number), 1, COLUMNS)) for row in rows], 1)
    own = jnp.broadcast_to(rows[0], (*number.shape, COLUMNS))
    for i, row in enumerate(rows[1:], 1):
        own = jnp.where((number == i)[..., None], row, own)
    return jnp.concatenate([shared, own], 1)


def column(number: Any) -> Any:
    """A number with the axes (1 | world, 1 | particle)."""
    return number if number.ndim > 1 else number.reshape(-1, 1)
