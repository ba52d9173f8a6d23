"""Losses against torch's: values, gradients, labels that cannot be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn import functional

from fphys import losses
from fphys.testing import check_grads

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((2, 6, 5))
P, T = RNG.uniform(0.05, 0.95, (2, 6, 5))
LABELS = RNG.integers(0, 5, 6)
WEIGHT = RNG.uniform(0.5, 2.0, 5)
SHARES = RNG.dirichlet(np.ones(5), 6)
IGNORED = np.where(np.arange(6) == 2, -100, LABELS)

CASES = {
    "mse": ("mse_loss", (X, Y), {}),
    "l1": ("l1_loss", (X, Y), {}),
    "huber": ("huber_loss", (X, Y), {"delta": 0.7}),
    "smooth l1": ("smooth_l1_loss", (X, Y), {"beta": 0.7}),
    "cross entropy": ("cross_entropy", (X, LABELS), {}),
    "cross entropy, weighted": ("cross_entropy", (X, LABELS), {"weight": WEIGHT}),
    "cross entropy, smoothed": ("cross_entropy", (X, LABELS), {"label_smoothing": 0.1}),
    "cross entropy, all": ("cross_entropy", (X, IGNORED), {"label_smoothing": 0.1, "weight": WEIGHT}),
    "cross entropy, shares": ("cross_entropy", (X, SHARES), {"label_smoothing": 0.1, "weight": WEIGHT}),
    "nll": ("nll_loss", (np.log(SHARES), LABELS), {}),
    "nll, weighted": ("nll_loss", (np.log(SHARES), IGNORED), {"weight": WEIGHT}),
    "bce": ("binary_cross_entropy", (P, T), {}),
    "bce, logits": ("binary_cross_entropy_with_logits", (X, T), {}),
    "bce, logits, weighted": ("binary_cross_entropy_with_logits", (X, T), {"pos_weight": WEIGHT[None]}),
    "triplet": ("triplet_margin_loss", (X, Y, P), {"margin": 0.5, "p": 3.0}),
    "kl": ("kl_div", (np.log(P), T), {}),
    "kl, logs": ("kl_div", (np.log(P), np.log(T)), {"log_target": True}),
}


def torched(values):
    return jax.tree.map(lambda x: torch.from_numpy(x) if isinstance(x, np.ndarray) else x, values)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("case", CASES)
def test_torch(case, reduction):
    name, arguments, options = CASES[case]
    if name == "kl_div" and reduction == "mean":
        reduction = "batchmean"  # the divergence itself
    found = getattr(losses, name)(*map(jnp.asarray, arguments), **options, reduction=reduction)
    expected = getattr(functional, name)(*torched(arguments), **torched(options), reduction=reduction)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_padded_target_pushes_nothing():
    """The gradient of l1_loss is zero where both are equal, as torch's."""
    x = jnp.array([0.0, 2.0, -3.0])
    np.testing.assert_array_equal(jax.grad(lambda x: losses.l1_loss(x, jnp.zeros(3), "sum"))(x), [0, 1, -1])


@pytest.mark.parametrize("case", CASES)
def test_gradients(case):
    name, arguments, options = CASES[case]
    check_grads(lambda *xs: getattr(losses, name)(*xs, **options, reduction="none"), arguments, directions=2)


def test_more_than_one_axis_of_rows():
    logits, labels = jnp.asarray(RNG.standard_normal((2, 3, 4, 5))), jnp.asarray(RNG.integers(0, 5, (2, 3, 4)))
    expected = functional.cross_entropy(
        torch.from_numpy(np.moveaxis(np.asarray(logits), -1, 1).copy()), torch.from_numpy(np.asarray(labels).copy())
    )
    np.testing.assert_allclose(losses.cross_entropy(logits, labels), expected)


@pytest.mark.parametrize("wrong", [-1, 5, 2**31 - 1])
def test_labels_out_of_range(wrong):
    labels = jnp.asarray(LABELS).at[1].set(wrong)
    with pytest.raises(ValueError, match=f"labels hold {wrong}, must be from 0 to 4"):
        losses.cross_entropy(jnp.asarray(X), labels)
    known = np.asarray(labels)  # while tracing, too
    with pytest.raises(ValueError, match=f"labels hold {wrong}"):
        jax.jit(lambda x: losses.cross_entropy(x, known))(jnp.asarray(X))
    jax.jit(lambda x: losses.cross_entropy(x, LABELS))(jnp.asarray(X))
    value, grad = jax.jit(jax.value_and_grad(losses.cross_entropy))(jnp.asarray(X), labels)
    assert np.isnan(value) and np.isnan(grad[1]).all()


