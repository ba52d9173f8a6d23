"""Handwritten digits, MNIST or CIFAR-10 are classified by a perceptron or a convolutional network.

The default data are scikit-learn's digits, which take seconds. `--data FOLDER` takes the four files of MNIST or the
binary files of CIFAR-10. `--checkpoints FOLDER` saves the training there, and resumes what is saved there.
"""

import dataclasses
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp

from fphys import data, losses, metrics, nn, optim, train
from fphys.runs import Run

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Config:
    model: Literal["mlp", "cnn"] = "cnn"
    """Perceptron with two hidden layers, or two convolutions and two dense layers."""
    data: Path | None = None
    """Folder of MNIST or CIFAR-10; scikit-learn's digits by default."""
    epochs: int = 40
    """Passes over the data."""
    batch_size: int = 64
    """Images of a gradient step."""
    learning_rate: float = 2e-3
    """Largest step of AdamW; falls to zero along a cosine."""
    weight_decay: float = 1e-2
    """Of AdamW, relative to the step."""
    seed: int = 0
    """Of the weights, the order of the images and their shifts."""
    checkpoints: Path | None = None
    """Folder to save to, and to resume from."""


class MLP(nn.Module):
    def __init__(self, shape: tuple[int, ...], rngs: nn.Rngs):
        height, width, channels = shape
        self.first = nn.Linear(height * width * channels, 256, rngs=rngs)
        self.second = nn.Linear(256, 128, rngs=rngs)
        self.out = nn.Linear(128, 10, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        x = nn.relu(self.first(x.reshape(x.shape[0], -1)))
        return self.out(nn.relu(self.second(x)))


class CNN(nn.Module):
    def __init__(self, shape: tuple[int, ...], rngs: nn.Rngs):
        height, width, channels = shape
        self.first = nn.Conv(channels, 32, (3, 3), rngs=rngs)
        self.second = nn.Conv(32, 64, (3, 3), rngs=rngs)
        self.hidden = nn.Linear(height // 4 * (width // 4) * 64, 128, rngs=rngs)
        self.out = nn.Linear(128, 10, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        for conv in (self.first, self.second):
            x = nn.max_pool(nn.relu(conv(x)), window_shape=(2, 2), strides=(2, 2))
        return self.out(nn.relu(self.hidden(x.reshape(x.shape[0], -1))))


def main(config: Config, run: Run) -> dict[str, Any]:
    """Train and test."""
    sources = {split: read(config.data, split) for split in ("train", "test")}
    shape = sources["train"].columns["image"].shape[1:]
    kind = {"mlp": MLP, "cnn": CNN}[config.model]
    module, params, aux = nn.init(lambda rngs: kind(shape, rngs=rngs), jax.random.key(config.seed))
    test = {name: jnp.asarray(column) for name, column in sources["test"].columns.items()}
    steps = config.epochs * (len(sources["train"]) // config.batch_size)

    def loss_fn(params, aux, batch, key):
        shift, net = jax.random.split(key)
        images = scaled(batch["image"])
        if config.model == "cnn":  # a perceptron does not see that an image was shifted
            images = data.augment.random_crop(shift, images, images.shape[1:3], padding=1)
        logits, aux = nn.apply(module, params, aux, images, train=True, key=net)
        return losses.cross_entropy(logits, batch["label"]), aux, {"accuracy": metrics.accuracy(logits, batch["label"])}

    @jax.jit
    def score(params, aux, batch):
        logits, _ = nn.apply(module, params, aux, scaled(batch["image"]))
        loss = losses.cross_entropy(logits, batch["label"])
        return {"test_loss": loss, "test_accuracy": metrics.accuracy(logits, batch["label"])}

    result = train.fit(
        loss_fn,
        params,
        optim.adamw(optim.cosine_decay_schedule(config.learning_rate, steps), weight_decay=config.weight_decay),
        data.loader(sources["train"], config.batch_size, seed=config.seed),
        steps=steps,
        aux=aux,
        key=jax.random.key(config.seed + 1),
        evaluate=lambda params, aux: score(params, aux, test),
        every=max(1, steps // 20),
        checkpoints=train.Checkpoints(config.checkpoints, every=max(1, steps // 10)) if config.checkpoints else None,
        run=run,
    )
    found = {name: float(value) for name, value in score(result.params, result.aux, test).items()}
    run.plot("classify", lambda axes: run.curves(axes, "accuracy", "test_accuracy"))
    return found | {"steps": int(result.state.step), "skipped": int(result.state.skipped)}


def read(folder: Path | None, split: str) -> data.Arrays:
    """The digits, or what lies in the folder: MNIST if it has IDX files, else CIFAR-10."""
    if folder is None:
        return data.digits(split)
    return data.mnist(folder, split) if list(folder.glob("*-ubyte*")) else data.cifar10(folder, split)


def scaled(images: Array) -> Array:
    """Bytes as numbers from 0 to 1."""
    return images.astype(jnp.float32) / 255 if images.dtype == jnp.uint8 else images
