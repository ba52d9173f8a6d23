"""Transforms agree with torchvision's, whose arithmetic is written here in PIL and plain torch."""

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fphys import data

SIZES = st.integers(1, 40)


def picture(height, width, channels=3, seed=0):
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)
    ramp = np.linspace(0, 255, width, dtype=np.uint8)[None, :, None]
    return noise // 2 + ramp // 2


def crop_of_torchvision(image, size):
    """``functional.center_crop``: pad if the image is smaller, then crop at rounded halves."""
    height, width = image.shape[:2]
    if height < size or width < size:
        left, top = max(size - width, 0) // 2, max(size - height, 0) // 2
        right, bottom = (max(size - width, 0) + 1) // 2, (max(size - height, 0) + 1) // 2
        tensor = torch.from_numpy(image.copy()).permute(2, 0, 1)
        image = torch.nn.functional.pad(tensor, (left, right, top, bottom)).permute(1, 2, 0).numpy()
        height, width = image.shape[:2]
    top, left = round((height - size) / 2.0), round((width - size) / 2.0)
    return image[top : top + size, left : left + size]


@given(SIZES, SIZES, SIZES)
@settings(max_examples=60, deadline=None)
def test_resize_by_the_shorter_side(height, width, size):
    short, long = sorted((height, width))
    other = int(size * long / short)
    wanted = (other, size) if width <= height else (size, other)
    image = picture(height, width)
    found = data.Resize(size)(image)
    assert found.shape == (*wanted, 3) and found.dtype == np.uint8
    reference = np.asarray(Image.fromarray(image).resize(wanted[::-1], Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(found, reference)


@pytest.mark.parametrize("size", [(7, 9), (16, 12), (31, 64)])
@pytest.mark.parametrize("channels", [1, 3])
def test_resize_is_torch_s_antialiased_interpolation(size, channels):
    image = picture(24, 20, channels)
    tensor = torch.from_numpy(image.astype(np.float32)).permute(2, 0, 1)[None]
    reference = torch.nn.functional.interpolate(tensor, size, mode="bilinear", antialias=True, align_corners=False)
    found = data.Resize(size)(image)
    assert found.shape == (*size, channels)
    np.testing.assert_allclose(found, reference[0].permute(1, 2, 0), atol=1.01)  # PIL rounds after each direction


@given(SIZES, SIZES, SIZES)
@settings(max_examples=60, deadline=None)
def test_center_crop(height, width, size):
    image = picture(height, width)
    np.testing.assert_array_equal(data.CenterCrop(size)(image), crop_of_torchvision(image, size))


def test_the_chain_of_imagenet_is_torch_s():
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    image = picture(50, 37)
    steps = [data.Resize(32), data.CenterCrop(28)]
    small = np.asarray(Image.fromarray(image).resize((32, int(32 * 50 / 37)), Image.Resampling.BILINEAR))
    tensor = torch.from_numpy(crop_of_torchvision(small, 28).copy()).permute(2, 0, 1).to(torch.float32).div(255)
    reference = tensor.sub(torch.tensor(mean).view(-1, 1, 1)).div(torch.tensor(std).view(-1, 1, 1)).numpy()
    first = data.Compose([*steps, data.ToTensor(channels_first=True), data.Normalize(mean, std, channels_first=True)])
    last = data.Compose([*steps, data.ToTensor(), data.Normalize(mean, std)])
    np.testing.assert_array_equal(first(image), reference)
    np.testing.assert_array_equal(last(image), reference.transpose(1, 2, 0))
    assert first(image).dtype == np.float32 and first(image).flags.c_contiguous


def test_to_tensor_keeps_other_dtypes():
    image = np.full((2, 2, 1), 7.0)
    np.testing.assert_array_equal(data.ToTensor()(image), image)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "1", "CMYK"])
def test_images_of_every_mode_are_read_as_rgb(tmp_path, mode):
    form = "TIFF" if mode == "CMYK" else "PNG"
    stored = Image.fromarray(picture(6, 5)).convert(mode)
    buffer = io.BytesIO()
    stored.save(buffer, form)
    (tmp_path / "image").write_bytes(buffer.getvalue())
    found = data.read_image(tmp_path / "image")
    assert found.shape == (6, 5, 3) and found.dtype == np.uint8
    np.testing.assert_array_equal(found, np.asarray(stored.convert("RGB")))


