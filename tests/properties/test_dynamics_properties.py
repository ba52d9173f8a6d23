"""Properties of the dynamics that hold for every state, searched by hypothesis."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import fphys

MODEL = fphys.load(fphys.asset("ant"), disable=("contact", "limit"))
WORLDS = 4
seeds = st.integers(0, 2**32 - 1)
scales = st.floats(0.01, 30.0)
few = settings(max_examples=15, deadline=None)


def random_state(seed: int, scale: float) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    s = MODEL.structure
    qpos = rng.normal(size=(WORLDS, s.nq))
    qpos[:, 3:7] /= np.linalg.norm(qpos[:, 3:7], axis=1, keepdims=True)
    state = fphys.init(MODEL, WORLDS, qpos=qpos, qvel=scale * rng.normal(size=(WORLDS, s.nv)))
    return state, jnp.asarray(rng.uniform(-1, 1, (WORLDS, s.nu))), jnp.asarray(rng.normal(size=(WORLDS, s.nv)))


@few
@given(seeds, scales)
def test_the_mass_matrix_is_symmetric_and_positive(seed: int, scale: float):
    state, _, _ = random_state(seed, scale)
    mass = np.asarray(jax.jit(fphys.mass_matrix)(MODEL, state))
    np.testing.assert_array_equal(mass, mass.swapaxes(1, 2))
    assert np.linalg.eigvalsh(mass).min() > 0


@few
@given(seeds, scales)
def test_inverse_dynamics_undo_forward_dynamics(seed: int, scale: float):
    state, _, force = random_state(seed, scale)
    qacc = jax.jit(lambda s, f: fphys.forward(MODEL, s, force=f)[0])(state, force)
    back = jax.jit(lambda s, a: fphys.inverse(MODEL, s, a))(state, qacc)
    size = float(jnp.abs(fphys.bias(MODEL, state)).max()) + 1
    np.testing.assert_allclose(back, force, atol=1e-12 * size)


@few
@given(seeds, scales)
def test_kinetic_energy_is_the_mass_matrixs(seed: int, scale: float):
    state, _, _ = random_state(seed, scale)
    mass = fphys.mass_matrix(MODEL, state)
    expected = 0.5 * jnp.einsum("wi,wij,wj->w", state.qvel, mass, state.qvel)
    np.testing.assert_allclose(fphys.energy(MODEL, state)[1], expected, rtol=1e-12)


@few
@given(seeds, scales)
def test_worlds_do_not_know_of_each_other(seed: int, scale: float):
    state, ctrl, _ = random_state(seed, scale)
    step = jax.jit(fphys.step)
    flip = lambda tree: jax.tree.map(lambda x: x[::-1], tree)  # noqa: E731
    straight, turned = step(MODEL, state, ctrl), step(MODEL, flip(state), ctrl[::-1])
    jax.tree.map(np.testing.assert_array_equal, straight, flip(turned))


@few
@given(seeds, st.floats(-10, 10), st.floats(-10, 10), st.floats(-3.1, 3.1))
def test_moving_and_turning_the_world_changes_nothing(seed: int, x: float, y: float, angle: float):
    """Without gravity across, a mechanism that floats accelerates alike wherever it is and however it is turned."""
    state, ctrl, _ = random_state(seed, 1.0)
    turn = jnp.asarray([np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)])
    rotated = lambda v: fphys.math.rotate(jnp.broadcast_to(turn, (WORLDS, 4)), v)  # noqa: E731
    qpos = state.qpos.at[:, :3].set(rotated(state.qpos[:, :3]) + jnp.asarray([x, y, 0.0])[None])
    quat = fphys.math.quat_mul(jnp.broadcast_to(turn, (WORLDS, 4)), state.qpos[:, 3:7])
    qvel = state.qvel.at[:, :3].set(rotated(state.qvel[:, :3]))
    moved = state.replace(qpos=qpos.at[:, 3:7].set(quat), qvel=qvel)
    forward = jax.jit(lambda s, u: fphys.forward(MODEL, s, u)[0])
    here, there = forward(state, ctrl), forward(moved, ctrl)
    size = float(jnp.abs(here).max())
    np.testing.assert_allclose(there[:, 3:], here[:, 3:], atol=1e-10 * size)
    np.testing.assert_allclose(there[:, :3], rotated(here[:, :3]), atol=1e-10 * size)
