"""Each pair in the table from torch to ours gives the same, and our own functions have correct gradients."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from fphys import tensor
from fphys.testing import check_grads, check_transforms

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


def leaves(result):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tuple(result) if isinstance(result, tuple) else result)]


@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=[theirs for theirs, _ in PAIRS])
def test_each_pair_gives_the_same(theirs, ours):
    expected = leaves(eval(theirs, vars(torch) | {name: torch.from_numpy(x) for name, x in INPUTS.items()}))
    found = leaves(eval(ours, vars(tensor) | {name: jnp.asarray(x) for name, x in INPUTS.items()}))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert one.dtype.kind == other.dtype.kind or "histc" in theirs  # torch counts in floats
        # Torch creates float32 by default; everything else is float64 on both sides.
        np.testing.assert_allclose(one, other, rtol=1e-6 if other.dtype == np.float32 else 1e-9, atol=1e-12)


def test_the_page_is_current():
    assert PAGE.read_text() == page(), "regenerate it: python -m tests.tensor.table"


def test_the_table_is_long_and_every_name_is_public():
    assert len({theirs.split("(")[0] for theirs, _ in PAIRS}) >= 200
    assert all(hasattr(tensor, name) for name in tensor.__all__)


OWN = {
    "lerp": lambda x, y, q: tensor.lerp(x, y, q),
    "frac": lambda x: tensor.frac(x),
    "chunk": lambda x: tensor.chunk(x, 3, axis=1),
    "unfold": lambda x: tensor.unfold(x, 1, 3, 1),
    "topk": lambda x: tensor.topk(x, 2)[0],
    "kthvalue": lambda x: tensor.kthvalue(x, 2)[0],
    "masked_fill": lambda x: tensor.masked_fill(x, INPUTS["m"], 7.0),
    "scatter_add": lambda x, y: tensor.scatter_add(x, 1, INPUTS["i"] % 4, y),
    "index_add": lambda a, x: tensor.index_add(a, 0, INPUTS["k"], x),
    "index_copy": lambda a, x: tensor.index_copy(a, 0, INPUTS["k"], x),
    "diag_embed": lambda x: tensor.diag_embed(x),
    "addmm": lambda a, x, y: tensor.addmm(a[:3, :3], x, y.T, beta=2.0, alpha=3.0),
    "normalize": lambda x: tensor.normalize(x),
    "cosine_similarity": lambda x, y: tensor.cosine_similarity(x, y),
    "cdist": lambda x, y: tensor.cdist(x, y),
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


def test_indices_outside_are_dropped():
    x, index = jnp.zeros((1, 3)), jnp.array([[1, 3, 99]])
    np.testing.assert_array_equal(tensor.scatter_add(x, 1, index, jnp.ones((1, 3))), [[0.0, 1.0, 0.0]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: tensor.topk(x, 5), r"k is 5, but axis -1 of shape \(3, 4\) has 4"),
        (lambda x: tensor.kthvalue(x, 0), "k is 0, must be from 1 to 4"),
        (lambda x: tensor.unfold(x, 0, 4, 1), "size is 4, must be at most 3"),
        (lambda x: tensor.chunk(x, 0), "chunks is 0"),
    ],
)
def test_errors_name_the_number(call, message):
    with pytest.raises(ValueError, match=message):
        call(jnp.asarray(INPUTS["x"]))
