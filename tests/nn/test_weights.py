"""Weights from torchvision's and Hugging Face's state dicts give the same outputs; and files of weights."""

import functools
import json
import os
import pickle
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from fphys import nn
from fphys.nn import models

from . import references as R

pytestmark = pytest.mark.usefixtures("flax_promotes")
VIT = {"features": 16, "depth": 2, "num_heads": 4, "num_classes": 7}


def resnet(block, make):
    deep = block is models.Bottleneck
    reference = make(*R.SMALL.resnet, deep, 7)
    return partial(models.ResNet, block, R.SMALL.resnet[0], 7, widths=R.SMALL.resnet[1]), reference


def plain(module):
    module = R.randomised(module)
    return module, module.state_dict()


CASES = {
    "resnet, basic": lambda: resnet(models.BasicBlock, lambda *a: plain(R.ResNet(*a))),
    "resnet, bottleneck": lambda: resnet(models.Bottleneck, lambda *a: plain(R.ResNet(*a))),
    "resnet, Hugging Face": lambda: resnet(models.Bottleneck, R.hugging_face_resnet),
    "vgg": lambda: (partial(models.VGG, R.SMALL.vgg, 7, hidden=12), plain(R.VGG(R.SMALL.vgg, 12, 7))),
    "vgg, norms": lambda: (
        partial(models.VGG, R.SMALL.vgg, 7, hidden=12, batch_norm=True),
        plain(R.VGG(R.SMALL.vgg, 12, 7, norms=True)),
    ),
    "vit, torchvision": lambda: (partial(models.ViT, 32, 8, **VIT), plain(R.TorchvisionViT(32, 8, 16, 2, 4, 7))),
    "vit, Hugging Face": lambda: (
        partial(models.ViT, 32, 8, **VIT, epsilon=1e-12),
        plain(R.HuggingFaceViT(32, 8, 16, 2, 4, 7)),
    ),
    "vit, transformers 5 in memory": lambda: (partial(models.ViT, 32, 8, **VIT, epsilon=1e-12), renamed_vit()),
}
NEW_NAMES = {
    "encoder.layer.": "layers.",
    "attention.attention.query": "attention.q_proj",
    "attention.attention.key": "attention.k_proj",
    "attention.attention.value": "attention.v_proj",
    "attention.output.dense": "attention.o_proj",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
}


def renamed_vit():
    """Files have the old names, and models in memory the new ones."""
    reference, weights = plain(R.HuggingFaceViT(32, 8, 16, 2, 4, 7))
    for old, new in NEW_NAMES.items():
        weights = {name.replace(old, new): value for name, value in weights.items()}
    return reference, weights


def shapes(constructor):
    """Structure and shapes only, because making random numbers takes longer than comparing."""
    return jax.eval_shape(partial(nn.init, constructor), jax.random.key(0))


def equal(constructor, reference, weights, x, feed):
    params, aux = nn.load_weights(*(made := shapes(constructor)), weights)
    with torch.no_grad():
        expected = reference(feed(x)).numpy()
    found = jax.jit(nn.apply)(made[0], params, aux, x)[0]
    assert found.dtype == np.float32 and np.std(expected) > 1e-2
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-4)


def image(x):
    return torch.from_numpy(np.moveaxis(x, -1, 1).copy())


@pytest.mark.parametrize("case", CASES)
def test_images_give_what_torch_gives(case):
    constructor, (reference, weights) = CASES[case]()
    size = 64 if "vgg" in case or "resnet" in case else 32
    x = np.random.default_rng(0).standard_normal((2, size, size, 3)).astype(np.float32)
    equal(constructor, reference, weights, x, image)


@pytest.mark.parametrize("prefix", ["transformer.", ""])
def test_tokens_give_what_torch_gives(prefix):
    reference = R.tied(R.HuggingFaceGPT2(50, 12, 16, 2, 4))
    weights = reference.state_dict()
    if not prefix:  # as in the bare model's file
        weights = {name.removeprefix("transformer."): v for name, v in weights.items() if name != "lm_head.weight"}
    constructor = partial(models.GPT2, 50, 12, features=16, depth=2, num_heads=4)
    tokens = np.random.default_rng(0).integers(0, 50, (3, 9))
    equal(constructor, reference, weights, tokens, torch.from_numpy)


