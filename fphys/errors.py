"""The errors that fphys raises: each says what is wrong, why, and how to mend it."""

from pathlib import Path

_CHECKOUT = Path(__file__).parents[1]


class FphysError(Exception):
    """Base of every error that fphys raises on purpose."""


class BridgeError(FphysError, RuntimeError):
    """A Warp operation could not be built or launched; the text names the operation and the cause."""


class PrecisionError(BridgeError, TypeError):
    """An array has another dtype than a kernel takes, or one call mixes precisions; nothing is cast silently."""


class PlacementError(BridgeError, TypeError):
    """An array lies where the other side cannot use it: device, strides, alignment; nothing is moved silently."""


class ModelError(FphysError, ValueError):
    """A model cannot be loaded or is not physical; the text names every offending element."""


class UnsupportedError(ModelError):
    """A model asks for a feature that fphys does not simulate; the text names every one of them."""


class StateError(FphysError, RuntimeError):
    """A simulated world is in a faulty state; the text names world, field and the number to change."""


class MissingDependencyError(FphysError, ImportError):
    """An optional package is not installed; the text says what to install."""


def install(extra: str) -> str:
    """How to get the packages of an extra: in a checkout, or from the address that pip had; fphys is on no index."""
    if (_CHECKOUT / "pyproject.toml").is_file():
        return f'pip install -e ".[{extra}]" in a checkout of fphys'
    return f'pip install "fphys[{extra}] @ git+URL", the URL from which fphys was installed'


class DeviceError(FphysError, RuntimeError):
    """The device that was asked for is not there."""


class UnitError(FphysError, TypeError):
    """A quantity is of another kind than is needed; the text says what was expected."""
