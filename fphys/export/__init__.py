"""Models outside JAX: ONNX export and import, ``jax.export``, ORT's format for phones, weights for torch.

Nothing here is differentiable except the functions that :func:`from_onnx` returns.
"""

from .errors import ExportError
from .mobile import to_ort
from .onnx_import import from_onnx
from .onnx_out import to_onnx
from .program import load_program, save_program
from .weights import load_weights, save_weights, torch_state

__all__ = [
    "ExportError",
    "from_onnx",
    "load_program",
    "load_weights",
    "save_program",
    "save_weights",
    "to_onnx",
    "to_ort",
    "torch_state",
]
