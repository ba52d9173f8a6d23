"""Matter of several kinds in one scene of the native back end: particles, and meshes that hold them."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from .. import coupling
from ..coupling.surfaces import overlapping
from ..errors import ModelError
from ..model import Model
from ..model import State as RigidState
from ..particles import flow
from ..render import Flex, Grains
from ..tree import pytree, static
from .particles import Filling, Particles
from .ranges import Balls, Triangles
from .soft import Bodies

Array = jax.Array

REACH = 0.5
"""Distance that the surface of a mesh keeps from particles, in their spacings."""

CLOSE = 0.9
"""Part of this distance: nearer than that particles do not begin at rest."""


@pytree
class Mixture(Filling):
    """Fillings that share substeps. Cloth and the surfaces of soft bodies hold particles, without friction."""

    fillings: tuple[Filling, ...]
    substeps: int = static()

    @property
    def parts(self) -> tuple[Filling, ...]:
        return self.fillings

    @property
    def media(self) -> tuple[Any, ...]:
        return tuple(medium for filling in self.fillings for medium in filling.media)

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(kind for filling in self.fillings for kind in filling.kinds)

    @property
    def surfaces(self) -> tuple[coupling.Surface, ...]:
        numbers = list(enumerate(zip(self.kinds, self.media, strict=True)))
        flows = [(i, medium.params) for i, (kind, medium) in numbers if kind in ("mpm", "sph")]
        meshes = [i for i, (kind, _) in numbers if kind in ("fem", "pbd")]
        return tuple(coupling.Surface(i, j, REACH * _spacing(params)) for i, params in flows for j in meshes)

    def start(self, model: Model, rigid: RigidState) -> tuple[Any, ...]:
        return tuple(matter for filling in self.fillings for matter in filling.start(model, rigid))

    def counts(self) -> dict[str, Any]:
        return {name: count for filling in self.fillings for name, count in filling.counts().items()}

    def tally(self, matter: tuple[Any, ...]) -> flow.Tally | None:
        return next((found for f, own in self._each(matter) if (found := f.tally(own)) is not None), None)

    def flowed(self, matter: tuple[Any, ...], tally: flow.Tally, duration: Array) -> tuple[tuple[Any, ...], flow.Tally]:
        after: list[Any] = []
        for filling, own in self._each(matter):
            if filling.tally(own) is not None:
                own, tally = filling.flowed(own, tally, duration)
            after += own
        return tuple(after), tally

    def particles(self, state: Any, name: str) -> Array:
        return self._of(Particles, name, "thing of particles").particles(state, name)

    def alive(self, state: Any, name: str) -> Array:
        return self._of(Particles, name, "thing of particles").alive(state, name)

    def vertices(self, state: Any, name: str) -> Array:
        return self._of(Bodies, name, "deformable thing").vertices(state, name)

    def flexes(self, state: Any, world: int) -> list[Flex | Grains]:
        return [flex for filling in self.fillings for flex in filling.flexes(state, world)]

    def seen(self, state: Any) -> list[Balls | Triangles]:
        return [thing for filling in self.fillings for thing in filling.seen(state)]

    def _each(self, matter: tuple[Any, ...]) -> Iterator[tuple[Filling, tuple[Any, ...]]]:
        """The fillings, and the states of each."""
        first = 0
        for filling in self.fillings:
            last = first + len(filling.media)
            yield filling, matter[first:last]
            first = last

    def _of(self, kind: type[Filling], name: str, what: str) -> Filling:
        """The filling of a kind that has a thing of this name; ModelError."""
        names = [own for filling in self.fillings if isinstance(filling, kind) for own in filling.names]
        for filling in self.fillings:
            if isinstance(filling, kind) and name in filling.names:
                return filling
        raise ModelError(f"there is no {what} {name!r}: the scene has {', '.join(map(repr, names))}")


def mixed(fillings: Sequence[Filling]) -> Filling | None:
    """One filling of all, in the most substeps that one of them needs; None if there are none."""
    if len(fillings) < 2:
        return fillings[0] if fillings else None
    substeps = max(filling.substeps for filling in fillings)
    together = tuple(filling.replace(substeps=substeps) for filling in fillings)
    particles = [filling for filling in together if isinstance(filling, Particles)]
    _warn_of_meetings(particles)
    _warn_of_overlaps(particles, [filling for filling in together if isinstance(filling, Bodies)])
    return Mixture(together, substeps)


def _spacing(params: Any) -> float:
    """Of particles at rest [m]."""
    return float(params.spacing if hasattr(params, "spacing") else params.cell / 2)


def _warn_of_meetings(particles: list[Particles]) -> None:
    """Warn of particles of two solvers, which do not feel each other."""
    if len(particles) == 2:
        one, other = (", ".join(map(repr, filling.names)) for filling in particles)
        warnings.warn(
            f"MPM ({one}) and SPH ({other}) do not feel each other in a scene: keep them apart, by bodies or by cloth",
            UserWarning,
            stacklevel=5,
        )


def _warn_of_overlaps(particles: Sequence[Particles], bodies: Sequence[Bodies]) -> None:
    """Warn of particles that begin in a soft body or at a cloth, which would throw them away."""
    meshes = [each for body in bodies for each in zip(body.names, body.media, body.positions, strict=True)]
    for filling in particles:
        reach, x = REACH * _spacing(filling.media[0].params), np.asarray(filling.positions)
        for name, mesh, vertices in meshes:
            near = overlapping(mesh.params.mesh, vertices, x, CLOSE * reach)
            met = {thing: int(near[first:last].sum()) for thing, first, last in filling.spans}
            if found := ", ".join(f"{count} particles of {thing!r}" for thing, count in met.items() if count):
                warnings.warn(
                    f"{found} begin inside {name!r} or nearer to it than {reach:.3g} m, half a spacing: it will throw "
                    "them away, or be turned inside out; move them apart",
                    UserWarning,
                    stacklevel=5,
                )
