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


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("name", KERNELS)
def test_gradients_where_singular_values_meet(name: str, gap: float):
    """Away from the bounds of the clamp, at 1 it is the identity and at 1.4 it holds."""
    for centre in (1.0, 1.4):
        check_grads(operation(name), (matrices(gap, centre),), tol=1e-7, directions=6, steps=(1e-4, 1e-5, 1e-6))


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
