"""Vision transformer (Dosovitskiy 2021)."""

import os

import jax.numpy as jnp
import numpy as np
from flax import nnx

from ...typing import Array, Float, shaped
from ..layers import Conv2d, Dropout
from ..linear import Linear
from ..norms import LayerNorm
from ..transformer import TransformerBlock, exact_gelu
from ..weights import Rule, Weights, translate
from ..weights import pretrained as _with


class ViT(nnx.Module):
    """Patches and a class token, transformer blocks, and the class from that token."""

    HEAD = "head"  # the name of the output layer

    def __init__(
        self,
        image_size: int = 224,
        patch_size: int = 16,
        num_classes: int = 1000,
        *,
        features: int = 768,
        depth: int = 12,
        num_heads: int = 12,
        dropout: float = 0.0,
        epsilon: float = 1e-6,
        in_channels: int = 3,
        rngs: nnx.Rngs,
    ):
        """Build the network.

        Args:
            image_size: height and width of the images, a multiple of ``patch_size``.
            patch_size: height and width of a patch.
            num_classes: size of the output.
            features, depth, num_heads: width, number and heads of the blocks.
            dropout: rate in the blocks and after the positions, when training.
            epsilon: of the norms; torchvision uses 1e-6, Hugging Face 1e-12.
            in_channels: channels of the images.
            rngs: for the parameters and the dropout.

        Raises:
            ValueError: the patches do not fill the image.
        """
        if image_size % patch_size:
            raise ValueError(f"image_size is {image_size}, must be a multiple of patch_size, {patch_size}")
        count = (image_size // patch_size) ** 2
        normal = nnx.initializers.normal(0.02)
        self.patches = Conv2d(in_channels, features, patch_size, patch_size, rngs=rngs)
        self.token = nnx.Param(jnp.zeros((1, 1, features)))
        self.positions = nnx.Param(normal(rngs.params(), (1, count + 1, features), jnp.float32))
        self.dropout = Dropout(dropout, rngs=rngs)
        self.blocks = nnx.List(
            TransformerBlock(features, num_heads, activation=exact_gelu, dropout=dropout, epsilon=epsilon, rngs=rngs)
            for _ in range(depth)
        )
        self.norm = LayerNorm(features, epsilon=epsilon, rngs=rngs)
        self.head = Linear(features, num_classes, rngs=rngs)

    @shaped
    def __call__(self, x: Float[Array, "batch height width channels"]) -> Float[Array, "batch classes"]:
        """Map images to logits. Gradients flow to ``x`` and the parameters."""
        x = self.patches(x)
        x = x.reshape(x.shape[0], -1, x.shape[-1])
        token = jnp.broadcast_to(self.token[...].astype(x.dtype), (x.shape[0], 1, x.shape[-1]))
        x = self.dropout(jnp.concatenate([token, x], 1) + self.positions[...].astype(x.dtype))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))

    @staticmethod
    def convert(weights: Weights) -> Weights:
        """Convert torchvision's or Hugging Face's names."""
        if "class_token" not in weights:
            return translate(weights, _HUGGING_FACE)
        parted: Weights = {}
        for name, value in weights.items():
            stem, packed, leaf = name.partition("in_proj_")
            if packed:  # query, key and value in one array
                parts = zip(("query", "key", "value"), np.split(value, 3), strict=True)
                parted |= {f"{stem}{part}.{leaf}": rows for part, rows in parts}
            else:
                parted[name] = value
        return translate(parted, _TORCHVISION)


_TORCHVISION: list[Rule] = [
    (r"^class_token$", "token"),
    (r"^conv_proj", "patches"),
    (r"^encoder\.pos_embedding$", "positions"),
    (r"^encoder\.layers\.encoder_layer_(\d+)\.", r"blocks.\1."),
    (r"\.ln_([12])\.", r".norm\1."),
    (r"\.self_attention\.out_proj", ".attention.out"),
    (r"\.self_attention", ".attention"),
    (r"\.mlp\.(0|linear_1)\.", ".up."),
    (r"\.mlp\.(3|linear_2)\.", ".down."),
    (r"^encoder\.ln", "norm"),
    (r"^heads\.head", "head"),
]
_HUGGING_FACE: list[Rule] = [
    (r"^vit\.embeddings\.cls_token$", "token"),
    (r"^vit\.embeddings\.position_embeddings$", "positions"),
    (r"^vit\.embeddings\.patch_embeddings\.projection", "patches"),
    (r"^vit\.(encoder\.layer|layers)\.", "blocks."),  # files and older versions; memory since version 5
    (r"\.layernorm_before", ".norm1"),
    (r"\.layernorm_after", ".norm2"),
    (r"\.attention\.attention", ".attention"),
    (r"\.attention\.output\.dense", ".attention.out"),
    (r"\.attention\.q_proj", ".attention.query"),
    (r"\.attention\.k_proj", ".attention.key"),
    (r"\.attention\.v_proj", ".attention.value"),
    (r"\.attention\.o_proj", ".attention.out"),
    (r"\.(intermediate\.dense|mlp\.fc1)", ".up"),
    (r"\.(output\.dense|mlp\.fc2)", ".down"),
    (r"^vit\.layernorm", "norm"),
    (r"^classifier", "head"),
]


def vit_b_16(
    num_classes: int = 1000,
    pretrained: str | os.PathLike[str] | bool | None = None,
    *,
    new_head: bool = False,
    rngs: nnx.Rngs,
) -> ViT:
    """ViT-B/16 for 224 x 224 images. For ``pretrained`` and ``new_head`` see :func:`fphys.nn.weights.pretrained`."""
    return _with(ViT(num_classes=num_classes, rngs=rngs), "vit_b_16", pretrained, new_head=new_head)
