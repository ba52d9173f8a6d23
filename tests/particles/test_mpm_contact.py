"""Bodies with grids of their own: alone as without contact, apart after they met, momentum kept, faults, refusals."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.particles import boundary, mpm

CELL = 1 / 8
PARAMS = mpm.Params(
    (mpm.NeoHookean(1000.0, 1e4, 0.3), mpm.Corotated(3000.0, 2e4, 0.2)),
    1e-3,
    walls=mpm.Walls("slip", friction=0.2),
    contact=mpm.Contact((32, 48), 0.3),
    cell=CELL,
    shape=(16, 12),
)


def lattice(lower: Any, upper: Any) -> np.ndarray:
    axes = [np.arange(a + CELL / 4, b, CELL / 2) for a, b in zip(lower, upper, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(lower))


def blocks(gap: float = 0.0, params: mpm.Params = PARAMS, worlds: int = 1, dtype: Any = float) -> mpm.State:
    """A block on another one, which is denser; the upper one comes down and slides."""
    upper, lower = lattice((0.75, 0.5), (1.25, 0.75)) + [0.0, gap], lattice((0.625, 0.25), (1.375, 0.5))
    x = np.concatenate([upper, lower])[None].repeat(worlds, 0) + 1e-3 * np.arange(worlds)[:, None, None]
    v = np.where(np.arange(80)[:, None] < 32, [0.3, -0.5], [-0.1, 0.2]) * (1 + x)
    x, v = x.astype(dtype), v.astype(dtype)
    return mpm.init(params, x, v, material=(np.arange(80) >= 32).astype(np.int32))


def rolled(params: mpm.Params, state: mpm.State, steps: int = 40, **given: Any) -> mpm.State:
    return jax.jit(lambda s: jax.lax.fori_loop(0, steps, lambda _, s: mpm.step(params, s, **given), s))(state)


def part(state: mpm.State, own: slice) -> mpm.State:
    return jax.tree.map(lambda a: a[:, own] if a.ndim > 1 else a, state)


@pytest.mark.parametrize("transfer", [mpm.Apic(), mpm.AffineFlip(0.9)])
def test_what_does_not_touch_moves_as_if_alone(transfer: Any):
    """Bit for bit, though both share nodes at last; in parts, with a force and numbers of each particle, too."""
    params = PARAMS.replace(transfer=transfer, contact=None, gravity=(1.0, -3.0))
    young = jnp.linspace(1e4, 2e4, 80)[None]
    soft = params.replace(material=(params.materials[0].replace(young=young), params.materials[1]))
    state = blocks(2.5 * CELL, params)
    state = state.replace(v=0.5 * state.v)
    force = jnp.linspace(0.0, 1.0, 160).reshape(1, 80, 2)
    floor = boundary.sphere((1.0, 0.1), 0.2, friction=0.3)
    for given, parts in ((params, 1), (soft, 2)):
        both = given.replace(contact=mpm.Contact((32, 48), smooth=parts - 1), parts=parts)
        together = rolled(both, state, force=force, colliders=floor)
        for own in (slice(0, 32), slice(32, 80)):
            mine = given.replace(parts=parts)
            if given is soft:
                mine = mine.replace(material=(mine.materials[0].replace(young=young[:, own]), mine.materials[1]))
            alone = rolled(mine, part(state, own), force=force[:, own], colliders=floor)
            for name in ("x", "v", "C", "F", "history"):
                np.testing.assert_array_equal(getattr(together, name)[:, own], getattr(alone, name))
    assert not together.status.any()


@pytest.mark.parametrize("sizes", [(32, 48), (16, 16, 48)])
@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize(("transfer", "smooth"), [(mpm.Apic(), 0), (mpm.AffineFlip(0.9), 2)])
def test_momentum_is_kept(sizes: tuple[int, ...], around: bool, transfer: Any, smooth: int):
    contact = mpm.Contact(sizes, 0.5, smooth=smooth)
    params = PARAMS.replace(walls=mpm.Walls("periodic" if around else "open"), contact=contact, transfer=transfer)
    start = blocks(params=params)
    end = rolled(params, start)
    mass = start.volume * jnp.where(start.material == 0, 1e3, 3e3)
    brought = (mass[..., None] * start.v).sum(1)
    np.testing.assert_allclose((mass[..., None] * end.v).sum(1), brought, rtol=0, atol=1e-12 * float(mass.sum()))
    moved = np.asarray((mass[..., None] * (end.v - start.v))[0, :32].sum(0))
    assert np.abs(moved).min() > 1.0 and not end.status.any()


def test_bodies_that_were_pressed_part_again():
    """On one grid they stick. A slip contact takes nothing from what slides."""
    start = blocks(params=PARAMS.replace(walls=mpm.Walls("open")))
    start = start.replace(v=start.v.at[:, :32].set(jnp.array([1.0, -0.5])).at[:, 32:].set(jnp.array([-1.0, 0.2])))
    found = {}
    for name, contact in (("stuck", None), ("slip", mpm.Contact((32, 48))), ("rough", mpm.Contact((32, 48), 0.3))):
        end = rolled(PARAMS.replace(walls=mpm.Walls("open"), contact=contact), start, 60)
        found[name] = float(end.v[0, :32, 0].mean() - end.v[0, 32:, 0].mean()), float(end.x[0, :32, 1].min())
    assert found["stuck"][0] < found["rough"][0] < found["slip"][0]
    assert found["slip"][0] > 1.9


@pytest.mark.parametrize("smooth", [0, 2])
def test_bodies_across_a_periodic_face_meet_as_elsewhere(smooth: int):
    contact = mpm.Contact((32, 48), 0.3, smooth=smooth)
    params = PARAMS.replace(walls=mpm.Walls(("periodic", "periodic", "slip", "slip"), 0.2), contact=contact)
    params = params.replace(transfer=mpm.AffineFlip() if smooth else mpm.Apic())
    here = rolled(params, blocks(params=params))
    moved = blocks(params=params)
    moved = moved.replace(x=moved.x.at[..., 0].set((moved.x[..., 0] + 1.0) % 2.0))
    there = rolled(params, moved)
    np.testing.assert_allclose(there.v, here.v, rtol=0, atol=1e-11)


def test_a_collider_takes_what_both_bodies_give():
    params = PARAMS.replace(walls=mpm.Walls("open"))
    start = blocks(params=params)
    ball = boundary.sphere((0.7, 0.45), 0.15, friction=0.3)
    body = mpm.Response(jnp.full((1, 1, 3), 0.1), jnp.zeros((1, 1, 6)), 0.1 * jnp.eye(6)[None], (0,))
    after, took = jax.jit(lambda s: mpm.exchange(params, s, (ball,), body))(start)
    mass = start.volume * jnp.where(start.material == 0, 1e3, 3e3)
    change = mass[..., None] * (after.v - start.v)
    np.testing.assert_allclose(took[0, 0, :2], -change[0].sum(0), rtol=0, atol=1e-12)
    assert np.abs(change[0, :32].sum(0)).max() > 0.1 and np.abs(change[0, 32:].sum(0)).max() > 0.1
    fixed = mpm.exchange(params, start, (ball,), body.replace(mobility=0 * body.mobility))[0]
    np.testing.assert_array_equal(fixed.v, mpm.step(params, start, colliders=ball).v)


@pytest.mark.parametrize("name", ["v", "x"])
def test_a_particle_with_a_fault_touches_no_other(name: str):
    """Nor any other world."""
    state = blocks(worlds=2)
    wrong = state.replace(**{name: getattr(state, name).at[0, 7].set(jnp.nan if name == "v" else -9.0)})
    after, right = (rolled(PARAMS, s, 5) for s in (wrong, state))
    np.testing.assert_array_equal(after.v[0, 7], wrong.v[0, 7])
    np.testing.assert_array_equal(after.v[1], right.v[1])
    assert np.isfinite(np.delete(after.v, 7, 1)).all() and after.status.tolist()[1] == 0
    slope = jax.grad(lambda v: jnp.nansum(rolled(PARAMS, wrong.replace(v=v), 1).v ** 2))(wrong.v)
    assert bool(jnp.isfinite(slope).all())


def test_single_precision():
    double, single = (rolled(PARAMS, blocks(dtype=dtype)) for dtype in ("float64", "float32"))
    assert single.v.dtype == np.float32
    np.testing.assert_allclose(single.v, double.v, rtol=0, atol=1e-4)


def test_batches_are_worlds():
    """Under vmap, with a friction for each, and so are their gradients."""
    state = blocks(worlds=2)

    def moved(friction: Any, x: Any) -> Any:
        begun = jax.tree.map(lambda a: a[: len(x)], state).replace(x=x)
        params = PARAMS.replace(contact=mpm.Contact((32, 48), friction))
        return mpm.step(params, mpm.step(params, begun)).v

    def work(friction: Any, x: Any, fn: Any) -> Any:
        return (fn(friction, x) * jnp.arange(1.0, 1 + x.size).reshape(x.shape)).sum()

    friction = jnp.array([0.3, 0.1])
    begun = jax.tree.map(lambda a: jnp.broadcast_to(a[:1], a.shape), state)
    state = begun  # what is not mapped is the same in both
    batched = lambda f, x: jax.vmap(moved)(f[:, None], x[:, None])[:, 0]  # noqa: E731
    both = jax.jit(lambda f, x: (moved(f, x), jax.grad(work, (0, 1))(f, x, moved)))
    mapped = jax.jit(lambda f, x: (batched(f, x), jax.grad(work, (0, 1))(f, x, batched)))
    x = blocks(worlds=2).x
    for a, b in zip(jax.tree.leaves(mapped(friction, x)), jax.tree.leaves(both(friction, x)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_contacts_that_cannot_be():
    with pytest.raises(ValueError, match=r"contact\.sizes is \(3, 0\): give the number of particles of each body"):
        mpm.Contact((3, 0))
    with pytest.raises(ValueError, match=r"contact\.smooth is -1: give a whole number, 0 or more"):
        mpm.Contact((3, 4), smooth=-1)
    with pytest.raises(ValueError, match=r"params\.contact\.sizes is \(3, 4\), 7 particles together, the state has 80"):
        blocks(params=PARAMS.replace(contact=mpm.Contact((3, 4))))
    with pytest.raises(TypeError, match=r"params\.contact is a tuple: give mpm\.Contact"):
        mpm.step(PARAMS.replace(contact=(32, 48)), blocks())
    with pytest.raises(ValueError, match=r"params\.contact\.friction is \[-0\.1\]: it must be finite and not negative"):
        mpm.step(PARAMS.replace(contact=mpm.Contact((32, 48), -0.1)), blocks())
    with pytest.raises(ValueError, match=r"two bodies without a share have no normal between them"):
        blocks(params=PARAMS.replace(contact=mpm.Contact((32, 48), normal=(0.0, 0.0))))
    step = jax.jit(lambda **given: mpm.step(PARAMS.replace(contact=mpm.Contact((32, 48), **given)), blocks(worlds=2)))
    assert step(friction=jnp.array([0.1, jnp.nan])).status.tolist() == [0, int(fphys.Status.BADPARAM)]
    assert step(normal=jnp.array([[0.0, 1.0], [0.0, 0.0]])).status.tolist() == [0, int(fphys.Status.BADPARAM)]
