"""ORT's own format, which onnxruntime's mobile builds read."""

import os
from pathlib import Path

from ..errors import MissingDependencyError, install
from .errors import ExportError


def to_ort(onnx: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """Convert an ONNX file into an ``.ort`` file beside it, or at ``path``, with its graph optimised for loading.

    ``onnxruntime.InferenceSession`` runs it anywhere, without JAX and without ``fphys``.

    Raises:
        ExportError: the file cannot be read or converted. MissingDependencyError: onnxruntime is not installed.
    """
    try:
        import onnxruntime
    except ImportError as cause:
        raise MissingDependencyError(f"onnxruntime is not installed: {install('onnx')}") from cause
    onnx = Path(onnx)
    path = Path(path) if path else onnx.with_suffix(".ort")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    options.optimized_model_filepath = str(path)
    # The basic level fuses into standard operators only, which every build has.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.add_session_config_entry("session.save_model_format", "ORT")
    try:
        onnxruntime.InferenceSession(str(onnx), options, providers=["CPUExecutionProvider"])
    except Exception as cause:
        raise ExportError(f"{onnx} cannot be converted: {cause}") from cause
    return path
