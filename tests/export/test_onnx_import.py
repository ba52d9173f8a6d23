"""Networks exported by torch, and single operators, agree with onnxruntime; their weights can be trained further."""

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

from fphys import nn
from fphys.export import ExportError, from_onnx, to_onnx
from fphys.testing import check_grads

from .nets import CNN, INPUTS, MLP, Block, function

pytestmark = pytest.mark.extra("onnx", "onnxruntime", "torch")


def run(path, *inputs):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip([entry.name for entry in session.get_inputs()], inputs, strict=True)))


class Residual(torch.nn.Module):
    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 1, 1))
        self.inner = nn.Sequential(
            nn.Conv2d(8, 8, 3, 1, 1, groups=2, bias=False), nn.Hardswish(), nn.AvgPool2d(3, 1, 1)
        )
        self.head = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.3), nn.Linear(8, 5), nn.Softmax(-1)
        )

    def forward(self, x):
        x = self.stem(x)
        x = x + self.inner(x)
        return self.head(torch.cat([x[:, :4], x[:, 4:] * 2], 1).reshape(x.shape[0], 8, -1, 4))


def torch_net(name):
    nn = torch.nn
    torch.manual_seed(0)
    if name == "mlp":
        layers = [nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 16), nn.LeakyReLU(0.1), nn.Linear(16, 3)]
        return nn.Sequential(*layers, nn.LogSoftmax(-1)), (4, 6)
    net = Residual()
    net(torch.randn(16, 3, 12, 12))  # sets the running statistics
    return net, (4, 3, 12, 12)


@pytest.mark.filterwarnings("ignore:You are using the legacy TorchScript-based ONNX export:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The feature will be removed:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Converting a tensor to a Python:torch.jit.TracerWarning")
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_what_torch_exports(tmp_path, name):
    net, shape = torch_net(name)
    net.eval()
    x = torch.randn(shape)
    path = tmp_path / "net.onnx"
    axes = {"x": {0: "batch"}}
    torch.onnx.export(net, (x,), str(path), dynamo=False, opset_version=17, input_names=["x"], dynamic_axes=axes)
    fn, params = from_onnx(path)
    for n in (4, 1, 7):
        x = torch.randn(n, *shape[1:])
        found = jax.jit(fn)(params, x.numpy())
        np.testing.assert_allclose(found, run(path, x.numpy())[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found, net(x).detach(), rtol=1e-4, atol=1e-5)
    assert sum(p.size for p in params.values()) <= sum(p.numel() for p in net.state_dict().values()) + 8


@pytest.mark.parametrize("kind", [MLP, CNN, Block])
def test_what_we_export_comes_back(tmp_path, kind):
    fn, *_ = function(kind)
    again, params = from_onnx(to_onnx(tmp_path / "net.onnx", fn, INPUTS[kind](2), batch=None))
    x = INPUTS[kind](2)
    np.testing.assert_allclose(jax.jit(again)(params, x), fn(x), rtol=1e-5, atol=1e-5)


def test_a_pooled_picture_comes_back(tmp_path):
    """With any batch size."""

    def net(rngs):
        return nn.Sequential(nn.Conv2d(1, 4, 3, rngs=rngs), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3, rngs=rngs))

    module, weights, aux = nn.init(net, jax.random.key(0))
    path = to_onnx(tmp_path / "net.onnx", lambda x: nn.apply(module, weights, aux, x)[0], f32(2, 8, 8, 1))
    again, params = from_onnx(path)
    x = f32(5, 8, 8, 1)
    np.testing.assert_allclose(again(params, x), nn.apply(module, weights, aux, x)[0], rtol=1e-5, atol=1e-5)


RNG = np.random.default_rng(0)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def i64(*values):
    return np.asarray(values, np.int64)


