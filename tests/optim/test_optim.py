"""Ten updates as torch makes them."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from fphys import optim

OPTIMIZERS = {
    "SGD": [
        {"lr": 0.1},
        {"lr": 0.1, "momentum": 0.9},
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ],
    "Adam": [{}, {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1}],
    "AdamW": [{}, {"lr": 0.05, "weight_decay": 0.1}],
    "RMSprop": [
        {},
        {"lr": 0.05, "alpha": 0.9, "eps": 1e-3, "weight_decay": 0.1, "momentum": 0.9},
        {"centered": True},
    ],
}
CASES = [(name, options) for name, many in OPTIMIZERS.items() for options in many]
pytestmark = pytest.mark.usefixtures("optax_promotes")
START = np.random.default_rng(0).standard_normal((3, 4))
TARGET = np.random.default_rng(1).standard_normal((3, 4))


def ours(optimizer, steps=10, dtype=np.float64):
    """Parameters after each update of a loss that is not quadratic."""
    params = {"w": jnp.asarray(START, dtype)}
    target = jnp.asarray(TARGET, dtype)

    @jax.jit
    def step(params, state):
        grads = jax.grad(lambda p: jnp.sum((p["w"] - target) ** 2 + jnp.sin(3 * p["w"])))(params)
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state

    state, path = optimizer.init(params), []
    for _ in range(steps):
        params, state = step(params, state)
        path.append(np.asarray(params["w"]))
    return np.stack(path)


def theirs(make, schedule=None, steps=10):
    w, target = torch.tensor(START, requires_grad=True), torch.tensor(TARGET)
    optimizer = make([w])
    scheduler = schedule(optimizer) if schedule else None
    path = []
    for _ in range(steps):
        optimizer.zero_grad()
        ((w - target) ** 2 + torch.sin(3 * w)).sum().backward()
        optimizer.step()
        if scheduler:
            scheduler.step()
        path.append(w.detach().numpy().copy())
    return np.stack(path)


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{name}{i}" for i, (name, _) in enumerate(CASES)])
def test_ten_updates(name, options):
    reference = {"lr": {"SGD": 0.1, "RMSprop": 1e-2}.get(name, 1e-3)} | options
    options = options | {"lr": 0.1} if name == "SGD" and "lr" not in options else options
    expected = theirs(lambda w: getattr(torch.optim, name)(w, **reference))
    np.testing.assert_allclose(ours(getattr(optim, name)(**options)), expected, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(ours(getattr(optim, name)(**options), dtype=np.float32), expected, rtol=1e-4, atol=1e-5)


LR = torch.optim.lr_scheduler
SCHEDULES = {
    "step": (optim.StepLR(0.1, 3, 0.5), lambda o: LR.StepLR(o, 3, 0.5)),
    "step to zero": (optim.StepLR(0.1, 3, 0.0), lambda o: LR.StepLR(o, 3, 0.0)),
    "exponential to zero": (optim.ExponentialLR(0.1, 0.0), lambda o: LR.ExponentialLR(o, 0.0)),
    "exponential": (optim.ExponentialLR(0.1, 0.9), lambda o: LR.ExponentialLR(o, 0.9)),
    "cosine": (optim.CosineAnnealingLR(0.1, 10, 0.02), lambda o: LR.CosineAnnealingLR(o, 10, 0.02)),
    "warm-up": (
        optim.warmup(optim.ExponentialLR(0.1, 0.9), 4, start=0.01),
        lambda o: LR.SequentialLR(o, [LR.LinearLR(o, 0.1, 1.0, 4), LR.ExponentialLR(o, 0.9)], [4]),
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.filterwarnings(
    "ignore:The epoch parameter:UserWarning"
)  # torch's own SequentialLR uses what it deprecates
def test_schedules(name):
    schedule, reference = SCHEDULES[name]
    expected = theirs(lambda w: torch.optim.SGD(w, lr=0.1, momentum=0.9), reference)
    np.testing.assert_allclose(ours(optim.SGD(schedule, momentum=0.9)), expected, rtol=1e-5, atol=1e-7)
    rates = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    scheduler = reference(rates)
    for n in range(10):
        assert math.isclose(float(schedule(n)), rates.param_groups[0]["lr"], rel_tol=1e-5)
        rates.step()
        scheduler.step()


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{name}{i}" for i, (name, _) in enumerate(CASES)])
def test_numbers_that_are_injected(name, options):
    """The numbers are arrays then, traced under ``jit``."""
    options = {"lr": 0.1} | options
    injected = optim.inject_hyperparams(getattr(optim, name))(**options)
    np.testing.assert_allclose(ours(injected), ours(getattr(optim, name)(**options)), rtol=1e-12)


def test_a_rate_of_zero_stays():
    schedule = optim.CosineAnnealingLR(0.0, 10)
    assert [float(schedule(n)) for n in (0, 5, 20)] == [0, 0, 0]


def test_the_last_rate_stays():
    assert float(optim.CosineAnnealingLR(0.1, 10, 0.02)(25)) == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: optim.SGD(math.inf), "lr is inf, must be finite"),
        (lambda: optim.Adam(-1e-3), "lr is -0.001"),
        (lambda: optim.AdamW(math.nan), "lr is nan"),
        (lambda: optim.Adam(betas=(0.9, 1.0)), r"betas are \(0.9, 1.0\)"),
        (lambda: optim.SGD(0.1, nesterov=True), "give a momentum"),
        (lambda: optim.RMSprop(weight_decay=-1.0), "weight_decay is -1.0"),
        (lambda: optim.warmup(0.1, -3), "steps is -3"),
        (lambda: optim.StepLR(0.1, 0), "step_size is 0, must be the number of updates"),
        (lambda: optim.ExponentialLR(0.1, math.nan), "gamma is nan"),
        (lambda: optim.CosineAnnealingLR(math.nan, 10), "lr is nan"),
        (lambda: optim.CosineAnnealingLR(0.1, 10, -0.1), "eta_min is -0.1"),
        (lambda: optim.CosineAnnealingLR(-0.1, 10), "lr is -0.1"),
        (lambda: optim.CosineAnnealingLR(0.1, 0), "T_max is 0, must be the number of updates, 1 or more"),
        (lambda: optim.ReduceLROnPlateau(every=0), "every is 0, must be 1 or more"),
        (lambda: optim.ReduceLROnPlateau(patience=-1), "patience is -1"),
        (lambda: optim.ReduceLROnPlateau(cooldown=-1), "cooldown is -1"),
        (lambda: optim.ReduceLROnPlateau(factor=math.nan), "factor is nan"),
        (lambda: optim.ReduceLROnPlateau(threshold=-1.0), "threshold is -1.0"),
        (lambda: optim.clip_by_global_norm(-1), "max_norm is -1"),
        (lambda: optim.clip_by_global_norm(math.nan), "max_norm is nan"),
    ],
)
def test_numbers_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_every_name_is_there():
    assert all(hasattr(optim, name) for name in optim.__all__)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clipping_is_optax_s(dtype):
    grads = {"a": jnp.asarray(START, dtype), "b": jnp.asarray(TARGET[0], dtype)}
    for norm in (0.5, 100.0):
        found, wanted = (clip(norm).update(grads, clip(norm).init(grads))[0] for clip in CLIPS)
        jax.tree.map(np.testing.assert_array_equal, found, wanted)
    np.testing.assert_array_equal(optim.global_norm(grads), optax.tree.norm(grads))


CLIPS = (optim.clip_by_global_norm, optax.clip_by_global_norm)


@pytest.mark.parametrize("scale", [1.0, 300.0, 3e4])
def test_clipping_in_float16_is_torch_s(scale):
    """Of a norm that float16 does not hold, too; torch's is infinite then."""
    grads = (scale * START).astype(np.float16)
    found, _ = optim.clip_by_global_norm(1.0).update(jnp.asarray(grads), optax.EmptyState())
    weight = torch.zeros(3, 4, requires_grad=True)
    weight.grad = torch.tensor(grads).float()
    norm = torch.nn.utils.clip_grad_norm_([weight], 1.0)
    np.testing.assert_allclose(optim.global_norm(jnp.asarray(grads)), norm, rtol=1e-6)
    assert found.dtype == jnp.float16
    np.testing.assert_allclose(found, weight.grad, rtol=2.0**-10)


