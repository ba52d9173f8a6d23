"""Bodies thinner than what holds particles: those that get through are reported."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import coupling
from fphys.coupling.particles import HOLDS
from fphys.particles import mpm
from fphys.worlds import Status

from .scenes import STEP, grid

CELL, WIDE, DEPTH, SOUND = 0.04, 0.32, 0.16, 10.0
PLATE = f"""<mujoco><option timestep="{STEP}" gravity="0 -9.81 0"/><worldbody>
<geom name="plate" type="box" size="{{half}} .04 1" friction="0"/></worldbody></mujoco>"""


def scene(spacings: Any, half: float = 1.0) -> tuple[Any, Any, Any, int]:
    """Water on plates of some thicknesses, in spacings of its particles, whose upper faces are at the height 0."""
    thick = jnp.asarray(spacings) * CELL / 2
    model = fphys.load(PLATE.format(half=half), dtype=jnp.float64)
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


def fallen(spacings: Any, seconds: float, half: float = 1.0) -> tuple[np.ndarray, np.ndarray, Any]:
    """How many particles are below each plate at the end, and whether the status says so; the matter."""
    model, medium, matter, substeps = scene(spacings, half)

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


def test_the_report_says_what_to_change():
    _, medium, matter, _ = scene([1.0])
    with pytest.raises(fphys.errors.StateError, match=r"THROUGH: .* at least two cells"):
        mpm.check(medium.params, matter.replace(status=matter.status | int(Status.THROUGH)))
