"""ResNet learns a folder of images in ImageNet's layout: FOLDER/train/CLASS/IMAGE, FOLDER/val/CLASS/IMAGE.

The run's folder gets `weights.safetensors` and `classes.txt`, which `fphys run classify-image` takes. `--checkpoints
FOLDER` saves the training there, and resumes what is saved there. The defaults are those of ImageNet for a batch of
256: K. He et al., "Deep residual learning for image recognition", 2016.
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
    folder: Path
    """Holds `train` and `val`, and in each a folder for every class."""
    model: Literal["resnet18", "resnet34", "resnet50"] = "resnet18"
    """Which ResNet."""
    pretrained: str | None = None
    """Weights to start from: a file, or a name in the cache of weights."""
    new_head: bool = False
    """Whether the output layer starts afresh, for weights of other classes."""
    epochs: int = 90
    """Passes over the data."""
    batch_size: int = 256
    """Images of a gradient step."""
    size: int = 224
    """Height and width that the network sees."""
    learning_rate: float = 0.1
    """Largest step of SGD with momentum: rises for a twentieth of the training, then falls along a cosine."""
    weight_decay: float = 1e-4
    """Added to the gradient, times the weights."""
    flip: bool = True
    """Mirror images at random; not for letters and digits."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the network's products; the weights are float32."""
    workers: int = 2
    """Processes that read images."""
    seed: int = 0
    """Of the weights, the order of the images and their crops."""
    checkpoints: Path | None = None
    """Folder to save to, and to resume from."""


def main(config: Config, run: Run) -> dict[str, Any]:
    """Train and validate."""
    margin = config.size * 8 // 7  # the network sees a random part of it
    wide = data.Compose([data.Resize(margin), data.CenterCrop(margin), data.ToTensor(), data.IMAGENET])
    exact = data.Compose([data.Resize(margin), data.CenterCrop(config.size), data.ToTensor(), data.IMAGENET])
    images = data.ImageFolder(config.folder / "train", wide)
    held_out = data.ImageFolder(config.folder / "val", exact)
    if images.classes != held_out.classes:
        odd = ", ".join(sorted({*images.classes} ^ {*held_out.classes}))
        raise data.DataError(f"{config.folder}: train and val must hold the same classes; only one of them has {odd}")
    build = getattr(nn.models, config.model)
    module, params, aux = nn.init(
        lambda rngs: build(len(images.classes), config.pretrained, new_head=config.new_head, rngs=rngs),
        jax.random.key(config.seed),
    )
    steps = config.epochs * (len(images) // config.batch_size)

    def loss_fn(params, aux, batch, key):
        crop, flip = jax.random.split(key)
        pixels = data.augment.random_crop(crop, batch["image"], (config.size, config.size))
        pixels = data.augment.random_flip(flip, pixels) if config.flip else pixels
        logits, aux = nn.apply(module, params, aux, pixels, train=True)
        logits = logits.astype(jnp.float32)
        return losses.cross_entropy(logits, batch["label"]), aux, {"accuracy": metrics.accuracy(logits, batch["label"])}

    @jax.jit
    def score(params, aux, image, label):
        logits, _ = nn.apply(module, params, aux, image)
        return jnp.stack([losses.cross_entropy(logits, label), metrics.accuracy(logits, label)]) * len(label)

    def validate(params, aux):
        batches = data.loader(held_out, config.batch_size, shuffle=False, epochs=1, drop_remainder=False, threads=2)
        loss, accuracy = sum((score(params, aux, **batch) for batch in batches), jnp.zeros(2)) / len(held_out)
        return {"val_loss": loss, "val_accuracy": accuracy}

    rate = optim.warmup(optim.CosineAnnealingLR(config.learning_rate, max(1, steps * 19 // 20)), steps // 20)
    result = train.fit(
        loss_fn,
        params,
        optim.SGD(rate, momentum=0.9, weight_decay=config.weight_decay),
        data.loader(images, config.batch_size, seed=config.seed, workers=config.workers),
        steps=steps,
        aux=aux,
        key=jax.random.key(config.seed + 1),
        precision=train.BFLOAT16 if config.precision == "bfloat16" else train.AS_IT_IS,
        evaluate=validate,
        every=max(1, steps // min(config.epochs, 10)),
        checkpoints=train.Checkpoints(config.checkpoints, every=max(1, steps // config.epochs))
        if config.checkpoints
        else None,
        run=run,
    )
    nn.write_weights(run.path / "weights.safetensors", result.params, result.aux)
    (run.path / "classes.txt").write_text("\n".join(images.classes) + "\n", encoding="utf-8")
    found = {name: float(value) for name, value in validate(result.params, result.aux).items()}
    run.plot("train-resnet", lambda axes: run.curves(axes, "accuracy", "val_accuracy"))
    return found | {
        "images": len(images),
        "classes": len(images.classes),
        "skipped": int(result.state.skipped),
    }
