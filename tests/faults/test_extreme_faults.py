"""Fault 43: a held world adds nothing to a gradient, in particular to that of shared parameters."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.particles import mpm, sph

WORLDS = 64
INTEGRATORS = {
    "Euler": mujoco.mjtIntegrator.mjINT_EULER,
    "implicitfast": mujoco.mjtIntegrator.mjINT_IMPLICITFAST,
    "RK4": mujoco.mjtIntegrator.mjINT_RK4,
}
CASES = [(name, integrator, dtype) for name in ("ant", "humanoid", "franka") for integrator in INTEGRATORS
         for dtype in ("float32", "float64")]  # fmt: skip
QUICK = [("ant", "RK4", "float32"), ("humanoid", "implicitfast", "float32"), ("franka", "Euler", "float64")]


def extreme(model: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """In every world one thing is far too large: all positions, all velocities, one of them, or the controls."""
    s, state = model.structure, fphys.init(model, WORLDS)
    qpos, qvel = np.array(state.qpos), 0.3 * rng.normal(size=state.qvel.shape)
    ctrl = rng.uniform(-1, 1, (WORLDS, s.nu))
    for world in range(WORLDS):
        size = 10 ** rng.uniform(1, 9.9)
        match rng.integers(6):
            case 0:
                qvel[world] = size * rng.normal(size=s.nv)
            case 1:
                qpos[world] += size * rng.normal(size=s.nq)
            case 2:
                qvel[world, rng.integers(s.nv)] = size
            case 3:
                qpos[world, rng.integers(s.nq)] = size
            case 4:
                ctrl[world] = size * rng.normal(size=s.nu)
            case 5:
                qvel[world] = size * rng.normal(size=s.nv)
                qpos[world] += size * rng.normal(size=s.nq)
    real = state.qpos.dtype
    return state.replace(qpos=jnp.asarray(qpos, real), qvel=jnp.asarray(qvel, real)), jnp.asarray(ctrl, real)


def finite(tree: Any) -> bool:
    leaves = [x for x in jax.tree.leaves(tree) if x.dtype != jax.dtypes.float0]
    return all(bool(jnp.isfinite(x).all()) for x in leaves)


@pytest.mark.parametrize(("name", "integrator", "dtype"), CASES)
def test_extreme_states_have_finite_gradients(name: str, integrator: str, dtype: str, full: bool):
    """With respect to the shared model, the states and the controls; in full size also over five steps."""
    if not full and (name, integrator, dtype) not in QUICK:
        pytest.skip("full size only")
    spec = mujoco.MjSpec.from_file(str(fphys.asset(name)))
    spec.option.integrator = INTEGRATORS[integrator]
    model, rng = fphys.load(spec, dtype=dtype), np.random.default_rng(0)

    def loss(model: Any, state: Any, ctrl: Any, steps: int) -> Any:
        after = jax.lax.fori_loop(0, steps, lambda _, s: fphys.step(model, s, ctrl), state)
        return jnp.sum(0.3 * after.qpos) + jnp.sum(0.7 * after.qvel), after.status

    for steps in (1, 5) if full else (1,):
        gradient = jax.jit(
            jax.grad(lambda *args: loss(*args, steps), argnums=(0, 1, 2), has_aux=True, allow_int=True)  # noqa: B023
        )
        held = 0
        for _ in range(10_000 // (2 * len(CASES) * WORLDS) + 1 if full else 2):
            found, status = gradient(model, *extreme(model, rng))
            assert finite(found)
            held += int((status & fphys.Status.NONFINITE).astype(bool).sum())
        assert held, "some states must be extreme enough"


@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
def test_a_world_that_is_held_in_the_end_adds_exactly_nothing(integrator: str):
    """Shared parameters get, bit for bit, the same gradient as if that world had been held from the start."""
    spec = mujoco.MjSpec.from_file(str(fphys.asset("ant")))
    spec.option.integrator = INTEGRATORS[integrator]
    model, rng = fphys.load(spec, dtype="float32"), np.random.default_rng(1)
    state = fphys.init(model, 8, qvel=0.3 * rng.normal(size=(8, model.structure.nv)))
    ctrl = jnp.asarray(rng.uniform(-1, 1, (8, model.structure.nu)), jnp.float32)

    @jax.jit
    @functools.partial(jax.grad, has_aux=True)
    def gradient(mass: Any, state: Any) -> Any:
        after = fphys.step(model.replace({"body.mass": mass}, derived="frozen"), state, ctrl)
        return jnp.sum(after.qvel), after.status

    from_the_start = state.replace(status=state.status.at[3].set(int(fphys.Status.NONFINITE)))
    expected, _ = gradient(model.body.mass, from_the_start)
    assert expected.any()
    held = 0
    for speed in np.logspace(3, 9, 49):  # from overflow only in the last stage to overflow at once
        found, status = gradient(model.body.mass, state.replace(qvel=state.qvel.at[3].multiply(float(speed))))
        assert not np.delete(status, 3).any()
        if status[3] == int(fphys.Status.NONFINITE):
            held += 1
            np.testing.assert_array_equal(found, expected)
    assert held > 20


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_hinge_that_turns_too_fast_is_held(dtype: str):
    """It is held before squares and products of its speed, which a backward pass forms, overflow."""
    body = "<body><joint axis='1 2 3' damping='.1'/><geom type='capsule' size='.05 .2' pos='.1 .2 .3'/></body>"
    option = "<option integrator='RK4'><flag contact='disable'/></option>"
    model = fphys.load(f"<mujoco>{option}<worldbody>{body}</worldbody></mujoco>", dtype=dtype)
    speeds, limit = np.logspace(4, 9.99, 200), 2.7e6 if dtype == "float32" else 1e9

    @functools.partial(jax.grad, argnums=(0, 1), has_aux=True)
    def gradient(mass: Any, qvel: Any) -> Any:
        state = fphys.init(model, 200).replace(qvel=qvel)
        for _ in range(3):
            state = fphys.step(model.replace({"body.mass": mass}, derived="frozen"), state)
        return jnp.sum(state.qpos**2) + jnp.sum(state.qvel**2), state.status

    found, status = jax.jit(gradient)(model.body.mass, jnp.asarray(speeds[:, None], dtype))
    held = np.asarray(status) != 0
    assert finite(found) and not held[speeds < limit].any()
    assert held[speeds > limit].all() or dtype == "float64"


@functools.cache
def fluid(dtype: str) -> tuple[Any, Any, Any]:
    """Three drops, and the gradient of two steps by shared parameters, states and forces."""
    line = np.arange(8) * 0.1
    x = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(1, -1, 2).astype(dtype)
    x = np.repeat(x + 0.003 * np.random.default_rng(0).normal(size=x.shape).astype(dtype), 3, 0)
    params = sph.Params(0.1, 1e-3, 10.0, viscosity=0.1, gravity=(0.0, -9.81))

    @functools.partial(jax.grad, argnums=(0, 1, 2), has_aux=True, allow_int=True)
    def gradient(values: Any, state: Any, force: Any) -> Any:
        for _ in range(2):
            state = sph.step(params.replace(**values), state, force)
        return jnp.sum(0.3 * state.v + state.x) + 1e-3 * jnp.sum(state.rho), state.status

    values = {name: jnp.asarray(getattr(params, name), dtype) for name in ("density", "viscosity", "sound_speed")}
    return sph.init(params, x), values, jax.jit(gradient)


@pytest.mark.parametrize("bad", ["density 0", "density -1", "fast", "far", "force"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_fluid_that_is_held_adds_nothing(bad: str, dtype: str):
    """An impossible state, or a step that leads to one, counts as if the world had been held from the start."""
    state, values, gradient = fluid(dtype)
    force = jnp.zeros_like(state.x)
    held = state.replace(status=state.status.at[1].set(int(fphys.Status.NONFINITE)))
    wave = jnp.asarray(np.sin(np.arange(128.0)), dtype).reshape(64, 2)
    wrong = {
        "density 0": state.replace(rho=state.rho.at[1, 5].set(0.0)),
        "density -1": state.replace(rho=state.rho.at[1].set(-1.0)),
        "fast": state.replace(v=state.v.at[1].set(9e9 * wave)),
        "far": state.replace(x=state.x.at[1, 3].set(9e9), rho=state.rho.at[1, 4].set(1e-30)),
        "force": state,
    }[bad]
    found, status = gradient(values, wrong, force.at[1, 2].set(1e9) if bad == "force" else force)
    assert finite(found)
    if bad.startswith("density"):
        assert status.tolist() == [0, int(fphys.Status.NONFINITE), 0]
        expected, _ = gradient(values, held, force)
        for ours, alone in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(ours, alone)


MATERIALS = {
    "corotated": mpm.Corotated(1e3, 1e4, 0.3),
    "neo-hookean": mpm.NeoHookean(1e3, 1e4, 0.3),
    "sand": mpm.Sand(1e3, 1e4, 0.3),
    "snow": mpm.Snow(1e3, 1e4, 0.3),
    "von-mises": mpm.VonMises(1e3, 1e4, 0.3, 100.0),
    "mohr-coulomb": mpm.MohrCoulomb(1e3, 1e4, 0.3),
}


@pytest.mark.parametrize("parts", [0, 2])
@pytest.mark.parametrize("name", MATERIALS)
def test_extreme_particles_have_finite_gradients(name: str, parts: int):
    """MPM in float32: one world has velocities, strains or forces far too large, alone (``parts``) or of three.

    Its status reports it, or its gradient is right. A loss without the reported worlds has a gradient without them.
    """
    params = mpm.Params(MATERIALS[name], 1e-3, (0.0, -9.81), cell=1 / 16, shape=(16, 16), parts=parts)
    rng, dtype, worlds = np.random.default_rng(0), jnp.float32, 1 if parts else 3
    good = mpm.init(params, np.repeat(rng.uniform(0.3, 0.6, (1, 40, 2)), worlds, 0).astype(dtype))
    good = good.replace(v=jnp.asarray(0.1 * rng.normal(size=good.v.shape), dtype))
    which = worlds // 2

    @jax.jit
    @functools.partial(jax.grad, argnums=(0, 1, 2), allow_int=True)
    def gradient(young: Any, state: Any, force: Any) -> Any:
        changed = params.replace(material=params.material.replace(young=young))
        for _ in range(3):
            state = mpm.step(changed, state, force)
        return jnp.sum(jnp.where((state.status == 0)[:, None, None], state.v + state.x, 0))

    young, none = jnp.asarray(1e4, dtype), jnp.zeros_like(good.x)
    whole = np.asarray(gradient(young, good.replace(status=good.status.at[which].set(1)), none)[0])
    for exponent in range(2, 10):
        size = jnp.asarray(10.0**exponent, dtype)
        wrong = [
            good.replace(v=good.v.at[which].multiply(size)),
            good.replace(F=good.F.at[which].multiply(size)),
            good.replace(F=good.F.at[which, 0].set(size)),
            good.replace(F=good.F.at[which, 0, 0, 1].set(size)),
            good.replace(C=good.C.at[which, 0].set(size)),
            good.replace(C=good.C.at[which, :5, :2, :2].set(size * jnp.asarray(rng.normal(size=(5, 2, 2)), dtype))),
            good.replace(history=good.history.at[which, 0].set(size)),
            good,
        ]
        for k, state in enumerate(wrong):
            found = gradient(young, state, none.at[which].set(size) if k == 7 else none)
            assert finite(found), (exponent, k)
            after = mpm.step(params, state, none.at[which].set(size) if k == 7 else none)
            if k != 7 and after.status[which]:
                np.testing.assert_array_equal(found[0], whole)


@pytest.mark.parametrize("shape", ["thin", "needle", "rank 1"])
@pytest.mark.parametrize("name", MATERIALS)
def test_flat_particles_are_reported_or_have_gradients(name: str, shape: str):
    """MPM in float32: F with stretches up to 1e5 apart, and of rank 1, where rounding decides the determinant."""
    rng, worlds, dtype = np.random.default_rng(5), 100, jnp.float32
    params = mpm.Params(MATERIALS[name], 1e-4, (0.0, 0.0, -9.81), cell=1 / 8, shape=(8, 8, 8))
    state = mpm.init(params, np.repeat(rng.uniform(0.3, 0.6, (1, 6, 3)), worlds, 0).astype(dtype))
    first, last = (np.linalg.qr(rng.normal(size=(worlds, 3, 3)))[0] for _ in range(2))
    stretches = np.ones((worlds, 3))
    stretches[:, 1 if shape == "needle" else 2 :] = 10 ** rng.uniform(-5, -3, (worlds, 1))
    flat = first * stretches[:, None] @ last
    flat *= np.sign(np.linalg.det(flat))[:, None, None]
    if shape == "rank 1":
        flat = rng.normal(size=(worlds, 3, 1)) * rng.normal(size=(worlds, 1, 3))
    state = state.replace(F=state.F.at[:, 0].set(jnp.asarray(flat, dtype)))

    @jax.jit
    @functools.partial(jax.grad, argnums=(0, 1), has_aux=True, allow_int=True)
    def gradient(young: Any, state: Any) -> Any:
        changed = params.replace(material=params.material.replace(young=young))
        after = mpm.step(changed, mpm.step(changed, state))
        return jnp.sum(jnp.where((after.status == 0)[:, None, None], after.v + after.x, 0)), after.status

    found, status = gradient(jnp.asarray(1e4, dtype), state)
    assert finite(found)
    assert shape != "rank 1" or (status & fphys.Status.INVERTED).all()
