"""A language model of characters, LSTM or GPT, learns a text and continues it.

The default text is the manual of Python's language that `help()` shows; `--text FILE` takes another. The last tenth is
held out. The loss there is compared with the best that pairs of characters could do.
"""

import contextlib
import dataclasses
import functools
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fphys import data, distributed, losses, nn, optim, train
from fphys.nn.transformer import SPLIT
from fphys.runs import Run

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Config:
    model: Literal["lstm", "gpt"] = "gpt"
    """A recurrent network, or a transformer."""
    text: Path | None = None
    """The text to learn; the manual of Python's language by default."""
    steps: int = 1500
    """Gradient steps."""
    batch_size: int = 32
    """Pieces of text of a gradient step."""
    length: int = 64
    """Characters that the model looks back at most."""
    features: int = 64
    """Width of the model."""
    learning_rate: float = 3e-3
    """Largest step of AdamW: rises for a tenth of the training, then falls to zero along a cosine."""
    characters: int = 500
    """How many to write in the end."""
    temperature: float = 0.8
    """Below one, more of the likely."""
    shards: int = 1
    """Devices that share each block's weights, of a GPT; the others share the pieces of text. All devices take part."""
    seed: int = 0
    """Of the weights, the pieces of text and what is written."""

    def __post_init__(self) -> None:
        if self.shards > 1 and self.model != "gpt":
            raise ValueError(f"--shards is {self.shards}: only a GPT's weights are split")


def main(config: Config, run: Run) -> dict[str, Any]:
    """Train, test, and write."""
    with jax.set_mesh(distributed.mesh(model=config.shards)) if config.shards > 1 else contextlib.nullcontext():
        return _main(config, run)


def _main(config: Config, run: Run) -> dict[str, Any]:
    text = config.text.read_text(encoding="utf-8") if config.text else manual()
    alphabet = sorted(set(text))
    tokens = np.searchsorted(alphabet, list(text)).astype(np.int32)
    learned, held_out = np.split(tokens, [len(tokens) * 9 // 10])
    windows = data.Arrays(text=np.lib.stride_tricks.sliding_window_view(learned, config.length + 1))
    whole = len(held_out) // (config.length + 1) * (config.length + 1)
    test = jnp.asarray(held_out[:whole].reshape(-1, config.length + 1))
    module, params, aux = nn.init(lambda rngs: build(config, len(alphabet), rngs), jax.random.key(config.seed))

    def scores(params, tokens, **mode) -> Array:
        found = nn.apply(module, params, aux, tokens, **mode)[0]
        return found[0] if config.model == "lstm" else found  # an LSTM also says where it stands

    def loss_fn(params, aux, batch, key):
        logits = scores(params, batch["text"][:, :-1], train=True, key=key)
        return losses.cross_entropy(logits, batch["text"][:, 1:]), aux, {}

    @jax.jit
    def held_out_loss(params):
        return losses.cross_entropy(
            jax.lax.map(lambda row: scores(params, row[None])[0], test[:, :-1], batch_size=64), test[:, 1:]
        )

    @jax.jit
    def write(params, window, keys):
        def following(window, key):
            token = jax.random.categorical(key, scores(params, window[None])[0, -1] / config.temperature)
            return jnp.append(window[1:], token.astype(window.dtype)), token

        return jax.lax.scan(following, window, keys)[1]

    rate = optim.warmup(optim.CosineAnnealingLR(config.learning_rate, config.steps * 9 // 10), config.steps // 10)
    result = train.fit(
        loss_fn,
        params,
        optim.AdamW(rate),
        data.loader(windows, config.batch_size, seed=config.seed),
        steps=config.steps,
        aux=aux,
        key=jax.random.key(config.seed + 1),
        clip=1.0,
        evaluate=lambda params, _: {"held_out_loss": held_out_loss(params)},
        every=max(1, config.steps // 15),
        run=run,
        place=functools.partial(distributed.place, rules=SPLIT) if config.shards > 1 else distributed.everywhere,
    )
    bigrams = bigram_entropy(np.asarray(test))
    keys = jax.random.split(jax.random.key(config.seed + 2), config.characters)
    written = write(result.params, test[0, :-1], keys)
    prompt, added = ("".join(alphabet[i] for i in part) for part in (test[0, :-1], written))
    (run.path / "written.txt").write_text(f"{prompt}|{added}\n", encoding="utf-8")
    run.plot("generate-text", lambda axes: draw(axes, run, bigrams))
    reached = result.history[-1]["held_out_loss"]
    return {
        "success": reached < bigrams,
        "held_out_loss": reached,
        "bigram_entropy": bigrams,
        "characters": len(alphabet),
        "skipped": int(result.state.skipped),
    }


def build(config: Config, vocabulary: int, rngs: nn.Rngs) -> nn.Module:
    wide = config.features
    if config.model == "lstm":
        return nn.models.LSTMLanguageModel(vocabulary, features=wide, hidden=2 * wide, num_layers=1, rngs=rngs)
    return nn.models.GPT2(vocabulary, config.length, features=wide, depth=2, num_heads=4, dropout=0.0, rngs=rngs)


def manual() -> str:
    """What ``help("topics")`` offers, one after the other."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


def bigram_entropy(rows: np.ndarray) -> float:
    """-Σ p(a, b) log p(b | a) of the very text that is tested [nats]: no table of pairs predicts it better."""
    counts = np.zeros((rows.max() + 1,) * 2)
    np.add.at(counts, (rows[:, :-1], rows[:, 1:]), 1)
    likely = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return float(-np.sum(counts * np.log(likely, where=counts > 0, out=np.zeros_like(counts))) / counts.sum())


def draw(axes, run: Run, bigrams: float) -> None:
    run.curves(axes, "loss", "held_out_loss")
    axes.axhline(bigrams, color="#6b7280", linestyle="--", linewidth=1.0, label="pairs of characters")
    axes.set(ylabel="nats per character", ylim=(0, None))
