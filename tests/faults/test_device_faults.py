"""A requested device that is absent, or a configuration that cannot be read: one clear line, no traceback."""

import os
import subprocess
import sys

import pytest

from fphys import config
from fphys.errors import DeviceError


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(config.VARIABLE, raising=False)
    return tmp_path


@pytest.fixture
def no_gpu(monkeypatch):
    """JAX without a GPU, even if this machine has one."""
    import jax

    cpus = jax.devices("cpu")

    def devices(platform=None):
        if platform not in (None, "cpu"):
            raise RuntimeError(f"Unknown backend {platform}")
        return cpus

    monkeypatch.setattr(jax, "devices", devices)


def test_an_absent_gpu_names_who_asked_what_is_there_and_the_fix(project, no_gpu, monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(config.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        DeviceError, match=r"'cuda' \(asked for by argument\).*JAX finds cpu.*pip install -e \"\.\[cuda\]"
    ):
        config.select_device("cuda")
    monkeypatch.setenv(config.VARIABLE, "cuda:1")
    with pytest.raises(DeviceError, match=r"'cuda:1' \(asked for by FPHYS_DEVICE\)"):
        config.select_device()
    monkeypatch.delenv(config.VARIABLE)
    (project / config.FILE).write_text('[fphys]\ndevice = "cuda"\n')
    with pytest.raises(DeviceError, match=r"asked for by .*fphys\.toml\)"):
        config.select_device()


def test_the_fix_follows_the_cause(no_gpu, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    with pytest.raises(DeviceError, match="JAX_PLATFORMS=cpu excludes GPUs"):
        config.select_device("cuda")
    monkeypatch.delenv("JAX_PLATFORMS")
    monkeypatch.setattr(config.importlib.util, "find_spec", lambda name: object())
    with pytest.raises(DeviceError, match="NVIDIA driver"):
        config.select_device("cuda")


def test_a_number_too_high_names_those_that_exist():
    with pytest.raises(DeviceError, match=r"'cpu:99'.*Choose cpu"):
        config.select_device("cpu:99")


@pytest.mark.parametrize("name", ["tpu", "cuda:", "cuda:-1", "1", "cuda:x"])
def test_an_unknown_device_lists_the_known_ones(name):
    with pytest.raises(DeviceError, match='use "cpu", "cuda" or "cuda:N"'):
        config.select_device(name)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ('[fphys]\ndevice = "cpu\n', "line 2", "TOML"),
        ("[fphys]\n\ndevice = 3\n", "line 3", "device is 3"),
        ('[fphys]\ndevice = "gpux"\n', "line 2", "gpux"),
        ('# ours\n[fphys]\ndevcie = "cpu"\n', "line 3", "unknown setting 'devcie'"),
        ('[fphis]\ndevice = "cpu"\n', "line 1", "unknown entry 'fphis'"),
        ('\nfphys = "cpu"\n', "line 2", "must be a table"),
    ],
)
def test_a_bad_file_is_named_with_its_line(project, text, line, problem):
    (project / config.FILE).write_text(text)
    with pytest.raises(config.ConfigError) as error:
        config.device_choice()
    for part in (str(project / config.FILE), line, problem):
        assert part in str(error.value)


def test_a_file_that_is_not_text_is_named(project):
    (project / config.FILE).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(config.ConfigError, match="not a readable TOML file"):
        config.device_choice()


def test_the_command_ends_with_one_line(project):
    done = subprocess.run(
        [sys.executable, "-m", "fphys.cli", "simulate", "double-pendulum", "--device", "cuda"],
        capture_output=True, text=True, timeout=120, env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("error: device 'cuda'")
    assert len(done.stderr.splitlines()) == 1
