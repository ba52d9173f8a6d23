"""Numbers of each particle's own: a field of stiffness, density or friction instead of as many materials."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.particles import mpm
from fphys.testing import check_grads, check_transforms

from .mpm_scenes import MATERIALS, scene
from .test_mpm import run

N = 20
FIELDS = {"corotated": "young", "liquid": "viscosity", "sand": "friction", "von-mises": "density"}


def varied(name: str, worlds: int = 1, seed: int = 0) -> Any:
    """A field around the material's number."""
    number = getattr(MATERIALS[name], FIELDS[name])
    return number * jnp.asarray(np.random.default_rng(seed).uniform(0.7, 1.3, (worlds, N)))


def with_field(params: Any, name: str, field: Any) -> mpm.Params:
    return params.replace(material=params.material.replace(**{FIELDS[name]: field}))


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_is_as_many_materials(name: str):
    params, state = scene(name, 2, n=N)
    params = params.replace(transfer=mpm.AffineFlip(0.9))
    field = varied(name)
    each = tuple(params.material.replace(**{FIELDS[name]: x}) for x in field[0])
    ours = run(with_field(params, name, field), state, 12)
    other = run(params.replace(material=each), state.replace(material=jnp.arange(N, dtype=jnp.int32)[None]), 12)
    for key in ("x", "v", "C", "F", "history"):
        np.testing.assert_array_equal(getattr(ours, key), getattr(other, key))
    assert np.abs(ours.v - run(params, state, 12).v).max() > 1e-6


def test_fields_of_two_materials_in_parts_and_worlds():
    params, state = scene("corotated", 2, n=N, worlds=2)
    state = state.replace(material=jnp.broadcast_to(jnp.arange(N, dtype=jnp.int32)[None] % 2, (2, N)))
    soft, hard = varied("corotated", 2), varied("corotated", 2, seed=1) * 2
    both = params.replace(
        material=(MATERIALS["corotated"].replace(young=soft), MATERIALS["neo-hookean"].replace(young=hard[:1]))
    )
    together = run(both, state, 6)
    for world in range(2):
        own = (both.material[0].replace(young=soft[world : world + 1]), both.material[1])
        alone = jax.tree.map(lambda a, w=world: a[w : w + 1], state)
        for parts, bar in ((1, 0.0), (2, 1e-12)):
            found = run(params.replace(material=own, parts=parts, transfer=mpm.Apic()), alone, 6)
            np.testing.assert_allclose(found.v[0], together.v[world], rtol=0, atol=bar)
        flip = params.replace(material=own, transfer=mpm.AffineFlip(0.9))
        whole, cut = (run(flip.replace(parts=parts), alone, 6) for parts in (1, 2))
        np.testing.assert_allclose(whole.v, cut.v, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["corotated", "liquid", "von-mises"])
def test_the_gradient_by_every_particle(name: str):
    """Eight at once, and one at a time."""
    params, state = scene(name, 2, n=N)
    if name == "von-mises":
        params = params.replace(material=params.material.replace(strength=1e6))  # nothing yields
    field = varied(name) * (30 if name == "liquid" else 1)  # so viscous that it shows in eight steps

    def moved(factors: Any) -> Any:
        own = with_field(params.replace(transfer=mpm.AffineFlip(0.9)), name, field * factors)
        s = jax.lax.scan(lambda s, _: (mpm.step(own, s), None), state, None, length=8)[0]
        return s.x, s.v

    check_grads(moved, (jnp.ones_like(field),), tol=1e-6, directions=6)


def test_transforms():
    params, state = scene("corotated", 2, n=N, worlds=2)

    def step(field: Any, x: Any) -> Any:
        begun = jax.tree.map(lambda a: jnp.broadcast_to(a[:1], (x.shape[0], *a.shape[1:])), state).replace(x=x)
        after = mpm.step(with_field(params.replace(gravity=np.array([[1.0, -9.8]])), "corotated", field), begun)
        return after.x, after.v

    check_transforms(step, (varied("corotated", 2), state.x), max_patterns=2, batches=(2,), rtol=1e-9)


def test_a_field_that_cannot_be():
    """Of another shape, or of a number that is known, it is refused. If it is traced, its world is held."""
    params, state = scene("corotated", 2, n=N, worlds=2)
    with pytest.raises(ValueError, match=r"young has the shape \(1, 3\), there are 2 worlds of 20 particles"):
        mpm.step(with_field(params, "corotated", jnp.ones((1, 3))), state)
    wrong = varied("corotated", 2).at[1, 7].set(-1.0)
    with pytest.raises(ValueError, match=r"Corotated\.young is -1\.0: it must be above 0"):
        mpm.init(with_field(params, "corotated", wrong), state.x)
    after = jax.jit(lambda f: mpm.step(with_field(params, "corotated", f), state))(wrong)
    assert after.status.tolist() == [0, int(fphys.Status.BADPARAM)]
    np.testing.assert_array_equal(after.x[1], state.x[1])
    stiff = varied("corotated").at[0, 3].set(1e9)
    with pytest.raises(ValueError, match="too long for Corotated"):
        mpm.init(with_field(params.replace(timestep=1e-3), "corotated", stiff), state.x)
