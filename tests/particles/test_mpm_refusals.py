"""The material point method: a state that does not fit together is refused, a number that cannot be stops its world."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fphys
from fphys.errors import StateError
from fphys.particles import boundary, mpm, sph

PARAMS = mpm.Params(mpm.Corotated(1e3, 1e4, 0.3), 1e-3, (0.0, -9.81), cell=1 / 16, shape=(16, 16))
SPACE = mpm.Params(mpm.Corotated(1e3, 1e4, 0.3), 1e-3, (0.0, 0.0, -9.81), cell=1 / 8, shape=(8, 8, 8))


def block(params: mpm.Params = PARAMS, worlds: int = 1, **given: Any) -> mpm.State:
    x = np.random.default_rng(0).uniform(0.3, 0.6, (1, 40, params.dim))
    return mpm.init(params, np.repeat(x, worlds, 0), **given)


@pytest.mark.parametrize("name", ["v", "C", "F", "history", "volume", "material"])
def test_fields_of_other_particles_are_refused(name: str):
    """Kernels would read beyond their ends."""
    state = block(worlds=2)
    field = getattr(state, name)
    for wrong in (field[:, :10], field[:1], jnp.concatenate([field, field])):
        with pytest.raises(ValueError, match=rf"state\.{name} has shape"):
            mpm.step(PARAMS, state.replace(**{name: wrong}))
    with pytest.raises(TypeError, match=rf"state\.{name} is"):
        mpm.step(PARAMS, state.replace(**{name: field.astype(jnp.int16 if name == "material" else jnp.float32)}))


def test_positions_of_other_particles_are_refused():
    state = block()
    for wrong in (state.x[:, :10], state.x[..., :1], state.x[0]):
        with pytest.raises(ValueError, match=r"state\.\w+ has"):
            mpm.step(PARAMS, state.replace(x=wrong))
    with pytest.raises(TypeError, match="step takes"):
        mpm.step(state, PARAMS)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [-2, 1, 50, 10**9])
def test_a_material_that_there_is_not_stops_its_world(number: int):
    """Where it is traced; on the host it is refused."""
    state = block(worlds=2)
    wrong = state.material.at[1, 7].set(number)
    after = jax.jit(mpm.step)(PARAMS, state.replace(material=wrong))
    np.testing.assert_array_equal(after.status, [0, fphys.Status.BADPARAM])
    np.testing.assert_array_equal(after.x[1], state.x[1])
    np.testing.assert_array_equal(after.material, wrong)
    np.testing.assert_array_equal(after.x[0], mpm.step(PARAMS, state).x[0])
    with pytest.raises(StateError, match=r"world 1: BADPARAM"):
        mpm.check(PARAMS, after)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
@pytest.mark.parametrize("name", ["density", "young", "poisson", "timestep"])
def test_a_number_that_cannot_be_stops_its_world_and_has_no_gradient(name: str, bad: float):
    state, good = block(worlds=3), {"density": 1e3, "young": 1e4, "poisson": 0.3, "timestep": 1e-3}

    def two(value: Any) -> mpm.State:
        changed = PARAMS.replace(timestep=value)
        if name != "timestep":
            changed = PARAMS.replace(material=PARAMS.material.replace(**{name: value}))
        return mpm.step(changed, mpm.step(changed, state.replace(F=state.F.at[..., 0, 0].set(1.1))))

    values = jnp.full(3, good[name])
    wrong = values.at[1].set(bad)
    after, fine = jax.jit(two)(wrong), two(values)
    np.testing.assert_array_equal(after.status, [0, fphys.Status.BADPARAM, 0])
    np.testing.assert_array_equal(after.x[1], state.x[1])
    for ours, other in zip(jax.tree.leaves(after), jax.tree.leaves(fine), strict=True):
        np.testing.assert_array_equal(ours[::2], other[::2])
    slope = jax.grad(lambda value: jnp.sum(two(value).v ** 2))
    np.testing.assert_array_equal(slope(wrong), slope(values).at[1].set(0.0))
    assert np.all(slope(values) != 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1e-3])
def test_a_volume_that_cannot_be_stops_its_world(bad: float):
    state = block(worlds=2)
    after = mpm.step(PARAMS, state.replace(volume=state.volume.at[0, 3].set(bad)))
    np.testing.assert_array_equal(after.status, [fphys.Status.BADPARAM, 0])
    np.testing.assert_array_equal(after.v[0], 0)


def test_check_names_the_particle_whose_velocity_is_not_finite():
    state = block()
    after = mpm.step(PARAMS, state.replace(v=state.v.at[0, 3].set(jnp.nan)))
    with pytest.raises(StateError, match=r"NONFINITE.*\(1, the first is 3\)"):
        mpm.check(PARAMS, after)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"timestep": 0.0}, "timestep is 0.0: it must be positive"),
        ({"material": mpm.Corotated(1e3, -1.0, 0.3)}, "Corotated.young is -1.0: it must be above 0"),
        ({"material": mpm.NeoHookean(1e3, 1e4, 0.5)}, "poisson is 0.5: it must be above -1 and below 0.5"),
        ({"material": mpm.Liquid(-1.0, 1e4)}, "Liquid.density is -1.0"),
        ({"material": mpm.Liquid(1e3, 1e4, 7.0, -1.0)}, "viscosity is -1.0: it must be not negative"),
        ({"material": mpm.VonMises(1e3, 1e4, 0.3, 0.0)}, "strength is 0.0"),
        ({"material": mpm.Snow(compression=1.5)}, "compression is 1.5"),
        ({"material": mpm.Corotated(1e3, np.full(3, 1e4), 0.3)}, r"Corotated.young has the shape \(3,\), there are 1"),
        ({"gravity": 9.81}, "gravity is 9.81, and has a direction"),
        ({"walls": mpm.Walls(velocity=1.0)}, "walls.velocity is 1.0, and has a direction"),
        ({"timestep": np.full(3, 1e-3)}, r"params.timestep has the shape \(3,\), there are 1 worlds"),
        ({"shape": 16}, "params.shape is 16"),
        ({"shape": (16, 0)}, r"params.shape is \(16, 0\)"),
        ({"cell": 0.0}, "params.cell is 0.0"),
        ({"cell": (0.1, 0.1)}, r"params.cell is \(0.1, 0.1\): the edge of a cell .* must be one number"),
        ({"lower": (1.0,)}, "params.lower has 1 numbers, the domain 2 axes"),
        ({"parts": -1}, "params.parts is -1"),
    ],
)
def test_numbers_that_cannot_be_are_refused(change: dict[str, Any], says: str):
    def begun() -> mpm.State:
        params = PARAMS.replace(**change)
        return mpm.step(params, block(params))

    with pytest.raises(ValueError, match=says):
        begun()


def test_nothing_is_a_number_in_float32_too():
    """A liquid without viscosity and a sand without cohesion, as arrays in single precision."""
    one = lambda x: np.full(1, x, np.float32)  # noqa: E731
    for material in (
        mpm.Liquid(one(1e3), one(1e4), one(7.0), one(0.0)),
        mpm.Sand(one(1e3), one(1e4), one(0.3), one(0.0), one(0.0)),
    ):
        params = PARAMS.replace(material=material)
        mpm.init(params, block().x.astype(np.float32))
    with pytest.raises(ValueError, match=r"viscosity is -1\.0: it must be not negative"):
        mpm.init(PARAMS.replace(material=mpm.Liquid(one(1e3), one(1e4), one(7.0), one(-1.0))), block().x)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"walls": mpm.Walls(hold="edge")}, ValueError, "walls.hold is 'edge'"),
        ({"walls": mpm.Walls("slippery")}, ValueError, "there is no contact 'slippery'"),
        ({"transfer": "flip"}, TypeError, "params.transfer is a str"),
        ({"transfer": mpm.AffineFlip}, TypeError, r"give mpm.Apic\(\) or mpm.AffineFlip\(\)"),
        ({"transfer": mpm.AffineFlip(keep="x")}, TypeError, "params.transfer.keep is 'x': give a number"),
        ({"transfer": mpm.AffineFlip(keep=None)}, TypeError, "params.transfer.keep is None"),
        ({"transfer": mpm.AffineFlip(keep=2.0)}, ValueError, r"params.transfer.keep is \[2.\]: it must lie between"),
        *(
            ({"material": mpm.Corotated(1e3, np.full(shape, 1e4), 0.3)}, ValueError, "Corotated.young has the shape")
            for shape in ((1, 41), (40,), (40, 1), (3, 40))
        ),
    ],
)
def test_init_refuses_what_a_step_would(change: dict[str, Any], error: type[Exception], says: str):
    with pytest.raises(error, match=says):
        block(PARAMS.replace(**change))


@pytest.mark.parametrize(("change", "says"), [({"material": None}, "Corotated"), ({"walls": "slip"}, "mpm.Walls")])
def test_parameters_of_another_type_are_refused(change: dict[str, Any], says: str):
    with pytest.raises(TypeError, match=says):
        mpm.step(PARAMS.replace(**change), block())


def test_materials_are_whole_numbers():
    with pytest.raises(TypeError, match="give whole numbers"):
        block(material=0.7)


@pytest.mark.parametrize(
    ("collider", "says"),
    [
        (boundary.sphere((0.4, 0.3), -1.0), "every length must be positive"),
        (boundary.sphere((0.4, 0.3), np.nan), "size is .* it must be finite"),
        (boundary.plane((0.0, 0.0), (0.0, 0.0)), "normal has no length"),
        (boundary.box((0.0, 0.0), (1.0, 1.0), quat=(0.0, 0.0, 0.0, 0.0)), "quaternion has no length"),
        (boundary.sphere((0.4, 0.3), 0.1, friction=-1.0), "friction is -1.0"),
        (boundary.sphere((0.4, 0.3), 0.1, velocity=1.0), "velocity is 1.0, and has a direction"),
        (boundary.field(np.ones((3, 3)), 0.0, (0.0, 0.0)), "size of a field"),
        (boundary.sphere(np.full((3, 2), 0.4), 0.1), "pos is of 3 worlds, there are 1"),
        (boundary.field(np.ones((3, 3, 3)), 0.1, (0.4, 0.3)), "has 3 samples along z, the scene is planar"),
    ],
)
def test_colliders_that_cannot_be_are_refused(collider: boundary.Collider, says: str):
    with pytest.raises(ValueError, match=says):
        mpm.step(PARAMS, block(), colliders=collider)


def test_a_collider_of_a_plane_is_refused_in_space():
    with pytest.raises(ValueError, match=r"pos has shape \(2,\), the scene is in space"):
        mpm.step(SPACE, block(SPACE), colliders=boundary.sphere((0.4, 0.3), 0.1))
    with pytest.raises(ValueError, match=r"spin is 2\.0, and has a direction"):
        mpm.step(SPACE, block(SPACE), colliders=boundary.sphere((0.4, 0.3, 0.4), 0.1, spin=2.0))
    with pytest.raises(ValueError, match="need"):
        boundary.field(np.ones(3), 0.1, (0.0, 0.0))
    with pytest.raises(TypeError, match="is a int"):
        mpm.step(PARAMS, block(), colliders=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("solver", ["mpm", "sph"])
def test_another_precision_than_the_kernels_have_is_refused(solver: str):
    params = PARAMS if solver == "mpm" else sph.Params(0.05, 1e-4, sound_speed=10.0)
    module: Any = mpm if solver == "mpm" else sph
    with pytest.raises(TypeError, match=r"positions \w+ float16"):
        module.init(params, block().x.astype(jnp.float16))


def test_materials_may_be_a_list():
    material = PARAMS.material
    assert PARAMS.replace(material=[material, material]).materials == (material, material)


def test_in_a_plane_a_spin_may_be_a_number():
    state = block()

    def spun(spin: Any) -> np.ndarray:
        ball = boundary.sphere((0.45, 0.4), 0.1, "sticky", spin=spin)
        return np.asarray(mpm.step(PARAMS, state, colliders=ball).v)

    np.testing.assert_array_equal(spun(2.0), spun((0.0, 0.0, 2.0)))
    assert np.abs(spun(2.0) - spun(0.0)).max() > 0.01


AT, DOWN, OVER = (0.45, 0.42), (0.0, 0.0, 0.0, 1.0), (0.5**0.5, 0.0, 0.5**0.5, 0.0)
"""A place among the particles; half a turn about z, and a quarter of one about y, after which z is along x."""


@pytest.mark.parametrize("width", [None, 0.1])
@pytest.mark.parametrize(
    ("shape", "same"),
    [
        (lambda **k: boundary.box((*AT, 0.3), (0.1, 0.12, 0.002), **k), lambda **k: boundary.box(AT, (0.1, 0.12), **k)),
        (lambda **k: boundary.box(AT, (0.1, 0.12, 0.0), DOWN, **k), lambda **k: boundary.box(AT, (0.1, 0.12), **k)),
        (lambda **k: boundary.box(AT, (2e-3, 0.1, 0.2), OVER, **k), lambda **k: boundary.box(AT, (0.2, 0.1), **k)),
        (lambda **k: boundary.capsule(AT, 0.1, 2e-3, **k), lambda **k: boundary.sphere(AT, 0.1, **k)),
    ],
)
def test_in_a_plane_a_box_has_no_end_along_the_third_axis(shape: Any, same: Any, width: Any):
    """And an upright capsule is a disk."""
    state, motion = block(), {"contact": "slip", "velocity": (0.3, 0.1), "width": width}

    def pushed(make: Any) -> np.ndarray:
        return np.asarray(mpm.step(PARAMS, state, colliders=make(**motion)).v)

    np.testing.assert_allclose(pushed(shape), pushed(same), rtol=0, atol=1e-12)
    assert np.abs(pushed(shape) - np.asarray(mpm.step(PARAMS, state).v)).max() > 0.01


def test_gradients_by_the_third_half_edge_are_zero():
    state = block()

    def pushed(half: Any, pos: Any) -> Any:
        made = boundary.box(pos, half, contact="slip", velocity=(0.3, 0.1), width=0.1)
        return (mpm.step(PARAMS, state, colliders=made).v ** 2).sum()

    for slope in jax.grad(pushed, (0, 1))(jnp.array([0.1, 0.12, 0.01]), jnp.array([*AT, 0.0])):
        assert (slope[:2] != 0).all() and slope[2] == 0
    two = jax.grad(pushed)(jnp.array([0.1, 0.12]), jnp.array(AT))
    np.testing.assert_array_equal(two, jax.grad(pushed)(jnp.array([0.1, 0.12, 0.01]), jnp.array(AT))[:2])
