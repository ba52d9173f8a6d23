"""Which device computes: chosen by argument, by the environment, or by a file.

In this order: a name passed in (``--device``), the variable ``FPHYS_DEVICE``, and a configuration file::

    [fphys]
    device = "cuda:1"     # "cpu", "cuda" or "cuda:N"
    shapes = true         # check the shapes of arguments against signatures (fphys.typing)

One file is read: the one that ``FPHYS_CONFIG`` names, else ``fphys.toml`` in the working folder, else
``fphys/fphys.toml`` in the user's folder of configuration (``$XDG_CONFIG_HOME``, by default ``~/.config``). The folders
above are not searched: who writes there is not always who runs the program.

Where nothing is said JAX decides: the first GPU if there is one, else the CPU.
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
"""A ``jax.Device``: JAX is imported only where it is used."""

_NAME = re.compile(r"(cpu|cuda|gpu)(?::(\d+))?")


class ConfigError(FphysError, ValueError):
    """A configuration file cannot be understood; the text names file and line."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """A device's name and who asked for it. ``name`` is None where nobody did."""

    name: str | None
    source: str


def device_choice(name: str | None = None) -> Choice:
    """What the user asked for, without looking at what is there."""
    if name:
        return Choice(name, "argument")
    if os.environ.get(VARIABLE):
        return Choice(os.environ[VARIABLE], VARIABLE)
    path = config_file()
    if path and (device := read_config(path).get("device")):
        return Choice(device, str(path))
    return Choice(None, "JAX's default")


def select_device(name: str | None = None) -> Device:
    """The device asked for (see the module); :class:`fphys.errors.DeviceError` if it is not there."""
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
        raise DeviceError(f"{_asked(choice)} is not there: {_found()}. {_remedy(platform)}") from cause
    if index >= len(devices):
        raise DeviceError(f"{_asked(choice)} is not there: {_found()}. Choose {', '.join(map(describe, devices))}")
    return devices[index]


def use_device(name: str | None = None) -> Device:
    """Make the device asked for (see the module) the one that JAX computes on from here on."""
    import jax

    device = select_device(name)
    jax.config.update("jax_default_device", device)
    return device


def describe(device: Device) -> str:
    """A device's name as the user would write it, and its kind: ``cuda:0 (NVIDIA H200)``."""
    platform = "cuda" if device.platform == "gpu" else device.platform
    kind = "" if device.device_kind.lower() == platform else f" ({device.device_kind})"
    return platform + (f":{device.id}" if platform != "cpu" or device.id else "") + kind


def config_file(folder: str | os.PathLike[str] | None = None) -> Path | None:
    """The file that is read: the one that FPHYS_CONFIG names, else the first in :func:`config_places`, if any.

    Raises:
        ConfigError: FPHYS_CONFIG names no file.
    """
    if named := os.environ.get(FILE_VARIABLE):
        if not os.path.exists(named) or os.path.isdir(named):
            raise ConfigError(f"{FILE_VARIABLE} names {named}, which is no file: name one, or unset {FILE_VARIABLE}")
        return Path(named)
    return next(filter(os.path.isfile, config_places(folder)), None)


def config_places(folder: str | os.PathLike[str] | None = None) -> list[Path]:
    """Where ``fphys.toml`` is looked for, in this order: ``folder`` (the working folder), the user's configuration."""
    usual = {"win32": "~/AppData/Roaming", "darwin": "~/Library/Application Support"}.get(sys.platform, "~/.config")
    users = os.environ.get("XDG_CONFIG_HOME", "")
    users = users if os.path.isabs(users) else os.path.expanduser(usual)  # stays as it is where there is no home
    here = [Path(os.path.abspath(folder or os.curdir), FILE)]
    return here + [Path(users, "fphys", FILE)] * os.path.isabs(users)


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The table ``[fphys]`` of a file: its keys are ``device`` and ``shapes``; ConfigError says what is wrong."""
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
    """What to do about a GPU that JAX does not see."""
    if platform == "cpu":
        return "JAX_PLATFORMS excludes the CPU: unset it"
    if "cuda" not in (allowed := os.environ.get("JAX_PLATFORMS", "cuda")):
        return f"JAX_PLATFORMS={allowed} excludes GPUs: unset it, or choose cpu"
    if not any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (12, 13)):
        return f"JAX has no CUDA support here: {install('cuda')}, or choose cpu"
    if not Path("/proc/driver/nvidia/version").exists():
        return "There is no NVIDIA driver: install one (nvidia-smi must work), or choose cpu"
    return "JAX cannot use the NVIDIA driver: see that it is recent enough (nvidia-smi), or choose cpu"
