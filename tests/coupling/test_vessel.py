"""Water in a vessel that is lighter than it: neither pushes the other more than it weighs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import coupling
from fphys.particles import sph

from .scenes import STEP, grid, in_tank

SPACING, WIDE, HIGH, SECONDS = 0.02, 0.2, 0.14, 0.5
CUP = f"""<mujoco><option timestep="{STEP / 2}" gravity="0 -9.81 0"/><worldbody><body name="cup">
<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/>
<inertial pos="0 0 0" mass="{{mass}}" diaginertia="1 1 1"/></body></worldbody></mujoco>"""


@pytest.mark.parametrize(("method", "mass", "speed"), [("wcsph", 2.0, 1.0), ("dfsph", 10.0, 10.0)])
def test_water_in_a_light_cup_stays_at_rest(method: str, mass: float, speed: float):
    """A cup of a fourteenth of its mass, or a third, and a force that carries both: nothing moves or swells."""
    model = fphys.load(CUP.format(mass=mass), dtype=jnp.float64)
    water = grid((-WIDE / 2, 0), (WIDE / 2, HIGH), SPACING)
    cup = grid((-WIDE / 2 - 3 * SPACING, -3 * SPACING), (WIDE / 2 + 3 * SPACING, HIGH + 0.1), SPACING)
    cup = cup[(np.abs(cup[:, 0]) > WIDE / 2) | (cup[:, 1] < 0)]
    params = sph.Params(SPACING, STEP / 2, 20.0, gravity=(0.0, -9.81), artificial=0.1, method=method)
    heads = np.concatenate([np.maximum(9810 * (HIGH - water[:, 1]), 0), np.zeros(len(cup))])
    given: dict[str, Any] = {"pressure": jnp.asarray(heads[None])} if method == "wcsph" else {}
    medium, matter, substeps = in_tank(
        params, speed, water, cup[:0], cup, np.zeros(2), (sph.WALL, sph.WALL), max_neighbors=80, **given
    )
    weight = 9.81 * (mass + 1000 * SPACING**2 * len(water))
    wrench = jnp.zeros((1, model.structure.nbody, 6)).at[0, 1, 1].set(weight)

    def advance(now: Any, _: None) -> Any:
        state, matter = coupling.step(model, now[0], (medium,), now[1], substeps=substeps, wrench=wrench)
        return (state, matter), state.qvel

    begun = fphys.init(model, 1), (matter,)
    (state, (matter,)), speeds = jax.jit(lambda now: jax.lax.scan(advance, now, None, round(2 * SECONDS / STEP)))(begun)
    sph.check(medium.params, matter)
    depth = 2 * float((matter.x[0, : len(water), 1] - state.qpos[0, 1]).mean())
    assert abs(depth / HIGH - 1) < 0.005
    assert float(jnp.sqrt((speeds**2).mean())) < 0.01  # [m/s]
