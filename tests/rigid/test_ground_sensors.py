"""Force and torque sensors on the ground, which several trees stand on, touch and hang from.

MuJoCo has each tree's wrench about that tree's centre of mass, and adds the torques up as they are. Here each is moved
to the site first. Of one tree MuJoCo's own reading is compared.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.rigid import sensor
from fphys.testing import check_grads

SCENE = """
<mujoco><option timestep="0.004" cone="elliptic" tolerance="0"/><worldbody>
  <site name="post" pos="0.3 -0.2 0.4" euler="10 20 30"/><geom type="plane" size="5 5 1" condim="6"/>
  <body pos="0 0 0.6"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03" mass="1"/>
    <body pos="0.3 0 0"><joint axis="1 1 0"/><geom size="0.05" mass="0.4"/></body></body>
  {others}
</worldbody><sensor><force site="post"/><torque site="post"/></sensor></mujoco>"""
OTHERS = """
  <body pos="1 1 0.5"><joint axis="1 0 0" stiffness="3"/><geom type="box" size="0.1 0.2 0.05" mass="2"/></body>
  <body pos="-1 0 0.095"><freejoint/><geom size="0.1" mass="0.5" condim="4"/></body>
  <body pos="-1 0.1 0.27"><freejoint/><geom type="box" size="0.1 0.1 0.1" mass="0.5"/></body>"""
"""A second arm, and a ball that carries a box."""


def on_the_ground(m: mujoco.MjModel, d: mujoco.MjData, site: int) -> np.ndarray:
    """What the ground exerts on all trees, force and torque about a site, in its frame."""
    force, torque = np.zeros(3), np.zeros(3)
    for root in np.flatnonzero(m.body_parentid[1:] == 0) + 1:
        wrench = d.cfrc_int[root]
        force += wrench[3:]
        torque += wrench[:3] + np.cross(d.subtree_com[root] - d.site_xpos[site], wrench[3:])
    turn = d.site_xmat[site].reshape(3, 3)
    return np.concatenate([force @ turn, torque @ turn])


@functools.cache
def states(others: str, count: int) -> tuple[Any, ...]:
    """The model; positions, velocities and wrenches at random; the ground's wrench, and MuJoCo's readings."""
    model = fphys.load(SCENE.format(others=others))
    m, rng = model.structure.source, np.random.default_rng(0)
    d, rows = mujoco.MjData(m), []
    for _ in range(count):
        mujoco.mj_resetData(m, d)
        mujoco.mj_integratePos(m, d.qpos, 0.05 * rng.standard_normal(m.nv), 1)
        d.qvel[:] = rng.standard_normal(m.nv)
        d.xfrc_applied[1:] = rng.standard_normal((m.nbody - 1, 6))
        mujoco.mj_forward(m, d)
        assert d.ncon == 0 or others
        rows.append((d.qpos, d.qvel, d.xfrc_applied, on_the_ground(m, d, 0), d.sensordata))
        rows[-1] = tuple(x.copy() for x in rows[-1])
    return model, *(np.array(x) for x in zip(*rows, strict=True))


def read(others: str, count: int) -> np.ndarray:
    model, qpos, qvel, wrench, *_ = states(others, count)
    state = fphys.init(model, count, qpos=qpos, qvel=qvel)
    return np.asarray(jax.jit(fphys.sensors)(model, state, wrench=jnp.asarray(wrench)))


def test_of_one_tree_mujocos_readings():
    *_, ground, theirs = states("", 20)
    np.testing.assert_allclose(ground, theirs, atol=1e-12)
    np.testing.assert_allclose(read("", 20), theirs, atol=1e-10)


def test_of_several_trees_their_wrenches_about_the_site(full: bool):
    """Arms that hang from the ground and a pile that lies on it."""
    count = 200 if full else 20
    *_, ground, theirs = states(OTHERS, count)
    np.testing.assert_allclose(read(OTHERS, count), ground, atol=1e-9)
    np.testing.assert_allclose(ground[:, :3], theirs[:, :3], atol=1e-10)
    assert np.abs(ground - theirs)[:, 3:].max() > 1, "MuJoCo adds torques about one point: its readings will do"


def test_gradients():
    """By states and wrenches, the arms' reactions and the contacts' forces among them."""
    model, *given, _, _ = states(OTHERS, 20)
    qpos, qvel, wrench = (jnp.asarray(x[:2]) for x in given)

    def torque(qpos: Any, qvel: Any, wrench: Any) -> Any:
        return fphys.sensors(model, fphys.init(model, 2).replace(qpos=qpos, qvel=qvel), wrench=wrench) / 100

    check_grads(jax.jit(torque), (qpos, qvel, wrench), tol=1e-6, directions=3, steps=(1e-4, 1e-5, 1e-6))


@pytest.mark.usefixtures("fresh_traces")
def test_torques_about_another_point_are_noticed(monkeypatch: pytest.MonkeyPatch):
    interaction = sensor._interaction

    def shifted(*args: Any) -> Any:
        force, torque = interaction(*args)
        return force, torque + 1e-6 * jnp.cross(force, jnp.ones_like(force))

    monkeypatch.setattr(sensor, "_interaction", shifted)
    with pytest.raises(AssertionError):
        test_of_several_trees_their_wrenches_about_the_site(False)
