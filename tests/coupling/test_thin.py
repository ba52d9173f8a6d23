"""Bodies thinner than what holds particles: those that get through are reported."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import coupling
from fphys.coupling.particles import HOLDS
from fphys.deformables import fem, mesh, pbd
from fphys.particles import mpm
from fphys.worlds import Status

from .scenes import STEP, grid

CELL, WIDE, DEPTH, SOUND = 0.04, 0.32, 0.16, 10.0
PLATE = f"""<mujoco><option timestep="{STEP}" gravity="0 -9.81 0"/><worldbody>
<geom name="plate" type="box" size="{{half}} .04 {{deep}}" friction="0"/></worldbody></mujoco>"""


def scene(spacings: Any, half: float = 1.0, deep: float = 1.0) -> tuple[Any, Any, Any, int]:
    """Water on plates of some thicknesses, in spacings of its particles, whose upper faces are at the height 0."""
    thick = jnp.asarray(spacings) * CELL / 2
    model = fphys.load(PLATE.format(half=half, deep=deep), dtype=jnp.float64)
    size = jnp.broadcast_to(model.geom.size, (len(thick), 1, 3)).at[:, 0, 1].set(thick / 2)
    pos = jnp.zeros((len(thick), 1, 3)).at[:, 0, 1].set(-thick / 2)
    model = model.replace({"geom.size": size, "geom.pos": pos})
    substeps = int(np.ceil(STEP * SOUND / (0.4 * CELL)))
    law = mpm.Liquid(1000.0, bulk=1000 * SOUND**2, gamma=7.0)
    shape, lower = (round(WIDE / CELL), 16), (-WIDE / 2, -8 * CELL)
    params = mpm.Params(law, STEP / substeps, (0, -9.81), cell=CELL, shape=shape, lower=lower)
    x = grid((-WIDE / 2, 0), (WIDE / 2, DEPTH), CELL / 2)
    matter = mpm.init(params, jnp.broadcast_to(jnp.asarray(x), (len(thick), *x.shape)))
    return model, coupling.MPM(params, ("plate",)), matter, substeps


def fallen(spacings: Any, seconds: float, **size: float) -> tuple[np.ndarray, np.ndarray, Any]:
    """How many particles are below each plate at the end, and whether the status says so; the matter."""
    model, medium, matter, substeps = scene(spacings, **size)

    @jax.jit
    def roll(state: Any, matter: Any) -> Any:
        def advance(now: Any, _: None) -> Any:
            state, (matter,) = coupling.step(model, now[0], (medium,), (now[1],), substeps=substeps)
            return (state, matter), None

        return jax.lax.scan(advance, (state, matter), None, round(seconds / STEP))[0]

    _, matter = roll(fphys.init(model, len(spacings)), matter)
    middle = -np.asarray(spacings) * CELL / 4
    below = (np.asarray(matter.x[..., 1]) < middle[:, None]).sum(1)
    return below, (np.asarray(matter.status) & int(Status.THROUGH)) > 0, matter


def test_no_particle_is_lost_silently(full: bool):
    """Through plates of half a spacing to three; from HOLDS cells on, all are held."""
    spacings = np.array([0.5, 1.0, 2.0, 3.0, 2 * HOLDS])
    below, said, _ = fallen(spacings, 4.0 if full else 1.0)
    np.testing.assert_array_equal(below > 0, said)
    assert below[0] > 0 and below[-1] == 0


def test_what_flows_around_a_plate_is_not_reported():
    below, said, _ = fallen(np.array([3.0]), 0.6, half=0.06)
    assert below[0] > 100 and not said[0]


def test_how_deep_a_plate_is_out_of_the_plane_has_no_effect():
    spacings = np.array([0.5, 2 * HOLDS])
    (below, said, matter), deep = fallen(spacings, 0.4, deep=0.002), fallen(spacings, 0.4)
    assert said.tolist() == [True, False] and below[0] > 0 and below[1] == 0
    np.testing.assert_array_equal(matter.x, deep[2].x)
    np.testing.assert_array_equal(matter.status, deep[2].status)


SLED = """<mujoco><option timestep="0.004" gravity="0 -9.81 0"/><worldbody><body name="sled" pos="0 0.09 0">
<joint type="slide" axis="0 1 0"/><joint type="hinge"/><inertial pos="0 0 0" mass="4" diaginertia=".03 .03 .03"/>
<geom name="sled" type="box" size="{size}" euler="{turn}"/></body></worldbody></mujoco>"""


@pytest.mark.parametrize("solver", ["mpm", "fem", "pbd"])
def test_a_body_that_is_thin_out_of_the_plane_is_held(solver: str):
    """The same as a deep one to the last bit; and one whose own z axis is in the plane, as its faces there say."""
    body, gravity, h = mesh.box((8, 3), (0.4, 0.1), (-0.21, -0.1)), (0.0, -9.81), STEP / 4
    pinned = tuple(np.flatnonzero(body.vertices[:, 1] < -0.09).tolist())
    if solver == "mpm":
        given: Any = mpm.Params(
            mpm.NeoHookean(1e3, 2e4, 0.3), h, gravity, cell=0.05, shape=(12, 10), lower=(-0.3, -0.1)
        )
        medium: Any = coupling.MPM(given, ("sled",))
        matter: Any = mpm.init(given, jnp.asarray(grid((-0.3, -0.1), (0.3, 0.0), 0.025))[None])
    elif solver == "fem":
        given = fem.Params(body, fem.NeoHookean(1e3, 2e4, 0.3), h, gravity, pinned=pinned)
        medium, matter = coupling.FEM(given, ("sled",)), fem.init(given)
    else:
        given = pbd.Params(body, 1e3, h, 1e-5, 1e-6, gravity=gravity, pinned=pinned, substeps=1)
        medium, matter = coupling.PBD(given, ("sled",)), pbd.init(given)

    def rolled(size: str, turn: str = "0 0 0") -> tuple[np.ndarray, np.ndarray]:
        model = fphys.load(SLED.format(size=size, turn=turn), dtype=jnp.float64)

        @jax.jit
        def roll(now: Any) -> Any:
            advance = lambda now, _: (coupling.step(model, now[0], (medium,), now[1], substeps=4), None)  # noqa: E731
            return jax.lax.scan(advance, now, length=20)[0]

        state, (after,) = roll((fphys.init(model, 1, qvel=[-2.0, 0.0]), (matter,)))
        assert not state.status.any() and not after.status.any()
        return np.asarray(state.qpos), np.asarray(after.x)

    deep = rolled(".1 .1 1")
    assert deep[0][0, 0] > -0.1  # free, it would be at -0.19
    for a, b in zip(rolled(".1 .1 .002"), deep, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(rolled(".1 .002 .1", "90 0 0"), deep, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)


def test_gravity_out_of_the_plane_is_refused():
    """It pulls a free body out of a medium that has another gravity; a scene seen from above may have it."""
    ball = """<mujoco><option timestep="0.004" gravity="0 0 -9.81"/><worldbody><body name="ball" pos="0 1 0">
    <freejoint/><geom name="ball" type="sphere" size=".1"/></body></worldbody></mujoco>"""
    _, medium, matter, substeps = scene([1.0])
    medium, model = medium.replace(geoms=("ball",)), fphys.load(ball, dtype=jnp.float64)

    def pushed(gravity: Any, **given: Any) -> None:
        changed = medium.replace(params=medium.params.replace(gravity=gravity))
        coupling.step(model, fphys.init(model, 1), (changed,), (matter,), substeps=substeps, **given)

    with pytest.raises(ValueError, match=r"pulls the free body 1 out of it: give the model \[0\.0, -9\.81, 0\.0\]"):
        pushed((0.0, -9.81))
    pushed(0.0)
    pushed((0.0, -9.81), unmoved="ball")


def test_the_report_says_what_to_change():
    _, medium, matter, _ = scene([1.0])
    with pytest.raises(fphys.errors.StateError, match=r"THROUGH: .* at least two cells"):
        mpm.check(medium.params, matter.replace(status=matter.status | int(Status.THROUGH)))
