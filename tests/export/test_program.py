"""Programs called in a fresh process, weights by name, and networks rebuilt in torch."""

import hashlib
import json
import pickle
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import fphys
from fphys import nn
from fphys.export import ExportError, load_program, load_weights, save_program, save_weights, torch_state
from fphys.export.program import _HEAD

from .nets import CNN, INPUTS, MLP, Block, function

FRESH = """
    import sys
    import numpy as np
    from fphys.export import load_program

    held = np.load(sys.argv[2])
    np.testing.assert_allclose(load_program(sys.argv[1])(held["x"]), held["y"], rtol=1e-6, atol=1e-6)
    assert "flax" not in sys.modules
    print("equal")
"""


def test_called_in_a_fresh_process(tmp_path):
    fn, *_ = function(CNN)
    x = INPUTS[CNN](3)
    path = save_program(tmp_path / "net.jax", fn, x)
    np.testing.assert_array_equal(load_program(path)(x), jax.jit(fn)(x))
    np.savez(tmp_path / "held.npz", x=x, y=fn(x))
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FRESH), path, tmp_path / "held.npz"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert child.stdout == "equal\n", child.stderr


def test_the_batch_stays_open_and_named_tuples_come_back_as_tuples(tmp_path):
    fn = jax.jit(lambda x: nn.models.Coded(jnp.sin(x), x.mean(-1), [x[:, :2]]))  # a VAE's output
    small, large = np.ones((2, 12), np.float32), np.ones((5, 12), np.float32)
    found = load_program(save_program(tmp_path / "net.jax", fn, small))(large)
    assert type(found) is tuple
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, tuple(fn(large)))
    assert type(found[2]) is list
    fixed = load_program(save_program(tmp_path / "net.jax", fn, small, batch=None))
    with pytest.raises(ValueError, match="Shape mismatch"):
        fixed(large)


def test_an_axis_that_a_pool_reduces_may_stay_open(tmp_path):
    fn = load_program(save_program(tmp_path / "net.jax", nn.MaxPool2d(2), np.ones((4, 4, 1), np.float32)))
    assert fn(np.ones((6, 4, 1), np.float32)).shape == (3, 2, 1)


def test_what_a_program_cannot_hold_is_named(tmp_path):
    path, x = tmp_path / "net.jax", np.ones((2, 3))
    with pytest.raises(ExportError, match=r"does not run with a first axis of open size: pass batch=None"):
        save_program(path, lambda x: jnp.ones((1, len(x))) @ x, x)
    with pytest.raises(ExportError, match=r"a class that jax\.export cannot store"):
        save_program(path, lambda x: nn.init(lambda rngs: nn.Linear(3, 2, rngs=rngs), jax.random.key(0))[0], x)


def test_a_program_with_warp_is_refused(tmp_path):
    model = fphys.load(fphys.asset("double-pendulum"))
    state = fphys.init(model, 1)
    with pytest.raises(ExportError, match=r"neither ONNX nor jax\.export can hold them"):
        save_program(tmp_path / "net.jax", lambda ctrl: fphys.step(model, state, ctrl).qpos, jnp.zeros((1, 2)))


