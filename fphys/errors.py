"""The errors that fphys raises. Each says what is wrong, why, and how to fix it."""

from pathlib import Path

_CHECKOUT = Path(__file__).parents[1]


class FphysError(Exception):
    """Base class of the errors that fphys raises on purpose."""


class BridgeError(FphysError, RuntimeError):
    """A Warp operation could not be built or launched; the message names the operation and the cause."""


class PrecisionError(BridgeError, TypeError):
    """An array's dtype is not the kernel's, or one call mixes precisions. Nothing is cast silently."""


class PlacementError(BridgeError, TypeError):
    """An array is where the other side cannot use it: device, strides or alignment. Nothing is moved silently."""


class ModelError(FphysError, ValueError):
    """A model cannot be loaded or is not physical; the message names every faulty element."""


class UnsupportedError(ModelError):
    """A model uses features that fphys does not simulate; the message names all of them."""


class StateError(FphysError, RuntimeError):
    """A simulated world is faulty; the message names world and field, and what to change."""


class MissingDependencyError(FphysError, ImportError):
    """An optional package is not installed; the message says what to install."""


def install(extra: str) -> str:
    """The pip command for an extra: in a checkout, or from fphys's URL, because fphys is on no package index."""
    if (_CHECKOUT / "pyproject.toml").is_file():
        return f'pip install -e ".[{extra}]" in a checkout of fphys'
    return f'pip install "fphys[{extra}] @ git+URL", the URL from which fphys was installed'


class DeviceError(FphysError, RuntimeError):
    """The requested device is not available."""


class UnitError(FphysError, TypeError):
    """A quantity is of the wrong kind; the message says what was expected."""
