"""Every example that has options says what they are, and is in the list."""

import runpy
import sys

import pytest

from .conftest import FOLDER

OPTIONS = {
    "autoencode": "--latent INT",
    "classify": "--model {mlp,cnn}",
    "classify_image": "--weights STR",
    "dqn": "--goal FLOAT",
    "generate_text": "--model {lstm,gpt}",
    "train_resnet": "--workers INT",
}


def test_all_examples_are_listed():
    names = {path.stem for path in FOLDER.glob("*.py")}
    assert names == {*OPTIONS, "contact_gradients"}
    text = (FOLDER / "README.md").read_text()
    assert [name for name in names if f"[`{name}.py`]({name}.py)" not in text] == []


@pytest.mark.extra("sklearn")
@pytest.mark.parametrize("name", OPTIONS)
def test_help(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    text = capsys.readouterr().out
    assert OPTIONS[name] in text and "--root PATH" in text
