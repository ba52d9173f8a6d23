"""Deforming meshes in images."""

import dataclasses
from typing import Any

import numpy as np

PALETTE = ((0.16, 0.43, 0.71), (0.93, 0.42, 0.16), (0.23, 0.62, 0.43), (0.54, 0.37, 0.69))


@dataclasses.dataclass(frozen=True, eq=False)
class Flex:
    """A mesh that moves, for :func:`fphys.render.frames`.

    Edges are drawn as round strands, triangles as a sheet, tetrahedra by their surface. What is in a plane is drawn
    upright, with its y up.
    """

    elements: Any  # Vertices of each element, shape (element, 2 | 3 | 4), as ``mesh.elements``.
    x: Any  # Positions [m], shape (time, world, vertex, 2 | 3), as those of stacked states.
    color: tuple[float, ...] = PALETTE[0]  # Red, green, blue, and opacity if it is not 1; each 0 to 1.
    radius: float = 1e-3  # Of strands, and half the thickness of sheets [m].

    def path(self, world: int, every: int = 1) -> np.ndarray:
        """Where one world's vertices are in space [m], shape (time, vertex, 3); the last finite place if lost.

        Raises:
            ValueError: a shape does not fit, there is no such world, or the first positions are not finite.
        """
        x, e = np.asarray(self.x, float), np.asarray(self.elements)
        if x.ndim != 4 or 0 in x.shape or x.shape[3] not in (2, 3):
            raise ValueError(f"a flex's x has shape {x.shape}, must be (time, world, vertex, 2 or 3)")
        if e.ndim != 2 or e.shape[1] not in (2, 3, 4) or not len(e) or not 0 <= e.min() <= e.max() < x.shape[2]:
            raise ValueError(
                f"a flex's elements have shape {e.shape}, must be (element, 2, 3 or 4), numbers of its {x.shape[2]} "
                "vertices"
            )
        if not 0 <= world < x.shape[1]:
            raise ValueError(f"world is {world}, the flex has worlds 0 to {x.shape[1] - 1}")
        x = x[::every, world]
        if x.shape[2] == 2:
            x = np.stack([x[..., 0], np.zeros(x.shape[:2]), x[..., 1]], -1)
        finite = np.asarray(np.isfinite(x).all((1, 2)))
        if not finite[0]:
            raise ValueError(f"the first positions of the flex in world {world} are not finite: nothing can be drawn")
        return x[np.maximum.accumulate(np.where(finite, np.arange(len(x)), 0))]
