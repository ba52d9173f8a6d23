"""Forces of the medium on ellipsoids, and gravity that actuators compensate, beside MuJoCo."""

from collections.abc import Iterable

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import fphys
from fphys.rigid.last import drives, unsolved
from fphys.testing import check_grads

from .mechanisms import relative

GEOMS = {
    "sphere": 'type="sphere" size="{}"',
    "capsule": 'type="capsule" size="{} {}"',
    "ellipsoid": 'type="ellipsoid" size="{} {} {}"',
    "cylinder": 'type="cylinder" size="{} {}"',
    "box": 'type="box" size="{} {} {}"',
    "mesh": 'type="mesh" mesh="wedge"',
}
COEFFICIENTS = {
    "all": "0.5 0.25 1.5 1 1",
    "kutta": "0 0 0 1 0",
    "magnus": "0 0 0 0 1",
    "angular": "0 0 1 0 0",
    "blunt": "1 0 0 0 0",
    "slender": "0 1 0 0 0",
}


def shoal(size: float, which: Iterable[str] = COEFFICIENTS) -> str:
    """A free body for each kind of geom and each coefficient; two geoms on a body, of which one is an ellipsoid."""
    bodies = [
        f'<body pos="{i} {j} 0"><freejoint/><geom {shape.format(size, 0.5 * size, 2 * size)} euler="10 20 {30 * j}" '
        f'pos="{0.3 * size} 0 0" fluidshape="ellipsoid" fluidcoef="{COEFFICIENTS[name]}"/><geom size="{size}"/></body>'
        for i, shape in enumerate(GEOMS.values())
        for j, name in enumerate(which)
    ]
    wedge = " ".join(f"{size * x} {size * y} {size * z}" for x, y, z in ((0, 0, 0), (3, 0, 0), (0, 1, 0), (0, 0, 2)))
    return f"""<mujoco><option density="300" viscosity="2" wind="1 0.5 0.2"/>
        <asset><mesh name="wedge" vertex="{wedge}"/></asset><worldbody>{"".join(bodies)}</worldbody></mujoco>"""


@pytest.mark.parametrize("size", [0.003, 0.3])
def test_the_force_on_an_ellipsoid(size: float):
    """For every geom, as if each of its coefficients were alone."""
    model = fphys.load(shoal(size), disable=("contact",))
    m, rng = model.structure.source, np.random.default_rng(0)
    d = mujoco.MjData(m)
    d.qvel[:] = rng.standard_normal(m.nv)
    mujoco.mj_integratePos(m, d.qpos, rng.standard_normal(m.nv), 1.0)
    mujoco.mj_forward(m, d)
    state = fphys.init(model, 1, d.qpos, d.qvel)
    bare = model.replace({"opt.density": jnp.zeros(1), "opt.viscosity": jnp.zeros(1)})
    force = jax.jit(lambda model: fphys.inverse(model, state, jnp.zeros((1, m.nv))))
    ours, theirs = (force(bare) - force(model)).reshape(-1, 6), d.qfrc_fluid.reshape(-1, 6)
    weight = np.repeat(9.81 * m.body_mass[1:, None], 3, 1)  # it is beside the force, and rounds
    np.testing.assert_allclose(ours[:, :3], theirs[:, :3], atol=1e-14 * weight.max(), rtol=1e-10)
    assert relative(ours[:, 3:], theirs[:, 3:]) < 1e-10