def test_a_damaged_program_is_refused(tmp_path):
    path = save_program(tmp_path / "net.jax", jnp.sin, np.ones(3))
    content = path.read_bytes()
    for k in range(16):
        path.write_bytes(content[: len(content) * k // 16])
        with pytest.raises(ExportError, match=r"truncated or damaged|was not written by"):
            load_program(path)
    path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    with pytest.raises(ExportError, match="truncated or damaged"):
        load_program(path)
    path.write_bytes(pickle.dumps([1]))
    with pytest.raises(ExportError, match="was not written by fphys"):
        load_program(path)
    with pytest.raises(ExportError, match="cannot be read"):
        load_program(tmp_path / "absent")


FORGED = """
    import sys
    import numpy as np
    from fphys.export import ExportError, load_program

    for path in sys.argv[1:]:
        try:
            load_program(path)
        except ExportError as error:
            print("refused" if path in str(error) else error)
"""


def test_a_forged_program_is_refused_and_ends_no_process(tmp_path):
    """Random bytes, another flatbuffer, a bare jax.export program; each with a correct header and without."""
    rng = np.random.default_rng(0)
    alone = jax.export.export(jax.jit(jnp.sin))(np.ones(3)).serialize()
    contents = [b"", rng.bytes(2000), b"\x10\0\0\0TFL3" + bytes(60), bytes(alone[: len(alone) // 2])]
    paths = [tmp_path / str(k) for k in range(2 * len(contents) + 1)]
    for path, content in zip(paths, [*contents, bytes(alone)]):
        path.write_bytes(content)
    for path, content in zip(paths[len(contents) + 1 :], contents):
        path.write_bytes(_HEAD + hashlib.sha256(content).digest() + content)
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORGED), *paths], capture_output=True, text=True, timeout=60
    )
    assert (child.returncode, child.stdout) == (0, "refused\n" * len(paths)), child.stderr


@pytest.mark.parametrize("kind", [MLP, CNN, Block])
def test_weights_come_back(tmp_path, kind):
    _, params, aux = function(kind)
    path = save_weights(tmp_path / "net.safetensors", (params, aux))
    blank = jax.tree.map(jnp.zeros_like, (params, aux))
    jax.tree.map(np.testing.assert_array_equal, load_weights(path, blank), (params, aux))


def test_two_arrays_of_one_name_are_refused(tmp_path):
    tree = {"a.b": jnp.ones(2), "a": {"b": jnp.zeros(3)}}
    for act in (
        lambda: save_weights(tmp_path / "w", tree),
        lambda: load_weights(tmp_path / "w", tree),
        lambda: torch_state(tree),
    ):
        save_weights(tmp_path / "w", {"a.b": jnp.ones(2)})
        with pytest.raises(ValueError, match=r"\['a'\]\['b'\] and \['a.b'\] would both be named a\.b: rename one"):
            act()


def test_arrays_of_every_layout_are_saved_as_they_are(tmp_path):
    x = np.arange(12.0).reshape(3, 4)
    tree = {"t": x.T, "s": x[:, ::2], "half": jnp.ones(3, jnp.bfloat16), "n": np.int32(3)}
    found = load_weights(save_weights(tmp_path / "w", tree), tree)
    jax.tree.map(np.testing.assert_array_equal, found, tree)
    assert found["half"].dtype == jnp.bfloat16


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "net.safetensors"
    like = {"w": jnp.ones((2, 3), jnp.float32)}
    path.write_bytes(pickle.dumps(like["w"].__array__()))
    with pytest.raises(ExportError, match="cannot be read as safetensors"):
        load_weights(path, like)
    content = save_weights(path, like).read_bytes()
    for k in range(16):
        path.write_bytes(content[: len(content) * k // 16])
        with pytest.raises(ExportError, match="cannot be read as safetensors"):
            load_weights(path, like)
    for tree, text in [
        ({"v": like["w"]}, "w is missing; v is not expected"),
        ({"w": like["w"].T}, r"w is float32\(3, 2\), must be float32\(2, 3\)"),
        ({"w": like["w"].astype(jnp.float16)}, "w is float16"),
    ]:
        save_weights(path, tree)
        with pytest.raises(ExportError, match=text):
            load_weights(path, like)


def safetensors(path, header: dict, content: bytes = b"", size: int | None = None):
    text = json.dumps(header).encode()
    path.write_bytes((len(text) if size is None else size).to_bytes(8, "little") + text + content)
    return path


def tensor(dtype: str, shape: list[int], end: int) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "F8_E8M0"])
def test_tensors_of_a_type_that_is_not_read_are_named(tmp_path, dtype):
    path = safetensors(tmp_path / "net.safetensors", {"layer.w": tensor(dtype, [4], 4)}, bytes(4))
    for load, error in ((lambda path: load_weights(path, {}), ExportError), (nn.read_weights, nn.WeightsError)):
        with pytest.raises(
            error, match=rf"net\.safetensors: 1 tensors are of .*layer\.w is {dtype}; save them as .*BF16"
        ):
            load(path)


@pytest.mark.parametrize(
    ("header", "content", "size"),
    [
        ({}, b"", 2**60),
        ({}, b"", 90_000_000),
        ({"w": tensor("F32", [10**10], 4 * 10**10)}, bytes(4), None),
        ({"w": tensor("F32", [2**62, 4], 4)}, bytes(4), None),
        ({"w": tensor("F32", [2], 4)}, bytes(4), None),
        ({"w": tensor("F32", [1] * 70, 4)}, bytes(4), None),
        ({"w": tensor("Q7", [1], 4)}, bytes(4), None),
    ],
)
def test_a_header_that_claims_missing_data_is_refused(tmp_path, header, content, size):
    path = safetensors(tmp_path / "net.safetensors", header, content, size)
    for load, error in ((lambda path: load_weights(path, {}), ExportError), (nn.read_weights, nn.WeightsError)):
        with pytest.raises(error, match=r"net\.safetensors: cannot be read as safetensors"):
            load(path)


def test_paths_that_cannot_be_written_or_read_are_named(tmp_path):
    absent = tmp_path / "absent" / "net.safetensors"
    for act, error in (
        (lambda: save_weights(absent, {"w": jnp.ones(3)}), ExportError),
        (lambda: save_program(absent, jnp.sin, np.ones(3)), ExportError),
        (lambda: nn.write_weights(absent, {"w": jnp.ones(3)}, {}), nn.WeightsError),
    ):
        with pytest.raises(error, match=r"absent/net\.safetensors:? cannot be written"):
            act()
    for load in (load_program, lambda path: load_weights(path, {})):
        with pytest.raises(ExportError, match=f"{tmp_path}:? cannot be read"):
            load(tmp_path)


class TorchCNN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        layers = torch.nn
        self.conv, self.norm = layers.Conv2d(1, 8, 3, padding=1), layers.BatchNorm2d(8)
        self.down, self.out = layers.Conv2d(8, 8, 3, 2, 1), layers.Linear(32, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        x = x + torch.nn.functional.max_pool2d(x, 3, 1, 1)
        x = self.down(torch.nn.functional.avg_pool2d(x, 3, 2, 1))
        return self.out(x.permute(0, 2, 3, 1).flatten(1))


@pytest.mark.extra("torch")
def test_weights_in_a_plain_torch_module():
    fn, params, aux = function(CNN)
    net = TorchCNN()
    net.load_state_dict(torch_state(params, aux))
    x = INPUTS[CNN](3)
    found = net.eval()(torch.from_numpy(x).permute(0, 3, 1, 2)).detach()
    np.testing.assert_allclose(found, fn(x), rtol=1e-5, atol=1e-5)


@pytest.mark.extra("torch")
def test_torch_s_names_by_renaming():
    fn, params, _ = function(MLP)
    net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    numbers = {"hidden": "0", "out": "2"}
    net.load_state_dict(
        torch_state(params, rename=lambda name: name.replace(*next(i for i in numbers.items() if i[0] in name)))
    )
    x = INPUTS[MLP](3)
    np.testing.assert_allclose(net(torch.from_numpy(x)).detach(), fn(x), rtol=1e-5, atol=1e-6)


class TorchAttention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (torch.nn.Linear(6, 6) for _ in range(4))

    def forward(self, x):
        parts = (layer(x).unflatten(-1, (2, 3)).transpose(1, 2) for layer in (self.query, self.key, self.value))
        return self.out(torch.nn.functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))


@pytest.mark.extra("torch")
def test_heads_and_bare_parameters_in_torch():
    def attention(rngs):
        return nn.MultiHeadAttention(2, 6, rngs=rngs, bias_init=nn.initializers.normal())

    module, params, aux = nn.init(attention, jax.random.key(0))
    net = TorchAttention()
    net.load_state_dict(torch_state(params, aux))
    x = np.random.default_rng(0).standard_normal((3, 5, 6)).astype(np.float32)
    wanted = nn.apply(module, params, aux, x)[0]
    np.testing.assert_allclose(net(torch.from_numpy(x)).detach(), wanted, rtol=1e-4, atol=1e-5)

    _, params, aux = nn.init(lambda rngs: nn.models.ActorCritic(3, 2, rngs=rngs), jax.random.key(0))
    np.testing.assert_array_equal(torch_state(params, aux)["log_std"], params["log_std"])

    general = nn.init(lambda rngs: nn.LinearGeneral(4, (2, 3), rngs=rngs), jax.random.key(0))[1]
    for tree, name in ((general, "kernel"), ({"up": general}, "up.kernel")):
        with pytest.raises(ValueError, match=rf"^{name} of shape \(4, 2, 3\) maps several axes"):
            torch_state(tree)


@pytest.mark.extra("torch")
@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("transpose", [False, True])
def test_transposed_convolutions_are_mirrored(rank, transpose):
    """In one direction the kernel of torch is mirrored; equal numbers of channels would hide it."""
    window, strides = (3, 2)[:rank], (2, 1)[:rank]

    def up(rngs):
        options = {"strides": strides, "padding": "VALID", "transpose_kernel": transpose}
        return nn.ConvTranspose(4, 4, window, **options, bias_init=nn.initializers.normal(), rngs=rngs)

    module, params, aux = nn.init(up, jax.random.key(0))
    net = getattr(torch.nn, f"ConvTranspose{rank}d")(4, 4, window, strides)
    net.load_state_dict(torch_state(module, params))
    x = np.random.default_rng(0).standard_normal((2, *(5,) * rank, 4)).astype(np.float32)
    found = np.moveaxis(net(torch.from_numpy(np.moveaxis(x, -1, 1).copy())).detach().numpy(), 1, -1)
    np.testing.assert_allclose(found, nn.apply(module, params, aux, x)[0], rtol=1e-4, atol=1e-5)


class Named(nn.Module):
    """Convolutions with the names of attention's layers."""

    def __init__(self, rngs):
        self.query, self.key, self.value, self.out = (nn.Conv1d(3, 3, 3, rngs=rngs) for _ in range(4))


@pytest.mark.extra("torch")
def test_convolutions_with_the_names_of_attention_are_convolutions():
    module, params, _ = nn.init(Named, jax.random.key(0))
    net = torch.nn.ModuleDict({name: torch.nn.Conv1d(3, 3, 3) for name in ("query", "key", "value", "out")})
    for trees in ((module, params), (params,)):
        state = torch_state(*trees)
        net.load_state_dict(state)
        np.testing.assert_array_equal(state["out.weight"], params["out"]["kernel"].transpose(2, 1, 0))


@pytest.mark.extra("torch")
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_recurrent_layers_have_torch_s_names(kind):
    options = {"num_layers": 2, "bidirectional": True}
    module, params, aux = nn.init(lambda rngs: getattr(nn, kind)(3, 4, **options, rngs=rngs), jax.random.key(0))
    net = getattr(torch.nn, kind)(3, 4, **options, batch_first=True)
    net.load_state_dict(torch_state(params))
    x = np.random.default_rng(0).standard_normal((2, 5, 3)).astype(np.float32)
    found = net(torch.from_numpy(x))[0].detach()
    np.testing.assert_allclose(found, nn.apply(module, params, aux, x)[0][0], rtol=1e-4, atol=1e-6)


@pytest.mark.extra("torch")
def test_bfloat16_stays_bfloat16_in_torch():
    _, params, _ = nn.init(lambda rngs: nn.Linear(3, 4, rngs=rngs), jax.random.key(0))
    weight = torch_state(jax.tree.map(lambda x: x.astype(jnp.bfloat16), params))["weight"]
    assert weight.dtype == torch.bfloat16
    np.testing.assert_array_equal(weight.float(), params["kernel"].T.astype(jnp.bfloat16).astype(np.float32))
