"""A step of the material point method against NumPy, precisions, worlds, and what is refused."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.particles import mpm

from . import plain_mpm
from .mpm_scenes import MATERIALS, scene

STEPS = 12


def run(params: mpm.Params, state: mpm.State, steps: int, **given: Any) -> mpm.State:
    return jax.jit(lambda s: jax.lax.fori_loop(0, steps, lambda _, s: mpm.step(params, s, **given), s))(state)


@functools.cache
def both(name: str, dim: int, contact: str) -> tuple[mpm.State, mpm.State]:
    """Many steps, ours and NumPy's."""
    params, state = scene(name, dim, worlds=2, contact=contact)
    rng = np.random.default_rng(1)
    force = 0.1 * rng.normal(size=state.x.shape)
    muscle = 50.0 * rng.normal(size=(1, 1, 3, 3))
    plain = state
    for _ in range(STEPS):
        x, v, c, f, history = plain_mpm.step(params, plain, force[0], muscle[0])
        plain = plain.replace(x=x, v=v, C=c, F=f, history=history)
    return run(params, state, STEPS, force=jnp.asarray(force[:1]), actuation=jnp.asarray(muscle)), plain


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("name", [*MATERIALS, "all"])
def test_a_step_is_that_of_numpy(name: str, dim: int):
    ours, plain = both(name, dim, "slip")
    for field in ("x", "v", "C", "F", "history"):
        wanted = getattr(plain, field)
        scale = max(np.abs(wanted).max(), 1e-3)
        np.testing.assert_allclose(getattr(ours, field), wanted, rtol=0, atol=1e-9 * scale, err_msg=field)
    assert not ours.status.any()


@pytest.mark.parametrize("contact", ["sticky", "separate", "open"])
def test_a_wall_is_that_of_numpy(contact: str):
    ours, plain = both("corotated", 3, contact)
    np.testing.assert_allclose(ours.v, plain.v, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", [*MATERIALS])
def test_float32(name: str):
    params, state = scene(name, 3)
    params = params.replace(gravity=(1.0, -2.0, -9.8))
    single = jax.tree.map(lambda x: x.astype(np.float32) if x.dtype == float else x, state)
    ours, wanted = run(params, single, STEPS), run(params, state, STEPS)
    assert ours.x.dtype == np.float32
    np.testing.assert_allclose(ours.x, wanted.x, rtol=0, atol=2e-6)
    np.testing.assert_allclose(ours.v, wanted.v, rtol=0, atol=5e-4)


def test_many_worlds_are_those_alone():
    params, state = scene("all", 3, worlds=130)  # enough for two threads
    together = mpm.step(params, state)
    for world in (0, 64, 129):
        alone = mpm.step(params, jax.tree.map(lambda x, w=world: x[w : w + 1], state))
        for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
            np.testing.assert_array_equal(a[0], b[world])


def test_steps_repeat_bitwise():
    params, state = scene("all", 2, worlds=130)
    first, second = run(params, state, 5), run(params, state, 5)
    assert all((a == b).all() for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True))


def test_checkpoint_gives_the_gradient_of_full():
    params, state = scene("all", 3)

    def loss(x: Any, adjoint: Any) -> Any:
        step = lambda s, _: (mpm.step(params, s), None)  # noqa: E731
        final, _ = fphys.scan(step, state.replace(x=x), jnp.arange(9), adjoint=adjoint)
        return (final.x**2).sum()

    slope = jax.jit(jax.grad(loss), static_argnums=1)
    full = slope(state.x, fphys.Full())
    np.testing.assert_allclose(slope(state.x, fphys.Checkpoint(every=4)), full, rtol=1e-12)


@pytest.mark.parametrize("walls", ["slip", "periodic"])
def test_a_gradient_runs_no_step_again(walls: str):
    """Besides the step, whose end the loss asks for, there is one call: its adjoint."""
    params, state = scene("all", 2)
    params = params.replace(walls=mpm.Walls(walls))
    slope = jax.jit(jax.grad(lambda x: (mpm.step(params, state.replace(x=x)).x ** 2 * state.v).sum()))
    assert str(slope.lower(state.x).compile().as_text()).count(" custom-call(") == 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"positions": np.zeros((2, 5, 3))}, r"must be \(num_worlds, n, 2\)"),
        ({"positions": np.full((1, 5, 2), 1.2)}, "outside the domain"),
        ({"positions": np.full((1, 5, 2), np.nan)}, "outside the domain"),
        ({"velocities": np.zeros((1, 4, 2))}, "one row for each particle"),
        ({"material": [0, 1, 0, 0, 0]}, "0 to 0"),
        ({"material": [0, 0]}, "must fit"),
        ({"params": {"timestep": 0.1}}, "Courant|cells a step"),
        ({"params": {"gravity": np.zeros(3)}}, "gravity has shape"),
        ({"params": {"walls": mpm.Walls("sticki")}}, "there is no contact 'sticki'"),
        ({"params": {"walls": mpm.Walls(("slip", "slip"))}}, "4 faces"),
        ({"params": {"parts": 2}}, "does not divide 5 particles"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], says: str):
    params = mpm.Params(mpm.Corotated(1000.0, 1e4, 0.3), 1e-3, cell=1 / 8, shape=(8, 8))
    with pytest.raises(ValueError, match=says):
        mpm.step(*begun(params, change))


