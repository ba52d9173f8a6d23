"""Trajectories against MuJoCo's: teacher-forced one step at a time, and free-running."""

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys

from ..rigid.mechanisms import INTEGRATORS, TWINS, Inputs, case, corpus, errors, put, random_inputs, relative, to_state

LONG = {"double-pendulum", "cartpole", "franka", "arm-urdf"}
"""Pendula and arms run ten times as long."""

CASES = [
    pytest.param(
        name, integrator, marks=[] if name == "everything" or (own and name not in TWINS) else pytest.mark.slow
    )
    for name in sorted(corpus())
    for integrator, number in INTEGRATORS.items()
    for own in [case(name).source.opt.integrator == number]
]


def trajectories(m: mujoco.MjModel, x: Inputs, ctrls: np.ndarray) -> np.ndarray:
    """MuJoCo's qpos, qvel and act before the first and after every step, shape (T + 1, world, nq + nv + na)."""
    d, rows = mujoco.MjData(m), []
    for world in range(len(x.qpos)):
        mujoco.mj_resetData(m, d)
        put(d, x, world)
        row = [np.concatenate([d.qpos, d.qvel, d.act])]
        for ctrl in ctrls[:, world]:
            d.ctrl[:] = ctrl
            mujoco.mj_step(m, d)
            row.append(np.concatenate([d.qpos, d.qvel, d.act]))
        rows.append(row)
    return np.moveaxis(np.array(rows), 0, 1)


def moved(m: mujoco.MjModel, x: Inputs, size: float, seed: int) -> Inputs:
    """The states after a small random displacement in position and velocity."""
    rng = np.random.default_rng(seed)
    qpos = x.qpos.copy()
    for row in qpos:
        mujoco.mj_integratePos(m, row, size * rng.standard_normal(m.nv), 1.0)
    return x._replace(qpos=qpos, qvel=x.qvel + size * rng.standard_normal(x.qvel.shape))


def flat(states: fphys.State) -> Any:
    return jnp.concatenate([states.qpos, states.qvel, states.act], -1)


@pytest.mark.parametrize(("name", "integrator"), CASES)
def test_trajectories_follow_mujocos(name: str, integrator: str, full: bool):
    model, m = case(name, integrator)
    worlds, steps = (8 if full else 3), (1000 if name in LONG or "pendulum" in name else 100)
    x = random_inputs(m, worlds, seed=1, size=0.3)
    x = x._replace(wrench=np.zeros_like(x.wrench), force=np.zeros_like(x.force))
    low, high = x.ctrl.min(0), x.ctrl.max(0)
    ctrls = np.random.default_rng(2).uniform(low, high, (steps, worlds, m.nu)) * (1.0 if steps == 100 else 0.1)
    expected = trajectories(m, x, ctrls)

    before = expected[:-1].reshape(steps * worlds, -1)
    parts = np.split(before, [m.nq, m.nq + m.nv], axis=1)
    forced = to_state(model, Inputs(*(np.tile(v, (steps, *[1] * (v.ndim - 1))) for v in x)))
    forced = forced.replace(qpos=parts[0], qvel=parts[1], act=parts[2])
    each = flat(jax.jit(fphys.step)(model, forced, ctrls.reshape(steps * worlds, -1)))
    assert relative(each, expected[1:].reshape(steps * worlds, -1)) <= 1e-9

    free = np.asarray(flat(jax.jit(fphys.rollout)(model, to_state(model, x), ctrls)))
    neighbours = [trajectories(m, moved(m, x, 1e-12, seed), ctrls) for seed in range(3)]
    for world in range(worlds):
        error = errors(free[:, world], expected[1:, world])
        own = np.max([errors(n[1:, world], expected[1:, world]) for n in neighbours], axis=0)
        allowed = np.maximum(1e-6, 10 * np.maximum.accumulate(own))
        late = np.flatnonzero(~(error <= allowed))
        assert not late.size, f"world {world}, step {late[0] + 1}: {error[late[0]]:.1e}, allowed {allowed[late[0]]:.1e}"


@pytest.mark.parametrize("integrator", INTEGRATORS)
@pytest.mark.parametrize(
    "name",
    [
        "everything",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("small", "franka", "ant", "gymnasium-humanoid")),
    ],
)
def test_a_step_with_wrenches_and_forces_equals_mujocos(name: str, integrator: str):
    model, m = case(name, integrator)
    x = random_inputs(m, 20, seed=3)
    d, after = mujoco.MjData(m), []
    for world in range(20):
        put(d, x, world)
        mujoco.mj_step(m, d)
        after.append(np.concatenate([d.qpos, d.qvel, d.act]))
    states = jax.jit(fphys.step)(model, to_state(model, x), x.ctrl, x.wrench, x.force)
    assert relative(flat(states), np.array(after)) <= 1e-9
    assert np.allclose(states.time, m.opt.timestep, rtol=1e-15)