def test_an_output_layer_of_its_own_is_refused():
    reference = R.tied(R.HuggingFaceGPT2(50, 12, 16, 2, 4))
    weights = reference.state_dict() | {"lm_head.weight": torch.zeros(50, 16)}
    with pytest.raises(nn.WeightsError, match=r"lm_head\.weight differs from wte\.weight: .* does not share them"):
        nn.load_weights(*shapes(partial(models.GPT2, 50, 12, features=16, depth=2, num_heads=4)), weights)


FULL = {
    "resnet18": lambda: R.ResNet((2, 2, 2, 2), (64, 128, 256, 512), False, 1000),
    "resnet34": lambda: R.ResNet((3, 4, 6, 3), (64, 128, 256, 512), False, 1000),
    "resnet50": lambda: R.ResNet((3, 4, 6, 3), (64, 128, 256, 512), True, 1000),
    "vgg11": lambda: R.VGG(((64,), (128,), (256,) * 2, (512,) * 2, (512,) * 2), 4096, 1000),
    "vgg16": lambda: R.VGG(((64,) * 2, (128,) * 2, (256,) * 3, (512,) * 3, (512,) * 3), 4096, 1000),
    "vgg11_bn": lambda: R.VGG(((64,), (128,), (256,) * 2, (512,) * 2, (512,) * 2), 4096, 1000, norms=True),
    "vit_b_16": lambda: R.TorchvisionViT(224, 16, 768, 12, 12, 1000),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL)
def test_full_size_images(name):
    reference, weights = plain(FULL[name]())
    x = np.random.default_rng(0).standard_normal((1, 224, 224, 3)).astype(np.float32)
    equal(getattr(models, name), reference, weights, x, image)


@pytest.mark.slow
def test_full_size_tokens():
    reference = R.tied(R.HuggingFaceGPT2(50257, 1024, 768, 12, 12))
    tokens = np.random.default_rng(0).integers(0, 50257, (1, 32))
    equal(models.gpt2, reference, reference.state_dict(), tokens, torch.from_numpy)


def test_a_mistake_in_a_name_would_show():
    """With two blocks exchanged, to show that the test above does not pass by chance."""
    constructor, (reference, weights) = CASES["vit, Hugging Face"]()
    swapped = {re.sub(r"layer\.([01])", lambda m: f"layer.{1 - int(m[1])}", name): v for name, v in weights.items()}
    x = np.random.default_rng(0).standard_normal((2, 32, 32, 3)).astype(np.float32)
    with pytest.raises(AssertionError, match="Mismatched"):
        equal(constructor, reference, swapped, x, image)


@functools.cache
def initialised():
    constructor, (_, weights) = CASES["vgg"]()
    return jax.jit(partial(nn.init, constructor))(jax.random.key(0)), weights


@pytest.fixture
def vgg():
    made, weights = initialised()
    return jax.tree.map(lambda leaf: leaf, made), weights


def test_mismatched_weights_are_listed(vgg):
    (module, params, aux), weights = vgg
    wrong = {name: value for name, value in weights.items() if name != "features.0.bias"}
    wrong |= {"classifier.6.weight": torch.zeros(9, 12), "extra.bias": torch.zeros(3)}
    with pytest.raises(nn.WeightsError) as error:
        nn.load_weights(module, params, aux, wrong)
    for part in (
        "do not fit VGG",
        "classifier.layers.6.kernel has shape (12, 9), the model's (12, 7)",
        "extra.bias is not in the model",
        "features.layers.0.bias is missing",
    ):
        assert part in str(error.value)


