"""Constraints and the solver: contacts, limits, friction, equalities."""
