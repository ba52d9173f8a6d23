"""Least squares over windows: SciPy's solution, the statistics of linear regression, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.identify import Estimate, deviations, estimate, least_squares, simulate, windows

H = 0.1
TRUE = np.log([0.8, 2.0])  # damping and stiffness


def oscillator(parameters, x, u):
    """A spring that hardens, damped and driven: nonlinear in state and parameters."""
    damping, stiffness = jnp.exp(parameters).T
    force = u[:, 0] - damping * x[:, 1] - stiffness * (x[:, 0] + x[:, 0] ** 3)
    speed = x[:, 1] + H * force
    return jnp.stack([x[:, 0] + H * speed, speed], 1)


def regression(parameters, x, u):
    """x' = u . p: linear in the parameters, and the state is not in it."""
    return (parameters * u).sum(1, keepdims=True) + 0 * x


@pytest.fixture(scope="module")
def recorded():
    """A motion of the oscillator with one percent of noise: inputs, measured states, spread."""
    rng = np.random.default_rng(0)
    u = np.sin(0.3 * np.arange(121)) + rng.normal(0, 0.5, 121)
    x = np.asarray(simulate(oscillator, jnp.asarray(TRUE), jnp.array([[0.5, 0.0]]), jnp.asarray(u[:-1, None, None])))[
        :, 0
    ]
    return u[:, None], x + 0.01 * x.std(0) * rng.standard_normal(x.shape), x.std(0)


@pytest.mark.extra("scipy")
def test_a_nonlinear_problem_has_scipys_solution(recorded):
    import scipy.optimize

    motion = windows(*recorded[:2], 20, recorded[2])
    first = estimate(oscillator, motion, jnp.asarray(TRUE + [0.4, -0.4]))
    found = jax.jit(lambda e: least_squares(oscillator, motion, e, 25))(first)

    @jax.jit
    def residuals(unknown):
        x = simulate(oscillator, unknown[:2], unknown[2:].reshape(first.start.shape), motion.u)
        return ((x - motion.y) / motion.scale[None, None]).ravel()

    best = scipy.optimize.least_squares(
        residuals, np.concatenate([first.parameters, first.start.ravel()]), jax.jit(jax.jacfwd(residuals)), xtol=1e-14
    )
    np.testing.assert_allclose(found.parameters, best.x[:2], atol=1e-7)
    np.testing.assert_allclose(found.start.ravel(), best.x[2:], atol=1e-7)
    np.testing.assert_allclose(found.cost, 2 * best.cost, rtol=1e-10)
    covariance = np.linalg.inv(best.jac.T @ best.jac) * found.cost / (motion.y.size - len(best.x))
    np.testing.assert_allclose(deviations(oscillator, motion, found), np.sqrt(np.diag(covariance))[:2], rtol=1e-5)
    assert (np.abs(found.parameters - TRUE) < 4 * np.sqrt(np.diag(covariance))[:2]).all()


def test_a_linear_problem_has_the_solution_of_linear_regression():
    """Each window's start is measured once, so it takes nothing from the data."""
    rng = np.random.default_rng(1)
    u = rng.standard_normal((50, 3))
    y = np.append(0.0, (u @ [0.5, -0.3, 0.2])[:-1] + rng.normal(0, 0.1, 49))[:, None]
    motion = windows(u, y, 49, np.ones(1))
    found = least_squares(regression, motion, estimate(regression, motion, np.zeros(3)), 20)
    best, (cost,), *_ = np.linalg.lstsq(u[:-1], y[1:, 0])
    np.testing.assert_allclose(found.parameters, best, atol=1e-9)
    np.testing.assert_allclose(found.cost, cost, rtol=1e-12)
    wanted = np.sqrt(np.diag(np.linalg.inv(u[:-1].T @ u[:-1])) * cost / (50 - 3 - 1))
    np.testing.assert_allclose(deviations(regression, motion, found), wanted, rtol=1e-9)


def test_deviations_of_parameters_of_very_different_weight():
    """As those of an exact regression, whatever the units; a parameter that changes nothing has an infinite one."""
    rng = np.random.default_rng(2)
    u = rng.standard_normal((50, 3)) * [1e7, 1.0, 0.0]
    y = np.append(0.0, (u @ [0.5, -0.3, 0.2])[:-1] + rng.normal(0, 0.1, 49))[:, None]
    motion = windows(u, y, 49, np.ones(1))
    best, (cost,), *_ = np.linalg.lstsq(u[:-1, :2], y[1:, 0], rcond=1e-15)
    found = estimate(regression, motion, jnp.append(best, 0.0))
    wanted = np.sqrt(np.diag(np.linalg.inv(u[:-1, :2].T @ u[:-1, :2])) * cost / (50 - 3 - 1))
    spread = deviations(regression, motion, found)
    np.testing.assert_allclose(spread[:2], wanted, rtol=1e-6)
    assert np.isinf(spread[2])


