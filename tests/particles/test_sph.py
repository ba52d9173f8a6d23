"""SPH steps against plain sums over all pairs; transforms; what is the same bit for bit."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import Checkpoint, Full, scan
from fphys.particles import sph
from fphys.particles.neighbors import parted
from fphys.testing import check_transforms

from ..compiled import as_users
from .sph_scenes import lattice, pool, run

step = jax.jit(sph.step)


def wendland(r: np.ndarray, h: float, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """W and W' / r."""
    q = np.minimum(r / h, 2)
    scale = 7 / (4 * np.pi * h**2) if dim == 2 else 21 / (16 * np.pi * h**3)
    return scale * (1 - q / 2) ** 4 * (2 * q + 1), -5 * scale / h**2 * (1 - q / 2) ** 3


def plain_step(params: sph.Params, state: sph.State) -> dict[str, np.ndarray]:
    """One step of world 0 by sums over all pairs."""
    p = {k: float(np.ravel(getattr(params, k))[0]) for k in ("timestep", "sound_speed", "density", "viscosity")}
    p |= {k: float(np.ravel(getattr(params, k))[0]) for k in ("artificial", "diffusion", "repulsion")}
    dt, c, rho0 = p["timestep"], p["sound_speed"], p["density"]
    g = np.zeros(state.x.shape[-1]) if np.ndim(params.gravity) == 0 else np.asarray(params.gravity)[0]
    x, v, rho, kind = (np.asarray(getattr(state, k))[0] for k in ("x", "v", "rho", "kind"))
    dim, h = x.shape[1], params.h
    mass, b, fluid = rho0 * params.spacing**dim, rho0 * c**2 / params.exponent, kind == 0
    d = x[:, None] - x[None]
    for axis, ends in enumerate(params.periodic or ()):
        if ends is not None:
            d[..., axis] -= (ends[1] - ends[0]) * np.round(d[..., axis] / (ends[1] - ends[0]))
    r = np.sqrt((d**2).sum(-1))
    w, slope = wendland(r, h, dim)

    pressure = b * ((rho / rho0) ** params.exponent - 1)
    wf = w * fluid
    total = np.maximum(wf.sum(1), 1e-300)
    wet = wf.sum(1) > 0
    wall_p = ((wf * pressure).sum(1) + ((d @ g) * wf * rho).sum(1)) / total
    pressure = np.where(fluid, pressure, np.where(wet, np.maximum(wall_p, 0), 0))
    density = np.where(fluid, rho, rho0 * (pressure / b + 1) ** (1 / params.exponent))
    beyond = np.where((fluid | ~wet)[:, None], v, 2 * v - wf @ v / total[:, None])

    u = beyond[:, None] - beyond[None]
    both = slope / (density[:, None] * density[None])
    rough = (kind[:, None] < 2) & (kind[None] < 2)
    along = p["artificial"] * h * c * rho0 * (u * d).sum(-1) / (r**2 + 0.01 * h**2) * rough
    close = np.maximum(1 - (r / params.spacing) ** 2, 0) * (fluid[:, None] != fluid[None])
    push = p["repulsion"] * rho0 * c**2 * close**2
    force = (both * (along - pressure[:, None] - pressure[None] - push))[..., None] * d
    force = force + (2 * p["viscosity"] * both * rough)[..., None] * u
    v_new = v + dt * np.where(fluid[:, None], mass * force.sum(1) + g, 0)

    u = v_new[:, None] - v_new[None]
    spread = density[None] - density[:, None] + rho0 / c**2 * (d @ g)
    spread = 2 * p["diffusion"] * h * c * spread * (fluid[:, None] & fluid[None])
    rate = mass * (slope / density[None] * (density[:, None] * (u * d).sum(-1) - spread)).sum(1)
    rho_new = np.where(fluid, rho + dt * rate, density)
    return {"x": x + dt * v_new, "v": v_new, "rho": rho_new}


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_step_is_the_plain_sum_over_pairs(dim: int, dtype: str):
    params, state = pool(dtype, dim)
    got = step(params, state)
    wanted = plain_step(*pool("float64", dim))
    for name, value in wanted.items():
        tol = 1e-12 if dtype == "float64" else 2e-5
        assert np.abs(np.asarray(getattr(got, name))[0] - value).max() <= tol * max(1, np.abs(value).max()), name


