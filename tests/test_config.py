import pytest

from fphys import config


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty working directory, three levels below a place for fphys.toml, and no FPHYS_DEVICE."""
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.delenv(config.VARIABLE, raising=False)
    return tmp_path


def write(folder, text):
    (folder / config.FILE).write_text(text)


def test_argument_then_environment_then_file(project, monkeypatch):
    assert config.device_choice() == config.Choice(None, "JAX's default")
    write(project, '[fphys]\ndevice = "cuda:1"\n')
    assert config.device_choice() == config.Choice("cuda:1", str(project / config.FILE))
    monkeypatch.setenv(config.VARIABLE, "cuda")
    assert config.device_choice() == config.Choice("cuda", config.VARIABLE)
    assert config.device_choice("cpu") == config.Choice("cpu", "argument")


def test_the_nearest_file_counts(project):
    write(project, '[fphys]\ndevice = "cuda"\n')
    write(project / "a", '[fphys]\ndevice = "cpu"\n')
    assert config.device_choice().name == "cpu"


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
def test_names_are_read_loosely(project, name):
    assert config.select_device(name).platform == "cpu"
