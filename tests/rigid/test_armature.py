"""Armature of tendons: a mass that hangs from one, a swing that keeps its energy, MuJoCo's own entries."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.rigid import dynamics
from fphys.testing import check_grads

LIFT = """
<mujoco><option gravity="0 0 -10"/><worldbody><body><joint name="lift" type="slide" axis="0 0 1"/>
  <geom size="0.1" mass="2"/></body></worldbody>
  <tendon><fixed armature="0.5"><joint joint="lift" coef="3"/></fixed></tendon></mujoco>"""
SWING = """
<mujoco><option timestep="0.0005" integrator="RK4"/><worldbody><site name="post" pos="0.1 0.2 0.9"/>
  <body pos="0 0 0.5"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/>
    <body pos="0.3 0 0"><joint type="ball"/><geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/>
      <site name="end" pos="0.2 0 0.03"/></body></body>
  {more}
</worldbody><tendon><spatial armature="0.7"><site site="{first}"/><site site="end"/></spatial></tendon></mujoco>"""
FREE = '<body pos="1 0 1"><freejoint/><geom size="0.1"/><site name="away" pos="0.05 0 0.03"/></body>'


def moving(text: str, worlds: int = 3) -> tuple[fphys.Model, fphys.State]:
    model, rng = fphys.load(text, disable=("contact",)), np.random.default_rng(0)
    m = model.structure.source
    qpos = np.tile(m.qpos0, (worlds, 1))
    for row in qpos:
        mujoco.mj_integratePos(m, row, 0.3 * rng.standard_normal(m.nv), 1.0)
    return model, fphys.init(model, worlds, qpos=qpos, qvel=rng.standard_normal((worlds, m.nv)))


def test_a_mass_on_a_tendon_is_as_much_heavier():
    """A coefficient c and an armature m add c^2 m to the mass, and nothing to the weight."""
    model, state = moving(LIFT, 1)
    np.testing.assert_allclose(jax.jit(fphys.forward)(model, state, None)[0], [[-10 * 2 / (2 + 9 * 0.5)]], rtol=1e-12)
    slope = jax.grad(lambda x: fphys.forward(model.replace({"tendon.armature": x}), state, None)[0].sum())
    np.testing.assert_allclose(jax.jit(slope)(model.tendon.armature), [[10 * 2 * 9 / 6.5**2]], rtol=1e-12)


def test_a_swing_keeps_its_energy():
    """The bias J^T m J' v does no work beyond what the kinetic energy l'^2 m / 2 takes."""
    model, state = moving(SWING.format(more="", first="post"))
    before = sum(fphys.energy(model, state))
    ctrls = jnp.zeros((1000, len(state.qpos), 0))
    final = jax.tree.map(lambda x: x[-1], jax.jit(fphys.rollout)(model, state, ctrls))
    np.testing.assert_allclose(sum(fphys.energy(model, final)), before, rtol=1e-8)
    assert np.abs(final.qpos - state.qpos).max() > 0.5


@pytest.mark.parametrize(("more", "first"), [("", "post"), (FREE, "away")])
def test_equals_mujocos(more: str, first: str):
    """Also between two trees, where MuJoCo's mass matrix has no entry for the coupling."""
    model, state = moving(SWING.format(more=more, first=first))
    m = model.structure.source
    asked = jax.jit(lambda s: (fphys.forward(model, s, None)[0], fphys.bias(model, s), fphys.mass_matrix(model, s)))
    found, after = asked(state), jax.jit(fphys.step)(model, state, jnp.zeros((3, 0)))
    inverse = jax.jit(fphys.inverse)(model, state, found[0])
    for w in range(3):
        d, mass = fphys.to_mujoco(model, state, w)[1], np.zeros((m.nv, m.nv))
        mujoco.mj_fullM(m, d, mass)
        for ours, theirs in zip(found, (d.qacc, d.qfrc_bias, mass), strict=True):
            np.testing.assert_allclose(ours[w], theirs, rtol=0, atol=1e-12 * np.abs(theirs).max())
        np.testing.assert_allclose(inverse[w], 0, atol=1e-12 * np.abs(d.qfrc_bias).max())
        mujoco.mj_step(m, d)
        np.testing.assert_allclose(after.qvel[w], d.qvel, rtol=0, atol=1e-12 * np.abs(d.qvel).max())


def check_gradient() -> None:
    """By state, armature, sites and lengths."""
    model, state = moving(SWING.format(more=FREE, first="away"), 1)
    leaves = {"tendon.armature": model.tendon.armature, "site.pos": model.site.pos, "body.pos": model.body.pos}

    def qacc(leaves: dict[str, jax.Array], qpos: jax.Array, qvel: jax.Array) -> jax.Array:
        moved = model.replace(leaves, derived="frozen")
        return fphys.forward(moved, state.replace(qpos=qpos, qvel=qvel), None)[0]

    check_grads(qacc, (leaves, state.qpos, state.qvel), tol=1e-6)


def test_gradient():
    check_gradient()


@pytest.mark.usefixtures("fresh_traces")
def test_a_gradient_without_the_drift_is_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dynamics, "drifts", lambda *_: None)
    dynamics._ops.cache_clear()  # an operation plans its launches once
    try:
        with pytest.raises(AssertionError):
            check_gradient()
    finally:
        dynamics._ops.cache_clear()
