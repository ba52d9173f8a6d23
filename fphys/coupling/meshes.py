"""The border of rigid bodies with cloth, ropes and soft solids: geoms that keep vertices out."""

import jax

from ..deformables import pbd
from ..model import Model
from ..particles.response import Response
from ..tree import Tree, pytree, static
from .exchange import Pose
from .particles import colliders, geoms_of

Array = jax.Array


@pytree
class PBD(Tree):
    """Cloth, a rope or a soft solid by XPBD, and the geoms that touch it. ``params.substeps`` is 1."""

    params: pbd.Params
    geoms: tuple[str | int, ...] = static()  # their names or numbers
    contact: str = static(default="separate")  # or "sticky"

    @property
    def holds(self) -> bool:
        return True

    def bodies(self, model: Model) -> set[int]:
        return {int(model.structure.geom.body[g]) for g in geoms_of(model, self.geoms)}

    def exchange(
        self, model: Model, matter: pbd.State, pose: Pose, response: Response, numbers: tuple[int, ...]
    ) -> tuple[pbd.State, Array]:
        shapes, of = colliders(model, self.geoms, pose, numbers, self.contact)
        return pbd.exchange(self.params, matter, shapes, response.replace(body=of))
