"""Each pair in the table from torch to ours gives the same, and our own functions have correct gradients."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from fphys import losses, nn, tensor
from fphys.testing import check_grads, check_transforms

from .differs import DIFFERS, INSTEAD
from .table import PAGE, PAIRS, page


def inputs():
    rng = np.random.default_rng(0)
    normal, a = rng.standard_normal, rng.standard_normal((4, 4))
    return {
        "x": normal((3, 4)), "y": normal((3, 4)), "a": a, "s": a @ a.T + np.eye(4),
        "b": normal((2, 3, 4)), "c": normal((2, 4, 3)), "u": normal(4), "w": normal(4), "v": normal(7),
        "p": rng.uniform(0.1, 3.0, (3, 4)), "q": rng.uniform(-0.9, 0.9, (3, 4)),
        "i": rng.integers(1, 20, (3, 4)), "j": rng.integers(1, 5, (3, 4)), "k": np.array([2, 0, 3]),
        "m": rng.random((3, 4)) < 0.5, "n": rng.random((3, 4)) < 0.5,
        "z": normal((3, 4)) + 1j * normal((3, 4)),
    }  # fmt: skip


INPUTS = inputs()


OURS = vars(tensor) | {"nn": nn, "losses": losses}


def leaves(result):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tuple(result) if isinstance(result, tuple) else result)]


@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=[theirs for theirs, _ in PAIRS])
def test_each_pair_gives_the_same(theirs, ours):
    expected = leaves(eval(theirs, vars(torch) | {name: torch.from_numpy(x) for name, x in INPUTS.items()}))
    found = leaves(eval(ours, OURS | {name: jnp.asarray(x) for name, x in INPUTS.items()}))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert one.dtype.kind == other.dtype.kind or "histc" in theirs  # torch counts in floats
        # Torch creates float32 by default; everything else is float64 on both sides.
        np.testing.assert_allclose(one, other, rtol=1e-6 if other.dtype == np.float32 else 1e-9, atol=1e-12)


def edge(kind, name, x):
    """The input, at an edge: with NaN and infinity, all zero, of integers, or empty."""
    if kind == "nan" and x.dtype.kind == "f" and name not in "as":
        x = x.copy()
        x.flat[1], x.flat[3] = np.nan, x.flat[3] if name in "pq" else np.inf
    elif kind == "zero" and x.dtype.kind == "f" and name not in "as":
        x = np.zeros_like(x)
    elif kind == "integer" and name in "xyuvwbc":
        x = np.round(3 * x).astype(np.int64)
    elif kind == "empty" and name in "xyqpijmnz":
        x = x[:0]
    return x


@pytest.mark.filterwarnings("ignore")  # of torch, about what it is given here
@pytest.mark.parametrize(
    "kind", ["nan", "zero", *(pytest.param(k, marks=pytest.mark.slow) for k in ("integer", "empty"))]
)
def test_edges(kind):
    """Each pair is the same wherever torch accepts the input, or the table says how it differs."""
    values = {name: edge(kind, name, x) for name, x in INPUTS.items()}
    theirs_in = vars(torch) | {name: torch.from_numpy(x) for name, x in values.items()}
    ours_in = OURS | {name: jnp.asarray(x) for name, x in values.items()}
    wrong = {}
    for theirs, ours in PAIRS:
        try:
            expected = leaves(eval(theirs, theirs_in))
        except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError):
            continue
        try:
            with jax.numpy_dtype_promotion("standard"):
                found = leaves(eval(ours, ours_in))
            same = [a.shape == b.shape and a.dtype.kind == b.dtype.kind for a, b in zip(found, expected, strict=True)]
            same += [np.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True) for a, b in zip(found, expected)]
        except Exception as error:
            same, found = [False], repr(error)
        if not all(same) and theirs not in DIFFERS and "histc" not in theirs:  # torch counts in floats
            wrong[theirs] = found
    assert list(wrong) == [], wrong


def test_the_table_names_what_it_says():
    assert DIFFERS.keys() <= {theirs for theirs, _ in PAIRS}


GRADIENTS = {
    "abs(x)": (lambda x: torch.abs(x), lambda x: tensor.abs(x), 0.0, 1.0),
    "clamp": (lambda x: torch.clamp(x, 0.0, 1.0), lambda x: tensor.clip(x, 0.0, 1.0), 1.0, 0.5),
    "norm": (lambda x: torch.linalg.norm(x), lambda x: tensor.linalg.norm(x), 0.0, np.nan),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_at_kinks_are_what_the_table_says(name):
    theirs, ours, wanted, found = GRADIENTS[name]
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    theirs(x).sum().backward()
    np.testing.assert_array_equal(x.grad, wanted)
    np.testing.assert_array_equal(jax.grad(lambda x: ours(x).sum())(jnp.zeros(2)), found)


def test_functions_of_torch_at_their_edges():
    x = jnp.asarray(INPUTS["x"])
    with pytest.raises(ValueError, match="axis1 and axis2 are both axis 1, must be two axes"):
        tensor.diag_embed(x, 0, 1, -2)
    with pytest.raises(ValueError, match="p is -1, must be 0 or more"):
        tensor.cdist(x, x, p=-1)
    for p in (0.5, 1.0, 2.0, 3.0, np.inf):
        assert np.isfinite(jax.grad(lambda x, p=p: tensor.cdist(x, x, p).sum())(x)).all()
    wanted = torch.cdist(*[torch.from_numpy(INPUTS["x"]).round()] * 2, p=0)
    np.testing.assert_array_equal(tensor.cdist(x.round(), x.round(), p=0), wanted)


def test_the_page_is_current():
    assert PAGE.read_text() == page(), "regenerate it: python -m tests.tensor.table"


def test_the_table_is_long_and_every_name_is_public():
    named = {theirs.split("(")[0] for theirs, _ in PAIRS}
    instead = {part for line in INSTEAD.strip().splitlines() for part in line.split(" | ")[0].split(", ")}
    assert len(named) + len(instead) >= 300
    assert all(hasattr(tensor, name) for name in tensor.__all__)


OWN = {
    "chunk": lambda x: tensor.chunk(x, 3, axis=1),
    "unfold": lambda x: tensor.unfold(x, 1, 3, 1),
    "topk": lambda x: tensor.topk(x, 2)[0],
    "scatter_add": lambda x, y: tensor.scatter_add(x, 1, INPUTS["i"] % 4, y),
    "diag_embed": lambda x: tensor.diag_embed(x),
    "normalize": lambda x: tensor.normalize(x),
    "cosine_similarity": lambda x, y: tensor.cosine_similarity(x, y),
    "cdist": lambda x, y: tensor.cdist(x, y),
    "cdist, p": lambda x, y: tensor.cdist(x, y, 3.0),
    "cumlogsumexp": lambda x: tensor.cumlogsumexp(x, -2),
    "diag_embed, offset": lambda x: tensor.diag_embed(x, -1, 0, 2),
}


@pytest.mark.parametrize("name", OWN)
def test_gradients(name):
    arguments = re.findall(r"\w+", OWN[name].__code__.co_varnames.__repr__())
    check_grads(OWN[name], [INPUTS[argument] for argument in arguments], directions=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["unfold", "topk", "diag_embed"])
def test_transforms(name):
    check_transforms(OWN[name], (INPUTS["x"],), batches=(2,), max_patterns=2)


def test_gradients_are_finite_at_zero():
    zero = jnp.zeros((2, 3))
    for function in (tensor.normalize, lambda x: tensor.cosine_similarity(x, x), lambda x: tensor.cdist(x, x)):
        assert np.isfinite(jax.grad(lambda x, f=function: f(x).sum())(zero)).all()


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_lengths_in_half_precision(scale):
    """Their squares are infinite or zero in float16."""
    x = jnp.array([[300.0, 400.0]]) * scale
    half = x.astype(jnp.float16)
    for function in (
        tensor.normalize,
        lambda x: tensor.cosine_similarity(x, x),
        lambda x: tensor.cdist(x, 0 * x),
        lambda x: tensor.cdist(x, 0 * x, 3.0),
    ):
        assert function(half).dtype == jnp.float16
        np.testing.assert_allclose(function(half), function(x), rtol=2e-3 if scale == 1 else 0.2)


def test_indices_outside_are_dropped():
    x, index = jnp.zeros((1, 3)), jnp.array([[1, 3, 99]])
    np.testing.assert_array_equal(tensor.scatter_add(x, 1, -index, jnp.ones((1, 3))), [[0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(tensor.scatter_add(x, 1, index, jnp.ones((1, 3))), [[0.0, 1.0, 0.0]])
    np.testing.assert_array_equal(x.at[:, index[0]].add(jnp.ones((1, 3))), [[0.0, 1.0, 0.0]])
    np.testing.assert_array_equal(x.at[:, index[0]].set(jnp.ones((1, 3))), [[0.0, 1.0, 0.0]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: tensor.topk(x, 5), r"k is 5, but axis -1 of shape \(3, 4\) has 4"),
        (lambda x: tensor.unfold(x, 0, 4, 1), "size is 4, must be at most 3"),
        (lambda x: tensor.chunk(x, 0), "chunks is 0"),
        (lambda x: tensor.unfold(x, 0, -1, 1), "size is -1, must be at most 3, .*, and at least 0"),
        (lambda x: tensor.unfold(x, 0, 2, 0), "step is 0, must be at least 1"),
        (lambda x: tensor.unfold(x, 0, 2, -1), "step is -1, must be at least 1"),
        (lambda x: tensor.unfold(x, 2, 2, 1), r"axis is 2, must be from -2 to 1 for shape \(3, 4\)"),
        (lambda x: tensor.chunk(x, 2, axis=-3), "axis is -3, must be from -2 to 1"),
        (lambda x: tensor.topk(x, 2, axis=5), "axis is 5, must be from -2 to 1"),
        (lambda x: tensor.diag_embed(x, 0, 0, 3), "axis2 is 3, must be from -3 to 2"),
        (lambda x: tensor.diag_embed(x, 0, -4, 1), "axis1 is -4, must be from -3 to 2"),
    ],
)
def test_errors_name_the_number(call, message):
    with pytest.raises(ValueError, match=message):
        call(jnp.asarray(INPUTS["x"]))


CUMULATIVE = {"cummax": torch.cummax, "cummin": torch.cummin, "cumlogsumexp": torch.logcumsumexp}


@pytest.mark.parametrize("name", CUMULATIVE)
def test_axes_of_cumulative_functions(name):
    ours = getattr(tensor, name)
    for x, axis in ((INPUTS["x"], -2), (INPUTS["x"], 1), (np.array(3.0), 0), (np.array(3.0), -1)):
        wanted = leaves(CUMULATIVE[name](torch.tensor(x), axis))[0]
        found = ours(jnp.asarray(x), axis)
        assert found.shape == x.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert jax.grad(ours)(jnp.array(3.0)) == 1
    for axis, shape, most in ((2, (3, 4), 1), (-3, (3, 4), 1), (1, (), 0)):
        message = rf"axis is {axis}, must be from -{most + 1} to {most} for shape {re.escape(str(shape))}"
        with pytest.raises(ValueError, match=message):
            ours(jnp.zeros(shape), axis)


@pytest.mark.parametrize("shape", [(0,), (0, 2), (5, 0)])
def test_pieces_of_nothing(shape):
    for axis in range(len(shape)):
        wanted = torch.zeros(shape).chunk(3, axis)
        assert [x.shape for x in tensor.chunk(jnp.zeros(shape), 3, axis)] == [tuple(x.shape) for x in wanted]
