"""What is in a picture? ResNet with a file of weights, and the five likeliest classes of each image.

``python examples/classify_image.py photo.jpeg --weights resnet50.safetensors --classes names.txt`` takes torchvision's
and Hugging Face's state dicts, and what ``train_resnet.py`` leaves. Without a file, the weights called ``imagenet`` are
looked for in the cache; where they are missing, the error says what to put there. Nothing is downloaded.
"""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import jax
import numpy as np
import tyro

from fphys import data, nn
from fphys.runs import Run


@dataclasses.dataclass(frozen=True)
class Config:
    """Options."""

    images: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Files to look at."""
    model: Literal["resnet18", "resnet34", "resnet50"] = "resnet50"
    weights: str = "imagenet"
    """A file (.safetensors, .pth), or a name in the cache of weights."""
    classes: Path | None = None
    """A file with the name of a class in each line; numbers from 0 to 999 by default."""
    size: int = 224
    """Height and width that the network sees: those that it was trained with."""
    root: Path = Path("runs")
    """Where the run's folder is made: metrics and a picture."""
    quiet: bool = False


def main(config: Config) -> dict[str, dict[str, float]]:
    """The five likeliest classes of each image, and their probabilities."""
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
    found, pictures = {}, [data.read_image(path) for path in config.images]
    with Run("classify-image", root=config.root, config=config, quiet=config.quiet) as run:
        for path, picture in zip(run.progress(config.images), pictures):
            likely = np.asarray(look(prepare(picture)))
            found[str(path)] = {names[i]: float(likely[i]) for i in np.argsort(-likely)[:5]}
        run.metrics(**found)
        run.plot("classes", draw(pictures, list(found.values())))
    return found


def draw(pictures: list[np.ndarray], found: list[dict[str, float]]):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 2.2 * len(pictures)), layout="constrained")
    for (left, right), picture, likely in zip(figure.subplots(len(pictures), 2, squeeze=False), pictures, found):
        left.imshow(picture)
        left.set_axis_off()
        right.barh(list(likely)[::-1], list(likely.values())[::-1], color="#2a6db5")
        right.set(xlim=(0, 1))
        right.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
