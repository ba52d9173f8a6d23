"""Faults 7 to 11 and 48: particles that leave, fly off, crowd or invert, and time steps that are too long."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.errors import StateError
from fphys.particles import boundary, mpm, sph

from ..particles.mpm_scenes import scene
from ..particles.sph_scenes import pool, run
from ..particles.test_neighbors import R, brute_force, found

WORLD, WHO = 1, 7
H = 0.5 * 0.0625 / 9.486832980505138  # s: half a cell of 1/16 m at the sound of 9e4 Pa and 1000 kg/m^3


# --- faults 7 to 9, of the material point method


def after(params: mpm.Params, state: mpm.State, steps: int = 3, **given: Any) -> mpm.State:
    for _ in range(steps):
        state = mpm.step(params, state, **given)
    return state


def without(state: mpm.State) -> mpm.State:
    """The same without the particle, whose mass is set to zero in all worlds."""
    return state.replace(volume=state.volume.at[WORLD, WHO].set(0.0))


def check_alone(ours: mpm.State, other: mpm.State, bit: mpm.Status) -> None:
    """Compare all other particles and worlds bit for bit."""
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
        (8.6, fphys.Status.OOB),
        (9.02, fphys.Status.OOB),
        (-0.52, fphys.Status.OOB),
        (-1.05, fphys.Status.OOB),
        (1e2, fphys.Status.OOB),
        (5e6, fphys.Status.OOB),
        (-5e6, fphys.Status.OOB),
        (1e30, fphys.Status.NONFINITE),
        (np.inf, fphys.Status.NONFINITE),
        (-np.inf, fphys.Status.NONFINITE),
        (np.nan, fphys.Status.NONFINITE),
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
    check_alone(after(params, bad), after(params, without(state)), fphys.Status.NONFINITE)


@pytest.mark.parametrize("load", ["force", "actuation"])
def test_a_load_that_is_not_finite_acts_on_nothing(load: str):
    params, state = scene("all", 3, worlds=3)
    shape = state.x.shape if load == "force" else state.F.shape
    none = jnp.zeros(shape)
    bad = none.at[WORLD, WHO, 0].set(jnp.nan)
    check_alone(
        after(params, state, **{load: bad}), after(params, without(state), **{load: none}), fphys.Status.BADCTRL
    )


def test_what_a_step_makes_infinite_is_reported_at_once():
    """Overflowing stress reaches the nodes and thus the neighbours. Their world reports it after that very step."""
    params = mpm.Params(mpm.Snow(), 5e-4, (0.0, -9.81), cell=1 / 16, shape=(16, 16))
    x = np.random.default_rng(11).uniform(0.3, 0.6, (3, 40, 2)).astype("float32")
    state = mpm.init(params, x)
    wild = state.replace(C=state.C.at[WORLD, WHO].set(1e7))
    ours, good = mpm.step(params, wild), mpm.step(params, state)
    assert not np.isfinite(ours.x[WORLD]).all(), "it must overflow"
    assert int(ours.status[WORLD]) & int(fphys.Status.NONFINITE) and ours.status[::2].tolist() == [0, 0]
    for name in ("x", "v", "C", "F"):
        np.testing.assert_array_equal(getattr(ours, name)[::2], getattr(good, name)[::2])
    with pytest.raises(StateError, match=rf"world {WORLD}: NONFINITE"):
        mpm.check(params, ours)


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
    assert status == (int(fphys.Status.CFL) if factor > 1 else 0)


@pytest.mark.parametrize(
    "material",
    [
        lambda k: mpm.Corotated(1000.0, 9e4 * k, 0.0),  # sound: c dt / dx = 0.5 at k = 1
        lambda k: mpm.Liquid(1000.0, 9e4 * k),
        lambda k: mpm.Liquid(1000.0, 9.0, viscosity=1000.0 * 0.35 * 0.0625**2 * k / H),
    ],
)
def test_a_traced_number_above_a_limit_is_reported(material):
    """``init`` refuses it where it is known; within a jitted search the status says so. A world each."""
    cell = 0.0625
    params = mpm.Params(material(1.0), timestep=H, cell=cell, shape=(8, 8))
    state = mpm.init(params, np.full((3, 1, 2), 0.25))

    @jax.jit
    def stepped(k):
        return mpm.step(params.replace(material=material(k)), state).status

    assert stepped(jnp.array([0.999, 1.0, 1.001])).tolist() == [0, 0, int(fphys.Status.CFL)]
    assert int(stepped(jnp.array([jnp.nan] * 3))[0]) == int(fphys.Status.BADPARAM)
    with pytest.raises(ValueError, match="too long"):
        mpm.init(params.replace(material=material(1.1)), state.x)


def test_a_world_has_its_time_and_one_that_skips_a_step_stands_still():
    params, state = scene("corotated", 2, worlds=3)
    steps = jnp.array([1e-4, jnp.nan, 2e-4], state.x.dtype)
    later = after(params.replace(timestep=steps), state, 3)
    np.testing.assert_allclose(later.time, [3e-4, 0.0, 6e-4], rtol=1e-6)
    slope = jax.grad(lambda h: after(params.replace(timestep=h), state, 3).time.sum())(steps.at[1].set(1e-4))
    np.testing.assert_allclose(slope, [3.0, 3.0, 3.0], rtol=1e-6)
    again = mpm.reset(params, later, jnp.array([True, False, False]), state)
    assert again.time[0] == 0.0 and again.time[2] == later.time[2]


def test_a_bad_particle_passes_no_gradient():
    params, state = scene("all", 3, worlds=3)

    def loss(x: Any, v: Any) -> Any:
        out = after(params, state.replace(x=x, v=v))
        return jnp.sum(jnp.where(jnp.isfinite(out.x), out.x, 0.0) ** 2 + out.v**2)

    bad = state.x.at[WORLD, WHO].set(jnp.nan)
    slope = jax.jit(jax.grad(loss, argnums=(0, 1)))
    grads, fine = slope(bad, state.v), slope(state.x, state.v)
    for ours, other in zip(grads, fine, strict=True):
        rest = np.delete(np.asarray(ours), WORLD, 0)
        assert np.isfinite(np.delete(np.asarray(ours)[WORLD], WHO, 0)).all()
        np.testing.assert_array_equal(rest, np.delete(np.asarray(other), WORLD, 0))


# --- fault 48: inverted particles


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("which", [WHO, 11])
def test_an_inverted_particle_is_reported_and_continues(which: int, dim: int):
    """The material decides how it responds. The other worlds are not affected."""
    params, state = scene("neo-hookean", dim, worlds=3)
    turned = state.replace(F=state.F.at[WORLD, which, :, 0].multiply(-1.0))
    ours, good = mpm.step(params, turned), mpm.step(params, state)
    assert ours.status.tolist() == [0, int(fphys.Status.INVERTED), 0]
    assert (ours.x[WORLD, which] != turned.x[WORLD, which]).any()
    others = np.delete(np.arange(3), WORLD)
    for name in ("x", "v", "C", "F"):
        np.testing.assert_array_equal(getattr(ours, name)[others], getattr(good, name)[others])
    with pytest.raises(StateError, match=rf"world {WORLD}: INVERTED: .*\(1, the first is {which}\)"):
        mpm.check(params, ours)
    slope = jax.grad(lambda F: jnp.sum(mpm.step(params, state.replace(F=F)).v ** 2))
    np.testing.assert_array_equal(np.delete(slope(turned.F), WORLD, 0), np.delete(slope(state.F), WORLD, 0))
    assert np.isfinite(slope(turned.F)).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shear", [20.0, 5e3, 1e8])
def test_a_particle_too_flat_for_the_precision_is_reported(shear: float, dtype: str):
    """Its stretches are shear and 1 / shear, the square roots of F^T F's eigenvalues."""
    params, state = scene("sand", 2, worlds=3)
    state = jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, state)
    params = params.replace(gravity=np.asarray(params.gravity, dtype))
    sheared = jnp.eye(3, dtype=dtype).at[0, 1].set(shear)
    flat = mpm.step(params, state.replace(F=state.F.at[WORLD, WHO].set(sheared)))
    lost = shear**4 * np.finfo(dtype).eps > 1
    assert [bool(s & fphys.Status.INVERTED) for s in flat.status] == [False, lost, False]


