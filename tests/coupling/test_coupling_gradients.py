"""Gradients through bodies and matter that push each other."""

from typing import Any

import jax
import jax.numpy as jnp
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
