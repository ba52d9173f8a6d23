"""Products, convolutions and training in few bits are timed only if their results are as exact as they say."""

import functools

import jax.numpy as jnp
import pytest

from fphys.bench import arrays, mixed
from fphys.bench.measure import QUICK, measure
from fphys.bench.run import groups


def test_fewer_bits_than_asked_for_are_not_timed():
    """Factors rounded to ten bits, as a GPU takes them by default, are no product or convolution of float32."""
    for setup in (functools.partial(arrays.product, 60), arrays.convolution):
        work = setup(1)
        found = work.fn(*work.args)
        work.validate(found)
        short = [jnp.asarray(x.astype(jnp.float16), jnp.float32) for x in work.args]
        with pytest.raises(ValueError, match="its factors had fewer bits"):
            work.validate(work.fn(*short))
        setup(1, precision=None, allowed=arrays.SHORT).validate(work.fn(*short))


def test_large_products_are_the_small_ones_in_another_size(monkeypatch):
    monkeypatch.setitem(arrays.MATRICES, "matmul5000", 60)
    monkeypatch.setitem(arrays.COPIES, "copy.large", 1000)
    large = [case for case in arrays.array_cases() if "large" in case.tags]
    kinds = ["", ".processor", ".default", ".bfloat16"]
    assert [case.name for case in large] == [f"device.matmul5000{kind}" for kind in kinds] + ["device.copy.large"]
    for group in groups(large):
        assert [result.error for result in measure(group, 1, QUICK)] == [None] * len(group)


def test_mixed_precision_in_every_kind(monkeypatch):
    """The large model's cases, in a small size."""
    monkeypatch.setitem(mixed.SIZES, "gpt1024", mixed.Size(32, 1, 2, 16, 3e-3, 4))
    cases = mixed.mixed_cases("gpt1024")
    assert [case.target for case in cases] == [None, None, 0.5, 0.5]
    results = measure(cases, 4, QUICK)
    assert [result.error for result in results] == [None] * 4
    assert all(result.ratio for result in results[1:])


def test_losses_that_are_not_those_of_float32_are_not_timed(monkeypatch):
    monkeypatch.setitem(mixed._losses, ("gpt", 4), [1.0, 0.9, 0.8, 0.7, 0.5])
    for last, text in ((0.6, r"are .*0.6\], in float32 \[.*0.5\]"), (1.1, "the loss does not fall")):
        found = iter([0.9, 0.8, 0.7, last])
        monkeypatch.setattr(mixed, "begun", lambda *_, found=found: lambda: next(found))
        work = mixed.trained("gpt", "bfloat16", 4)
        with pytest.raises(ValueError, match=text):
            work.validate(1.0)


def test_the_small_model_in_short():
    cases = mixed.mixed_cases()
    assert [case.name for case in cases] == [f"mixed.gpt.{kind}" for kind in mixed.KINDS]
    assert all(case.target is None for case in cases)
    assert [result.error for result in measure(cases[::3], 4, QUICK)] == [None, None]