def test_a_mixture_of_precisions_is_refused():
    params = mpm.Params(mpm.Corotated(1000.0, 1e4, 0.3), np.full(1, 1e-3, np.float32), cell=1 / 8, shape=(8, 8))
    with pytest.raises(TypeError, match="timestep is float32"):
        mpm.step(params, mpm.init(params, np.full((1, 5, 2), 0.5)))
    with pytest.raises(TypeError, match="velocities is float32"):
        mpm.init(params, np.full((1, 5, 2), 0.5), np.zeros((1, 5, 2), np.float32))


def begun(params: mpm.Params, change: dict[str, Any]) -> tuple[mpm.Params, mpm.State]:
    params = params.replace(**change.get("params", {}))
    given = {"positions": np.full((1, 5, 2), 0.5)} | {k: v for k, v in change.items() if k != "params"}
    return params, mpm.init(params, **given)


@pytest.mark.parametrize(("factor", "passes"), [(0.9, True), (1.1, False), (10.0, False)])
def test_the_courant_limit(factor: float, passes: bool):
    """Fault 7: c = sqrt((lambda + 2 mu) / rho), half a cell a step."""
    material = mpm.NeoHookean(1000.0, 1e4, 0.3)
    speed = np.sqrt(1e4 * 0.7 / (1.3 * 0.4) / 1000.0)
    params = mpm.Params(material, factor * 0.5 / 8 / speed, cell=1 / 8, shape=(8, 8))
    if passes:
        mpm.init(params, np.full((1, 5, 2), 0.5))
    else:
        with pytest.raises(ValueError, match=r"Take 0\.017 s at most"):
            mpm.init(params, np.full((1, 5, 2), 0.5))


@pytest.mark.parametrize("dim", [2, 3])
def test_the_limit_by_viscosity(dim: int, monkeypatch: pytest.MonkeyPatch):
    """nu dt / dx^2: random motion dies away below the limit, also beside sound at its own; a third above it grows."""
    step, cell, rng = 1e-4, 1 / 32, np.random.default_rng(0)
    line = (np.arange(12) + 0.5) * cell / 2 + 0.3
    x = np.stack(np.meshgrid(*[line] * dim, indexing="ij"), -1).reshape(1, -1, dim)
    v = rng.normal(0.0, 1e-3 * cell / step, x.shape)

    def moving(share: float) -> float:
        liquid = mpm.Liquid(1e3, 1e3 * (0.49 * cell / step) ** 2, 7.0, 1e3 * share * 0.35 * cell**2 / step)
        params = mpm.Params(liquid, step, (0.0,) * dim, cell=cell, shape=(32,) * dim)
        state = mpm.init(params, x, v)
        final = jax.jit(lambda s: jax.lax.fori_loop(0, 60, lambda _, s: mpm.step(params, s), s))(state)
        return float(jnp.abs(final.v).mean() / np.abs(v).mean())

    assert moving(0.99) < 0.2
    with pytest.raises(ValueError, match=r"viscosity spreads momentum.* Take 9.1e-05 s at most"):
        moving(1.1)
    monkeypatch.setattr("fphys.particles.mpm_arguments.DIFFUSION", 1.0)
    assert not moving(1.33) < 1.0


def test_a_large_world_in_parts_is_that_in_one(monkeypatch: pytest.MonkeyPatch):
    """Cut into two parts or three: the same but for the order of the sums, and so is its gradient."""
    params, state = scene("all", 3, n=12288 * 2)
    monkeypatch.setenv("FPHYS_THREADS", "2")
    found = []
    for parts in (1, 2, 0):

        def loss(x: Any, young: Any, parts: int = parts) -> Any:
            first, *rest = params.materials
            given = params.replace(material=(first.replace(young=young), *rest), parts=parts)
            after = mpm.step(given, state.replace(x=x))
            return (after.v**2).sum(), after

        (_, after), grads = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(state.x, jnp.asarray(1e4))
        found.append(jax.tree.leaves((after, grads)))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-10 * max(1.0, float(np.abs(a).max())))


@pytest.mark.parametrize("parts", [1, 4])
def test_a_number_of_parts_gives_the_same_bits_with_any_number_of_threads(parts: int, monkeypatch: pytest.MonkeyPatch):
    """States after many steps, and their gradients; in parts of another number the sums round otherwise."""
    params, state = scene("all", 3, n=240)
    found = []
    for threads, cut in (("1", parts), ("2", parts), ("3", parts), ("1", 3)):
        monkeypatch.setenv("FPHYS_THREADS", threads)

        def loss(x: Any, young: Any, cut: int = cut) -> Any:
            first, *rest = params.materials
            given = params.replace(material=(first.replace(young=young), *rest), parts=cut)
            final = jax.lax.scan(lambda s, _: (mpm.step(given, s), None), state.replace(x=x), None, length=3)[0]
            return (final.v**2).sum(), final

        _, pull, final = jax.vjp(loss, state.x, jnp.asarray(1e4), has_aux=True)
        found.append(jax.tree.leaves((final, pull(jnp.ones(())))))
    for other in found[1:3]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(found[0], found[3], strict=True))
