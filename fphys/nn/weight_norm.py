"""Weight normalisation whose scales are trained."""

from typing import Any

import jax
from flax import nnx

Array = jax.Array


class WeightNorm(nnx.WeightNorm):
    """:class:`flax.nnx.WeightNorm`, whose scales are parameters: g v / |v| (Salimans and Kingma 2016).

    Flax holds them as plain arrays, which are not trained. ``kernel`` of the wrapped layer is v, of any length; the
    scales g, one for each output, begin at 1, where torch's begin at the kernel's norm.
    """

    def __init__(self, layer_instance: nnx.Module, *, rngs: nnx.Rngs, **options: Any):
        super().__init__(layer_instance, rngs=rngs, **options)
        if self.scales is not None:
            self.scales = nnx.data({path: nnx.Param(scale) for path, scale in self.scales.items()})
