"""Which inputs of an operation need a gradient, carried from its forward rule to its backward rule.

JAX keeps one tree of what a forward rule saves, though it traces the rule once for every set of perturbed inputs and
calls the backward rules later. A static value in that tree is therefore another trace's as soon as one function, jitted
or under ``jax.checkpoint``, is differentiated by two of its arguments: the gradient is zero, without an error. Shapes
belong to the trace. So the flags are saved as the shapes of arrays without elements.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

_BITS = 30  # flags an array; above them a one, that says how many there are


def save(flags: Sequence[bool]) -> list[jax.Array]:
    """Flags as arrays of no elements, to be put among what a forward rule saves."""
    chunks = [flags[i : i + _BITS] for i in range(0, len(flags), _BITS)]
    codes = [sum(1 << i for i, flag in enumerate((*chunk, True)) if flag) for chunk in chunks]
    return [jnp.zeros((0, code), bool) for code in codes]


def load(saved: Sequence[jax.Array]) -> tuple[bool, ...]:
    """What :func:`save` was given."""
    codes = [array.shape[1] for array in saved]
    return tuple(bool(code >> i & 1) for code in codes for i in range(code.bit_length() - 1))