def test_infinite_and_certain_predictions_are_finite():
    certain = jnp.array([0.0, 1.0, 0.0, 1.0])
    value, grad = jax.value_and_grad(losses.binary_cross_entropy)(certain, jnp.array([0.0, 1.0, 1.0, 0.0]))
    assert value == 50 and np.isfinite(grad).all()
    value, grad = jax.value_and_grad(losses.binary_cross_entropy_with_logits)(certain * 2000 - 1000, certain)
    assert value == 0 and np.isfinite(grad).all()
    value, grad = jax.value_and_grad(losses.kl_div, argnums=(0, 1))(
        jnp.log(jnp.array([0.5, 0.5])), jnp.array([1.0, 0.0])
    )
    assert np.isfinite(value) and np.isfinite(grad[0]).all()


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss", "binary_cross_entropy", "kl_div"])
def test_nothing_is_broadcast(name):
    with pytest.raises(ValueError, match=r"\(4, 1\) and \w+ \(4,\); they must be the same"):
        getattr(losses, name)(jnp.ones((4, 1)), jnp.ones(4))


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"labels have shape \(3,\), must have \(6,\)"):
        losses.cross_entropy(jnp.asarray(X), jnp.zeros(3, int))
    with pytest.raises(ValueError, match="reduction is 'avg'"):
        losses.mse_loss(jnp.ones(3), jnp.ones(3), reduction="avg")


def test_labels_of_a_floating_type_are_named():
    with pytest.raises(ValueError, match="labels are float64, must be integers"):
        losses.cross_entropy(jnp.ones((3, 4)), jnp.ones(3))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_labels_of_eight_bits(dtype):
    """156 is not -100, and 256 classes are not none."""
    logits = jnp.asarray(RNG.standard_normal((4, 256)))
    labels = np.array([156, 0, 255, 7] if dtype == np.uint8 else [127, 0, -100, 7])
    wanted = losses.cross_entropy(logits, jnp.asarray(labels))
    narrow = jnp.asarray(labels.astype(dtype))
    np.testing.assert_array_equal(losses.cross_entropy(logits, narrow), wanted)
    np.testing.assert_array_equal(jax.jit(losses.nll_loss)(jax.nn.log_softmax(logits), narrow), wanted)


def test_the_mean_of_many_losses_in_float16():
    """Their sum, 90,000, is infinite in float16, and so is the square of their number in the gradient."""
    logits, labels = jnp.zeros((20_000, 90), jnp.float16), jnp.zeros(20_000, jnp.int32)
    value, grad = jax.value_and_grad(lambda x: 2.0**15 * losses.cross_entropy(x, labels).astype(jnp.float32))(logits)
    assert float(value) / 2**15 == np.float16(np.log(90))
    np.testing.assert_allclose(grad[:, 0], -(89 / 90) * 2.0**15 / 20_000, rtol=2e-3)
    wide = jnp.zeros((2, 70_000), jnp.float16)  # and so is the sum over the classes
    even = losses.nll_loss(wide - 11, labels[:2]), losses.cross_entropy(wide[:, :60_000], labels[:2], None, -100, 0.5)
    np.testing.assert_allclose(even, [11, 11], rtol=1e-2)
    logs = jnp.full((20_000, 90), -9.0, jnp.float16)
    np.testing.assert_allclose(losses.kl_div(logs, jnp.ones_like(logs), reduction="batchmean"), 9 * 90)


def test_an_outlier_in_float16():
    """Its square is infinite in float16, their mean is not."""
    x = jnp.zeros((100, 1), jnp.float16).at[0].set(300)
    assert float(losses.mse_loss(x, 0 * x)) == 900
    assert float(losses.triplet_margin_loss(x, 0 * x, x, reduction="sum")) == 99 + 301


def test_a_smooth_loss_without_a_square_is_l1():
    found = losses.smooth_l1_loss(jnp.asarray(X), jnp.asarray(Y), beta=0)
    np.testing.assert_allclose(found, functional.smooth_l1_loss(*map(torch.from_numpy, (X, Y)), beta=0), rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: losses.huber_loss(x, x, delta=-1), "delta is -1, must be positive"),
        (lambda x: losses.huber_loss(x, x, delta=0), "delta is 0, must be positive"),
        (lambda x: losses.smooth_l1_loss(x, x, beta=-1), "beta is -1, must be positive"),
        (lambda x: losses.cross_entropy(x, jnp.asarray(LABELS), label_smoothing=2.0), "label_smoothing is 2.0"),
        (lambda x: losses.cross_entropy(x, x, label_smoothing=-0.1), "label_smoothing is -0.1, must be from 0 to 1"),
    ],
)
def test_numbers_that_cannot_be(call, message):
    with pytest.raises(ValueError, match=message):
        call(jnp.asarray(X))