def test_weights_may_be_missing_unless_strict(vgg):
    (module, params, aux), weights = vgg
    some = {name: value for name, value in weights.items() if not name.startswith("classifier.6")}
    new, _ = nn.load_weights(module, params, aux, some, strict=False)
    np.testing.assert_array_equal(new["classifier"]["layers"][6]["kernel"], params["classifier"]["layers"][6]["kernel"])
    assert not np.array_equal(new["features"]["layers"][0]["kernel"], params["features"]["layers"][0]["kernel"])


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_by_name_from_the_cache(tmp_path, monkeypatch, suffix):
    monkeypatch.setenv("FPHYS_CACHE", str(tmp_path))
    make = partial(models.ResNet, models.BasicBlock, R.SMALL.resnet[0], 7, widths=R.SMALL.resnet[1])
    _, weights = plain(R.ResNet(*R.SMALL.resnet, False, 7))

    def constructor(rngs, which=True):
        return nn.weights.pretrained(make(rngs=rngs), "small", which)

    with pytest.raises(
        FileNotFoundError, match=r"'imagenet' of small are not in .*weights: save the state dict .* there as small-im"
    ):
        nn.init(constructor, jax.random.key(0))
    (tmp_path / "weights").mkdir()
    path = tmp_path / "weights" / f"small-imagenet{suffix}"
    if suffix == ".pth":
        torch.save(weights, path)
    else:
        from safetensors.torch import save_file

        save_file(weights, path)
    expected = nn.load_weights(*shapes(make), weights)
    for which in (True, "imagenet", path):
        _, params, aux = nn.init(partial(constructor, which=which), jax.random.key(0))
        jax.tree.map(np.testing.assert_array_equal, (params, aux), expected)


@pytest.mark.parametrize("case", ["resnet, Hugging Face", "vgg", "vit, torchvision"])
def test_a_new_head_is_left_as_initialised(tmp_path, case):
    """The weights of seven classes in a model of three: all but the output layer is the file's."""
    seven, (_, weights) = CASES[case]()
    torch.save(weights, tmp_path / "seven.pth")
    args = [3 if value == 7 else value for value in seven.args]
    three = partial(seven.func, *args, **{name: 3 if value == 7 else value for name, value in seven.keywords.items()})

    def build(rngs, new_head=False):
        return nn.weights.pretrained(three(rngs=rngs), "small", tmp_path / "seven.pth", new_head=new_head)

    _, params, aux = jax.jit(partial(nn.init, partial(build, new_head=True)))(jax.random.key(0))
    _, fresh, _ = jax.jit(partial(nn.init, three))(jax.random.key(0))
    wanted, wanted_aux = nn.load_weights(*shapes(seven), weights)
    jax.tree.map(np.testing.assert_array_equal, aux, wanted_aux)
    params, fresh, wanted = (nn.weights.flat(tree) for tree in (params, fresh, wanted))
    head = [f"{seven.func.HEAD}.{leaf}" for leaf in ("bias", "kernel")]
    for name, leaf in params.items():
        np.testing.assert_array_equal(leaf, (fresh if name in head else wanted)[name])
    with pytest.raises(nn.WeightsError, match=rf"{head[1]} has shape .*; new_head=True leaves {', '.join(head)} as"):
        shapes(build)


def test_a_new_head_excuses_nothing_else(tmp_path, vgg):
    _, weights = vgg
    torch.save({name: value for name, value in weights.items() if name != "features.0.bias"}, tmp_path / "w.pth")

    def build(rngs):
        model = models.VGG(R.SMALL.vgg, 3, hidden=12, rngs=rngs)
        return nn.weights.pretrained(model, "small", tmp_path / "w.pth", new_head=True)

    with pytest.raises(nn.WeightsError, match=r"VGG: features.layers.0.bias is missing(?!;)"):
        shapes(build)


NAMED = {"gpt2": "openai", "bert_base": "uncased", "bart_base": "facebook"}


def test_the_models_read_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FPHYS_CACHE", str(tmp_path))
    for name in ("resnet18", "resnet34", "resnet50", "vgg11", "vgg16", "vgg11_bn", "vgg16_bn", "vit_b_16", *NAMED):
        which = NAMED.get(name, "imagenet")
        with pytest.raises(FileNotFoundError, match=f"{name}-{which}.safetensors"):
            shapes(partial(getattr(models, name), pretrained=True))


def test_classifiers_take_a_new_head(monkeypatch):
    passed = []
    for name in FULL:
        build = getattr(models, name)
        monkeypatch.setitem(build.__globals__, "_with", lambda model, *_, new_head: passed.append(new_head) or model)
        shapes(partial(build, 3, "imagenet", new_head=True))
    assert passed == [True] * len(FULL)


