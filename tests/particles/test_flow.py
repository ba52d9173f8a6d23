"""Sources and drains: particles are born and removed in a state of fixed size, and none is lost silently."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.errors import StateError, UnsupportedError
from fphys.particles import boundary, flow, mpm, sph
from fphys.testing import check_grads
from fphys.worlds import Status

SPACING = 1 / 16
LAYER = np.array([[0.25, 0.5], [0.25, 0.5 + SPACING]])
WIDE = LAYER + np.array([[0.0, 0.0], [3 * SPACING, 0.0]])
DRAIN = boundary.box((1.6, 0.5), (0.4, 0.5))


def source(velocity: Any, layer: Any = LAYER, start: float = 0.0, stop: float = np.inf, **rest: Any) -> flow.Source:
    """Every number an array, so that one program runs them all."""
    numbers = {"velocity": np.broadcast_to(velocity, (2, 2)), "spacing": SPACING, "start": start, "stop": stop}
    return flow.Source(layer, **{name: np.asarray(x, layer.dtype) for name, x in numbers.items()}, **rest)


def fluid(kind: str, worlds: int = 2, dtype: Any = "float64", **changes: Any) -> tuple[Any, Any]:
    """A domain of 2 m by 1 m without particles."""
    x, none = np.full((worlds, 60, 2), 0.5, dtype), np.full(60, flow.EMPTY)
    if kind == "mpm":
        given: Any = {
            "material": mpm.Liquid(density=1000.0, bulk=1e4, viscosity=1.0),
            "timestep": 4e-3,
            "cell": 2 * SPACING,
            "shape": (16, 8),
            "walls": mpm.Walls("separate"),
        }
        params: Any = mpm.Params(**given | changes)
        return params, mpm.init(params, x, material=none)
    given = {"timestep": 2e-3, "sound_speed": 10.0, "viscosity": 10.0}
    params = sph.Params(SPACING, **given | changes)
    return params, sph.init(params, x, material=none, extent=(2.0, 1.0))


def advance(params: Any, state: Any, tally: flow.Tally, sources: Any, drains: Any) -> tuple[Any, flow.Tally]:
    solver: Any = mpm if isinstance(params, mpm.Params) else sph
    state, tally = flow.step(params, state, tally, sources, drains)
    return solver.step(params, state), tally


@jax.jit
def roll(params: Any, state: Any, sources: Any, steps: int) -> tuple[Any, flow.Tally, Any]:
    """The state and the tally at the end; and, after each step, the least and the most that lack in the balance."""

    def step(_: Any, carry: Any) -> Any:
        state, tally, lacks = carry
        state, tally = advance(params, state, tally, sources, [DRAIN])
        gap = tally.born.sum(1, dtype=jnp.int32) - tally.removed.sum(1, dtype=jnp.int32)
        gap = gap - flow.alive(state).sum(1, dtype=jnp.int32)
        return state, tally, lacks + jnp.abs(gap)

    start = state, flow.init(state, sources, [DRAIN]), jnp.zeros(len(state.x), jnp.int32)
    return jax.lax.fori_loop(0, steps, step, start)


@pytest.mark.parametrize(("kind", "dtype"), [("mpm", "float32"), ("sph", "float64")])
def test_what_is_born_and_not_removed_is_there_over_hundreds_of_steps(kind, dtype):
    params, state = fluid(kind, dtype=dtype)
    velocity, layer = np.array([[2.0, 0.1], [1.3, -0.1]], dtype), LAYER.astype(dtype)
    sources = [source(velocity, layer), source((1.0, 0.0), layer - np.array(0.25, dtype), stop=0.5)]
    half, *_ = roll(params, state, sources, 450)
    state, tally, gaps = roll(params, state, sources, 600)
    assert not gaps.any() and not state.status.any() and not tally.lost.any() and state.x.dtype == dtype
    time = 600 * params.timestep
    expected = 2 * np.floor(np.linalg.norm(velocity, axis=1) * time / SPACING + 1 - 1e-6)
    assert (np.abs(np.asarray(tally.born)[:, 0] - expected) <= 2).all()
    assert (np.asarray(tally.born)[:, 1] == 2 * 8).all()  # at 1 m/s for half a second: eight spacings
    there = np.asarray(flow.alive(state))
    assert (np.asarray(tally.removed) > 20).all() and (np.asarray(state.x)[..., 0][there] < 1.25).all()
    assert (np.abs(there.sum(1) - np.asarray(flow.alive(half)).sum(1)) < 12).all()  # it is steady


@pytest.mark.parametrize("kind", ["mpm", "sph"])
def test_layers_are_a_spacing_apart_whatever_the_time_step(kind):
    for timestep in (2e-3, 3.7e-3):
        params, state = fluid(kind, timestep=timestep)
        state, *_ = roll(params, state, [source((1.5, 0.0), start=0.02), source((0.0, 0.0))], 150)
        x = np.unique(np.round(np.asarray(state.x)[np.asarray(flow.alive(state))][:, 0], 10))
        np.testing.assert_allclose(np.diff(x), SPACING, rtol=0, atol=1e-9)
        started = np.ceil(0.02 / timestep - 1e-9) * timestep
        np.testing.assert_allclose(x[-1], 0.25 + 1.5 * (150 * timestep - started), rtol=1e-9)


@pytest.mark.parametrize("kind", ["mpm", "sph", "dfsph"])
def test_a_slot_without_a_particle_touches_nothing(kind):
    """Matter moves as if it were alone, to rounding, among empty slots in its midst."""
    rng = np.random.default_rng(0)
    x = 0.5 + SPACING * (np.stack(np.meshgrid(*[np.arange(6.0)] * 2), -1).reshape(1, -1, 2) + 0.5)
    x, v = x + 0.05 * SPACING * rng.normal(size=x.shape), 0.3 * rng.normal(size=x.shape)
    wide, fast = np.repeat(x, 2, 1), np.repeat(v, 2, 1)
    number = np.tile([0, flow.EMPTY], x.shape[1])
    if kind == "mpm":
        params, _ = fluid("mpm", 1, material=mpm.Corotated(1000.0, 1e4, 0.3))
        fast[:, 1::2] = [1e30, 0.0]
        alone, among = mpm.init(params, x, v), mpm.init(params, wide, fast, number)
    else:
        exact = {"method": "dfsph", "tolerance": 1e-13} if kind == "dfsph" else {}  # it stops by groups of slots
        params, _ = fluid("sph", 1, **exact)
        fast[:, 1::2] = np.nan
        wide[:, 1] = [0.1, np.nan]
        alone, among = sph.init(params, x, v), sph.init(params, wide, fast, number)
    solver = mpm if kind == "mpm" else sph
    step = jax.jit(lambda s: fphys.scan(lambda s, _: (solver.step(params, s), None), s, None, length=20)[0])
    alone, after = step(alone), step(among)
    np.testing.assert_allclose(after.x[:, ::2], alone.x, rtol=0, atol=1e-11)
    np.testing.assert_allclose(after.v[:, ::2], alone.v, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(after.x[:, 1::2], np.nan_to_num(wide[:, 1::2]))
    assert not after.status.any() and np.abs(np.asarray(alone.v) - v).max() > 1e-2
    np.testing.assert_allclose(after.time, alone.time)


@pytest.mark.parametrize("kind", ["mpm", "sph"])
def test_gradients_reach_the_source_where_no_event_changes(kind):
    """Layers meet an obstacle of slower ones, and some have left by a drain."""
    params, state = fluid(kind, 1)
    drains = [boundary.sphere((0.75, 0.5), 0.2)]

    @jax.jit
    def where(velocity, points, spacing):
        slow = flow.Source(LAYER + [0.25, 0.0], 0.25 * velocity, spacing, stop=0.01)
        sources = [flow.Source(points, velocity, spacing), slow]
        step = lambda carry, _: (advance(params, carry[0], carry[1], sources, drains), None)  # noqa: E731
        start = state, flow.init(state, sources, drains)
        (end, tally), _ = fphys.scan(step, start, None, length=round(0.24 / params.timestep))
        x = jnp.where(flow.alive(end)[..., None], end.x, 0) * jnp.array([[[1.0, 0.3]]])
        return x, tally.born, tally.removed, end.status

    args = (jnp.array([1.61, 0.2]), jnp.asarray(LAYER), jnp.array(SPACING))
    _, born, removed, status = where(*args)
    assert np.asarray(born)[0, 0] > 6 and np.asarray(removed)[0, 0] > 0 and not status.any()
    check_grads(lambda *a: where(*a)[0], args, directions=3, argnums=(0, 1, 2) if kind == "mpm" else (0, 1))


def periodic(kind: str) -> tuple[Any, Any]:
    """One world of 2 m by 1 m whose left face is its right one."""
    if kind == "mpm":
        return fluid("mpm", 1, walls=mpm.Walls(("periodic", "periodic", "separate", "separate")))
    return fluid("sph", 1, periodic=((0.0, 2.0), None))


def jet(params: Any, state: Any, points: Any, velocity: Any, steps: int) -> Any:
    """The state after steps in which a source releases layers, without a drain."""
    sources = [flow.Source(points, velocity, SPACING)]
    step = lambda carry, _: (advance(params, *carry, sources, []), None)  # noqa: E731
    return fphys.scan(step, (state, flow.init(state, sources)), None, length=steps)[0][0]


@pytest.mark.parametrize("kind", ["mpm", "sph"])
def test_a_layer_across_a_periodic_face_enters_as_elsewhere(kind):
    """By whole cells, and from a source that lies beyond the domain: the same motion, to rounding."""
    params, state = periodic(kind)
    steps = round(0.3 / params.timestep)
    after = jax.jit(lambda points: jet(params, state, points, jnp.array([0.7, 0.1]), steps))
    here, there = np.asarray(after(WIDE).x[0]), np.asarray(flow.alive(after(WIDE))[0])
    assert there.sum() == 8
    for shift in (1.625, -0.375, 7.625):
        end = after(WIDE + [shift, 0.0])
        x = np.asarray(end.x[0])[there]
        assert not end.status.any() and (x[:, 0] >= 0).all() and (x[:, 0] < 2).all()
        gap = (x - here[there] - [shift, 0.0]) / [2.0, 1.0]
        np.testing.assert_allclose(gap - np.round(gap), 0, atol=1e-10)


@pytest.mark.parametrize("kind", ["mpm", "sph"])
def test_gradients_reach_a_source_across_a_periodic_face(kind):
    params, state = periodic(kind)

    steps = round(0.1 / params.timestep)

    @jax.jit
    def where(velocity, points):
        end = jet(params, state, points, velocity, steps)
        return jnp.where(flow.alive(end)[..., None], end.x, 0)

    args = jnp.array([0.93, 0.1]), jnp.asarray(WIDE + [1.625, 0.0])
    assert np.ptp(where(*args)[0, :4, 0]) > 1  # on both sides of the face
    check_grads(where, args, directions=3)


@pytest.mark.parametrize("kind", ["mpm", "sph"])
def test_a_world_that_overflows_says_so_and_spoils_no_other(kind):
    params, state = fluid(kind)
    steps, never = round(0.6 / params.timestep), source((0.0, 0.0))
    few = lambda *v: [source(np.array(v), slots=(10, 31)), never]  # noqa: E731
    end, tally, gaps = roll(params, state, few((0.5, 0.0), (1.5, 0.0)), steps)
    assert np.asarray(end.status).tolist() == [0, int(Status.SLOT_OVERFLOW)] and not gaps.any()
    assert np.flatnonzero(flow.alive(end)[1]).tolist() == list(range(10, 31))
    released = 2 * (1 + np.floor(1.5 * 0.6 / SPACING))
    assert np.asarray(tally.born)[1, 0] == 21 and abs(np.asarray(tally.lost)[1, 0] - (released - 21)) <= 2
    with pytest.raises(StateError, match="world 1: SLOT_OVERFLOW: a source had no empty slot"):
        (mpm if kind == "mpm" else sph).check(params, end)
    for world, velocity in enumerate(((0.5, 0.0), (1.5, 0.0))):
        same, *_ = roll(params, state, few(velocity, velocity), steps)
        np.testing.assert_array_equal(same.x[world], end.x[world])


def test_sources_may_differ_by_vmap_and_be_off():
    params, state = fluid("mpm", 1)

    def count(speed, start):
        own = [flow.Source(LAYER, jnp.stack([speed, 0.0 * speed]), SPACING, start=start, stop=0.2)]
        step = lambda _, carry: advance(params, carry[0], carry[1], own, [])  # noqa: E731
        return jax.lax.fori_loop(0, 100, step, (state, flow.init(state, own)))[1].born[0, 0]

    found = jax.jit(jax.vmap(count))(jnp.array([1.0, 0.0, 1.0]), jnp.array([0.0, 0.0, 0.1001]))
    assert found.tolist() == [2 * 4, 0, 2 * 2]


@pytest.mark.parametrize(
    "drain",
    [
        boundary.plane((0.1, 0.2, 0.0), (1.0, 0.5, 0.2)),
        boundary.sphere((0.1, 0.2, 0.0), 0.7),
        boundary.box((0.1, 0.2, 0.0), (0.5, 0.8, 0.3), quat=(0.8, 0.6, 0.0, 0.0)),
        boundary.capsule((0.1, 0.2, 0.0), 0.4, 0.5, quat=(0.6, 0.0, 0.8, 0.0)),
    ],
    ids=lambda c: c.shape,
)
def test_what_is_inside_a_shape_is_what_numpy_says(drain):
    from scipy.spatial.transform import Rotation

    x = np.random.default_rng(0).uniform(-1, 1, (1, 500, 3))
    shape = boundary.prepared(drain, 0, x.dtype, 3, 1)
    at, size, (w, *rest) = (np.asarray(a[0]) for a in (shape.pos, shape.size, shape.quat))
    d = Rotation.from_quat([*rest, w]).inv().apply(x[0] - at)
    tip = np.maximum(np.abs(d[:, 2]) - size[1], 0) if drain.shape == "capsule" else np.abs(d[:, 2])
    expected = {
        "plane": (x[0] - at) @ size < 0,
        "sphere": np.linalg.norm(d, axis=1) < size[0],
        "box": (np.abs(d) < size).all(1),
        "capsule": np.sqrt((d[:, :2] ** 2).sum(1) + tip**2) < size[0],
    }[drain.shape]
    assert 20 < expected.sum() < 480
    np.testing.assert_array_equal(boundary.is_inside(shape, jnp.asarray(x))[0], expected)


def test_an_opening_is_flat_and_as_wide_as_it_says():
    disk = flow.opening((1.0, 2.0, 3.0), (1.0, 1.0, 0.0), 0.5, 0.1)
    assert np.abs((disk - [1, 2, 3]) @ [1.0, 1.0, 0.0]).max() < 1e-12
    assert np.linalg.norm(disk - [1, 2, 3], axis=1).max() <= 0.5
    assert abs(len(disk) - np.pi * 25) < 8
    slit = flow.opening((1.0, 2.0), (1.0, 0.0), 0.2, 0.1)
    np.testing.assert_allclose(slit, [[1.0, y] for y in (1.85, 1.95, 2.05, 2.15)])


def test_a_source_fills_the_slots_of_a_body_that_meets_another():
    """Of bodies with grids of their own; the empty slots of both touch nothing, and momentum stays."""
    params, _ = fluid("mpm", 1, contact=mpm.Contact((20, 40), 0.3), walls=mpm.Walls("open"))
    x, number = np.full((1, 60, 2), 0.5), np.full(60, flow.EMPTY)
    x[0, 20:36] = [0.55, 0.4] + SPACING * np.stack(np.meshgrid(*[np.arange(4.0)] * 2), -1).reshape(-1, 2)
    number[20:36] = 0
    state, jet = mpm.init(params, x, material=number), [source((1.5, 0.0), slots=(0, 20))]
    move = jax.jit(
        lambda s, t: jax.lax.fori_loop(0, 60, lambda _, c: advance(params, *c, jet, []), (s, t)),
    )
    jet = [jet[0].replace(velocity=np.array([1.5, 0.0]), stop=0.1)]
    state, tally = move(state, flow.init(state, jet))
    there = np.asarray(flow.alive(state))[0]
    assert there[:20].sum() == int(tally.born[0, 0]) > 4 and not state.status.any()
    given = np.asarray(tally.born)[0, 0] * SPACING**2 * 1.5
    momentum = (np.asarray(state.volume * state.v[..., 0])[0] * there).sum()
    np.testing.assert_allclose(momentum, given, rtol=1e-12)
    assert np.asarray(state.v)[0, 20:36, 0].mean() > 0.1


def test_a_number_of_a_source_that_cannot_be_is_reported():
    """And passes no NaN to a number that worlds share."""
    params, state = fluid("mpm")
    speeds = jnp.array([[1.0, 0.0], [1.0, 0.0]])

    @jax.jit
    def where(spacing, velocity):
        own = [flow.Source(LAYER, velocity, spacing)]
        end, tally = flow.step(params, state, flow.init(state, own), own)
        return jnp.where(flow.alive(end)[..., None], end.x, 0).sum(), (end.status, tally.born)

    for wrong in (jnp.nan, jnp.inf):
        slope, (status, born) = jax.grad(where, has_aux=True)(jnp.array(SPACING), speeds.at[0, 0].set(wrong))
        assert status.tolist() == [int(Status.BADPARAM), 0] and born[:, 0].tolist() == [0, 2] and np.isfinite(slope)


def test_a_flow_that_outruns_its_calls_is_reported():
    params, state = fluid("mpm")
    state, *_ = roll(params, state, [source((20.0, 0.0)), source((0.0, 0.0))], 5)
    assert int(state.status[0]) & int(Status.CFL)


def test_a_held_fluid_stays_as_it_is():
    params, state = fluid("sph")
    state = state.replace(status=state.status.at[0].set(int(Status.NONFINITE)))
    end, tally, _ = roll(params, state, [source((1.0, 0.0)), source((0.0, 0.0))], 20)
    assert np.asarray(flow.alive(end).sum(1)).tolist() == [0, 2] and np.asarray(tally.born)[:, 0].tolist() == [0, 2]


def test_what_does_not_fit_is_refused():
    params, state = fluid("sph", 1)
    good = flow.Source(LAYER, (1.0, 0.0), SPACING)
    tally = flow.init(state, [good])
    for wrong, match in (
        (good.replace(points=np.zeros((2, 3))), r"sources\[0\].points have shape"),
        (good.replace(velocity=(1.0, 0.0, 0.0)), r"sources\[0\].velocity has shape"),
        (good.replace(spacing=-1.0), r"spacing is \[-1.\] m: it must be positive"),
        (good.replace(spacing=0.1), r"params.spacing 0.0625: give the same"),
        (good.replace(velocity=(np.nan, 0.0)), r"sources\[0\].velocity are not all finite"),
        (good.replace(start=2.0, stop=1.0), r"sources\[0\] starts at \[2\.\] s and stops at \[1\.\] s"),
        (good.replace(slots=(0, 1000)), r"slots are \(0, 1000\), the state has 60"),
    ):
        with pytest.raises(ValueError, match=match):
            flow.step(params, state, tally, [wrong])
    for name, value in (("removed", tally.removed), ("ahead", tally.ahead[0]), ("born", tally.born[:, :0])):
        drains = [DRAIN] if name == "removed" else []
        with pytest.raises(ValueError, match=rf"tally\.{name} has shape .*, needs \(1, 1\) for 1 sources and"):
            flow.step(params, state, tally.replace(**{name: value}), [good], drains)
    other, empty = fluid("mpm", 1)
    with pytest.raises(ValueError, match=r"sources\[0\].material is 1, but params.material has 1"):
        flow.step(other, empty, flow.init(empty, [good]), [good.replace(material=1)])
    beyond = good.replace(points=LAYER - np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match=r"sources\[0\]\.points are outside the domain, .* first at \[-0\.75"):
        jax.jit(lambda s: flow.step(other, s, flow.init(s, [beyond]), [beyond]))(empty)
    for radius, spacing in ((-0.1, 0.1), (np.nan, 0.1), (0.1, 0.0)):
        with pytest.raises(ValueError, match=r"give a finite radius, and a positive spacing"):
            flow.opening((0.0, 0.0), (1.0, 0.0), radius, spacing)
    with pytest.raises(TypeError, match=r"drains\[0\] is a tuple"):
        flow.step(params, state, flow.init(state, [], [()]), [], [()])  # type: ignore[list-item]
    field = boundary.field(np.zeros((3, 3)), 0.1, (0.0, 0.0))
    with pytest.raises(UnsupportedError, match="does not say what is inside"):
        flow.step(params, state, flow.init(state, [], [field]), [], [field])
