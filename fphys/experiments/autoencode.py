"""Digits are compressed to a few numbers and drawn again by a variational autoencoder.

D. P. Kingma and M. Welling, "Auto-encoding variational Bayes", 2014. A convolutional network is trained as the judge.
The metric `same_label` is the share of the reconstructions that it gives the label of their source. The picture shows
sources, reconstructions, and digits drawn at random.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fphys import data, losses, metrics, nn, optim, train
from fphys.runs import Run

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Config:
    epochs: int = 150
    """Passes of the autoencoder over the data."""
    judge_epochs: int = 15
    """Passes of the judge over the data."""
    batch_size: int = 64
    """Images of a gradient step."""
    latent: int = 12
    """Numbers that describe a digit."""
    learning_rate: float = 2e-3
    """Largest step of Adam; falls to zero along a cosine."""
    seed: int = 0
    """Of the weights, the order of the images and the digits drawn at random."""


def main(config: Config, run: Run) -> dict[str, Any]:
    """Train both networks, test, and draw."""
    digits, test = data.digits("train"), data.digits("test").columns
    images, labels = jnp.asarray(test["image"]), jnp.asarray(test["label"])
    keys = jax.random.split(jax.random.key(config.seed), 4)
    vae = nn.init(lambda rngs: nn.models.VAE(64, latent=config.latent, rngs=rngs), keys[0])
    judge = nn.init(lambda rngs: nn.models.CNN((8, 8, 1), 10, rngs=rngs), keys[1])

    def vae_loss(params, aux, batch, key):
        pixels = batch["image"].reshape(-1, 64)
        coded, aux = nn.apply(vae[0], params, aux, pixels, train=True, key=key)
        return nn.models.elbo_loss(coded, pixels), aux, {}

    def judge_loss(params, aux, batch, key):
        logits, aux = nn.apply(judge[0], params, aux, batch["image"], train=True, key=key)
        return losses.cross_entropy(logits, batch["label"]), aux, {}

    @jax.jit
    def test_loss(params, aux):
        pixels = images.reshape(-1, 64)
        return nn.models.elbo_loss(nn.apply(vae[0], params, aux, pixels)[0], pixels)

    fitted = []
    for model, loss_fn, epochs, options in (
        (judge, judge_loss, config.judge_epochs, {}),
        (vae, vae_loss, config.epochs, {"evaluate": lambda p, a: {"test_loss": test_loss(p, a)}, "run": run}),
    ):
        steps = epochs * (len(digits) // config.batch_size)
        batches = data.loader(digits, config.batch_size, seed=config.seed)
        optimizer = optim.Adam(optim.CosineAnnealingLR(config.learning_rate, steps))
        every = max(1, steps // 20)
        fitted.append(
            train.fit(
                loss_fn,
                model[1],
                optimizer,
                batches,
                steps=steps,
                aux=model[2],
                key=keys[2],
                every=every,
                **options,
            )
        )

    def judged(images: Array) -> Array:
        return nn.apply(judge[0], fitted[0].params, fitted[0].aux, images)[0]

    sources = images[:100]
    pixels = sources.reshape(-1, 64)
    coded, _ = nn.apply(vae[0], fitted[1].params, fitted[1].aux, pixels)
    codes = jax.random.normal(keys[3], (60, config.latent))
    drawn, _ = nn.apply(vae[0], fitted[1].params, fitted[1].aux, codes, method="decode")
    again = jax.nn.sigmoid(coded.logits).reshape(sources.shape)
    run.plot("loss", lambda axes: run.curves(axes, "loss", "test_loss"))
    run.plot("autoencode", picture({"sources": sources[:20], "again": again[:20], "drawn": jax.nn.sigmoid(drawn)}))
    return {
        "judge_accuracy": float(metrics.accuracy(judged(images), labels)),
        "same_label": float(metrics.accuracy(judged(again), labels[:100])),
        "test_loss": fitted[1].history[-1]["test_loss"],
    }


def picture(rows: dict[str, Array]):
    """Images (n, 64 pixels) in rows of twenty, each group under its name."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 3.2), layout="constrained")
    groups = {name: np.asarray(images).reshape(-1, 20, 8, 8) for name, images in rows.items()}
    every = figure.subplots(len(groups), 1, height_ratios=[len(images) for images in groups.values()])
    for axes, (name, images) in zip(every, groups.items(), strict=True):
        tiles = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
        axes.imshow(tiles.transpose(0, 2, 1, 3).reshape(-1, 200), cmap="gray_r", vmin=0, vmax=1)
        axes.set_axis_off()
        axes.set_title(name, loc="left", fontsize=9)
    return figure