def test_any_finite_cost_is_better_than_none(recorded):
    motion = windows(*recorded[:2], 20, recorded[2])
    lost = estimate(oscillator, motion, jnp.asarray(TRUE))._replace(cost=jnp.asarray(jnp.nan))
    assert jnp.isfinite(least_squares(oscillator, motion, lost).cost)


def test_no_iteration_raises_the_cost_or_moves_a_parameter_far(recorded):
    motion = windows(*recorded[:2], 60, recorded[2])
    now = estimate(oscillator, motion, jnp.asarray(TRUE + [2.5, -2.5]))
    once = jax.jit(lambda e: least_squares(oscillator, motion, e))
    for _ in range(10):
        now, before = once(now), now
        assert now.cost <= before.cost
        assert jnp.abs(now.parameters - before.parameters).max() <= 1.0
    np.testing.assert_allclose(now.parameters, TRUE, atol=0.1)


def test_single_precision(recorded, x32):
    u, y, scale = (jnp.asarray(part, jnp.float32) for part in recorded)
    motion = windows(u, y, 20, scale)
    found = least_squares(oscillator, motion, estimate(oscillator, motion, jnp.asarray(TRUE + 0.3, jnp.float32)), 15)
    assert found.parameters.dtype == jnp.float32
    np.testing.assert_allclose(found.parameters, TRUE, atol=0.1)


def test_windows_cut_without_overlap_but_for_their_ends():
    motion = windows(np.arange(8.0)[:, None], np.arange(8.0)[:, None] * np.ones(2), 3, np.ones(2))
    np.testing.assert_array_equal(motion.u[..., 0].T, [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(motion.y[..., 1].T, [[0, 1, 2, 3], [3, 4, 5, 6]])


def test_gradients_flow_through_a_simulation(recorded):
    def last(parameters):
        return simulate(oscillator, parameters, jnp.array([[0.5, 0.0]]), jnp.ones((20, 1, 1)))[-1].sum()

    slope = jax.grad(last)(jnp.asarray(TRUE))
    for i, step in enumerate(1e-6 * np.eye(2)):
        np.testing.assert_allclose(slope[i], (last(TRUE + step) - last(TRUE - step)) / 2e-6, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"length": 0}, ValueError, "length is 0: a window of 9 rows has 1 to 8 steps"),
        ({"length": 9}, ValueError, "length is 9"),
        ({"length": 2.5}, TypeError, "length is 2.5"),
        ({"u": np.ones((8, 1))}, ValueError, r"u has shape \(8, 1\), y \(9, 2\)"),
        ({"y": np.ones(9)}, ValueError, r"y \(9,\)"),
        ({"scale": np.ones(3)}, ValueError, r"scale has shape \(3,\), needs \(2,\)"),
        ({"scale": np.array([1.0, 0.0])}, ValueError, r"scale is \[1\. 0\.\], must be positive"),
        ({"y": np.array([[0.0, 1], [np.nan, 1]] * 5)[:9]}, ValueError, r"y\[1, 0\] is nan"),
        ({"u": np.full((9, 1), np.inf)}, ValueError, r"u\[0, 0\] is inf"),
        ({"y": np.ones((9, 2), int)}, TypeError, "y is of int64, must be of floating-point numbers"),
    ],
)
def test_recordings_that_cannot_be_cut_are_refused(change, error, says):
    with pytest.raises(error, match=says):
        windows(**{"u": np.ones((9, 1)), "y": np.ones((9, 2)), "length": 4, "scale": np.ones(2)} | change)


def test_other_arguments_that_cannot_be_are_refused():
    motion = windows(np.ones((9, 1)), np.ones((9, 2)), 4, np.ones(2))
    first = estimate(oscillator, motion, jnp.asarray(TRUE))
    assert isinstance(first, Estimate)
    with pytest.raises(ValueError, match=r"parameters have shape \(\)"):
        estimate(oscillator, motion, 1.0)
    with pytest.raises(TypeError, match="parameters is of int64, must be of floating-point numbers"):
        estimate(oscillator, motion, np.array([0, 1]))
    with pytest.raises(ValueError, match=r"the guess has a cost of (nan|inf)"):
        estimate(oscillator, motion, jnp.full(2, 800.0))
    with pytest.raises(TypeError, match=r"make one with fphys\.identify\.estimate"):
        least_squares(oscillator, motion, TRUE)
    with pytest.raises(ValueError, match=r"estimate\.start has shape \(2, 2\), the windows need \(4, 2\)"):
        least_squares(oscillator, windows(np.ones((9, 1)), np.ones((9, 2)), 2, np.ones(2)), first)
    with pytest.raises(ValueError, match="iterations is -2"):
        least_squares(oscillator, motion, first, -2)
    with pytest.raises(TypeError, match="iterations is traced"):
        jax.jit(lambda n: least_squares(oscillator, motion, first, n))(2)
    few = windows(np.ones((2, 1)), np.ones((2, 2)), 1, np.ones(2))
    with pytest.raises(ValueError, match="4 measured values for 4 unknowns"):
        deviations(oscillator, few, estimate(oscillator, few, jnp.asarray(TRUE)))
