"""Random image augmentation on the device, pure and jitted. Best used inside the loss, with the step's key.

Images are floating point, shape (n, height, width, channels), from 0 to 1. Every image gets its own random numbers.
Gradients flow to the images.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Array = jax.Array


@functools.partial(jax.jit, static_argnames=("size", "padding"))
def random_crop(key: Array, images: Array, size: tuple[int, int], padding: int = 0) -> Array:
    """Cut a random window of ``size`` (height, width) from each image, with ``padding`` black pixels on every side.

    Returns:
        Shape (n, *size, channels).

    Raises:
        ValueError: ``size`` is larger than the padded image.
    """
    edges = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    images = jnp.pad(_batch(images), edges)
    if any(want > have for want, have in zip(size, images.shape[1:3])):
        raise ValueError(f"random_crop of {size} is larger than the images, {images.shape[1:3]} with padding")
    return _each(lambda pix, k, x: pix.random_crop(k, x, (*size, x.shape[-1])), key, images)


@jax.jit
def random_flip(key: Array, images: Array) -> Array:
    """Mirror images, (n, height, width, channels), left to right with probability one half."""
    return _each(lambda pix, k, x: pix.random_flip_left_right(k, x), key, _batch(images))


@functools.partial(jax.jit, static_argnames=("brightness", "contrast", "saturation", "hue"))
def color_jitter(
    key: Array,
    images: Array,
    brightness: float = 0.0,
    contrast: float = 0.0,
    saturation: float = 0.0,
    hue: float = 0.0,
) -> Array:
    """Change colours of images, (n, height, width, channels), at random, then clip to 0 ... 1.

    Args:
        brightness: at most this much is added or subtracted.
        contrast, saturation: factors are drawn from 1 - value to 1 + value.
        hue: at most this fraction of the colour circle is added or subtracted.

    Raises:
        ValueError: saturation or hue for images without three channels, or a value out of range.
    """
    if not (brightness >= 0 and 0 <= contrast < 1 and 0 <= saturation < 1 and 0 <= hue <= 0.5):
        raise ValueError(
            f"brightness={brightness}, contrast={contrast}, saturation={saturation}, hue={hue}: must be at least 0, "
            "below 1 for contrast and saturation, and at most 0.5 for hue"
        )
    if (saturation or hue) and images.shape[-1] != 3:
        raise ValueError(f"saturation and hue need three channels (RGB), the images have {images.shape[-1]}")

    def jitter(pix: Any, key: Array, image: Array) -> Array:
        keys = jax.random.split(key, 4)
        image = pix.random_brightness(keys[0], image, brightness) if brightness else image
        image = pix.random_contrast(keys[1], image, 1 - contrast, 1 + contrast) if contrast else image
        image = pix.random_saturation(keys[2], image, 1 - saturation, 1 + saturation) if saturation else image
        image = pix.random_hue(keys[3], image, hue) if hue else image
        return jnp.clip(image, 0.0, 1.0)

    return _each(jitter, key, _batch(images))


@functools.partial(jax.jit, static_argnames=("size",))
def cutout(key: Array, images: Array, size: int) -> Array:
    """Black out a square of ``size`` pixels a side around a random pixel (DeVries and Taylor 2017).

    Images have shape (n, height, width, channels); each gets its own square.
    """

    def cut(pix: Any, key: Array, image: Array) -> Array:
        height, width = image.shape[:2]
        row, column = (jax.random.randint(k, (), 0, n) for k, n in zip(jax.random.split(key), (height, width)))
        rows, columns = jnp.arange(height) - (row - size // 2), jnp.arange(width) - (column - size // 2)
        inside = ((rows >= 0) & (rows < size))[:, None] & ((columns >= 0) & (columns < size))[None, :]
        return jnp.where(inside[..., None], jnp.zeros((), image.dtype), image)

    return _each(cut, key, _batch(images))


def _each(change: Callable[[Any, Array, Array], Array], key: Array, images: Array) -> Array:
    """Apply ``change(dm_pix, key, image)`` to every image, each with its own key."""
    import dm_pix as pix

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # dm_pix needs them
        changed = jax.vmap(functools.partial(change, pix))(jax.random.split(key, len(images)), images)
    return changed.astype(images.dtype)


def _batch(images: Array) -> Array:
    if images.ndim != 4 or not jnp.issubdtype(images.dtype, jnp.floating):
        raise ValueError(
            f"images are {images.dtype}{images.shape}, must be floating point (n, height, width, channels), from 0 to 1"
        )
    return images
