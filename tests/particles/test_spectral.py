"""Rotation, logarithm, exponential and clamping of matrices, with their gradients where singular values meet."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warp as wp

from fphys.bridge import kernels, warp_op
from fphys.testing import check_grads

from ..rigid.quick import quick_compilation

__all__ = ["quick_compilation"]

GAPS = [0.0, 1e-8, 1e-4, 0.33]
k = kernels(np.float64, "spectral")
mat33, real = k.mat33, k.real
single = kernels(np.float32, "spectral")


@wp.kernel
def polar(f: wp.array2d(dtype=mat33), y_out: wp.array2d(dtype=mat33)):
    world, i = wp.tid()
    y_out[world, i] = k.polar(f[world, i])


@wp.kernel
def half_log(f: wp.array2d(dtype=mat33), y_out: wp.array2d(dtype=mat33)):
    world, i = wp.tid()
    y_out[world, i] = k.half_log(f[world, i] * wp.transpose(f[world, i]))


@wp.kernel
def exponential(f: wp.array2d(dtype=mat33), y_out: wp.array2d(dtype=mat33)):
    world, i = wp.tid()
    y_out[world, i] = k.exponential(f[world, i] + wp.transpose(f[world, i]))


@wp.kernel
def clamping(f: wp.array2d(dtype=mat33), y_out: wp.array2d(dtype=mat33)):
    world, i = wp.tid()
    y_out[world, i] = k.clamping(f[world, i] * wp.transpose(f[world, i]), real(0.9), real(1.1)) * f[world, i]


@wp.kernel
def in_float32(f: wp.array2d(dtype=single.mat33), y_out: wp.array2d(dtype=single.mat33)):
    world, i = wp.tid()
    if world == 0:
        y_out[world, i] = single.half_log(f[world, i])
    else:
        y_out[world, i] = single.exponential(f[world, i])


KERNELS = {"polar": polar, "half_log": half_log, "exponential": exponential, "clamping": clamping}


@functools.cache
def operation(name: str) -> Any:
    def launches(launch: Any, f: Any, out: Any) -> None:
        launch(KERNELS[name], dim=f.shape[:2], inputs=[f], outputs=[out])

    return warp_op(launches, outputs=lambda f: f, name=name)


def plain(name: str, f: np.ndarray) -> np.ndarray:
    u, s, vt = np.linalg.svd(f)
    if name == "polar":
        flip = np.diag([1.0, 1.0, np.sign(np.linalg.det(f))])
        return u @ flip @ vt
    if name == "half_log":
        return u @ np.diag(np.log(s)) @ u.T
    if name == "clamping":
        return u @ np.diag(np.clip(s, 0.9, 1.1)) @ vt
    d, q = np.linalg.eigh(f + f.T)
    return q @ np.diag(np.exp(d)) @ q.T


def matrices(gap: float, centre: float = 1.0) -> np.ndarray:
    """Random rotations times two singular values that are ``gap`` apart, and a third; all three; diagonal ones."""
    rng = np.random.default_rng(0)
    q = [np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(6)]
    q = [m * np.sign(np.linalg.det(m)) for m in q]
    s = [(centre, centre + gap, 1.6), (centre, centre + gap, centre + 2 * gap), (centre, centre - gap, 0.6)]
    found = [q[2 * i] @ np.diag(s[i]) @ q[2 * i + 1] for i in range(3)]
    return np.stack([*found, np.diag(s[0]), np.diag(s[1])])[None]


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("name", KERNELS)
def test_values(name: str, gap: float):
    for centre in (1.0, 1.4):
        f = matrices(gap, centre)
        wanted = np.stack([plain(name, m) for m in f[0]])
        np.testing.assert_allclose(operation(name)(f)[0], wanted, rtol=0, atol=2e-14 * np.abs(wanted).max())


@pytest.mark.parametrize("size", [1e-12, 1e-6, 1e-3, 0.03, 0.049, 0.0499, 0.0501, 0.06, 0.1])
@pytest.mark.parametrize("name", ["half_log", "exponential"])
def test_small_strains(name: str, size: float):
    """Series up to a size of 0.1 of F F^T - 1 and of F + F^T, eigenvalues beyond: the same digits on both sides.

    The logarithm loses no digit of the strain but those that F F^T has lost by being near 1.
    """
    rng = np.random.default_rng(1)
    e = rng.normal(size=(40, 3, 3))
    e = (e + e.transpose(0, 2, 1)) / 2
    e *= size / np.linalg.norm(e, axis=(1, 2), keepdims=True)
    f = np.eye(3) + e if name == "half_log" else e
    d, q = np.linalg.eigh(f - np.eye(3) if name == "half_log" else f)
    y = np.log1p(d) if name == "half_log" else np.exp(2 * d)
    wanted = (q * y[:, None]) @ q.transpose(0, 2, 1)
    np.testing.assert_allclose(operation(name)(f[None])[0], wanted, rtol=0, atol=2e-15)


@pytest.mark.parametrize("size", [1e-6, 1e-3, 0.03, 0.099, 0.1001, 0.2])
def test_small_strains_in_float32(size: float):
    """The series err by one rounding, of the strain itself; beyond them Jacobi's rotations by six."""
    error = 3e-7 if size < 0.1 else 1.5e-6
    rng = np.random.default_rng(2)
    e = rng.normal(size=(40, 3, 3))
    e = (e + e.transpose(0, 2, 1)) / 2
    e *= size / np.linalg.norm(e, axis=(1, 2), keepdims=True)
    b, h = (np.eye(3) + e).astype(np.float32), e.astype(np.float32)

    def launches(launch: Any, f: Any, out: Any) -> None:
        launch(in_float32, dim=f.shape[:2], inputs=[f], outputs=[out])

    log, exp = warp_op(launches, outputs=lambda f: f, name="in_float32")(np.stack([b, h]))
    values, vectors = np.linalg.eigh(b.astype(np.float64))
    wanted = (vectors * np.log(values)[:, None]) @ vectors.transpose(0, 2, 1) / 2
    np.testing.assert_allclose(log, wanted, rtol=0, atol=error * size)
    values, vectors = np.linalg.eigh(h.astype(np.float64))
    wanted = (vectors * np.exp(values)[:, None]) @ vectors.transpose(0, 2, 1)
    np.testing.assert_allclose(exp, wanted, rtol=0, atol=error)


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("name", KERNELS)
def test_gradients_where_singular_values_meet(name: str, gap: float):
    """Away from the bounds of the clamp, at 1 it is the identity and at 1.4 it holds."""
    for centre in (1.0, 1.4):
        check_grads(operation(name), (matrices(gap, centre),), tol=1e-7, directions=6, steps=(1e-4, 1e-5, 1e-6))


