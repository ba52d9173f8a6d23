"""The gallery shows loops that play, are small, and are named with the command that films them."""

import re
from pathlib import Path

import pytest

from fphys.experiments import EXPERIMENTS
from fphys.model.assets import trained

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "gallery.md").read_text()
LOOPS = sorted((DOCS / "gallery").glob("*.webp"))


@pytest.mark.parametrize("path", LOOPS, ids=lambda path: path.stem)
def test_a_loop_plays_and_is_small(path):
    from PIL import Image

    with Image.open(path) as loop:
        assert loop.n_frames > 10 and loop.info["loop"] == 0  # for ever
    assert path.stat().st_size < (700 if path.stem == "hero" else 300) * 1024


def test_each_has_its_command():
    shown = re.findall(r"\(gallery/([\w-]+)\.webp\)", PAGE)
    assert sorted([*shown, "hero"]) == [path.stem for path in LOOPS]
    assert "docs/gallery/hero.webp" in (DOCS.parent / "README.md").read_text()
    for name in shown:
        kind, _, policy = name.partition("-")
        if kind == "play":
            assert Path(trained(policy)).is_file() and f"`fphys play {policy}`" in PAGE
        else:
            assert name in EXPERIMENTS and f"`fphys run {name}`" in PAGE
