"""Readers of file formats: real digits are written in each format and read back; files are missing or damaged."""

import gzip
import struct

import numpy as np
import pytest
from PIL import Image

from fphys import data
from fphys.data import DataError

pytestmark = pytest.mark.extra("sklearn")


@pytest.fixture(scope="module")
def digits():
    arrays = data.digits("test").columns
    return (arrays["image"][:50] * 15).astype(np.uint8), arrays["label"][:50]


def idx(values, code=0x08):
    return struct.pack(f">BBBB{values.ndim}I", 0, 0, code, values.ndim, *values.shape) + values.tobytes()


def write_mnist(folder, images, labels, zipped):
    for prefix in ("train", "t10k"):
        for name, values in ((f"{prefix}-images-idx3-ubyte", images[..., 0]), (f"{prefix}-labels-idx1-ubyte", labels)):
            content = idx(values.astype(np.uint8))
            (folder / (f"{name}.gz" if zipped else name)).write_bytes(gzip.compress(content) if zipped else content)


def write_cifar(folder, images, labels):
    planes = np.pad(images, ((0, 0), (12, 12), (12, 12), (0, 0))) * np.uint8([[[[1, 2, 3]]]])
    records = np.concatenate(
        [labels[:, None].astype(np.uint8), planes.transpose(0, 3, 1, 2).reshape(len(labels), -1)], 1
    )
    parts = np.split(records, 5)
    for i, part in enumerate(parts, 1):
        (folder / f"data_batch_{i}.bin").write_bytes(part.tobytes())
    (folder / "test_batch.bin").write_bytes(parts[0].tobytes())
    return planes


def write_folder(folder, images, labels):
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        (folder / f"n{label}").mkdir(exist_ok=True)
        Image.fromarray(image[..., 0]).save(folder / f"n{label}" / f"{i:03}.png")


# --- digits


def test_digits_are_split_once_and_for_all():
    train, test = data.digits("train"), data.digits("test")
    assert (len(train), len(test)) == (1438, 359)
    assert train[0]["image"].shape == (8, 8, 1) and train[0]["image"].dtype == np.float32
    assert train.columns["image"].min() == 0 and train.columns["image"].max() == 1
    every = {image.tobytes() for source in (train, test) for image in source.columns["image"]}
    assert len(every) == 1797
    other = data.digits("test", seed=1)
    assert not np.array_equal(other.columns["label"], test.columns["label"])
    with pytest.raises(ValueError, match="split is 'validation'"):
        data.digits("validation")


# --- IDX


@pytest.mark.parametrize("zipped", [False, True])
def test_mnist_comes_back(tmp_path, digits, zipped):
    images, labels = digits
    write_mnist(tmp_path, images, labels, zipped)
    for split in ("train", "test"):
        found = data.mnist(tmp_path, split).columns
        np.testing.assert_array_equal(found["image"], images)
        np.testing.assert_array_equal(found["label"], labels)
        assert found["image"].dtype == np.uint8 and found["label"].dtype == np.int32


@pytest.mark.parametrize(
    ("code", "dtype"), [(0x08, ">u1"), (0x09, ">i1"), (0x0B, ">i2"), (0x0C, ">i4"), (0x0D, ">f4"), (0x0E, ">f8")]
)
def test_idx_of_every_type(tmp_path, code, dtype):
    values = np.arange(-6, 6).reshape(2, 3, 2).astype(dtype)
    (tmp_path / "values").write_bytes(idx(values, code))
    found = data.read_idx(tmp_path / "values")
    np.testing.assert_array_equal(found, values)
    assert found.dtype.isnative


