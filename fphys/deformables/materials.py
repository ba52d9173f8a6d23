"""Elastic laws of finite elements, as plain trees: every number is a leaf and gets a gradient.

A number may be a scalar, or an array of shape (element,), (1 | world,  1) or (1 | world, element), or a quantity of
one (:mod:`fphys.units`). ``kernels/deformables/laws.py`` has the equations.
"""

from typing import Any, ClassVar

from .. import units
from ..tree import Tree, pytree, static


class Law(Tree):
    """Base of all laws: isotropic, with Hooke's moduli at small strain."""

    density: Any
    young: Any
    poisson: Any
    number: ClassVar[int]
    kinds: ClassVar[dict[str, units.Kind]] = {"density": units.density, "young": units.pressure}

    def lame(self, young: Any, poisson: Any) -> tuple[Any, Any]:
        """Lame's mu = E / (2 (1 + nu)) and lambda = E nu / ((1 + nu) (1 - 2 nu)) [Pa]."""
        return young / (2 * (1 + poisson)), young * poisson / ((1 + poisson) * (1 - 2 * poisson))


@pytree
class Corotated(Law):
    """Fixed corotated (Stomakhin et al. 2012), MPM's: mu |F - R|^2 + lambda (J - 1)^2 / 2."""

    density: Any  # [kg/m^3]
    young: Any  # Young's modulus [Pa]
    poisson: Any  # Poisson's ratio

    number: ClassVar[int] = 0


@pytree
class NeoHookean(Law):
    """Stable Neo-Hookean (Smith, de Goes and Kim 2018): m (|F|^2 - 3 - ln(|F|^2 + 1)) / 2 + l (J - a)^2 / 2.

    m = 4/3 mu, l = lambda + 5/6 mu and a = 1 + 3/4 m / l make it Hooke's law at small strain. Smooth for every F.
    """

    density: Any  # [kg/m^3]
    young: Any  # Young's modulus [Pa]
    poisson: Any  # Poisson's ratio

    number: ClassVar[int] = 1


@pytree
class StVenantKirchhoff(Law):
    """St. Venant-Kirchhoff: mu |E|^2 + lambda tr(E)^2 / 2, E = (F^T F - I) / 2. It softens and collapses if compressed.

    In the plane it may be in plane stress: with lambda 2 mu / (lambda + 2 mu) for lambda, exactly.
    """

    density: Any  # [kg/m^3]
    young: Any  # Young's modulus [Pa]
    poisson: Any  # Poisson's ratio
    plane_stress: bool = static(default=False)  # of triangles in the plane, 1 m thick; else in plane strain

    number: ClassVar[int] = 2

    def lame(self, young: Any, poisson: Any) -> tuple[Any, Any]:
        mu, lam = super().lame(young, poisson)
        return (mu, young * poisson / (1 - poisson**2)) if self.plane_stress else (mu, lam)