def test_own_names_are_written_and_read(tmp_path, vgg):
    (module, params, aux), _ = vgg
    params["features"]["layers"][0]["kernel"] = params["features"]["layers"][0]["kernel"].swapaxes(0, 1)
    nn.write_weights(tmp_path / "w.safetensors", params, aux)
    _, other, _ = shapes(CASES["vgg"]()[0])
    found = nn.load_weights(module, other, aux, nn.read_weights(tmp_path / "w.safetensors"))
    jax.tree.map(np.testing.assert_array_equal, found, (params, aux))


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("suffix", [".pth", ".bin", ".pt"])
def test_a_pickle_is_not_run(tmp_path, suffix):
    path, trace = tmp_path / f"w{suffix}", tmp_path / "trace"
    for write in (
        lambda: torch.save({"w": Evil(str(trace))}, path),
        lambda: path.write_bytes(pickle.dumps(Evil(str(trace)))),
    ):
        write()
        with pytest.raises(nn.WeightsError, match="refused"):
            nn.read_weights(path)
        assert not trace.exists()


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_damaged_files(tmp_path, suffix):
    path = tmp_path / f"w{suffix}"
    if suffix == ".pth":
        torch.save({"w": torch.ones(100)}, path)
    else:
        nn.write_weights(path, {"w": jnp.ones(100)}, {})
    whole = path.read_bytes()
    for sixteenth in range(16):
        path.write_bytes(whole[: len(whole) * sixteenth // 16])
        with pytest.raises(nn.WeightsError, match=str(path)):
            nn.read_weights(path)
    path.write_bytes(b"hello")
    with pytest.raises(nn.WeightsError, match=str(path)):
        nn.read_weights(path)


@pytest.mark.parametrize("suffix", [".safetensors", ".bin"])
def test_a_model_in_several_files(tmp_path, suffix):
    """As Hugging Face writes it: parts, and an index that says which holds what."""
    from safetensors.torch import save_file

    weights = {name: torch.full((2,), float(i)) for i, name in enumerate("abc")}
    places = {"a": f"w-1{suffix}", "b": f"w-2{suffix}", "c": f"w-1{suffix}"}
    for part in set(places.values()):
        held = {name: weights[name] for name, place in places.items() if place == part}
        save_file(held, tmp_path / part) if suffix == ".safetensors" else torch.save(held, tmp_path / part)
    index = tmp_path / f"w{suffix}.index.json"

    def read(content):
        index.write_text(content if isinstance(content, str) else json.dumps({"weight_map": content}))
        return nn.read_weights(index)

    found = read(places)
    assert found.keys() == weights.keys()
    for name, value in weights.items():
        np.testing.assert_array_equal(found[name], value)
    with pytest.raises(nn.WeightsError, match=rf"d is not in w-1{suffix}"):
        read(places | {"d": f"w-1{suffix}"})
    with pytest.raises(FileNotFoundError, match=f"w-3{suffix}"):
        read(places | {"d": f"w-3{suffix}"})
    for elsewhere in (f"../w-1{suffix}", str(tmp_path / f"w-1{suffix}"), "w.txt"):
        with pytest.raises(nn.WeightsError, match="must name files of weights in its own folder"):
            read(places | {"d": elsewhere})
    for damaged in ("", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": 3}}'):
        with pytest.raises(nn.WeightsError, match="not an index with a weight_map"):
            read(damaged)


def test_other_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file of weights"):
        nn.read_weights(tmp_path / "absent.pth")
    (tmp_path / "w.h5").write_bytes(b"")
    with pytest.raises(nn.WeightsError, match=r"'.h5' is not a format of weights; known are .safetensors"):
        nn.read_weights(tmp_path / "w.h5")
    torch.save([torch.ones(3)], tmp_path / "list.pth")
    with pytest.raises(nn.WeightsError, match="must be a dictionary of tensors"):
        nn.read_weights(tmp_path / "list.pth")


def test_bfloat16_tensors_are_read(vgg):
    (module, params, aux), weights = vgg
    half = {name: value.bfloat16() for name, value in weights.items()}
    new, _ = nn.load_weights(module, params, aux, half)
    expected, _ = nn.load_weights(module, params, aux, weights)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-2), new, expected)
