"""What ``mjData`` holds after ``mj_step``: against MuJoCo; its gradients; and worlds that are held."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.rigid import last
from fphys.rigid.step import solved_step
from fphys.testing import check_grads

LEG = """
<mujoco><option timestep="0.005" integrator="{integrator}" tolerance="0" iterations="100" ls_tolerance="1e-12"/>
  <worldbody><geom type="plane" size="5 5 1"/>
    <body pos="0 0 0.3"><freejoint/><geom size="0.1 0.08 0.06" type="ellipsoid" contype="0" conaffinity="0" mass="2"/>
      <body pos="0.1 0 -0.05" euler="10 20 30"><joint name="hip" axis="0 1 0" damping="0.5" actuatorfrcrange="-2 2"/>
        <geom type="capsule" fromto="0 0 0 0.05 0 -0.2" size="0.03" mass="0.5"/>
        <body pos="0.05 0 -0.2"><joint name="knee" axis="0 1 0" range="-30 30" limited="true" damping="0.2"/>
          <geom size="0.04" mass="0.3"/></body></body></body>
    <body pos="1 0 0.099"><freejoint/><geom size="0.1" mass="1"/></body></worldbody>
  <tendon><fixed name="both"><joint joint="hip" coef="1"/><joint joint="knee" coef="-2"/></fixed></tendon>
  <actuator><motor joint="hip" gear="3"/><motor joint="knee" gear="2"/></actuator></mujoco>"""
NAMES = ("xipos", "cinert", "cvel", "qfrc_actuator", "qfrc_constraint", "cfrc_ext", "ten_length", "ten_velocity")


@functools.cache
def leg(integrator: str) -> tuple[mujoco.MjModel, fphys.Model]:
    m = mujoco.MjModel.from_xml_string(LEG.format(integrator=integrator))
    return m, fphys.load(m)


def readings(model: fphys.Model, found: last.LastSolve, ctrl: Any) -> dict[str, Any]:
    drives, bodies = last.drives(model, found, ctrl), last.tree_inertias(model, found)
    return {
        "xipos": last.inertial_positions(model, found),
        "cinert": bodies.cinert,
        "cvel": bodies.cvel,
        "qfrc_constraint": last.constraint_generalized(model, found, ctrl),
        "cfrc_ext": last.contact_wrenches(model, found, ctrl),
        **drives._asdict(),
    }


@functools.cache
def recorded(integrator: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """States, controls, and MuJoCo's readings after a step from each, along its own motion."""
    m, _ = leg(integrator)
    d, rng, rows = mujoco.MjData(m), np.random.default_rng(0), []
    for i in range(200):
        d.ctrl[:] = rng.uniform(-1.5, 1.5, 2)
        before = d.qpos.copy(), d.qvel.copy(), d.ctrl.copy()
        mujoco.mj_step(m, d)
        mujoco.mj_rnePostConstraint(m, d)
        if i % 10 == 9:
            rows.append((*before, {name: getattr(d, name).copy() for name in NAMES}))
    return jax.tree.map(lambda *x: np.stack(x), *rows)


@pytest.mark.parametrize("integrator", ["Euler", "RK4", "implicitfast"])
def test_readings_are_those_of_mjdata(integrator: str):
    _, model = leg(integrator)
    qpos, qvel, ctrl, wanted = recorded(integrator)
    state = fphys.init(model, len(qpos), qpos=qpos, qvel=qvel)

    @jax.jit
    def ours(state: fphys.State, ctrl: jax.Array) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        after, found = solved_step(model, state, ctrl)
        stale = last.unsolved(after)  # the new state's: another one
        return readings(model, found, ctrl), readings(model, stale, ctrl)

    found, stale = ours(state, jnp.asarray(ctrl))
    touching = np.abs(wanted["cfrc_ext"]).max((1, 2)) > 1
    assert touching.any() and np.abs(wanted["qfrc_actuator"]).max() > 2 - 1e-9  # contacts, and a motor at its limit
    for name, value in wanted.items():
        size = max(1.0, np.abs(value).max())
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-9 * size, err_msg=name)
        if name not in ("qfrc_actuator", "cinert", "ten_length"):
            assert np.abs(stale[name] - value).max() > 1e-6 * size, f"{name} does not tell the states apart"


@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
def test_gradients_of_forces(integrator: str):
    """Of contact wrenches and constraint forces, also after a damped step, at a frozen contact set."""
    _, model = leg(integrator)
    qpos, qvel, ctrl, wanted = recorded(integrator)
    touching = np.flatnonzero(np.abs(wanted["cfrc_ext"]).max((1, 2)) > 1)[:2]
    state = fphys.init(model, 2, qpos=qpos[touching], qvel=qvel[touching])

    def forces(qvel: jax.Array, ctrl: jax.Array, mass: jax.Array) -> tuple[jax.Array, jax.Array]:
        heavier = model.replace({"body.mass": mass})
        _, found = solved_step(heavier, state.replace(qvel=qvel), ctrl)
        wrench = last.contact_wrenches(heavier, found, ctrl)
        return 1e-2 * wrench, 1e-2 * last.constraint_generalized(heavier, found, ctrl)

    check_grads(forces, (state.qvel, jnp.asarray(ctrl[touching]), model.body.mass), tol=1e-5, directions=2)


def test_a_held_world_reads_as_at_rest_and_passes_no_gradient():
    _, model = leg("RK4")
    qpos, qvel, ctrl, _ = recorded("RK4")
    state = fphys.init(model, 3, qpos=qpos[:3], qvel=qvel[:3])

    def total(qvel: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        _, found = solved_step(model, state.replace(qvel=qvel), jnp.asarray(ctrl[:3]))
        read = readings(model, found, jnp.asarray(ctrl[:3]))
        return sum(x.sum() for x in read.values()), read

    slope = jax.jit(jax.grad(total, has_aux=True))
    fine, well = slope(state.qvel)
    for bad in (jnp.nan, 1e9):  # from the start, and by an overflow in the step
        gradient, read = slope(state.qvel.at[1, 7].set(bad))
        assert (gradient[1] == 0).all() and not read["cvel"][1].any()
        assert all(jnp.isfinite(x).all() for x in read.values())
        for world in (0, 2):
            np.testing.assert_array_equal(gradient[world], fine[world])
            np.testing.assert_array_equal(read["cfrc_ext"][world], well["cfrc_ext"][world])
