"""Working memory of large models."""

from typing import Any

from ..errors import ModelError

NO_MEMORY = "Could not allocate memory"
"""What MuJoCo says if a machine does not give the memory that it reserves: 12 bytes for each pair of dofs, 36 GB for
5,000 free bodies, of which it touches little."""
WORKING = 2**30
"""Bytes that it is asked to reserve then."""


def with_less(spec: Any, label: str) -> Any:
    """The compiled model of a spec, with less working memory; ModelError if that does not help."""
    if spec.memory >= 0:
        raise ModelError(f"{label}: {NO_MEMORY}: ask for less than {spec.memory} bytes in <size>")
    spec.memory = WORKING
    try:
        return spec.compile()
    except ValueError as error:
        raise ModelError(f"{label}: {str(error).strip()}") from error
