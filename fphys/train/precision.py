"""The precision of the loss. Parameters and optimizer state keep their own."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Precision:
    """The dtype that floating-point parameters and batches are cast to before the loss sees them.

    The parameters' master copy, their gradients and the optimizer's state keep the parameters' own dtype. Gradients
    flow through the cast and arrive in that dtype (Micikevicius et al. 2018, Mixed precision training).
    """

    compute: Any = None
    """A floating dtype; None means no cast."""
    scaled: bool = False
    """Whether the loss is multiplied by a dynamic :class:`LossScale`, so that small gradients do not vanish."""

    def cast(self, tree: Any) -> Any:
        """``tree`` with its floating-point leaves in ``compute``; integers, keys and other leaves are unchanged."""
        if self.compute is None:
            return tree
        return jax.tree.map(lambda x: x.astype(self.compute) if is_floating(x) else x, tree)


AS_IT_IS = Precision()
FLOAT32 = Precision(jnp.float32)
BFLOAT16 = Precision(jnp.bfloat16)
FLOAT16 = Precision(jnp.float16, scaled=True)


def is_floating(x: Any) -> bool:
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)
