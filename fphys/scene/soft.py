"""Deformable things of the native back end: meshes that push the rigid bodies and are pushed by them."""

import itertools
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import coupling
from ..deformables import fem, mesh, pbd
from ..errors import ModelError
from ..model import Model
from ..model import State as RigidState
from ..render import Flex, Grains
from ..tree import Tree, pytree, static
from .compose import resolve
from .lattice import turned
from .materials import FEM, PBD
from .morphs import Cloth, Rope
from .particles import SOLVERS, Filling
from .ranges import Balls, Triangles

Array = jax.Array
THIN = 0.002
"""Radius of strands and half the thickness of sheets in images, where the material has none [m]."""
NEAR = 1e-6
"""Things whose shadows along gravity are nearer than this are in each other's way [m]."""


@pytree
class Bodies(Filling):
    """The deformable things of a scene as described."""

    media: tuple[coupling.FEM | coupling.PBD, ...]
    positions: tuple[Array, ...]  # of the vertices at the start [m], shape (vertex, 3)
    substeps: int = static(default=1)
    kinds: tuple[str, ...] = static(default=())
    things: tuple[str, ...] = static(default=())  # their names
    colors: tuple[tuple[float, ...], ...] = static(default=())

    @property
    def names(self) -> tuple[str, ...]:
        return self.things

    def counts(self) -> dict[str, Any]:
        each = zip(self.kinds, self.positions, strict=True)
        found: dict[str, Any] = {}
        for kind, x in each:
            found[kind] = (*found.get(kind, ()), len(x))
        return found

    def start(self, model: Model, rigid: RigidState) -> tuple[Any, ...]:
        begin = [jnp.broadcast_to(x, (rigid.qpos.shape[0], *x.shape)) for x in self.positions]
        each = zip(self.kinds, self.media_in(model), begin, strict=True)
        return tuple(SOLVERS[kind].init(medium.params, x) for kind, medium, x in each)

    def vertices(self, state: Any, name: str) -> Array:
        """Positions of the vertices of a thing [m], shape (num_worlds, vertex, 3); ModelError if there is none."""
        return self.matter(state)[self.names.index(resolve("deformable thing", name, self.names))].x

    def seen(self, state: Any) -> list[Balls | Triangles]:
        """What rays see of them: triangles, and of tetrahedra the surface; of ropes nothing, which are refused."""
        found = []
        for medium, matter in zip(self.media, self.matter(state), strict=True):
            topology = medium.params.mesh.topology
            corners = topology.surface if topology.corners == 4 else medium.params.mesh.elements
            found.append(Triangles(matter.x, np.asarray(corners)))
        return found

    def flexes(self, state: Any, world: int) -> list[Flex | Grains]:
        """What cameras see of them."""
        each = zip(self.media, self.matter(state), self.colors, strict=True)
        return [Flex(m.params.mesh.elements, np.asarray(s.x)[None], color, _radius(m.params)) for m, s, color in each]


def _radius(params: Tree) -> float:
    given = getattr(params, "thickness", None)
    return THIN if given is None else float(np.max(np.asarray(given, float))) / 2 or THIN


def _params(part: Any, body: Any, common: dict[str, Any]) -> fem.Params | pbd.Params:
    try:
        params = part.material.params(body, **common)
        SOLVERS["pbd" if isinstance(part.material, PBD) else "fem"].init(params)  # its numbers
        return params
    except (TypeError, ValueError) as error:
        raise ModelError(f"{part.name!r}: {error}") from error


def soften(scene: Any, model: Model, geoms: tuple[int, ...]) -> Bodies | None:
    """The deformable things of a scene, or None if it has none; ``geoms`` hold those of position-based dynamics.

    Raises:
        ModelError: a mesh cannot be read, or it and its material do not fit; the error names the thing.
    """
    parts = [part for part in scene.parts if isinstance(part.material, FEM | PBD)]
    if not parts:
        return None
    real = model.qpos0.dtype
    bodies = [_mesh(part) for part in parts]
    common = {"timestep": scene.timestep, "gravity": jnp.asarray(scene.gravity, real)}
    found = [
        _params(part, body.replace(vertices=jnp.asarray(body.vertices, real)), common)
        for part, body in zip(parts, bodies, strict=True)
    ]
    substeps = max(getattr(params, "substeps", 1) for params in found)
    media = tuple(_medium(params.replace(timestep=scene.timestep / substeps), geoms) for params in found)
    begin = [turned(part.morph.quat, body.vertices) + part.morph.pos for part, body in zip(parts, bodies, strict=True)]
    _warn_of_meetings(parts, begin, np.asarray(scene.gravity))
    return Bodies(
        media=media,
        positions=tuple(jnp.asarray(x, real) for x in begin),
        things=tuple(part.name for part in parts),
        colors=tuple(part.surface.rgba for part in parts),
        substeps=substeps,
        kinds=tuple("pbd" if isinstance(part.material, PBD) else "fem" for part in parts),
    )


def _warn_of_meetings(parts: list[Any], begin: list[np.ndarray], gravity: np.ndarray) -> None:
    """Warn of things of which one hangs above the other along gravity, as far as boxes around them tell."""
    down = gravity / max(float(np.linalg.norm(gravity)), np.finfo(float).tiny)
    shadows = [x - np.multiply.outer(x @ down, down) for x in begin]
    for (one, a), (other, b) in itertools.combinations(zip(parts, shadows, strict=True), 2):
        if (np.maximum(a.min(0), b.min(0)) <= np.minimum(a.max(0), b.max(0)) + NEAR).all():
            warnings.warn(
                f"{one.name!r} and {other.name!r} are in each other's way along gravity, and would pass through each "
                "other: things that deform do not feel each other in a scene; move one aside, or step both as one "
                "mesh with fphys.deformables, where `apart` of pbd and `pairs` of fem keep its parts from each other",
                UserWarning,
                stacklevel=5,
            )


def _medium(params: fem.Params | pbd.Params, geoms: tuple[int, ...]) -> coupling.FEM | coupling.PBD:
    if isinstance(params, pbd.Params):
        return coupling.PBD(params.replace(substeps=1), geoms)
    return coupling.FEM(params, geoms)


def _mesh(part: Any) -> mesh.Mesh:
    """The mesh of a thing in its own frame; the origin of cloth and rope is their middle."""
    match part.morph:
        case Cloth(size=size, cells=cells):
            body = mesh.cloth(cells, size)
            return body.replace(vertices=body.vertices - [size[0] / 2, size[1] / 2, 0.0])
        case Rope(length=length, cells=cells):
            body = mesh.rope(cells, length)
            return body.replace(vertices=body.vertices - [length / 2, 0.0, 0.0])
    try:
        body = mesh.load(part.morph.file)
    except ModelError as error:
        raise ModelError(f"{part.name!r}: {error}") from error
    return body.replace(vertices=part.morph.scale * body.vertices)