def test_a_squeezed_particle_is_not_inverted():
    params, state = scene("corotated", 3, worlds=1)
    assert not mpm.step(params, state.replace(F=0.2 * state.F)).status.any()


# --- numbers of walls and volumes


@pytest.mark.parametrize("bad", [-0.3, np.nan, np.inf])
def test_an_impossible_wall_friction(bad: float):
    """Refused if it is known. If it is traced, its world is held."""
    params, state = scene("corotated", 2, worlds=2)
    walls = params.walls.replace(friction=np.array([0.2, bad, 0.2, 0.2]))
    with pytest.raises(ValueError, match=rf"walls\.friction is {bad}: it must be finite and not negative"):
        mpm.init(params.replace(walls=walls), state.x)
    each = jnp.full((2, 4), 0.2).at[1, 3].set(bad)
    after = jax.jit(lambda f: mpm.step(params.replace(walls=params.walls.replace(friction=f)), state))(each)
    assert after.status.tolist() == [0, int(fphys.Status.BADPARAM)]
    np.testing.assert_array_equal(after.x[1], state.x[1])


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_an_impossible_volume_is_refused(bad: float):
    params, state = scene("corotated", 2)
    with pytest.raises(ValueError, match=rf"volume is {bad}: it must be finite and not negative"):
        mpm.init(params, state.x, volume=np.where(np.arange(20) == 3, bad, 1e-3))


def test_particles_without_volume_are_refused():
    params, state = scene("corotated", 2)
    third = np.where(np.arange(20) == 3, 0.0, 1e-3)
    with pytest.raises(ValueError, match="volume is 0: such a particle has no mass"):
        mpm.init(params, state.x, volume=third)
    mpm.init(params, state.x, material=np.where(third == 0, -1, 0), volume=third)


