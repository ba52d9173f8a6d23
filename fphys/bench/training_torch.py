"""The same training written in torch, as its users write it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..nn.weights import flat
from .training_models import IMAGE, LENGTH, RATE, TOKENS, WIDE, batch, built

HEADS = 4


def stepper(name: str, size: int, compiled: bool = False) -> Callable[[], float]:
    """A function that takes one step of Adam and returns the loss before it."""
    import torch

    net, weights, forward = {"mlp": _mlp, "cnn": _cnn, "lstm": _lstm, "gpt": _gpt}[name]()
    net.load_state_dict({key: torch.tensor(np.ascontiguousarray(value)) for key, value in weights.items()})
    optimizer = torch.optim.Adam(net.parameters(), RATE)
    x, y = (torch.from_numpy(np.ascontiguousarray(part)) for part in batch(name, size))
    x = x.permute(0, 3, 1, 2).contiguous() if name == "cnn" else x.long() if name in ("lstm", "gpt") else x
    y = y.long().flatten()

    def loss_fn(x: Any, y: Any) -> Any:
        scores = forward(x)
        return torch.nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), y)

    loss_fn = torch.compile(loss_fn) if compiled else loss_fn

    def step() -> float:
        optimizer.zero_grad()
        loss = loss_fn(x, y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def _weights(name: str) -> dict[str, np.ndarray]:
    return {key: np.asarray(value) for key, value in flat(built(name)[1]).items()}


def _dense(ours: dict[str, np.ndarray], names: dict[str, str]) -> dict[str, np.ndarray]:
    """Linear layers, from torch's name to ours: (in..., out...) becomes (out, in)."""
    found = {}
    for theirs, name in names.items():
        bias = ours[f"{name}.bias"].ravel()
        found |= {f"{theirs}.weight": ours[f"{name}.kernel"].reshape(-1, len(bias)).T, f"{theirs}.bias": bias}
    return found


def _mlp() -> tuple[Any, dict[str, np.ndarray], Any]:
    from torch import nn

    net = nn.Sequential(nn.Linear(IMAGE**2, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return net, _dense(_weights("mlp"), {"0": "layers.0", "2": "layers.1", "4": "layers.2"}), net


def _cnn() -> tuple[Any, dict[str, np.ndarray], Any]:
    from torch import nn

    net = nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * (IMAGE // 4) ** 2, 128), nn.ReLU(), nn.Linear(128, 10)),
    )
    ours = _weights("cnn")
    found = _dense(ours, {"7": "hidden", "9": "head"})
    for theirs, name in {"0": "features.0", "3": "features.1"}.items():
        found |= {
            f"{theirs}.weight": ours[f"{name}.kernel"].transpose(3, 2, 0, 1),
            f"{theirs}.bias": ours[f"{name}.bias"],
        }
    hidden = ours["hidden.kernel"].reshape(IMAGE // 4, IMAGE // 4, 64, 128)  # torch's channel varies slowest
    return net, found | {"7.weight": hidden.transpose(3, 2, 0, 1).reshape(128, -1)}, net


def _lstm() -> tuple[Any, dict[str, np.ndarray], Any]:
    from torch import nn

    net = nn.ModuleDict(
        {
            "tokens": nn.Embedding(TOKENS, WIDE),
            "lstm": nn.LSTM(WIDE, WIDE, batch_first=True),
            "head": nn.Linear(WIDE, TOKENS),
        }
    )
    ours = _weights("lstm")
    layer = _dense(ours, {"ih": "lstm.layers.0.0.input", "hh": "lstm.layers.0.0.hidden"})
    found = {f"lstm.{kind}_{part}_l0": layer[f"{part}.{kind}"] for part in ("ih", "hh") for kind in ("weight", "bias")}
    found |= {"tokens.weight": ours["tokens.embedding"], **_dense(ours, {"head": "head"})}
    return net, found, lambda x: net["head"](net["lstm"](net["tokens"](x))[0])


def _gpt() -> tuple[Any, dict[str, np.ndarray], Any]:
    import torch
    from torch import nn
    from torch.nn import functional

    parts = {"tokens": nn.Embedding(TOKENS, WIDE), "positions": nn.Embedding(LENGTH, WIDE)}
    parts |= {name: nn.LayerNorm(WIDE) for name in ("norm1", "norm2", "norm")}
    parts |= {"qkv": nn.Linear(WIDE, 3 * WIDE), "out": nn.Linear(WIDE, WIDE)}
    net = nn.ModuleDict(parts | {"up": nn.Linear(WIDE, 4 * WIDE), "down": nn.Linear(4 * WIDE, WIDE)})

    def forward(tokens: Any) -> Any:
        x = net["tokens"](tokens) + net["positions"](torch.arange(LENGTH))
        heads = net["qkv"](net["norm1"](x)).reshape(len(x), LENGTH, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + net["out"](seen.transpose(1, 2).reshape(x.shape))
        x = x + net["down"](functional.gelu(net["up"](net["norm2"](x)), approximate="tanh"))
        return net["norm"](x) @ net["tokens"].weight.T

    ours, block = _weights("gpt"), "blocks.0."
    found = _dense(ours, {"up": f"{block}up", "down": f"{block}down"})
    three = [_dense(ours, {"": f"{block}attention.{part}"}) for part in ("query", "key", "value")]
    found |= {f"qkv.{kind}": np.concatenate([part[f".{kind}"] for part in three]) for kind in ("weight", "bias")}
    found |= _dense(ours, {"out": f"{block}attention.out"})
    for name, place in {"norm1": f"{block}norm1", "norm2": f"{block}norm2", "norm": "norm"}.items():
        found |= {f"{name}.weight": ours[f"{place}.scale"], f"{name}.bias": ours[f"{place}.bias"]}
    return net, found | {f"{name}.weight": ours[f"{name}.embedding"] for name in ("tokens", "positions")}, forward
