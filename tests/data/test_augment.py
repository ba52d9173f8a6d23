"""Random augmentation: what it may change, how often, and that it is pure."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.data import augment
from fphys.testing import check_grads

from ..compiled import as_users

KEY = jax.random.key(3)


def images(n=64, height=8, width=6, channels=3, dtype=np.float32):
    return jnp.asarray(np.random.default_rng(0).uniform(0.05, 0.95, (n, height, width, channels)).astype(dtype))


OPERATIONS = {
    "crop": lambda key, x: augment.random_crop(key, x, (6, 5), padding=2),
    "flip": augment.random_flip,
    "jitter": lambda key, x: augment.color_jitter(key, x, 0.2, 0.3, 0.4, 0.1),
    "cutout": lambda key, x: augment.cutout(key, x, 3),
}


def test_a_crop_is_a_window_of_the_padded_image():
    x = np.asarray(images(200))
    padded = np.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0)))
    found = np.asarray(OPERATIONS["crop"](KEY, x))
    places = set()
    for crop, image in zip(found, padded, strict=True):
        windows = {(i, j): image[i : i + 6, j : j + 5] for i in range(7) for j in range(6)}
        (place,) = (place for place, window in windows.items() if np.array_equal(window, crop))
        places.add(place)
    assert {i for i, _ in places} == set(range(7)) and {j for _, j in places} == set(range(6))


def test_half_of_the_images_are_flipped():
    x = images(400)
    found = augment.random_flip(KEY, x)
    flipped = np.asarray((found == x[:, :, ::-1]).all((1, 2, 3)))
    same = np.asarray((found == x).all((1, 2, 3)))
    assert (flipped ^ same).all()
    assert abs(flipped.mean() - 0.5) < 0.1  # four standard deviations


def test_a_square_is_cut_out():
    found = np.asarray(augment.cutout(KEY, images(300), 3))
    black = (found == 0).all(3)
    assert (black == (found == 0).any(3)).all()
    sizes = black.sum((1, 2))
    assert sizes.max() == 9 and sizes.min() >= 4 and black.any(0).all()
    for mask in black:
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        assert mask.sum() == len(rows) * len(columns) and rows.max() - rows.min() < 3


@pytest.mark.parametrize(("name", "bound"), [("brightness", 0.2), ("contrast", 0.3), ("saturation", 0.4), ("hue", 0.1)])
def test_jitter_of_each_kind(name, bound):
    x = images(100) * 0.4 + 0.3
    found = augment.color_jitter(KEY, x, **{name: bound})
    assert found.shape == x.shape and not (found == x).all()
    assert float(found.min()) >= 0 and float(found.max()) <= 1
    gray = jnp.repeat(x[..., :1], 3, -1)
    changed = augment.color_jitter(KEY, gray, **{name: bound})
    if name in ("saturation", "hue"):  # grey images have neither
        np.testing.assert_allclose(changed, gray, atol=1e-5)
    if name == "brightness":
        shift = np.asarray(found - x).reshape(100, -1)
        np.testing.assert_allclose(shift, shift[:, :1].repeat(shift.shape[1], 1), atol=1e-6)
        assert np.abs(shift).max() <= bound and np.ptp(shift[:, 0]) > bound
    if name == "contrast":
        spread = np.asarray(found.std((1, 2)) / x.std((1, 2)))
        assert spread.max() <= 1 + bound + 1e-4 and spread.min() >= 1 - bound - 1e-4 and np.ptp(spread) > bound


def test_the_defaults_change_nothing():
    x = images()
    np.testing.assert_array_equal(augment.color_jitter(KEY, x), x)
    np.testing.assert_array_equal(augment.random_crop(KEY, x, (8, 6)), x)


@pytest.mark.parametrize("name", OPERATIONS)
def test_pure_jitted_and_each_image_for_itself(name):
    operation, x = OPERATIONS[name], images()
    found = operation(KEY, x)
    np.testing.assert_array_equal(found, operation(KEY, x))
    np.testing.assert_allclose(found, jax.jit(operation)(KEY, x), atol=1e-6)
    assert not np.array_equal(found, operation(jax.random.key(4), x))
    alike = operation(KEY, jnp.broadcast_to(x[:1], x.shape))
    assert len({image.tobytes() for image in np.asarray(alike)}) > 1
    assert found.dtype == x.dtype and operation(KEY, x.astype(jnp.bfloat16)).dtype == jnp.bfloat16


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "jitter"])
def test_gradients_flow_to_the_images(name):
    check_grads(lambda x: OPERATIONS[name](KEY, x), (images(2, dtype=np.float64) * 0.4 + 0.3,), directions=3)


def test_gradients_of_jitter():
    """A hue is found from the greatest of three channels, to which both passes have to agree."""
    x = images(2, dtype=np.float64) * 0.4 + 0.3
    some, *ways = np.random.default_rng(0).normal(size=(4, *x.shape))
    weighed = lambda x: (OPERATIONS["jitter"](KEY, x) * some).sum()  # noqa: E731
    value, slope = as_users(weighed), as_users(jax.grad(weighed))(x)
    for way in ways:
        difference = (value(x + 1e-6 * way) - value(x - 1e-6 * way)) / 2e-6
        np.testing.assert_allclose((slope * way).sum(), difference, rtol=1e-7)


def test_invalid_arguments_are_refused():
    with pytest.raises(ValueError, match=r"random_crop of \(9, 6\) is larger than the images, \(8, 6\)"):
        augment.random_crop(KEY, images(), (9, 6))
    with pytest.raises(ValueError, match="three channels"):
        augment.color_jitter(KEY, images(channels=1), hue=0.1)
    with pytest.raises(ValueError, match="below 1"):
        augment.color_jitter(KEY, images(), contrast=1.0)
    for wrong in (images()[0], jnp.zeros((2, 4, 4, 3), jnp.uint8)):
        with pytest.raises(ValueError, match="must be floating point"):
            augment.random_flip(KEY, wrong)