def test_a_periodic_step_is_the_plain_sum_over_pairs():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (1, 100, 2))
    params = sph.Params(0.1, 1e-3, 20.0, viscosity=1.0, diffusion=0.1, periodic=((0.0, 1.0), (0.0, 1.0)))
    state = sph.init(params, x, 0.1 * rng.standard_normal(x.shape), max_neighbors=99)
    got, wanted = step(params, state), plain_step(params, state)
    assert np.abs(np.asarray(got.x[0]) - wanted["x"] % 1.0).max() < 1e-13
    assert np.abs(np.asarray(got.rho[0]) / wanted["rho"] - 1).max() < 1e-12


def test_transforms():
    params, state = pool(worlds=2, dim=2)
    index = np.r_[:20, 40:50]
    few = {k: getattr(state, k)[:, index] for k in ("x", "v", "rho", "p", "shift", "kind")}
    state = state.replace(**few)
    rough = params.viscosity * np.array([1.0, 1.1])

    def one(x: Any, v: Any, rho: Any, viscosity: Any, gravity: Any) -> Any:
        new = step(params.replace(viscosity=viscosity, gravity=gravity), state_of(x, v, rho))
        return new.x, new.v, new.rho, new.p

    def state_of(x: Any, v: Any, rho: Any) -> sph.State:
        worlds = x.shape[0]
        kind = jnp.broadcast_to(state.kind[:1], rho.shape)
        zeros = {"time": jnp.zeros(worlds), "shift": jnp.zeros_like(x), "most_neighbors": jnp.zeros(worlds, jnp.int32)}
        return state.replace(x=x, v=v, rho=rho, p=rho, kind=kind, status=jnp.zeros(worlds, jnp.uint32), **zeros)

    args = (state.x, state.v, state.rho, rough, params.gravity)
    check_transforms(one, args, max_patterns=1, batches=(2,), rtol=1e-9)


@pytest.mark.parametrize("dim", [2, 3])
def test_the_same_bits_every_time_and_in_every_company(dim: int):
    params, state = pool(dim=dim, worlds=3)
    first, again = run(params, state, 20), run(params, state, 20)
    alone = run(params, jax.tree.map(lambda leaf: leaf[1:2], state), 20)
    for name in ("x", "v", "rho"):
        assert (getattr(first, name) == getattr(again, name)).all()
        assert (getattr(first, name)[1] == getattr(alone, name)[0]).all()


@pytest.mark.parametrize("method", ["wcsph", "dfsph"])
def test_one_large_world_has_the_same_bits_on_two_threads(method: str, monkeypatch: pytest.MonkeyPatch):
    """Its rows are cut in two; steps and gradients do not notice."""
    rng = np.random.default_rng(0)
    dx = 0.01
    x = (lattice([0, 0], [0.96, 0.96], dx) + 0.1 * dx * rng.standard_normal((96 * 96, 2)))[None].astype("float32")
    params = sph.Params(dx, 5e-5, 20.0, gravity=np.array([0.0, -9.81]), viscosity=1.0, artificial=0.02, method=method)
    kind = np.where(x[0, :, 1] < 3 * dx, sph.WALL, sph.FLUID)
    state = sph.init(params, x, (0.1 * rng.standard_normal(x.shape)).astype("float32"), kind)
    found = []
    for threads in (1, 2):
        monkeypatch.setenv("FPHYS_THREADS", str(threads))
        jax.clear_caches()  # what was traced is cut as it was
        assert len(parted(state.rho)) == threads

        def energy(x: Any, v: Any) -> Any:
            new = sph.step(params, sph.step(params, state.replace(x=x, v=v)))
            return jnp.sum(new.v**2) + jnp.sum(new.rho**2) / 1e6, new

        (_, new), grads = as_users(jax.value_and_grad(energy, argnums=(0, 1), has_aux=True))(state.x, state.v)
        found.append([*grads, new.x, new.v, new.rho, new.p])
    assert all((one == two).all() for one, two in zip(*found))
    jax.clear_caches()


