"""A constraint row that is nearly massless, beside a joint with damping: fault 47.

A sphere turns about its own centre and is connected off that axis. Its invweight0 is zero, so MuJoCo gives the rows the
least R that there is, 1e-15. Their forces are about 1e15 and cancel to 1. MuJoCo adds them up before it solves with
damping, and the sum keeps no digits: ``mj_step`` disagrees with its own ``mj_forward`` by up to a percent. fphys starts
that solve from M a. The reference here is exact: MuJoCo's own matrices, solved in rational numbers.
"""

from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys

FORWARD, STEP = jax.jit(fphys.forward), jax.jit(fphys.step)
QPOS, QVEL = np.array([0.1, 0.2]), np.array([0.3, 0.5])


def hinges(offset: float, damping: float, jacobian: str) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(f"""
        <mujoco><option timestep="0.002" tolerance="0" iterations="100" jacobian="{jacobian}"/><worldbody>
          <body name="sphere" pos="0 0 1"><joint axis="0 1 0" damping="{damping}"/><geom size="0.1" mass="1"/></body>
          <body pos="1 0 1"><joint axis="0 1 0" damping="1"/><geom type="box" size="0.3 0.1 0.1" pos="0.2 0 0"/></body>
        </worldbody><equality><connect body1="sphere" anchor="{offset} 0 0"/></equality></mujoco>""")


def exact(m: Any, d: Any) -> np.ndarray:
    """qvel after a step of Euler's: (M + J^T D J) a = tau - b + J^T D a_ref, then (M + h B) a' = M a."""
    rows, n = range(d.nefc), range(m.nv)
    dense = np.zeros((m.nv, m.nv))
    mujoco.mj_fullM(m, d, dense)
    jacobian = np.zeros((d.nefc, m.nv))
    if mujoco.mj_isSparse(m):
        mujoco.mju_sparse2dense(jacobian, d.efc_J, d.efc_J_rownnz, d.efc_J_rowadr, d.efc_J_colind)
    else:
        jacobian[:] = d.efc_J[: d.nefc * m.nv].reshape(d.nefc, m.nv)
    M, J = ([[Fraction(x) for x in row] for row in matrix] for matrix in (dense, jacobian))
    vectors = (d.efc_D, d.efc_aref, d.qfrc_smooth, m.dof_damping)
    D, reference, smooth, damping = ([Fraction(x) for x in vector] for vector in vectors)
    H = [[M[i][j] + sum(D[r] * J[r][i] * J[r][j] for r in rows) for j in n] for i in n]
    a = solve(H, [smooth[i] + sum(D[r] * J[r][i] * reference[r] for r in rows) for i in n])
    h = Fraction(m.opt.timestep)
    damped = [[M[i][j] + (h * damping[i] if i == j else 0) for j in n] for i in n]
    after = solve(damped, [sum(M[i][j] * a[j] for j in n) for i in n])
    return np.array([float(Fraction(v) + h * x) for v, x in zip(d.qvel, after, strict=True)])


def solve(A: list[list[Fraction]], b: list[Fraction]) -> list[Fraction]:
    """Gauss's elimination, without rounding."""
    A = [[*row, right] for row, right in zip(A, b, strict=True)]
    for i in range(len(A)):
        A[i:] = sorted(A[i:], key=lambda row: -abs(row[i]))
        for k in range(len(A)):
            if k != i:
                A[k] = [x - A[k][i] / A[i][i] * y for x, y in zip(A[k], A[i], strict=True)]
    return [row[-1] / row[i] for i, row in enumerate(A)]


@pytest.mark.parametrize("jacobian", ["dense", "sparse"])
@pytest.mark.parametrize("damping", [0.0, 0.3])
@pytest.mark.parametrize("offset", [0.2, 0.01])
def test_the_step_is_exact(offset: float, damping: float, jacobian: str):
    m = hinges(offset, damping, jacobian)
    d = mujoco.MjData(m)
    d.qpos, d.qvel = QPOS, QVEL
    mujoco.mj_forward(m, d)
    np.testing.assert_allclose(d.efc_D, 1e15, err_msg="rows at the floor of R")
    expected, forward = exact(m, d), d.qacc.copy()
    model = fphys.load(m, dtype="float64")
    state = fphys.init(model, 1, qpos=QPOS, qvel=QVEL)
    qacc, _ = FORWARD(model, state)
    np.testing.assert_allclose(qacc[0], forward, rtol=1e-12, atol=1e-12)
    after = STEP(model, state)
    assert not after.status.any()
    np.testing.assert_allclose(after.qvel[0], expected, rtol=1e-13, atol=1e-14)
    mujoco.mj_step(m, d)
    assert np.abs(d.qvel - expected).max() > 1e-6, "MuJoCo's rounding has become smaller: compare with mj_step"


def test_in_float32_the_step_keeps_the_digits_of_its_type():
    m = hinges(0.2, 0.3, "dense")
    d = mujoco.MjData(m)
    d.qpos, d.qvel = QPOS, QVEL
    mujoco.mj_forward(m, d)
    model = fphys.load(m, dtype="float32")
    state = fphys.init(model, 1, qpos=jnp.asarray(QPOS, jnp.float32), qvel=jnp.asarray(QVEL, jnp.float32))
    np.testing.assert_allclose(STEP(model, state).qvel[0], exact(m, d), rtol=1e-5, atol=1e-6)
