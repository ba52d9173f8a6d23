"""What cannot leave, or come in."""

from ..errors import FphysError


class ExportError(FphysError, RuntimeError):
    """A model cannot be exported or imported; the text names the operation or the file, and what to do."""
