"""The contract of all solvers: a faulty world is held, reported and reset, and passes no gradient."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import rigid, worlds
from fphys.deformables import fem, mesh, pbd, rod
from fphys.errors import StateError
from fphys.particles import mpm, sph
from fphys.worlds import Solver, Status

WORLDS, BAD = 3, 1
CHANGED = ("qpos", "qvel", "x", "v", "C", "F", "history", "rho", "p", "time", "q", "spin")
"""State fields that a step changes, over all solvers."""


class Case(NamedTuple):
    solver: Solver
    params: Any
    state: Any
    load: Any  # acts on every world
    timed: Any  # timed(params, timestep): with a time step for each world [s]
    gravity: Any  # gravity(params, vector)


class Pushed:
    """Rigid bodies, with a generalised force as load."""

    init, check, reset = staticmethod(rigid.init), staticmethod(rigid.check), staticmethod(rigid.reset)

    @staticmethod
    def step(model: Any, state: Any, /, *loads: Any, **named: Any) -> Any:
        return rigid.step(model, state, force=loads[0])


def of_rigid(dtype: Any) -> Case:
    model = fphys.load(fphys.asset("ball"), dtype=dtype)
    state = fphys.init(model, WORLDS, qvel=np.arange(1.0, 13.0) / 10)
    load = jnp.ones((WORLDS, model.structure.nv), dtype)
    timed = lambda m, h: m.replace({"opt.timestep": h})  # noqa: E731
    return Case(Pushed(), model, state, load, timed, lambda m, g: m.replace({"opt.gravity": jnp.append(g, 0.0)[None]}))


def particles(dtype: Any) -> np.ndarray:
    line = 0.3 + 0.05 * np.arange(5)
    x = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(1, -1, 2)
    return (x + 0.002 * np.random.default_rng(0).normal(size=(WORLDS, 25, 2))).astype(dtype)


def of_mpm(dtype: Any) -> Case:
    params = mpm.Params(mpm.Corotated(1000.0, 1e4, 0.3), 1e-3, (0.0, -9.81), cell=0.1, shape=(10, 10))
    x = particles(dtype)
    state = mpm.init(params, x, 0.1 * np.sin(100 * x))
    return Case(mpm, params, state, jnp.full(x.shape, 0.01, dtype), *_by_name())


def of_sph(dtype: Any) -> Case:
    params = sph.Params(0.05, 1e-3, 10.0, viscosity=0.1, gravity=(0.0, -9.81))
    x = particles(dtype)
    state = sph.init(params, x, 0.1 * np.sin(100 * x))
    return Case(sph, params, state, jnp.full(x.shape, 0.01, dtype), *_by_name())


def of_fem(dtype: Any) -> Case:
    body = mesh.box((4, 2), (0.4, 0.2))
    params = fem.Params(body, fem.NeoHookean(1000.0, 1e4, 0.3), 1e-3, (0.0, -9.81), pinned=(0, 1))
    x = body.vertices + 0.002 * np.random.default_rng(0).normal(size=(WORLDS, *body.vertices.shape))
    state = fem.init(params, x.astype(dtype), 0.1 * np.sin(100 * x).astype(dtype))
    return Case(fem, params, state, jnp.full(x.shape, 0.01, dtype), *_by_name())


def of_pbd(dtype: Any) -> Case:
    sheet = mesh.cloth((3, 2), (0.3, 0.2))
    params = pbd.Params(sheet, 0.2, 1e-2, 1e-3, bend=1e-3, gravity=(0.0, 0.0, -9.81), pinned=(0,), substeps=2)
    x = sheet.vertices + 0.002 * np.random.default_rng(0).normal(size=(WORLDS, *sheet.vertices.shape))
    state = pbd.init(params, x.astype(dtype), 0.1 * np.sin(100 * x).astype(dtype))
    in_space = lambda p, g: p.replace(gravity=jnp.append(g, 0.0))  # noqa: E731
    return Case(pbd, params, state, jnp.full(x.shape, 0.01, dtype), _by_name()[0], in_space)


def of_rod(dtype: Any) -> Case:
    line = mesh.rope(4, 0.4)
    params = rod.Params(line, 0.2, 0.02, 1e-2, 1e-2, 1e-2, 1e-3, gravity=(0.0, 0.0, -9.81), pinned=(0,), substeps=2)
    x = line.vertices + 0.002 * np.random.default_rng(0).normal(size=(WORLDS, *line.vertices.shape))
    state = rod.init(params, x.astype(dtype), 0.1 * np.sin(100 * x).astype(dtype))
    in_space = lambda p, g: p.replace(gravity=jnp.append(g, 0.0))  # noqa: E731
    return Case(rod, params, state, jnp.full(x.shape, 0.01, dtype), _by_name()[0], in_space)


def _by_name() -> tuple[Any, Any]:
    return lambda p, h: p.replace(timestep=h), lambda p, g: p.replace(gravity=g)


@pytest.fixture(
    params=[of_rigid, of_mpm, of_sph, of_fem, of_pbd, of_rod], ids=["rigid", "mpm", "sph", "fem", "pbd", "rod"]
)
def case(request: Any) -> Case:
    return request.param(jnp.float64)


def floats(tree: Any) -> list[Any]:
    return [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]


def poisoned(state: Any) -> Any:
    """A state in which one world's velocities are NaN."""
    name = "qvel" if hasattr(state, "qvel") else "v"
    return state.replace(**{name: getattr(state, name).at[BAD].set(jnp.nan)})


