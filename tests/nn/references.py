"""Architectures in plain torch, with state dicts laid out as in torchvision and Hugging Face."""

from collections import OrderedDict
from types import SimpleNamespace

import torch
from torch import nn


def named(**modules):
    """A module that only holds other modules."""
    holder = nn.Module()
    for name, module in modules.items():
        holder.add_module(name, module)
    return holder


def randomised(module, seed=0):
    """Random weights everywhere, including batch normalisation's statistics; evaluation mode."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, value in module.state_dict().items():
            if value.is_floating_point():
                spread = torch.rand_like(value) if name.endswith(("running_var", "normalization.weight")) else None
                fan = value[0].numel() if value.ndim > 1 else 25
                value.copy_(spread + 0.5 if spread is not None else torch.randn_like(value) / fan**0.5)
    return module.eval()


class Block(nn.Module):
    """torchvision's BasicBlock and Bottleneck."""

    def __init__(self, a, width, stride, deep):
        super().__init__()
        b = 4 * width if deep else width
        shapes = [(a, width, 1, 1), (width, width, 3, stride), (width, b, 1, 1)]
        shapes = shapes if deep else [(a, width, 3, stride), (width, width, 3, 1)]
        self.count = len(shapes)
        for i, (m, n, size, step) in enumerate(shapes, 1):
            self.add_module(f"conv{i}", nn.Conv2d(m, n, size, step, size // 2, bias=False))
            self.add_module(f"bn{i}", nn.BatchNorm2d(n))
        if stride > 1 or a != b:
            self.downsample = nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b))

    def forward(self, x):
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            y = torch.relu(y) if i < self.count else y
        return torch.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))


class ResNet(nn.Module):
    """torchvision's."""

    def __init__(self, depths, widths, deep, classes):
        super().__init__()
        a = widths[0]
        self.conv1, self.bn1 = nn.Conv2d(3, a, 7, 2, 3, bias=False), nn.BatchNorm2d(a)
        for group, (depth, width) in enumerate(zip(depths, widths, strict=True), 1):
            blocks = []
            for i in range(depth):
                blocks.append(Block(a, width, 2 if group > 1 and i == 0 else 1, deep))
                a = 4 * width if deep else width
            self.add_module(f"layer{group}", nn.Sequential(*blocks))
        self.fc = nn.Linear(a, classes)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return self.fc(self.layer4(self.layer3(self.layer2(self.layer1(x)))).mean((2, 3)))


def hugging_face_resnet(depths, widths, deep, classes):
    """The same network, with transformers' ResNetForImageClassification's names."""
    net = ResNet(depths, widths, deep, classes)

    def unit(conv, norm):
        return named(convolution=conv, normalization=norm)

    stages = []
    for group in (net.layer1, net.layer2, net.layer3, net.layer4):
        layers = []
        for block in group:
            units = [unit(getattr(block, f"conv{i}"), getattr(block, f"bn{i}")) for i in range(1, block.count + 1)]
            parts = {"layer": nn.Sequential(*units)}
            if hasattr(block, "downsample"):
                parts["shortcut"] = unit(*block.downsample)
            layers.append(named(**parts))
        stages.append(named(layers=nn.Sequential(*layers)))
    laid_out = named(
        resnet=named(embedder=named(embedder=unit(net.conv1, net.bn1)), encoder=named(stages=nn.ModuleList(stages))),
        classifier=nn.Sequential(nn.Flatten(), net.fc),
    )
    return randomised(net), laid_out.state_dict()


class VGG(nn.Module):
    """torchvision's."""

    def __init__(self, groups, hidden, classes, norms=False):
        super().__init__()
        layers, a = [], 3
        for group in groups:
            for width in group:
                layers += [nn.Conv2d(a, width, 3, padding=1), *([nn.BatchNorm2d(width)] if norms else []), nn.ReLU()]
                a = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(a * 49, hidden), nn.ReLU(), nn.Dropout(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(),
            nn.Linear(hidden, classes),
        )  # fmt: skip

    def forward(self, x):
        return self.classifier(nn.functional.adaptive_avg_pool2d(self.features(x), 7).flatten(1))


