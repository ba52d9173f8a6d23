"""How velocities pass from the grid to the particles, in the material point method."""

from typing import Any

from ..tree import Tree, pytree

__all__ = ["AffineFlip", "Apic", "Transfer"]


@pytree
class Apic(Tree):
    """The affine particle-in-cell method (Jiang et al. 2015): v = sum(w v_i'), v_i' the nodes' velocity after the step.

    It conserves linear and angular momentum. What the grid does not represent is lost in each step, and so energy is.
    """


@pytree
class AffineFlip(Tree):
    """APIC that keeps a share of what the grid does not represent: v = sum(w v_i') + keep (v - sum(w v_i)).

    v_i is the nodes' velocity before forces and contacts. Particles move by sum(w v_i') and C is APIC's, so only the
    velocity that the particle carries differs: AFLIP of Fei et al. 2021 ("Revisiting integration in the material point
    method"), after FLIP (Brackbill and Ruppel 1986). Disks that collide lose two fifths of the energy that they lose
    with APIC. Linear momentum is conserved to rounding, angular momentum only to the order of the grid. A step takes
    twice as long. Gradients flow to ``keep``.
    """

    keep: Any = 0.95  # 0 to 1, shape () or (1 | world,); 1 is FLIP, which never forgets noise


Transfer = Apic | AffineFlip
