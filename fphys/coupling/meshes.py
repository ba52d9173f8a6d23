"""The borders of rigid bodies with cloth, ropes and soft solids: geoms that keep vertices out."""

import jax
import jax.numpy as jnp

from ..deformables import fem, pbd
from ..model import Model
from ..particles.response import Response, carried
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
        if not shapes:
            return pbd.step(self.params, matter), jnp.zeros_like(response.twist)
        return pbd.exchange(self.params, matter, shapes, response.replace(body=of))


@pytree
class FEM(Tree):
    """A soft body by finite elements, and the geoms that touch it.

    The exchange is staggered: a substep of the body meets the geoms as they would move without it. It is stable while
    the geoms' bodies are heavier than the square of the substep times the stiffness of the contact.
    """

    params: fem.Params
    geoms: tuple[str | int, ...] = static()  # their names or numbers

    @property
    def holds(self) -> bool:
        return True

    def bodies(self, model: Model) -> set[int]:
        return {int(model.structure.geom.body[g]) for g in geoms_of(model, self.geoms)}

    def exchange(
        self, model: Model, matter: fem.State, pose: Pose, response: Response, numbers: tuple[int, ...]
    ) -> tuple[fem.State, Array]:
        shapes, of = colliders(model, self.geoms, pose, numbers, "separate")
        if not shapes:
            return fem.step(self.params, matter), jnp.zeros_like(response.twist)
        shapes = carried(shapes, response.replace(body=of), response.twist)
        after = fem.step(self.params, matter, colliders=shapes)
        wrench = fem.reactions(self.params, matter, after, shapes)
        arm = jnp.stack([c.pos for c in shapes], 1) - pose.pos[:, list(of)]
        wrench = wrench.at[..., 3:].add(jnp.cross(arm, wrench[..., :3]))
        h = jnp.asarray(self.params.timestep, wrench.dtype).reshape(-1, 1, 1)
        return after, jnp.zeros_like(response.twist).at[:, list(of)].add(h * wrench)
