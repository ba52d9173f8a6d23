"""The same training written in torch, as its users write it."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ..nn.weights import flat
from .training_models import BLOCKS, IMAGE, LENGTH, PATCH, PHOTO, TOKENS, WIDE, batch, built, rate


def stepper(name: str, size: int, compiled: bool = False) -> Callable[[], float]:
    """A function that takes one step of Adam and returns the loss before it."""
    import torch

    net, weights, forward = _NETWORKS[name]()
    net.load_state_dict({key: torch.tensor(np.ascontiguousarray(value)) for key, value in weights.items()})
    device = torch_device()
    net.to(device)
    optimizer = torch.optim.Adam(net.parameters(), rate(name))
    x, y = (torch.from_numpy(np.ascontiguousarray(part)).to(device) for part in batch(name, size))
    x = x.permute(0, 3, 1, 2).contiguous() if x.ndim == 4 else x if x.is_floating_point() else x.long()
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


def torch_device() -> str:
    """Torch's name of JAX's default device. Raises RuntimeError if torch has none of that kind."""
    import torch

    if jax.default_backend() != "gpu":
        return "cpu"
    if not torch.cuda.is_available():
        raise RuntimeError("JAX computes on a GPU and this torch has none: the two cannot be compared")
    return "cuda"


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


def _gpt(name: str) -> tuple[Any, dict[str, np.ndarray], Any]:
    import torch
    from torch import nn

    wide, depth, heads = BLOCKS[name]
    parts = {"tokens": nn.Embedding(TOKENS, wide), "positions": nn.Embedding(LENGTH, wide)}
    blocks = _blocks(wide, depth, 1e-5)
    net = nn.ModuleDict(parts | {"blocks": blocks, "norm": nn.LayerNorm(wide)})

    def forward(tokens: Any) -> Any:
        x = net["tokens"](tokens) + net["positions"](torch.arange(LENGTH, device=tokens.device))
        for block in blocks:
            x = _through(block, x, heads, causal=True, gelu="tanh")
        return net["norm"](x) @ net["tokens"].weight.T

    return net, _as_torch(name), forward


def _vit(name: str) -> tuple[Any, dict[str, np.ndarray], Any]:
    import torch
    from torch import nn

    wide, depth, heads = BLOCKS[name]
    parts = {"patches": nn.Conv2d(3, wide, PATCH, PATCH), "norm": nn.LayerNorm(wide, 1e-6), "head": nn.Linear(wide, 10)}
    blocks, token = _blocks(wide, depth, 1e-6), nn.Parameter(torch.zeros(1, 1, wide))
    positions = nn.Parameter(torch.zeros(1, (PHOTO // PATCH) ** 2 + 1, wide))
    net = nn.ModuleDict(parts | {"blocks": blocks})
    net.register_parameter("token", token)
    net.register_parameter("positions", positions)

    def forward(images: Any) -> Any:
        x = net["patches"](images).flatten(2).transpose(1, 2)
        x = torch.cat([token.expand(len(x), -1, -1), x], 1) + positions
        for block in blocks:
            x = _through(block, x, heads, causal=False, gelu="none")
        return net["head"](net["norm"](x)[:, 0])

    return net, _as_torch(name), forward


def _blocks(wide: int, depth: int, epsilon: float) -> Any:
    """Transformer blocks, with query, key and value in one layer."""
    from torch import nn

    def block() -> Any:
        parts = {"norm1": nn.LayerNorm(wide, epsilon), "norm2": nn.LayerNorm(wide, epsilon)}
        parts |= {"qkv": nn.Linear(wide, 3 * wide), "out": nn.Linear(wide, wide)}
        return nn.ModuleDict(parts | {"up": nn.Linear(wide, 4 * wide), "down": nn.Linear(4 * wide, wide)})

    return nn.ModuleList(block() for _ in range(depth))


def _through(block: Any, x: Any, heads: int, causal: bool, gelu: str) -> Any:
    from torch.nn import functional

    parts = block["qkv"](block["norm1"](x)).reshape(*x.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)
    seen = functional.scaled_dot_product_attention(*parts, is_causal=causal)
    x = x + block["out"](seen.transpose(1, 2).reshape(x.shape))
    return x + block["down"](functional.gelu(block["up"](block["norm2"](x)), approximate=gelu))


def _resnet() -> tuple[Any, dict[str, np.ndarray], Any]:
    """ResNet-18 with torchvision's names."""
    from torch import nn

    def normed(a: int, b: int, size: int, stride: int) -> list[Any]:
        return [nn.Conv2d(a, b, size, stride, size // 2, bias=False), nn.BatchNorm2d(b)]

    def block(a: int, b: int, stride: int) -> Any:
        parts = dict(
            zip(("conv1", "bn1", "conv2", "bn2"), [*normed(a, b, 3, stride), *normed(b, b, 3, 1)], strict=True)
        )
        return nn.ModuleDict(parts | {"downsample": nn.Sequential(*(normed(a, b, 1, stride) if a != b else []))})

    net = nn.ModuleDict(dict(zip(("conv1", "bn1"), normed(3, 64, 7, 2), strict=True)))
    groups, before = [], 64
    for number, wide in enumerate((64, 128, 256, 512), 1):
        groups.append(nn.ModuleList([block(before, wide, 2 if number > 1 else 1), block(wide, wide, 1)]))
        net[f"layer{number}"], before = groups[-1], wide
    net["fc"] = nn.Linear(512, 10)

    def forward(images: Any) -> Any:
        x = nn.functional.max_pool2d(net["bn1"](net["conv1"](images)).relu(), 3, 2, 1)
        for part in (part for group in groups for part in group):
            y = part["bn1"](part["conv1"](x)).relu()
            x = (part["bn2"](part["conv2"](y)) + part["downsample"](x)).relu()
        return net["fc"](x.mean((2, 3)))

    return net, _as_torch("resnet18"), forward


def _as_torch(name: str) -> dict[str, np.ndarray]:
    """All arrays of a model by torch's names, in torch's layouts; query, key and value in one array."""
    _, params, aux = built(name)
    ours = {key: np.asarray(value) for key, value in {**flat(params), **flat(aux)}.items()}
    attentions = {key.rpartition(".query.")[0] for key in ours if ".query." in key}
    found = {}
    for place in attentions:
        parts = [_dense(ours, {"": f"{place}.{part}"}) for part in ("query", "key", "value")]
        block = place.removesuffix(".attention")
        found |= {f"{block}.qkv.{leaf}": np.concatenate([p[f".{leaf}"] for p in parts]) for leaf in ("weight", "bias")}
        found |= _dense(ours, {f"{block}.out": f"{place}.out"})
    leaves = {
        "kernel": "weight",
        "scale": "weight",
        "embedding": "weight",
        "mean": "running_mean",
        "var": "running_var",
    }
    for key, value in ours.items():
        stem, dot, leaf = key.replace("downsample.layers.", "downsample.").rpartition(".")
        if not stem.endswith(("query", "key", "value", "attention.out")):
            value = np.moveaxis(value, (-1, -2), (0, 1)) if leaf == "kernel" else value
            found[f"{stem}{dot}{leaves.get(leaf, leaf)}"] = value
    return found


_NETWORKS: dict[str, Callable[[], tuple[Any, dict[str, np.ndarray], Any]]] = {
    "mlp": _mlp,
    "cnn": _cnn,
    "lstm": _lstm,
    "gpt": lambda: _gpt("gpt"),
    "resnet18": _resnet,
    "vit_tiny": lambda: _vit("vit_tiny"),
    "gpt384": lambda: _gpt("gpt384"),
}
