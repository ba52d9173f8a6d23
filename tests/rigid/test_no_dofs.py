"""A mechanism that nothing can move: every operation works, on arrays of size zero."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys

SCENE = """<mujoco><option {}/><worldbody>
<body mocap="true" pos="0 0 1"><geom size="0.1"/></body><geom type="plane" size="1 1 1"/></worldbody></mujoco>"""


@pytest.mark.parametrize("contacts", [0, 4])
@pytest.mark.parametrize("option", ['integrator="Euler"', 'integrator="RK4"', 'integrator="implicitfast" density="3"'])
def test_every_operation(option, contacts):
    model = fphys.load(SCENE.format(option), dtype="float64")
    state = fphys.init(model, 2, max_contacts=contacts)
    after = fphys.step(model, state)
    assert after.qpos.shape == (2, 0) and not after.status.any()
    qacc, info = fphys.forward(model, state)
    assert qacc.shape == (2, 0) and not info.status.any()
    assert fphys.inverse(model, state, qacc).shape == (2, 0)
    assert fphys.mass_matrix(model, state).shape == (2, 0, 0)

    m = model.structure.source
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    mujoco.mj_energyPos(m, d)
    potential, kinetic = fphys.energy(model, state)
    np.testing.assert_allclose(potential, d.energy[0], rtol=1e-14)
    assert d.energy[0] != 0 and not kinetic.any()

    def velocity(mass, mocap_pos):
        heavier = model.replace({"body.mass": mass})
        return fphys.step(heavier, state.replace(mocap_pos=mocap_pos)).qvel.sum()

    for gradient in jax.grad(velocity, argnums=(0, 1))(model.body.mass, state.mocap_pos):
        assert not jnp.any(gradient)
