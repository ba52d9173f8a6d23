"""Which inputs of an operation need a gradient, carried from its forward rule to its backward rule.

JAX keeps one tree of what a forward rule saves, though it traces the rule once for every set of perturbed inputs and
calls the backward rules later. So if one function, jitted or under ``jax.checkpoint``, is differentiated with respect
to two of its arguments, a static value in that tree may come from the other trace: the gradient is then zero, without
an error. Shapes belong to the trace. So the flags are saved as the shapes of arrays without elements.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

_BITS = 30  # flags per array; a leading one above them marks how many there are


def save(flags: Sequence[bool]) -> list[jax.Array]:
    """Flags as empty arrays, to be stored among the residuals of a forward rule."""
    chunks = [flags[i : i + _BITS] for i in range(0, len(flags), _BITS)]
    codes = [sum(1 << i for i, flag in enumerate((*chunk, True)) if flag) for chunk in chunks]
    return [jnp.zeros((0, code), bool) for code in codes]


def load(saved: Sequence[jax.Array]) -> tuple[bool, ...]:
    """The flags that :func:`save` was given."""
    codes = [array.shape[1] for array in saved]
    return tuple(bool(code >> i & 1) for code in codes for i in range(code.bit_length() - 1))
