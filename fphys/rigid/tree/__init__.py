"""The tree of bodies: poses and motions, and the sparse mass matrix."""
