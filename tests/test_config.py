import os
import subprocess
import sys

import pytest

from fphys import config, doctor


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty working folder, a user without configuration, and none of fphys's environment variables."""
    folder = tmp_path / "above" / "project"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    for variable in (config.VARIABLE, config.FILE_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    return folder


def write(folder, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / config.FILE).write_text(text)


def test_argument_then_environment_then_file(project, monkeypatch):
    assert config.device_choice() == config.Choice(None, "JAX's default")
    write(project, '[fphys]\ndevice = "cuda:1"\n')
    assert config.device_choice() == config.Choice("cuda:1", str(project / config.FILE))
    monkeypatch.setenv(config.VARIABLE, "cuda")
    assert config.device_choice() == config.Choice("cuda", config.VARIABLE)
    assert config.device_choice("cpu") == config.Choice("cpu", "argument")


def test_the_file_that_is_named_then_the_working_folders_then_the_users(project, tmp_path, monkeypatch):
    assert config.config_file() is None
    write(tmp_path / "user" / "fphys", '[fphys]\ndevice = "cuda:1"\n')
    assert config.device_choice() == config.Choice("cuda:1", str(tmp_path / "user" / "fphys" / config.FILE))
    write(project, '[fphys]\ndevice = "cuda:2"\n')
    assert config.device_choice() == config.Choice("cuda:2", str(project / config.FILE))
    (tmp_path / "other.toml").write_text('[fphys]\ndevice = "cuda:3"\n')
    monkeypatch.setenv(config.FILE_VARIABLE, str(tmp_path / "other.toml"))
    assert config.device_choice() == config.Choice("cuda:3", str(tmp_path / "other.toml"))


def test_a_parents_file_is_not_read(project):
    for folder in project.parents[:3]:
        write(folder, '[fphys]\ndevice = "cuda"\n')
    assert config.config_file() is None and config.device_choice().name is None


@pytest.mark.parametrize("named", ["absent.toml", "."])
def test_a_named_file_must_be_there(project, monkeypatch, named):
    write(project, '[fphys]\ndevice = "cpu"\n')
    monkeypatch.setenv(config.FILE_VARIABLE, named)
    with pytest.raises(config.ConfigError, match=f"FPHYS_CONFIG names {named}, which is not a file: name one"):
        config.device_choice()


def test_a_null_device_is_a_file_that_says_nothing(project, monkeypatch):
    write(project, '[fphys]\ndevice = "cuda"\n')
    monkeypatch.setenv(config.FILE_VARIABLE, os.devnull)
    assert config.device_choice().name is None


@pytest.mark.skipif(sys.platform != "linux", reason="where Linux has the user's configuration")
def test_the_users_folder_is_beside_the_home_or_there_is_none(project, tmp_path, monkeypatch):
    users = lambda: [path.parent.parent for path in config.config_places()[1:]]  # noqa: E731
    monkeypatch.setenv("HOME", str(tmp_path))
    assert users() == [tmp_path / "user"]
    for ignored in ("", "relative", "~"):
        monkeypatch.setenv("XDG_CONFIG_HOME", ignored)
        assert users() == [tmp_path / ".config"]
    monkeypatch.setenv("HOME", str(tmp_path / "absent"))
    assert config.config_file() is None
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as for a user unknown to the system
    assert users() == [] and config.config_file() is None


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root becomes another user")
def test_a_home_that_cannot_be_read_is_skipped(tmp_path):
    write(tmp_path / "home" / ".config" / "fphys", '[fphys]\ndevice = "cuda"\n')
    (tmp_path / "home").chmod(0o700)
    script = "import os; from fphys import config; os.setuid(65534); print(config.config_file())"
    environment = os.environ | {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": "", config.FILE_VARIABLE: ""}
    child = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, cwd="/")
    assert child.stdout == "None\n", child.stderr


def test_the_doctor_says_which_file_was_read_or_where_it_looked(project, tmp_path, monkeypatch):
    rows = lambda: dict(doctor._configuration())  # noqa: E731
    users = tmp_path / "user" / "fphys" / config.FILE
    assert rows() == {"file": f"none: FPHYS_CONFIG is not set, and there is no {project / config.FILE}, {users}"}
    write(project, '[fphys]\ndevice = "cpu"\n')
    assert rows() == {"file": str(project / config.FILE), "says": "device = 'cpu'"}


def test_an_empty_file_leaves_the_choice_to_jax(project):
    write(project, "[fphys]\n")
    assert config.device_choice().name is None


def test_the_device_chosen_is_the_one_that_computes(project):
    import jax

    second = config.select_device("cpu:1")
    assert second == jax.devices("cpu")[1]
    try:
        assert config.use_device("cpu:1") == second
        assert jax.numpy.zeros(3).devices() == {second}
    finally:
        jax.config.update("jax_default_device", None)


def test_devices_are_described_as_they_are_asked_for():
    import jax

    assert [config.describe(device) for device in jax.devices("cpu")[:2]] == ["cpu", "cpu:1"]


@pytest.mark.parametrize("name", ["cpu", " CPU ", "cpu:0"])
def test_device_names_are_read_leniently(project, name):
    assert config.select_device(name).platform == "cpu"
