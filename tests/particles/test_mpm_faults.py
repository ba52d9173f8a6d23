"""Faults 7 to 9: a particle that leaves, flies or is not a number touches nothing, and is reported."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.errors import StateError
from fphys.particles import mpm

from .mpm_scenes import scene

WORLD, WHO = 1, 7


def after(params: mpm.Params, state: mpm.State, steps: int = 3, **given: Any) -> mpm.State:
    for _ in range(steps):
        state = mpm.step(params, state, **given)
    return state


def without(state: mpm.State) -> mpm.State:
    """The same without the particle, by giving it no mass in any world."""
    return state.replace(volume=state.volume.at[WORLD, WHO].set(0.0))


def check_alone(ours: mpm.State, other: mpm.State, bit: mpm.Status) -> None:
    """All other particles and worlds, bit for bit."""
    assert ours.status.tolist() == [0, int(bit), 0]
    for name in ("x", "v", "C", "F", "history"):
        a, b = np.array(getattr(ours, name)), np.array(getattr(other, name))
        a[WORLD, WHO] = b[WORLD, WHO] = 0.0
        np.testing.assert_array_equal(a, b, err_msg=name)


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize(
    ("cells", "bit"),
    [
        (8.6, mpm.Status.OOB),
        (9.02, mpm.Status.OOB),
        (-0.52, mpm.Status.OOB),
        (-1.05, mpm.Status.OOB),
        (1e2, mpm.Status.OOB),
        (5e6, mpm.Status.OOB),
        (-5e6, mpm.Status.OOB),
        (1e30, mpm.Status.NONFINITE),
        (np.inf, mpm.Status.NONFINITE),
        (-np.inf, mpm.Status.NONFINITE),
        (np.nan, mpm.Status.NONFINITE),
    ],
)
def test_a_particle_outside_touches_no_cell(cells: float, bit: mpm.Status, axis: int, dim: int):
    params, state = scene("all", dim, worlds=3)
    bad = state.replace(x=state.x.at[WORLD, WHO, axis].set(cells * params.cell))
    ours = after(params, bad)
    check_alone(ours, after(params, without(state)), bit)
    np.testing.assert_array_equal(ours.x[WORLD, WHO], bad.x[WORLD, WHO])
    with pytest.raises(StateError, match=rf"world {WORLD}: {bit.name}.*the first is {WHO}|{bit.name}"):
        mpm.check(params, ours)


@pytest.mark.parametrize("field", ["v", "C", "F", "history"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1e30])
def test_a_particle_that_is_not_finite_touches_no_cell(field: str, value: float):
    params, state = scene("all", 3, worlds=3)
    array = getattr(state, field)
    bad = state.replace(**{field: array.at[(WORLD, WHO, *[0] * (array.ndim - 2))].set(value)})
    check_alone(after(params, bad), after(params, without(state)), mpm.Status.NONFINITE)


@pytest.mark.parametrize("load", ["force", "actuation"])
def test_a_load_that_is_not_finite_acts_on_nothing(load: str):
    params, state = scene("all", 3, worlds=3)
    shape = state.x.shape if load == "force" else state.F.shape
    none = jnp.zeros(shape)
    bad = none.at[WORLD, WHO, 0].set(jnp.nan)
    check_alone(after(params, state, **{load: bad}), after(params, without(state), **{load: none}), mpm.Status.BADCTRL)


def test_a_particle_just_inside_is_not_reported():
    params, state = scene("corotated", 3, worlds=3)
    edge = state.replace(x=state.x.at[WORLD, WHO, 0].set(-0.49 * params.cell))
    edge = edge.replace(v=0.0 * edge.v, C=0.0 * edge.C)
    assert not mpm.step(params.replace(gravity=0.0), edge).status.any()


@pytest.mark.parametrize("factor", [0.9, 1.1, 10.0])
def test_a_particle_that_crosses_a_cell_in_a_step_is_reported(factor: float):
    params, state = scene("corotated", 2)
    params = params.replace(gravity=0.0, walls=mpm.Walls("open"))
    state = state.replace(x=0.0 * state.x + 0.5, C=0.0 * state.C, F=0.0 * state.F + jnp.eye(3).reshape(1, 1, 3, 3))
    state = state.replace(v=0.0 * state.v + factor * params.cell / params.timestep)
    status = int(mpm.step(params, state).status[0])
    assert status == (int(mpm.Status.CFL) if factor > 1 else 0)


def test_a_bad_particle_passes_no_gradient():
    params, state = scene("all", 3, worlds=3)

    def loss(x: Any, v: Any) -> Any:
        out = after(params, state.replace(x=x, v=v))
        return jnp.sum(jnp.where(jnp.isfinite(out.x), out.x, 0.0) ** 2 + out.v**2)

    bad = state.x.at[WORLD, WHO].set(jnp.nan)
    grads = jax.grad(loss, argnums=(0, 1))(bad, state.v)
    fine = jax.grad(lambda x, v: loss(x, v), argnums=(0, 1))(state.x, state.v)
    for ours, other in zip(grads, fine, strict=True):
        rest = np.delete(np.asarray(ours), WORLD, 0)
        assert np.isfinite(np.delete(np.asarray(ours)[WORLD], WHO, 0)).all()
        np.testing.assert_array_equal(rest, np.delete(np.asarray(other), WORLD, 0))


def test_many_steps_take_no_more_memory_than_few(full: bool):
    """Also of one step at a time, compiled once."""
    params, state = scene("all", 2)
    step = jax.jit(lambda s: mpm.step(params, s))
    run = jax.jit(lambda s: jax.lax.fori_loop(0, 100, lambda _, s: mpm.step(params, s), s))

    def resident() -> float:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096 / 1e6

    used = []
    for _ in range(1000 if full else 60):
        for _ in range(10):
            state = step(state)
        state = jax.block_until_ready(run(state))
        used.append(resident())
    assert used[-1] - used[len(used) // 3] < 1.0  # MB