def test_idx_faults_are_named(tmp_path, digits):
    images, labels = digits
    write_mnist(tmp_path, images, labels, False)
    path = tmp_path / "train-images-idx3-ubyte"
    content = path.read_bytes()
    for cut, text in [
        (0, "not an IDX file"),
        (3, "not an IDX file"),
        (9, "truncated within its header"),
        (100, "is truncated"),
    ]:
        path.write_bytes(content[:cut])
        with pytest.raises(DataError, match=rf"train-images-idx3-ubyte .*{text}"):
            data.mnist(tmp_path)
    for k in range(1, 16):
        path.write_bytes(content[: len(content) * k // 16])
        with pytest.raises(DataError, match=f"takes {len(content)} bytes, it has"):
            data.mnist(tmp_path)
    path.write_bytes(content + b"\0")
    with pytest.raises(DataError, match="too long"):
        data.mnist(tmp_path)
    path.write_bytes(b"\x89PNG" + content)
    with pytest.raises(DataError, match="not an IDX file"):
        data.mnist(tmp_path)
    path.write_bytes(idx(images[:7, ..., 0]))
    with pytest.raises(DataError, match=r"train-labels.* shape \(50,\) for 7 images"):
        data.mnist(tmp_path)
    path.write_bytes(content)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.full(50, 10, np.uint8)))
    with pytest.raises(DataError, match="label 10 of record 0"):
        data.mnist(tmp_path)
    assert len(data.mnist(tmp_path, num_classes=11)) == 50
    path.unlink()
    with pytest.raises(DataError, match=r"holds neither train-images-idx3-ubyte nor .*\.gz. MNIST's four files"):
        data.mnist(tmp_path)
    with pytest.raises(DataError, match="is not a folder"):
        data.mnist(tmp_path / "absent")
    with pytest.raises(ValueError, match="split is 'all'"):
        data.mnist(tmp_path, "all")


def test_a_damaged_gzip_is_named(tmp_path, digits):
    write_mnist(tmp_path, *digits, True)
    path = tmp_path / "train-labels-idx1-ubyte.gz"
    content = path.read_bytes()
    for damaged in (
        content[:5],
        content[: len(content) // 2],
        content[:-3],
        b"",
        content[:20] + b"\xff" + content[21:],
    ):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"train-labels-idx1-ubyte\.gz"):
            data.mnist(tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        data.read_idx(tmp_path / "nothing.gz")


# --- CIFAR-10


def test_cifar_comes_back(tmp_path, digits):
    planes = write_cifar(tmp_path, *digits)
    found = data.cifar10(tmp_path).columns
    np.testing.assert_array_equal(found["image"], planes)
    np.testing.assert_array_equal(found["label"], digits[1])
    assert found["image"].flags.c_contiguous and len(data.cifar10(tmp_path, "test")) == 10


def test_cifar_faults_are_named(tmp_path, digits):
    write_cifar(tmp_path, *digits)
    path = tmp_path / "data_batch_3.bin"
    content = path.read_bytes()
    for damaged in (content[:-1], content + b"\0", b""):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"data_batch_3\.bin is truncated or not a CIFAR-10 file"):
            data.cifar10(tmp_path)
    path.write_bytes(b"\x63" + content[1:])
    with pytest.raises(DataError, match=r"data_batch_3\.bin is not a CIFAR-10 file: label 99 of record 0"):
        data.cifar10(tmp_path)
    path.unlink()
    with pytest.raises(DataError, match=r"does not hold data_batch_3\.bin\. It is part of"):
        data.cifar10(tmp_path)
    with pytest.raises(ValueError, match="split is"):
        data.cifar10(tmp_path, "valid")


# --- ImageNet's layout


def test_a_folder_of_images_comes_back(tmp_path, digits):
    images, labels = digits
    write_folder(tmp_path, images, labels)
    source = data.ImageFolder(tmp_path)
    assert source.classes == tuple(f"n{i}" for i in range(10)) and len(source) == 50
    for i, (path, label) in enumerate(source.files):
        number = int(path.stem)
        assert label == labels[number] == source[i]["label"]
        np.testing.assert_array_equal(source[i]["image"], np.repeat(images[number], 3, 2))
    resized = data.ImageFolder(tmp_path, data.Compose([data.Resize(12), data.CenterCrop(10), data.ToTensor()]))
    batch = next(iter(data.loader(resized, 8)))
    assert batch["image"].shape == (8, 10, 10, 3) and batch["label"].dtype == np.int32


def test_folder_faults_are_named(tmp_path, digits):
    with pytest.raises(DataError, match="is not a folder"):
        data.ImageFolder(tmp_path / "absent")
    with pytest.raises(DataError, match="no class folders"):
        data.ImageFolder(tmp_path)
    write_folder(tmp_path, *digits)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(DataError, match="nothing holds no image"):
        data.ImageFolder(tmp_path)
    (tmp_path / "nothing").rmdir()
    source = data.ImageFolder(tmp_path)
    path = source.files[3][0]
    content = path.read_bytes()
    for damaged in (b"", b"no image at all", content[:20], content[: len(content) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=f"{path.name} is truncated or not an image"):
            source[3]
    path.unlink()
    with pytest.raises(DataError, match=f"{path.name}: there is no such file"):
        source[3]
