"""ResNet says what is in pictures: the five most probable classes of each.

`fphys run classify-image --images photo.jpeg --weights resnet50.safetensors --classes names.txt` takes state dicts of
torchvision and Hugging Face, and what `fphys run train-resnet` leaves. Without `--weights`, the weights called
`imagenet` are read from the cache. If they are missing, the error says what to put there. Nothing is downloaded.
"""

import dataclasses
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from fphys import data, nn
from fphys.runs import Run


@dataclasses.dataclass(frozen=True)
class Config:
    images: tuple[Path, ...]
    """Files to look at."""
    model: Literal["resnet18", "resnet34", "resnet50"] = "resnet50"
    """Which ResNet."""
    weights: str = "imagenet"
    """A file (.safetensors, .pth), or a name in the cache of weights."""
    classes: Path | None = None
    """A file with the name of a class in each line; numbers from 0 to 999 by default."""
    size: int = 224
    """Height and width that the network sees: those that it was trained with."""


def main(config: Config, run: Run) -> dict[str, Any]:
    """The five most probable classes of each image, and their probabilities."""
    names = config.classes.read_text(encoding="utf-8").split("\n") if config.classes else [str(i) for i in range(1000)]
    names = [name.strip() for name in names if name.strip()]
    build = getattr(nn.models, config.model)
    module, params, aux = nn.init(
        lambda rngs: build(len(names), pretrained=config.weights, rngs=rngs), jax.random.key(0)
    )
    look = jax.jit(lambda pixels: jax.nn.softmax(nn.apply(module, params, aux, pixels[None])[0][0]))
    prepare = data.Compose(
        [data.Resize(config.size * 8 // 7), data.CenterCrop(config.size), data.ToTensor(), data.IMAGENET]
    )
    pictures = [data.read_image(path) for path in config.images]
    found: dict[str, Any] = {}
    likely = []
    for path, picture in zip(run.progress(config.images), pictures):
        likely.append(np.asarray(look(prepare(picture))))
        found[str(path)] = {names[i]: float(likely[-1][i]) for i in np.argsort(-likely[-1])[:5]}
    run.save(probability=np.array(likely), classes=np.array(names))
    run.plot("classify-image", draw(pictures, list(found.values())))
    return found


def draw(pictures: list[np.ndarray], found: list[dict[str, float]]):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 2.2 * len(pictures)), layout="constrained")
    for (left, right), picture, likely in zip(figure.subplots(len(pictures), 2, squeeze=False), pictures, found):
        left.imshow(picture)
        left.set_axis_off()
        right.barh(list(likely)[::-1], list(likely.values())[::-1], color="#2a6db5")
        right.set(xlim=(0, 1), xlabel="probability", ylabel="class")
        right.spines[["top", "right"]].set_visible(False)
    return figure
