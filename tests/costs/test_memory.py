"""Memory of a backward pass, in bytes that XLA plans for: what is stored is the state, and the factor of M."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import fphys

WORLDS = 16


@functools.cache
def ant() -> tuple[Any, Any]:
    model = fphys.load(fphys.asset("ant"), disable=("contact", "limit"), dtype="float32")
    return model, fphys.init(model, WORLDS)


@functools.cache
def bytes_of_backward(steps: int, adjoint: Any, case: Any = ant) -> float:
    """Temporary bytes per world of the gradient of a rollout by its controls."""
    model, state = case()

    def loss(ctrls: Any) -> Any:
        final, _ = fphys.scan(lambda s, u: (fphys.step(model, s, u), None), state, ctrls, adjoint)
        return final.qpos.sum()

    ctrls = jnp.zeros((steps, WORLDS, model.structure.nu), jnp.float32)
    return jax.jit(jax.grad(loss)).lower(ctrls).compile().memory_analysis().temp_size_in_bytes / WORLDS


@pytest.mark.parametrize("name", ["ant", "humanoid"])
def test_contact_saves_ids_and_one_factor(name: str):
    """Position, velocity, control, activation and acceleration; two ids for each contact and one triangle; a word
    of a world's fault flags."""
    model = fphys.load(fphys.asset(name), dtype="float32")
    s, state = model.structure, fphys.init(model, WORLDS)
    assert state.max_contacts > 0
    short, long = (bytes_of_backward(steps, fphys.Full(), lambda: (model, state)) for steps in (64, 128))
    ids = 2 * state.max_contacts
    assert (long - short) / 64 <= 4 * (s.nq + 2 * s.nv + s.nu + s.na + ids + s.nv * (s.nv + 1) // 2 + 1)


def sizes() -> tuple[float, float]:
    model, state = ant()
    factor = 4 * model.structure.nv * (model.structure.nv + 1) // 2
    return sum(leaf.nbytes for leaf in jax.tree.leaves(state)) / WORLDS, factor


def test_full_is_linear_in_the_states_bytes():
    state, factor = sizes()
    short, middle, long = (bytes_of_backward(steps, fphys.Full()) for steps in (256, 512, 1024))
    per_step = (long - middle) / 512
    assert (middle - short) / 256 == pytest.approx(per_step, rel=0.01)
    assert per_step <= 2 * state + factor  # the state, the factor, the control and the acceleration


def test_checkpoints_cost_a_state_each_and_one_block():
    state, factor = sizes()
    fixed = bytes_of_backward(16, fphys.Full())
    short, long = (bytes_of_backward(steps, fphys.Checkpoint(16)) for steps in (512, 1024))
    assert (long - short) / 512 <= state / 16
    assert long <= fixed + 1024 / 16 * state + 16 * (2 * state + factor)
    assert long < bytes_of_backward(1024, fphys.Full()) / 10  # compiled above