IMAGE = f32(2, 4, 9, 7)
ROWS = f32(3, 5)
NONE = np.zeros(0, np.float32)  # an input that is left out
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
CASES = [
    *(
        (name, [ROWS], {})
        for name in ("Abs", "Cos", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish", "Identity", "Neg")
    ),
    *((name, [ROWS], {}) for name in ("Reciprocal", "Relu", "Selu", "Sigmoid", "Sin", "Softplus", "Softsign", "Tanh")),
    *((name, [np.abs(ROWS)], {}) for name in ("Log", "Sqrt")),
    *((name, [ROWS, f32(1, 5)], {}) for name in ("Add", "Sub", "Mul", "Div", "Equal", "Greater", "GreaterOrEqual")),
    *((name, [ROWS, f32(1, 5)], {}) for name in ("Less", "LessOrEqual", "Max", "Min")),
    *((name, [ROWS > 0, ROWS > 1], {}) for name in ("And", "Or")),
    ("Add", [ROWS, f32(5)], {}),
    ("Sum", [ROWS, f32(5), f32(3, 1)], {}),
    ("Not", [ROWS > 0], {}),
    ("Div", [np.int64([7, -7, 9]), np.int64([2, 2, -4])], {}),
    ("Pow", [np.abs(ROWS), np.float32([2.5])], {}),
    ("Clip", [ROWS, np.asarray(-0.5, np.float32), np.asarray(0.3, np.float32)], {}),
    ("Elu", [ROWS], {"alpha": 0.7}),
    ("Selu", [ROWS], {"alpha": 2.0, "gamma": 0.5}),
    ("LeakyRelu", [ROWS], {"alpha": 0.2}),
    ("PRelu", [ROWS, f32(5)], {}),
    ("Gelu", [ROWS], {}),
    ("Gelu", [ROWS], {"approximate": "tanh"}),
    ("Softmax", [IMAGE], {"axis": 1}),
    ("LogSoftmax", [ROWS], {}),
    ("Where", [ROWS > 0, ROWS, f32(5)], {}),
    ("Cast", [ROWS], {"to": TensorProto.INT64}),
    ("Gemm", [ROWS, f32(5, 2), f32(2)], {"alpha": 0.5, "beta": 2.0}),
    ("Gemm", [f32(5, 3), f32(2, 5)], {"transA": 1, "transB": 1}),
    ("MatMul", [f32(2, 3, 5), f32(5, 4)], {}),
    ("Conv", [IMAGE, f32(6, 4, 3, 3), f32(6)], {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    ("Conv", [IMAGE, f32(6, 2, 3, 3)], {"group": 2, "dilations": [2, 1]}),
    ("Conv", [IMAGE, f32(6, 4, 4, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("Conv", [IMAGE, f32(6, 4, 4, 3)], {"auto_pad": "SAME_LOWER"}),
    ("Conv", [f32(2, 3, 11), f32(4, 3, 5)], {"auto_pad": "VALID"}),
    (
        "ConvTranspose",
        [IMAGE, f32(4, 6, 3, 2), f32(6)],
        {"strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 2]},
    ),
    ("ConvTranspose", [IMAGE, f32(4, 3, 3, 3)], {"group": 2, "dilations": [2, 1]}),
    ("ConvTranspose", [f32(2, 3, 5), f32(3, 4, 4)], {"strides": [3]}),
    *((kind, [f32(6, 2, 3), f32(1, n * 5, 3), f32(1, n * 5, 5)], {"hidden_size": 5}) for kind, n in GATES.items()),
    *(
        (
            kind,
            [f32(6, 2, 3), f32(2, n * 5, 3), f32(2, n * 5, 5), f32(2, 2 * n * 5), NONE, f32(2, 2, 5)]
            + [f32(2, 2, 5)] * (kind == "LSTM"),
            {"hidden_size": 5, "direction": "bidirectional"} | ({"linear_before_reset": 1} if kind == "GRU" else {}),
        )
        for kind, n in GATES.items()
    ),
    ("GRU", [f32(6, 2, 3), f32(1, 15, 3), f32(1, 15, 5), f32(1, 30)], {"hidden_size": 5, "direction": "reverse"}),
    *(
        ("Resize", [IMAGE, NONE, NONE, i64(2, 4, 13, 5)], {"mode": mode, "coordinate_transformation_mode": place})
        for mode in ("nearest", "linear", "cubic")
        for place in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    ),
    *(
        ("Resize", [IMAGE, NONE, np.float32([1, 1, 2, 0.6])], {"nearest_mode": mode})
        for mode in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    ),
    ("InstanceNormalization", [IMAGE, f32(4), f32(4)], {"epsilon": 1e-3}),
    ("BatchNormalization", [IMAGE, f32(4), f32(4), f32(4), np.abs(f32(4))], {"epsilon": 1e-3}),
    ("LayerNormalization", [IMAGE, f32(7), f32(7)], {"epsilon": 1e-4}),
    ("LayerNormalization", [IMAGE, f32(9, 7)], {"axis": 2}),
    ("MaxPool", [IMAGE], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
    ("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    ("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "strides": [4, 4], "pads": [1, 1, 1, 1], "ceil_mode": 1}),
    ("AveragePool", [IMAGE], {"kernel_shape": [2, 2], "strides": [4, 4], "pads": [1, 1, 1, 1], "ceil_mode": 1}),
    ("MaxPool", [IMAGE], {"kernel_shape": [3, 3], "dilations": [2, 2]}),
    ("AveragePool", [IMAGE], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ("AveragePool", [IMAGE], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    ("AveragePool", [IMAGE], {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1}),
    *(
        (
            "AveragePool",
            [IMAGE],
            {
                "kernel_shape": [3, 2],
                "strides": [3, 2],
                "pads": [1, 0, 2, 1],
                "ceil_mode": 1,
                "count_include_pad": counted,
            },
        )
        for counted in (0, 1)
    ),
    ("GlobalAveragePool", [IMAGE], {}),
    ("GlobalMaxPool", [IMAGE], {}),
    ("Flatten", [IMAGE], {"axis": 2}),
    ("Flatten", [IMAGE], {"axis": -1}),
    ("Reshape", [IMAGE, i64(0, -1, 3)], {}),
    ("Transpose", [IMAGE], {"perm": [0, 2, 3, 1]}),
    ("Transpose", [IMAGE], {}),
    ("Squeeze", [f32(1, 3, 1), i64(2)], {}),
    ("Unsqueeze", [ROWS, i64(0, -1)], {}),
    ("Concat", [ROWS, f32(3, 2)], {"axis": 1}),
    ("Split", [ROWS, i64(2, 3)], {"axis": 1}),
    ("Slice", [IMAGE, i64(1, -1), i64(3, -100), i64(1, 2), i64(1, -2)], {}),
    ("Slice", [IMAGE, i64(1), i64(2**62)], {}),
    ("Gather", [ROWS, i64(2, 0, -1)], {}),
    ("Gather", [ROWS, i64(1, -2)], {"axis": 1}),
    ("Expand", [f32(3, 1), i64(2, 1, 4)], {}),
    ("Pad", [ROWS, i64(1, 0, 0, 2), np.float32(0.5)], {}),
    ("Pad", [ROWS, i64(1, 1, 2, 2)], {"mode": "reflect"}),
    ("Pad", [ROWS, i64(1, -1, -1, 2), np.float32(0.5)], {}),
    ("Pad", [ROWS, i64(-1, -2, 0, 1)], {"mode": "edge"}),
    ("Shape", [IMAGE], {"start": 1}),
    ("ConstantOfShape", [i64(2, 3)], {"value": helper.make_tensor("v", TensorProto.FLOAT, [1], [2.5])}),
    ("ReduceMean", [IMAGE, i64(2, 3)], {"keepdims": 0}),
    *((name, [IMAGE, i64(-1)], {}) for name in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceSumSquare")),
    ("ReduceSum", [IMAGE], {}),
    ("Einsum", [ROWS, f32(2, 5)], {"equation": "ij,kj->ki"}),
    ("Range", [np.asarray(2), np.asarray(9), np.asarray(3)], {}),
    ("Dropout", [ROWS], {}),
]


def save(path, nodes, inputs, outputs, fixed=(), opset=20):
    """A graph of float inputs; ``fixed`` are initialisers."""
    entries = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in inputs]
    results = [helper.make_empty_tensor_value_info(out) if isinstance(out, str) else out for out in outputs]
    graph = helper.make_graph(nodes, "g", entries, results, [onnx.numpy_helper.from_array(v, n) for n, v in fixed])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    path.write_bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())
    return path


@pytest.mark.parametrize("case", range(len(CASES)), ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)])
def test_every_operator_is_onnxruntime_s(tmp_path, case):
    operator, values, attributes = CASES[case]
    named = [("" if value is NONE else f"x{i}", value) for i, value in enumerate(values)]
    given = [entry for entry in named if entry[0]]
    shaped = ("Reshape", "Squeeze", "Unsqueeze", "Slice", "Split", "Expand", "Pad", "Resize")
    free = given if operator not in shaped else named[:1]
    free = named[:1] if operator.startswith("Reduce") else free
    free = [] if operator in ("ConstantOfShape", "Range") else free
    outputs = ["y", "z", "c"][: {"Split": 2, "LSTM": 3, "GRU": 2, "RNN": 2}.get(operator, 1)]
    node = helper.make_node(operator, [name for name, _ in named], outputs, **attributes)
    path = save(tmp_path / "op.onnx", [node], free, outputs, [entry for entry in given if entry not in free])
    fn, params = from_onnx(path)
    found = jax.jit(fn)(params, *(value for _, value in free))
    wanted = run(path, *(value for _, value in free))
    for a, b in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        size = np.abs(b[np.isfinite(b)]).max(initial=1) if b.dtype.kind == "f" else 0  # scale for the terms of sums
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6 * size)


def test_every_operator_is_tested():
    from fphys.export.onnx_ops import OPERATIONS

    assert set(OPERATIONS) == {case[0] for case in CASES} | {"Constant"}  # and Loop, which has a test of its own


def test_shapes_that_are_computed_stay_known_under_jit(tmp_path):
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "zeros"], ["row"]),
        helper.make_node("Constant", [], ["rest"], value_ints=[-1]),
        helper.make_node("Concat", ["row", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    path = save(tmp_path / "net.onnx", nodes, [("x", IMAGE)], ["y"], [("zero", np.int64(0)), ("zeros", i64(0))])
    fn, params = from_onnx(path)
    np.testing.assert_array_equal(jax.jit(fn)(params, IMAGE), IMAGE.reshape(2, -1))


def test_gradients_flow_to_weights_and_inputs(tmp_path):
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["h"]), helper.make_node("Tanh", ["h"], ["y"])]
    weights = [("w", f32(5, 2).astype(np.float64)), ("b", f32(2).astype(np.float64))]
    x = ROWS.astype(np.float64)
    fn, params = from_onnx(save(tmp_path / "net.onnx", nodes, [("x", x)], ["y"], weights))
    assert set(params) == {"w", "b"}
    check_grads(fn, (params, jnp.asarray(x)), tol=1e-7)


def test_what_is_no_weight_stays_fixed(tmp_path):
    """A scalar (an epsilon) and a mask that is not finite; a vector of one number is a weight."""
    nodes = [helper.make_node("Mul", ["x", "scale"], ["a"]), helper.make_node("Add", ["a", "epsilon"], ["b"])]
    nodes.append(helper.make_node("Add", ["b", "mask"], ["y"]))
    held = [("scale", f32(1)), ("epsilon", np.float32(1e-5)), ("mask", np.float32([0, 0, 0, 0, -np.inf]))]
    fn, params = from_onnx(save(tmp_path / "net.onnx", nodes, [("x", ROWS)], ["y"], held))
    assert set(params) == {"scale"}
    np.testing.assert_allclose(fn(params, ROWS), run(tmp_path / "net.onnx", ROWS)[0])


def loop(path, cond="keep", count="n"):
    """h' = tanh(h w), five times, and every h."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["h", "w"], ["m"]),
            helper.make_node("Tanh", ["m"], ["after"]),
            helper.make_node("Identity", ["go"], ["keep"]),
            helper.make_node("ReduceSum", ["after"], ["sum"], keepdims=0),
            helper.make_node("Less", ["sum", "limit"], ["small"]),
            helper.make_node("Identity", ["after"], ["row"]),
        ],
        "body",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (("i", 7, []), ("go", 9, []), ("h", 1, [3, 3]))],
        [
            helper.make_tensor_value_info(n, t, s)
            for n, t, s in ((cond, 9, []), ("after", 1, [3, 3]), ("row", 1, [3, 3]))
        ],
    )
    node = helper.make_node("Loop", [count, "start", "x"], ["y", "rows"], body=body)
    held = [("w", f32(3, 3)), ("start", np.asarray(True)), ("n", np.int64(5)), ("limit", np.float32(100))]
    free = [("x", f32(3, 3))] + [("steps", np.int64(5))] * (count == "steps")
    outputs = [helper.make_tensor_value_info(n, 1, s) for n, s in (("y", [3, 3]), ("rows", ["steps", 3, 3]))]
    return save(path, [node], free, outputs, held), [value for _, value in free]


def test_loops(tmp_path):
    path, inputs = loop(tmp_path / "net.onnx")
    fn, params = from_onnx(path)
    for found, wanted in zip(jax.jit(fn)(params, *inputs), run(path, *inputs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    grads = jax.grad(lambda p: fn(p, *inputs)[1].sum())(params)
    assert set(grads) == {"w"} and np.abs(grads["w"]).max() > 0.1
    for options, text in (({"cond": "small"}, "Loop may end early"), ({"count": "steps"}, "Loop runs for a number")):
        path, inputs = loop(tmp_path / "net.onnx", **options)
        fn, params = from_onnx(path)
        with pytest.raises(ExportError, match=text):
            fn(params, *inputs)


def test_variants_without_a_translation_are_named(tmp_path):
    for operator, values, attributes, text in (
        ("LSTM", [f32(6, 2, 3), f32(1, 20, 3), f32(1, 20, 5)], {"hidden_size": 5, "clip": 1.0}, "LSTM with clip"),
        ("Resize", [IMAGE, NONE, NONE, i64(2, 4, 3, 3)], {"antialias": 1, "mode": "linear"}, "Resize with antialias"),
        ("ConvTranspose", [IMAGE, f32(4, 3, 3, 3)], {"auto_pad": "SAME_UPPER"}, "ConvTranspose with auto_pad"),
    ):
        named = [("" if value is NONE else f"x{i}", value) for i, value in enumerate(values)]
        node = helper.make_node(operator, [name for name, _ in named], ["y"], **attributes)
        held = [entry for entry in named[1:] if entry[0]]
        fn, params = from_onnx(save(tmp_path / "op.onnx", [node], named[:1], ["y"], held))
        with pytest.raises(ExportError, match=text):
            fn(params, values[0])


def test_files_that_cannot_be_read_are_named(tmp_path):
    path = tmp_path / "net.onnx"
    with pytest.raises(ExportError, match="cannot be read as ONNX"):
        from_onnx(path)
    node = helper.make_node("Relu", ["x"], ["y"])
    content = save(path, [node], [("x", ROWS)], ["y"]).read_bytes()
    for damaged in (b"", content[: len(content) // 2], b"\x80\x04" + content):
        path.write_bytes(damaged)
        with pytest.raises(ExportError, match=r"net\.onnx cannot be read as ONNX"):
            from_onnx(path)
    save(path, [node, helper.make_node("TopK", ["y", "k"], ["a", "b"])], [("x", ROWS)], ["a"], [("k", i64(1))])
    with pytest.raises(ExportError, match="operators without a translation: TopK; known: Abs"):
        from_onnx(path)
    save(path, [node], [("x", ROWS)], ["y"], opset=11)
    with pytest.raises(ExportError, match="opset 11, must be 13 or later"):
        from_onnx(path)
    save(path, [helper.make_node("Reshape", ["x", "s"], ["y"])], [("x", ROWS), ("s", i64(5, 3))], ["y"])
    fn, params = from_onnx(path)
    with pytest.raises(ExportError, match="Reshape has a shape or axis that is computed"):
        fn(params, ROWS, i64(5, 3))
    with pytest.raises(ValueError, match=r"takes 2 inputs \(x, s\), got 1"):
        fn(params, ROWS)
