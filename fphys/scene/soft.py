"""Deformable things of the native back end: meshes that the rigid bodies hold and move, but that do not push them."""

from types import ModuleType
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ..deformables import fem, mesh, pbd
from ..errors import ModelError
from ..model import Model
from ..model import State as RigidState
from ..render import Flex
from ..tree import Tree, pytree, static
from .compose import resolve
from .lattice import turned
from .materials import FEM, PBD
from .morphs import Cloth, Rope
from .particles import Filling, colliders

Array = jax.Array
State = tuple[fem.State | pbd.State, ...]

SOLVERS: dict[type, ModuleType] = {fem.Params: fem, pbd.Params: pbd}
THIN = 0.002
"""Radius of strands and half the thickness of sheets in images, where the material has none [m]."""


@pytree
class Bodies(Filling):
    """The deformable things of a scene as described. Their state is a tuple, one for each."""

    solver: ClassVar[Any] = None
    params: tuple[fem.Params | pbd.Params, ...]
    positions: tuple[Array, ...]  # of the vertices at the start [m], shape (vertex, 3)
    substeps: int = static(default=1)
    spans: tuple[tuple[str, int, int], ...] = static(default=())
    names: tuple[str, ...] = static(default=())
    colors: tuple[tuple[float, ...], ...] = static(default=())
    geoms: tuple[int, ...] = static(default=())  # geoms that hold cloth and ropes

    def init(self, model: Model, rigid: RigidState) -> State:
        worlds = rigid.qpos.shape[0]
        begin = [jnp.broadcast_to(x, (worlds, *x.shape)) for x in self.positions]
        return tuple(SOLVERS[type(p)].init(p, x) for p, x in zip(self.params, begin, strict=True))

    def step(self, model: Model, rigid: RigidState, state: State) -> State:
        found = tuple(colliders(model, rigid, self.geoms))
        return tuple(
            pbd.step(p, s, colliders=found) if isinstance(p, pbd.Params) else fem.step(p, s)  # type: ignore[arg-type]
            for p, s in zip(self.params, state, strict=True)
        )

    def check(self, state: State) -> None:
        for p, s in zip(self.params, state, strict=True):
            SOLVERS[type(p)].check(p, s)

    def reset(self, state: State, mask: Array, start: State) -> State:
        each = zip(self.params, state, start, strict=True)
        return tuple(SOLVERS[type(p)].reset(p, s, mask, new) for p, s, new in each)

    def vertices(self, state: State, name: str) -> Array:
        """Positions of the vertices of a thing [m], shape (num_worlds, vertex, 3); ModelError if there is none."""
        return state[self.names.index(resolve("deformable thing", name, self.names))].x

    def flexes(self, state: State) -> list[Flex]:
        """What cameras see of them."""
        each = zip(self.params, state, self.colors, strict=True)
        return [Flex(p.mesh.elements, np.asarray(s.x)[None], color, _radius(p)) for p, s, color in each]


def _radius(params: Tree) -> float:
    given = np.max(np.asarray(getattr(params, "thickness", 0.0), float))
    return float(given) / 2 or THIN


def soften(scene: Any, model: Model, geoms: tuple[int, ...]) -> Bodies | None:
    """The deformable things of a scene, or None if it has none; ``geoms`` hold those of position-based dynamics.

    Raises:
        ModelError, UnsupportedError: a mesh cannot be read, or its elements are not those of the material's solver.
    """
    parts = [part for part in scene.parts if isinstance(part.material, FEM | PBD)]
    if not parts:
        return None
    real = model.qpos0.dtype
    bodies = [_mesh(part) for part in parts]
    common = {"timestep": scene.timestep, "gravity": jnp.asarray(scene.gravity, real)}
    params = tuple(
        part.material.params(body.replace(vertices=jnp.asarray(body.vertices, real)), **common)
        for part, body in zip(parts, bodies, strict=True)
    )
    begin = [turned(part.morph.quat, body.vertices) + part.morph.pos for part, body in zip(parts, bodies, strict=True)]
    return Bodies(
        params=params,
        positions=tuple(jnp.asarray(x, real) for x in begin),
        names=tuple(part.name for part in parts),
        colors=tuple(part.surface.rgba for part in parts),
        geoms=geoms if any(isinstance(part.material, PBD) for part in parts) else (),
    )


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
