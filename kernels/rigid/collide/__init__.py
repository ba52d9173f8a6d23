"""Kernels of collision: searches for contacts, their geometry, and rays."""
