"""Choose the device by argument, by environment variable, or by file.

The order is: a name passed in (``--device``), the variable ``FPHYS_DEVICE``, then a configuration file::

    [fphys]
    device = "cuda:1"     # "cpu", "cuda" or "cuda:N"
    shapes = true         # check argument shapes against signatures (fphys.typing)

One file is read: the one that ``FPHYS_CONFIG`` names, otherwise ``fphys.toml`` in the working folder, otherwise
``fphys/fphys.toml`` in the user's configuration folder (``$XDG_CONFIG_HOME``, by default ``~/.config``). Parent folders
are not searched, because other users may be able to write there.

By default JAX decides: the first GPU if there is one, otherwise the CPU.
"""

import dataclasses
import importlib.util
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from .errors import DeviceError, FphysError, install

VARIABLE = "FPHYS_DEVICE"
FILE_VARIABLE = "FPHYS_CONFIG"
FILE = "fphys.toml"
Device = Any
"""A ``jax.Device``. JAX is imported only when needed."""

_NAME = re.compile(r"(cpu|cuda|gpu)(?::(\d+))?")


class ConfigError(FphysError, ValueError):
    """A configuration file is not valid; the message names file and line."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """A device's name and who asked for it. ``name`` is None if nobody did."""

    name: str | None
    source: str


def device_choice(name: str | None = None) -> Choice:
    """The device that the user asked for, without checking that it exists."""
    if name:
        return Choice(name, "argument")
    if os.environ.get(VARIABLE):
        return Choice(os.environ[VARIABLE], VARIABLE)
    path = config_file()
    if path and (device := read_config(path).get("device")):
        return Choice(device, str(path))
    return Choice(None, "JAX's default")


def select_device(name: str | None = None) -> Device:
    """The requested device (see the module). Raises :class:`fphys.errors.DeviceError` if it is not available."""
    import jax

    choice = device_choice(name)
    if choice.name is None:
        return jax.devices()[0]
    match = _NAME.fullmatch(choice.name.strip().lower())
    if match is None:
        raise DeviceError(f'{_asked(choice)} is not the name of a device: use "cpu", "cuda" or "cuda:N"')
    platform, index = "cpu" if match[1] == "cpu" else "cuda", int(match[2] or 0)
    try:
        devices = jax.devices(platform)
    except RuntimeError as cause:
        raise DeviceError(f"{_asked(choice)} is not available: {_found()}. {_remedy(platform)}") from cause
    if index >= len(devices):
        raise DeviceError(f"{_asked(choice)} is not available: {_found()}. Choose {', '.join(map(describe, devices))}")
    return devices[index]


def use_device(name: str | None = None) -> Device:
    """Make the requested device (see the module) JAX's default device, and return it."""
    import jax

    device = select_device(name)
    jax.config.update("jax_default_device", device)
    return device


def describe(device: Device) -> str:
    """A device's name as the user writes it, with its kind: ``cuda:0 (NVIDIA H200)``."""
    platform = "cuda" if device.platform == "gpu" else device.platform
    kind = "" if device.device_kind.lower() == platform else f" ({device.device_kind})"
    return platform + (f":{device.id}" if platform != "cpu" or device.id else "") + kind


def config_file(folder: str | os.PathLike[str] | None = None) -> Path | None:
    """The file to read: the one that FPHYS_CONFIG names, otherwise the first that exists of :func:`config_places`.

    Raises:
        ConfigError: FPHYS_CONFIG does not name a file.
    """
    if named := os.environ.get(FILE_VARIABLE):
        if not os.path.exists(named) or os.path.isdir(named):
            raise ConfigError(f"{FILE_VARIABLE} names {named}, which is not a file: name one, or unset {FILE_VARIABLE}")
        return Path(named)
    return next(filter(os.path.isfile, config_places(folder)), None)


def config_places(folder: str | os.PathLike[str] | None = None) -> list[Path]:
    """Where ``fphys.toml`` may be, in order: ``folder`` (the working folder), the user's configuration folder."""
    usual = {"win32": "~/AppData/Roaming", "darwin": "~/Library/Application Support"}.get(sys.platform, "~/.config")
    users = os.environ.get("XDG_CONFIG_HOME", "")
    users = users if os.path.isabs(users) else os.path.expanduser(usual)  # unchanged if there is no home folder
    here = [Path(os.path.abspath(folder or os.curdir), FILE)]
    return here + [Path(users, "fphys", FILE)] * os.path.isabs(users)


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The ``[fphys]`` table of a file, with keys ``device`` and ``shapes``. Raises ConfigError if it is not valid."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as cause:
        raise ConfigError(f"{path}: not a readable TOML file: {cause}") from cause

    def fail(key: str, problem: str) -> None:
        pattern = re.compile(rf"\s*\[?\s*[\"']?{re.escape(key)}\b")
        line = next((i for i, row in enumerate(text.splitlines(), 1) if pattern.match(row)), 1)
        raise ConfigError(f"{path}, line {line}: {problem}")

    for key in content:
        if key != "fphys":
            fail(key, f"unknown entry {key!r}; everything belongs under [fphys]")
    table = content.get("fphys", {})
    if not isinstance(table, dict):
        fail("fphys", "fphys must be a table: [fphys]")
    for key, value in table.items():
        if key not in ("device", "shapes"):
            fail(key, f"unknown setting {key!r}; known are: device, shapes")
        if key == "shapes" and not isinstance(value, bool):
            fail(key, f"shapes is {value!r}; it must be true or false")
        if key == "device" and not (isinstance(value, str) and _NAME.fullmatch(value.strip().lower())):
            fail(key, f'device is {value!r}; it must be "cpu", "cuda" or "cuda:N"')
    return table


def _asked(choice: Choice) -> str:
    return f"device {choice.name!r} (asked for by {choice.source})"


def _found() -> str:
    import jax

    return "JAX finds " + ", ".join(describe(device) for device in jax.devices())


def _remedy(platform: str) -> str:
    """What to do if JAX does not see a GPU."""
    if platform == "cpu":
        return "JAX_PLATFORMS excludes the CPU: unset it"
    if "cuda" not in (allowed := os.environ.get("JAX_PLATFORMS", "cuda")):
        return f"JAX_PLATFORMS={allowed} excludes GPUs: unset it, or choose cpu"
    if not any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (12, 13)):
        return f"JAX has no CUDA support here: {install('cuda')}, or choose cpu"
    if not Path("/proc/driver/nvidia/version").exists():
        return "There is no NVIDIA driver: install one (nvidia-smi must work), or choose cpu"
    return "JAX cannot use the NVIDIA driver: check that it is recent enough (nvidia-smi), or choose cpu"
