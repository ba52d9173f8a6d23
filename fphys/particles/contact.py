"""Contact between bodies that move on grids of their own, in the material point method."""

import operator
from typing import Any

from ..tree import Tree, pytree, static

__all__ = ["Contact"]


@pytree
class Contact(Tree):
    """Bodies that separate and slide, because each has its own velocities at the nodes (Bardenhagen et al. 2001).

    On one grid, what touches the same node sticks together. Here two bodies act on each other only where they fill a
    node together (9/10 of a cell, volumes at rest) and approach:

        u = v_a - v_b,  n = g / |g|,  g = s_a grad f_a - s_b grad f_b,  f the share of a cell that a body fills

    Where u . n < 0, an impulse m_a m_b / (m_a + m_b) takes u . n away, and of what slides up to ``friction`` times as
    much (Coulomb). Momentum is conserved to rounding. More than two bodies meet by pairs, in their order.

    A node's slopes scatter about the normal of a round surface, and that costs energy as friction does. ``smooth`` is
    how often grad f is replaced by its mean over neighbouring nodes (1/4, 1/2, 1/4 along each axis).

    A corner turns the normal beside it, more so if it is smoothed, and holds back what slides: of a block on a flat
    bed give the bed alone a share, ``normal=(0.0, 1.0)`` (Huang et al. 2011). ``normal`` is a weight for each body, not
    a direction; two bodies of weight zero would have no normal between them, and are refused.

    With affine FLIP, what stops approaching bodies is no change of the nodes that particles take over: they keep that
    velocity as on one grid, and stress takes it from them. Gradients flow to ``friction`` and ``normal``, and through
    places, volumes and motion; not through which nodes are in contact.
    """

    sizes: tuple[int, ...] = static()  # particles of each body, which follow one another
    friction: Any = 0.0  # Coulomb's coefficient, shape () or (1 | world,)
    normal: Any = 1.0  # share s of each body in the normals, at most one zero, shape (), (body,) or (1 | world, body)
    smooth: int = static(default=0)  # how often normals are evened out: 1 for round bodies, 0 for corners

    def __post_init__(self) -> None:
        try:
            good = len(self.sizes) > 0 and all(operator.index(n) > 0 for n in self.sizes)
        except TypeError:
            good = False
        if not good:
            raise ValueError(f"contact.sizes is {self.sizes!r}: give the number of particles of each body, (400, 300)")
        object.__setattr__(self, "sizes", tuple(map(int, self.sizes)))
        if isinstance(self.smooth, bool) or not isinstance(self.smooth, int) or self.smooth < 0:
            raise ValueError(f"contact.smooth is {self.smooth!r}: give a whole number, 0 or more; 1 for round bodies")
