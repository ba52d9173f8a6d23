"""Models, states, loads and particles accept quantities like bare arrays, or refuse them by name."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys import units
from fphys.errors import UnitError
from fphys.particles import boundary, mpm, sph

SLIDER = """
<mujoco><worldbody><body><joint name="x" type="slide" axis="1 0 0"/><geom size="0.1" mass="2"/></body></worldbody>
<actuator><{}/></actuator></mujoco>
"""


@pytest.fixture(scope="module")
def arm():
    return fphys.load(fphys.asset("double-pendulum"))


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_a_step_takes_quantities(arm):
    state = fphys.init(arm, 2, qpos=units.angle([30.0, 10.0], "deg"), qvel=units.angular_velocity([60.0, 0.0], "rpm"))
    bare = fphys.init(arm, 2, qpos=np.deg2rad([30.0, 10.0]), qvel=np.array([2 * np.pi, 0.0]))
    assert same(state, bare)
    torque, push, ones = units.torque(jnp.ones((2, 2))), units.force(jnp.ones((2, 3, 3))), jnp.ones((2, 2))
    wrench = units.wrench(push, units.cross(units.length(jnp.full((2, 3, 3), 0.1)), push))
    step = lambda s, t: fphys.step(arm, s, t, wrench, t)  # noqa: E731
    with_units, without = jax.make_jaxpr(step)(state, torque), jax.make_jaxpr(step)(state, ones)
    assert str(with_units) == str(without)
    rollout = lambda c: fphys.rollout(arm, state, c).qpos  # noqa: E731
    controls = jnp.ones((3, 2, 2))
    assert str(jax.make_jaxpr(rollout)(units.torque(controls))) == str(jax.make_jaxpr(rollout)(controls))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda m, s: fphys.step(m, s, units.force(np.ones((1, 2)))),
            r"ctrl is a force \[N\], must be a torque \[N m\]",
        ),
        (lambda m, s: fphys.step(m, s, units.energy(np.ones((1, 2)))), r"ctrl is an energy \[J\], must be a torque"),
        (
            lambda m, s: fphys.step(m, s, force=units.energy(np.ones((1, 2)))),
            r"force is an energy \[J\], must be a torque",
        ),
        (
            lambda m, s: fphys.step(m, s, wrench=units.force(np.ones((1, 3, 6)))),
            "wrench is a force, must be a bare array",
        ),
        (lambda m, s: fphys.forward(m, s, units.angle(np.ones((1, 2)))), r"ctrl is an angle \[rad\], must be a torque"),
        (lambda m, s: fphys.rollout(m, s, units.force(np.ones((3, 1, 2)))), r"ctrl is a force \[N\]"),
        (lambda m, s: fphys.linearize(m, s, units.force(np.ones((1, 2)))), r"ctrl is a force \[N\]"),
        (
            lambda m, s: fphys.init(m, 1, qpos=units.angle(np.ones(2)).to("deg")),
            "qpos is a reading in deg, must be an an",
        ),
        (
            lambda m, s: fphys.init(m, 1, qvel=units.velocity(np.ones(2))),
            r"qvel is a velocity \[m/s\], must be an angular",
        ),
        (
            lambda m, s: m.replace({"body.mass": units.inertia(np.ones(3))}),
            r"body.mass is an inertia \[kg m\^2\], must be",
        ),
        (
            lambda m, s: m.replace({"geom.size": units.length(np.ones((3, 3))).to("ft")}),
            r"geom.size is a reading in ft, mu",
        ),
        (
            lambda m, s: m.replace({"opt.timestep": units.time(0.1)}),
            r"opt.timestep is a time \[s\], must be a duration",
        ),
        (
            lambda m, s: m.replace({"dof.damping": units.damping(np.ones(2))}),
            r"must be an angular damping \[N m s/rad\]",
        ),
        (
            lambda m, s: m.replace({"geom.solref": units.duration(np.ones((3, 2)))}),
            "geom.solref is a duration, must be a b",
        ),
        (lambda m, s: fphys.step(m, s.replace(qpos=units.angle(s.qpos))), "state.qpos is of type Quantity"),
        (
            lambda m, s: jax.jit(fphys.step)(m, s, units.torque(np.ones((1, 2)))),
            "the model is traced, so that the actuators' gears are not known",
        ),
    ],
)
def test_a_wrong_kind_is_refused_by_name(arm, wrong, message):
    with pytest.raises(TypeError, match=message):
        wrong(arm, fphys.init(arm, 1))


def test_a_model_takes_quantities(arm):
    mass = np.asarray(arm.body.mass)
    changes = {"body.mass": units.mass(mass * 1e3, "g"), "opt.timestep": units.duration("2 ms")}
    changes |= {"opt.gravity": units.acceleration([0.0, 0.0, -9.81]), "dof.damping": units.angular_damping(np.ones(2))}
    model = arm.replace(changes)
    np.testing.assert_allclose(model.body.mass, mass, rtol=1e-14)
    assert model.opt.timestep == 2e-3 and (model.dof.damping == 1).all()
    height = lambda m: arm.replace({"body.mass": m}).body.mass.sum()  # noqa: E731
    assert (units.grad(height)(units.mass(jnp.asarray(mass))).value == 1).all()


@pytest.mark.parametrize(
    ("actuator", "kind"),
    [
        ('motor joint="x"', units.force),
        ('position joint="x" kp="5"', units.length),
        ('velocity joint="x" kv="5"', units.velocity),
    ],
)
def test_controls_of_a_kind(actuator, kind):
    model = fphys.load(SLIDER.format(actuator))
    state, ctrl = fphys.init(model, 1), np.ones((1, 1))
    assert same(fphys.step(model, state, kind(ctrl)), fphys.step(model, state, ctrl))
    with pytest.raises(UnitError, match="ctrl is a torque"):
        fphys.step(model, state, units.torque(ctrl))
    geared = model.replace({"actuator.gear": jnp.array([[150.0, 0, 0, 0, 0, 0]])})
    with pytest.raises(UnitError, match="must be a bare array"):
        fphys.step(geared, state, kind(ctrl))


def test_a_mixed_model_takes_no_quantity():
    cartpole = fphys.load(fphys.asset("cartpole"))
    with pytest.raises(UnitError, match="qpos is an angle, must be a bare array in SI units: its entries differ"):
        fphys.init(cartpole, 1, qpos=units.angle(np.ones(2)))


def test_bounds_hold_a_world(arm):
    state = fphys.init(arm, 2)
    limited = jax.jit(lambda s, t: fphys.step(arm, s, t.within("-3 N m", "3 N m")))
    after = limited(state, units.torque(jnp.array([[1.0, 1.0], [1.0, 9.0]])))
    assert after.status.tolist() == [0, fphys.Status.BADCTRL]
    assert (after.qvel[1] == 0).all() and (after.qvel[0] != 0).any()


LINE = np.arange(0.3, 0.6, 0.05)
BLOCK = np.stack(np.meshgrid(LINE, LINE, indexing="ij"), -1).reshape(1, -1, 2)


def soft(young, cell=0.1, timestep=1e-3, gravity=(0.0, -9.81), density=1000.0, **params):
    material = mpm.Corotated(density=density, young=young, poisson=0.3)
    return mpm.Params(material=material, timestep=timestep, gravity=gravity, cell=cell, shape=(10, 10), **params)


def fallen(params, x=BLOCK, force=None, **collider):
    state = mpm.init(params, x)
    ball = boundary.sphere(**({"pos": (0.4, 0.0), "radius": 0.25} | collider))
    return mpm.step(params, mpm.step(params, state, force, colliders=ball), force, colliders=ball).x


def test_mpm_takes_quantities():
    gravity = units.acceleration([0.0, -9.81])
    params = soft(
        units.pressure("20 kPa"), units.length("10 cm"), units.duration("1 ms"), gravity, units.density("1 g/cm^3"),
        walls=mpm.Walls(velocity=units.velocity(0.0)),
    )  # fmt: skip
    bare = soft(20e3, walls=mpm.Walls(velocity=0.0))
    one = jnp.ones((1, 1, 2))
    given = fallen(
        params, units.length(BLOCK), units.force(one), pos=units.length([0.4, 0.0]), radius=units.length(0.25)
    )
    assert params.cell == 0.1
    np.testing.assert_allclose(given, fallen(bare, force=one), rtol=1e-13)
    slope = units.grad(lambda p: units.length(fallen(p)[0, :, 1].mean()))(soft(units.pressure(2e4)))
    assert slope.material.young.kind.unit == "m^2 s^2/kg" and slope.material.young.value != 0
    assert slope.timestep.kind == units.length  # by a bare number


def water(**params):
    given = {
        "spacing": 0.05,
        "timestep": 1e-3,
        "sound_speed": 10.0,
        "gravity": np.array([0.0, -9.81]),
        "viscosity": 0.1,
    }
    return sph.Params(**(given | params))


def test_sph_takes_quantities():
    quantities = {
        "spacing": units.length("5 cm"),
        "timestep": units.duration("1 ms"),
        "viscosity": units.viscosity(0.1),
    }
    quantities |= {"sound_speed": units.velocity("36 km/h"), "gravity": units.acceleration([0.0, -9.81])}
    params = water(**quantities, density=units.density(1000.0))
    given = sph.step(params, sph.init(params, units.length(BLOCK)), units.force(np.ones(BLOCK.shape)))
    bare = sph.step(water(), sph.init(water(), BLOCK), np.ones(BLOCK.shape))
    assert same(given.x, bare.x) and same(sph.limit(params), sph.limit(water()))
    assert same(sph.forces(params, given), sph.forces(water(), bare))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: fallen(soft(units.force(2e4))), r"Corotated.young is a force \[N\], must be a pressure \[Pa\]"),
        (lambda: fallen(soft(2e4, units.length(0.1).to("ft"))), "params.cell is a reading in ft, must be a length"),
        (lambda: fallen(soft(2e4, timestep=units.frequency(1e3))), r"params.timestep is a frequency \[Hz\]"),
        (lambda: fallen(soft(2e4), units.length(BLOCK).to("ft")), "positions is a reading in ft"),
        (lambda: fallen(soft(2e4), force=units.torque(jnp.ones((1, 1, 2)))), r"force is a torque \[N m\], must be a"),
        (lambda: fallen(soft(2e4), radius=units.angle(1.0)), r"radius is an angle \[rad\], must be a length \[m\]"),
        (lambda: fallen(soft(2e4), velocity=units.force(1.0)), r"colliders\[0\].velocity is a force"),
        (lambda: sph.init(water(viscosity=units.pressure(1.0)), BLOCK), r"params.viscosity is a pressure \[Pa\], must"),
        (lambda: sph.init(water(artificial=units.viscosity(1.0)), BLOCK), "params.artificial is a viscosity, must be"),
        (lambda: sph.init(water(), units.area(BLOCK)), r"positions is an area \[m\^2\], must be a length \[m\]"),
        (lambda: water(spacing=units.length(0.05).to("ft")), "params.spacing is a reading in ft"),
    ],
)  # fmt: skip
def test_particles_refuse_by_name(wrong, message):
    with pytest.raises(UnitError, match=message):
        wrong()
