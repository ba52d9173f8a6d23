"""Contact against MuJoCo C: the contact set, forces, accelerations and trajectories.

The bar is 1e-6; both solve the same strictly convex problem to rounding (tolerance 0), so 1e-9 is asserted.
"""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys

from .scenes import SCENE, VARIANTS, data, scene

FORWARD, STEP = jax.jit(fphys.forward), jax.jit(fphys.step)


@pytest.mark.parametrize("variant", VARIANTS)
def test_contacts_forces_and_accelerations(variant: str):
    s = scene(variant)
    source = s.model.structure.source
    qacc, info = FORWARD(s.model, s.state, s.ctrl)
    touched = 0
    for w in range(qacc.shape[0]):
        d = data(s, w)
        mujoco.mj_forward(source, d)
        found = np.asarray(info.contacts.pair[w]) >= 0
        assert found.sum() == d.ncon
        order = (
            np.lexsort(np.round(d.contact.pos, 9).T),
            np.lexsort(np.round(np.asarray(info.contacts.pos[w])[found], 9).T),
        )
        np.testing.assert_allclose(
            np.asarray(info.contacts.distance[w])[found][order[1]], d.contact.dist[order[0]], atol=1e-14
        )
        np.testing.assert_allclose(
            np.asarray(info.contacts.pos[w])[found][order[1]], d.contact.pos[order[0]], atol=1e-14
        )
        frames = np.asarray(info.contacts.frame[w])[found].reshape(-1, 9)
        np.testing.assert_allclose(frames[order[1]], d.contact.frame[order[0]], atol=1e-14)
        force = np.zeros((d.ncon, 6))
        for i in range(d.ncon):
            mujoco.mj_contactForce(source, d, i, force[i])
        scale = np.abs(force).max()
        np.testing.assert_allclose(np.asarray(info.force[w])[found][order[1]], force[order[0]], atol=1e-9 * scale)
        np.testing.assert_allclose(qacc[w], d.qacc, rtol=0, atol=1e-9 * np.abs(d.qacc).max())
        touched += int((force[:, 0] > 0).sum())
    assert touched > qacc.shape[0], "the scene must touch"
    assert (info.status == 0).all() and (info.residual < 1e-12).all() and (info.iterations > 0).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_trajectories(variant: str):
    """Free running over 100 steps, through making and breaking of contact, to 1e-6."""
    s = scene(variant)
    source = s.model.structure.source
    state, worst, changes = s.state, 0.0, 0
    ours = [data(s, w) for w in range(4)]
    for _ in range(100):
        state = STEP(s.model, state, s.ctrl)
        for w, d in enumerate(ours):
            before = d.ncon
            mujoco.mj_step(source, d)
            changes += d.ncon != before
            worst = max(worst, float(np.abs(d.qpos - state.qpos[w]).max()))
    assert changes > 0
    assert worst < 1e-6


def test_box_falls_and_settles():
    """A box dropped on the plane comes to rest flat within 1,000 steps and stays."""
    model = fphys.load(fphys.asset("ball"))
    state = fphys.init(model, 1)
    ctrls = jnp.zeros((1000, 1, 0), state.qpos.dtype)
    final = jax.tree.map(lambda leaf: leaf[-1], jax.jit(fphys.rollout)(model, state, ctrls))
    assert float(jnp.abs(final.qvel).max()) < 1e-3
    fphys.check(final)


BOX = """
<mujoco><worldbody><geom type="plane" size="5 5 1"/>
  <body pos="0 0 0.099"><freejoint/><geom type="box" size="0.1 0.1 0.1" mass="2"/></body></worldbody></mujoco>"""


@pytest.mark.parametrize("friction", [0.0, 1e-3, 0.3, 1.0])
def test_a_box_lies_still_in_float32(friction: float):
    """The solver knows rounding when it sees it; a pyramid without friction, infinitely stiff, stays solvable."""
    model = fphys.load(BOX, dtype="float32")
    state, ctrls = fphys.init(model, 1), jnp.zeros((300, 1, 0), jnp.float32)

    def height(scale: jax.Array) -> tuple[jax.Array, fphys.State]:
        states = fphys.rollout(model.replace({"geom.friction": scale * model.geom.friction}), state, ctrls)
        final = jax.tree.map(lambda leaf: leaf[-1], states)
        return final.qpos[0, 2], final

    (z, final), slope = jax.jit(jax.value_and_grad(height, has_aux=True))(jnp.float32(friction))
    fphys.check(final)
    assert z == pytest.approx(0.1, abs=2e-4) and float(jnp.abs(final.qvel).max()) < 1e-3
    assert jnp.isfinite(slope)


def test_too_many_contacts_are_dropped_in_order_and_reported():
    s = scene("euler")
    small = s.state.replace(max_contacts=2)
    info = FORWARD(s.model, small, s.ctrl)[1]
    full = FORWARD(s.model, s.state, s.ctrl)[1]
    crowded = np.asarray((full.contacts.pair >= 0).sum(1)) > 2
    assert crowded.any() and not crowded.all()
    assert ((np.asarray(info.status) & int(fphys.Status.CONTACT_OVERFLOW)) != 0).tolist() == crowded.tolist()
    np.testing.assert_array_equal(info.contacts.pair, full.contacts.pair[:, :2])
    with pytest.raises(fphys.errors.StateError, match="max_contacts"):
        fphys.check(STEP(s.model, small, s.ctrl))
    few = FORWARD(s.model, s.state.replace(max_constraints=5), s.ctrl)[1]
    assert (np.asarray(few.status) & int(fphys.Status.CONSTRAINT_OVERFLOW)).any()


def test_a_solver_that_stops_early_says_so():
    text = SCENE.format(**VARIANTS["euler"])
    text = text.replace('ls_iterations="200"', 'iterations="1" ls_iterations="1"')
    model = fphys.load(text)
    s = scene("euler")
    info = FORWARD(model, s.state, s.ctrl)[1]
    stopped = (np.asarray(info.status) & int(fphys.Status.UNCONVERGED)) != 0
    assert stopped.any()
    assert (np.asarray(info.residual)[stopped] > 0).all()


def test_a_given_contact_set_is_used():
    s = scene("euler")
    qacc, info = FORWARD(s.model, s.state, s.ctrl)
    again = FORWARD(s.model, s.state, s.ctrl, contacts=info.contacts)[0]
    np.testing.assert_array_equal(qacc, again)
    none = info.contacts._replace(pair=jnp.full_like(info.contacts.pair, -1))
    free = FORWARD(s.model, s.state, s.ctrl, contacts=none)[0]
    without = fphys.load(s.model.structure.source, disable=("contact",))
    expected = FORWARD(without, fphys.init(without, 8, s.state.qpos, s.state.qvel), s.ctrl)[0]
    np.testing.assert_allclose(free, expected, rtol=1e-12, atol=1e-12)


def test_float32_agrees():
    s = scene("euler")
    model = fphys.load(s.model.structure.source, dtype="float32")
    single = lambda x: jnp.asarray(np.asarray(x), jnp.float32)  # noqa: E731
    state = fphys.init(model, 8, single(s.state.qpos), single(s.state.qvel))
    ours = FORWARD(model, state, single(s.ctrl))[0]
    double = FORWARD(s.model, s.state, s.ctrl)[0]
    assert float(jnp.abs(jnp.asarray(ours, jnp.float64) - double).max() / jnp.abs(double).max()) < 1e-4
