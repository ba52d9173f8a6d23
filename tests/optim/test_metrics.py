"""Metrics against scikit-learn's on random labels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics as reference

from fphys import metrics


def labels(seed, classes=5, n=200):
    """A class that is never predicted, and one that never occurs."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.integers(0, classes - 1, n)), jnp.asarray(rng.integers(1, classes, n))


def test_scores_that_are_not_numbers_are_no_predictions():
    scores = jnp.array([[0.1, 0.9], [jnp.nan, jnp.nan], [jnp.nan, 2.0], [1.0, 0.0]])
    assert metrics.accuracy(scores, jnp.array([1, 0, 1, 0])) == 0.5


@pytest.mark.parametrize("average", ["macro", "micro", "weighted", None])
@pytest.mark.parametrize("name", ["precision", "recall", "f1"])
@pytest.mark.parametrize("seed", range(3))
def test_scikit_learn(name, average, seed):
    predicted, true = labels(seed)
    options = {"labels": list(range(5)), "average": average, "zero_division": 0}
    expected = getattr(reference, f"{name}_score")(true, predicted, **options)
    ours = getattr(metrics, name)
    np.testing.assert_allclose(ours(predicted, true, num_classes=5, average=average), expected, rtol=1e-12)
    compiled = jax.jit(lambda p, t: ours(p, t, num_classes=5, average=average))
    np.testing.assert_allclose(compiled(predicted, true), expected, rtol=1e-12)


def test_accuracy_and_confusion():
    predicted, true = labels(0)
    assert metrics.accuracy(predicted, true) == pytest.approx(reference.accuracy_score(true, predicted))
    expected = reference.confusion_matrix(true, predicted, labels=list(range(5)))
    np.testing.assert_array_equal(metrics.confusion_matrix(predicted, true, 5), expected)
    scores = jnp.asarray(np.random.default_rng(1).standard_normal((200, 5)))
    assert metrics.accuracy(scores, true) == pytest.approx(np.mean(np.argmax(scores, -1) == true))
    for k in (1, 2, 4):
        expected = reference.top_k_accuracy_score(true, scores, k=k, labels=list(range(5)))
        assert metrics.accuracy(scores, true, top_k=k) == pytest.approx(expected)


def test_batches_add_up():
    predicted, true = labels(0)
    halves = [metrics.confusion_matrix(p, t, 5) for p, t in zip(predicted.reshape(2, -1), true.reshape(2, -1))]
    assert metrics.f1(sum(halves)) == metrics.f1(predicted, true, num_classes=5)


def test_nothing_at_all_gives_zero():
    nothing = jnp.zeros((3, 3), jnp.int32)
    for average in ("macro", "micro", "weighted"):
        assert metrics.f1(nothing, average=average) == 0


@pytest.mark.parametrize("wrong", [-1, 5])
def test_classes_out_of_range(wrong):
    predicted, true = labels(0)
    with pytest.raises(ValueError, match=f"labels hold {wrong}, must be from 0 to 4"):
        metrics.confusion_matrix(predicted, true.at[0].set(wrong), 5)
    known = np.asarray(true.at[0].set(wrong))
    with pytest.raises(ValueError, match="labels hold"):  # known while tracing, too
        jax.jit(lambda p: metrics.f1(p, known, num_classes=5))(predicted)
    jax.jit(lambda p: metrics.f1(p, true, num_classes=5))(predicted)
    counted = jax.jit(metrics.confusion_matrix, static_argnums=2)(predicted, true.at[0].set(wrong), 5)
    np.testing.assert_array_equal(counted, metrics.confusion_matrix(predicted[1:], true[1:], 5))


def test_wrong_arguments_are_named():
    predicted, true = labels(0)
    with pytest.raises(ValueError, match="num_classes is None"):
        metrics.f1(predicted, true)
    with pytest.raises(ValueError, match="average is 'mean'"):
        metrics.f1(predicted, true, num_classes=5, average="mean")
    with pytest.raises(ValueError, match=r"predictions have shape \(3, 2\)"):
        metrics.accuracy(jnp.zeros((3, 2)), jnp.zeros(2, int))
    with pytest.raises(TypeError, match=r"float.* of shape \(3, 3\), must be integer classes"):
        metrics.accuracy(jnp.eye(3), jnp.eye(3))


def test_classes_of_eight_bits():
    """300 is not 44."""
    scores = jax.nn.one_hot(jnp.array([300, 44]), 301)
    assert metrics.accuracy(scores, jnp.array([44, 44], jnp.uint8)) == 0.5
    counted = jax.jit(metrics.confusion_matrix, static_argnums=2)(*jnp.array([[1, 2], [-1, 2]], jnp.int8), 200)
    assert int(counted.sum()) == int(counted[2, 2]) == 1
