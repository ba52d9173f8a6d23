"""ResNet trains on a folder in ImageNet's layout, and what it leaves classifies images."""

import numpy as np
import pytest
from PIL import Image

from fphys import data, nn
from fphys.experiments import classify_image, train_resnet
from fphys.nn import weights

from ..rigid.quick import quick_compilation

__all__ = ["quick_compilation"]
pytestmark = pytest.mark.extra("sklearn")


@pytest.fixture(autouse=True)
def small(monkeypatch, full):
    """Four narrow blocks in the place of eight."""

    def resnet18(num_classes, pretrained=None, *, new_head=False, rngs):
        model = nn.models.ResNet(nn.models.BasicBlock, (1,) * 4, num_classes, widths=(4, 8, 8, 8), rngs=rngs)
        return weights.pretrained(model, "resnet18", pretrained, new_head=new_head)

    if not full:
        monkeypatch.setattr(nn.models, "resnet18", resnet18)


@pytest.fixture
def folder(tmp_path, full):
    """Digits as pictures, 32 x 32."""
    classes, held_out = (10, None) if full else (2, 8)
    for split in ("train", "val"):
        digits = data.digits("train" if split == "train" else "test").columns
        kept = digits["label"] < classes
        images, labels = digits["image"][kept], digits["label"][kept]
        count = None if full else held_out * (4 if split == "train" else 1)
        for i, (image, label) in enumerate(zip(images[:count], labels[:count])):
            place = tmp_path / split / f"digit-{label}"
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray((255 * image[..., 0]).astype(np.uint8)).resize((32, 32)).save(place / f"{i:04}.png")
    return tmp_path


def test_a_folder_is_learned_and_the_weights_classify(folder, tmp_path, play, full):
    size = 32
    options = {"epochs": 6, "batch_size": 64} if full else {"epochs": 1, "batch_size": 16, "workers": 0}
    config = train_resnet.Config(folder, size=size, flip=False, learning_rate=0.05, **options)
    metrics, _ = play(train_resnet, config, video=False)
    assert np.isfinite(metrics["val_loss"]) and metrics["val_accuracy"] > (0.95 if full else -1)
    (run,) = (tmp_path / "train-resnet").iterdir()

    picture = min((folder / "val" / "digit-1").iterdir())
    weights, classes = str(run / "weights.safetensors"), run / "classes.txt"
    config = classify_image.Config((picture,), model="resnet18", weights=weights, classes=classes, size=size)
    answer, result = play(classify_image, config, video=False)
    likely = answer[str(picture)]
    assert set(likely) <= {f"digit-{i}" for i in range(10)} and sum(likely.values()) <= 1 + 1e-5
    assert list(likely.values()) == sorted(likely.values(), reverse=True)
    assert not full or next(iter(likely)) == "digit-1"
    np.testing.assert_allclose(result["probability"].sum(1), 1, atol=1e-5)


def test_classes_that_differ_are_named(folder, play):
    (folder / "val" / "digit-1").rename(folder / "val" / "other")
    with pytest.raises(data.DataError, match="only one of them has digit-1, other"):
        play(train_resnet, train_resnet.Config(folder))


def test_missing_weights_say_what_to_put_where(tmp_path, play, monkeypatch):
    monkeypatch.setenv("FPHYS_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"save the state dict .* there as resnet18-imagenet\.safetensors"):
        play(classify_image, classify_image.Config(images=(), model="resnet18"))
