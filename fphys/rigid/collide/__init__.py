"""Collision: searches for contacts, their geometry, and rays."""