@pytest.mark.parametrize("size", [0.0, 1e-6, 0.03, 0.049, 0.06])
@pytest.mark.parametrize("name", ["half_log", "exponential"])
def test_gradients_of_small_strains(name: str, size: float):
    """Of the series up to 0.05, of the eigenvalues beyond."""
    e = np.random.default_rng(3).normal(size=(6, 3, 3))
    e = (e + e.transpose(0, 2, 1)) / 2
    e *= size / np.linalg.norm(e, axis=(1, 2), keepdims=True)
    f = e + np.eye(3) if name == "half_log" else e
    check_grads(operation(name), (f[None],), tol=1e-7, directions=6, steps=(1e-4, 1e-5, 1e-6))


def test_the_rotation_of_an_inverted_matrix():
    f = np.stack([m @ np.diag([1.0, 1.2, -0.7]) for m in matrices(0.3)[0]])[None]
    r = np.asarray(operation("polar")(f)[0])
    np.testing.assert_allclose(np.linalg.det(r), 1.0, atol=1e-12)
    np.testing.assert_allclose(r, np.stack([plain("polar", m) for m in f[0]]), atol=1e-12)
    check_grads(operation("polar"), (f,), tol=1e-7, directions=4)


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_are_finite_where_they_are_singular(name: str):
    f = np.stack([np.zeros((3, 3)), np.diag([1.0, 0.0, 0.0]), np.diag([1.0, 1.0, -1.0]), -np.eye(3)])[None]
    grad = jax.grad(lambda f: jnp.sum(operation(name)(f)))(f)
    if name in ("polar", "exponential"):
        assert np.isfinite(grad).all()
    assert np.isfinite(grad[0, 2:]).all()