def test_an_impossible_collider_friction_is_refused():
    params, state = scene("corotated", 2)
    with pytest.raises(ValueError, match=r"friction is -0\.1: it must not be negative"):
        mpm.step(params, state, colliders=boundary.sphere((0.5, 0.5), 0.1, friction=-0.1))


# --- faults 10 and 11: neighbours


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("shift", [-0.5, 6e4, -6e4])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_neighbours_are_found_wherever_the_cloud_is(dim: int, shift: float, dtype: str):
    x = (np.random.default_rng(0).uniform(0, 0.8, (2, 300, dim)) + shift).astype(dtype)
    open_axes = (None,) * dim
    assert found(x, open_axes, 128)[0] == [row for world in x for row in brute_force(world, R, open_axes)]


def test_overflow_says_what_is_needed():
    x = np.random.default_rng(3).uniform(0, 0.15, (1, 100, 2))
    wanted = brute_force(x[0], R, (None, None))
    some, needed = found(x, (None, None), capacity=8)
    assert needed == max(map(len, wanted)) > 8
    assert all(a <= b and len(a) == min(8, len(b)) for a, b in zip(some, wanted))
    assert found(x, (None, None), capacity=needed)[0] == wanted


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30, -1e30])
def test_a_nonfinite_particle_is_no_neighbour(bad: float):
    x = np.random.default_rng(4).uniform(0, 0.5, (2, 100, 2))
    broken = x.copy()
    broken[0, 7, 1] = bad
    wanted = brute_force(np.delete(x[0], 7, axis=0), R, (None, None))
    got, _ = found(broken, (None, None))
    kept = np.delete(np.arange(100), 7)
    assert got[7] == set()
    assert [got[i] for i in kept] == [set(kept[list(row)]) for row in wanted]
    assert got[100:] == brute_force(x[1], R, (None, None))


# --- faults 1, 2, 7 and 10, of smoothed particles

step = jax.jit(sph.step)


@pytest.mark.parametrize(("field", "bad"), [("x", np.nan), ("v", np.inf), ("rho", 5e10)])
def test_a_bad_world_stands_still_and_spoils_no_other(field: str, bad: float):
    params, state = pool(worlds=3)
    value = getattr(state, field)
    poisoned = state.replace(**{field: value.at[(1, 5) + (0,) * (value.ndim - 2)].set(bad)})
    good, got = run(params, state, 3), run(params, poisoned, 3)
    assert got.status.tolist() == [0, fphys.Status.NONFINITE, 0]
    for name in ("x", "v", "rho"):
        assert np.array_equal(getattr(got, name)[1], getattr(poisoned, name)[1], equal_nan=True)
        assert (getattr(got, name)[::2] == getattr(good, name)[::2]).all()
    with pytest.raises(StateError, match=r"world 1: NONFINITE"):
        sph.check(params, got)

    def end(v: Any) -> Any:
        return step(params, poisoned.replace(v=v)).x.sum()

    grad = np.asarray(jax.jit(jax.grad(end))(state.v if field == "v" else poisoned.v))
    assert np.isfinite(grad).all()


def test_a_bad_force_holds_its_world_for_that_step():
    params, state = pool()
    force = jnp.zeros_like(state.x).at[0, 0, 0].set(jnp.nan)
    got = step(params, state, force)
    assert got.status.tolist() == [fphys.Status.BADCTRL, 0]
    assert (got.x[0] == state.x[0]).all() and (got.x[1] == step(params, state).x[1]).all()
    assert (step(params, got).x[0] != state.x[0]).any()


@pytest.mark.parametrize(("factor", "fits"), [(0.9, True), (1.1, False), (10.0, False)])
def test_the_courant_limit(factor: float, fits: bool):
    params, state = pool()
    dt = factor * sph.limit(params)
    x = state.x
    if fits:
        brief = params.replace(timestep=dt)
        sph.check(brief, step(brief, sph.init(brief, x)))
        return
    with pytest.raises(ValueError, match="above the Courant limit"):
        sph.init(params.replace(timestep=dt), x)
    faulty = step(params.replace(timestep=dt), state)
    assert (faulty.status & fphys.Status.CFL != 0).all()
    with pytest.raises(StateError, match="CFL: the timestep"):
        sph.check(params, faulty)


def test_too_many_neighbours_are_reported_with_the_number_needed():
    params, state = pool()
    small = sph.init(params, state.x, state.v, state.kind, state.p, max_neighbors=16)
    faulty = step(params, small)
    needed = int(faulty.most_neighbors.max())
    assert needed > 16
    with pytest.raises(StateError, match=f"a particle had {faulty.most_neighbors[0]} neighbours, max_neighbors is 16"):
        sph.check(params, faulty)
    room = step(params, sph.init(params, state.x, state.v, state.kind, state.p, max_neighbors=needed))
    assert (room.x == step(params, small.replace(max_neighbors=200)).x).all()
    sph.check(params, room)