def test_invalid_arguments_are_refused():
    with pytest.raises(TypeError, match=r"put ToTensor\(\) before it"):
        data.Normalize((0.5,), (0.5,))(picture(2, 2))
    with pytest.raises(ValueError, match="holds a zero"):
        data.Normalize((0.5,), (0.0,))
    for transform in (data.Resize(3), data.CenterCrop(3), data.ToTensor()):
        with pytest.raises(TypeError, match=r"\(height, width, channels\), not \(4, 4\)"):
            transform(np.zeros((4, 4), np.uint8))


def test_grey_of_16_bits_is_scaled(tmp_path):
    """Pillow's own conversion cuts it off at 255, which is nearly all white. A dark image stays dark."""
    values = np.linspace(0, 65535, 12).astype(np.uint16).reshape(3, 4)
    for grey in (values, values // 300):
        Image.fromarray(grey).save(tmp_path / "a.png")
        found = data.read_image(tmp_path / "a.png")
        assert found.dtype == np.uint8 and found.shape == (3, 4, 3)
        np.testing.assert_array_equal(found, np.round(grey / 257)[..., None].repeat(3, -1))


def test_random_windows():
    """Area and shape as asked for, inside the image, and resized."""
    image, rng = picture(40, 60), np.random.default_rng(3)
    crop = data.RandomResizedCrop(8, scale=(0.2, 0.5))
    windows = [crop.window(400, 600, rng) for _ in range(200)]
    shares = [h * w / 240_000 for _, _, h, w in windows]
    shapes = [w / h for _, _, h, w in windows]
    assert 0.19 < min(shares) < 0.25 and 0.45 < max(shares) < 0.51
    assert 0.74 < min(shapes) < 0.8 and 1.25 < max(shapes) < 1.35
    assert all(0 <= top <= 400 - h and 0 <= left <= 600 - w for top, left, h, w in windows)
    assert crop(image, rng).shape == (8, 8, 3)
    assert data.RandomResizedCrop((4, 6), scale=(1, 1), ratio=(1, 1)).window(400, 900, rng) == (0, 250, 400, 400)
    with pytest.raises(ValueError, match=r"scale=\(0, 1\).*must be positive"):
        data.RandomResizedCrop(8, scale=(0, 1))


@pytest.mark.parametrize("transform", [data.Resize, data.CenterCrop, data.RandomResizedCrop])
def test_sizes(transform):
    def made(size):
        found = transform(size)
        return found(picture(20, 30), *[np.random.default_rng(0)] * (transform is data.RandomResizedCrop))

    for size in ([8, 9], np.array([8, 9]), (np.int64(8), 9)):
        assert made(size).shape == (8, 9, 3)
        assert transform(size) == transform((8, 9))
    np.testing.assert_array_equal(made(np.int64(7)), made(7))
    for size in (0, -3, (8,), (8, 9, 3), [8, 0], 7.5, "8", None):
        with pytest.raises(ValueError, match=r"\w+\(size=.*\): size must be one or two whole numbers, 1 or more"):
            transform(size)


def test_means_and_channels():
    image = data.ToTensor()(picture(4, 5))
    one = data.Normalize(0.5, 0.25)
    np.testing.assert_array_equal(one(image), (image - np.float32(0.5)) / np.float32(0.25))
    np.testing.assert_array_equal(data.Normalize([0.5] * 3, np.full(3, 0.25))(image), one(image))
    np.testing.assert_array_equal(data.Normalize((0.5,), 0.25, channels_first=True)(image), one(image))
    with pytest.raises(ValueError, match="mean has 3 numbers and std 2, must have the same"):
        data.Normalize((0.5,) * 3, (0.5,) * 2)
    np.testing.assert_array_equal(one(image[None]), one(image)[None])
    with pytest.raises(ValueError, match=r"for 3 channels, the image \(4, 5, 1\) has 1"):
        data.IMAGENET(image[..., :1])
    with pytest.raises(ValueError, match=r"for 3 channels, the image \(4, 5, 3\) has 4"):
        data.Normalize((0.5,) * 3, (0.5,) * 3, channels_first=True)(image)
