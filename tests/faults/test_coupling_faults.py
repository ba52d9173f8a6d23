"""Bodies and matter with numbers that cannot be simulated: one world is held as a whole, the others go on as alone."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fphys import coupling
from fphys.errors import ModelError
from fphys.worlds import Status
from tests.coupling import scenes

MAKERS = [scenes.in_mpm, scenes.in_sph, scenes.in_pbd, scenes.in_fem]
LAWS = {
    "in_mpm": ("material.young", 0),
    "in_sph": ("density", 0),
    "in_pbd": ("damping", 0),
    "in_fem": ("material.young", 1),
}
"""A number of each medium, and how many axes it has beside worlds."""


def doubled(tree: Any) -> Any:
    """The same world twice."""
    return jax.tree.map(lambda a: jnp.concatenate([a, a]), tree)


def spoilt(scene: scenes.Scene, path: str, tail: int) -> tuple[Any, ...]:
    """The scene's medium, in its second world with a law's number that is NaN."""
    medium, *names = scene.media[0], *path.split(".")
    holder = medium.params if len(names) == 1 else getattr(medium.params, names[0])
    number = np.asarray([1.0, math.nan]).reshape(2, *(1,) * tail) * np.asarray(getattr(holder, names[-1]))
    wrong = {names[-1]: jnp.asarray(number)}
    params = medium.params.replace(**(wrong if len(names) == 1 else {names[0]: holder.replace(**wrong)}))
    return (medium.replace(params=params), *scene.media[1:])


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_law_that_cannot_be_holds_its_whole_world(make: Any):
    scene = make()
    start = doubled(scene.state), doubled(scene.matter)
    media = spoilt(scene, *LAWS[make.__name__])

    def run(media: Any) -> Any:
        def advance(now: Any, _: None) -> Any:
            return coupling.step(scene.model, now[0], media, now[1], substeps=scene.substeps), None

        return jax.lax.scan(advance, start, length=3)[0]

    faulty, sound = jax.jit(run)(media), jax.jit(run)(scene.media)
    state, matter = faulty
    assert int(matter[0].status[1]) & Status.BADPARAM and not int(matter[0].status[0])
    for old, new, other in zip(*map(jax.tree.leaves, (start, faulty, sound)), strict=True):
        if new.ndim and new.dtype != jnp.uint32:
            np.testing.assert_array_equal(new[1], old[1])
            np.testing.assert_allclose(new[0], other[0], rtol=1e-12, atol=1e-13)  # the laws are another program
    assert not np.array_equal(state.qpos[0], start[0].qpos[0])


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_step_after_a_bad_control_is_as_if_it_had_not_been(make: Any):
    """The bit of a step that was skipped stays; it holds neither bodies nor matter later."""
    scene = make()
    start = (scene.state, scene.matter)
    step = jax.jit(
        lambda now, force: coupling.step(scene.model, now[0], scene.media, now[1], substeps=scene.substeps, force=force)
    )
    good, bad = jnp.zeros_like(scene.state.qvel), jnp.full_like(scene.state.qvel, jnp.nan)
    skipped = step(start, bad)
    assert int(skipped[0].status[0]) & Status.BADCTRL and float(skipped[0].time[0]) == 0
    for found, wanted in zip(*map(jax.tree.leaves, (step(skipped, good), step(start, good))), strict=True):
        if found.dtype != jnp.uint32:
            np.testing.assert_array_equal(found, wanted)


def test_a_clock_that_no_longer_advances_holds_nothing():
    """At 1e18 s a time step is below rounding."""
    scene = scenes.in_pbd()
    late = scene.state.replace(time=jnp.full(1, 1e18))
    step = jax.jit(lambda s: coupling.step(scene.model, s, scene.media, scene.matter, substeps=scene.substeps))
    (after, matter), (wanted, others) = step(late), step(scene.state)
    np.testing.assert_array_equal(after.qpos, wanted.qpos)
    np.testing.assert_array_equal(matter[0].x, others[0].x)


def test_unmoved_bodies_have_names():
    scene = scenes.in_mpm()
    step = lambda unmoved: coupling.step(  # noqa: E731
        scene.model, scene.state, scene.media, scene.matter, substeps=scene.substeps, unmoved=unmoved
    )[0]
    free, number, name = (step(u) for u in ((), (1,), ("ball",)))
    np.testing.assert_array_equal(name.qpos, number.qpos)
    assert not np.array_equal(name.qvel, free.qvel)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"unmoved": ("bal",)}, ModelError, "did you mean 'ball'"),
        ({"unmoved": (7,)}, ModelError, "no body 7: it has 2"),
        ({"unmoved": (-1,)}, ModelError, "no body -1"),
        ({"substeps": 0}, ValueError, "give a whole number, one at least"),
        ({"substeps": 4.0}, ValueError, "substeps is 4.0"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], error: type[Exception], text: str):
    scene = scenes.in_mpm()
    arguments: Any = {"substeps": scene.substeps} | given
    with pytest.raises(error, match=text):
        coupling.step(scene.model, scene.state, scene.media, scene.matter, **arguments)