@pytest.mark.parametrize("bad", [-np.inf, np.inf, np.nan])
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1, "weight": WEIGHT}])
def test_ignored_rows_may_hold_anything(bad, options):
    x = X.copy()
    x[2, 1] = bad  # the row of IGNORED
    found, grad = jax.value_and_grad(losses.cross_entropy)(jnp.asarray(x), jnp.asarray(IGNORED), **options)
    kept = torch.from_numpy(np.delete(X, 2, 0)).requires_grad_()
    wanted = functional.cross_entropy(kept, torch.from_numpy(np.delete(LABELS, 2)), **torched(options))
    wanted.backward()
    np.testing.assert_allclose(found, wanted.detach(), rtol=1e-12)
    np.testing.assert_allclose(np.delete(grad, 2, 0), kept.grad, rtol=1e-9)
    np.testing.assert_array_equal(grad[2], 0)
    logs = np.where(np.arange(6)[:, None] == 2, bad, np.log(SHARES))
    found, grad = jax.value_and_grad(losses.nll_loss)(jnp.asarray(logs), jnp.asarray(IGNORED))
    wanted = functional.nll_loss(torch.from_numpy(np.delete(logs, 2, 0)), torch.from_numpy(np.delete(LABELS, 2)))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert np.isfinite(grad).all()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_batch_of_ignored_rows_is_torch_s(reduction):
    labels = np.full(6, -100)
    found, grad = jax.value_and_grad(losses.cross_entropy)(jnp.asarray(X), jnp.asarray(labels), reduction=reduction)
    moved = torch.tensor(X, requires_grad=True)
    wanted = functional.cross_entropy(moved, torch.from_numpy(labels), reduction=reduction)
    wanted.backward()
    np.testing.assert_array_equal(found, wanted.detach())
    np.testing.assert_array_equal(grad, moved.grad)


@pytest.mark.parametrize("name", ["huber_loss", "smooth_l1_loss"])
def test_a_wide_parabola_in_float16(name):
    """The square of 300, and the sum of three losses, are infinite in float16."""
    x = np.array([300.0, -300, 10], np.float32)
    width = {"huber_loss": "delta", "smooth_l1_loss": "beta"}[name]
    found = getattr(losses, name)(jnp.asarray(x, jnp.float16), jnp.zeros(3, jnp.float16), **{width: 400.0})
    wanted = getattr(functional, name)(torch.tensor(x), torch.zeros(3), **{width: 400.0})
    assert found.dtype == jnp.float16
    np.testing.assert_allclose(found, wanted, rtol=2.0**-10)
    tiny = losses.smooth_l1_loss(jnp.float16([1e-3]), jnp.float16([0]), beta=1e-4)
    np.testing.assert_allclose(tiny, 1e-3 - 0.5e-4, rtol=2.0**-9)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss", "binary_cross_entropy"])
def test_integers_are_refused(name):
    """|2 - 5| is 253 in uint8."""
    one, other = jnp.asarray([2], jnp.uint8), jnp.asarray([5], jnp.uint8)
    with pytest.raises(TypeError, match=r"is uint8, must be floating-point: \w+.astype\(jnp.float32\)"):
        getattr(losses, name)(one, other)
    with pytest.raises(TypeError, match="target is uint8"):
        getattr(losses, name)(one.astype(jnp.float32), other)
    for loss in (losses.cross_entropy, losses.nll_loss):
        with pytest.raises(TypeError, match="is int64, must be floating-point"):
            loss(jnp.ones((3, 4), int), jnp.zeros(3, int))


@pytest.mark.parametrize("width", [1e-3, 1.0, 1e4, 1e8, 1e20])
@pytest.mark.parametrize("name", ["huber_loss", "smooth_l1_loss"])
def test_the_slope_of_a_wide_parabola(name, width):
    """A difference of numbers of the parabola's width would cancel."""
    option = {"huber_loss": "delta", "smooth_l1_loss": "beta"}[name]
    x = torch.tensor([1e-8, -1e-4, 0.0, 1.0, -300.0], requires_grad=True)
    wanted = getattr(functional, name)(x, torch.zeros(5), **{option: width}, reduction="sum")
    wanted.backward()
    loss = lambda x: getattr(losses, name)(x, jnp.zeros_like(x), **{option: width}, reduction="sum")  # noqa: E731
    found, grad = jax.value_and_grad(loss)(jnp.asarray(x.detach().numpy()))
    np.testing.assert_allclose(found, wanted.detach(), rtol=1e-6)
    np.testing.assert_allclose(grad, x.grad, rtol=1e-6)
