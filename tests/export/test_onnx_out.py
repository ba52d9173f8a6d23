"""ONNX files compute what the function computes; functions that cannot be exported are refused with the reason."""

import subprocess
import sys
import textwrap
import types

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from flax import nnx

import fphys
from fphys import nn
from fphys.export import ExportError, to_onnx, to_ort

from .nets import CNN, INPUTS, MLP, Block, function

pytestmark = pytest.mark.extra("jax2onnx", "onnxruntime")
NETS = [MLP, CNN, Block]


def run(path, *inputs):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip([entry.name for entry in session.get_inputs()], inputs, strict=True)))


@pytest.mark.parametrize("batch", ["batch", None])
@pytest.mark.parametrize("kind", NETS)
def test_equal_in_onnxruntime(tmp_path, kind, batch):
    fn, *_ = function(kind)
    path = to_onnx(tmp_path / "net.onnx", fn, INPUTS[kind](2), batch=batch)
    for n in (1, 2, 7) if batch else (2,):
        x = INPUTS[kind](n)
        (found,) = run(path, x)
        np.testing.assert_allclose(found, fn(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_recurrent_layers_in_both_directions(tmp_path, kind):
    layer = lambda rngs: getattr(nn, kind)(3, 4, bidirectional=True, rngs=rngs)  # noqa: E731
    module, params, aux = nn.init(layer, jax.random.key(0))
    fn = lambda x: nn.apply(module, params, aux, x)[0][0]  # noqa: E731
    path = to_onnx(tmp_path / "net.onnx", fn, np.ones((2, 5, 3), np.float32))
    x = np.random.default_rng(0).standard_normal((4, 5, 3)).astype(np.float32)
    np.testing.assert_allclose(run(path, x)[0], fn(x), rtol=1e-5, atol=1e-6)


def test_several_inputs_and_outputs(tmp_path):
    def fn(a, b):
        return a @ b.T, jnp.maximum(a, 0.0), (a * b).sum(1)

    a, b = (np.random.default_rng(i).standard_normal((3, 4)).astype(np.float32) for i in range(2))
    found = run(to_onnx(tmp_path / "net.onnx", fn, a, b), a, b)
    for value, wanted in zip(found, fn(a, b), strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-6)


def test_double_precision(tmp_path):
    x = np.linspace(-1, 1, 6).reshape(2, 3)
    (found,) = run(to_onnx(tmp_path / "net.onnx", lambda x: jnp.sin(x) @ jnp.eye(3), x, tol=1e-12), x)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, np.sin(x), rtol=1e-12)


def test_a_warp_operation_is_refused_with_the_reason(tmp_path):
    model = fphys.load(fphys.asset("double-pendulum"))
    state = fphys.init(model, 1)

    def inside(ctrl):
        return jax.lax.scan(lambda s, _: (fphys.step(model, s, jnp.tanh(ctrl)), None), state, None, 3)[0].qpos

    path = tmp_path / "net.onnx"
    with pytest.raises(ExportError, match="contains a Warp operation: its kernels are compiled in this process"):
        to_onnx(path, inside, jnp.zeros((1, 2)), batch=None)
    assert not path.exists()


def test_a_callback_is_refused(tmp_path):
    def calling(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    with pytest.raises(ExportError, match="pure_callback"):
        to_onnx(tmp_path / "net.onnx", calling, np.ones(3, np.float32), batch=None)


def test_functions_without_a_translation_are_refused(tmp_path):
    with pytest.raises(ExportError, match="cannot translate the function; batch=None may help"):
        to_onnx(tmp_path / "net.onnx", lambda x: jax.lax.linalg.eigh(x)[0], np.eye(3, dtype=np.float32)[None])


def test_a_wrong_translation_is_noticed(tmp_path, monkeypatch):
    import jax2onnx

    right = jax2onnx.to_onnx
    wrong = types.SimpleNamespace(to_onnx=lambda fn, specs, **k: right(lambda x: fn(x) * 1.001, specs, **k))
    monkeypatch.setitem(sys.modules, "jax2onnx", wrong)
    with pytest.raises(ExportError, match=r"output 0 of .* is off by"):
        to_onnx(tmp_path / "net.onnx", function(MLP)[0], INPUTS[MLP](2))
    assert not list(tmp_path.iterdir())


def test_jax_stays_as_it_is(tmp_path):
    """jax2onnx puts its own cumsum into jax.numpy."""
    import jax2onnx  # noqa: F401

    parts = (jnp, jax.lax, jax.nn, nnx)
    before = [vars(part).copy() for part in parts]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for batch in ("batch", None):
        (found,) = run(to_onnx(tmp_path / "net.onnx", lambda x: jnp.cumsum(x, 1) + jnp.cumsum(x, 0), x, batch=None), x)
        np.testing.assert_array_equal(found, x.cumsum(0) + x.cumsum(1))
        to_onnx(tmp_path / "net.onnx", function(CNN)[0], INPUTS[CNN](2), batch=batch)
    for part, held in zip(parts, before, strict=True):
        assert [name for name, value in held.items() if getattr(part, name) is not value] == []
    np.testing.assert_array_equal(jnp.cumsum(x, 0), x.cumsum(0))


def test_an_output_may_be_infinite_or_nan(tmp_path):
    x = np.float32([[-1, 0, 4]])
    (found,) = run(to_onnx(tmp_path / "net.onnx", lambda x: jnp.log(x), x), x)
    np.testing.assert_array_equal(np.isnan(found), [[True, False, False]])
    assert found[0, 1] == -np.inf


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ExportError, match=r"absent/net\.onnx cannot be written"):
        to_onnx(tmp_path / "absent" / "net.onnx", jnp.sin, np.ones((1, 3), np.float32))


WITHOUT_JAX = """
    import sys

    sys.modules["jax"] = None  # an import of it raises
    import numpy as np
    import onnxruntime

    session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
    held = np.load(sys.argv[2])
    (found,) = session.run(None, {session.get_inputs()[0].name: held["x"]})
    np.testing.assert_allclose(found, held["y"], rtol=1e-5, atol=1e-5)
    assert "fphys" not in sys.modules
    print("equal")
"""


def test_ort_format_runs_where_there_is_no_jax(tmp_path):
    for kind in (MLP, CNN):
        fn, *_ = function(kind)
        x = INPUTS[kind](3)
        path = to_ort(to_onnx(tmp_path / "net.onnx", fn, x))
        assert path == tmp_path / "net.ort" and path.read_bytes()[4:8] == b"ORTM"
        np.savez(tmp_path / "held.npz", x=x, y=fn(x))
        child = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(WITHOUT_JAX), path, tmp_path / "held.npz"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert child.stdout == "equal\n", child.stderr


def test_other_files_are_not_converted(tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"no model at all")
    with pytest.raises(ExportError, match=r"net\.onnx cannot be converted"):
        to_ort(tmp_path / "net.onnx")
