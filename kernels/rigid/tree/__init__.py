"""Kernels of the tree of bodies: poses, motions, inertia, integration."""
