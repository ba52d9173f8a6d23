"""The particles of a scene in Genesis. They fill the same lattice as those of the native back end."""

import importlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..particles.materials import Corotated, Liquid, Material, NeoHookean, Sand, Snow, VonMises
from .materials import MPM, SPH
from .particles import COURANT

PADDING = 3
"""Cells that Genesis keeps free inside the bounds of its MPM grid."""

FILL = 0.8
"""The volume of a particle in Genesis's SPH, as a fraction of its cube."""

SMOOTHING = 1.5
"""Smoothing length of the native back end's SPH, in spacings."""

ACOUSTIC = 0.2
"""Courant number of a substep of SPH: Genesis's equation of state is explicit, and its splashes are fast."""


def particulate(scene: Any) -> list[Any]:
    """The things of a scene that are made of particles."""
    return [part for part in scene.parts if isinstance(part.material, MPM | SPH)]


def options(scene: Any) -> dict[str, Any]:
    """The arguments of ``genesis.Scene`` for a scene's particles: its domain, its resolution and the substeps."""
    parts = particulate(scene)
    if not parts:
        return {}
    gs: Any = importlib.import_module("genesis").options
    domain, cell = scene.domain, 2 * scene.domain.spacing
    mpm = gs.MPMOptions(
        particle_size=domain.spacing,
        grid_density=1 / cell,
        lower_bound=tuple(x - PADDING * cell for x in domain.lower),
        upper_bound=tuple(x + PADDING * cell for x in domain.upper),
    )
    sph = gs.SPHOptions(
        particle_size=domain.spacing / FILL ** (1 / 3),  # so that its volume is that of the lattice
        lower_bound=tuple(x + domain.spacing / 2 for x in domain.lower),  # for centres
        upper_bound=tuple(x - domain.spacing / 2 for x in domain.upper),
    )
    return {"mpm_options": mpm, "sph_options": sph}


def substeps(scene: Any) -> int:
    """How many substeps the speed of sound requires in a step of the scene, over all its solvers."""
    longest, spacing = [scene.timestep], scene.domain.spacing if scene.domain else 0.0
    for part in particulate(scene):
        if isinstance(part.material, SPH):
            longest.append(ACOUSTIC * 2 * spacing / part.material.sound_speed)
        else:
            law = part.material.law
            longest.append(COURANT * 2 * spacing / math.sqrt(float(law.modulus()) / float(law.density)))
    return math.ceil(scene.timestep / min(longest) * (1 - 1e-9))


def material(substance: MPM | SPH, spacing: float) -> Any:
    """A substance as a Genesis material.

    There the viscosity of SPH is kinematic; an artificial viscosity with alpha, c and h acts as alpha c h / 10
    (Monaghan 2005, in space).
    """
    gs: Any = importlib.import_module("genesis").materials
    if isinstance(substance, SPH):
        c, rho = substance.sound_speed, substance.density
        viscosity = substance.viscosity / rho + substance.artificial * c * SMOOTHING * spacing / 10
        return gs.SPH.Liquid(rho=rho, stiffness=rho * c**2 / 7, exponent=7.0, mu=viscosity, gamma=0.0)
    law: Any = substance.law
    solid = {"rho": float(law.density), "sampler": "regular"}
    if not isinstance(law, Liquid):
        solid |= {"E": float(law.young), "nu": float(law.poisson)}
    match law:
        case Corotated() | NeoHookean():
            model = "corotation" if isinstance(law, Corotated) else "neohooken"
            return gs.MPM.Elastic(model=model, **solid)
        case Liquid():
            return gs.MPM.Liquid(lam=float(law.bulk), **solid)
        case Snow():
            return gs.MPM.Snow(yield_lower=float(law.compression), yield_higher=float(law.stretch), **solid)
        case Sand():
            return gs.MPM.Sand(friction_angle=math.degrees(law.friction), **solid)
        case VonMises():
            deviator = math.sqrt(2 / 3) * float(law.strength)  # Genesis compares the deviator's norm
            return gs.MPM.ElastoPlastic(von_mises_yield_stress=deviator, **solid)
    raise AssertionError(law)


LAWS = (Corotated, NeoHookean, Liquid, Snow, Sand, VonMises)
"""The laws that Genesis has, too."""

FIXED: dict[type[Material], dict[str, float]] = {
    Liquid: {"viscosity": 0.0},
    Snow: {"hardening": 10.0},
    Sand: {"cohesion": 0.0},
    VonMises: {"hardening": 0.0},
}
"""Parameters of the laws that Genesis does not take, and their values there."""


def faults(scene: Any) -> Iterator[str]:
    """Features of a scene's particles that Genesis lacks."""
    parts = particulate(scene)
    for part in parts:
        law = getattr(part.material, "law", None)
        if law is None:
            continue
        if type(law) not in LAWS:
            yield f"{part.name!r}, MPM({type(law).__name__}): Genesis has no such law"
            continue
        if any(np.ndim(number) for number in law.numbers()):
            yield f"{part.name!r}, MPM({type(law).__name__}): Genesis has the same numbers in all worlds"
            continue
        for name, value in FIXED.get(type(law), {}).items():
            if float(getattr(law, name)) != value:
                yield f"{part.name!r}, MPM({type(law).__name__}): {name} is {value:g} in Genesis"
    for part in scene.parts if parts else []:
        if isinstance(getattr(part.material, "friction", None), tuple):
            yield f"{part.name!r}, Rigid: beside particles, Genesis has the same friction in all worlds"