class TorchvisionViT(nn.Module):
    def __init__(self, image, patch, features, depth, heads, classes):
        super().__init__()
        self.class_token = nn.Parameter(torch.zeros(1, 1, features))
        self.conv_proj = nn.Conv2d(3, features, patch, patch)
        layers = OrderedDict()
        for i in range(depth):
            layers[f"encoder_layer_{i}"] = named(
                ln_1=nn.LayerNorm(features, eps=1e-6),
                self_attention=nn.MultiheadAttention(features, heads, batch_first=True),
                ln_2=nn.LayerNorm(features, eps=1e-6),
                mlp=nn.Sequential(nn.Linear(features, 4 * features), nn.GELU(), nn.Dropout(0.0),
                                  nn.Linear(4 * features, features), nn.Dropout(0.0)),
            )  # fmt: skip
        self.encoder = named(layers=nn.Sequential(layers), ln=nn.LayerNorm(features, eps=1e-6))
        self.encoder.pos_embedding = nn.Parameter(torch.zeros(1, (image // patch) ** 2 + 1, features))
        self.heads = named(head=nn.Linear(features, classes))

    def forward(self, x):
        x = self.conv_proj(x).flatten(2).mT
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1) + self.encoder.pos_embedding
        for layer in self.encoder.layers:
            y = layer.ln_1(x)
            x = x + layer.self_attention(y, y, y, need_weights=False)[0]
            x = x + layer.mlp(layer.ln_2(x))
        return self.heads.head(self.encoder.ln(x)[:, 0])


def attend(q, k, v, heads, causal=False):
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (q, k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class HuggingFaceViT(nn.Module):
    """transformers' ViTForImageClassification."""

    def __init__(self, image, patch, features, depth, heads, classes):
        super().__init__()
        self.number = heads
        self.vit = named(
            embeddings=named(patch_embeddings=named(projection=nn.Conv2d(3, features, patch, patch))),
            encoder=named(layer=nn.ModuleList([self.layer(features) for _ in range(depth)])),
            layernorm=nn.LayerNorm(features, eps=1e-12),
        )
        self.vit.embeddings.cls_token = nn.Parameter(torch.zeros(1, 1, features))
        self.vit.embeddings.position_embeddings = nn.Parameter(torch.zeros(1, (image // patch) ** 2 + 1, features))
        self.classifier = nn.Linear(features, classes)

    @staticmethod
    def layer(d):
        return named(
            attention=named(
                attention=named(query=nn.Linear(d, d), key=nn.Linear(d, d), value=nn.Linear(d, d)),
                output=named(dense=nn.Linear(d, d)),
            ),
            intermediate=named(dense=nn.Linear(d, 4 * d)),
            output=named(dense=nn.Linear(4 * d, d)),
            layernorm_before=nn.LayerNorm(d, eps=1e-12),
            layernorm_after=nn.LayerNorm(d, eps=1e-12),
        )

    def forward(self, x):
        parts = self.vit.embeddings
        x = parts.patch_embeddings.projection(x).flatten(2).mT
        x = torch.cat([parts.cls_token.expand(len(x), -1, -1), x], 1) + parts.position_embeddings
        for layer in self.vit.encoder.layer:
            inner = layer.attention.attention
            y = layer.layernorm_before(x)
            y = attend(inner.query(y), inner.key(y), inner.value(y), self.number)
            x = x + layer.attention.output.dense(y)
            y = nn.functional.gelu(layer.intermediate.dense(layer.layernorm_after(x)))
            x = x + layer.output.dense(y)
        return self.classifier(self.vit.layernorm(x)[:, 0])


class Conv1D(nn.Module):
    """transformers' linear layer, whose weight is transposed."""

    def __init__(self, a, b):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(a, b)), nn.Parameter(torch.zeros(b))

    def forward(self, x):
        return x @ self.weight + self.bias


class HuggingFaceGPT2(nn.Module):
    """transformers' GPT2LMHeadModel, with the constants of old checkpoints."""

    def __init__(self, vocabulary, positions, d, depth, heads):
        super().__init__()
        self.number = heads
        blocks = []
        for _ in range(depth):
            block = named(
                ln_1=nn.LayerNorm(d),
                attn=named(c_attn=Conv1D(d, 3 * d), c_proj=Conv1D(d, d)),
                ln_2=nn.LayerNorm(d),
                mlp=named(c_fc=Conv1D(d, 4 * d), c_proj=Conv1D(4 * d, d)),
            )
            block.attn.register_buffer("bias", torch.ones(1, 1, positions, positions).tril().bool())
            block.attn.register_buffer("masked_bias", torch.tensor(-1e4))
            blocks.append(block)
        self.transformer = named(
            wte=nn.Embedding(vocabulary, d),
            wpe=nn.Embedding(positions, d),
            h=nn.ModuleList(blocks),
            ln_f=nn.LayerNorm(d),
        )
        self.lm_head = nn.Linear(d, vocabulary, bias=False)

    def forward(self, tokens):
        parts = self.transformer
        x = parts.wte(tokens) + parts.wpe(torch.arange(tokens.shape[1]))
        for block in parts.h:
            q, k, v = block.attn.c_attn(block.ln_1(x)).chunk(3, -1)
            x = x + block.attn.c_proj(attend(q, k, v, self.number, causal=True))
            x = x + block.mlp.c_proj(nn.functional.gelu(block.mlp.c_fc(block.ln_2(x)), approximate="tanh"))
        return self.lm_head(parts.ln_f(x))


def tied(model):
    model = randomised(model)
    model.lm_head.weight = model.transformer.wte.weight
    return model


SMALL = SimpleNamespace(resnet=((1, 2, 1, 1), (8, 8, 16, 16)), vgg=((4, 6), (8,), (8, 8)))
"""Depths and widths that have every kind of block with few parameters."""


def parted(layer):
    """The arrays of torch's layer by name, with query, key and value apart."""
    found = {}
    for name, value in layer.state_dict().items():
        stem, packed, leaf = name.partition("in_proj_")
        parts = dict(zip("qkv", value.chunk(3), strict=True)) if packed else {}
        found |= {f"{stem}{part}.{leaf}": rows for part, rows in parts.items()} if packed else {name: value}
    return found


def renamed(state, names, prefix):
    """The arrays under other names: each part of the names is looked up."""
    found = {}
    for name, value in state.items():
        stem, _, leaf = name.rpartition(".")
        found[f"{prefix}{names[stem]}.{leaf}"] = value
    return found


BERT_NAMES = {
    "self_attn.q": "attention.self.query", "self_attn.k": "attention.self.key", "self_attn.v": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense", "norm1": "attention.output.LayerNorm",
    "linear1": "intermediate.dense", "linear2": "output.dense", "norm2": "output.LayerNorm",
}  # fmt: skip
BART_NAMES = {
    "self_attn.q": "self_attn.q_proj", "self_attn.k": "self_attn.k_proj", "self_attn.v": "self_attn.v_proj",
    "self_attn.out_proj": "self_attn.out_proj", "norm1": "self_attn_layer_norm", "linear1": "fc1", "linear2": "fc2",
    "multihead_attn.q": "encoder_attn.q_proj", "multihead_attn.k": "encoder_attn.k_proj",
    "multihead_attn.v": "encoder_attn.v_proj", "multihead_attn.out_proj": "encoder_attn.out_proj",
}  # fmt: skip


class BERT(nn.Module):
    """BERT of torch's layers, and the state dict of transformers' BertForPreTraining."""

    def __init__(self, vocabulary, positions, d, depth, heads, hidden):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, d), nn.Embedding(positions, d)
        self.segments, self.norm = nn.Embedding(2, d), nn.LayerNorm(d, eps=1e-12)
        options = {"activation": "gelu", "layer_norm_eps": 1e-12, "batch_first": True}
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(d, heads, hidden, 0.0, **options) for _ in range(depth)]
        )
        self.pooler, self.dense = nn.Linear(d, d), nn.Linear(d, d)
        self.dense_norm, self.bias = nn.LayerNorm(d, eps=1e-12), nn.Parameter(torch.zeros(vocabulary))

    def forward(self, tokens, segments, valid):
        x = self.tokens(tokens) + self.segments(segments) + self.positions(torch.arange(tokens.shape[1]))
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=~valid)
        logits = self.dense_norm(nn.functional.gelu(self.dense(x))) @ self.tokens.weight.T + self.bias
        return x, torch.tanh(self.pooler(x[:, 0])), logits

    def hugging_face(self):
        body = named(
            embeddings=named(
                word_embeddings=self.tokens,
                position_embeddings=self.positions,
                token_type_embeddings=self.segments,
                LayerNorm=self.norm,
            ),
            pooler=named(dense=self.pooler),
        )
        head = named(transform=named(dense=self.dense, LayerNorm=self.dense_norm), decoder=self.tokens)
        state = named(bert=body, cls=named(predictions=head, seq_relationship=nn.Linear(2, 2))).state_dict()
        state |= {"cls.predictions.bias": self.bias, "cls.predictions.decoder.bias": self.bias}
        state["bert.embeddings.position_ids"] = torch.arange(9)[None]  # a constant of old files
        for i, layer in enumerate(self.layers):
            state |= renamed(parted(layer), BERT_NAMES, f"bert.encoder.layer.{i}.")
        return state


class BART(nn.Module):
    """BART of torch's layers, and the state dict of transformers' BartForConditionalGeneration."""

    def __init__(self, vocabulary, positions, d, depth, heads, hidden):
        super().__init__()
        self.tokens, options = nn.Embedding(vocabulary, d), {"activation": "gelu", "batch_first": True}
        self.places = nn.ModuleList([nn.Embedding(positions + 2, d) for _ in range(2)])
        self.norms = nn.ModuleList([nn.LayerNorm(d) for _ in range(2)])
        args = d, heads, hidden, 0.0
        self.encoder = nn.ModuleList([nn.TransformerEncoderLayer(*args, **options) for _ in range(depth)])
        self.decoder = nn.ModuleList([nn.TransformerDecoderLayer(*args, **options) for _ in range(depth)])

    def forward(self, source, target, valid):
        def embed(tokens, part):
            return self.norms[part](self.tokens(tokens) + self.places[part](torch.arange(tokens.shape[1]) + 2))

        memory, x = embed(source, 0), embed(target, 1)
        for layer in self.encoder:
            memory = layer(memory, src_key_padding_mask=~valid)
        future = torch.ones(target.shape[1], target.shape[1]).triu(1).bool()
        for layer in self.decoder:
            x = layer(x, memory, tgt_mask=future, memory_key_padding_mask=~valid)
        return x @ self.tokens.weight.T

    def generate(self, source, tokens, length, valid):
        for _ in range(length):
            tokens = torch.cat([tokens, self(source, tokens, valid)[:, -1:].argmax(-1)], 1)
        return tokens[:, -length:]

    def hugging_face(self):
        parts = {
            name: named(embed_tokens=self.tokens, embed_positions=self.places[i], layernorm_embedding=self.norms[i])
            for i, name in enumerate(("encoder", "decoder"))
        }
        state = named(model=named(shared=self.tokens, **parts), lm_head=self.tokens).state_dict()
        state["final_logits_bias"] = torch.zeros(1, self.tokens.num_embeddings)
        for part, last in (("encoder", "norm2"), ("decoder", "norm3")):
            names = BART_NAMES | {"norm2": "encoder_attn_layer_norm", last: "final_layer_norm"}
            for i, layer in enumerate(getattr(self, part)):
                state |= renamed(parted(layer), names, f"model.{part}.layers.{i}.")
        return state