def same(ours: Any, theirs: Any, keep: Any) -> None:
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(np.asarray(a)[keep], np.asarray(b)[keep])


OTHERS = np.arange(WORLDS) != BAD


def test_a_bad_state_is_held_reported_and_reset(case: Case):
    step = jax.jit(case.solver.step)
    start, state, clean = poisoned(case.state), poisoned(case.state), case.state
    for _ in range(3):
        state, clean = step(case.params, state, case.load), step(case.params, clean, case.load)
    assert np.asarray(state.status).tolist() == [0, int(Status.NONFINITE), 0]
    same(state, clean, OTHERS)
    same(state.replace(status=start.status), start, BAD)
    with pytest.raises(StateError, match=f"1 of 3 worlds are faulty .*\n  world {BAD}: NONFINITE: "):
        case.solver.check(case.params, state)
    again = case.solver.reset(case.params, state, state.status != 0, case.state)
    case.solver.check(case.params, again)
    same(again, case.state, BAD)
    same(again, state, OTHERS)
    same(step(case.params, again, case.load), step(case.params, case.state, case.load), BAD)


def test_a_bad_input_or_parameter_skips_the_step(case: Case):
    step = jax.jit(lambda h, state, load: case.solver.step(case.timed(case.params, h), state, load))
    h = jnp.full(WORLDS, 1e-3, case.load.dtype)
    clean = step(h, case.state, case.load)
    for bit, args in (
        (Status.BADCTRL, (h, case.load.at[BAD].set(jnp.inf))),
        (Status.BADPARAM, (h.at[BAD].set(jnp.nan), case.load)),
        (Status.BADPARAM, (h.at[BAD].set(-1e-3), case.load)),
    ):
        after = step(args[0], case.state, args[1])
        assert np.asarray(after.status).tolist() == [0, int(bit), 0]
        same(after.replace(status=case.state.status), case.state, BAD)
        same(after, clean, OTHERS)
        with pytest.raises(StateError, match=f"world {BAD}: {bit.name}: "):
            case.solver.check(case.params, after)
        on = step(h, after, case.load)
        assert np.asarray(on.status).tolist() == [0, int(bit), 0], "bits stay"
        same(on.replace(status=clean.status), clean, BAD)


def test_a_faulty_world_passes_no_gradient(case: Case):
    """With respect to the state, the load and shared parameters, over three steps, for every fault."""

    def loss(gravity: Any, h: Any, moving: list[Any], load: Any, state: Any, counted: Any) -> Any:
        leaves, tree = jax.tree.flatten(state)
        given = iter(moving)
        state = tree.unflatten([next(given) if jnp.issubdtype(x.dtype, jnp.floating) else x for x in leaves])
        params = case.timed(case.gravity(case.params, gravity), h)
        state = jax.lax.scan(lambda s, _: (case.solver.step(params, s, load), None), state, None, 3)[0]
        moved = [getattr(state, name) for name in CHANGED if hasattr(state, name)]
        return sum(jnp.sum(counted.reshape(-1, *[1] * (x.ndim - 1)) * x**2) for x in moved)

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)))
    gravity, h = jnp.asarray([0.0, -9.81], case.load.dtype), jnp.full(WORLDS, 1e-3, case.load.dtype)

    def found(state: Any, h: Any, load: Any, counted: Any) -> Any:
        return gradient(gravity, h, floats(state), load, state, jnp.asarray(counted, load.dtype))

    clean = found(case.state, h, case.load, OTHERS)
    assert all(np.asarray(x)[OTHERS].any() for x in (clean[1], clean[3])) and clean[0].any()
    faults = [
        (poisoned(case.state), h, case.load),
        (case.state, h.at[BAD].set(jnp.nan), case.load),
        (case.state, h, case.load.at[BAD].set(jnp.nan)),
    ]
    if case.solver is not mpm:  # in MPM a fault belongs to a particle, so no world waits for a reset
        waiting = case.state.status.at[BAD].set(int(Status.NONFINITE))
        faults.append((case.state.replace(status=waiting), h, case.load))
    for state, times, load in faults:
        shared, *own = found(state, times, load, np.ones(WORLDS))
        np.testing.assert_array_equal(shared, clean[0])
        for a, b in zip(jax.tree.leaves(own), jax.tree.leaves(clean[1:]), strict=True):
            np.testing.assert_array_equal(a[OTHERS], b[OTHERS])
            assert not np.asarray(a)[BAD].any()


