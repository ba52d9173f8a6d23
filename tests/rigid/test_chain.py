"""Places on links: the poses and velocities that kinematics and Jacobians have, from the bodies on the way alone."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.rigid.tree.chain import links, places

from .mechanisms import at_sites, case, put, random_inputs, to_state


@pytest.mark.parametrize("name", ["everything", "small", "franka", "hand"])
def test_places_are_where_kinematics_has_them(name: str):
    """Free, ball, slide and hinge joints, several on one body, off its origin; a mocap body and the world."""
    model, m = case(name)
    state = to_state(model, random_inputs(m, 3, seed=5))
    found = jax.jit(at_sites)(model, state)
    kin = fphys.kinematics(model, state)
    assert found.shape == (3, m.nsite, 19) and m.nsite
    assert np.allclose(found[..., :3], kin.site.pos, atol=1e-13)
    assert np.allclose(fphys.math.rotation(found[..., 3:7]), kin.site.mat, atol=1e-13)
    for i in range(m.nsite):
        moved = jnp.einsum("wij,wj->wi", fphys.jacobian(model, state, "site", i), state.qvel)
        assert np.allclose(found[:, i, 7:13], moved, atol=1e-12)


@pytest.mark.parametrize("name", ["everything", "small", "franka", "hand"])
def test_places_accelerate_as_mujocos(name: str):
    """Gravity included, for any accelerations of the dofs."""
    model, m = case(name)
    x = random_inputs(m, 3, seed=6)
    found = at_sites(model, to_state(model, x))
    d, felt = mujoco.MjData(m), np.zeros(6)
    for w in range(3):
        put(d, x, w)
        mujoco.mj_fwdPosition(m, d)
        mujoco.mj_fwdVelocity(m, d)
        d.qacc[:] = 0.7 * d.qvel
        mujoco.mj_rnePostConstraint(m, d)
        for i in range(m.nsite):
            mujoco.mj_objectAcceleration(m, d, mujoco.mjtObj.mjOBJ_SITE, i, felt, 0)
            np.testing.assert_allclose(found[w, i, 13:], np.roll(felt, 3), rtol=1e-10, atol=1e-10)


def test_eight_mechanisms_side_by_side_move_as_each_alone():
    """More places than a thread's stack has room for take the general code, one world at a time."""
    model, m = case("everything")
    rng = np.random.default_rng(8)
    state = to_state(model, random_inputs(m, 19, seed=7))
    state = state.replace(qpos=state.qpos.at[4, 3:7].set(0.0))  # no rotation, which counts as none

    def each(x: jax.Array) -> jax.Array:
        return x + jnp.asarray(rng.normal(size=(19, *x.shape[1:])))

    body, joint = model.body, model.joint
    model = model.replace(
        body=body.replace(pos=each(body.pos), quat=each(body.quat)),
        joint=joint.replace(pos=each(joint.pos), axis=each(joint.axis)),
        qpos0=each(model.qpos0),
    )
    sites, turn = model.structure.site.body.tolist(), fphys.math.quat_unit(model.site.quat)
    many = 1 + (1 << 20) // (13 * 8 * 8 * len(sites))
    found = places(model, state, sites, model.site.pos, turn)
    one = places(model, state, many * sites, jnp.tile(model.site.pos, (1, many, 1)), jnp.tile(turn, (1, many, 1)))
    for mine, general in zip(found[:4], one[:4], strict=True):
        assert mine.shape[:2] == (19, len(sites)) and np.isfinite(mine).all()
        general = np.asarray(general).reshape(19, many, len(sites), -1)
        np.testing.assert_allclose(general, np.repeat(mine[:, None], many, 1), rtol=1e-12, atol=1e-12)


def test_a_chain_has_the_bodies_on_the_way_and_no_others():
    model, _ = case("everything")
    names = model.names("body")
    chain = links(model.structure, (names.index("leg"), names.index("forearm"), 0))
    assert [names[b] if b >= 0 else "" for b in chain.body] == (
        ["torso", "shoulder", "forearm", "", "", "leg", "", "", ""]
    )
    assert chain.parent.tolist() == [-1, 0, 1, 2, 3, 0, 5, 4, -1]
    assert [model.names("joint")[j] if j >= 0 else "" for j in chain.joint] == (
        ["float", "socket", "bend", "reach", "twist", "hip", "", "", ""]
    )
