"""The error of export and import."""

from ..errors import FphysError


class ExportError(FphysError, RuntimeError):
    """A model cannot be exported or imported; the message names the operation or file, and what to do."""