def test_a_reset_says_what_does_not_fit(case: Case):
    for mask in (np.ones(2, bool), np.ones(3, int), None):
        with pytest.raises(ValueError, match=r"reset needs \(3,\) of bool"):
            case.solver.reset(case.params, case.state, mask, case.state)
    fewer = jax.tree.map(lambda x: x[:2], case.state)
    with pytest.raises(ValueError, match="start has other shapes than state"):
        case.solver.reset(case.params, case.state, jnp.ones(3, bool), fewer)
    half = jax.tree.map(lambda x: x.astype(jnp.float32) if x.dtype == jnp.float64 else x, case.state)
    with pytest.raises(TypeError, match="nothing is cast silently"):
        case.solver.reset(case.params, case.state, jnp.ones(3, bool), half)
    with pytest.raises(TypeError):
        case.solver.reset(case.params, case.state, jnp.ones(3, bool), "start")


def test_a_bit_of_another_solver_is_reported_too(case: Case):
    for bit in Status:
        with pytest.raises(StateError, match=f"world 0: {bit.name}: ."):
            case.solver.check(case.params, case.state.replace(status=jnp.full(WORLDS, int(bit), jnp.uint32)))


def test_in_mpm_a_fault_stops_one_particle():
    """The other particles move on, and so does the whole world once the particle is repaired."""
    case = of_mpm(jnp.float64)
    state = case.state.replace(v=case.state.v.at[BAD, 3].set(jnp.nan))
    after = mpm.step(case.params, state, case.load)
    assert np.asarray(after.status).tolist() == [0, int(Status.NONFINITE), 0]
    moved = np.asarray((after.x != state.x).any(-1)[BAD])
    assert not moved[3] and np.delete(moved, 3).all()


def test_a_crowd_that_overflows_says_how_many_neighbours_there_were():
    case = of_sph(jnp.float64)
    params = case.params.replace(timestep=1e3)
    crowd = sph.init(case.params, 0.3 + 0.01 * (case.state.x - 0.3), max_neighbors=8)
    after = sph.step(params, crowd.replace(v=jnp.full_like(crowd.v, 9e9)))
    assert np.asarray(after.status).tolist() == [int(Status.NONFINITE | Status.CFL | Status.NEIGHBOR_OVERFLOW)] * 3
    assert (after.most_neighbors > 8).all()


def test_densities_of_an_idle_world_are_not_renewed():
    case = of_sph(jnp.float64)
    densities = [1e3, jnp.nan, 1e3], [1e3, 1e3, 1e3]
    renewed, good = (sph.renew(case.params.replace(density=jnp.array(d)), case.state) for d in densities)
    same(renewed, case.state, BAD)
    same(renewed, good, OTHERS)


def test_a_reset_passes_the_gradient_of_what_it_takes(case: Case):
    mask = jnp.arange(WORLDS) == BAD

    def loss(state: list[Any], start: list[Any]) -> Any:
        tree = jax.tree.structure(case.state)
        put = lambda values: tree.unflatten(  # noqa: E731
            [next(values) if jnp.issubdtype(x.dtype, jnp.floating) else x for x in jax.tree.leaves(case.state)]
        )
        return sum(x.sum() for x in floats(case.solver.reset(case.params, put(iter(state)), mask, put(iter(start)))))

    by_state, by_start = jax.jit(jax.grad(loss, argnums=(0, 1)))(floats(case.state), floats(case.state))
    for a, b in zip(by_state, by_start, strict=True):
        assert (np.asarray(a)[OTHERS] == 1).all() and not np.asarray(a)[BAD].any()
        assert (np.asarray(b)[BAD] == 1).all() and not np.asarray(b)[OTHERS].any()


def test_one_status_for_all():
    assert fphys.Status is worlds.Status is mpm.Status is sph.Status is fem.Status is pbd.Status is rod.Status
    assert sorted(int(bit) for bit in Status) == [1 << k for k in range(len(Status))]


def test_kernels_have_the_same_bits():
    """Kernels import nothing from fphys, so they define the bits again."""
    found = {
        (name, int(value))
        for path in (Path(__file__).parents[1] / "kernels").rglob("*.py")
        for name, value in re.findall(r"^([A-Z_]+) = wp\.constant\((?:wp\.uint32\()?(\d+)", path.read_text(), re.M)
        if name in Status.__members__
    }
    assert {name for name, _ in found} >= {"NONFINITE", "BADCTRL", "OOB", "CFL", "INVERTED", "UNCONVERGED"}
    assert all(Status[name] == value for name, value in found)
