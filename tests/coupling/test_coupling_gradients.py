"""Gradients through bodies and matter that push each other."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys.coupling import exchange
from fphys.deformables import fem
from fphys.particles import mpm
from fphys.testing import check_grads

from .scenes import SCENES, Scene, rolled


def inputs(name: str, steps: int) -> tuple[Any, tuple[Any, ...]]:
    """A rollout of a scene in contact, as a function of what a user would ask for on both sides."""
    scene = SCENES[name]()
    (medium,) = scene.media
    if name == "mpm":
        numbers = {"stiffness": jnp.asarray([1.0])}
        made = lambda n: medium.params.replace(material=mpm.NeoHookean(1000.0, 1e5 * n["stiffness"], 0.3))  # noqa: E731
    elif name == "sph":
        numbers = {"density": jnp.asarray([1.0]), "viscosity": jnp.asarray([2.0])}
        made = lambda n: medium.params.replace(density=1000.0 * n["density"], viscosity=n["viscosity"])  # noqa: E731
    elif name == "fem":
        numbers = {"stiffness": jnp.asarray([1.0])}
        made = lambda n: medium.params.replace(material=fem.NeoHookean(1000.0, 1e5 * n["stiffness"], 0.3))  # noqa: E731
    else:
        numbers = {"density": jnp.asarray([0.5]), "compliance": jnp.asarray([1.0])}
        edges = scene.media[0].params.mesh
        made = lambda n: medium.params.replace(  # noqa: E731
            density=jnp.broadcast_to(n["density"], (1, len(edges.elements))), stretch=1e-5 * n["compliance"][0]
        )

    def run(mass: Any, inertia: Any, friction: Any, qvel: Any, v: Any, numbers: Any) -> Any:
        model = scene.model.replace({"body.mass": mass, "body.inertia": inertia, "geom.friction": friction})
        media = (medium.replace(params=made(numbers)),)
        state, (matter,) = scene.state.replace(qvel=qvel), scene.matter
        end = rolled(Scene(model, state, media, (matter.replace(v=v),), scene.substeps), steps)
        return end.state.qpos, end.state.qvel, end.matter[0].x, end.matter[0].v

    model, v = scene.model, scene.matter[0].v
    return run, (model.body.mass, model.body.inertia, model.geom.friction, scene.state.qvel, v, numbers)


STEPS = {"mpm": 6, "sph": 8, "pbd": 5, "fem": 5}
"""The ball touches after about two."""


@pytest.mark.parametrize("name", SCENES)
def test_of_both_sides(name: str, full: bool):
    run, args = inputs(name, STEPS[name])
    check_grads(jax.jit(run), args, tol=1e-5, directions=16 if full else 1)


@pytest.mark.parametrize("name", SCENES)
def test_a_world_with_a_fault_passes_no_gradient(name: str):
    """To what it shares with another: position, velocity, mass or inertia of its body are not numbers."""
    scene = SCENES[name]()
    two = lambda tree: jax.tree.map(lambda a: jnp.concatenate([a, a]), tree)  # noqa: E731
    shared = {"mass": jnp.ones(1), "inertia": jnp.ones(1), "h": jnp.ones(1)}
    spoilt = {"qpos": jnp.zeros(2), "qvel": jnp.zeros(2), "mass": jnp.zeros(2), "inertia": jnp.zeros(2)}

    @jax.jit
    @jax.grad
    def slope(shared: Any, spoilt: Any) -> Any:
        own = {name: shared[name] + spoilt[name] for name in ("mass", "inertia")}
        leaves = {f"body.{name}": getattr(scene.model.body, name) for name in own}
        size = lambda row, leaf: row.reshape(2, *[1] * (leaf.ndim - 1))  # noqa: E731
        changed = {path: leaf * size(own[path[5:]], leaf) for path, leaf in leaves.items()}
        changed["opt.timestep"] = scene.model.opt.timestep * shared["h"]
        state = two(scene.state)
        state = state.replace(**{n: getattr(state, n) + spoilt[n][:, None] for n in ("qpos", "qvel")})
        model = scene.model.replace(changed, derived="frozen")
        end = rolled(scene._replace(model=model, state=state, matter=two(scene.matter)), STEPS[name])
        return end.state.qvel[0].sum() + end.matter[0].v[0].sum()

    good = slope(shared, spoilt)
    assert all(np.any(row) for row in good.values())
    for field, row in spoilt.items():
        found = slope(shared, spoilt | {field: row.at[1].set(jnp.nan)})
        for wanted, gradient in zip(jax.tree.leaves(good), jax.tree.leaves(found), strict=True):
            np.testing.assert_allclose(gradient, wanted, rtol=1e-9, err_msg=field)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mpm", "sph"])
def test_over_a_hundred_steps(name: str):
    """They touch and part; long differences cross contacts and walls' kinks."""
    run, args = inputs(name, 100)
    check_grads(jax.jit(run), args, tol=1e-5, directions=2, steps=(1e-7, 1e-6, 1e-8))


@pytest.mark.parametrize(
    "name", ["mpm", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sph", "pbd", "fem"))]
)
def test_without_the_cotangent_of_the_reaction_it_is_wrong(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(exchange, "_wrench", lambda *args: jax.lax.stop_gradient(_WRENCH(*args)))
    run, args = inputs(name, STEPS[name])
    with pytest.raises(AssertionError, match="error"):
        check_grads(jax.jit(run), args, tol=1e-5, directions=1)


_WRENCH = exchange._wrench