def test_shifted_pools_are_the_same_pool():
    params, state = pool()
    base = run(params, state, 20)
    for shift in (-0.5, 64.0):
        moved = run(params, state.replace(x=state.x + shift), 20)
        assert np.abs(np.asarray(moved.x - shift - base.x)).max() < 1e-10


def test_momentum_is_kept_to_rounding():
    """Without walls or gravity the fluid's; with walls, all forces cancel."""
    params, state = pool(gravity=np.zeros(2))
    force = np.asarray(sph.forces(params, state))
    assert np.abs(force.sum(1)).max() < 1e-13 * np.abs(force).sum(1).max()
    free = jax.tree.map(lambda leaf: leaf, state).replace(kind=jnp.zeros_like(state.kind), walls=False)
    after = run(params, free, 100)
    gained = np.asarray((after.v - free.v).sum(1))
    assert np.abs(gained).max() < 1e-12 * float(jnp.abs(after.v).sum())


def test_gravity_may_be_a_tuple():
    params, _ = pool()
    given = tuple(map(float, np.ravel(params.gravity)))
    assert sph.limit(params.replace(gravity=given)) == sph.limit(params)


def test_the_limit_knows_the_fastest_particle():
    params, state = pool()
    params = params.replace(timestep=0.95 * sph.limit(params))
    fast = state.replace(v=state.v.at[0, 0, 0].set(30.0))
    assert step(params, fast).status.tolist() == [fphys.Status.CFL, 0]
    with pytest.raises(ValueError, match="Courant"):
        sph.init(params, state.x, fast.v)


def test_walls_move_along_their_velocity():
    params, state = pool()
    wall = np.asarray(state.kind[0]) > 0
    given = jnp.ones_like(state.x)
    got = step(params, state, wall_velocity=given)
    assert np.allclose((got.x - state.x)[:, wall], 1e-3)
    assert (got.v[:, ~wall] != 1).all()


def test_checkpoint_is_full():
    params, state = pool(worlds=1)

    def end(v: Any, adjoint: Any) -> Any:
        start = state.replace(v=v)
        last, _ = scan(lambda s, _: (step(params, s), None), start, jnp.arange(7), adjoint=adjoint)
        return (last.x**2).sum()

    full, cut = (jax.jit(jax.grad(end), static_argnums=1)(state.v, a) for a in (Full(), Checkpoint(every=3)))
    assert np.abs(np.asarray(full - cut)).max() <= 1e-12 * float(jnp.abs(full).max())


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"positions": np.zeros((4, 2))}, ValueError, "num_worlds, particle, dim"),
        ({"positions": np.zeros((1, 4, 2), int)}, TypeError, "float32 or float64"),
        ({"velocities": np.zeros((1, 3, 2))}, ValueError, "velocities has shape"),
        ({"material": [3, 0, 0, 0]}, ValueError, "SLIP_WALL"),
        ({"params": sph.Params(0.0, 1e-3, 10.0)}, ValueError, "spacing"),
        ({"params": sph.Params(0.1, 1e-3, -1.0)}, ValueError, "sound_speed is -1.0: must be finite and positive"),
        ({"params": sph.Params(0.1, np.nan, 10.0)}, ValueError, "timestep"),
        ({"params": sph.Params(0.1, np.ones(3), 10.0)}, ValueError, "timestep has shape"),
        ({"params": sph.Params(0.1, 1e-3, 10.0, periodic=(None,))}, ValueError, "periodic has 1 axes"),
        ({"params": sph.Params(0.1, 1e-3, 10.0, periodic=((0.0, 0.5), None))}, ValueError, "three times the radius"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict, error: type, text: str):
    given = {"params": sph.Params(0.1, 1e-3, 10.0), "positions": np.random.default_rng(0).uniform(size=(1, 4, 2))}
    with pytest.raises(error, match=text):
        sph.init(**given | changes)