def test_what_ellipsoids_carry_follows_their_size():
    """As MuJoCo's mj_setConst, whose integrals err by 1e-5; the gradient is that of the integrals."""
    model = fphys.load(shoal(0.1, ("all",)))
    m = model.structure.source
    assert (model.replace({"body.mass": model.body.mass * 2}).geom.fluid == model.geom.fluid).all()
    size = model.geom.size * jnp.array([1.3, 0.8, 0.6])[None, None]
    ours = np.asarray(model.replace({"geom.size": size}).geom.fluid[0])
    changed = mujoco.MjModel.from_xml_string(shoal(0.1, ("all",)))
    changed.geom_size[:] = np.asarray(size[0])
    mujoco.mj_setConst(changed, mujoco.MjData(changed))
    np.testing.assert_allclose(ours, changed.geom_fluid, rtol=1e-4, atol=1e-6 * np.abs(m.geom_fluid[:, 6:]).max())
    assert np.abs(ours / np.where(m.geom_fluid > 0, m.geom_fluid, 1) - 1)[m.geom_fluid[:, 6] > 0, 6:].max() > 0.1
    scale = jnp.array([1e3, 1e3, 1e3, 1e5, 1e5, 1e5])[None, None]
    check_grads(lambda x: model.replace({"geom.size": x}).geom.fluid[..., 6:] * scale, (size,), tol=1e-6, directions=3)


def test_at_rest_there_is_no_force_and_a_gradient():
    """Roots of speeds and of areas are finite there, and so are their slopes."""
    text = shoal(0.1, ("all",)).replace(' wind="1 0.5 0.2"', "")
    model = fphys.load(text, disable=("contact",))
    state = fphys.init(model, 1)

    def total(model, state):
        return (fphys.forward(model, state)[0] * jnp.arange(1.0, model.structure.nv + 1)[None]).sum()

    value, grads = jax.jit(jax.value_and_grad(total, (0, 1), allow_int=True))(model, state)
    bare = model.replace({"opt.density": jnp.zeros(1), "opt.viscosity": jnp.zeros(1)})
    np.testing.assert_allclose(value, total(bare, state), rtol=1e-12)
    floats = [g for g in jax.tree.leaves(grads) if jnp.issubdtype(g.dtype, jnp.floating)]
    assert all(jnp.isfinite(g).all() for g in floats)
    assert jnp.abs(grads[1].qvel).max() > 0  # viscosity drags


ARM = """
<mujoco><option gravity="0 1 -9.8"><flag {flag}/></option><worldbody>
  <body gravcomp="0.7">
    <joint axis="0 1 0" actuatorgravcomp="true" actuatorfrcrange="-1 1"/>
    <joint type="slide" axis="0 0 1" actuatorgravcomp="true"/>
    <joint name="free" axis="1 0 0"/>
    <geom size=".1" pos=".3 0.1 0"/>
    <body pos="0.5 0 0" gravcomp="1"><joint type="ball" actuatorgravcomp="true"/><geom size=".1" pos=".3 0.1 0"/></body>
  </body></worldbody>{actuator}</mujoco>"""
FLAGS = ('gravity="enable"', 'gravity="disable"', 'actuation="disable"', 'spring="disable" damper="disable"')


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("nu", [0, 1])
def test_gravity_that_actuators_carry(flag: str, nu: int):
    """A range holds what a joint's actuator carries, whether the joint has one or not; nothing is carried where the
    model has none, or actuation is off."""
    actuator = '<actuator><motor joint="free"/></actuator>' * nu
    model = fphys.load(ARM.format(flag=flag, actuator=actuator), disable=("contact",))
    m = model.structure.source
    d = mujoco.MjData(m)
    d.ctrl[:] = 0.3
    mujoco.mj_forward(m, d)
    state, ctrl = fphys.init(model, 1), jnp.full((1, nu), 0.3)
    qacc = jax.jit(fphys.forward)(model, state, ctrl)[0]
    np.testing.assert_allclose(qacc[0], d.qacc, atol=1e-11)
    mujoco.mj_inverse(m, d)
    np.testing.assert_allclose(fphys.inverse(model, state, qacc)[0], d.qfrc_inverse, atol=1e-11)
    found = drives(model, unsolved(state), ctrl)
    np.testing.assert_allclose(found.qfrc_actuator[0], d.qfrc_actuator, atol=1e-12)
