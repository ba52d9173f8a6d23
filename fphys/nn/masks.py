"""Which positions attend to which: the arguments of the transformer's layers, checked and combined."""

import jax
import jax.numpy as jnp

Array = jax.Array


def visible(x: Array, seen: Array, num_heads: int, mask: Array | None, valid: Array | None) -> Array | None:
    """Combine the masks of a layer into one for :class:`fphys.nn.MultiHeadAttention`. True attends.

    Args:
        x, seen: what attends and what it attends to, shapes (batch, query, features) and (batch, key, ...).
        num_heads: of the attention.
        mask: bool, shape (query, key), (batch, query, key) or (batch, head, query, key); axes may have size 1.
        valid: which keys are no padding, bool, shape (batch, key).

    Returns:
        Four axes that broadcast to (batch, head, query, key); None if both masks are.

    Raises:
        TypeError: a mask is not boolean. ValueError: its shape does not fit.
    """
    (batch, queries, _), keys = x.shape, seen.shape[1]
    if mask is not None:
        _boolean("mask", mask)
        lead = {2: (1, 1), 3: (*mask.shape[:1], 1), 4: mask.shape[:2]}.get(mask.ndim, (0, 0))
        wanted = (batch, num_heads, queries, keys)
        if any(size not in (1, full) for size, full in zip((*lead, *mask.shape[-2:]), wanted, strict=True)):
            raise ValueError(
                f"mask has shape {mask.shape}, must be (query, key), (batch, query, key) or (batch, head, query, key) "
                f"with (batch, head, query, key) = {wanted}"
            )
        mask = mask.reshape(*lead, *mask.shape[-2:])
    if valid is None:
        return mask
    _boolean("valid", valid)
    if valid.shape != (batch, keys):
        raise ValueError(f"valid has shape {valid.shape}, must be (batch, key) = {(batch, keys)}")
    valid = valid[:, None, None]
    return valid if mask is None else jnp.logical_and(mask, valid)


def fits(name: str, x: Array, features: int, batch: int | None = None) -> None:
    """Refuse a sequence that is not (batch, position, features).

    Raises:
        ValueError: the shape is another.
    """
    wanted = (x.shape[0] if x.ndim and batch is None else batch, x.shape[1] if x.ndim > 1 else None, features)
    if x.shape != wanted:
        first = "batch" if batch is None else batch
        raise ValueError(
            f"{name} has shape {x.shape}, must be (batch, position, features) = ({first}, any, {features})"
        )


def _boolean(name: str, mask: Array) -> None:
    if mask.dtype != bool:
        raise TypeError(
            f"{name} is {mask.dtype}, must be bool, True where a position attends: where a tokenizer's mask is 1, "
            "where torch's boolean masks are False, and where its floating-point ones are 0"
        )