@pytest.mark.parametrize(("dtype", "long"), [(np.float32, 3e19), (np.float32, 1e-25), (np.float64, 3e160)])
def test_clipping_of_a_norm_whose_square_is_not_a_number(dtype, long):
    """It would be infinite or zero."""
    grads = {"a": jnp.asarray([3 * long], dtype), "b": jnp.asarray([[0, -4 * long]], dtype)}
    np.testing.assert_allclose(optim.global_norm(grads), 5 * long, rtol=1e-6)
    clip = optim.clip_by_global_norm(0.1 * long)
    found, _ = jax.jit(lambda grads: clip.update(grads, optax.EmptyState()))(grads)
    np.testing.assert_allclose(found["a"], [0.06 * long], rtol=1e-6)
    np.testing.assert_allclose(found["b"], [[0, -0.08 * long]], rtol=1e-6)


@pytest.mark.parametrize("compiled", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_clipping_of_the_longest_gradients(compiled):
    """Not even float32 holds this norm."""
    grads = jnp.full((4,), 3e38, jnp.float32)
    found = compiled(lambda x: optim.clip_by_global_norm(1.0).update(x, optax.EmptyState())[0])(grads)
    np.testing.assert_allclose(found, 0.5, rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_norm_of_what_is_not_finite(bad):
    assert not np.isfinite(optim.global_norm({"a": jnp.array([1.0, bad]), "b": jnp.zeros((2, 0))}))
    assert optim.global_norm({"a": jnp.zeros(3)}) == 0 == optim.global_norm({})


@pytest.mark.parametrize(("gamma", "size"), [(0.99999, 1), (0.9999999, 1), (1.000001, 3), (0.5, 10**6)])
def test_a_rate_after_ten_million_updates(gamma, size):
    n = np.array([0, 1, 2, 999_999, 10**6, 5 * 10**6 + 1, 10**7])
    wanted = 0.1 * np.float64(gamma) ** (n // size)
    with jax.enable_x64(False):
        found = jax.jit(optim.StepLR(0.1, size, gamma))(jnp.asarray(n, jnp.int32))
        assert found.dtype == jnp.float32
    seen = wanted > 1e-37
    np.testing.assert_allclose(found[seen], wanted[seen], rtol=5e-6)
    np.testing.assert_allclose(found, wanted, rtol=5e-6, atol=1e-37)
