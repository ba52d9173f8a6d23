"""Files that torchvision and transformers write, read by fphys: ``python benchmarks/pretrained.py``.

Both packages must be installed beside fphys and torch. Models are built with random weights, torchvision's in full size
and transformers' small. Each is saved in every way that its package has: a state dict (.pth), one file (.safetensors),
and several with an index. Both sides then compute in float64. ``error`` is the largest difference of any output, over
what the examples of a batch deviate from each other. Nothing is downloaded.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from fphys import nn
from fphys.nn import models

BAR = 1e-10  # float64 through at most fifty layers, after which random weights leave examples much alike
IMAGES = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0)).double()
TOKENS = torch.arange(27).reshape(3, 9) * 7 % 90
SEGMENTS, TARGET = TOKENS % 2, (TOKENS[:, :7] * 5 + 1) % 90
MASK = (torch.arange(9) < torch.tensor([[6], [9], [8]])).long()
SIZE = {"features": 32, "depth": 2, "num_heads": 4}
Run = Callable[[Any], Any]
PADDED = {"valid": MASK.numpy() > 0}
SHARD = "20KB"


def main() -> None:
    torch.manual_seed(0)
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for name, make in {"vision": vision, "text": text}.items():
            for case, theirs, run, ours, call in make():
                paths = saved(shaken(theirs), Path(folder) / name / case)
                wanted = np.asarray(run(theirs.double()))
                spread = wanted.std(0).mean() if wanted.dtype == np.float64 else float(len(np.unique(wanted)) > 3)
                for path in paths:
                    error = np.abs(call(*read(ours, path)) - wanted).max() / spread
                    worst = max(worst, float(error))
                    print(f"{case:24} {path.name:30} error {error:.1e}")
    if not worst < BAR:
        raise SystemExit(f"the largest error is {worst:.1e}, must be below {BAR}")


def vision():
    from torchvision import models as theirs

    for name in ("resnet18", "resnet34", "resnet50", "vgg11", "vgg16", "vgg11_bn", "vgg16_bn", "vit_b_16"):
        images = IMAGES if name == "vit_b_16" else IMAGES[..., :64, :64]
        yield name, getattr(theirs, name)(weights=None), lambda m, x=images: m(x), getattr(models, name), on(images)


def text():
    import transformers as T

    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    images = IMAGES[..., :32, :32]
    config: Any = T.ViTConfig(**small, intermediate_size=128, image_size=32, patch_size=8, num_labels=7)
    ours: Run = partial(models.ViT, 32, 8, 7, **SIZE, epsilon=1e-12)
    yield "ViT", T.ViTForImageClassification(config), lambda m: m(images).logits, ours, on(images)

    config = T.ResNetConfig(embedding_size=8, hidden_sizes=[32, 32, 64, 64], depths=[1, 2, 1, 1], num_labels=7)
    ours = partial(models.ResNet, models.Bottleneck, (1, 2, 1, 1), 7, widths=(8, 8, 16, 16))
    yield "ResNet", T.ResNetForImageClassification(config), lambda m: m(images).logits, ours, on(images)

    ids = {"bos_token_id": 0, "eos_token_id": 0}
    config = T.GPT2Config(vocab_size=90, n_positions=16, n_embd=32, n_layer=2, n_head=4, **ids)
    yield (
        "GPT2",
        T.GPT2LMHeadModel(config),
        lambda m: m(TOKENS).logits,
        partial(models.GPT2, 90, 16, **SIZE),
        on(TOKENS),
    )

    config = T.BertConfig(vocab_size=90, **small, intermediate_size=64, max_position_embeddings=16)
    ours = partial(models.BERT, 90, 16, **SIZE, hidden_features=64)
    given, inputs = {"attention_mask": MASK, "token_type_ids": SEGMENTS}, PADDED | {"segments": SEGMENTS.numpy()}
    first = partial(ours, head=False)
    yield "BERT", T.BertModel(config), lambda m: m(TOKENS, **given).pooler_output, first, on(TOKENS, 1, **inputs)
    logits = on(TOKENS, **inputs, method="logits")
    yield "BERT, pretraining", T.BertForPreTraining(config), lambda m: m(TOKENS, **given)[0], ours, logits
    ours = partial(ours, pooler=False)
    yield "BERT, masked tokens", T.BertForMaskedLM(config), lambda m: m(TOKENS, **given)[0], ours, logits

    sides = {
        f"{part}_{name}": n
        for part in ("encoder", "decoder")
        for name, n in {"layers": 2, "attention_heads": 4, "ffn_dim": 64}.items()
    }
    config = T.BartConfig(vocab_size=90, d_model=32, **sides, max_position_embeddings=24, forced_eos_token_id=None)
    ours = partial(models.BART, 90, 24, **SIZE, hidden_features=64)
    given = {"attention_mask": MASK, "decoder_input_ids": TARGET}
    call = on(TOKENS, **PADDED, target=TARGET.numpy())
    yield "BART", T.BartForConditionalGeneration(config), lambda m: m(TOKENS, **given).logits, ours, call

    begin = config.decoder_start_token_id

    def write(model: Any) -> Any:
        words = {"max_new_tokens": 12, "do_sample": False, "num_beams": 1, "eos_token_id": None}
        return model.generate(TOKENS, attention_mask=MASK, **words)[:, -12:]

    call = on(TOKENS, **PADDED, prompt=np.full((3, 1), begin), length=12, method="generate")
    yield "BART, written", T.BartForConditionalGeneration(config), write, ours, call


def shaken(model: Any) -> Any:
    """In evaluation mode, with nothing at zero or one: neither statistics nor biases, norms and new heads."""
    for name, value in model.named_buffers():
        if name.endswith("running_var"):
            value.uniform_(0.5, 1.5)
        if name.endswith("running_mean"):
            value.normal_(0, 0.1)
    for name, value in model.named_parameters():
        value.add_(torch.randn_like(value) * (0.1 if value.ndim == 1 or not value.any() else 0))
        value.mul_(20 if "decoder.embed_positions" in name else 1)  # so that it writes other tokens at each place
    return model.eval()


def saved(model: Any, folder: Path) -> list[Path]:
    folder.mkdir(parents=True)
    torch.save(model.state_dict(), folder / "state.pth")
    if not hasattr(model, "save_pretrained"):
        return [folder / "state.pth"]
    model.save_pretrained(folder)
    model.save_pretrained(folder / "parts", max_shard_size=SHARD)
    return [folder / "state.pth", folder / "model.safetensors", folder / "parts" / "model.safetensors.index.json"]


def read(make: Run, path: Path) -> tuple[Any, Any, Any]:
    module, params, aux = jax.eval_shape(partial(nn.init, make), jax.random.key(0))
    loaded = nn.load_weights(module, params, aux, nn.read_weights(path))
    return module, *jax.tree.map(lambda leaf: leaf.astype(float), loaded)


def on(x: torch.Tensor, which: int | None = None, **inputs: Any) -> Callable[..., np.ndarray]:
    """How a model of fphys is called; which of its results, if there are several."""
    first = jnp.asarray(x.movedim(1, -1).numpy() if x.ndim == 4 else x.numpy())

    def call(*model: Any) -> np.ndarray:
        y, _ = jax.jit(partial(nn.apply, **inputs))(*model, first)
        return np.asarray(y if which is None else y[which])

    return call


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
